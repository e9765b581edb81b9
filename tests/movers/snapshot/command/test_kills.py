#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""Trainers and sinks that are killed, stopped or full while snapshots are taken: what is there then
is the last one that was told durable, or a newer whole one, bit by bit; and training goes on.

usage: test_kills.py SIDEWIRE TRAINER ROUNDS SEED [CASE...]
"""
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
import unittest

from sinks import FileSink, FolderSink, NvmeSink, PeerSink, PmemSink

SIDEWIRE, TRAINER, ROUNDS, SEED, *CASES = sys.argv[1:]
FENCED, LOST = 12, 13  # of sw_snap_status


def has(*sinks):
    """Whether a line says that a snapshot is durable, and those sinks have it."""
    return lambda words: words[0] == 'durable' and words[2:] == [str(one) for one in sinks]


class Trainer:
    """One that saves until it is killed."""

    def __init__(self, sinks, quorum=0, steps=100000, stall_ms=10000, take_over=0):
        words = [quorum, steps, stall_ms, take_over, *(sink.text for sink in sinks)]
        self.process = subprocess.Popen(
            [SIDEWIRE, 'run', TRAINER, 'save', *map(str, words)], stdout=subprocess.PIPE, text=True
        )
        self.durable, self.lines = 0, []
        self.newest = [0] * len(sinks)  # that each sink was told to have

    def hear(self):
        """The words of the next line; none: it has ended."""
        words = self.process.stdout.readline().split()
        if words and words[0] == 'durable':
            self.durable = int(words[1])
            for i, it_has in enumerate(words[2:]):
                self.newest[i] = self.durable if it_has == '1' else self.newest[i]
        self.lines.append(words)
        return words

    def hear_until(self, wanted, lines=2000):
        for _ in range(lines):
            words = self.hear()
            if not words or wanted(words):
                return words
        raise AssertionError(f'it never came: {self.lines[-3:]}')

    def hear_durable(self, count=1):
        for _ in range(count):
            words = self.hear_until(lambda one: one[0] == 'durable')
            assert words, self.lines[-3:]

    def end(self, how=signal.SIGKILL):
        self.process.send_signal(signal.SIGCONT)
        self.process.send_signal(how)
        while self.hear():
            pass
        self.process.stdout.close()
        self.process.wait()


def check(sinks):
    """The step of what is there, which is compared; None: there is nothing."""
    done = subprocess.run(
        [SIDEWIRE, 'run', TRAINER, 'check', *(sink.text for sink in sinks)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    said = done.stdout.split()
    assert done.returncode == 0 and said, done.stdout + done.stderr
    return int(said[1]) if said[0] == 'whole' else None


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
        made = Trainer(sinks, **options)
        self.addCleanup(lambda: made.process.poll() is None and made.end())
        return made

    def assert_there(self, sinks, durable):
        """That one, or a newer one, which was prepared here and not told durable by then."""
        self.assertGreaterEqual(check(sinks) or 0, durable, [sink.text for sink in sinks])

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
        self.assertFalse([line for line in trainer.lines if line and line[0] == 'failed'])
        self.assert_there([file], trainer.durable)
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
        words = trainer.hear_until(lambda one: one[0] == 'failed')
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
        self.assert_there([file], trainer.durable)
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
                words = first.hear_until(lambda one: one[0] == 'failed')
                self.assertEqual(int(words[2]), FENCED, words)
                second.hear_durable(2)
                first.end()
                second.end()
                self.assert_there([sink], second.durable)


if __name__ == '__main__':
    unittest.main(argv=[sys.argv[0], *CASES])
