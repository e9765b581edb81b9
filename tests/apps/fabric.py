# SPDX-License-Identifier: BSD-2-Clause
"""libfabric: fabric_all.c does what fabtests' quick set does for verbs, and fi_pingpong runs over
each provider."""
import os
import shutil
import time

import hosts
import pair
import ports
from lines import dealt, left
from pair import Failure, Process, Skip

HERE = os.path.dirname(os.path.abspath(__file__))
PARTS = [os.path.join(HERE, f'fabric_{part}.c') for part in ('all', 'ops')]
# Type, provider. A device is called `-dgram` where datagrams are meant.
TYPES = [('msg', 'verbs'), ('srx', 'verbs'), ('rdm', 'verbs;ofi_rxm'), ('dgram', 'verbs')]
PINGPONGS = [
    ('msg', 'verbs'),
    ('rdm', 'verbs;ofi_rxm'),
    ('rdm', 'verbs;ofi_rxd'),
    ('dgram', 'verbs'),
]


def build(tools):
    if not os.path.exists('/usr/include/rdma/fi_domain.h'):
        raise Skip('libfabric-dev is not installed')
    return tools.build(
        *'fabric_all cc -O2 -Wall -Wextra -Werror -D_GNU_SOURCE'.split(), *PARTS, '-lfabric'
    )


def is_listening(port, side):
    try:
        return pair.is_listening(port, side.child.pid)
    except OSError:
        return True  # it has just ended


def run_sides(tools, two, words_of, port, on, said, **run):
    """words_of(side, device) of server and client; `on`: the client's host. Each must end well and
    say that."""
    sides = []
    limit = time.monotonic() + pair.PATIENCE_S
    try:
        for name, host in (('server', 0), ('client', on)):
            sides.append(
                Process(tools.run(*words_of(name, two.device[host]), wrap=two.wrap[host], **run))
            )
            while (
                name == 'server' and not is_listening(port, sides[0]) and time.monotonic() < limit
            ):
                time.sleep(0.02)
        hung = [side.words for side in reversed(sides) if not side.wait(limit)]
    finally:
        for side in sides:
            side.end()
    texts = [side.text() for side in sides]
    if hung or any(
        side.child.returncode or said not in text or 'sidewire[' in text
        for side, text in zip(sides, texts)
    ):
        raise Failure(
            f'hung: {hung}, statuses {[side.child.returncode for side in sides]}\n'
            f'{sides[0].words}\n{texts[0]}'
            f'{sides[1].words}\n{texts[1]}'
        )


def on_hosts(case):
    def run(tools):
        two = hosts.Hosts()
        try:
            case(tools, two)
        finally:
            two.close()

    return run


def check_data(tools, two, kind, provider, on, domain_of, **run):
    """What an endpoint of this kind moves; `domain_of`: the domain of a device's name."""
    port = ports.claim()
    program = build(tools)

    def words(side, device):
        domain = domain_of(device)
        return [program, kind, provider, domain, hosts.ADDRESSES[0], str(port), side]

    run_sides(tools, two, words, port, on, ' checks\n', **run)


def data_case(kind, provider, on, **run):
    suffix = '-dgram' if kind == 'dgram' else ''
    return on_hosts(
        lambda tools, two: check_data(
            tools, two, kind, provider, on, lambda device: device + suffix, **run
        )
    )


def pingpong_case(kind, provider):
    def case(tools, two):
        if not shutil.which('fi_pingpong'):
            raise Skip('fi_pingpong is not installed')
        port = ports.claim()

        def words(side, device):
            device += '-dgram' if kind == 'dgram' or provider.endswith('rxd') else ''
            address = [hosts.ADDRESSES[0]] if side == 'client' else []
            return [
                *'fi_pingpong -c -I 100'.split(),
                '-d',
                device,
                '-p',
                provider,
                '-e',
                kind,
                *(['-P'] if address else ['-B']),
                str(port),
                *address,
            ]

        run_sides(tools, two, words, port, 1, '=100')

    return on_hosts(case)


WAYS = {
    'one host': (0, {}),
    'one host, by the ring': (0, {'direct': 'ring'}),
    'two hosts': (1, {}),
}


def data_cases(chosen):
    return [
        (f'{kind} {provider}, {way}', data_case(kind, provider, WAYS[way][0], **WAYS[way][1]))
        for way, (kind, provider) in chosen
    ]


def groups():
    longest = [
        (f'fi_pingpong {kind} {provider}', pingpong_case(kind, provider))
        for kind, provider in PINGPONGS
    ]
    return {
        'fabric': longest + data_cases(dealt(list(WAYS), TYPES)),
        'fabric_more': data_cases(left(list(WAYS), TYPES)),
    }
