#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""sidewire coll status beside ranks that work, are stopped, and were killed.

usage: test_status.py SIDEWIRE
"""
import contextlib
import fcntl
import json
import os
import signal
import struct
import subprocess
import sys
import tempfile
import time
import unittest

SIDEWIRE = sys.argv[1]
PATIENCE_S = 100
ENDLESS = '--ranks 3 -b 64 -e 64 -n 1000000000 -c 0'.split()


def until(found, what):
    limit = time.monotonic() + PATIENCE_S
    while time.monotonic() < limit:
        value = found()
        if value:
            return value
        time.sleep(0.05)
    raise AssertionError(f'waited in vain: {what}')


# struct coll_recorder, whose page comes first
RECORDER_BYTES = 4096 + 1024 * 64 + 4096 * 8 + 16 + 1024 * 2

# enum coll_activity of movers/collectives/core/page.h
OPERATION, SEND, RECV, AGREEMENT, SHRINK, FAILED = range(6)


def page(
    job,
    rank,
    size,
    parent=0,
    number=5,
    ended=None,
    activity=OPERATION,
    awaits=(),
    blocked=(),
    message=0,
):
    """The bytes of a rank's page; `ended` is the operation before `number` unless it is given."""
    bits, blocking = (
        sum(1 << one for one in ranks).to_bytes(128, 'little') for ranks in (awaits, blocked)
    )
    packed = struct.pack(
        '<IIQQIIIIQQQQQQIIBBBB4x128s128s',
        *(0x50435753, 3, job, parent, rank, size, os.getpid(), 0),
        *(0, number - 1 if ended is None else ended, number, message, 7, 1),
        *(0, 1, 0, 0, activity, bool(awaits), bits, blocking),
    )
    return packed.ljust(RECORDER_BYTES, b'\0')


class Status(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix='coll_status.')
        self.addCleanup(folder.cleanup)
        self.variables = {**os.environ, 'XDG_RUNTIME_DIR': folder.name}
        self.folder = os.path.join(folder.name, 'sidewire-coll')

    def start(self, *words):
        process = subprocess.Popen(
            [SIDEWIRE, 'coll', 'perf', *words],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=self.variables,
        )
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def ask(self, *words):
        return subprocess.run(
            [SIDEWIRE, 'coll', 'status', *words],
            capture_output=True,
            text=True,
            check=True,
            timeout=PATIENCE_S,
            env=self.variables,
        ).stdout

    def rows(self):
        return json.loads(self.ask('--output-format', 'json'))['rows']

    def files(self):
        with contextlib.suppress(FileNotFoundError):
            return os.listdir(self.folder)
        return []

    def working(self):
        """The rows once all ranks are in the operation that is measured."""
        rows = self.rows()
        is_there = len(rows) == 3 and all(row['number'] > 10 for row in rows)
        return is_there and rows

    def test_stopped__the_rank_that_all_wait_for_is_named(self):
        self.start(*ENDLESS)
        rows = until(self.working, 'three ranks at work')
        self.assertEqual([(row['rank'], row['ranks']) for row in rows], [(0, 3), (1, 3), (2, 3)])
        self.assertEqual(len({row['job'] for row in rows}), 1)
        stopped = rows[1]['pid']
        os.kill(stopped, signal.SIGSTOP)
        self.addCleanup(os.kill, stopped, signal.SIGCONT)

        def named():
            said = json.loads(self.ask('--output-format', 'json'))
            waiting = [row['waits_for'] for row in said['rows'] if row['rank'] != 1]
            return waiting == [[1], [1]] and said

        said = until(named, 'two ranks that wait for the third')
        for row in said['rows']:
            if row['rank'] != 1:
                self.assertEqual(
                    (row['collective'], row['elements'], row['type']), ('all_reduce', 16, 'f32')
                )
                self.assertGreaterEqual(row['waits_ms'], 0)
        self.assertEqual([one['rank'] for one in said['awaited']], [1])
        self.assertIn(f'rank 1 (process {stopped}) is awaited', said['awaited'][0]['text'])
        self.assertIn('and is stopped', self.ask().splitlines()[-1])

    def test_dead_jobs__are_counted_and_told_when_asked_for(self):
        def end_job(process):
            pids = [row['pid'] for row in until(self.working, 'three ranks at work')]
            for pid in pids:
                os.kill(pid, signal.SIGKILL)
            process.wait(PATIENCE_S)

        kept, self.variables = self.variables, {**self.variables}
        for _ in range(2):
            other = tempfile.TemporaryDirectory(prefix='coll_status.')
            self.addCleanup(other.cleanup)
            self.variables['XDG_RUNTIME_DIR'] = other.name
            end_job(self.start(*ENDLESS))
            os.makedirs(self.folder, mode=0o700, exist_ok=True)
            for name in os.listdir(f'{other.name}/sidewire-coll'):
                if name.endswith('.rank'):
                    os.rename(f'{other.name}/sidewire-coll/{name}', f'{self.folder}/{name}')
        self.variables = kept
        rows, said = self.diagnose()
        self.assertEqual((rows, json.loads(said.stdout)['dead_jobs']), ([], 2))
        self.start(*ENDLESS)
        until(lambda: len(self.diagnose()[0]), 'a job that lives')
        rows, said = self.diagnose()
        (live,) = {row['job'] for row in rows}
        self.assertEqual(json.loads(said.stdout)['dead_jobs'], 2)
        every = [row['job'] for row in self.diagnose('--all')[0]]
        self.assertEqual((every[0], len(set(every))), (live, 3))
        self.assertNotIn(live, every[every.count(live) :])
        text = subprocess.run(
            [SIDEWIRE, 'coll', 'diagnose'], capture_output=True, text=True, env=self.variables
        ).stdout
        self.assertIn('2 jobs on this host are dead: --all has them', text.splitlines()[-1])

    def diagnose(self, *words):
        said = subprocess.run(
            [SIDEWIRE, 'coll', 'diagnose', '-o', 'json', *words],
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            env=self.variables,
        )
        return json.loads(said.stdout)['rows'], said

    def test_dumps__have_stopped_and_killed_ranks(self):
        self.start(*ENDLESS)
        pids = [row['pid'] for row in until(self.working, 'three ranks at work')]
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        self.addCleanup(os.kill, pids[0], signal.SIGCONT)
        self.addCleanup(os.kill, pids[2], signal.SIGCONT)
        os.kill(pids[1], signal.SIGKILL)
        until(lambda: 'dead' in [row['process'] for row in self.rows()], 'a dead rank')
        (gone,) = [row for row in self.diagnose()[0] if row['verdict'] == 'gone']
        self.assertEqual(gone['rank'], 1)
        last = json.loads(self.ask('-o', 'json', '--last', '3'))['rows'][1]['operations']
        self.assertEqual([one['collective'] for one in last], ['all_reduce'] * 3)
        self.assertIn('ALGORITHM', self.ask('--last', '3'))
        where = os.path.join(self.variables['XDG_RUNTIME_DIR'], 'dumps')
        subprocess.run([SIDEWIRE, 'coll', 'dump', where], check=True, env=self.variables)
        self.assertEqual(len(os.listdir(where)), 3)
        self.assertEqual(len(self.files()), 2)  # the dead rank's is in its dump
        rows, said = self.diagnose(where)
        self.assertEqual((said.returncode, said.stderr), (0, ''))
        self.assertIn('gone', [row['verdict'] for row in rows])
        dump = os.path.join(where, os.listdir(where)[0])
        with open(dump) as file:
            last = json.load(file)['operations'][0]
        trace = [SIDEWIRE, 'coll', 'trace', '--dump', dump, '--output-format', 'json', '--number']
        said = subprocess.run([*trace, str(last['number'])], capture_output=True, text=True)
        self.assertEqual(len(json.loads(said.stdout)['rows']), last['step'], said)
        said = subprocess.run([*trace, '0'], capture_output=True, text=True)
        self.assertEqual(said.returncode, 1, said)
        self.assertIn('has no operation 0', said.stderr)
        with open(os.path.join(where, 'bad.json'), 'w') as file:
            file.write('{}')
        again, said = self.diagnose(where)
        self.assertEqual((again, said.returncode), (rows, 1))
        self.assertIn('bad.json: it is no dump', said.stderr)

    def test_killed__its_file_is_removed(self):
        process = self.start(*ENDLESS)
        rows = until(self.working, 'three ranks at work')
        for row in rows:
            os.kill(row['pid'], signal.SIGKILL)
        process.wait(PATIENCE_S)
        self.assertEqual(len(self.files()), 3)
        until(lambda: not self.rows(), 'no rank')
        self.assertEqual(self.files(), [])

    def test_end__leaves_no_file(self):
        process = self.start(*'--ranks 2 -b 8 -e 8 -n 2 -w 1'.split())
        self.assertEqual(process.wait(PATIENCE_S), 0)
        self.assertEqual(self.files(), [])
        self.assertEqual(self.rows(), [])
        said = subprocess.run(
            [SIDEWIRE, 'coll', 'status'], capture_output=True, text=True, env=self.variables
        )
        self.assertEqual((said.returncode, self.folder in said.stderr), (0, True), said)

    # ---- pages that the test writes ----

    def write(self, *pages):
        """As processes do that live: each file has a lock, which this process holds."""
        os.makedirs(self.folder, mode=0o700, exist_ok=True)
        for i, one in enumerate(pages):
            file = open(os.path.join(self.folder, f'{i}.rank'), 'wb')
            self.addCleanup(file.close)
            file.write(one)
            file.flush()
            fcntl.lockf(file, fcntl.LOCK_EX)
        said = json.loads(self.ask('-o', 'json'))
        self.assertEqual(len(said['rows']), len(pages))
        return said

    def test_parts__who_is_awaited_in_one_waits_in_another(self):
        whole, part = 0xA1, 0xB2
        said = self.write(
            page(whole, 0, 3, awaits=[2]),
            page(whole, 1, 3, awaits=[2]),
            page(whole, 2, 3, ended=5),
            page(part, 0, 2, parent=whole, awaits=[1]),
        )
        # All pages are of one process, so each rank of the whole is in the part, too.
        whole_name, part_name = f'{whole:016x}', f'{part:016x}'
        self.assertEqual([row['parent'] for row in said['rows']], [None] * 3 + [whole_name])
        first, second = said['awaited']
        self.assertEqual((first['job'], first['rank']), (whole_name, 2))
        self.assertEqual(first['waits_in'], part_name)
        self.assertIn(f'has not begun operation 6, waits in job {part_name}', first['text'])
        self.assertEqual((second['job'], second['rank']), (part_name, 1))
        self.assertIsNone(second['waits_in'])
        self.assertIn('not on this host, or has ended', second['text'])
        self.assertIn(first['text'], self.ask())

    def awaited(self, *pages):
        (one,) = self.write(*pages)['awaited']
        return one['rank'], one['text']

    def test_agreement__the_rank_that_has_not_heard_is_awaited_and_not_the_dead_one(self):
        rank, text = self.awaited(
            page(1, 0, 3, activity=AGREEMENT, awaits=[2]), page(1, 2, 3, awaits=[1])
        )
        self.assertEqual(rank, 2)
        self.assertIn('has not seen yet that the communicator has failed', text)

    def test_shrink__the_rank_that_has_not_called_it_is_awaited(self):
        pages = (
            page(1, 0, 4, activity=SHRINK, awaits=[2, 3]),
            page(1, 2, 4, activity=FAILED),
            page(1, 3, 4, activity=SHRINK, awaits=[0, 2]),
        )
        rank, text = self.awaited(*pages)
        self.assertEqual(rank, 2)
        self.assertIn('does not shrink the failed communicator yet', text)
        self.assertEqual([row['collective'] for row in self.rows()], ['shrink', 'failed', 'shrink'])
        self.assertEqual([row['elements'] for row in self.rows()], [None] * 3)

    def cycle_of(self, *pages):
        (one,) = self.write(*pages)['awaited']
        self.assertEqual(one['rank'] is None, bool(one['cycle']), one)
        self.assertIn(one['text'], self.ask())
        return one['cycle'], one['text']

    def test_cycle__ranks_that_wait_for_each_other_are_told(self):
        sends = dict(activity=SEND, ended=5, message=1)
        cycle, text = self.cycle_of(
            page(1, 0, 4, awaits=[1, 2, 3], blocked=[1, 2, 3]),
            page(1, 1, 4, awaits=[3], blocked=[3], **sends),
            page(1, 2, 4, awaits=[1], blocked=[1], activity=RECV, ended=5, message=1),
            page(1, 3, 4, awaits=[2], blocked=[2], **sends),
        )
        self.assertEqual(cycle, [1, 3, 2])
        self.assertEqual(
            text,
            'ranks wait for each other in a cycle: rank 1 sends to rank 3, rank 3 sends to rank 2, '
            'rank 2 awaits a message of rank 1',
        )

    def test_cycle__of_many_is_told_in_short(self):
        size = 1024
        pages = [
            page(1, rank, size, awaits=[after], blocked=[after], activity=SEND, ended=5)
            for rank, after in ((rank, (rank + 1) % size) for rank in range(0, size))
        ]
        cycle, text = self.cycle_of(*pages)
        self.assertEqual(cycle, list(range(size)))
        self.assertIn('rank 4 sends to rank 5, and so on by 1019 more', text)

    def test_cycle__is_none_where_a_rank_is_served_computes_or_is_stopped(self):
        for first, second in (
            # The message is on its way.
            (
                dict(activity=SEND, message=3, blocked=[1]),
                dict(activity=RECV, message=3, blocked=[0]),
            ),
            # Both are in the same operation, whose messages are under way.
            (dict(blocked=[1]), dict(blocked=[0])),
            # What is under way is not what the program waits for.
            (dict(activity=SEND, message=1), dict(activity=SEND, message=1, blocked=[0])),
        ):
            first, second = (
                {'ended': 5 if 'message' in one else 4, **one} for one in (first, second)
            )
            cycle, text = self.cycle_of(
                page(1, 0, 2, awaits=[1], **first), page(1, 1, 2, awaits=[0], **second)
            )
            self.assertEqual(cycle, [], text)

    def test_garbage__is_not_taken_for_a_rank(self):
        os.mkdir(self.folder, 0o700)
        os.mkfifo(os.path.join(self.folder, 'pipe.rank'))
        os.symlink('/etc/passwd', os.path.join(self.folder, 'link.rank'))
        self.assertEqual(self.rows(), [])
        self.assertEqual(sorted(self.files()), ['link.rank', 'pipe.rank'])
        os.chmod(self.folder, 0o777)
        with self.assertRaises(subprocess.CalledProcessError) as raised:
            self.ask()
        self.assertIn('open to other users', raised.exception.stderr)


if __name__ == '__main__':
    unittest.main(argv=sys.argv[:1])
