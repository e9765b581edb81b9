#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""The example of a mover as users run it, and by it what it takes from the movers' floor: service,
acceptor, messages, dial, bench, control.

usage: test_mover.py SIDEWIRE STOPPED LINK
"""
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), '../tools'))
import ports  # noqa: E402

SIDEWIRE, STOPPED, LINK = sys.argv[1:4]
PORT = str(ports.claim())
PATIENCE_S = 20
if LINK != 'auto':
    os.environ['SIDEWIRE_LINK'] = LINK


class Echo(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.control = os.path.join(folder.name, 'control')

    def start(self, *words):
        process = subprocess.Popen(
            [SIDEWIRE, 'echo', *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        return process

    def serve(self):
        server = self.start('serve', '-l', '127.0.0.1', '-s', PORT, '--control', self.control)
        self.assertIn('Ctrl-C', server.stdout.readline())
        return server

    def run_echo(self, *words):
        return subprocess.run(
            [SIDEWIRE, 'echo', *words], capture_output=True, text=True, timeout=60, check=False
        )

    def bench(self, *words):
        return self.run_echo('bench', '-a', '127.0.0.1', '-s', PORT, *words)

    def status(self):
        done = self.run_echo('status', '--control', self.control, '-o', 'json')
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def until(self, is_so, why):
        limit = time.monotonic() + PATIENCE_S
        while not is_so():
            self.assertLess(time.monotonic(), limit, why)
            time.sleep(0.05)

    def test_messages_come_back_and_are_counted(self):
        server = self.serve()
        for size in '1', '64', '64K':
            done = self.bench('--bs', size, '--count', '50', '-o', 'json')
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(json.loads(done.stdout)['requests'], 50)
        self.until(lambda: self.status()['clients'] == 0, 'a client that has left has a place')
        self.assertEqual(self.status()['messages'], 150)
        self.assertIn('messages     150', self.run_echo('status', '--control', self.control).stdout)
        metrics = self.run_echo('metrics', '--control', self.control).stdout
        self.assertIn('sidewire_echo_messages_total 150\n', metrics)
        server.send_signal(signal.SIGTERM)
        self.assertEqual(server.wait(PATIENCE_S), 0)
        self.assertFalse(os.path.exists(self.control))

    def test_a_killed_client_leaves_its_place(self):
        self.serve()
        client = self.start('bench', '-a', '127.0.0.1', '-s', PORT, '--runtime', '60')
        self.until(lambda: self.status()['messages'] > 10, 'the bench does not begin')
        client.kill()
        self.until(lambda: self.status()['clients'] == 0, 'a killed client has a place')
        self.assertEqual(self.bench('--count', '5').returncode, 0)

    def test_a_killed_server_ends_its_clients(self):
        server = self.serve()
        client = self.start('bench', '-a', '127.0.0.1', '-s', PORT, '--runtime', '60')
        self.until(lambda: self.status()['messages'] > 10, 'the bench does not begin')
        server.kill()
        self.assertEqual(client.wait(PATIENCE_S), 1)
        self.assertIn('the server does not answer', client.stderr.read())

    @unittest.skipUnless(LINK == 'auto', 'over packets the port has owners that are stopped')
    def test_clients_that_are_stopped_keep_nobody_waiting(self):
        self.serve()
        for i in range(16):
            client = subprocess.Popen(
                [SIDEWIRE, 'run', '--', STOPPED, '127.0.0.1', PORT, str(50 * i)]
            )
            self.addCleanup(client.wait)
            self.addCleanup(client.kill)
        self.until(lambda: self.status()['connected'] > 3, 'nobody asks for a connection')
        begun_s = time.monotonic()
        done = self.bench('--count', '5')
        self.assertEqual(done.returncode, 0, f'{time.monotonic() - begun_s} s: {done.stderr}')

    def test_who_cannot_be_reached_is_said(self):
        self.assertIn(f'nobody serves at 127.0.0.1 port {PORT}', self.bench().stderr)
        done = self.run_echo('status', '--control', self.control)
        self.assertEqual(done.returncode, 1)
        self.assertIn('is the server running?', done.stderr)

    def test_a_server_that_cannot_serve_ends(self):
        self.serve()
        again = self.run_echo('serve', '-l', '127.0.0.1', '-s', PORT)
        self.assertEqual(again.returncode, 1)
        self.assertIn('cannot listen at 127.0.0.1 port ' + PORT, again.stderr)
        again = self.run_echo('serve', '-l', '127.0.0.1', '-s', str(65536 + int(PORT)))
        self.assertEqual(again.returncode, 1)
        self.assertIn('a port is a number up to 65535', again.stderr)
        again = self.run_echo(
            'serve', '-l', '127.0.0.1', '-s', str(ports.claim()), '--control', '/nowhere/at/all'
        )
        self.assertEqual(again.returncode, 1)
        self.assertIn('/nowhere/at/all', again.stderr)

    def test_arguments_that_make_no_sense_are_told(self):
        for words in [
            ('bench',),
            ('bench', '-a', '::1', '--bs', '0'),
            ('bench', '-a', '::1', '--bs', '65K'),
        ]:
            self.assertEqual(self.run_echo(*words).returncode, 2)


if __name__ == '__main__':
    unittest.main(argv=sys.argv[:1])
