#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""What commands of all movers say where something is wrong: the cause, in one line, and a remedy
that is one.

usage: test_messages.py SIDEWIRE
"""
import os
import re
import signal
import subprocess
import sys
import tempfile
import unittest

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), '../../../tools'))
import ports  # noqa: E402

SIDEWIRE = os.path.abspath(sys.argv[1])
PORT = ports.claim()
AT = f'127.0.0.1:{PORT}'
LIMIT_S = 60
NQN = 'nqn.2026-01.io.sidewire:default'
NOBODY = 'fe80::1%nothing'  # as good as a name that nobody has, and asks no server of names

# A port that is none, in each place where one is said.
PORTS = [
    'nvme discover -a 127.0.0.1 -s {port}',
    'nvme list -a 127.0.0.1 -n x -s {port}',
    'nvme target -n ram:1M -l 127.0.0.1:{port}',
    'pmem ls -a 127.0.0.1 -s {port}',
    'pmem status -a 127.0.0.1 -s {port}',
    'pmem serve file -l 127.0.0.1:{port}',
    'pmem serve file -l 127.0.0.1 -s {port}',
    'pmem log read --copy 127.0.0.1:{port}',
    'pmem log append --copy 127.0.0.1:{port}',
    'transfer serve file -c card -l 127.0.0.1:{port}',
    'transfer serve file -c card -l 127.0.0.1 -s {port}',
    'snapshot serve -m 1M -l 127.0.0.1:{port}',
    'snapshot serve -m 1M -s {port}',
    'snapshot ls --sink peer:127.0.0.1:{port}/v',
    'snapshot remove -a 127.0.0.1 -s {port} v',
    'coll perf --ranks 2 --rank 0 --meet 127.0.0.1:{port}',
]
# Addresses that nobody has: no RDMA device mends that.
NAMES = [
    f'nvme discover -a {NOBODY}',
    f'pmem ls -a {NOBODY}',
    f'pmem log read --copy {NOBODY}',
    f'transfer serve file -c card -l {NOBODY}',
]
VERSIONED = ['nvme', 'pmem', 'transfer', 'coll', 'nvme list', 'nvme target add', 'pmem log read']
# What is wrong, the status, what is said, and what is not.
WRONG = [
    (
        f'nvme target -l {AT} -n file:nothing',
        1,
        'namespace 1: nothing cannot be opened.*No such file',
        'listening',
    ),
    (
        f'nvme target -l {AT} -n ram:1M --dhchap-secret nqn.x.y:h=@nothing',
        1,
        r"the secret of 'nqn\.x\.y:h' in nothing: No such file",
        'listening',
    ),
    (f'nvme target -l {AT} -n ram:1M -n file:nothing', 1, 'namespace 2: nothing', 'subsystem'),
    ('snapshot serve --memory 65535', 2, 'no volume fits into 65535 bytes', 'listen'),
    ('pmem serve /dev/nothing', 1, '/dev/nothing: there is no such device', '--size'),
    ('transfer serve -l 127.0.0.1 -c card /dev/nothing', 1, 'no such device', '--size'),
    ('pmem serve nothing', 1, 'nothing: there is no such file; --size creates it', 'device'),
    ('nvme connect -t rdma', 2, "no command 'connect': each command connects by", 'Commands:'),
    ('pmem serve /dev/null', 1, '/dev/null: it is no DAX device; a file does as well', 'No such'),
    ('help zork', 2, "no command 'zork'\nTry `sidewire --help', which lists them", 'Commands:'),
]


class Messages(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        with open(os.path.join(self.folder, 'file'), 'wb') as file:
            file.truncate(1 << 20)

    def run_one(self, line, folder='.'):
        """Its status, and all that it says."""
        done = subprocess.run(
            [SIDEWIRE, *line.split()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=LIMIT_S,
            cwd=os.path.join(self.folder, folder),
            check=False,
        )
        return done.returncode, done.stdout

    def serve(self, line):
        status, said = self.run_one(f'{line} --background')
        self.assertEqual(status, 0, said)
        self.addCleanup(os.kill, int(re.search(r'\bkill (\d+)', said)[1]), signal.SIGKILL)
        return said

    def test_ports__are_not_taken_modulo_65536(self):
        for line in PORTS:
            for port in 65536, 65536 + PORT, 1 << 64:
                with self.subTest(line=line, port=port):
                    status, said = self.run_one(line.format(port=port))
                    self.assertEqual(status, 1, said)
                    self.assertRegex(said, f'{port}.*65535|"{str(port)[:16]}')
                    self.assertEqual(said.count('\n'), 1, said)

    def test_version__is_told_by_all(self):
        told = self.run_one('--version')
        self.assertEqual(told[0], 0)
        for words in VERSIONED:
            with self.subTest(words=words):
                self.assertEqual(self.run_one(f'{words} --version'), told)

    def test_names__are_no_matter_of_devices(self):
        for line in NAMES:
            with self.subTest(line=line):
                status, said = self.run_one(line)
                self.assertEqual(status, 1, said)
                self.assertIn(NOBODY, said)
                self.assertNotIn('devices', said)
                self.assertEqual(said.count('\n'), 1, said)

    def test_wrong__is_told_with_what_mends_it(self):
        for line, wanted, told, untold in WRONG:
            with self.subTest(line=line):
                status, said = self.run_one(line)
                self.assertEqual(status, wanted, said)
                self.assertRegex(said, told)
                self.assertNotIn(untold, said)

    def test_size__that_a_file_does_not_get_is_told(self):
        stays = 'file has 1048576 bytes, and stays so'
        self.assertIn(stays, self.serve(f'pmem serve file --size 2M -l {AT} --shared'))
        for size, is_told in (('2M', True), ('1M', False)):
            said = self.serve(f'transfer serve file --shared --size {size} -l 127.0.0.1 -c card')
            self.assertEqual(stays in said, is_told, said)

    def test_add__takes_paths_of_the_users_folder(self):
        os.mkdir(os.path.join(self.folder, 'a,b'))
        with open(os.path.join(self.folder, 'a,b', 'more'), 'wb') as file:
            file.truncate(1 << 20)
        self.serve(f'nvme target -l {AT} -n ram:1M --control {self.folder}/control')
        status, said = self.run_one('nvme target add -n file:more --control ../control', 'a,b')
        self.assertEqual(status, 0, said)
        self.assertIn('namespace 2', said)

    def test_log__waits_for_copies_not_in_silence(self):
        waiting = {
            command: subprocess.Popen(
                [SIDEWIRE, 'pmem', 'log', command, '--copy', AT, '--wait', '3000'],
                stdin=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                text=True,
            )
            for command in ('append', 'read', 'status')
        }
        for command, process in waiting.items():
            with self.subTest(command=command), process:
                said = process.communicate(timeout=LIMIT_S)[1]
                self.assertEqual(process.returncode, 1, said)
                self.assertEqual(said.count('; trying again for 1 s\n'), 1, said)


if __name__ == '__main__':
    unittest.main(argv=sys.argv[:1])
