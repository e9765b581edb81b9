# SPDX-License-Identifier: BSD-2-Clause
"""What is measured of torch's process groups on sidewire: bench/src/torch_ranks.py beside the same
on torch's gloo, and on a back end that does nothing (bench/src/torch_nothing.cc).

Ranks are bound to processors where there are enough, and torch has one thread in each."""

import json
import os
import shutil

import between
import coll_gloo
import procs
from experiment import Experiment, Row
from programs import pin
from transfer_rows import PYTHON, need

HERE = '127.0.0.1'
MTU = 9000
MANY = 8
LIMIT_S = 240
KIB, MIB = 1 << 10, 1 << 20
SOURCES = os.path.join(os.path.dirname(os.path.abspath(__file__)), '../src')
RANKS_PROGRAM = os.path.join(SOURCES, 'torch_ranks.py')
TORCH_HEADERS = '/usr/include/torch/csrc/api/include'
# What of several ranks' figures counts: the slowest.
FIGURES = ('time_s', 'step_s', 'plain_s', 'exposed_s')
QUIET = 'SIDEWIRE_COLL_STATUS=off'

# fmt: off
OPERATIONS = (
    ('torch_4m', 'all-reduce of 4 MiB', 'all_reduce', 4 * MIB, 100),
    ('torch_64m', 'all-reduce of 64 MiB', 'all_reduce', 64 * MIB, 20),
    ('torch_broadcast_64m', 'broadcast of 64 MiB', 'broadcast', 64 * MIB, 20),
    ('torch_all_to_all_16m', 'all-to-all of 16 MiB', 'all_to_all', 16 * MIB, 50),
)
# title, experiment, ours, peer, figure, at least, aim: of times, less is better
ROWS = (
    ('torch: all-reduce of 8 B, and a back end that does nothing', 'torch_8', 'sidewire', 'nothing',
     'time_s', 1.4, 1.15),
    ('  and gloo', 'torch_8', 'sidewire', 'gloo', 'time_s', 0.2, 0.1),
    ('  recorded and not', 'torch_recorder', 'sidewire', 'no record', 'time_s', 1.03, 1.01),
    ('torch: all-reduce of 4 MiB, and gloo', 'torch_4m', 'sidewire', 'gloo', 'time_s', 0.2, 0.1),
    ('torch: all-reduce of 64 MiB, and gloo', 'torch_64m', 'sidewire', 'gloo', 'time_s', 0.2, 0.1),
    ('torch: all-to-all of 16 MiB, and gloo', 'torch_all_to_all_16m', 'sidewire', 'gloo', 'time_s',
     0.333, 0.167),
    ('torch: broadcast of 64 MiB, and gloo', 'torch_broadcast_64m', 'sidewire', 'gloo', 'time_s',
     0.333, 0.167),
    ('torch: what DDP waits for 100 MB of gradients, and gloo', 'torch_ddp', 'sidewire', 'gloo',
     'exposed_s', 0.3, 0.15),
    ('  and DDP without sums: its copies of gradients', 'torch_ddp', 'sidewire', 'copies',
     'exposed_s', None, None),
    ('  with gradients in its buckets, and gloo', 'torch_ddp_view', 'sidewire', 'gloo', 'exposed_s',
     0.3, 0.15),
    ('torch: all-reduce of 64 MiB between hosts, and gloo', 'torch_hosts_64m', 'sidewire', 'gloo',
     'time_s', 0.333, 0.167),
    ('  and what WRITEs of both hosts take at a time', 'torch_hosts_64m', 'sidewire', 'ib_write_bw',
     'time_s', None, None),
    (f'torch: {MANY} ranks, from init to the first sum, and gloo', 'torch_first', 'sidewire',
     'gloo', 'time_s', 1.0, 0.7),
)
# fmt: on


def nothing_module(bench):
    """The folder of the module torch_nothing; built when it is first asked for, or has changed."""
    if not shutil.which('g++') or not os.path.isdir(TORCH_HEADERS):
        raise procs.Skipped('g++ or libtorch-dev is not installed')
    source = os.path.join(SOURCES, 'torch_nothing.cc')
    path = os.path.join(bench.source, 'torch_nothing.so')
    if not os.path.exists(path) or os.path.getmtime(path) < os.path.getmtime(source):
        include = procs.run(
            [PYTHON, '-c', 'import sysconfig as s; print(s.get_path("include"))'], 20
        ).strip()
        procs.run(
            [
                *'g++ -std=c++14 -O2 -shared -fPIC -Wall'.split(),
                *('-isystem', TORCH_HEADERS, '-isystem', include),
                *('-o', path, source),
                *'-ltorch_python -ltorch_cpu -lc10'.split(),
            ],
            240,
        )
    return bench.source


class Ranks:
    def __init__(self, bench):
        self.bench = bench

    def times(self, count):
        return max(count // self.bench.divide, 3)

    def path(self, backend):
        """Where its module is; '' for a back end that torch has."""
        if backend == 'nothing':
            return nothing_module(self.bench)
        if backend != 'sidewire':
            return ''
        module = os.path.join(self.bench.sidewire.build, 'bindings/torch')
        if not os.path.isdir(os.path.join(module, 'sidewire_torch')):
            raise procs.Skipped('sidewire_torch is not built: libtorch-dev was not there')
        return module

    def words(self, backend, place, kind, settings=(), command=None):
        """place: (rank, ranks, address and port of rank 0)"""
        need('torch')
        rank, ranks, address, port = place
        ours = self.bench.sidewire.command if command is None else command
        return [
            'env',
            f'RANK={rank}',
            f'WORLD_SIZE={ranks}',
            f'MASTER_ADDR={address}',
            f'MASTER_PORT={port}',
            f'PYTHONPATH={self.path(backend)}',
            'OMP_NUM_THREADS=1',
            *settings,
            *(ours if backend == 'sidewire' else []),
            PYTHON,
            '-B',
            RANKS_PROGRAM,
            backend,
            *kind.split(),
        ]

    def here(self, backend, kind, settings=()):
        """Two ranks on this host."""
        port = procs.free_port()
        texts = procs.run_all(
            [
                [*pin(rank), *self.words(backend, (rank, 2, HERE, port), kind, settings)]
                for rank in range(2)
            ],
            LIMIT_S,
        )
        return slowest(texts)

    def apart(self, two, backend, kind):
        """A rank on each of two hosts."""
        port = procs.free_port()
        return slowest(
            procs.run_all(
                [
                    two.on(
                        rank,
                        self.words(
                            backend,
                            (rank, 2, two.addresses[0], port),
                            kind,
                            [f'GLOO_SOCKET_IFNAME={two.hosts.names[rank]}'],
                            two.command,
                        ),
                    )
                    for rank in range(2)
                ],
                LIMIT_S,
            )
        )

    def first(self, backend):
        """From the begin of all ranks, which have imported torch, to the first sum of the last."""
        port = procs.free_port()
        return coll_gloo.until_all_have_it(
            coll_gloo.run_together(
                lambda rank, folder: self.words(
                    backend, (rank, MANY, HERE, port), f'first {folder}'
                ),
                MANY,
            )
        )

    def beside_gloo(self, kind):
        return {
            backend: lambda backend=backend: self.here(backend, kind)
            for backend in ('sidewire', 'gloo')
        }


def slowest(texts):
    found = [json.loads(text) for text in texts]
    return {name: max(rank[name] for rank in found) for name in FIGURES if name in found[0]}


def both_ways(bench, two):
    """The least time: each rank sends as many bytes as the buffer has, and gets as many."""
    found = coll_gloo.half_of_both_ways(bench, two)
    return {'time_s': 64 * MIB / found['bandwidth']}


def between_hosts(bench, ranks):
    two, kind = between.Between(bench.sidewire, MTU), f'all_reduce {64 * MIB} {ranks.times(10)}'
    return Experiment(
        'torch_hosts_64m',
        'torch: all-reduce of 64 MiB between hosts',
        {
            backend: lambda backend=backend: ranks.apart(two, backend, kind)
            for backend in ('sidewire', 'gloo')
        }
        | {'ib_write_bw': lambda: both_ways(bench, two)},
        place=two,
    )


def experiments(bench):
    ranks = Ranks(bench)
    short = f'all_reduce 8 {ranks.times(100000)}'
    return [
        Experiment(
            'torch_8',
            'torch: all-reduce of 8 B',
            {
                **ranks.beside_gloo(short),
                'nothing': lambda: ranks.here('nothing', short),
            },
        ),
        Experiment(
            'torch_recorder',
            'torch: all-reduce of 8 B, recorded',
            {
                'sidewire': lambda: ranks.here('sidewire', short),
                'no record': lambda: ranks.here('sidewire', short, [QUIET]),
            },
        ),
        *(
            Experiment(
                key, f'torch: {title}', ranks.beside_gloo(f'{kind} {size} {ranks.times(count)}')
            )
            for key, title, kind, size, count in OPERATIONS
        ),
        Experiment(
            'torch_ddp',
            'torch: DDP, 100 MB of gradients',
            {
                **ranks.beside_gloo(f'ddp {ranks.times(20)}'),
                'copies': lambda: ranks.here('sidewire', f'ddp {ranks.times(20)} copies'),
            },
        ),
        Experiment(
            'torch_ddp_view',
            'torch: DDP, 100 MB of gradients in its buckets',
            ranks.beside_gloo(f'ddp {ranks.times(20)} view'),
        ),
        between_hosts(bench, ranks),
        Experiment(
            'torch_first',
            f'torch: {MANY} ranks to their first sum',
            {
                backend: lambda backend=backend: ranks.first(backend)
                for backend in ('sidewire', 'gloo')
            },
        ),
    ]


def rows(by_key):
    return [
        Row(title, by_key[key], ours, peer, figure, 'us', True, at_least, aim)
        for title, key, ours, peer, figure, at_least, aim in ROWS
        if key in by_key
    ]
