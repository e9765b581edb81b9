# SPDX-License-Identifier: BSD-2-Clause
"""How long it takes until all other ranks know that one has been killed: while they sleep, while
they sum, and on another host."""

import json
import os

import between
import iwarp
import procs
from experiment import Added, Experiment

HERE = '127.0.0.1'
RANKS = 3
MTU = 9000
IDLE, BUSY = 0, 1 << 20
LIMIT_S = 60


def time_of(texts):
    """From the death to the last rank that is told."""
    found = [json.loads(text) for text in texts]
    return {'time_s': max(rank['known_s'] for rank in found[:-1]) - found[-1]['died_s']}


def words_of(bench, rank, ranks, meet, size):
    return [os.path.join(bench.source, 'coll_death'), str(rank), str(ranks), meet, str(size)]


def on_one_host(bench, size):
    meet = f'{HERE}:{procs.free_port()}'
    return time_of(
        procs.run_all(
            [
                [*bench.sidewire.command, *words_of(bench, rank, RANKS, meet, size)]
                for rank in range(RANKS)
            ],
            LIMIT_S,
        )
    )


def apart(bench, two, size):
    meet = f'{two.addresses[0]}:{procs.free_port()}'
    return time_of(
        procs.run_all(
            [
                two.on(rank, [*two.command, *words_of(bench, rank, 2, meet, size)])
                for rank in range(2)
            ],
            LIMIT_S,
        )
    )


def between_hosts(bench, key, title, two):
    return Experiment(
        key,
        title,
        {
            'idle': lambda: apart(bench, two, IDLE),
            'busy': lambda: apart(bench, two, BUSY),
        },
        place=two,
    )


def experiments(bench):
    return [
        Experiment(
            'coll_death',
            'a death known',
            {
                'idle': lambda: on_one_host(bench, IDLE),
                'busy': lambda: on_one_host(bench, BUSY),
            },
        ),
        between_hosts(
            bench,
            'coll_death_hosts',
            'a death known between hosts',
            between.Between(bench.sidewire, MTU),
        ),
        between_hosts(
            bench,
            'coll_death_hosts_iwarp',
            'a death known between hosts, iWARP',
            iwarp.Apart(bench.sidewire, MTU),
        ),
    ]


# title, experiment, contender, at least, aim
ROWS = (
    ('coll: a death known by all, asleep', 'coll_death', 'idle', 0.3, 0.1),
    ('  in a sum of 1 MiB', 'coll_death', 'busy', 1.0, 0.5),
    *(
        row
        for key, link in (('coll_death_hosts', 'RoCE'), ('coll_death_hosts_iwarp', 'iWARP'))
        for row in (
            (f'coll: a death known on another host, {link}, asleep', key, 'idle', 5.0, 1.0),
            ('  in a sum of 1 MiB', key, 'busy', 5.0, 1.0),
        )
    ),
)


def rows(by_key):
    return [
        Added(title, by_key[key], ours, None, 'time_s', 'us', at_least, aim)
        for title, key, ours, at_least, aim in ROWS
        if key in by_key
    ]
