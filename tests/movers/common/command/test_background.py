#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""Servers and clients in one script: --background returns when the server is ready, and a client
waits a moment for a server that is not there yet.

usage: test_background.py SIDEWIRE
"""
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), '../../../tools'))
import ports  # noqa: E402

SIDEWIRE = os.path.abspath(sys.argv[1])
PORT = str(ports.claim())
LIMIT_S = 30
AT = f'127.0.0.1:{PORT}'
TRIES = 5  # on a busy machine a server may need longer to start than its client waits
NQN = 'nqn.2026-01.io.sidewire:default'
SERVERS = {
    'nvme': ['nvme', 'target', '--listen', AT, '--namespace', 'ram:1M'],
    'pmem': ['pmem', 'serve', '--listen', AT, '--size', '64K', 'file'],
    'transfer': ['transfer', 'serve', '--listen', '127.0.0.1', '-m', '64K', '--card', 'card'],
}
CLIENTS = {
    'nvme': ['nvme', 'list', '-a', '127.0.0.1', '-s', PORT, '-n', NQN],
    'pmem': ['pmem', 'ls', '-a', '127.0.0.1', '-s', PORT],
    'transfer': ['transfer', 'read', '--card', 'card', 'out'],
}
BROKEN = {
    'nvme': ['nvme', 'target', '--listen', AT, '--namespace', 'file:no/such'],
    'pmem': ['pmem', 'serve', '--listen', AT, 'no/such'],
    'transfer': ['transfer', 'serve', '--listen', '127.0.0.1', '--card', 'card', 'no/such'],
}


class Scripts(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def run_one(self, *words):
        """Its output ends with it: a server in the background does not keep the pipes."""
        return subprocess.run(
            [SIDEWIRE, *words],
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            cwd=self.folder,
            check=False,
        )

    def serve(self, mover):
        done = self.run_one(*SERVERS[mover], '--background')
        self.assertEqual(done.returncode, 0, done.stderr)
        pid = int(re.search(r'\bkill (\d+)', done.stdout + done.stderr).group(1))
        self.addCleanup(self.end, pid, signal.SIGKILL)
        return pid

    def end(self, pid, number=signal.SIGTERM):
        """Until it has ended, whether or not the first process of this system has noticed."""
        limit = time.monotonic() + LIMIT_S
        try:
            os.kill(pid, number)
            while time.monotonic() < limit:
                with open(f'/proc/{pid}/stat', encoding='utf-8') as stat:
                    if stat.read().rpartition(') ')[2].startswith('Z'):
                        return
                time.sleep(0.02)
        except (FileNotFoundError, ProcessLookupError):
            return
        self.fail(f'{pid} does not end')

    def test_background__returns_when_it_is_ready(self):
        for mover, client in CLIENTS.items():
            with self.subTest(mover=mover):
                pid = self.serve(mover)
                self.assertNotEqual(os.getsid(pid), os.getsid(0))
                done = self.run_one(*client)
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertNotIn('trying again', done.stderr)
                self.end(pid)

    def test_background__has_the_status_of_what_does_not_begin(self):
        for mover, words in BROKEN.items():
            with self.subTest(mover=mover):
                done = self.run_one(*words, '--background')
                self.assertEqual(done.returncode, 1)
                self.assertIn('no/such', done.stderr)
                self.assertNotIn('kill', done.stdout + done.stderr)

    def test_background__writes_to_files_to_its_end(self):
        with open(os.path.join(self.folder, 'said'), 'w+', encoding='utf-8') as said:
            words = [SIDEWIRE, *SERVERS['pmem'], '--verbose', '--background']
            subprocess.run(
                words, stdout=said, stderr=said, timeout=LIMIT_S, cwd=self.folder, check=True
            )
            said.seek(0)
            pid = int(re.search(r'\bkill (\d+)', said.read()).group(1))
            self.addCleanup(self.end, pid, signal.SIGKILL)
            self.assertEqual(self.run_one(*CLIENTS['pmem']).returncode, 0)
            self.end(pid)
            said.seek(0)
            self.assertIn('127.0.0.1', said.read().split(' ends it.')[1])

    def early(self, mover):
        """A client that asks before there is a server: what it says, and its status."""
        client = subprocess.Popen(
            [SIDEWIRE, *CLIENTS[mover]],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            cwd=self.folder,
        )
        with client:
            first = client.stderr.readline()
            pid = self.serve(mover)
            said = first + client.communicate(timeout=LIMIT_S)[1]
        self.end(pid)
        return said, client.returncode

    def test_clients__wait_for_a_server_that_begins(self):
        for mover in CLIENTS:
            with self.subTest(mover=mover):
                for _ in range(TRIES):
                    said, status = self.early(mover)
                    self.assertIn('; trying again for 2 s\n', said)
                    if not status:
                        break
                self.assertEqual(status, 0, said)
                self.assertEqual(said.count('trying again'), 1, said)

    def test_clients__give_up_a_server_that_does_not(self):
        waiting = {
            mover: subprocess.Popen(
                [SIDEWIRE, *words], stderr=subprocess.PIPE, text=True, cwd=self.folder
            )
            for mover, words in CLIENTS.items()
        }
        for mover, client in waiting.items():
            with self.subTest(mover=mover), client:
                said = client.communicate(timeout=LIMIT_S)[1]
                self.assertEqual(client.returncode, 1)
                self.assertEqual(said.count('trying again'), 1, said)


if __name__ == '__main__':
    unittest.main(argv=sys.argv[:1])
