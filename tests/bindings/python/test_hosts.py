# SPDX-License-Identifier: BSD-2-Clause
"""Between two network namespaces, by packets: the examples, and arrays."""
import os
import subprocess
import sys
import tempfile
import time
import unittest

import served

ROOT = os.path.abspath(os.path.join(served.HERE, '../../..'))
sys.path.insert(0, os.path.join(ROOT, 'tests/apps'))
import hosts  # noqa: E402
import pair  # noqa: E402

IPC = '''
import sys
import numpy as np
from sidewire import ipc
if sys.argv[1] == 'listen':
    with ipc.listen(sys.argv[2]) as listener:
        with open(sys.argv[3], 'w') as file:
            print(listener.port, file=file)
        with listener.accept(20) as connection:
            for _ in range(4):
                connection.send(connection.recv(timeout=20), 20)
else:
    with ipc.connect(sys.argv[2], int(open(sys.argv[3]).read()), 20) as connection:
        for size in (1, 100, 5000, 300000):
            array = np.random.default_rng(size).random(size)
            connection.send(array, 20)
            assert (connection.recv(timeout=20) == array).all(), size
    print('the same')
'''


class Hosts(unittest.TestCase):
    def setUp(self):
        try:
            self.hosts = hosts.Hosts()
        except pair.Skip as why:
            self.skipTest(str(why))
        self.addCleanup(self.hosts.close)
        self.folder = self.enterContext(tempfile.TemporaryDirectory())
        self.file = os.path.join(self.folder, 'file')

    def start(self, host, *words):
        environment = {**os.environ, 'SIDEWIRE_LINK': 'roce'}
        preload = environment.pop('LD_PRELOAD')
        process = subprocess.Popen(
            [*self.hosts.wrap[host], 'env', f'LD_PRELOAD={preload}', sys.executable, *words],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        return process

    def both(self, first, second):
        """What they said; the second starts when the first has written its file."""
        one = self.start(0, *first)
        until = time.monotonic() + served.LIMIT_S
        while (
            not (os.path.exists(self.file) and os.path.getsize(self.file))
            and one.poll() is None
            and time.monotonic() < until
        ):
            time.sleep(0.01)
        two = self.start(1, *second)
        said = (
            two.communicate(timeout=served.LIMIT_S)[0],
            one.communicate(timeout=served.LIMIT_S)[0],
        )
        self.assertEqual((one.returncode, two.returncode), (0, 0), said)
        return said[1], said[0]

    def test_hosts__kv_cache_from_prefill_to_decode(self):
        program = os.path.join(ROOT, 'examples/python/kv_connector.py')
        decode, prefill = self.both(
            (program, 'decode', hosts.ADDRESSES[0], self.file),
            (program, 'prefill', hosts.ADDRESSES[1], self.file),
        )
        self.assertEqual(decode, ''.join(f'request {i} is right\n' for i in range(5)))
        self.assertEqual(prefill, '')

    def test_hosts__arrays(self):
        said = self.both(
            ('-c', IPC, 'listen', hosts.ADDRESSES[0], self.file),
            ('-c', IPC, 'connect', hosts.ADDRESSES[0], self.file),
        )
        self.assertEqual(said, ('', 'the same\n'))


if __name__ == '__main__':
    done = unittest.main(exit=False).result
    for _, reason in done.skipped[:1]:
        print(f'SKIP: {reason}')
        sys.exit(77)
    sys.exit(not done.wasSuccessful())
