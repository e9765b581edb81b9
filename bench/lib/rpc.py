# SPDX-License-Identifier: BSD-2-Clause
"""Requests and answers between hosts, as a storage target and its host exchange them
(bench/src/rpc.c)."""

import json
import os

import between
import procs
from experiment import Experiment

MTU = 9000
SHORT, LONG = 4096, 131072
SHORT_DEPTHS, LONG_DEPTH = (1, 32), 8
COUNT = {1: 20000, 32: 100000, LONG_DEPTH: 10000}

RATE, BANDWIDTH = ('requests_per_s', '1/s', False), ('bytes_per_s', 'B/s', False)


def _row(title, key, ours, peer, kind, at_least, aim):
    figure, unit, least = kind
    return (title, key, ours, peer, figure, unit, least, at_least, aim)


# fmt: off
ROWS = [
    *(
        _row(f'hosts: requests with 4 KiB, depth {depth}, and TCP', 'hosts_rpc', f'verbs {depth}',
            f'tcp {depth}', RATE, 1.0, 1.5)
        for depth in SHORT_DEPTHS
    ),
    *(
        _row(f'  and bare UDP with a CRC, depth {depth}', 'hosts_rpc', f'verbs {depth}',
            f'udp {depth}', RATE, 0.8, 0.95)
        for depth in SHORT_DEPTHS
    ),
    *(
        _row(f'  and bare UDP whose datagrams share messages, depth {depth}', 'hosts_rpc',
            f'verbs {depth}', f'udp-shared {depth}', RATE, None, None)
        for depth in SHORT_DEPTHS
    ),
    *(
        _row(f'  both asleep until an event, depth {depth}, and TCP', 'hosts_rpc_events',
            f'verbs {depth}', f'tcp {depth}', RATE, 1.0, 1.3)
        for depth in SHORT_DEPTHS
    ),
    *(
        _row(f'  and bare UDP that sleeps, depth {depth}', 'hosts_rpc_events', f'verbs {depth}',
            f'udp-shared {depth}', RATE, None, None)
        for depth in SHORT_DEPTHS
    ),
    *(
        _row(f'hosts: 128 KiB {kind}, depth {LONG_DEPTH}, and TCP', 'hosts_rpc_long',
            f'verbs {kind}', f'tcp {kind}', BANDWIDTH, 1.2, 2.0)
        for kind in ('writes', 'reads')
    ),
    *(
        _row(f'  and bare UDP with a CRC, {kind}', 'hosts_rpc_long', f'verbs {kind}',
            f'udp-shared {kind}', BANDWIDTH, None, None)
        for kind in ('writes', 'reads')
    ),
]
# fmt: on


def measure(bench, two, way, depth, data_bytes, options=()):
    """One run between both hosts. Figures as the program prints them."""
    port = procs.free_port()
    program = [
        os.path.join(bench.source, 'rpc'),
        '--way',
        way,
        *f'--port {port} --depth {depth} --data {data_bytes}'.split(),
        *f'--count {bench.trips(COUNT[depth])}'.split(),
        *options,
    ]

    def words(side):
        if way != 'verbs':
            return program
        return [*two.command, *program, '--device', two.hosts.device[side]]

    return json.loads(two.both(words, port, 60))


def experiments(bench):
    two = between.Between(bench.sidewire, MTU)

    def of(way, depth, data_bytes, *options):
        return lambda: measure(bench, two, way, depth, data_bytes, options)

    return [
        Experiment(
            'hosts_rpc',
            'requests and answers between hosts',
            {
                f'{way} {depth}': of(way, depth, SHORT)
                for way in ('verbs', 'tcp', 'udp', 'udp-shared')
                for depth in SHORT_DEPTHS
            },
            place=two,
        ),
        Experiment(
            'hosts_rpc_events',
            'the same, asleep until an event',
            {
                f'{way} {depth}': of(way, depth, SHORT, '--sleep')
                for way in ('verbs', 'tcp', 'udp-shared')
                for depth in SHORT_DEPTHS
            },
            place=two,
        ),
        Experiment(
            'hosts_rpc_long',
            '128 KiB between hosts, by requests',
            {
                f'{way} {kind}': of(
                    way, LONG_DEPTH, LONG, *(['--write'] if kind == 'writes' else [])
                )
                for way in ('verbs', 'tcp', 'udp-shared')
                for kind in ('writes', 'reads')
            },
            place=two,
        ),
    ]
