#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""A host writes much, and is killed. The server, which sleeps from then on, lets go of the sockets
that it had for this host alone.

usage: test_idle.py SIDEWIRE
"""
import os
import subprocess
import sys
import tempfile
import time
import unittest

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), '../../..')
for folder in 'apps', 'tools':
    sys.path.append(os.path.join(ROOT, folder))
from hosts import ADDRESSES, Hosts  # noqa: E402
from pair import Skip  # noqa: E402

SIDEWIRE = sys.argv[1]
LIMIT_S = 60  # of 11 s on a machine with nothing else to do
BUSY_S = 30
WRITES = '-D -f 8M -B 64K -c 10000000'.split()


def until(is_true, patience_s):
    limit = time.monotonic() + patience_s
    while not is_true() and time.monotonic() < limit:
        time.sleep(0.2)
    return is_true()


class Idle(unittest.TestCase):
    def setUp(self):
        self.hosts = Hosts()
        self.addCleanup(self.hosts.close)
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        region = os.path.join(folder.name, 'region')
        words = ['serve', region, '--size', '16M', '--listen', ADDRESSES[0]]
        self.server = self.start(0, *words, stdout=subprocess.PIPE, text=True)
        for line in self.server.stdout:
            if 'Ctrl-C' in line:
                break

    def start(self, host, *words, **options):
        process = subprocess.Popen([*self.hosts.wrap[host], SIDEWIRE, 'pmem', *words], **options)
        self.addCleanup(self.end, process)
        return process

    def streams(self):
        """The connected UDP sockets of the server, one a line."""
        words = [*self.hosts.wrap[0], *'ss --no-header --numeric --udp state established'.split()]
        return subprocess.run(words, capture_output=True, text=True, check=True).stdout

    @staticmethod
    def end(process):
        process.kill()
        process.wait()
        if process.stdout:
            process.stdout.close()

    def test_a_server_that_sleeps_holds_no_socket_for_a_host_that_is_gone(self):
        self.assertEqual(self.streams(), '')
        host = self.start(1, 'bench', '-a', ADDRESSES[0], *WRITES, stdout=subprocess.DEVNULL)
        self.assertTrue(until(self.streams, BUSY_S), 'a stream has no socket of its own')
        self.assertIsNone(host.poll(), 'the host has ended by itself')
        self.end(host)
        self.assertTrue(until(lambda: not self.streams(), LIMIT_S), self.streams())


if __name__ == '__main__':
    try:
        Hosts().close()
    except Skip as skip:
        print(f'SKIP: {skip}')
        sys.exit(77)
    unittest.main(argv=sys.argv[:1], verbosity=2)
