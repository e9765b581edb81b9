# SPDX-License-Identifier: BSD-2-Clause
"""What is measured of the transfer engine and of the module sidewire: bench/src/moves.py beside
what else moves arrays."""

import contextlib
import json
import os
import shutil
import subprocess
import tempfile
import time

import between
import procs
from between import CLIENT, SERVER
from connections import Here
from experiment import Added, Experiment, Row
from programs import CLIENT_CPU, SERVER_CPU, pin, ucx

MTU = 9000
PYTHON = '/usr/bin/python3'
BLOCKS, BLOCK = 15000, 71552
MOVES = os.path.join(os.path.dirname(os.path.abspath(__file__)), '../src/moves.py')
PACKAGES = {
    'torch': 'python3-torch',
    'mpi4py': 'python3-mpi4py',
    'zmq': 'python3-zmq',
    'numpy': 'python3-numpy',
}
LIMIT_S = 150
UCX_SETTINGS = {'default': {}, 'posix,cma': {'UCX_TLS': 'posix,cma,self'}}

# fmt: off
PLAN = (
    ('Python: 1 GiB in 15,000 blocks, and torch gloo', 'transfer_gloo', 'sidewire', 'gloo',
     'bandwidth', 'B/s', False, 2.4, 6.0),
    ('  and mpi4py', 'transfer_mpi', 'sidewire', 'mpi4py', 'bandwidth', 'B/s', False, 1.3, 2.0),
    ('  and ucp_put_bw of 1 GiB', 'transfer_ucx', 'sidewire', 'UCX ucp_put_bw', 'bandwidth', 'B/s',
     False, 0.8, 0.95),
    ('  and of one block, which stays in the cache', 'transfer_ucx', 'sidewire', 'cached',
     'bandwidth', 'B/s', False, None, None),
    ('hosts: the same, and one TCP stream', 'hosts_transfer', 'sidewire', 'TCP', 'bandwidth', 'B/s',
     False, 1.2, 2.4),
    ('one 64 KiB transfer from Python, and from C', 'transfer_single', 'Python', 'C', 'mean_s', 's',
     True, 1.6, 1.2),
    ('first transfer to a new peer, and rdma_connect', 'transfer_first', 'first transfer',
     'rdma_connect', 'mean_s', 'us', True, 5.0, 1.5),
    ('ipc: round trip of 64 B, and Pipe', 'ipc_small', 'ipc', 'Pipe', 'mean_s', 's', True, 0.5,
     0.2),
    ('  and zmq over ipc', 'ipc_small_zmq', 'ipc', 'zmq', 'mean_s', 's', True, 0.5, 0.2),
    ('ipc: an array of 100 MiB, and Pipe', 'ipc_large', 'ipc', 'Pipe', 'bandwidth', 'B/s', False,
     5.0, 10.0),
    ('  and shared memory with a memcpy', 'ipc_large', 'ipc', 'shared memory', 'bandwidth', 'B/s',
     False, 0.8, 1.0),
)
# fmt: on


def need(name):
    """A module that Debian's interpreter has."""
    if (
        not os.path.exists(PYTHON)
        or subprocess.run(
            [PYTHON, '-c', f'import importlib.util as u, sys; sys.exit(not u.find_spec("{name}"))'],
            check=False,
        ).returncode
    ):
        raise procs.Skipped(f'{PACKAGES[name]} is not installed')


class Moves:
    """Runs moves.py, with and without our device."""

    def __init__(self, bench):
        self.bench = bench

    @property
    def module(self):
        return os.path.join(self.bench.sidewire.build, 'bindings/python')

    def words(self, *words):
        if not os.path.isdir(os.path.join(self.module, 'sidewire')):
            raise procs.Skipped('the module sidewire is not built: python3-dev was not there')
        need('numpy')
        return [
            'env',
            f'PYTHONPATH={self.module}',
            *self.bench.sidewire.command,
            PYTHON,
            MOVES,
            *words,
        ]

    def alone(self, *words):
        """What forks its other side by itself."""
        return json.loads(procs.run(self.words(*words), LIMIT_S))

    def foreign(self, name, *words, env=None):
        """The same without our device."""
        need('numpy')
        if name:
            need(name)
        return json.loads(procs.run([PYTHON, MOVES, *words], LIMIT_S, env))

    def others(self, title, name, *words):
        """Contenders of a peer: each process on a core of its own, as ours, and where the kernel
        likes, which is one core for those that sleep."""
        return {
            f'{title} [two cores]': lambda: self.foreign(name, *words),
            f'{title} [free]': lambda: self.foreign(name, *words, env={'MOVES_FREE': '1'}),
        }

    def reach(self, way, on, address='127.0.0.1', client=None):
        """A server, and the client that `way` or `client` says. on(side, words) puts them where
        they belong."""
        with tempfile.TemporaryDirectory(prefix='bench-moves-') as folder:
            card = os.path.join(folder, 'card')
            server = procs.Child(on(SERVER, self.words('serve', address, card)))
            try:
                await_file(server, card)
                return procs.run(
                    on(CLIENT, client(card) if client else self.words(way, card)), LIMIT_S
                )
            finally:
                server.end()


def await_file(server, path, timeout_s=30):
    limit = time.monotonic() + timeout_s
    while not os.path.exists(path):
        if not server.running() or time.monotonic() > limit:
            raise procs.RunFailed(server.report('did not begin to serve'))
        time.sleep(0.01)


def on_core(side, words):
    return [*pin(SERVER_CPU if side == SERVER else CLIENT_CPU), *words]


def single_of_command(moves):
    """One 64 KiB transfer by `sidewire transfer bench`."""
    text = moves.reach(
        None,
        on_core,
        client=lambda card: [
            *moves.bench.sidewire.command[:1],
            'transfer',
            'bench',
            '-c',
            card,
            *'--bs 64K --bytes 1M -o json'.split(),
        ],
    )
    rows = json.loads(text)
    rows = rows['rows'] if isinstance(rows, dict) else rows
    return {'mean_s': rows[0]['p50_us'] * 1e-6}


def gloo(moves):
    need('numpy')
    need('torch')
    with tempfile.TemporaryDirectory(prefix='bench-gloo-') as folder:
        store = os.path.join(folder, 'store')
        ranks = [
            on_core(side, [PYTHON, MOVES, 'gloo', str(rank), store])
            for rank, side in enumerate((CLIENT, SERVER))
        ]
        return json.loads(procs.run_all(ranks, LIMIT_S)[0].splitlines()[-1])


def mpi(_moves):
    need('numpy')
    need('mpi4py')
    mpirun = shutil.which('mpirun.openmpi')
    if not mpirun:
        raise procs.Skipped('openmpi-bin is not installed')
    text = procs.run(
        [
            mpirun,
            *'--allow-run-as-root --oversubscribe --bind-to core -np 2'.split(),
            PYTHON,
            MOVES,
            'mpi',
        ],
        LIMIT_S,
    )
    return json.loads(text.splitlines()[-1])


def connects(bench):
    """The time of a connection that is made and ended, one at a time."""
    return {
        'mean_s': 1
        / Here(bench.sidewire).connect_rate(bench.source, 'rdma', 1000 // bench.divide, 1)['rate']
    }


def experiments(bench):
    moves = Moves(bench)
    here = {'sidewire': lambda: json.loads(moves.reach('blocks', on_core))}
    two = between.Between(bench.sidewire, MTU)
    return [
        Experiment(
            'transfer_gloo', '1 GiB in blocks, torch', {'gloo': lambda: gloo(moves), **here}
        ),
        Experiment('transfer_mpi', '1 GiB in blocks, MPI', {'mpi4py': lambda: mpi(moves), **here}),
        Experiment(
            'transfer_ucx',
            '1 GiB in blocks, UCX',
            {
                **here,
                **{
                    f'UCX ucp_put_bw [{name}]': lambda settings=settings: ucx(
                        'ucp_put_bw', 1 << 30, 4, settings
                    )
                    for name, settings in UCX_SETTINGS.items()
                },
                'cached': lambda: ucx('ucp_put_bw', BLOCK, BLOCKS, {}),
            },
        ),
        Experiment(
            'hosts_transfer',
            '1 GiB in blocks between hosts',
            {
                'sidewire': lambda: json.loads(
                    moves.reach('blocks', two.on, between.hosts.ADDRESSES[SERVER])
                ),
                'TCP': two.tcp,
            },
            place=two,
        ),
        Experiment(
            'transfer_single',
            '64 KiB from Python and C',
            {
                'Python': lambda: json.loads(moves.reach('single', on_core)),
                'C': lambda: single_of_command(moves),
            },
        ),
        Experiment(
            'transfer_first',
            'a new peer',
            {
                'first transfer': lambda: json.loads(moves.reach('first', on_core)),
                'rdma_connect': lambda: connects(bench),
            },
        ),
        Experiment(
            'transfer_ends', 'deaths and cancellations', {'sidewire': lambda: moves.alone('ends')}
        ),
        Experiment(
            'ipc_small',
            'round trips of 64 B',
            {'ipc': lambda: moves.alone('small_ipc'), **moves.others('Pipe', None, 'small_pipe')},
        ),
        Experiment(
            'ipc_small_zmq',
            'round trips of 64 B, zmq',
            {**moves.others('zmq', 'zmq', 'small_zmq'), 'ipc': lambda: moves.alone('small_ipc')},
        ),
        Experiment(
            'ipc_large',
            'arrays of 100 MiB',
            {
                'ipc': lambda: moves.alone('large_ipc'),
                **moves.others('Pipe', None, 'large_pipe'),
                'shared memory': lambda: moves.foreign(None, 'large_shared'),
            },
        ),
    ]


def rows(by_key):
    found = [
        Row(title, by_key[key], ours, peer, figure, unit, least, at_least, aim)
        for title, key, ours, peer, figure, unit, least, at_least, aim in PLAN
        if key in by_key
    ]
    with contextlib.suppress(KeyError):
        title, ucx = '  to prepare and post them, and to move them', by_key['transfer_ucx']
        figures = ('sidewire', 'sidewire', 'setup_s', 'us')
        found.append(Row(title, ucx, *figures, True, 0.02, 0.005, peer_figure='move_s'))
    with contextlib.suppress(KeyError):
        ends = by_key['transfer_ends']
        found += [
            Added(title, ends, 'sidewire', None, figure, 'us', at_least, aim)
            for title, figure, at_least, aim in (
                ('a peer killed until the error', 'kill_s', 0.2, 0.06),
                ('a cancellation until all is quiet', 'cancel_s', 0.05, 0.005),
            )
        ]
    return found
