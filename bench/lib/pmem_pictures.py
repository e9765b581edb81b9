# SPDX-License-Identifier: BSD-2-Clause
"""What the experiments of persistent memory found, as two pictures: the server's processor and
memory, and the latency."""

import os

import machine
import plot
import table

DIRECT, STAGED, NOBODY = '#0a9396', '#c8453b', '#9aa7b4'
# contender of pmem_latency, what the picture calls it, its color
WAYS = (
    ('direct', 'sidewire pmem, WRITE and FLUSH', DIRECT),
    ('fio', 'fio\'s rdma engine, WRITE alone', DIRECT),
    ('staged', 'a server thread copies', STAGED),
)


def microseconds(value):
    return f'{value * 1e6:.2f} us'


def milliseconds(value):
    return f'{value * 1e3:.1f} ms'


def bars_of(experiment, figure, names, text):
    """The bars of those that were measured."""
    return [
        (label, experiment.median(name, figure), color, text(experiment.median(name, figure)))
        for name, label, color in names
        if experiment.samples.get(name)
    ]


def draw_server(by_key, out):
    names = (
        ('direct', 'straight into the memory', DIRECT),
        ('staged', 'by a staging buffer', STAGED),
    )
    groups = []
    if 'pmem_cpu' in by_key:
        groups.append(
            (
                'processor time of the server while 10 GiB are written, less is better',
                bars_of(by_key['pmem_cpu'], 'cpu_s', names, milliseconds),
            )
        )
    if 'pmem_left' in by_key:
        groups.append(
            (
                'memory bandwidth left to a program beside it, more is better',
                bars_of(
                    by_key['pmem_left'],
                    'bandwidth',
                    (('idle', 'nobody writes', NOBODY), *names),
                    table.bandwidth_text,
                ),
            )
        )
    return plot.draw_groups(
        os.path.join(out, 'pmem_server.svg'),
        'Persistent memory over RDMA: the server',
        '1 MiB writes at 2 GiB/s, from a client of the same host',
        groups,
        [machine.describe()],
    )


def draw_latency(by_key, out):
    groups = (
        [
            (
                'mean latency of a 4 KiB write, one at a time, less is better',
                bars_of(by_key['pmem_latency'], 'mean_s', WAYS, microseconds),
            )
        ]
        if 'pmem_latency' in by_key
        else []
    )
    return plot.draw_groups(
        os.path.join(out, 'pmem_latency.svg'),
        'Persistent memory over RDMA: latency',
        'memory of a tmpfs, client and server on one host, each on its core',
        groups,
        [machine.describe()],
    )


def draw(experiments, out):
    """Writes the pictures of what was measured; returns their files."""
    by_key = {experiment.key: experiment for experiment in experiments}
    return draw_server(by_key, out) + draw_latency(by_key, out)
