# SPDX-License-Identifier: BSD-2-Clause
"""What is measured of collectives: sums and messages of two ranks of one host, and sums of four on
two processors, beside Open MPI, MPICH, gloo and what the sum itself costs. coll_gloo.py has more,
and coll_death.py how soon a death is known.

Ranks are bound to processors on all sides. Each result is checked.
"""

import json
import os
import shutil

import coll_death
import coll_gloo
import procs
from experiment import Experiment, Row

LIMIT_S = 120
KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
WARMUPS = 20
# A run of 8 B is longer than 50 ms: a turn of the scheduler, or of the thread that maps a mailbox,
# is a millisecond, as long as 5,000 of them.
SMALL_TIMES = 200000
SOURCE = os.path.join(os.path.dirname(os.path.abspath(__file__)), '../src/coll_mpi.c')
MPIS = {
    'Open MPI': ('openmpi', 'mpirun.openmpi', '--allow-run-as-root', '--oversubscribe'),
    'MPICH': ('mpich', 'mpiexec.mpich'),
}
# Words that bind ranks where there are enough processors for them.
BINDING = {'Open MPI': ('--bind-to', 'core'), 'MPICH': ('-bind-to', 'core')}
UNBOUND = {'Open MPI': ('--bind-to', 'none'), 'MPICH': ('-bind-to', 'none')}
EXCHANGES = (
    ('8', '8 B', (8, SMALL_TIMES)),
    ('64k', '64 KiB', (64 * KIB, 2000)),
    ('4m', '4 MiB', (4 * MIB, 100)),
)


class Sums:
    def __init__(self, bench):
        self.bench = bench
        self.gloo = coll_gloo.Gloo(bench)

    def times(self, count):
        return max(count // self.bench.divide, 5)

    def ours(self, size, count, *more, ranks=2, warmups=WARMUPS, prefix=()):
        """`size` 0: a barrier."""
        program = os.path.join(self.bench.sidewire.build, 'movers/collectives/sidewire-coll')
        kind = ['-b', str(size), '-e', str(size)] if size else ['barrier']
        text = procs.run(
            [
                *self.bench.sidewire.command,
                *prefix,
                program,
                *f'perf --ranks {ranks} -w {warmups} -n {self.times(count)}'.split(),
                *'--output-format json'.split(),
                *more,
                *kind,
            ],
            LIMIT_S,
        )
        return {'time_s': json.loads(text)['rows'][0]['time_us'] * 1e-6}

    def mpi(self, name, size, count, ranks=2, kind=()):
        flavor, launcher, *words = MPIS[name]
        compiler, launcher = shutil.which(f'mpicc.{flavor}'), shutil.which(launcher)
        if not compiler or not launcher:
            raise procs.Skipped(f'{name} is not installed')
        program = os.path.join(self.bench.source, f'coll_mpi.{flavor}')
        if not os.path.exists(program):
            procs.run([compiler, '-O2', '-o', program, SOURCE], LIMIT_S)
        enough = ranks <= len(os.sched_getaffinity(0))
        binding = (BINDING if enough else UNBOUND)[name]
        text = procs.run(
            [
                launcher,
                *words,
                *binding,
                *f'-n {ranks}'.split(),
                program,
                str(size),
                str(self.times(count)),
                *kind,
            ],
            LIMIT_S,
        )
        return json.loads(text.splitlines()[-1])

    def bare(self, size, count):
        program = os.path.join(self.bench.source, 'bare_fold')
        return json.loads(procs.run([program, str(size), str(self.times(count))], LIMIT_S))

    def beside_mpi(self, size, count):
        """Ours and each MPI."""
        return {
            'sidewire': lambda: self.ours(size, count),
            **{f'MPI [{name}]': lambda name=name: self.mpi(name, size, count) for name in MPIS},
        }

    def exchange(self, size, count):
        """Each rank sends to the next one, and receives from the one before."""
        return {
            'sidewire': lambda: self.ours(size, count, 'sendrecv'),
            **{
                f'MPI [{name}]': lambda name=name: self.mpi(name, size, count, kind=('sendrecv',))
                for name in MPIS
            },
        }

    def recorder(self, size, count):
        """With the record that each rank keeps of its last operations, and without."""
        without = ('env', 'SIDEWIRE_COLL_STATUS=off')
        return {
            'sidewire': lambda: self.ours(size, count),
            'no record': lambda: self.ours(size, count, prefix=without),
        }

    def beside_gloo(self, size, count):
        return {
            'sidewire': lambda: self.ours(size, count),
            **self.gloo.settings(coll_gloo.LARGE, size, self.times(count)),
        }

    def four_ranks(self, size, count):
        """More than this machine may have processors. Ours, each MPI, and gloo."""
        return {
            'sidewire': lambda: self.ours(size, count, ranks=4),
            **{
                f'MPI or gloo [{name}]': lambda name=name: self.mpi(name, size, count, 4)
                for name in MPIS
            },
            **{
                f'MPI or gloo [gloo {name}]': lambda name=name: self.gloo.here(
                    name, size, self.times(count), 4
                )
                for name in coll_gloo.SMALL
            },
        }

    def largest(self):
        """Ours and the bare sum, of 1 GiB."""

        def need_room():
            if os.sysconf('SC_AVPHYS_PAGES') * os.sysconf('SC_PAGE_SIZE') < 10 * GIB:
                raise procs.Skipped('less than 10 GiB of memory are free')

        def ours():
            need_room()
            return self.ours(GIB, 10, warmups=2)

        return {'sidewire': ours, 'bare fold': lambda: self.bare(GIB, 10)}


def experiments(bench):
    sums = Sums(bench)
    return [
        Experiment(
            'coll_8',
            'all-reduce of 8 B',
            {
                **sums.beside_mpi(8, SMALL_TIMES),
                'ib_write_lat': lambda: {'time_s': bench.latency('ib_write_lat', 8)['median_s']},
            },
        ),
        Experiment('coll_barrier', 'barrier', sums.beside_mpi(0, SMALL_TIMES)),
        Experiment('coll_2k', 'all-reduce of 2 KiB', sums.beside_mpi(2 * KIB, 50000)),
        Experiment('coll_64k', 'all-reduce of 64 KiB', sums.beside_mpi(64 * KIB, 5000)),
        Experiment(
            'coll_64m',
            'all-reduce of 64 MiB',
            {
                **sums.beside_mpi(64 * MIB, 20),
                'bare fold': lambda: sums.bare(64 * MIB, 20),
                'bf16': lambda: sums.ours(64 * MIB, 20, '-d', 'bf16'),
            },
        ),
        Experiment('coll_1g', 'all-reduce of 1 GiB', sums.largest()),
        Experiment('coll_gloo_4m', 'all-reduce of 4 MiB, and gloo', sums.beside_gloo(4 * MIB, 100)),
        Experiment(
            'coll_gloo_64m', 'all-reduce of 64 MiB, and gloo', sums.beside_gloo(64 * MIB, 10)
        ),
        Experiment('coll_4_ranks', 'all-reduce of 8 B, four ranks', sums.four_ranks(8, 2000)),
        *(
            Experiment(f'coll_sendrecv_{name}', f'{what} to the next rank', sums.exchange(*how))
            for name, what, how in EXCHANGES
        ),
        Experiment('coll_recorder', 'all-reduce of 8 B, recorded', sums.recorder(8, 20000)),
        *coll_gloo.experiments(bench),
        *coll_death.experiments(bench),
    ]


# title, experiment, ours, peer, figure, unit, less is better, at least, aim
# fmt: off
ROWS = (
    ('coll: all-reduce of 8 B, and ib_write_lat -s 8', 'coll_8', 'sidewire', 'ib_write_lat',
     'time_s', 'us', True, 1.5, 1.2),
    ('  and the better MPI', 'coll_8', 'sidewire', 'MPI', 'time_s', 'us', True, 0.91, 0.625),
    ('coll: barrier, and the better MPI', 'coll_barrier', 'sidewire', 'MPI', 'time_s', 'us', True,
     0.91, 0.625),
    ('coll: all-reduce of 2 KiB, and the better MPI', 'coll_2k', 'sidewire', 'MPI', 'time_s', 'us',
     True, 0.91, 0.625),
    ('coll: all-reduce of 64 KiB, and the better MPI', 'coll_64k', 'sidewire', 'MPI', 'time_s',
     'us', True, 0.667, 0.4),
    ('coll: all-reduce of 64 MiB, and the better MPI', 'coll_64m', 'sidewire', 'MPI', 'time_s',
     'us', True, 0.714, 0.5),
    ('  and the bare sum by two threads', 'coll_64m', 'sidewire', 'bare fold', 'time_s', 'us',
     True, 1.333, 1.11),
    ('  bf16, and f32', 'coll_64m', 'bf16', 'sidewire', 'time_s', 'us', True, 1.15, 1.05),
    ('coll: all-reduce of 1 GiB, and the bare sum', 'coll_1g', 'sidewire', 'bare fold', 'time_s',
     'us', True, 1.333, 1.11),
    *(
        (f'coll: all-reduce of {size} MiB, and gloo', f'coll_gloo_{size}m', 'sidewire', 'gloo',
         'time_s', 'us', True, 0.167, 0.083)
        for size in (4, 64)
    ),
    ('coll: four ranks, 8 B, and the best of MPI and gloo', 'coll_4_ranks', 'sidewire',
     'MPI or gloo', 'time_s', 'us', True, 1.0, 0.5),
    *(
        (f'coll: {what} sent and received, and the better MPI', f'coll_sendrecv_{name}',
         'sidewire', 'MPI', 'time_s', 'us', True, 1.0, 0.625)
        for name, what, _ in EXCHANGES
    ),
    ('coll: all-reduce of 8 B, recorded and not', 'coll_recorder', 'sidewire', 'no record',
     'time_s', 'us', True, 1.03, 1.01),
    *coll_gloo.ROWS,
)
# fmt: on


def rows(by_key):
    """The rows of the experiments that were made."""
    found = [Row(title, by_key[key], *rest) for title, key, *rest in ROWS if key in by_key]
    return found + coll_death.rows(by_key)
