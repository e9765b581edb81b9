# SPDX-License-Identifier: BSD-2-Clause
"""What waiting costs on one host: programs that sleep until an event, and a machine whose
processors have other work."""

from experiment import Experiment
from load import beside_load
from programs import ucx

MIB = 1 << 20
LONG = (4, 16)  # MiB
FEW = {64: 8, 4096: 16}  # receives, of messages of that size

# fmt: off
ROWS = tuple(
    (f'ib_send_lat -e, {mib} MiB, and polled', 'events', f'-e {mib}', f'polled {mib}', 'median_s',
     's', True, 1.3, 1.1)
    for mib in LONG
) + tuple(
    (f'ib_send_bw --use-srq -e, {size} B, and {name}', 'shared_events', f'-e {size}',
     f'{peer} {size}', 'rate', 'op/s', False, *limits)
    for size, limits in ((64, (0.1, 0.3)), (4096, (0.2, 0.5)))
    for name, peer in (('polled', 'polled'), ('a queue of its own', 'plain'))
) + tuple(
    (f'ib_send_bw -e -r {count}, {size} B, and polled', 'few_receives', f'-e {size}',
     f'polled {size}', 'rate', 'op/s', False, None, None)
    for size, count in FEW.items()
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


def _few_receives(bench):
    """The sender waits, time and again, until the target has posted more."""

    def rate(size, options):
        return lambda: bench.bandwidth('ib_send_bw', size, 50000, ('-r', str(FEW[size]), *options))

    return Experiment(
        'few_receives',
        'SENDs to few receives, events and polling',
        {
            f'{name} {size}': rate(size, options)
            for size in FEW
            for name, options in (('-e', ('-e',)), ('polled', ()))
        },
    )


def _shared_events(bench):
    """A target takes the receive of a shared queue, so a sender that sleeps waits for its
    answer."""

    def rate(size, options):
        return lambda: bench.bandwidth('ib_send_bw', size, 100000, options)

    return Experiment(
        'shared_events',
        'SENDs to a shared queue, events and polling',
        {
            f'{name} {size}': rate(size, options)
            for size in (64, 4096)
            for name, options in (
                ('-e', ('--use-srq', '-e')),
                ('polled', ('--use-srq',)),
                ('plain', ('-e',)),
            )
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
    return [_events(bench), _few_receives(bench), _shared_events(bench), _contention(bench)]
