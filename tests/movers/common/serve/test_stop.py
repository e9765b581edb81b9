#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""How the servers of all movers end: by SIGTERM and Ctrl-C with status 0. One that could not be
ended by them does not begin, says why and has status 1.

usage: test_stop.py SIDEWIRE DENY
"""
import os
import signal
import subprocess
import sys
import tempfile
import unittest

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), '../../../tools'))
import ports  # noqa: E402

SIDEWIRE, DENY = (os.path.abspath(path) for path in sys.argv[1:])
PORT = ports.claim()
SERVERS = {
    'nvme': ('nvme', 'target', '--listen', f'127.0.0.1:{PORT}', '--namespace', 'ram:1M'),
    'pmem': ('pmem', 'serve', '--listen', f'127.0.0.1:{PORT}', '--size', '64K', 'file'),
    'transfer': ('transfer', 'serve', '--listen', '127.0.0.1', '-m', '64K', '--card', 'card'),
}


class Stop(unittest.TestCase):
    def start(self, mover, *wrap):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        server = subprocess.Popen(
            [*wrap, SIDEWIRE, *SERVERS[mover]],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=folder.name,
        )
        self.addCleanup(server.stdout.close)
        self.addCleanup(server.wait)
        self.addCleanup(server.kill)
        return server

    def said(self, server):
        """Until it serves, or ends."""
        text = ''
        for line in server.stdout:
            text += line
            if 'Ctrl-C' in line:
                break
        return text

    def test_stop__by_signals(self):
        for mover in SERVERS:
            for number in signal.SIGTERM, signal.SIGINT:
                with self.subTest(mover=mover, number=number):
                    server = self.start(mover)
                    self.assertIn('Ctrl-C', self.said(server))
                    server.send_signal(number)
                    self.assertEqual(server.wait(20), 0)

    def test_stop__that_cannot_be_asked_for(self):
        for mover in SERVERS:
            with self.subTest(mover=mover):
                server = self.start(mover, DENY, '-e', 'EPERM', 'signalfd4', '--')
                text = self.said(server)
                self.assertNotIn('Ctrl-C', text)
                self.assertIn('signalfd: Operation not permitted', text)
                self.assertEqual(server.wait(20), 1, text)


if __name__ == '__main__':
    unittest.main(argv=sys.argv[:1])
