# SPDX-License-Identifier: BSD-2-Clause
"""The programs of examples/python and the code of docs/python.md: run as they stand there, and
counted."""
import os
import re
import subprocess
import sys
import tempfile
import time
import unittest

import served

ROOT = os.path.abspath(os.path.join(served.HERE, '../../..'))
EXAMPLES = os.path.join(ROOT, 'examples/python')
LINES_MAX = 20


def read(path):
    with open(path, encoding='utf-8') as file:
        return file.read()


class Examples(unittest.TestCase):
    def start(self, name, *args):
        process = subprocess.Popen(
            [sys.executable, os.path.join(EXAMPLES, name), *args],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        return process

    def test_pair__has_twenty_lines_each(self):
        for name in ('server.py', 'client.py'):
            self.assertLessEqual(
                len(read(os.path.join(EXAMPLES, name)).splitlines()), LINES_MAX, name
            )

    def test_pair__writes_and_reads_each_other(self):
        with tempfile.TemporaryDirectory() as folder:
            card = os.path.join(folder, 'card')
            server = self.start('server.py', '127.0.0.1', card)
            until = time.monotonic() + served.LIMIT_S
            while (
                not (os.path.exists(card) and os.path.getsize(card))
                and time.monotonic() < until
                and server.poll() is None
            ):
                time.sleep(0.01)
            client = self.start('client.py', '127.0.0.1', card)
            said = (
                client.communicate(timeout=served.LIMIT_S)[0],
                server.communicate(timeout=served.LIMIT_S)[0],
            )
        numbers = ' '.join(map(str, range(16)))
        self.assertEqual(said[1], f'the client wrote {numbers}\n')
        self.assertEqual(
            said[0],
            (
                f'the server wrote {" ".join(map(str, range(100, 116)))}\n'
                'its last four are 112 113 114 115\n'
            ),
        )
        self.assertEqual((client.returncode, server.returncode), (0, 0))

    def test_document__runs_as_it_stands(self):
        """Its blocks of Python are one program, with two agents in one process, and need no line
        that does not stand there."""
        blocks = re.findall(
            r'^```python\n(.*?)^```', read(os.path.join(ROOT, 'docs/python.md')), re.M | re.S
        )
        self.assertGreater(len(blocks), 3)
        done = subprocess.run(
            [sys.executable, '-c', '\n'.join(blocks) + '\nprint("end")\n'],
            capture_output=True,
            text=True,
            timeout=served.LIMIT_S,
            check=False,
        )
        self.assertEqual((done.returncode, done.stderr), (0, ''))
        self.assertTrue(done.stdout.endswith('end\n'))


if __name__ == '__main__':
    unittest.main()
