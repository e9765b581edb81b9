# SPDX-License-Identifier: BSD-2-Clause
"""What is measured of the RoCEv2 link between hosts, and of its congestion control in the
simulator."""

import itertools
import json
import os

import between
import guests
import procs
from experiment import Experiment

LARGE = 65536
MTUS = (9000, 1500)
# Messages of two packets and more, which the receiver sees by looking at its memory
WRITES = (8192, 16384, 32768)
# Messages that the kernel carries in several of its own
LONG = (131072, 1048576)
SEND_TEST, WRITE_TEST = ('ib_send_lat', 'tag_lat'), ('ib_write_lat', 'ucp_put_lat')
QPS = 1000
SENDERS = 16

BANDWIDTH, LATENCY, MEAN = (
    ('bandwidth', 'B/s', False),
    ('median_s', 's', True),
    ('mean_s', 's', True),
)
RATE, JAIN, TAIL = ('rate', 'op/s', False), ('jain', 'index', False), ('p99_s', 's', True)
# title, experiment, ours, peer, (figure, unit, less is better), at least, aim
# fmt: off
PLAN = (
    ('hosts, MTU 9000: ib_write_bw -s 65536, and TCP', 'hosts_bandwidth_9000', 'ib_write_bw',
     'iperf3', BANDWIDTH, 1.5, 2.5),
    ('  bare UDP with a CRC, and TCP', 'hosts_bandwidth_9000', 'bare UDP', 'iperf3', BANDWIDTH,
     None, None),
    ('hosts, MTU 1500: the same', 'hosts_bandwidth_1500', 'ib_write_bw', 'iperf3', BANDWIDTH, 1.0,
     1.5),
    ('  bare UDP with a CRC, and TCP', 'hosts_bandwidth_1500', 'bare UDP', 'iperf3', BANDWIDTH,
     None, None),
    ('hosts: ib_send_lat -s 8, and UCX over TCP', 'hosts_latency', 'ib_send_lat', 'UCX tag_lat',
     LATENCY, 0.95, 0.8),
    ('hosts: ib_write_lat -s 8, and ib_send_lat', 'hosts_latency', 'ib_write_lat', 'ib_send_lat',
     LATENCY, 3.0, 1.5),
    *(
        (f'hosts: ib_write_lat -s {size}, and UCX over TCP', 'hosts_write_latency',
         f'ib_write_lat {size}', f'UCX ucp_put_lat {size}', LATENCY, 1.0, 0.7)
        for size in WRITES
    ),
    *(
        (f'  {size} B on average', 'hosts_write_latency', f'ib_write_lat {size}',
         f'UCX ucp_put_lat {size}', MEAN, 1.0, 0.7)
        for size in WRITES
    ),
    *(
        (f'hosts: {ours} -s {size}, and UCX over TCP', 'hosts_long_latency', f'{ours} {size}',
         f'UCX {peer} {size}', MEAN, 1.0, 0.7)
        for ours, peer in (SEND_TEST, WRITE_TEST)
        for size in LONG
    ),
    ('guests: ib_write_bw -s 65536, and rdma_rxe', 'guests_bandwidth', 'ib_write_bw', 'rdma_rxe',
     BANDWIDTH, 1.0, 3.0),
    ('hosts: ib_write_bw, 1% lost, and none', 'hosts_loss', '1% lost', 'none lost', BANDWIDTH, 0.7,
     0.9),
    ('hosts: 8 B WRITE rate, 1,000 QPs, and 1', 'hosts_qps', '1000 QPs', '1 QP', RATE, 0.7, 0.9),
    ('  the same over the direct link', 'direct_qps', '1000 QPs', '1 QP', RATE, None, None),
    ('simulator, 16 to 1: Jain\'s index of shares', 'incast', '16 senders', 'equal shares', JAIN,
     0.95, 0.99),
    ('  and p99 of 64 B, and idle', 'incast', '16 senders', 'idle network', TAIL, 10.0, 4.0),
)
# fmt: on
ROWS = [
    (title, key, ours, peer, figure, unit, least, at_least, aim)
    for title, key, ours, peer, (figure, unit, least), at_least, aim in PLAN
]


def experiments(bench):
    return [
        *(host_bandwidth(bench, mtu) for mtu in MTUS),
        host_latency(bench),
        latencies_beside_ucx(
            bench,
            'hosts_write_latency',
            'WRITEs of 8 to 32 KiB between hosts',
            (WRITE_TEST,),
            WRITES,
            10000,
        ),
        latencies_beside_ucx(
            bench,
            'hosts_long_latency',
            '128 KiB and 1 MiB between hosts',
            (SEND_TEST, WRITE_TEST),
            LONG,
            1000,
        ),
        guest_bandwidth(bench),
        host_loss(bench),
        *many_qps(bench),
        incast(bench),
    ]


def host_bandwidth(bench, mtu):
    two = between.Between(bench.sidewire, mtu)
    return Experiment(
        f'hosts_bandwidth_{mtu}',
        f'64 KiB WRITE between hosts, MTU {mtu}',
        {
            'ib_write_bw': lambda: bench.bandwidth('ib_write_bw', LARGE, 20000, sidewire=two),
            'iperf3': two.tcp,
            'bare UDP': lambda: two.udp(bench.source),
        },
        place=two,
    )


def host_latency(bench):
    two = between.Between(bench.sidewire, MTUS[0])
    count = 10000
    return Experiment(
        'hosts_latency',
        '8 B between hosts',
        {
            'ib_send_lat': lambda: bench.latency('ib_send_lat', 8, iterations=count, sidewire=two),
            'ib_write_lat': lambda: bench.latency(
                'ib_write_lat', 8, iterations=count, sidewire=two
            ),
            'UCX tag_lat': lambda: two.ucx_tcp('tag_lat', 8, bench.trips(count)),
        },
        place=two,
    )


def latencies_beside_ucx(bench, key, title, tests, sizes, count):
    """Latency of each size: by programs of perftest, and by the tests of UCX over TCP."""
    two = between.Between(bench.sidewire, MTUS[0])
    sides = {}
    for (ours, peer), size in itertools.product(tests, sizes):
        sides[f'{ours} {size}'] = lambda ours=ours, size=size: bench.latency(
            ours, size, iterations=count, sidewire=two
        )
        sides[f'UCX {peer} {size}'] = lambda peer=peer, size=size: two.ucx_tcp(
            peer, size, bench.trips(count)
        )
    return Experiment(key, title, sides, place=two)


def guest_bandwidth(bench):
    return guests.bandwidth_beside(
        guests.Guests(bench.sidewire),
        'rdma_rxe',
        ('guests_bandwidth', '64 KiB WRITE between emulated machines'),
        LARGE,
        3000 // bench.divide,
    )


def host_loss(bench):
    """A packet in a hundred of both directions is lost; every round loses others."""
    two = between.Between(bench.sidewire, MTUS[0])
    seeds = itertools.count(1)

    def goodput(sidewire):
        return bench.bandwidth('ib_write_bw', LARGE, 20000, sidewire=sidewire)

    return Experiment(
        'hosts_loss',
        '64 KiB WRITE between hosts, packets lost',
        {
            'none lost': lambda: goodput(two),
            '1% lost': lambda: goodput(two.with_faults(f'loss=1%,seed={next(seeds)}')),
        },
        place=two,
    )


def many_qps(bench):
    two, here = between.Between(bench.sidewire, MTUS[0]), between.Local(bench.sidewire)

    def contenders(place, ops):
        ops //= bench.divide
        return {
            '1000 QPs': lambda: place.qp_rate(bench.source, QPS, ops),
            '1 QP': lambda: place.qp_rate(bench.source, 1, ops),
        }

    return (
        Experiment(
            'hosts_qps', '8 B WRITEs between hosts, many QPs', contenders(two, 300000), place=two
        ),
        Experiment('direct_qps', '8 B WRITEs, many QPs, direct link', contenders(here, 2000000)),
    )


def incast(bench):
    """Virtual time: what a seed gives is always the same, so each round has its own. The seeds of
    both contenders go along."""

    def simulate(senders, seeds):
        argv = [
            os.path.join(bench.source, 'incast'),
            '--senders',
            str(senders),
            '--seed',
            str(next(seeds)),
        ]
        found = json.loads(procs.run(argv, 60))
        return {**found, 'p99_s': found['p99_ns'] * 1e-9}

    full, idle = itertools.count(1), itertools.count(1)
    return Experiment(
        'incast',
        f'{SENDERS} senders, one receiver, simulated',
        {
            '16 senders': lambda: simulate(SENDERS, full),
            'idle network': lambda: simulate(0, idle),
            'equal shares': lambda: {'jain': 1.0},
        },
    )
