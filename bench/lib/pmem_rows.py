# SPDX-License-Identifier: BSD-2-Clause
"""What is measured of persistent memory: writes straight into it beside writes that a server copies
there, and the log.

The memory is a file of a tmpfs, which shows what the way there costs: flushes are visible ones.
"""

import json
import os
import tempfile
import time

import between
import connections
import gate
import nvme_rows
import procs
from experiment import Added, Experiment, Row
from programs import CLIENT_CPU, SERVER_CPU, pin

HERE = '127.0.0.1'
MIB = 1 << 20
REGION_BYTES, SMALL_BYTES = 64 * MIB, 4 * MIB
SHORT, LONG = 4096, MIB
RECORD = 64
LONG_TOTAL = 10 << 30  # what the client writes while the server's processor time is counted
LONG_DEPTH = 8
RATE = 2 << 30  # bytes per second that are written while others want the memory
WINDOW_S = 1.5
MTU = 9000
PROGRAM_S = 120


class Servers:
    """`sidewire pmem serve`, `count` of them, while in a `with`. `words`: what is in front of a
    program on a side."""

    def __init__(self, rig, count=1, region_bytes=REGION_BYTES):
        self.rig, self.count, self.region_bytes = rig, count, region_bytes
        self.folder, self.children, self.ports = None, [], []

    def __enter__(self):
        self.folder = tempfile.TemporaryDirectory(prefix='sw-pmem-', dir='/dev/shm')
        try:
            for index in range(self.count):
                self.ports.append(procs.free_port())
                path = os.path.join(self.folder.name, f'region{index}')
                # All of it has pages: to make them is no part of a write.
                with open(path, 'wb') as file:
                    file.write(bytes(self.region_bytes))
                self.children.append(
                    procs.Child(
                        [
                            *self.rig.words(between.SERVER),
                            self.rig.program,
                            'serve',
                            path,
                            '--listen',
                            self.rig.address,
                            '--port',
                            str(self.ports[-1]),
                        ]
                    )
                )
            for child in self.children:
                procs.await_text(child, 'Ctrl-C')
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for child in self.children:
            child.end()
        self.folder.cleanup()

    def client(self, command, *options):
        return [
            *self.rig.words(between.CLIENT),
            self.rig.program,
            command,
            '-a',
            self.rig.address,
            '-s',
            str(self.ports[0]),
            *options,
        ]

    def log(self, command, *options):
        copies = [word for port in self.ports for word in ('--copy', f'{self.rig.address}:{port}')]
        return [
            *self.rig.words(between.CLIENT),
            self.rig.program,
            'log',
            command,
            *copies,
            '--visible-only',
            *options,
        ]


class Rig:
    """Where programs run; `two`: on a host each, else both on this one, each on its core."""

    def __init__(self, bench, two=None):
        self.bench, self.two = bench, two
        self.sidewire = two or bench.sidewire
        self.program = (
            os.path.join(bench.sidewire.build, 'movers/pmem/sidewire-pmem')
            if bench.sidewire
            else ''
        )
        self.address = between.hosts.ADDRESSES[between.SERVER] if two else HERE

    def words(self, side):
        if self.two:
            return self.two.on(side, self.two.command)
        return [*pin((CLIENT_CPU, SERVER_CPU)[side]), *self.sidewire.command]

    def appends(self, copies):
        count = 100000 // self.bench.divide
        with Servers(self, copies) as servers:
            procs.run(servers.log('create'), PROGRAM_S)
            found = json.loads(
                procs.run(servers.log('bench', '--count', str(count), '-o', 'json'), PROGRAM_S)
            )
        return {'median_s': found['p50_us'] * 1e-6, 'mean_s': found['mean_us'] * 1e-6}

    def direct(self, size, count):
        """Writes, each with its flush."""
        with Servers(self, region_bytes=SMALL_BYTES) as servers:
            found = json.loads(
                procs.run(
                    servers.client(
                        *f'bench --rw visible --bs {size} --count {count} -D -o json'.split()
                    ),
                    PROGRAM_S,
                )
            )
        return {'mean_s': found['mean_us'] * 1e-6, 'median_s': found['p50_us'] * 1e-6}

    def staged_argv(self, place, port, size, count, depth, sleeps):
        program = os.path.join(self.bench.source, 'staged')
        options = [
            '--port',
            str(port),
            '--file',
            place,
            *f'--bytes {size} --count {count} --depth {depth}'.split(),
        ]
        return [
            [*self.words(side), program, *options, *(['--sleep'] if sleeps else [])]
            for side in (between.CLIENT, between.SERVER)
        ]

    def staged(self, size, count):
        with Place(SMALL_BYTES) as place:
            port = procs.free_port()
            client, server = self.staged_argv(place, port, size, count, 1, False)
            found = json.loads(procs.run_pair(server, [*client, self.address], port, PROGRAM_S))
        return {'mean_s': found['mean_us'] * 1e-6, 'median_s': found['p50_us'] * 1e-6}

    def fio(self):
        """fio's own engine, one WRITE at a time; it knows no flush."""
        return connections.Here(self.bench.sidewire).fio(
            'rdma', ['--verb=write'], [], block=SHORT, depth=1
        )

    def load_direct(self, measure):
        """Long writes at RATE, while `measure` does its work: it is given the server's process."""
        with Servers(self) as servers:
            client = procs.Child(
                servers.client(
                    *f'bench --rw visible --bs {LONG} --count 10000000 --rate {RATE} -D'.split()
                )
            )
            try:
                return beside(client, lambda: measure(servers.children[0].pid))
            finally:
                client.end()

    def load_staged(self, measure):
        with Place() as place:
            port, server, client = procs.free_port(), None, None
            client_argv, server_argv = self.staged_argv(
                place, port, LONG, 10000000, LONG_DEPTH, True
            )
            try:
                server = procs.Child(server_argv)
                procs.await_port(server, port)
                client = procs.Child([*client_argv, '--rate', str(RATE), self.address])
                return beside(client, lambda: measure(server.pid))
            finally:
                for child in client, server:
                    if child:
                        child.end()

    def left(self, _):
        """What memory gives to a program on the server's core."""
        text = procs.run(
            [*pin(SERVER_CPU), os.path.join(self.bench.source, 'memory_rate'), str(WINDOW_S)],
            PROGRAM_S,
        )
        return {'bandwidth': json.loads(text)['bytes_per_s']}


def server_cpu(pid):
    """Processor time for LONG_TOTAL bytes, by what is spent while some are written."""
    before_ns, started = gate.cpu_time_ns(pid), time.monotonic()
    time.sleep(WINDOW_S)
    written = RATE * (time.monotonic() - started)
    return {'cpu_s': (gate.cpu_time_ns(pid) - before_ns) * 1e-9 * LONG_TOTAL / written}


def beside(client, measure):
    """Once it is under way."""
    time.sleep(0.7)
    found = measure()
    if not client.running():
        raise procs.RunFailed(client.report('ended before the measurement'))
    return found


class Place:
    """A file of memory for the staged way."""

    def __init__(self, size_bytes=REGION_BYTES):
        self.size_bytes, self.file = size_bytes, None

    def __enter__(self):
        self.file = tempfile.NamedTemporaryFile(prefix='sw-staged-', dir='/dev/shm')
        self.file.write(bytes(self.size_bytes))
        self.file.flush()
        return self.file.name

    def __exit__(self, *_):
        self.file.close()


def experiments(bench):
    rig = Rig(bench)
    two = between.Between(bench.sidewire, MTU)
    short = 50000 // bench.divide

    def round_trip():
        found = bench.latency('ib_write_lat', RECORD)
        return {'median_s': 2 * found['median_s'], 'mean_s': 2 * found['mean_s']}

    def tcp():
        trip_s = nvme_rows.tcp_round_trip(bench, two, 20000 // bench.divide)
        return {'median_s': trip_s, 'mean_s': trip_s}

    return [
        Experiment(
            'pmem_latency',
            'persistent memory, 4 KiB and a flush',
            {
                'direct': lambda: rig.direct(SHORT, short),
                'staged': lambda: rig.staged(SHORT, short),
                'fio': rig.fio,
            },
        ),
        Experiment(
            'pmem_cpu',
            'persistent memory, the server\'s processor',
            {
                'direct': lambda: rig.load_direct(server_cpu),
                'staged': lambda: rig.load_staged(server_cpu),
            },
        ),
        Experiment(
            'pmem_left',
            'persistent memory, bandwidth left',
            {
                'direct': lambda: rig.load_direct(rig.left),
                'staged': lambda: rig.load_staged(rig.left),
                'idle': lambda: rig.left(None),
            },
        ),
        Experiment(
            'pmem_log',
            'the log of 64 B records',
            {
                'one copy': lambda: rig.appends(1),
                'three copies': lambda: rig.appends(3),
                'ib_write_lat': round_trip,
            },
        ),
        Experiment(
            'pmem_log_hosts',
            'the log between hosts',
            {'append': lambda: Rig(bench, two).appends(1), 'TCP': tcp},
            place=two,
        ),
    ]


# title, experiment, ours, peer, figure, unit, less is better, at least, aim
# fmt: off
ROWS = (
    ('pmem: 4 KiB write and flush, and by a copying server', 'pmem_latency', 'direct', 'staged',
     'mean_s', 'us', True, 0.6, 0.4),
    ('pmem: memory bandwidth left, and by a copying server', 'pmem_left', 'direct', 'staged',
     'bandwidth', 'B/s', False, 1.3, 1.8),
    ('log: append of 64 B, and a round trip of ib_write_lat', 'pmem_log', 'one copy',
     'ib_write_lat', 'median_s', 'us', True, 4.0, 2.0),
    ('log: the same on three copies', 'pmem_log', 'three copies', 'ib_write_lat', 'median_s', 'us',
     True, 8.0, 3.0),
    ('hosts: log append of 64 B, and a round trip of TCP', 'pmem_log_hosts', 'append', 'TCP',
     'median_s', 'us', True, 2.0, 1.2),
)
# fmt: on
# fmt: off
CPU = (
    ('pmem: processor time of the server for 10 GiB', 'pmem_cpu', 'direct', None, 'cpu_s', 'us',
     0.001, 0.0),
    ('  and of a copying server', 'pmem_cpu', 'staged', None, 'cpu_s', 'us', None, None),
    ('pmem: 4 KiB by fio\'s rdma engine, without a flush', 'pmem_latency', 'fio', None, 'mean_s',
     'us', None, None),
)
# fmt: on


def rows(by_key):
    """The rows of the experiments that were made."""
    plan = [(kind, *row) for kind, table in ((Row, ROWS), (Added, CPU)) for row in table]
    return [kind(title, by_key[key], *rest) for kind, title, key, *rest in plan if key in by_key]
