#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""The interface of a server goes and comes back, as in a restart of the network: each mover listens
again, says both, and serves whoever connects then.

usage: test_network_restart.py SIDEWIRE auto | iwarp
"""
import json
import os
import select
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), '../../../tools'))
from own_network import MOVED, move_to_own_network  # noqa: E402

SIDEWIRE, LINK = sys.argv[1:3]
ADDRESS, ABSENT, NQN = '192.0.2.1', '192.0.2.77', 'nqn.2026-01.io.sidewire:default'
WAIT_S = 60  # for what takes a tenth of a second on a machine with nothing else to do


def ip(words):
    subprocess.run(['ip', *words.split()], check=True)


def make_interface():
    ip('link add up0 type veth peer name up1')
    ip('link set up1 up')
    ip(f'address add {ADDRESS}/24 dev up0')
    ip('link set up0 up')


class Server:
    """A server whose lines are read one by one, from both of its outputs."""

    def __init__(self, *words):
        self.process = subprocess.Popen(
            [SIDEWIRE, *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        self.said = ''

    def until(self, words):
        """Reads up to the first line with these words, which is returned."""
        end = time.monotonic() + WAIT_S
        file = self.process.stdout
        while True:
            lines = self.said.split('\n')
            for i, line in enumerate(lines[:-1]):
                if words in line:
                    self.said = '\n'.join(lines[i + 1 :])
                    return line
            left = end - time.monotonic()
            if left <= 0 or not select.select([file], [], [], left)[0]:
                raise AssertionError(f'"{words}" was not said, but: {self.said}')
            got = os.read(file.fileno(), 65536)
            if not got:
                raise AssertionError(f'it ended, and had said: {self.said}')
            self.said += got.decode()

    def end(self):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()


class Restart(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.card, self.file = (os.path.join(folder.name, name) for name in ('card', 'file'))
        make_interface()
        self.addCleanup(lambda: subprocess.run(['ip', 'link', 'del', 'up0'], check=False))

    def serve(self, *words):
        server = Server(*words)
        self.addCleanup(server.end)
        server.until('Ctrl-C')
        return server

    def must(self, *words):
        done = subprocess.run(
            [SIDEWIRE, *words], capture_output=True, text=True, timeout=WAIT_S, check=False
        )
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout

    def goes_and_comes(self, server, port, use):
        """Twice: a second loss is as good as the first one."""
        use()
        for _ in range(2):
            ip('link del up0')
            self.assertIn(f'{ADDRESS} port {port}', server.until('does not listen at'))
            self.while_away()
            make_interface()
            self.assertIn(f'{ADDRESS} port {port} again', server.until('listens at'))
            use()
        for change in (
            f'address del {ADDRESS}/24 dev up0;address add {ADDRESS}/24 dev up0',
            'link set up0 down;link set up0 up',
            'link set up0 address 02:00:5e:00:53:01',
        ):
            for words in change.split(';'):
                ip(words)
            use()  # it is not lost by these, or back before anybody asks

    def while_away(self):
        pass

    def test_nvme(self):
        control = self.card + '.control'
        server = self.serve(*'nvme target -l 192.0.2.1:4420 -n ram:1M --control'.split(), control)
        status = ['nvme', 'target', 'status', '--control', control]

        def is_listening():
            ports = json.loads(self.must(*status, '-o', 'json'))['ports']
            return [port['is_listening'] for port in ports]

        def use():
            self.must(*f'nvme id-ctrl -a {ADDRESS} -s 4420 -n {NQN}'.split())
            self.assertEqual(is_listening(), [True])

        def while_away():
            self.assertEqual(is_listening(), [False])
            self.assertIn('not listening', self.must(*status))

        self.while_away = while_away
        self.goes_and_comes(server, 4420, use)

    def test_pmem(self):
        server = self.serve(*'pmem serve -l 192.0.2.1:4430 -S 1M'.split(), self.file)
        use = ['pmem', 'ls', '-a', ADDRESS]
        self.goes_and_comes(server, 4430, lambda: self.must(*use))

    def test_who_asks_for_an_absent_host(self):
        for words in f'nvme id-ctrl -s 4420 -n {NQN}', 'pmem ls':
            done = subprocess.run(
                [SIDEWIRE, *words.split(), '-a', ABSENT],
                capture_output=True,
                text=True,
                timeout=WAIT_S,
                check=False,
            )
            self.assertIn(f'nobody answers at {ABSENT}', done.stdout + done.stderr)
            self.assertRegex(done.stderr, 'does the network lead there[?]')

    def test_transfer(self):
        server = self.serve(*'transfer serve -l 192.0.2.1:4440 -m 1M -c'.split(), self.card)
        data = os.urandom(4096)
        with open(self.file, 'wb') as file:
            file.write(data)

        def use():
            self.must('transfer', 'write', '-c', self.card, '-r', 'memory', self.file)

        self.goes_and_comes(server, 4440, use)


if __name__ == '__main__':
    move_to_own_network()
    if MOVED not in os.environ:
        print('SKIP: a network of its own needs root')
        sys.exit(77)
    if LINK != 'auto':
        os.environ['SIDEWIRE_LINK'] = LINK
    unittest.main(argv=sys.argv[:1], verbosity=2)
