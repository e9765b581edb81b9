# SPDX-License-Identifier: BSD-2-Clause
"""What is measured of programs that connect by librdmacm: connections per second, rsockets, fio's
engine."""

import json
import os
import re

import between
import procs
from experiment import Experiment
from programs import CLIENT_CPU, SERVER_CPU, connect_rate_words, pin

IN_FLIGHT = 8
BLOCK = 128 << 10

RATE, LATENCY, BANDWIDTH = (
    ('rate', 'conn/s', False),
    ('median_s', 's', True),
    ('bandwidth', 'B/s', False),
)
# title, experiment, ours, peer, (figure, unit, less is better), at least, aim
# fmt: off
PLAN = (
    ('connections per second, and TCP', 'connections', 'RDMA', 'TCP', RATE, 0.2, 0.6),
    ('  one at a time', 'connections', 'RDMA, one', 'TCP, one', RATE, None, None),
    ('  each with a CQ of its own', 'connections', 'RDMA, own CQ', 'TCP', RATE, None, None),
    ('hosts: connections per second, and TCP', 'hosts_connections', 'RDMA', 'TCP', RATE, 0.1, 0.4),
    ('  one at a time', 'hosts_connections', 'RDMA, one', 'TCP, one', RATE, None, None),
    ('rstream -S 64, and TCP that polls', 'rstream_latency', 'rstream', 'tcp_pingpong', LATENCY,
     0.2, 0.1),
    ('fio rdma, 128 KiB WRITE, and net', 'fio_write', 'rdma', 'net', BANDWIDTH, 3.0, 8.0),
)
# fmt: on
ROWS = [
    (title, key, ours, peer, figure, unit, least, at_least, aim)
    for title, key, ours, peer, (figure, unit, least), at_least, aim in PLAN
]


class Here:
    """Client and server on this host, each on its core."""

    def __init__(self, sidewire):
        self.sidewire = sidewire

    def both(self, server, client, port, timeout_s):
        """What the client printed."""
        return procs.run_pair(pin(SERVER_CPU) + server, pin(CLIENT_CPU) + client, port, timeout_s)

    def connect_rate(self, source, kind, count, in_flight, held=0):
        """Connections per second; `kind` as bench/src/connect_rate has it."""
        port = procs.free_port()
        words = connect_rate_words(
            self.sidewire.command, source, kind, port, count, in_flight, held
        )
        text = self.both(words, words + ['127.0.0.1'], port, 60)
        return {'rate': json.loads(text)['connections_per_s']}

    def rstream(self, size, iterations):
        """Half of a round trip."""
        port = procs.free_port()
        words = self.sidewire.command + f'rstream -p {port} -S {size} -C 1 -I {iterations}'.split()
        text = self.both(words, words + ['-s', '127.0.0.1'], port, 60)
        return {'median_s': parse_rstream(text)}

    def tcp_pingpong(self, source, size, iterations):
        port = procs.free_port()
        words = [os.path.join(source, 'tcp_pingpong'), str(port), str(size), str(iterations)]
        text = self.both(words, words + ['127.0.0.1'], port, 60)
        return {'median_s': json.loads(text)['one_way_ns'] * 1e-9}

    def fio(self, engine, options, server_options, block=BLOCK, seconds=2, depth=4):
        """What the client wrote with: bandwidth, and the mean time of a request. The second before
        it is left out: fio's RDMA client sleeps half of it."""
        port = procs.free_port()
        command = self.sidewire.command if engine == 'rdma' else []
        words = command + [
            'fio',
            f'--ioengine={engine}',
            f'--port={port}',
            f'--bs={block}',
            f'--iodepth={depth}',
            '--size=1g',
        ]
        client = words + [
            *'--name=client --rw=write --hostname=127.0.0.1 --time_based'.split(),
            '--ramp_time=1',
            f'--runtime={seconds}',
            '--output-format=json',
            *options,
        ]
        server = words + [
            '--name=server',
            '--rw=read',
            '--time_based',
            f'--runtime={seconds + 30}',
            *server_options,
        ]
        text = self.both(server, client, port, seconds + 20)
        return parse_fio(text)


def parse_rstream(text):
    """The last column, microseconds for a transfer."""
    found = re.search(r'^custom\s.*\s([0-9.]+)\s*$', text, re.M)
    if not found:
        raise procs.RunFailed(f'rstream printed no result:\n{text[-800:]}')
    return float(found[1]) * 1e-6


def parse_fio(text):
    """The figures of fio's writes; fio may print a note before its JSON."""
    try:
        job = json.loads(text[text.index('{') :])['jobs'][0]
        if job['error'] or not job['write']['bw_bytes']:
            raise ValueError
        return {
            'bandwidth': job['write']['bw_bytes'],
            'mean_s': job['write']['lat_ns']['mean'] * 1e-9,
        }
    except (ValueError, KeyError, IndexError):
        raise procs.RunFailed(f'fio printed no result:\n{text[-800:]}') from None


def experiments(bench):
    return [connections(bench), hosts_connections(bench), rstream_latency(bench), fio_write(bench)]


def connections(bench):
    here, count = Here(bench.sidewire), 20000 // bench.divide

    def rate(kind, in_flight, connections=count):
        return lambda: here.connect_rate(bench.source, kind, connections, in_flight)

    return Experiment(
        'connections',
        'connections set up and torn down',
        {
            'RDMA': rate('rdma', IN_FLIGHT),
            'TCP': rate('tcp', IN_FLIGHT),
            'RDMA, one': rate('rdma', 1, count // 2),
            'TCP, one': rate('tcp', 1),
            'RDMA, own CQ': rate('rdma-cq', IN_FLIGHT),
        },
    )


def hosts_connections(bench):
    two, count = between.Between(bench.sidewire, 9000), 10000 // bench.divide

    def rate(kind, in_flight):
        return lambda: two.connect_rate(bench.source, kind, count, in_flight)

    return Experiment(
        'hosts_connections',
        'connections between hosts',
        {
            'RDMA': rate('rdma', IN_FLIGHT),
            'TCP': rate('tcp', IN_FLIGHT),
            'RDMA, one': rate('rdma', 1),
            'TCP, one': rate('tcp', 1),
        },
        place=two,
    )


def rstream_latency(bench):
    here, count = Here(bench.sidewire), 200000 // bench.divide
    return Experiment(
        'rstream_latency',
        '64 B by sockets',
        {
            'rstream': lambda: here.rstream(64, count),
            'tcp_pingpong': lambda: here.tcp_pingpong(bench.source, 64, count // 4),
        },
        rounds_factor=2,
    )


def fio_write(bench):
    here = Here(bench.sidewire)
    return Experiment(
        'fio_write',
        '128 KiB writes by fio',
        {
            'rdma': lambda: here.fio('rdma', ['--verb=write'], []),
            'net': lambda: here.fio('net', ['--protocol=tcp'], ['--protocol=tcp', '--listen']),
        },
    )
