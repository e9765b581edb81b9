# SPDX-License-Identifier: BSD-2-Clause
"""What is measured of `--link tcp`: the same programs over RoCE's packets, and plain TCP, between
the same hosts."""

import between
import iwarp
import rpc
from experiment import Experiment, Row

LARGE, MTU = 65536, 9000
BANDWIDTH, LATENCY = ('bandwidth', 'B/s', False), ('median_s', 's', True)
RATE = ('requests_per_s', '1/s', False)
# fmt: off
PLAN = (
    ('--link tcp, hosts: ib_write_bw -s 65536, and TCP', 'tcp_bandwidth', '--link tcp', 'iperf3',
     BANDWIDTH),
    ('  and RoCE over UDP', 'tcp_bandwidth', '--link tcp', 'RoCE', BANDWIDTH),
    ('--link tcp, hosts: ib_write_lat -s 8, and TCP that polls', 'tcp_latency', '--link tcp',
     'tcp_pingpong', LATENCY),
    ('  and RoCE over UDP', 'tcp_latency', '--link tcp', 'RoCE', LATENCY),
    *(
        (f'--link tcp, hosts: requests with 4 KiB, depth {depth}, and {name}', 'tcp_rpc',
         f'--link tcp {depth}', f'{peer} {depth}', RATE)
        for depth in rpc.SHORT_DEPTHS
        for peer, name in (('tcp', 'TCP'), ('RoCE', 'RoCE over UDP'))
    ),
)
# fmt: on


class ByTcp(between.Between):
    """The hosts of another place, while that one is entered."""

    def __init__(self, plain):
        super().__init__(plain.sidewire, plain.mtu)
        self.plain = plain

    def both(self, *args, **options):
        self.hosts, self.gids = self.plain.hosts, self.plain.gids
        self.command = [*self.sidewire.command[:2], '--link', 'tcp', *self.sidewire.command[2:]]
        return super().both(*args, **options)


class Apart(between.Between):
    """A host for each side; perftest by packets."""

    tcp_pingpong = iwarp.Apart.tcp_pingpong


def experiments(bench):
    return [bandwidth(bench), latency(bench), requests(bench)]


def bandwidth(bench):
    two = Apart(bench.sidewire, MTU)
    return Experiment(
        'tcp_bandwidth',
        '64 KiB WRITEs by --link tcp',
        {
            '--link tcp': lambda: bench.bandwidth('ib_write_bw', LARGE, 20000, sidewire=ByTcp(two)),
            'RoCE': lambda: bench.bandwidth('ib_write_bw', LARGE, 20000, sidewire=two),
            'iperf3': two.tcp,
        },
        place=two,
    )


def latency(bench):
    two, count = Apart(bench.sidewire, MTU), 20000
    return Experiment(
        'tcp_latency',
        '8 B WRITEs by --link tcp',
        {
            '--link tcp': lambda: bench.latency(
                'ib_write_lat', iterations=count, sidewire=ByTcp(two)
            ),
            'RoCE': lambda: bench.latency('ib_write_lat', iterations=count, sidewire=two),
            'tcp_pingpong': lambda: two.tcp_pingpong(bench.source, 8, count // bench.divide),
        },
        rounds_factor=2,
        place=two,
    )


def requests(bench):
    """The requests of hosts_rpc."""
    two = between.Between(bench.sidewire, MTU)
    ways = {'--link tcp': (ByTcp(two), 'verbs'), 'RoCE': (two, 'verbs'), 'tcp': (two, 'tcp')}

    def of(place, way, depth):
        return lambda: rpc.measure(bench, place, way, depth, rpc.SHORT)

    return Experiment(
        'tcp_rpc',
        'requests and answers by --link tcp',
        {f'{name} {depth}': of(*ways[name], depth) for name in ways for depth in rpc.SHORT_DEPTHS},
        place=two,
    )


def rows(by_key):
    return [
        Row(title, by_key[key], ours, peer, figure, unit, least, None, None)
        for title, key, ours, peer, (figure, unit, least) in PLAN
        if key in by_key
    ]
