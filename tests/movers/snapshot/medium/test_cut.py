#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""pmem: and nvme: between two hosts whose network is cut: for a while, for ever, and while another
writer takes over on the side of the server. What was held back by the cut never lands after it.

usage: test_cut.py SIDEWIRE DRIVE [CASE...]
"""
import os
import subprocess
import sys
import tempfile
import time
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path += [os.path.join(HERE, '../../..', folder) for folder in ('tools', 'apps', 'cli')]
import driven  # noqa: E402
from conformance import Conformance  # noqa: E402
from driven import BLOCK, MOST, ESTALE  # noqa: E402
from hosts import ADDRESSES, Hosts  # noqa: E402
from pair import Skip  # noqa: E402

SIDEWIRE, DRIVE, *CASES = sys.argv[1:]
NQN = 'nqn.2026-01.io.sidewire:default'


class Cut:
    another = Conformance.another
    assert_fine = Conformance.assert_fine
    size = 16 << 20

    def setUp(self):
        try:
            self.hosts = Hosts()
        except Skip as why:
            self.skipTest(str(why))
        self.addCleanup(self.hosts.close)
        folder = tempfile.TemporaryDirectory(dir='/var/tmp')
        self.addCleanup(folder.cleanup)
        path = os.path.join(folder.name, 'run')
        with open(path, 'wb') as file:
            os.posix_fallocate(file.fileno(), 0, self.size)
        self.server = subprocess.Popen(
            [*self.hosts.wrap[0], SIDEWIRE, *self.words(path)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.addCleanup(self.end_server)
        said = ''
        while 'Ctrl-C' not in said:
            line = self.server.stdout.readline()
            self.assertTrue(line, said)
            said += line
        self.side = 1

    def end_server(self):
        self.server.kill()
        self.server.wait()
        self.server.stdout.close()

    def drive(self):
        return driven.Driven([*self.hosts.wrap[self.side], SIDEWIRE, 'run', DRIVE])

    def cut(self, state):
        self.hosts.set_link(1, self.hosts.names[1], state)

    def lose(self, all_packets):
        """Those from the first writer's host: they go to a station that is not there. The server's
        link stays up."""
        name = self.hosts.names[1]
        station = f'{ADDRESSES[0]} lladdr 02:00:00:00:00:01 nud permanent dev {name}'.split()
        words = ['replace', *station] if all_packets else ['del', ADDRESSES[0], 'dev', name]
        self.hosts.ip('-n', name, 'neigh', *words)

    def test_cut__for_a_while(self):
        medium = self.another(timeout_ms=40000)
        self.assert_fine(medium.do('w', 0, MOST, 7))
        self.assert_fine(medium.do('f'))
        self.cut('down')
        for i in range(4):
            medium.begin('w', i * MOST // 4, MOST // 4, 8)
        time.sleep(0.5)
        self.cut('up')
        self.assert_fine(medium.wait())
        self.assert_fine(medium.do('f'))
        self.assert_fine(medium.do('r', 0, MOST, 8))

    def test_cut__for_ever(self):
        medium = self.another(timeout_ms=1500)
        self.cut('down')
        code, _, ended, why = medium.do('w', 0, BLOCK, 8)
        self.assertNotEqual((code, ended), (0, 0), why)
        self.assertEqual(medium.close()[3], 0)

    def test_cut__while_another_one_takes_over(self):
        first = self.another(timeout_ms=60000)
        self.assert_fine(first.do('w', 0, MOST, 1))
        self.assert_fine(first.do('f'))
        self.lose(True)
        for i in range(4):
            first.begin('w', i * MOST // 4, MOST // 4, 2)
        self.side = 0
        second = self.another('t')
        self.assert_fine(second.do('w', 0, MOST, 3))
        self.assert_fine(second.do('f'))
        self.lose(False)
        code, _, ended, why = first.wait()
        self.assertEqual((code, ended), (ESTALE, ESTALE), why)
        self.assert_fine(second.do('r', 0, MOST, 3))
        self.assert_fine(second.do('w', 0, MOST, 4))
        self.assert_fine(second.do('r', 0, MOST, 4))


class Pmem(Cut, unittest.TestCase):
    text = f'pmem:{ADDRESSES[0]}/run'

    def words(self, path):
        return ['pmem', 'serve', path, '--listen', ADDRESSES[0]]


class Nvme(Cut, unittest.TestCase):
    text = f'nvme:{ADDRESSES[0]}/{NQN}'

    def words(self, path):
        return ['nvme', 'target', '--namespace', f'file:{path}', '-l', ADDRESSES[0]]


if __name__ == '__main__':
    unittest.main(argv=[sys.argv[0], *CASES], verbosity=2)
