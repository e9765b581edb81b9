# SPDX-License-Identifier: BSD-2-Clause
"""gloo as a peer of collectives, over TCP: its all-reduce (bench/src/gloo_all_reduce.cc), and the
time from the start of many ranks to their first sum."""

import json
import os
import statistics
import tempfile
import time

import between
import iwarp
import procs
from between import CLIENT, SERVER
from experiment import Experiment
from libraries import gloo_program
from programs import pin

HERE = '127.0.0.1'
MTU = 9000
MIB = 1 << 20
LIMIT_S = 120
# Algorithm, and how a rank waits. Those that are missing were slower by far.
LARGE = ('ring_new async', 'bcube_new async', 'halving_doubling async')
SMALL = ('bcube sync', 'halving_doubling sync', 'ring_new async')
MANY = 16


def start_together(folder, ranks):
    """What run_all() calls: lets ranks begin once all are ready."""

    def begin(children):
        limit = time.monotonic() + LIMIT_S
        while sum(name.startswith('ready.') for name in os.listdir(folder)) < ranks:
            for child in children:
                if not child.running() or time.monotonic() > limit:
                    raise procs.RunFailed(child.report('did not become ready'))
            time.sleep(0.01)
        with open(os.path.join(folder, 'go'), 'w'):
            pass

    return begin


def run_together(words_of, ranks):
    """What each of the ranks printed; words_of(rank, folder) starts it."""
    with tempfile.TemporaryDirectory(prefix='bench-ranks-') as folder:
        commands = [words_of(rank, folder) for rank in range(ranks)]
        texts = procs.run_all(commands, LIMIT_S, start_together(folder, ranks))
    return [json.loads(text) for text in texts]


def until_all_have_it(found):
    """From the start of the first rank to the first sum of the last one."""
    begun = min(rank['begun_s'] for rank in found)
    return {'time_s': max(rank['first_s'] for rank in found) - begun}


class Gloo:
    def __init__(self, bench):
        self.bench = bench

    def words(self, rank, ranks, folder, address, setting, size, count):
        return [
            gloo_program(self.bench, 'gloo_all_reduce'),
            *f'{rank} {ranks} {folder} {address} {setting} {size} {count}'.split(),
        ]

    def here(self, setting, size, count, ranks=2):
        """On this host; each on a processor of its own where there are enough."""
        enough = ranks <= len(os.sched_getaffinity(0))
        found = run_together(
            lambda rank, folder: [
                *(pin(rank) if enough else []),
                *self.words(rank, ranks, folder, HERE, setting, size, count),
            ],
            ranks,
        )
        return {'time_s': statistics.fmean(rank['time_s'] for rank in found)}

    def apart(self, two, setting, size, count):
        """A rank on each of two hosts."""
        found = run_together(
            lambda rank, folder: two.on(
                rank, self.words(rank, 2, folder, two.addresses[rank], setting, size, count)
            ),
            2,
        )
        return {'bandwidth': size / statistics.fmean(rank['time_s'] for rank in found)}

    def first(self, setting, size):
        return until_all_have_it(
            run_together(
                lambda rank, folder: self.words(rank, MANY, folder, HERE, setting, size, 1), MANY
            )
        )

    def settings(self, settings, size, count, ranks=2):
        return {
            f'gloo [{setting}]': lambda setting=setting: self.here(setting, size, count, ranks)
            for setting in settings
        }


def first_of_ours(bench, size):
    meet = f'{HERE}:{procs.free_port()}'
    return until_all_have_it(
        run_together(
            lambda rank, folder: [
                *bench.sidewire.command,
                os.path.join(bench.source, 'coll_first'),
                *f'{rank} {MANY} {folder} {meet} {size}'.split(),
            ],
            MANY,
        )
    )


def ours_apart(two, size, count):
    program = os.path.join(two.sidewire.build, 'movers/collectives/sidewire-coll')
    port = procs.free_port()
    texts = procs.run_all(
        [
            two.on(
                rank,
                [
                    *two.command,
                    program,
                    *f'perf --ranks 2 --rank {rank} --meet {two.addresses[0]}:{port}'.split(),
                    *f'-w 5 -n {count} -b {size} -e {size} --output-format json'.split(),
                ],
            )
            for rank in (CLIENT, SERVER)
        ],
        LIMIT_S,
    )
    return {'bandwidth': size / (json.loads(texts[0])['rows'][0]['time_us'] * 1e-6)}


def half_of_both_ways(bench, two):
    """What each direction moves while the other one does, too."""
    found = bench.bandwidth('ib_write_bw', 65536, 20000, ['-b'], 60, sidewire=two)
    return {'bandwidth': found['bandwidth'] / 2}


def between_hosts(bench, key, title, two):
    """All-reduce of 64 MiB between two hosts, beside what moves bytes alone, and gloo."""
    size, gloo, count = 64 * MIB, Gloo(bench), max(10 // bench.divide, 3)
    return Experiment(
        key,
        title,
        {
            'sidewire': lambda: ours_apart(two, size, count),
            'ib_write_bw': lambda: half_of_both_ways(bench, two),
            **{
                f'gloo [{setting}]': lambda setting=setting: gloo.apart(two, setting, size, count)
                for setting in LARGE
            },
        },
        place=two,
    )


def experiments(bench):
    gloo = Gloo(bench)
    return [
        Experiment(
            'coll_first',
            f'{MANY} ranks to their first sum',
            {
                'sidewire': lambda: first_of_ours(bench, 8),
                **{
                    f'gloo [{setting}]': lambda setting=setting: gloo.first(setting, 8)
                    for setting in SMALL
                },
            },
        ),
        between_hosts(
            bench,
            'coll_hosts',
            'all-reduce between hosts',
            between.Between(bench.sidewire, MTU),
        ),
        between_hosts(
            bench,
            'coll_hosts_iwarp',
            'all-reduce between hosts, iWARP',
            iwarp.Apart(bench.sidewire, MTU),
        ),
    ]


# fmt: off
ROWS = (
    ('coll: 16 ranks, from init to the first sum, and gloo', 'coll_first', 'sidewire', 'gloo',
     'time_s', 'us', True, 0.333, 0.1),
    *(
        row
        for key, title in (('coll_hosts', 'RoCE'), ('coll_hosts_iwarp', 'iWARP'))
        for row in (
            (f'coll: all-reduce of 64 MiB between hosts, {title}, and half of ib_write_bw -b', key,
             'sidewire', 'ib_write_bw', 'bandwidth', 'B/s', False, 0.6, 0.8),
            ('  and gloo', key, 'sidewire', 'gloo', 'bandwidth', 'B/s', False, 3.0, 6.0),
        )
    ),
)
# fmt: on
