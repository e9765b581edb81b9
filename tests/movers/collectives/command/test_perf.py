#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""sidewire coll as users run it: every kind of operation with its results checked, ranks that
launchers start, two namespaces, deaths. And the program of docs/collectives.md.

usage: test_perf.py SIDEWIRE LINK SUM
"""
import contextlib
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

SIDEWIRE, LINK, SUM = sys.argv[1:4]
ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), '../../../..')
PATIENCE_S = 100
if LINK in ('roce', 'iwarp'):
    os.environ['SIDEWIRE_LINK'] = LINK
QUICK = '--output-format json -n 2 -w 1'.split()
# Each kind with another number of ranks, type, operator and root.
KINDS = (
    ('all_reduce', 9, 'bf16', 'sum', 0),
    ('reduce_scatter', 3, 'f32', 'avg', 0),
    ('all_gather', 4, 'i8', 'sum', 0),
    ('all_to_all', 3, 'u64', 'sum', 0),
    ('broadcast', 4, 'f64', 'sum', 3),
    ('reduce', 3, 'f16', 'sum', 2),
    ('gather', 2, 'i16', 'sum', 1),
    ('scatter', 4, 'u32', 'sum', 1),
    ('barrier', 3, 'f32', 'sum', 0),
    ('sendrecv', 3, 'i32', 'sum', 0),
)


def start(*words, wrap=(), **variables):
    return subprocess.Popen(
        [*wrap, SIDEWIRE, 'coll', 'perf', *map(str, words)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **variables},
    )


def finish(process):
    """Its exit status, and what it printed."""
    try:
        out, err = process.communicate(timeout=PATIENCE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        out, err = process.communicate()
        raise AssertionError(f'it does not end: {out}{err}') from None
    return process.returncode, out, err


def children_of(pid):
    with contextlib.suppress(OSError):
        with open(f'/proc/{pid}/task/{pid}/children', encoding='ascii') as file:
            return [int(one) for one in file.read().split()]
    return []


def is_alive(pid):
    with contextlib.suppress(OSError):
        with open(f'/proc/{pid}/stat', encoding='ascii') as file:
            return file.read().rsplit(')', 1)[1].split()[0] not in 'ZX'
    return False


def until(holds, what):
    limit = time.monotonic() + PATIENCE_S
    while not holds():
        if time.monotonic() > limit:
            raise AssertionError(f'waited in vain: {what}')
        time.sleep(0.01)


def measure(*words):
    code, out, err = finish(start(*words, *QUICK))
    if code or err:
        raise AssertionError(f'{words}: {code}: {err}')
    return json.loads(out)


class Perf(unittest.TestCase):
    def test_kinds__results_are_right(self):
        for kind, ranks, datatype, op, root in KINDS:
            with self.subTest(kind):
                said = measure(
                    *f'--ranks {ranks} -b 8 -e 100000 -f 50 -d {datatype} -o {op}'.split(),
                    *f'-r {root} {kind}'.split(),
                )
                self.assertEqual((said['collective'], said['ranks']), (kind, ranks))
                self.assertEqual(said['wrong'], 0)
                self.assertEqual(len(said['rows']), 1 if kind == 'barrier' else 3)
                for row in said['rows']:
                    self.assertEqual((row['wrong'], row.get('in_place_wrong', 0)), (0, 0))
                    self.assertGreater(row['time_us'], 0)

    def test_order__any_takes_a_ring(self):
        for kind, datatype, op in ('all_reduce', 'bf16', 'avg'), ('reduce_scatter', 'f32', 'sum'):
            words = f'--ranks 3 --algorithm ring -b 8 -e 400000 -f 200 -d {datatype} -o {op} {kind}'
            said = measure('--order', 'any', *words.split())
            self.assertEqual((said['wrong'], len(said['rows'])), (0, 3))
            code, _, err = finish(start(*words.split(), *QUICK))
            self.assertEqual(code, 2)
            self.assertIn('a ring does not sum in the order of the tree: add --order any', err)

    def test_table__as_nccl_tests_have_it(self):
        code, out, err = finish(start(*'--ranks 2 -b 64 -e 192 -i 64 -n 1 -w 0'.split()))
        self.assertEqual((code, err), (0, ''))
        rows = [line.split() for line in out.splitlines() if not line.startswith('#')]
        self.assertEqual([row[0] for row in rows], ['64', '128', '192'])
        for row in rows:
            self.assertEqual(row[1:5], [str(int(row[0]) // 4), 'f32', 'sum', '-1'])
            self.assertEqual((len(row), row[8], row[12]), (13, '0', '0'))
        self.assertIn('# rank 1: process ', out)
        self.assertRegex(out.splitlines()[-1], r'^# average bus bandwidth: \d+\.\d+ GB/s$')

    def test_check__unchecked_is_not_right(self):
        words = '--ranks 2 -b 64 -e 64 -n 1 -w 0 -c 0'.split()
        code, out, err = finish(start(*words))
        self.assertEqual((code, err), (0, ''))
        row = next(line.split() for line in out.splitlines() if not line.startswith('#'))
        self.assertEqual((row[8], row[12]), ('-', '-'))
        self.assertIn('# results were not checked\n', out)
        self.assertNotIn('wrong values', out)
        said = measure(*words)
        self.assertEqual((said['wrong'], said['rows'][0]['in_place_wrong']), (None, None))

    def test_sizes__end_where_numbers_do(self):
        said = measure(*f'--ranks 2 -b 64 -e 64 -i {2**64 - 64}'.split())
        self.assertEqual([row['bytes'] for row in said['rows']], [64])

    def test_status__a_root_that_is_no_rank(self):
        code, _, err = finish(start(*'--ranks 2 -r 2 broadcast'.split()))
        self.assertEqual(code, 2)
        self.assertIn('the root is one of the ranks', err)


@unittest.skipIf(LINK != 'auto', 'alike on all links')
class Ranks(unittest.TestCase):
    def test_types__all_with_all_operators(self):
        said = measure(*'--ranks 3 -b 4096 -e 4096 -d all -o all -w 0 -n 1'.split())
        self.assertEqual((len(said['rows']), said['wrong']), (12 * 5, 0))

    def test_launchers__by_their_variables(self):
        pairs = (
            ('OMPI_COMM_WORLD_RANK', 'OMPI_COMM_WORLD_SIZE', 'Open MPI'),
            ('PMI_RANK', 'PMI_SIZE', 'PMI'),
            ('SLURM_PROCID', 'SLURM_NTASKS', 'Slurm'),
            ('SIDEWIRE_COLL_RANK', 'SIDEWIRE_COLL_SIZE', 'Sidewire'),
        )
        for rank, size, name in pairs:
            meet = f'127.0.0.1:{ports.claim()}'
            both = [
                start('-v', '-e', 64, **{rank: str(i), size: '2', 'SIDEWIRE_COLL_MEET': meet})
                for i in range(2)
            ]
            said = [finish(one) for one in both]
            for i, (code, out, err) in enumerate(said):
                line = f'rank {i} of 2, by the variables of {name}, meets at {meet}\n'
                self.assertEqual((code, err), (0, 'sidewire coll perf: ' + line))
                self.assertEqual('# wrong values: 0' in out, not i)

    def test_example__as_the_page_has_it(self):
        with open(f'{ROOT}/examples/c/sum.c', encoding='utf-8') as file:
            code = file.read().split('\n', 1)[1]
        with open(f'{ROOT}/docs/collectives.md', encoding='utf-8') as file:
            page = file.read()
        self.assertIn(f'```c\n{code}```\n', page)
        meet = f'127.0.0.1:{ports.claim()}'
        both = [
            subprocess.Popen(
                [SIDEWIRE, 'run', '--', SUM, str(rank), '2', meet],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for rank in range(2)
        ]
        said = [finish(one) for one in both]
        for rank in range(2):
            line = f'rank {rank}: 1, ..., 1999\n'
            self.assertEqual(said[rank], (0, line, ''))
            self.assertIn(line, page)

    def test_trace__says_what_a_rank_does(self):
        words = '--ranks 3 --rank 2 --output-format json'.split()
        for size, algorithm in ('1K', 'eager'), ('1M', 'owners'), ('2M', 'halving'):
            asked = ['--algorithm', algorithm] if algorithm == 'halving' else []
            done = subprocess.run(
                [SIDEWIRE, 'coll', 'trace', *words, *asked, '--size', size, 'reduce_scatter'],
                capture_output=True,
                text=True,
                timeout=PATIENCE_S,
                check=True,
            )
            said = json.loads(done.stdout)
            self.assertEqual((said['collective'], said['rank']), ('reduce_scatter', 2))
            self.assertEqual(said['algorithm'], algorithm)
            steps = [row['text'].strip() for row in said['rows']]
            self.assertTrue(steps[0].startswith('MAIL OPEN'), steps)
            self.assertEqual(sum(one.startswith('FOLD') for one in steps), 1)
            self.assertEqual(any(one.startswith('PULL') for one in steps), algorithm == 'owners')
            self.assertEqual('MAIL STEP rank 0' in steps, algorithm == 'halving')

    def test_trace__of_a_dump_wants_a_number(self):
        for words in (('--dump', '/none'), ('--number', '1')):
            done = subprocess.run(
                [SIDEWIRE, 'coll', 'trace', *words],
                capture_output=True,
                text=True,
                timeout=PATIENCE_S,
            )
            self.assertEqual(done.returncode, 2, done)
            self.assertIn('--dump and --number go together', done.stderr)

    def test_plot__is_drawn(self):
        """What is printed stays as it is, and a plot that is not drawn is a failure."""
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, 'sums of two.svg')
            words = ('--ranks', 2, '-b', 64, '-e', 64 << 8, '--plot', path)
            said = measure(*words)
            with open(path, encoding='utf-8') as file:
                text = file.read()
            self.assertEqual([row['bytes'] for row in said['rows']], [64, 256, 1024, 4096, 16384])
            self.assertEqual(text.count('<polyline '), 4)
            for word in ('all_reduce of 2 ranks', 'out of place', 'in place', 'Bus bandwidth'):
                self.assertIn(f'>{word}', text)
            self.assertEqual(text.count('<circle '), 4 * 5)
            measure(*words, '-d', 'all', '-e', 64, '-c', 0)
            with open(path, encoding='utf-8') as file:
                self.assertIn('>bf16 sum<', file.read())
            code, out, err = finish(start(*words[:-1], f'{folder}/none/of/x.svg', PATH='/none'))
            self.assertEqual((code, '# average' in out), (1, True))
            self.assertIn('python3 cannot be started', err)
        for name, kind in (('a.png', 'all_reduce'), ('a.svg', 'barrier')):
            self.assertEqual(finish(start('--ranks', 2, '--plot', name, kind))[0], 2)

    def test_launchers__what_is_missing(self):
        code, _, err = finish(start())
        self.assertEqual(code, 1)
        self.assertIn('--ranks N', err)
        code, _, err = finish(start(PMI_RANK='0', PMI_SIZE='2'))
        self.assertEqual(code, 1)
        self.assertIn('rank 0 of 2, by the variables of PMI, does not know where rank 0 is', err)
        for rank, size, said in (
            ('0', 'two', 'PMI_SIZE=two is no number'),
            ('2', '2', 'PMI_RANK=2, but PMI_SIZE=2'),
        ):
            code, _, err = finish(start(PMI_RANK=rank, PMI_SIZE=size))
            self.assertEqual((code, said in err), (1, True), err)
        code, _, err = finish(start(PMI_RANK='0'))
        self.assertIn('PMI_SIZE is not set, and the rank of a launcher is', err)

    def test_absent__is_named(self):
        meet = f'127.0.0.1:{ports.claim()}'
        code, _, err = finish(start(*f'--ranks 2 --rank 0 --meet {meet} --deadline 300'.split()))
        self.assertEqual(code, 1)
        self.assertIn(f'rank 1 did not come to {meet}', err)

    def test_token__strangers_cannot_join(self):
        meet = f'127.0.0.1:{ports.claim()}'
        words = f'--ranks 2 --meet {meet} -e 64'.split()
        first = start(*words, '--rank', 0, SIDEWIRE_COLL_TOKEN='a secret')
        code, _, err = finish(start(*words, '--rank', 1, SIDEWIRE_COLL_TOKEN='another'))
        self.assertEqual(code, 1)
        self.assertIn('another token', err)
        second = start(*words, '--rank', 1, SIDEWIRE_COLL_TOKEN='a secret')
        self.assertEqual((finish(first)[0], finish(second)[0]), (0, 0))

    def test_signals__as_they_were_inherited(self):
        """The ends of ranks are told though SIGCHLD was ignored; nohup goes on."""
        before = {
            one: signal.signal(one, signal.SIG_IGN) for one in (signal.SIGCHLD, signal.SIGHUP)
        }
        process = start(*'--ranks 2 -e 8 -n 1000000000'.split())
        for one, action in before.items():
            signal.signal(one, action)
        self.addCleanup(process.kill)
        while 'rank 1' not in process.stdout.readline():
            self.assertIsNone(process.poll())
        process.send_signal(signal.SIGHUP)
        process.send_signal(signal.SIGTERM)
        self.assertEqual(finish(process)[0], 128 + signal.SIGTERM)

    def test_ranks__have_processors_of_their_own(self):
        if len(os.sched_getaffinity(0)) < 2:
            self.skipTest('there is one processor')
        process = start(*'--ranks 2 -e 8 -n 1000000000'.split())
        self.addCleanup(process.kill)
        while 'rank 1' not in process.stdout.readline():
            self.assertIsNone(process.poll())
        first, second = map(os.sched_getaffinity, children_of(process.pid))
        process.send_signal(signal.SIGTERM)
        self.assertEqual(finish(process)[0], 128 + signal.SIGTERM)
        self.assertEqual((len(first), len(second), len(first & second)), (1, 1, 0))


@unittest.skipIf(LINK != 'auto', 'alike on all links')
class Placement(unittest.TestCase):
    """Five ranks, by turns on two hosts: by a variable, as here is one."""

    PLACED = 'sums take ranks in the order 0, 2, 4, 1, 3\n'

    def run_ranks(self, *words, **of_rank):
        meet = f'127.0.0.1:{ports.claim()}'
        every = f'--ranks 5 --meet {meet} -b 4K -e 200000 -f 49'.split()
        ranks = [
            start(
                *every,
                *QUICK,
                *words,
                '--rank',
                rank,
                SIDEWIRE_COLL_HOST=f'host{rank % 2}',
                SIDEWIRE_COLL_PLACEMENT=of_rank.get(f'rank{rank}', of_rank.get('all', 'hosts')),
            )
            for rank in range(5)
        ]
        return [finish(one) for one in ranks]

    def expect_right(self, said):
        self.assertEqual([code for code, _, _ in said], [0] * 5, said)
        self.assertEqual(json.loads(said[0][1])['wrong'], 0)

    def test_hosts__are_neighbours_in_each_sum(self):
        for words in (
            '',
            '--algorithm owners reduce_scatter',
            '--algorithm halving',
            '--algorithm halving reduce_scatter',
            '--algorithm halving -r 3 reduce',
            '--algorithm ring --order any reduce_scatter',
        ):
            with self.subTest(words):
                said = self.run_ranks(*words.split())
                self.expect_right(said)
                self.assertIn('ranks of 2 hosts lie among each other: ' + self.PLACED, said[0][2])
                self.assertEqual([err for _, _, err in said[1:]], [''] * 4)

    def test_ranks__keep_their_places_where_it_is_said(self):
        said = self.run_ranks('--algorithm', 'halving', all='ranks')
        self.expect_right(said)
        self.assertEqual(said[0][2], '')

    def test_placement__has_to_be_alike(self):
        for code, _, err in self.run_ranks(rank3='ranks'):
            self.assertEqual(code, 1)
            self.assertIn('rank 3 places ranks by their numbers, and rank 0 by hosts', err)
        for code, _, err in self.run_ranks(all='racks'):
            self.assertEqual(code, 1)
            self.assertIn("SIDEWIRE_COLL_PLACEMENT is 'racks'", err)


class Deaths(unittest.TestCase):
    """Ranks at work for longer than anybody waits."""

    def setUp(self):
        self.process = start(*'--ranks 3 -b 64K -e 64K -n 1000000000'.split())
        self.addCleanup(self.process.kill)
        line = ''
        while 'rank 2' not in line:
            line = self.process.stdout.readline()
            self.assertTrue(line, 'it ended')
        self.ranks = children_of(self.process.pid)
        self.assertEqual(len(self.ranks), 3)

    def expect_nothing_left(self):
        for rank in self.ranks:
            until(lambda rank=rank: not is_alive(rank), f'process {rank} goes on')

    def test_rank__killed_is_named(self):
        os.kill(self.ranks[1], signal.SIGKILL)
        code, _, err = finish(self.process)
        self.assertEqual(code, 1)
        self.assertIn(f'rank 1 (process {self.ranks[1]}) was killed by signal 9', err)
        self.expect_nothing_left()

    def test_interrupt__leaves_nothing(self):
        self.process.send_signal(signal.SIGINT)
        self.assertEqual(finish(self.process)[0], 128 + signal.SIGINT)
        self.expect_nothing_left()

    def test_parent__killed_leaves_nothing(self):
        self.process.kill()
        self.expect_nothing_left()
        finish(self.process)


@unittest.skipIf(LINK == 'auto', 'it chooses one of the links')
class Namespaces(unittest.TestCase):
    def test_two_hosts__meet(self):
        try:
            hosts = Hosts()
        except Skip as reason:
            self.skipTest(str(reason))
        self.addCleanup(hosts.close)
        words = f'--ranks 2 --meet {ADDRESSES[0]}:4450 -e 100000 -f 50 -d bf16'.split()
        both = [start(*words, *QUICK, '--rank', i, wrap=hosts.wrap[i]) for i in range(2)]
        (code, out, err), other = finish(both[0]), finish(both[1])
        self.assertEqual((code, err, *other), (0, '', 0, '', ''))
        self.assertEqual((json.loads(out)['wrong'], json.loads(out)['ranks']), (0, 2))
        # Four ranks, by turns; namespaces of one machine count as one host unless they say so.
        words = f'--ranks 4 --meet {ADDRESSES[0]}:4451 -b 8K -e 8K --algorithm halving'.split()
        four = [
            start(
                *words,
                *QUICK,
                '--rank',
                i,
                wrap=hosts.wrap[i % 2],
                SIDEWIRE_COLL_HOST=f'host{i % 2}',
            )
            for i in range(4)
        ]
        said = [finish(one) for one in four]
        self.assertEqual([code for code, _, _ in said], [0] * 4, said)
        self.assertEqual(json.loads(said[0][1])['wrong'], 0)
        self.assertIn('in the order 0, 2, 1, 3', said[0][2])


if __name__ == '__main__':
    unittest.main(argv=sys.argv[:1])
