# SPDX-License-Identifier: BSD-2-Clause
"""examples/python/train.py, killed amid epochs: its losses are those of a run that was never
interrupted, bit by bit.

usage: test_train.py SIDEWIRE [CASE...]
"""
import contextlib
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

from needs import LIMIT_S, ROOT, start

SIDEWIRE = sys.argv.pop(1)
TRAIN = os.path.join(ROOT, 'examples/python/train.py')
EPOCH = 20  # steps
STEPS = 70
LIMIT_TRAIN_S = 2 * LIMIT_S


class Training(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.wanted = cls.trained(folder.name, f'{folder.name}/run.snap')

    @classmethod
    def trained(cls, folder, sinks, *words):
        """The losses of a run to its end."""
        process = cls.start_training(folder, sinks, *words)
        try:
            _, error = process.communicate(timeout=LIMIT_TRAIN_S)
        finally:
            process.kill()
        if process.returncode:
            raise AssertionError(f'train.py ended with {process.returncode}: {error}')
        return cls.losses(folder)

    @staticmethod
    def start_training(folder, sinks, *words):
        given = f'--steps {STEPS} --losses {folder}/losses --snapshot {sinks}'.split()
        return start(TRAIN, *given, *words, start_new_session=True)

    @staticmethod
    def losses(folder):
        try:
            with open(f'{folder}/losses', encoding='ascii') as file:
                return file.read().splitlines()
        except FileNotFoundError:
            return []

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def train_and_kill(self, sinks, losses, *words):
        """Killed once it has written so many losses; the loader's workers live on for a while."""
        process = self.start_training(self.folder, sinks, *words)
        try:
            until = time.monotonic() + LIMIT_TRAIN_S
            while len(self.losses(self.folder)) < losses and time.monotonic() < until:
                self.assertIsNone(process.poll(), process.poll() and process.stderr.read())
                time.sleep(0.002)
        finally:
            process.kill()
            process.wait()
            self.addCleanup(self.end_workers, process)
        found = len(self.losses(self.folder))
        self.assertGreaterEqual(found, losses)
        self.assertLess(found, STEPS)

    @staticmethod
    def end_workers(process):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()

    def serve(self):
        """Another process, whose memory is a sink; and its address."""
        with socket.socket() as free:
            free.bind(('127.0.0.1', 0))
            address = f'127.0.0.1:{free.getsockname()[1]}'
        words = f'snapshot serve -l {address} --memory 64M --control {self.folder}/control'
        pipes = {'stdout': subprocess.PIPE, 'text': True}
        server = subprocess.Popen([SIDEWIRE, *words.split()], **pipes)
        self.addCleanup(server.communicate)
        self.addCleanup(server.kill)
        self.assertIn('Ctrl-C ends it', server.stdout.readline())
        return server, address

    def test_file__killed_three_times(self):
        sink, draw = f'{self.folder}/run.snap', random.Random()
        at = 0
        for number in range(3):
            at = draw.randrange(at + 6, 24 + 20 * number)
            with self.subTest(killed_at=at):
                self.train_and_kill(sink, at, *['--resume'][: number > 0])
        self.assertEqual(self.trained(self.folder, sink, '--resume'), self.wanted)

    def test_peer_and_file__either_is_enough(self):
        server, address = self.serve()
        path = f'{self.folder}/run.snap'
        sinks = f'peer:{address}/run,{path}'
        self.train_and_kill(sinks, EPOCH + 7)
        os.rename(path, f'{path}.old')  # the file is lost: its memory is with the peer
        self.train_and_kill(sinks, 2 * EPOCH + 9, '--resume')
        server.kill()  # and now the peer is
        server.wait(LIMIT_S)
        self.assertEqual(self.trained(self.folder, path, '--resume'), self.wanted)

    def test_sink_that_dies__does_not_end_training(self):
        server, address = self.serve()
        process = self.start_training(self.folder, f'peer:{address}/run')
        self.addCleanup(process.kill)
        until = time.monotonic() + LIMIT_TRAIN_S
        while len(self.losses(self.folder)) < EPOCH and time.monotonic() < until:
            time.sleep(0.01)
        server.kill()
        _, error = process.communicate(timeout=LIMIT_TRAIN_S)
        self.assertEqual(process.returncode, 0, error)
        self.assertEqual(self.losses(self.folder), self.wanted)
        self.assertEqual(error.count('SnapshotWarning'), 1, error)

    def test_nothing_to_resume__begins_at_the_beginning(self):
        sink = f'{self.folder}/run.snap'
        self.assertEqual(self.trained(self.folder, sink, '--resume'), self.wanted)


if __name__ == '__main__':
    sys.exit(unittest.main())
