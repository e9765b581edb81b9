#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""Goes over all commands that `sidewire` and its movers list: help, version, JSON, and what they
say where the line, a port, an address or a file is wrong: a status, a cause, a remedy, no more.

usage: test_all.py SIDEWIRE
"""
import concurrent.futures
import contextlib
import json
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
LIMIT_S = 60
NQN = 'nqn.2026-01.io.sidewire:default'
AT = {mover: f'127.0.0.1:{ports.claim()}' for mover in ('nvme', 'pmem', 'snapshot')}
PORT = {mover: at.split(':')[1] for mover, at in AT.items()}
NOWHERE = ports.claim()
# Commands of commands that have no list of their own.
WITHIN = {
    ('nvme', 'target'): 'add remove move clear status metrics stop',
    ('pmem', 'log'): 'create append read tail trim status recover bench',
}
# docs/operators.md says why: a program's own output, metrics, and servers, which have a log.
WITHOUT_JSON = re.compile(r'run|nvme target|pmem serve|snapshot serve|.*metrics')
# What can be asked of the servers of this test.
HOST = f'-a 127.0.0.1 -s {PORT["nvme"]}'
SNAP = '--sink file:run.snap'
ASKED = [
    'doctor',
    'devices',
    'status',
    f'nvme discover {HOST}',
    f'nvme connect-test {HOST} -n {NQN}',
    f'nvme id-ctrl {HOST} -n {NQN}',
    f'nvme id-ns {HOST} -n {NQN}',
    f'nvme list {HOST} -n {NQN}',
    f'nvme resv-report {HOST} -n {NQN}',
    f'nvme bench {HOST} -n {NQN} --runtime 0.1',
    'nvme target status',
    f'pmem ls -a 127.0.0.1 -s {PORT["pmem"]}',
    f'pmem info -a 127.0.0.1 -s {PORT["pmem"]}',
    f'pmem status -a 127.0.0.1 -s {PORT["pmem"]}',
    f'pmem bench -a 127.0.0.1 -s {PORT["pmem"]} --count 10 --rw read',
    'pmem status',
    f'pmem log status --copy {AT["pmem"]}',
    'transfer ls -c card',
    'transfer status',
    'transfer bench -c card --bs 4K',
    'transfer plan --from L/PBTH:2:16 --to L/PBHT:4:64',
    f'snapshot save {SNAP} x.safetensors',
    f'snapshot ls {SNAP}',
    f'snapshot verify {SNAP}',
    'snapshot status',
    'nvme target add -n ram:1M',
    'nvme target remove -n 2',
    f'snapshot save --sink peer:{AT["snapshot"]}/v x.safetensors',
    'snapshot remove v',
]
# Each of these is one that nobody answers, or is not there.
ABSENT = [
    f'nvme {one} -a 127.0.0.1 -s {NOWHERE} -n {NQN}'
    for one in ('connect-test', 'id-ctrl', 'list', 'resv-report', 'bench')
] + [
    f'nvme discover -a 127.0.0.1 -s {NOWHERE}',
    f'pmem ls -a 127.0.0.1 -s {NOWHERE}',
    f'pmem get -a 127.0.0.1 -s {NOWHERE} out',
    f'pmem put -a 127.0.0.1 -s {NOWHERE} file',
    f'pmem log read --copy 127.0.0.1:{NOWHERE} --wait 100',
    f'snapshot ls --sink peer:127.0.0.1:{NOWHERE}/v',
    f'snapshot remove -a 127.0.0.1 -s {NOWHERE} v',
    'snapshot ls --sink file:nothing',
    'snapshot restore --sink file:nothing out',
    'snapshot save --sink file:new nothing',
    'transfer ls -c nothing',
    'transfer read -c nothing out',
    f'nvme write {HOST} -n {NQN} -d nothing -z 4096',
    f'pmem put -a 127.0.0.1 -s {PORT["pmem"]} nothing',
    'nvme target -n file:nothing -l 127.0.0.1:1',
    'nvme target --config nothing',
    'pmem serve nothing',
    'transfer serve -l 127.0.0.1 -c out nothing',
    'snapshot serve -m 1M --folder nothing/below',
    'coll diagnose nothing',
]
# Commands that connect, without what says where to.
CONNECTING = [
    'nvme discover -a 127.0.0.1',
    f'nvme list -n {NQN} -a 127.0.0.1',
    'pmem ls -a 127.0.0.1',
    'pmem bench --rw read -a 127.0.0.1',
    'pmem log status --copy 127.0.0.1',
    'snapshot remove v -a 127.0.0.1',
    'snapshot ls --sink peer:127.0.0.1',
]
NO_PORTS = ('65536', '99999999999', '0', '-1', 'x', '1x')
# Servers, without what says where they listen.
LISTENING = [
    'nvme target -n ram:1M --listen 127.0.0.1',
    'pmem serve file --listen 127.0.0.1',
    'snapshot serve -m 1M --listen 127.0.0.1',
    'transfer serve -c out -m 1M --listen 127.0.0.1',
]
# That it waits for a server; the cause; what mends it, in that line or the next.
ONE_ERROR = re.compile(
    r'\A(sidewire [a-z -]+: [^\n]+; trying again for 2 s\n)?'
    r'sidewire [a-z -]+: [^\n]{10,300}\n(  [^\n]+\n)?\Z'
)


def said(line, folder='.', **env):
    return subprocess.run(
        [SIDEWIRE, *line.split()],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        cwd=folder,
        env={**os.environ, **env},
        check=False,
    )


def all_commands():
    def listed(words):
        listing = said(f'{words} --help').stdout.partition('Commands:\n')[2]
        return re.findall(r'^  ([a-z][a-z-]*) +\S', listing.split('\n\n')[0], re.M)

    for command in listed(''):
        if command == 'help':  # its argument is a command
            continue
        yield command
        for one in listed(command):
            yield f'{command} {one}'
    for words, more in WITHIN.items():
        yield from (' '.join([*words, one]) for one in more.split())


def at_once(function, items):
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        return list(zip(items, pool.map(function, items)))


class All(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.commands = list(all_commands())

    def test_there_are_all(self):
        movers = {words.split()[0] for words in self.commands}
        self.assertLessEqual({'run', 'nvme', 'pmem', 'transfer', 'snapshot', 'coll'}, movers)
        self.assertGreater(len(self.commands), 60)

    def test_help__fits_a_terminal(self):
        for words, done in at_once(lambda words: said(f'{words} --help'), self.commands):
            with self.subTest(words=words):
                self.assertEqual((done.returncode, done.stderr), (0, ''))
                self.assertIn('Usage: sidewire', done.stdout)
                self.assertEqual([line for line in done.stdout.split('\n') if len(line) > 80], [])

    def test_version(self):
        version = said('--version').stdout
        self.assertRegex(version, r'^sidewire [\d.]+\n$')
        for words, done in at_once(lambda words: said(f'{words} --version'), self.commands):
            with self.subTest(words=words):
                self.assertEqual((done.returncode, done.stdout, done.stderr), (0, version, ''))

    def test_option__that_is_none(self):
        for words, done in at_once(lambda words: said(f'{words} --zork'), self.commands):
            with self.subTest(words=words):
                self.assertEqual((done.returncode, done.stdout), (125 if words == 'run' else 2, ''))
                cause, remedy = done.stderr.rstrip('\n').split('\n', 1)
                self.assertRegex(cause, f"^sidewire {words}: .* '--zork'$")
                self.assertRegex(
                    remedy.replace('\n', ' '), rf"^Try `sidewire {words} --help'[^.]*\.$"
                )

    def test_format__json_or_not(self):
        for words, done in at_once(lambda words: said(f'{words} --help'), self.commands):
            if ' ' not in words and 'Commands:' in done.stdout:
                continue
            with self.subTest(words=words):
                has_json = '--output-format=' in done.stdout
                self.assertEqual(has_json, not WITHOUT_JSON.fullmatch(words))
                if has_json:
                    done = said(f'{words} --output-format yaml')
                    self.assertEqual((done.returncode, done.stdout), (2, ''))
                    self.assertRegex(done.stderr, r'^[^\n]*\bjson\b')


class WithServers(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = folder.name
        cls.servers = {}
        cls.addClassCleanup(cls.kill_all)
        with open(f'{cls.folder}/file', 'wb') as file:
            file.truncate(1 << 20)
        header = b'{"x":{"dtype":"U8","shape":[8],"data_offsets":[0,8]}}'
        with open(f'{cls.folder}/x.safetensors', 'wb') as file:
            file.write(len(header).to_bytes(8, 'little') + header + bytes(8))
        for line in (
            f'nvme target -l {AT["nvme"]} -n ram:1M',
            f'pmem serve -l {AT["pmem"]} --size 1M region',
            'transfer serve -l 127.0.0.1 -m 1M -c card',
            f'snapshot serve -l {AT["snapshot"]} -m 64M',
        ):
            done = cls.ask(f'{line} --background')
            found = re.search(r'\bkill (\d+)', done.stdout + done.stderr)
            assert found, done
            cls.servers[re.match('nvme target|[a-z]+', line)[0]] = int(found[1])

    @classmethod
    def kill_all(cls):
        for pid in cls.servers.values():
            os.kill(pid, signal.SIGKILL)

    @classmethod
    def ask(cls, line):
        return said(line, cls.folder, XDG_RUNTIME_DIR=cls.folder)

    def test_json__is_all_that_is_printed(self):
        for line in ASKED:
            with self.subTest(line=line):
                done = self.ask(f'{line} --output-format json')
                is_partial = line.startswith(('doctor', 'status', 'pmem log'))
                self.assertIn(done.returncode, (0, 1) if is_partial else (0,), done)
                self.assertTrue(done.stdout, done)
                shown = json.loads(done.stdout)
                self.assertIsInstance(shown, (dict, list), done)
                if re.match('nvme target (add|remove)|snapshot remove', line):
                    self.assertTrue(shown['lines'][0])

    def test_stop__json_too(self):  # the last, by its name
        for mover in list(self.servers):
            with self.subTest(mover=mover):
                done = self.ask(f'{mover} stop --output-format json')
                self.assertEqual((done.returncode, done.stderr), (0, ''))
                (line,) = json.loads(done.stdout)['lines']
                self.assertRegex(line, rf'process {self.servers[mover]}, has ended$')
                del self.servers[mover]

    def test_several__each_is_named_by_its_process(self):
        line = f'pmem serve -l 127.0.0.1:{ports.claim()} --size 1M second --background'
        done = self.ask(line)
        other = int(re.search(r'\bkill (\d+)', done.stdout + done.stderr)[1])
        try:
            both = ', '.join(str(pid) for pid in sorted([other, self.servers['pmem']]))
            for command in ('pmem stop', 'pmem status', 'pmem metrics'):
                done = self.ask(command)
                told = f'sidewire {command}: 2 servers run, processes {both}; say which by --pid\n'
                self.assertEqual((done.returncode, done.stdout, done.stderr), (1, '', told))
            done = self.ask(f'pmem stop --pid {other}')
            self.assertEqual(done.stdout, f'the server, process {other}, has ended\n', done)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.kill(other, signal.SIGKILL)

    def test_ports__that_are_none(self):
        lines = [
            f'{line}:{port}/v' if 'peer:' in line else f'{line}:{port}'
            for line in CONNECTING
            for port in NO_PORTS
        ]
        servers = [f'{line}:{port}' for line in LISTENING for port in NO_PORTS if port != '0']
        one_by_one = [(line, self.ask(line)) for line in servers]  # they would lock one file
        for line, done in at_once(self.ask, lines) + one_by_one:
            with self.subTest(line=line):
                self.assertIn(done.returncode, (1, 2), done)
                self.assertEqual(done.stdout, '', done)
                self.assertRegex(done.stderr, r'\A[^\n]*\bport\b[^\n]*\n(Try `[^.]*\.\n)?\Z')

    def test_absent__a_line_and_no_more(self):
        for line, done in at_once(self.ask, ABSENT):
            with self.subTest(line=line):
                self.assertEqual(done.returncode, 1, done)
                self.assertEqual(done.stdout, '', done)
                self.assertRegex(done.stderr, ONE_ERROR)


unittest.main(argv=[sys.argv[0], *sys.argv[2:]], verbosity=2)
