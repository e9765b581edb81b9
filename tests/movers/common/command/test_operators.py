#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""What operators have of each server: systemd is told when it is ready, reloads and ends; its log,
for people and for the journal; metrics by HTTP, also where strangers speak it badly, and as a file;
`stop`; and bash completion.

usage: test_operators.py SIDEWIRE COMPLETION
"""
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), '../../../tools'))
import ports  # noqa: E402

SIDEWIRE, COMPLETION = (os.path.abspath(path) for path in sys.argv[1:3])
PORT, METRICS = ports.claim(), ports.claim()
AT = f'127.0.0.1:{PORT}'
LIMIT_S = 60
SERVERS = {
    'nvme': f'nvme target --listen {AT} --namespace ram:1M',
    'pmem': f'pmem serve --listen {AT} --size 64K file',
    'snapshot': f'snapshot serve --listen {AT} --memory 1M',
    'transfer': 'transfer serve --listen 127.0.0.1 -m 64K --card card',
}
STOP = {'nvme': 'nvme target stop'}
CLIENTS = {
    'nvme': f'nvme id-ctrl -a 127.0.0.1 -s {PORT} -n nqn.2026-01.io.sidewire:default',
    'pmem': f'pmem info -a 127.0.0.1 -s {PORT}',
    'snapshot': f'snapshot ls --sink peer:{AT}/none',
    'transfer': 'transfer read -c card --bytes 1 out',
}
STAMP = r'\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z '


SAMPLE = re.compile(
    r'([a-z_:][a-z0-9_:]*)((?:\{(?:[a-z_]\w*="(?:[^"\\\n]|\\[\\"n])*",?)+\})?) (\S+)'
)


def faults_of(text):
    """What Prometheus, or promtool, would find wrong in metrics: families in one piece, each with
    its HELP and TYPE first; names, labels and numbers as its text format has them; none twice."""
    faults, seen, series, kind, family = [], set(), set(), None, None
    for line in text.split('\n')[:-1]:
        about = re.fullmatch(r'# (HELP|TYPE) ([a-z_:][a-z0-9_:]*) (.+)', line)
        sample = SAMPLE.fullmatch(line)
        if about and about[1] == 'HELP':
            faults += [f'{line}: again'] if about[2] in seen else []
            family, kind = about[2], None
            seen.add(family)
        elif about:
            kind = about[3]
            is_named_so = family.endswith('_total') == (kind == 'counter')
            if about[2] != family or kind not in ('counter', 'gauge') or not is_named_so:
                faults.append(line)
        elif not sample or sample[1] != family or not kind or sample[1] + sample[2] in series:
            faults.append(line)
        elif not re.fullmatch(r'[-+]?(\d+(\.\d+)?([eE][-+]?\d+)?|Inf|NaN)', sample[3]):
            faults.append(line)
        else:
            series.add(sample[1] + sample[2])
    return faults + ([] if text.endswith('\n') and series else ['it has no end'])


class Operators(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.env = {**os.environ, 'XDG_RUNTIME_DIR': self.folder}
        self.env.pop('JOURNAL_STREAM', None)
        self.manager = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.addCleanup(self.manager.close)
        self.manager.bind(f'{self.folder}/notify')
        self.manager.settimeout(LIMIT_S)

    def told(self):
        """What the manager of services hears next, by name."""
        lines = self.manager.recv(4096).decode().split('\n')
        return dict(line.split('=', 1) for line in lines)

    def start(self, mover, *more, **env):
        """A server that is ready, as the manager hears."""
        self.log = open(f'{self.folder}/log', 'w+', encoding='utf-8')
        self.addCleanup(self.log.close)
        server = subprocess.Popen(
            [SIDEWIRE, *SERVERS[mover].split(), *more],
            stdout=subprocess.DEVNULL,
            stderr=self.log,
            cwd=self.folder,
            env={**self.env, 'NOTIFY_SOCKET': f'{self.folder}/notify', **env},
        )
        self.addCleanup(server.wait)
        self.addCleanup(server.kill)
        self.assertEqual(self.told(), {'READY': '1', 'MAINPID': str(server.pid)})
        return server

    def run_it(self, words):
        return subprocess.run(
            [SIDEWIRE, *words.split()],
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            cwd=self.folder,
            env=self.env,
            check=False,
        )

    def stop(self, mover, server):
        done = self.run_it(STOP.get(mover, f'{mover} stop'))
        ended = f'the {"target" if mover == "nvme" else "server"}, process {server.pid}, has ended'
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, ended + '\n', ''))
        self.assertEqual(self.told(), {'STOPPING': '1'})
        self.assertEqual(server.wait(0.1), 0)  # it has ended by then

    def get(self, path='/metrics', method='GET', body=None, of='127.0.0.1'):
        connection = http.client.HTTPConnection(
            '127.0.0.1', METRICS, timeout=LIMIT_S, source_address=(of, 0)
        )
        connection.request(method, path, body)
        answer = connection.getresponse()
        text = answer.read().decode()
        connection.close()
        return answer.status, text

    def is_refused(self):
        try:
            self.assertEqual(self.get()[0], 200)
        except (ConnectionError, http.client.HTTPException):
            return True
        return False

    def test_all__log_metrics_and_stop(self):
        for mover in SERVERS:
            with self.subTest(mover=mover):
                server = self.start(
                    mover,
                    *f'--log info --metrics 127.0.0.1:{METRICS} --metrics-file it.prom'.split(),
                )
                self.run_it(CLIENTS[mover])
                status, text = self.get()
                self.assertEqual(status, 200)
                self.assertIn(f'\n# TYPE sidewire_{mover}_', text)
                command = self.run_it(
                    'nvme target metrics' if mover == 'nvme' else f'{mover} metrics'
                )
                names = re.findall('^# .*', text, re.M)
                self.assertEqual(names, re.findall('^# .*', command.stdout, re.M))
                with open(f'{self.folder}/it.prom', encoding='utf-8') as file:
                    written = file.read()
                self.assertEqual(names, re.findall('^# .*', written, re.M))
                for metrics in text, written, command.stdout:
                    self.assertEqual(faults_of(metrics), [])
                self.stop(mover, server)
                self.assertFalse(os.path.exists(f'{self.folder}/it.prom'))
                self.log.seek(0)
                lines = self.log.read()
                where = rf'^{STAMP}info sidewire {mover} \w+: .*127\.0\.0\.1'
                self.assertRegex(lines, re.compile(f'{where}.* connects', re.M))
                self.assertRegex(lines, re.compile(f'{where}.* leaves', re.M))

    def test_log__of_the_journal(self):
        with open(f'{self.folder}/log', 'w', encoding='utf-8') as file:
            about = os.fstat(file.fileno())
        server = self.start(
            'pmem', '--log', 'info', JOURNAL_STREAM=f'{about.st_dev}:{about.st_ino}'
        )
        self.run_it(CLIENTS['pmem'])
        self.stop('pmem', server)
        self.log.seek(0)
        self.assertRegex(self.log.read(), r'^<6>127\.0\.0\.1 connects \(info, process \d+\)\n')

    def test_log__a_wrong_line_is_an_error_in_the_journal(self):
        """Manager and journal have one socket; here it is a file."""
        for mover, line in SERVERS.items():
            with self.subTest(mover=mover), open(f'{self.folder}/wrong', 'w+') as file:
                about = os.fstat(file.fileno())
                done = subprocess.run(
                    [SIDEWIRE, *line.split(), '--zork'],
                    stdout=subprocess.DEVNULL,
                    stderr=file,
                    env={**self.env, 'JOURNAL_STREAM': f'{about.st_dev}:{about.st_ino}'},
                    cwd=self.folder,
                    timeout=LIMIT_S,
                    check=False,
                )
                self.assertEqual(done.returncode, 2)
                file.seek(0)
                said = file.read()
                self.assertRegex(said, "^<3>sidewire .*unrecognized option '--zork'")
                self.assertEqual([x for x in said.splitlines() if not x.startswith('<3>')], [])

    def test_log__without_the_option(self):
        server = self.start('pmem')
        self.run_it(CLIENTS['pmem'])
        self.stop('pmem', server)
        self.log.seek(0)
        self.assertEqual(self.log.read(), '')

    def test_log__a_level_that_is_none(self):
        done = self.run_it(f'{SERVERS["pmem"]} --log loud')
        self.assertEqual(done.returncode, 2)
        self.assertIn("--log is error, warning or info, not 'loud'", done.stderr)

    def test_reload__is_told(self):
        config = {'ports': [], 'subsystems': [{'nqn': 'nqn.x', 'namespaces': []}], 'hosts': []}
        with open(f'{self.folder}/config', 'w', encoding='utf-8') as file:
            json.dump(config, file)
        SERVERS['config'] = 'nvme target --config config'
        self.addCleanup(SERVERS.pop, 'config')
        server = self.start('config')
        server.send_signal(signal.SIGHUP)
        told = self.told()
        self.assertEqual(told['RELOADING'], '1')
        self.assertGreater(int(told['MONOTONIC_USEC']), 0)
        self.assertEqual(self.told()['READY'], '1')
        server.send_signal(signal.SIGTERM)
        self.assertEqual(self.told(), {'STOPPING': '1'})
        self.assertEqual(server.wait(LIMIT_S), 0)

    def test_http__badly_spoken(self):
        server = self.start('pmem', '--metrics', f'127.0.0.1:{METRICS}')
        self.assertEqual(self.get('/')[0], 404)
        self.assertEqual(self.get('/metrics', 'POST', 'x' * 100000)[0], 405)
        for text in b'\r\n\r\n', b'GET\0/metrics', b'GET ' + b'/' * 100000, b'\xff' * 5000:
            with socket.create_connection(('127.0.0.1', METRICS), timeout=LIMIT_S) as stranger:
                try:
                    stranger.sendall(text)
                except OSError:
                    pass  # it has let go
        silent = [
            socket.create_connection(('127.0.0.1', METRICS), timeout=LIMIT_S) for _ in range(24)
        ]
        self.assertEqual(self.run_it(CLIENTS['pmem']).returncode, 0)  # it serves all the same
        self.assertEqual(self.get(of='127.0.0.2')[0], 200)  # an address has a share alone
        for one in silent:
            one.close()
        limit = time.monotonic() + LIMIT_S
        while self.is_refused():  # as long as it has not seen that they are closed
            self.assertLess(time.monotonic(), limit)
            time.sleep(0.01)
        self.stop('pmem', server)

    def test_metrics__where_none_can_be(self):
        with socket.create_server(('127.0.0.1', METRICS)):
            done = self.run_it(f'{SERVERS["pmem"]} --metrics 127.0.0.1:{METRICS}')
        self.assertEqual(done.returncode, 1)
        self.assertRegex(
            done.stderr, r'^[^\n]*Address already in use; --metrics ADDR:PORT[^\n]*\n$'
        )
        for option, said in (
            ('--metrics 192.0.2.1', 'Cannot assign'),
            ('--metrics fe80::1%nothing', '--metrics fe80::1%nothing, port 9430: '),
            ('--metrics-file nowhere/x.prom', 'nowhere/x.prom: No such file'),
        ):
            with self.subTest(option=option):
                done = self.run_it(f'{SERVERS["pmem"]} {option}')
                self.assertEqual((done.returncode, done.stderr.count('\n')), (1, 1), done.stderr)
                self.assertIn(said, done.stderr)
        for text in '127.0.0.1:66666', '127.0.0.1:', '[::1', ':9430', 'x' * 300:
            with self.subTest(text=text):
                done = self.run_it(f'{SERVERS["pmem"]} --metrics {text}')
                self.assertEqual((done.returncode, done.stdout), (2, ''))
                self.assertIn(
                    f"--metrics is ADDR[:PORT], with a port up to 65535, not '{text[:100]}'",
                    done.stderr,
                )

    def test_metrics_file__takes_no_foreign_place(self):
        def contents(name):
            with open(f'{self.folder}/{name}', encoding='utf-8') as file:
                return file.read()

        with open(f'{self.folder}/notes', 'w', encoding='utf-8') as file:
            file.write('not to be lost\n')
        os.symlink('notes', f'{self.folder}/link')
        os.mkdir(f'{self.folder}/folder')
        os.mkfifo(f'{self.folder}/pipe')
        for name in 'notes', 'link', 'folder', 'pipe':
            with self.subTest(name=name):
                done = self.run_it(f'{SERVERS["pmem"]} --metrics-file {name}')
                self.assertEqual((done.returncode, done.stderr.count('\n')), (1, 1), done.stderr)
                self.assertIn(f'{name}: what is there is no file of metrics', done.stderr)
        self.assertEqual(contents('link'), 'not to be lost\n')
        self.assertEqual([name for name in os.listdir(self.folder) if name.endswith('.new')], [])
        self.start('pmem', '--metrics-file', 'it.prom').kill()
        server = self.start('pmem', '--metrics-file', 'it.prom')  # of a server that was killed
        self.stop('pmem', server)

    def test_stop__nobody_there(self):
        done = self.run_it('pmem stop')
        self.assertEqual(done.returncode, 1)
        self.assertIn("no server of this user runs; 'sidewire pmem serve PATH' starts", done.stderr)


class Completion(unittest.TestCase):
    def complete(self, *words):
        """What bash offers for the last of the words."""
        script = (
            f'. "{COMPLETION}"; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _sidewire; '
            'printf "%s\\n" "${COMPREPLY[@]}"'
        )
        done = subprocess.run(
            ['bash', '--norc', '-c', script, 'bash', SIDEWIRE, *words],
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=True,
        )
        return done.stdout.split()

    def help_of(self, *words):
        return subprocess.run(
            [SIDEWIRE, *words, '--help'],
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=True,
        ).stdout

    def test_words__as_the_help_lists(self):
        for words in (), ('nvme',), ('pmem',), ('snapshot',), ('transfer',), ('coll',):
            listed = self.help_of(*words).split('Commands:')[1].split('Examples:')[0]
            there = set(re.findall(r'^  ([a-z][a-z-]*) ', listed, re.M))
            self.assertGreater(len(there), 3)
            self.assertEqual(set(self.complete(*words, '')), there)
        self.assertIn('append', self.complete('pmem', 'log', ''))
        self.assertEqual(self.complete('nvme', 'target', 'st'), ['status', 'stop'])
        self.assertEqual(self.complete('nvme', 'target', 'm'), ['move', 'metrics'])
        self.assertEqual(set(self.complete('help', '')), set(self.complete('')))
        self.assertEqual(self.complete('help', 'nvme', ''), [])

    def test_options__as_the_help_lists(self):
        for words in ('run',), ('pmem', 'serve'), ('nvme', 'target', 'status'), ('coll', 'perf'):
            there = set(re.findall(r'^ +(?:-., )*(--[a-z][a-z_-]+)', self.help_of(*words), re.M))
            found = {word.rstrip('=') for word in self.complete(*words, '--')}
            self.assertGreater(len(found), 4)
            self.assertLessEqual(found, there)
            self.assertIn('--help', found)
        self.assertIn('--metrics-file=', self.complete('pmem', 'serve', '--metr'))

    def test_values(self):
        self.assertEqual(self.complete('pmem', 'ls', '-o', ''), ['normal', 'json'])
        self.assertEqual(self.complete('pmem', 'serve', '--log', '=', 'i'), ['info'])

    def test_values__of_run_are_those_that_it_takes(self):
        links = ['auto', 'direct', 'roce', 'tcp', 'iwarp']
        self.assertEqual(self.complete('run', '--link', ''), links)
        self.assertEqual(self.complete('run', '--link', '='), links)
        self.assertEqual(self.complete('run', '--link', '=', 'ro'), ['roce'])
        self.assertEqual(self.complete('run', '--log', 'w'), ['warn'])
        self.assertEqual(self.complete('run', '--sockets', '=', 'h'), ['hosts'])
        self.assertEqual(self.complete('run', '--engine-cpus', ''), [])  # a list, too

    def test_program__stands_behind_values_of_options(self):
        for options in ('--link', 'roce'), ('--link', '=', 'roce'), ('--sockets', '=', 'auto'):
            with self.subTest(options=options):
                self.assertIn('printf', self.complete('run', *options, 'print'))


unittest.main(argv=[sys.argv[0], *sys.argv[3:]], verbosity=2)
