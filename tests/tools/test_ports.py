#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""Tests of neighbours do not meet at a port."""
import socket
import subprocess
import sys
import unittest

import ports

OTHER = 'import sys, ports\nprint(ports.take(int(sys.argv[1])), flush=True)\nsys.stdin.read()\n'


def start_other(port):
    other = subprocess.Popen(
        [sys.executable, '-B', '-c', OTHER, str(port)],
        cwd=sys.path[0],
        text=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    return other, other.stdout.readline() == 'True\n'


def end_other(other):
    other.kill()
    other.communicate()


class Claim(unittest.TestCase):
    def test_claim__is_kept_from_other_processes(self):
        other, got_it = start_other(ports.claim())
        end_other(other)
        self.assertFalse(got_it)

    def test_claim__never_the_same_twice(self):
        firsts = [ports.claim(3) for _ in range(50)]
        self.assertEqual(len({first + i for first in firsts for i in range(3)}), 150)

    def test_claim__ends_with_the_process(self):
        port = ports.claim()
        ports.release(port)
        other, got_it = start_other(port)
        self.assertTrue(got_it)
        self.assertFalse(ports.take(port))
        end_other(other)
        self.assertTrue(ports.take(port))

    def test_is_bound__by_who_knows_nothing_of_this(self):
        for kind in socket.SOCK_STREAM, socket.SOCK_DGRAM:
            with socket.socket(socket.AF_INET, kind) as stranger:
                stranger.bind(('127.0.0.1', 0))
                self.assertTrue(ports.is_bound(stranger.getsockname()[1]))
        self.assertFalse(ports.is_bound(ports.claim()))


class Only(unittest.TestCase):
    def test_only__waits_for_who_has_it(self):
        port = ports.claim()
        ports.release(port)
        other, _ = start_other(port)
        waiting = subprocess.Popen(
            [
                sys.executable,
                '-B',
                '-c',
                'import sys, ports\nwith ports.Only(int(sys.argv[1])): print("mine")',
                str(port),
            ],
            cwd=sys.path[0],
            text=True,
            stdout=subprocess.PIPE,
        )
        with self.assertRaises(subprocess.TimeoutExpired):
            waiting.wait(0.3)
        end_other(other)
        self.assertEqual(waiting.communicate(timeout=60)[0], 'mine\n')

    def test_only__gives_it_back(self):
        port = ports.claim()
        ports.release(port)
        with ports.Only(port):
            self.assertFalse(ports.take(port))
        self.assertTrue(ports.take(port))


if __name__ == '__main__':
    unittest.main(verbosity=2)
