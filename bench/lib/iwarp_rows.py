# SPDX-License-Identifier: BSD-2-Clause
"""What is measured of the iWARP device: beside one TCP stream, a TCP ping-pong that polls, and the
kernel's siw."""

import guests
import iwarp
from experiment import Added, Experiment, Row

LARGE = 65536
MTUS = (9000, 1500)
VERBS = ('write', 'send', 'read')
LISTS = ('-l', '32', '-t', '128')
IDLE = 1000
KIB = 1024

BANDWIDTH, LATENCY, MEAN = (
    ('bandwidth', 'B/s', False),
    ('median_s', 's', True),
    ('mean_s', 's', True),
)
RATE, CONNECTIONS = ('rate', 'op/s', False), ('rate', 'conn/s', False)
PLACES = [(f'iwarp_{mtu}', f'iWARP, hosts, MTU {mtu}') for mtu in MTUS] + [
    ('iwarp_loopback', 'iWARP, loopback')
]
LIMITS = {('read', ''): (0.8, 0.95), ('write', ''): (0.85, 1.0), ('send', ''): (0.85, 1.0)}
CRC_LIMITS = (0.55, 0.75)


def bandwidth_rows():
    """Title, experiment, ours, peer, (figure, unit, less is better), at least, aim."""
    for key, title in PLACES:
        for verb in VERBS:
            yield (
                f'{title}: ib_{verb}_bw -s {LARGE}, and TCP',
                key,
                verb,
                'iperf3',
                BANDWIDTH,
                *LIMITS[verb, ''],
            )
        for verb in VERBS:
            yield f'  ib_{verb}_bw with CRCs', key, f'{verb}, CRC', 'iperf3', BANDWIDTH, *CRC_LIMITS


# fmt: off
PLAN = (
    *bandwidth_rows(),
    ('iWARP, hosts: ib_send_lat -s 8, and TCP that polls', 'iwarp_latency', 'ib_send_lat',
     'tcp_pingpong', LATENCY, 1.3, 1.1),
    ('  on average', 'iwarp_latency', 'ib_send_lat', 'tcp_pingpong', MEAN, None, None),
    ('iWARP, hosts: 8 B WRITEs, lists of 32, and 1 M/s', 'iwarp_rate', 'ib_write_bw', 'a million',
     RATE, 2.0, 5.0),
    ('iWARP, 1% lost: ib_send_bw -e, both sides asleep as in TCP', 'iwarp_loss', 'ib_send_bw -e',
     'iperf3', BANDWIDTH, 0.95, 1.0),
    ('  ib_write_bw, which polls and leaves no processor to the link', 'iwarp_loss', 'ib_write_bw',
     'iperf3', BANDWIDTH, None, None),
    ('iWARP: connections per second, and TCP', 'iwarp_connections', 'RDMA', 'TCP', CONNECTIONS,
     0.25, 0.4),
    ('  one at a time', 'iwarp_connections', 'RDMA, one', 'TCP, one', CONNECTIONS, None, None),
    ('guests: ib_write_bw -R, and siw', 'iwarp_guests', 'ib_write_bw', 'siw', BANDWIDTH, 1.0, 1.5),
    ('iWARP: a message, 1,000 connections asleep, and 1', 'iwarp_idle', '1000', '1', LATENCY, None,
     None),
)
# fmt: on


def rows(by_key):
    found = [
        Row(title, by_key[key], ours, peer, figure, unit, least, at_least, aim)
        for title, key, ours, peer, (figure, unit, least), at_least, aim in PLAN
        if key in by_key
    ]
    if 'iwarp_idle' in by_key:
        found.append(
            Added(
                'iWARP: memory of a connection that is idle',
                by_key['iwarp_idle'],
                '1000',
                None,
                'memory',
                'KiB',
                64 * KIB,
                16 * KIB,
            )
        )
    return found


def experiments(bench):
    return [
        *(
            bandwidth(bench, key, iwarp.Apart(bench.sidewire, mtu))
            for mtu, (key, _) in zip(MTUS, PLACES)
        ),
        bandwidth(bench, 'iwarp_loopback', iwarp.Local(bench.sidewire)),
        latency(bench),
        rate(bench),
        loss(bench),
        connections(bench),
        against_siw(bench),
        idle(bench),
    ]


def bandwidth(bench, key, place):
    is_local = isinstance(place, iwarp.Local)
    with_crc = iwarp.Local(bench.sidewire, True) if is_local else place.with_crc()

    def measure(verb, where):
        return lambda: bench.bandwidth(f'ib_{verb}_bw', LARGE, 20000, sidewire=where)

    return Experiment(
        key,
        '64 KiB by iWARP',
        {
            **{verb: measure(verb, place) for verb in VERBS},
            **{f'{verb}, CRC': measure(verb, with_crc) for verb in VERBS},
            'iperf3': place.tcp,
        },
        place=None if is_local else place,
    )


def latency(bench):
    two, count = iwarp.Apart(bench.sidewire, MTUS[0]), 20000
    return Experiment(
        'iwarp_latency',
        '8 B by iWARP',
        {
            'ib_send_lat': lambda: bench.latency('ib_send_lat', iterations=count, sidewire=two),
            'tcp_pingpong': lambda: two.tcp_pingpong(bench.source, 8, count // bench.divide),
        },
        rounds_factor=2,
        place=two,
    )


def rate(bench):
    two = iwarp.Apart(bench.sidewire, MTUS[0])
    return Experiment(
        'iwarp_rate',
        '8 B WRITEs by iWARP',
        {
            'ib_write_bw': lambda: bench.bandwidth('ib_write_bw', 8, 2000000, LISTS, sidewire=two),
            'a million': lambda: {'rate': 1e6},
        },
        place=two,
    )


def loss(bench):
    """The link needs a processor, too, which sides that poll keep busy; iperf3 sleeps while it has
    nothing to do."""
    two = iwarp.Lossy(bench.sidewire, MTUS[1], bench.source)
    return Experiment(
        'iwarp_loss',
        '64 KiB by iWARP, segments lost',
        {
            'ib_write_bw': lambda: bench.bandwidth('ib_write_bw', LARGE, 5000, sidewire=two),
            'ib_send_bw -e': lambda: bench.bandwidth(
                'ib_send_bw', LARGE, 5000, ('-e',), sidewire=two
            ),
            'iperf3': two.tcp,
        },
        place=two,
    )


def connections(bench):
    here, count, flying = iwarp.Local(bench.sidewire), 5000 // bench.divide, '8'

    def ours(in_flight):
        return lambda: by_rate(
            here.ours(bench.source, 'connect_rate', 'rdma', '{port}', str(count), in_flight, '0')
        )

    def theirs(in_flight):
        return lambda: here.connect_rate(bench.source, 'tcp', count, int(in_flight))

    return Experiment(
        'iwarp_connections',
        'connections by iWARP',
        {
            'RDMA': ours(flying),
            'TCP': theirs(flying),
            'RDMA, one': ours('1'),
            'TCP, one': theirs('1'),
        },
    )


def by_rate(found):
    return {'rate': found['connections_per_s']}


def against_siw(bench):
    return guests.bandwidth_beside(
        iwarp.Emulated(bench.sidewire),
        'siw',
        ('iwarp_guests', '64 KiB by iWARP between emulated machines'),
        LARGE,
        1000 // bench.divide,
    )


def idle(bench):
    here, trips = iwarp.Local(bench.sidewire), 2000 // bench.divide

    def measure(count):
        found = here.ours(bench.source, 'idle_connections', '{port}', str(count), str(trips))
        return {
            'median_s': found['round_trip_ns'] / 2 * 1e-9,
            'memory': found['bytes_per_connection'],
        }

    return Experiment(
        'iwarp_idle',
        'idle connections by iWARP',
        {str(count): lambda count=count: measure(count) for count in (IDLE, 1)},
    )
