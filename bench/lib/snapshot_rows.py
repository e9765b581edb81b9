# SPDX-License-Identifier: BSD-2-Clause
"""What is measured of snapshots: bench/src/snapshot_load.c beside its floor and fio, and
bench/src/snapshot_torch.py beside what else saves the state of a training.

Volumes lie on the disk of /var/tmp.
"""

import json
import os
import shutil
import tempfile

import procs
from experiment import Experiment, Row
from programs import SERVER_CPU, pin
from transfer_rows import PYTHON, need

MIB, GIB = 1 << 20, 1 << 30
STATE, LARGE, SMALL = 256 * MIB, 2 * GIB, 4 * MIB
ROOM = 4  # volumes and the files of peers, times the state
COMPUTE_MS, LARGE_COMPUTE_MS = 100, 500
TURNS = 3  # of ten steps for each way
LIMIT_S = 240
TORCH_STEPS = 6
COMMITS = 30
OTHERS = ('torch.save', 'thread', 'fork', 'distributed')


class Place:
    """A folder on a disk with room for all of it."""

    def __init__(self, state_bytes):
        self.state_bytes = state_bytes

    def __enter__(self):
        self.folder = tempfile.TemporaryDirectory(prefix='sw-snapshot-', dir='/var/tmp')
        needed = ROOM * self.state_bytes
        free = shutil.disk_usage(self.folder.name).free
        if free < needed:
            self.folder.cleanup()
            raise procs.Skipped(f'/var/tmp has {free // MIB} MiB left, {needed // MIB} are needed')
        return self

    def __exit__(self, *_):
        self.folder.cleanup()

    def path(self, name):
        return os.path.join(self.folder.name, name)


def read_available():
    with open('/proc/meminfo') as file:
        facts = dict(line.split(':') for line in file)
    return int(facts['MemAvailable'].split()[0]) << 10


class Load:
    """Runs snapshot_load and its peers, a new volume each time."""

    def __init__(self, bench, state_bytes=STATE):
        self.bench, self.state_bytes = bench, state_bytes

    def words(self, mode, sink, *more):
        program = os.path.join(self.bench.source, 'snapshot_load')
        words = [*self.bench.sidewire.command, program, mode, str(self.state_bytes), sink]
        return [*words, *map(str, more)]

    def check_memory(self):
        if read_available() < 3 * self.state_bytes:
            raise procs.Skipped(f'the memory has no room for 3 x {self.state_bytes // MIB} MiB')

    def on_file(self, mode, *more):
        self.check_memory()
        with Place(self.state_bytes) as place:
            words = self.words(mode, f'file:{place.path("run.snap")}', *more)
            return json.loads(procs.run(words, LIMIT_S))

    def steps(self, compute_ms, turns):
        self.check_memory()
        with Place(self.state_bytes) as place:
            sink, floor = f'file:{place.path("run.snap")}', place.path('floor')
            return json.loads(
                procs.run(self.words('steps', sink, compute_ms, turns, floor), LIMIT_S)
            )

    def on_peer(self, mode, *more):
        """By the memory of another process, on the other core."""
        self.check_memory()
        port = procs.free_port()
        words = f'snapshot serve --memory {ROOM * self.state_bytes} -l 127.0.0.1:{port}'
        server = procs.Child([*pin(SERVER_CPU), self.bench.sidewire.command[0], *words.split()])
        try:
            procs.await_text(server, 'Ctrl-C')
            words = self.words(mode, f'peer:127.0.0.1:{port}/run', *more)
            return json.loads(procs.run(words, LIMIT_S))
        finally:
            server.end()

    def fio(self, rw):
        """One file that is there already, past the cache, until all of it is on the disk."""
        if not shutil.which('fio'):
            raise procs.Skipped('fio is not installed')
        with Place(self.state_bytes) as place:
            words = (
                f'fio --name=snapshot --filename={place.path("fio")} --size={self.state_bytes} '
                f'--ioengine=io_uring --iodepth=8 --bs=2M --direct=1 --overwrite=1 --rw={rw} '
                '--end_fsync=1 --output-format=json'
            )
            text = procs.run(words.split(), LIMIT_S)
        job = json.loads(text[text.index('{') :])['jobs'][0]
        if rw == 'read':
            return {'bandwidth': job['read']['bw_bytes']}
        return {'bandwidth': self.state_bytes / (job['job_runtime'] * 1e-3)}

    def processor(self):
        """Processor time for 1 GiB by a peer's memory; and of a copy, two sums and RDMA WRITEs."""
        found = self.on_peer('save', 4)
        size = MIB
        rate = self.bench.bandwidth('ib_write_bw', size, 5000 // self.bench.divide)['bandwidth']
        return {'cpu_s': found['cpu_s'], 'parts_s': found['parts_s'] + GIB / rate}

    def fresh_read(self):
        """READs of memory that no cache holds, into such memory."""
        self.check_memory()
        program = os.path.join(self.bench.source, 'fresh_read')
        words = [*self.bench.sidewire.command, program, str(self.state_bytes)]
        return json.loads(procs.run(words, LIMIT_S))

    def commit(self):
        """Four ranks of which a page has changed; beside a flush and three messages."""
        with Place(self.state_bytes) as place:
            sink, floor = f'file:{place.path("{rank}.snap")}', place.path('floor')
            at = f'127.0.0.1:{procs.free_port()}'
            found = json.loads(procs.run(self.words('commit', sink, COMMITS, at, floor), LIMIT_S))
        lasts_s = self.bench.latency('ib_send_lat', 64, iterations=20000)['median_s']
        return {**found, 'parts_s': found['flush_s'] + 3 * lasts_s}

    def torch(self, way):
        need('torch')
        self.check_memory()
        module = os.path.join(self.bench.sidewire.build, 'bindings/python')
        script = os.path.join(
            os.path.dirname(os.path.abspath(__file__)), '../src/snapshot_torch.py'
        )
        with Place(self.state_bytes) as place:
            words = [way, place.folder.name, str(self.state_bytes), str(TORCH_STEPS)]
            command = ['env', f'PYTHONPATH={module}', *self.bench.sidewire.command]
            return json.loads(procs.run([*command, PYTHON, script, *words], LIMIT_S))


def experiments(bench):
    load, large, small = Load(bench), Load(bench, LARGE), Load(bench, SMALL)
    size = MIB

    def read_rate():
        return bench.bandwidth('ib_read_bw', size, 5000 // bench.divide)

    return [
        Experiment(
            'snapshot_steps',
            'steps of 256 MiB beside snapshots',
            {'steps': lambda: load.steps(COMPUTE_MS, TURNS)},
        ),
        Experiment(
            'snapshot_steps_2g',
            'steps of 2 GiB beside snapshots',
            {'steps': lambda: large.steps(LARGE_COMPUTE_MS, 1)},
        ),
        Experiment(
            'snapshot_gate',
            'a gate that has all to copy',
            {'gate': lambda: load.on_file('gate', 6)},
        ),
        Experiment(
            'snapshot_rate',
            'a snapshot of 256 MiB until it is durable',
            {'save': lambda: load.on_file('save', 4), 'fio': lambda: load.fio('write')},
        ),
        Experiment(
            'snapshot_rate_2g',
            'a snapshot of 2 GiB until it is durable',
            {'save': lambda: large.on_file('save', 2), 'fio': lambda: large.fio('write')},
        ),
        Experiment(
            'snapshot_cpu',
            'the processor time of snapshots',
            {'save': load.processor},
        ),
        Experiment(
            'snapshot_restore',
            'a snapshot that is read from a file',
            {'restore': lambda: load.on_file('restore'), 'fio': lambda: load.fio('read')},
        ),
        Experiment(
            'snapshot_restore_peer',
            'a snapshot that is read from a peer',
            {
                'restore': lambda: load.on_peer('restore'),
                'fresh_read': load.fresh_read,
                'ib_read_bw': read_rate,
            },
        ),
        Experiment(
            'snapshot_commit',
            'a page of four ranks until it counts',
            {'commit': small.commit},
        ),
        Experiment(
            'snapshot_changes',
            'bytes that are moved for those that have changed',
            {
                'pages': lambda: load.on_file('pages', 20),
                'tensors': lambda: load.on_file('tensors', 100),
            },
        ),
        Experiment(
            'snapshot_torch',
            'steps in torch beside saves',
            {way: lambda way=way: load.torch(way) for way in ('sidewire', *OTHERS)},
        ),
    ]


# title, experiment, ours, peer, figure, unit, less is better, at least, aim, the peer's figure
# fmt: off
ROWS = (
    ('snapshots: mean step of 256 MiB, and beside the floor', 'snapshot_steps', 'steps', 'steps',
     'snapshots_s', 's', True, 1.01, 1.003, 'floor_s'),
    ('  the slowest step of a thousand, and with nothing beside', 'snapshot_steps', 'steps',
     'steps', 'snapshots_slow_s', 's', True, 1.1, 1.02, 'alone_slow_s'),
    ('  the floor, and with nothing beside', 'snapshot_steps', 'steps', 'steps', 'floor_s', 's',
     True, None, None, 'alone_s'),
    ('snapshots: mean step of 2 GiB, and beside the floor', 'snapshot_steps_2g', 'steps', 'steps',
     'snapshots_s', 's', True, 1.01, 1.003, 'floor_s'),
    ('snapshots: longest gate, and a copy of what was left', 'snapshot_gate', 'gate', 'gate',
     'gate_s', 's', True, 1.2, 1.05, 'floor_s'),
    ('snapshots: 256 MiB until durable, and fio\'s write', 'snapshot_rate', 'save', 'fio',
     'bandwidth', 'B/s', False, 0.85, 0.95, None),
    ('snapshots: 2 GiB until durable, and fio\'s write', 'snapshot_rate_2g', 'save', 'fio',
     'bandwidth', 'B/s', False, 0.85, 0.95, None),
    ('snapshots: processor for 1 GiB, and copy, two sums, WRITE', 'snapshot_cpu', 'save', 'save',
     'cpu_s', 's', True, 1.5, 1.15, 'parts_s'),
    ('snapshots: restored from a file, and fio\'s read', 'snapshot_restore', 'restore', 'fio',
     'bandwidth', 'B/s', False, 0.85, 0.95, None),
    ('snapshots: restored from a peer, and READs of fresh memory', 'snapshot_restore_peer',
     'restore', 'fresh_read', 'bandwidth', 'B/s', False, 0.7, 0.9, None),
    ('  and ib_read_bw, of one MiB in the cache', 'snapshot_restore_peer', 'restore',
     'ib_read_bw', 'bandwidth', 'B/s', False, None, None, None),
    ('snapshots: commit of 4 ranks, and a flush and 3 messages', 'snapshot_commit', 'commit',
     'commit', 'commit_s', 's', True, 3.0, 1.5, 'parts_s'),
    ('  from the last captured copy on, with their flush', 'snapshot_commit', 'commit', 'commit',
     'whole_s', 's', True, None, None, 'parts_s'),
    ('snapshots: 5% of the pages changed, bytes moved to these', 'snapshot_changes', 'pages',
     'pages', 'moved', 'B', True, 1.4, 1.1, 'changed'),
    ('snapshots: 1% of the tensors changed, bytes moved to these', 'snapshot_changes', 'tensors',
     'tensors', 'moved', 'B', True, 1.05, 1.01, 'changed'),
    *(
        (f'snapshots: what a step in torch costs more, and {way}', 'snapshot_torch', 'sidewire',
         way, 'cost_s', 's', True, 1.0, 0.1, None)
        for way in OTHERS
    ),
)
# fmt: on


def rows(by_key):
    """The rows of the experiments that were made."""
    return [
        Row(title, by_key[key], *plan, peer_figure=peer_figure)
        for title, key, *plan, peer_figure in ROWS
        if key in by_key
    ]
