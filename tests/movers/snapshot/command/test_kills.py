#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""Trainers and sinks that are killed, stopped or full while snapshots are taken: what is there then
is the last one that was told durable, or a newer whole one, bit by bit; and training goes on.

usage: test_kills.py SIDEWIRE TRAINER ROUNDS SEED [CASE...]
"""
import os
import random
import signal
import sys
import tempfile
import time
import unittest

from sinks import FileSink, FolderSink, NvmeSink, PeerSink, PmemSink
from trainers import FENCED, LOST, Trainer, check, failed, has

SIDEWIRE, TRAINER, ROUNDS, SEED, *CASES = sys.argv[1:]
PROGRAM = SIDEWIRE, TRAINER


class Kills(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(dir='/var/tmp')
        self.addCleanup(folder.cleanup)
        self.folder, self.random = folder.name, random.Random(int(SEED))

    def sink(self, kind, name='run'):
        made = kind(SIDEWIRE, self.folder, name)
        self.addCleanup(made.end)
        return made

    def trainer(self, sinks, **options):
        made = Trainer(PROGRAM, sinks, **options)
        self.addCleanup(lambda: made.process.poll() is None and made.end())
        return made

    def assert_there(self, sinks, durable):
        """That one, or a newer one, which was prepared here and not told durable by then."""
        self.assertGreaterEqual(check(PROGRAM, sinks) or 0, durable, [sink.text for sink in sinks])

    def test_trainer_killed__anywhere(self):
        sinks = [self.sink(FileSink), self.sink(PeerSink)]
        durable = 0
        for _ in range(int(ROUNDS)):
            trainer = self.trainer(sinks, take_over=1)
            trainer.hear_until(lambda words: words[0] == 'ready')
            time.sleep(self.random.random() * 0.3)
            trainer.end()
            durable = max(durable, trainer.durable)
            for some in sinks, sinks[:1], sinks[1:]:
                self.assert_there(some, durable)

    def sink_killed(self, kind, is_lasting):
        """With a good one beside it: training goes on, and it comes back."""
        file, other = self.sink(FileSink), self.sink(kind, 'other')
        trainer = self.trainer([file, other], quorum=1, stall_ms=1000)
        for _ in range(max(1, int(ROUNDS) // 3)):
            trainer.hear_until(has(1, 1))
            time.sleep(self.random.random() * 0.05)
            other.end()
            trainer.hear_until(has(1, 0))
            other.serve()
        trainer.hear_until(has(1, 1))
        trainer.end()
        self.assertEqual(trainer.failures(), [])
        self.assert_there([file], trainer.newest[0])
        if is_lasting:
            self.assert_there([other], trainer.newest[1])

    def test_peer_killed__training_goes_on_and_it_comes_back(self):
        self.sink_killed(PeerSink, False)

    def test_folder_killed__training_goes_on_and_it_comes_back(self):
        self.sink_killed(FolderSink, True)

    def test_pmem_killed__training_goes_on_and_it_comes_back(self):
        self.sink_killed(PmemSink, True)

    def test_nvme_killed__training_goes_on_and_it_comes_back(self):
        self.sink_killed(NvmeSink, True)

    def test_only_sink_killed__is_told_once_a_step(self):
        peer = self.sink(PeerSink)
        trainer = self.trainer([peer], stall_ms=1000)
        trainer.hear_durable(3)
        peer.end()
        words = trainer.hear_until(failed)
        self.assertEqual(int(words[2]), LOST, words)
        peer.serve()
        trainer.hear_durable(2)
        trainer.end()
        self.assert_there([peer], trainer.durable)

    def test_peer_stopped__is_dropped(self):
        file, peer = self.sink(FileSink), self.sink(PeerSink)
        trainer = self.trainer([file, peer], quorum=1, stall_ms=500)
        trainer.hear_until(has(1, 1))
        peer.send(signal.SIGSTOP)
        trainer.hear_until(has(1, 0))
        trainer.hear_durable(3)
        peer.send(signal.SIGCONT)
        trainer.hear_until(has(1, 1))
        trainer.end()
        self.assert_there([file], trainer.newest[0])
        self.assert_there([peer], trainer.durable)

    def test_trainer_stopped__a_second_one_fences_it(self):
        for kind in FileSink, PeerSink:
            with self.subTest(kind.__name__):
                sink = self.sink(kind, kind.__name__)
                first = self.trainer([sink])
                first.hear_durable(2)
                first.process.send_signal(signal.SIGSTOP)
                second = self.trainer([sink], take_over=1)
                words = second.hear_until(lambda one: one[0] in ('durable', 'failed'))
                if kind is FileSink and words[0] == 'failed':
                    continue  # a lock that a living process holds
                second.hear_durable(2)
                first.process.send_signal(signal.SIGCONT)
                words = first.hear_until(failed)
                self.assertEqual(int(words[2]), FENCED, words)
                second.hear_durable(2)
                first.end()
                second.end()
                self.assert_there([sink], second.durable)


if __name__ == '__main__':
    unittest.main(argv=[sys.argv[0], *CASES])
