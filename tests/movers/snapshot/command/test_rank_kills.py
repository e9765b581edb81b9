#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""Four ranks that save to servers, started by launchers or by nobody; ranks, the launcher and the
servers are killed or stopped at random. All ranks go on from the same snapshot then: the last one
that was told durable, or a newer whole one.

usage: test_rank_kills.py SIDEWIRE RANKED SEEDS [FIRST SEED]
"""
import contextlib
import os
import random
import re
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

from sinks import VOLUME_BYTES, FolderSink, PeerSink, PmemSink, ServedSink, ports

SIDEWIRE, RANKED, SEEDS, *FIRST = sys.argv[1:]
RANKS, LIMIT_S, ROUNDS = 4, 60, 3
SAID = re.compile(r'rank (\d+) (process|restored|durable|failed) (\d+)(.*)')
os.environ.update(OMPI_ALLOW_RUN_AS_ROOT='1', OMPI_ALLOW_RUN_AS_ROOT_CONFIRM='1')
os.environ['OMPI_MCA_rmaps_base_oversubscribe'] = '1'


class RanksPeer(PeerSink):
    """Memory for all ranks: gone with its server."""

    memory = '512M'
    is_lasting = False

    def words(self):
        words = super().words()
        self.text += '{rank}'
        return words


class RanksFolder(FolderSink):
    memory = '512M'
    is_lasting = True

    def words(self):
        words = super().words()
        self.text += '{rank}'
        return words


class RanksPmem(PmemSink):
    """A region for each."""

    is_lasting = True

    def words(self):
        _, _, path, *more = super().words()
        self.text += '{rank}'
        return ['pmem', 'serve', *(f'{path}{rank}' for rank in range(RANKS)), *more]


class RanksNvme(ServedSink):
    """A namespace for each, 10 to 13: there is no number 0."""

    is_lasting = True

    def words(self):
        self.text = f'nvme:{self.host}:{self.port}/nqn.2026-01.io.sidewire:default/1{{rank}}'
        words = ['nvme', 'target', '-l', f'{self.host}:{self.port}']
        for rank in range(RANKS):
            path = os.path.join(self.folder, f'{self.name}{rank}.disk')
            if not os.path.exists(path):
                with open(path, 'wb') as file:
                    os.posix_fallocate(file.fileno(), 0, VOLUME_BYTES)
            words += ['--namespace', f'file:{path},bs=4096,nsid=1{rank}']
        return words


SINKS = (
    [RanksPeer],
    [RanksFolder],
    [RanksPmem],
    [RanksNvme],
    [RanksPeer, RanksFolder],
    [RanksPmem, RanksPeer],
)
WAYS = ('meet', 'torchrun', 'mpirun.openmpi', 'mpiexec.hydra')


class Job:
    """The ranks, and what they have said; one that nobody waits for is killed by its own number."""

    def __init__(self, way, sinks, quorum):
        self.pids, self.restored, self.durable, self.failed = {}, {}, 0, []
        words = [SIDEWIRE, 'run', '--', RANKED, 'save']
        more = ['1000000', str(quorum), *(sink.text for sink in sinks)]
        at = f'127.0.0.1:{ports.claim()}'
        if way == 'meet':
            started = [([*words, f'{rank},{RANKS},{at}', *more], {}) for rank in range(RANKS)]
        elif way == 'torchrun':
            told = {'WORLD_SIZE': f'{RANKS}', 'MASTER_ADDR': '127.0.0.1'}
            told['MASTER_PORT'] = str(int(at.split(':')[1]) - 1)  # ranks meet at the next one
            several = [{**told, 'RANK': str(rank)} for rank in range(RANKS)]
            started = [([*words, 'launcher', *more], variables) for variables in several]
        else:
            started = [([way, '-n', str(RANKS), *words, 'launcher', *more], {})]
        self.selector = selectors.DefaultSelector()
        self.processes = [self.start(*one) for one in started]

    def start(self, words, variables):
        process = subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**os.environ, **variables},
        )
        os.set_blocking(process.stdout.fileno(), False)
        self.selector.register(process.stdout, selectors.EVENT_READ, [process, b''])
        return process

    def hear(self, patience_s):
        """False: all have ended."""
        for key, _ in self.selector.select(patience_s):
            held = key.data
            said = key.fileobj.read()
            if said == b'':
                self.selector.unregister(key.fileobj)
                continue
            *lines, held[1] = (held[1] + (said or b'')).split(b'\n')
            for line in lines:
                self.take(line.decode(errors='replace'))
        return bool(self.selector.get_map())

    def take(self, line):
        found = SAID.search(line)
        if not found:
            return
        rank, what, number = int(found[1]), found[2], int(found[3])
        if what == 'process':
            self.pids[rank] = number
        elif what == 'restored':
            self.restored[rank] = number
        elif what == 'durable':
            self.durable = max(self.durable, number)
        else:
            self.failed.append(line)

    def hear_for(self, seconds):
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0 and self.hear(left):
            pass

    def hear_until(self, holds, what):
        limit = time.monotonic() + LIMIT_S
        while not holds():
            is_going_on = self.hear(0.1)
            if time.monotonic() > limit or not (is_going_on or holds()):
                raise AssertionError(f'{what} never came: {self.pids} {self.failed[-6:]}')

    def signal_rank(self, rank, how):
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pids[rank], how)

    def end(self):
        """All of it, at once; and what was said until then."""
        for how in signal.SIGKILL, signal.SIGCONT:
            for rank in self.pids:
                self.signal_rank(rank, how)
            for process in self.processes:
                process.send_signal(how)
        limit = time.monotonic() + LIMIT_S
        while self.hear(0.1):
            assert time.monotonic() < limit, 'a rank that was killed goes on'
        for process in self.processes:
            process.wait(LIMIT_S)
            process.stdout.close()
        self.selector.close()


class Kills(unittest.TestCase):
    def test_seeds__all_ranks_go_on_from_what_was_durable(self):
        first = int(FIRST[0]) if FIRST else 1
        for seed in range(first, first + int(SEEDS)):
            with self.subTest(seed=seed), contextlib.ExitStack() as stack:
                self.run_seed(random.Random(seed), stack)

    def run_seed(self, draw, stack):
        folder = stack.enter_context(tempfile.TemporaryDirectory(dir='/var/tmp'))
        kinds = draw.choice(SINKS)
        sinks = [kind(SIDEWIRE, folder, f's{i}') for i, kind in enumerate(kinds)]
        for sink in sinks:
            stack.callback(sink.end)
        # One that is gone with its server may be all that has a snapshot of a quorum of one.
        quorum = len(sinks)
        durable = 0
        for number in range(ROUNDS):
            way = draw.choice([way for way in WAYS if way[:3] != 'mpi' or shutil.which(way)])
            job = Job(way, sinks, quorum)
            try:
                job.hear_until(lambda: len(job.restored) == RANKS, 'a start')
                self.check_restored(job, durable)
                job.hear_for(draw.random() * 0.4)
                if number < ROUNDS - 1:
                    self.do_harm(draw, job, sinks)
            finally:
                job.end()
            durable = max(durable, job.durable)
            if not durable:
                continue
            done = subprocess.run(
                [SIDEWIRE, 'run', '--', RANKED, 'check', *(sink.text for sink in sinks)],
                capture_output=True,
                text=True,
                timeout=LIMIT_S,
                check=False,
            )
            self.assertEqual(done.returncode, 0, f'{way} {done.stdout} {done.stderr}')
            self.assertGreaterEqual(int(done.stdout.split()[1]), durable, done.stdout)

    def check_restored(self, job, durable):
        steps = {*job.restored.values()}
        self.assertEqual(len(steps), 1, job.restored)
        self.assertGreaterEqual(*steps, durable)

    def do_harm(self, draw, job, sinks):
        rank, sink = draw.randrange(RANKS), draw.choice(sinks)
        kind = draw.randrange(5)
        if kind == 0:
            job.signal_rank(rank, signal.SIGKILL)
        elif kind == 1:
            job.signal_rank(rank, signal.SIGSTOP)
            job.hear_for(draw.random() * 0.3)
            job.signal_rank(rank, signal.SIGCONT)
        elif kind == 2:
            draw.choice(job.processes).kill()
        elif kind == 3:
            sink.send(signal.SIGSTOP)
            job.hear_for(draw.random() * 0.3)
            sink.send(signal.SIGCONT)
        elif sink.is_lasting:
            sink.end()
            job.hear_for(draw.random() * 0.1)
            sink.serve()
        job.hear_for(draw.random() * 0.3)


if __name__ == '__main__':
    unittest.main(argv=sys.argv[:1])
