#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""sidewire transfer as users run it: a server and its peers, restarts on one port, deaths, loss,
two namespaces.

usage: test_transfer.py SIDEWIRE LINK [RESTARTS]   with a number of restarts: these alone
"""
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest

for folder in '../../../apps', '../../../tools':
    sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), folder))
import ports  # noqa: E402
from hosts import ADDRESSES, Hosts  # noqa: E402
from pair import Skip  # noqa: E402

SIDEWIRE, LINK = sys.argv[1:3]
PORT = str(ports.claim())
MIB = 1 << 20
RESTARTS = int(sys.argv[3]) if len(sys.argv) > 3 else 5
if LINK in ('roce', 'iwarp'):
    os.environ['SIDEWIRE_LINK'] = LINK


class Server:
    def __init__(self, card, *words, wrap=(), listen='127.0.0.1'):
        if os.path.exists(card):
            os.unlink(card)
        self.process = subprocess.Popen(
            [*wrap, SIDEWIRE, 'transfer', 'serve', '-l', listen, '-c', card, *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        first = self.process.stderr.readline()
        if 'Ctrl-C' not in first:
            raise RuntimeError('the server said: ' + first + self.process.stderr.read())

    def stop(self, how):
        self.process.send_signal(how)
        said, _ = self.process.communicate(timeout=20)
        return said


class Transfer(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.card = self.path('card')

    def path(self, name):
        return os.path.join(self.folder, name)

    def serve(self, *words, **how):
        server = Server(self.card, *words, **how)
        self.addCleanup(lambda: server.process.poll() is not None or server.stop(signal.SIGKILL))
        return server

    def peer(self, command, *words, wrap=(), card=None):
        return subprocess.run(
            [*wrap, SIDEWIRE, 'transfer', command, '-c', card or self.card, *words],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def must(self, command, *words, **how):
        done = self.peer(command, *words, **how)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def file(self, name, data):
        with open(self.path(name), 'wb') as file:
            file.write(data)
        return self.path(name)

    def content(self, name):
        with open(self.path(name), 'rb') as file:
            return file.read()

    def test_copies__what_is_written_is_there(self):
        data = os.urandom(3 * MIB + 123)
        server = self.serve('--memory', '8M', self.file('served', bytes(4 * MIB)))
        self.file('data', data)
        for region, block in (('memory', '1M'), ('served', '4097')):
            told = json.loads(
                self.must(
                    'write',
                    '-r',
                    region,
                    '-f',
                    '1000',
                    '--block',
                    block,
                    '--notice',
                    f'{region} \n',
                    '-o',
                    'json',
                    self.path('data'),
                )
            )
            self.assertEqual(told['bytes'], len(data))
            self.must(
                'write', '-r', region, '-f', '1000', '--bs', block, '--sums', self.path('data')
            )
            self.must(
                'read',
                '--sums',
                '-r',
                region,
                *f'-f 1000 -b {len(data)}'.split(),
                '--block',
                block,
                self.path('back'),
            )
            self.assertEqual(self.content('back'), data)
        self.assertEqual(self.content('served')[1000 : 1000 + len(data)], data)
        self.assertEqual(
            server.stop(signal.SIGTERM), 'visitor 1: "memory \\n"\nvisitor 4: "served \\n"\n'
        )
        self.assertEqual(server.process.returncode, 0)

    def test_ls__says_what_is_so(self):
        self.serve(
            '--memory',
            '8M',
            '-s',
            PORT,
            '--read-only',
            '--layout',
            'pages of 16',
            self.file('served', bytes(4096)),
        )
        shown = json.loads(self.must('ls', '-o', 'json'))
        self.assertEqual(shown['addresses'], [f'127.0.0.1 port {PORT}'])
        self.assertEqual(
            shown['regions'],
            [
                {'name': 'memory', 'bytes': 8 * MIB, 'rights': 'r'},
                {'name': 'served', 'bytes': 4096, 'rights': 'r'},
            ],
        )
        self.assertNotEqual(int(shown['layout'], 16), 0)
        self.assertEqual(os.stat(self.card).st_mode & 0o777, 0o600)
        for words, why in (
            (('write', self.file('data', b'x')), 'does not give that right'),
            (('read', '-r', 'zork', self.path('b')), 'no region "zork"'),
            (('read', '-b', '9M', self.path('b')), 'cannot be moved'),
        ):
            done = self.peer(*words)
            self.assertEqual(done.returncode, 1)
            self.assertIn(why, done.stderr)

    def test_status__of_the_server_here(self):
        control = self.path('control')

        def here(command, *words):
            line = [SIDEWIRE, 'transfer', command, '--control', control, *words]
            return subprocess.run(line, capture_output=True, text=True, timeout=30, check=False)

        server = self.serve('--memory', '1M', '--control', control)
        self.must('write', '--notice', 'there', self.file('source', bytes(4096)))
        status = json.loads(here('status', '-o', 'json').stdout)
        self.assertEqual(
            (status['notices'], status['rails'], status['regions']),
            (
                1,
                [{'address': '127.0.0.1', 'is_up': True}],
                [{'name': 'memory', 'bytes': MIB, 'rights': 'rw'}],
            ),
        )
        self.assertRegex(here('status').stdout, 'memory +1048576 +rw')
        self.assertIn('\nsidewire_transfer_notices_total 1\n', here('metrics').stdout)
        self.assertIn('visitor', server.stop(signal.SIGTERM))
        self.assertEqual(server.process.returncode, 0)
        self.assertFalse(os.path.exists(control))
        self.assertIn('is the server running', here('metrics').stderr)

    def test_serve__a_name_that_is_no_utf8_is_shown(self):
        path = os.path.join(os.fsencode(self.folder), b'caf\xe9')
        with open(path, 'wb') as file:
            file.write(bytes(4096))
        control = self.path('control')
        self.serve('--control', control, path)
        self.assertIn('\ncaf? ', self.must('ls'))
        for words in (('ls', '-c', self.card), ('status', '--control', control)):
            done = subprocess.run(
                [SIDEWIRE, 'transfer', *words, '-o', 'json'],
                capture_output=True,
                text=True,
                check=False,
            )
            self.assertEqual(json.loads(done.stdout)['regions'][0]['name'], 'caf?')

    def test_serve__nobody_has_the_card_before_it_is_there(self):
        """Another user may have made the file that is renamed, and have it open."""
        with open(self.file('card.new', b''), 'rb') as trap:
            os.chmod(self.path('card.new'), 0o666)
            self.serve('--memory', '1M')
            self.assertEqual(trap.read(), b'')
        self.assertEqual(os.stat(self.card).st_mode & 0o777, 0o600)

    def test_serve__an_address_that_no_card_can_lead_to(self):
        for address in '0.0.0.0', '[::]':
            done = self.peer('serve', '-l', address, '-m', '1M')
            self.assertEqual(done.returncode, 1, done.stdout)
            self.assertIn("'ip address' lists them", done.stderr)
            self.assertFalse(os.path.exists(self.card))

    def test_serve__a_file_once(self):
        server = self.serve(self.file('served', bytes(MIB)))

        def refused(*words):
            done = self.peer(
                'serve', '-l', '127.0.0.1', *words, self.path('served'), card=self.path('other')
            )
            self.assertEqual(done.returncode, 1, done.stdout)
            return done.stderr

        for words in ('--read-only',), ('--shared',), ():
            self.assertIn(
                f'sidewire-transf (PID {server.process.pid}) has it locked', refused(*words)
            )
        server.process.send_signal(signal.SIGKILL)
        self.serve('--shared', self.path('served'))
        self.assertIn('shared', refused())
        other = Server(self.path('other'), '--shared', self.path('served'))
        other.stop(signal.SIGKILL)

    def test_serve__makes_a_file(self):
        self.serve('--size', '64K', self.path('new'))
        self.assertEqual(len(self.content('new')), 64 << 10)
        self.must('write', '-r', 'new', self.file('data', b'for the new one'))
        self.assertEqual(self.content('new')[:15], b'for the new one')

    def test_serve__holes_are_filled_or_refused(self):
        """A peer's write that finds the disk full would end its transfer; readers need no room."""
        with open(self.path('sparse'), 'wb') as file:
            file.truncate(MIB)
        server = self.serve(self.path('sparse'), '--read-only')
        self.assertEqual(os.stat(self.path('sparse')).st_blocks, 0)
        server.stop(signal.SIGINT)
        self.serve(self.path('sparse'))
        self.assertGreaterEqual(os.stat(self.path('sparse')).st_blocks * 512, MIB)
        stat = os.statvfs(self.folder)
        with open(self.path('large'), 'wb') as file:
            try:
                file.truncate(stat.f_bavail * stat.f_frsize + (1 << 30))
            except OSError:
                self.skipTest('no file may be as large')
        self.card = self.path('other card')
        with self.assertRaisesRegex(RuntimeError, 'No space left.*make room'):
            self.serve(self.path('large'))
        self.assertEqual(os.stat(self.path('large')).st_blocks, 0)

    def test_card__damaged_and_foreign_are_refused(self):
        self.serve('--memory', '1M')
        card = bytearray(self.content('card'))
        for at, value, why in ((5, 9, 'another version'), (20, 1, 'damaged'), (0, 0, 'damaged')):
            changed = bytearray(card)
            changed[at] ^= value or 1
            done = self.peer('read', self.path('b'), card=self.file('bad', changed))
            self.assertEqual(done.returncode, 1)
            self.assertIn(why, done.stderr)
        self.assertEqual(self.peer('ls', card=self.file('bad', card[:-1])).returncode, 1)

    def test_restart__another_instance_on_one_port(self):
        old = None
        data = self.file('data', os.urandom(100000))
        for _ in range(RESTARTS):
            server = self.serve('--memory', '1M', '-s', PORT)
            if old:
                done = self.peer('write', data, card=old)
                self.assertEqual(done.returncode, 1)
                self.assertIn('another instance', done.stderr)
            self.must('write', data)
            self.must('read', '-b', '100000', self.path('back'))
            self.assertEqual(self.content('back'), self.content('data'))
            old = self.file('old', self.content('card'))
            server.stop(signal.SIGKILL)
        done = self.peer('write', data)
        self.assertIn('nobody is there: its agent has ended', done.stderr)

    def test_deadline__ends_the_transfer(self):
        self.serve('--memory', '400M')
        start = time.monotonic()
        done = self.peer('read', '--deadline', '5', self.path('back'))
        self.assertEqual(done.returncode, 1)
        self.assertIn('deadline', done.stderr)
        self.assertLess(time.monotonic() - start, 20)

    def test_plan__says_what_a_pair_of_layouts_costs(self):
        def plan(*words):
            return subprocess.run(
                [SIDEWIRE, 'transfer', 'plan', '-o', 'json', *words],
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
            )

        alike = json.loads(plan('--from', 'L/PBTH:2:16', '--to', 'L/PBTH:2:16').stdout)
        self.assertEqual(alike['bytes'], 32 * 2 * 4096 * 8 * 256)
        self.assertEqual(
            [(pair['source'], pair['target'], pair['blocks']) for pair in alike['pairs']],
            [(0, 0, 32), (1, 1, 32)],
        )
        other = json.loads(
            plan(
                '--from', 'L/PBTH:2:16', '--to', 'L/PBHT:4:64', '--tokens', '100', '--layers', '1'
            ).stdout
        )
        self.assertEqual(
            [(pair['source'], pair['target'], pair['blocks']) for pair in other['pairs']],
            [(i // 2, i, 2 * 2 * 100) for i in range(4)],
        )
        for words, why in (
            (('--from', 'LPBTH:3:16', '--to', 'LPBTH:2:16'), 'neither divides'),
            (('--from', 'LPBTH:0:16', '--to', 'LPBTH:2:16'), 'no such rank'),
            (('--from', 'LPBTH:1:0', '--to', 'LPBTH:2:16'), 'blocks'),
            (('--from', 'LPBT:1:1', '--to', 'LPBTH:2:16'), 'an order'),
        ):
            done = plan(*words)
            self.assertEqual(done.returncode, 1)
            self.assertIn(why, done.stderr)

    def test_bench__has_a_row_for_each_size(self):
        self.serve('--memory', '1M')
        told = json.loads(self.must('bench', '-o', 'json', '--random'))
        self.assertEqual(
            [row['block_bytes'] for row in told['rows']], [4096, 16384, 65536, 262144, 1048576]
        )
        for row in told['rows']:
            self.assertEqual(row['block_bytes'] * row['blocks'], MIB)
            self.assertGreater(row['mb_per_s'], 0)
            self.assertGreater(row['p50_us'], 0)
            # the old keys
            self.assertAlmostEqual(
                row['gb_per_s'] * 1000, row['mb_per_s'], delta=0.01 * row['mb_per_s']
            )
            self.assertEqual(row['latency_us'], row['p50_us'])
        self.assertEqual((told['rw'], told['operation']), ('write', 'write'))
        self.assertEqual(
            len(
                json.loads(
                    self.must('bench', '-o', 'json', '--blocks', '100', '--rw', 'read', '--sums')
                )['rows']
            ),
            1,
        )


class Network(unittest.TestCase):
    """Two namespaces."""

    def setUp(self):
        try:
            self.hosts = Hosts()
        except Skip as why:
            self.skipTest(str(why))
        self.addCleanup(self.hosts.close)

    def check(self, *run):
        with tempfile.TemporaryDirectory() as folder:
            card, data, back = (os.path.join(folder, name) for name in ('card', 'data', 'back'))
            with open(data, 'wb') as file:
                file.write(os.urandom(5 * MIB + 7))
            server = Server(card, '--memory', '8M', wrap=self.hosts.wrap[0], listen=ADDRESSES[0])
            try:
                for command, path in (('write', data), ('read', back)):
                    words = [
                        *self.hosts.wrap[1],
                        'env',
                        *run,
                        SIDEWIRE,
                        'transfer',
                        command,
                        '-c',
                        card,
                        '--block',
                        '70001',
                        '--notice',
                        command,
                    ]
                    done = subprocess.run(
                        [*words, '-b', str(5 * MIB + 7), path],
                        capture_output=True,
                        text=True,
                        timeout=60,
                        check=False,
                    )
                    self.assertEqual(done.returncode, 0, done.stderr)
            finally:
                said = server.stop(signal.SIGTERM)
            self.assertEqual(said.count('visitor'), 2)
            with open(data, 'rb') as one, open(back, 'rb') as other:
                self.assertEqual(one.read(), other.read())

    def test_network__data_arrives(self):
        self.check()

    def test_network__also_through_loss(self):
        self.check('SIDEWIRE_FAULTS=loss=1%,dup=1%,reorder=2%:200us,seed=7')


if __name__ == '__main__':
    if LINK == 'auto':
        del Network  # which is between hosts, and so over packets anyway
    unittest.main(
        argv=sys.argv[:1]
        + (['Transfer.test_restart__another_instance_on_one_port'] if len(sys.argv) > 3 else [])
    )
