# SPDX-License-Identifier: BSD-2-Clause
"""What waiting costs on one host: programs that sleep until an event, and a machine whose
processors have other work."""

from experiment import Experiment
from load import beside_load
from programs import ucx

MIB = 1 << 20
LONG = (4, 16)  # MiB

# fmt: off
ROWS = tuple(
    (f'ib_send_lat -e, {mib} MiB, and polled', 'events', f'-e {mib}', f'polled {mib}', 'median_s',
     's', True, 1.3, 1.1)
    for mib in LONG
) + tuple(
    (f'{name}, busy and idle', 'busy', f'{name} busy', f'{name} idle', 'mean_s', 's', True, 3.0,
     1.5)
    for name in ('RC', 'UD', 'UCX ud')
)
# fmt: on


def _events(bench):
    def latency(mib, options):
        return lambda: bench.latency('ib_send_lat', mib * MIB, options, iterations=1000)

    return Experiment(
        'events',
        'long SENDs, events and polling',
        {
            **{f'polled {mib}': latency(mib, ()) for mib in LONG},
            **{f'-e {mib}': latency(mib, ('-e',)) for mib in LONG},
        },
    )


def _ucx_ud(bench):
    """UCX over our device, by datagrams. `sidewire run` gives it all that it needs to see the
    device."""
    net = {'UCX_NET_DEVICES': f'{bench.sidewire.device}:1', 'UCX_TLS': 'ud_verbs,self'}
    return ucx('tag_lat', 8, 100000 // bench.divide, net, wrap=bench.sidewire.command)


def _contention(bench):
    measures = {
        'RC': lambda: bench.latency('ib_send_lat', 64),
        'UD': lambda: bench.latency('ib_send_lat', 64, ('-c', 'UD')),
        'UCX ud': lambda: _ucx_ud(bench),
    }
    return Experiment(
        'busy',
        '64 B SEND beside two busy processes',
        {
            **{f'{name} idle': measure for name, measure in measures.items()},
            **{f'{name} busy': beside_load(measure) for name, measure in measures.items()},
        },
        loads=True,
    )


def experiments(bench):
    return [_events(bench), _contention(bench)]
