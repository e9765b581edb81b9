# SPDX-License-Identifier: BSD-2-Clause
"""Latency and bandwidth by message size, drawn: on one host, and between two; those of NVMe are in
nvme_sweep.py. Each gives its number of steps, measures, and draws."""

import os
import sys

import between
import machine
import nvme_sweep
import plot
import table
from programs import ucx

PEER_SIZES = [2 << shift for shift in range(0, 23, 2)]
OURS, PEER = '#0b62d6', '#e07a1f'


def ucx_rows(progress, attempt, run, name):
    """{test: {size: result}} of puts; `run(test, size, count)` runs one."""
    rows = {}
    for size in PEER_SIZES:
        for test, rounds in (('ucp_put_lat', 20000), ('ucp_put_bw', 50000)):
            progress.step(f'sizes{name}, UCX {test} {table.size_text(size)}')
            count = max(20, min(rounds, (1 << 30) // size))
            result = attempt(lambda: run(test, size, count))
            if result:
                rows.setdefault(test, {})[size] = result
    return rows


def series(name, rows, figure, color):
    return plot.Series(name, [(size, row[figure]) for size, row in sorted(rows.items())], color)


def panels(bandwidth, latency):
    return [
        plot.Panel('WRITE bandwidth', bandwidth, table.bandwidth_tick, table.size_text),
        plot.Panel('WRITE latency, one way', latency, table.latency_tick, table.size_text),
    ]


class OneHost:
    """By the memory that both sides have."""

    key = 'sweep'
    KINDS = {'malloc': 'malloc', 'hugetlb': 'reserved huge pages', 'thp': 'transparent huge pages'}
    DRAWN = {
        'malloc': ('malloc', OURS),
        'hugetlb': ('huge pages', '#0a9396'),
        'thp': ('THP', '#7b4fd0'),
    }
    steps = len(KINDS) + 2 * len(PEER_SIZES)

    def __init__(self, bench):
        self.bench = bench

    def measure(self, progress, attempt):
        ours = {}
        for kind, name in self.KINDS.items():
            progress.step(f'sizes 2 B to 8 MiB, {name}')
            if kind == 'hugetlb' and free_huge_pages() < 24:
                print(
                    '\nnote: too few huge pages are reserved; `sysctl vm.nr_hugepages=64` does it',
                    file=sys.stderr,
                )
                continue
            rows = attempt(lambda kind=kind: self.bench.sweep(kind))
            if rows:
                ours[kind] = rows
        peer = ucx_rows(progress, attempt, lambda test, size, count: ucx(test, size, count, {}), '')
        return {'ours': ours, 'ucx': peer}

    def draw(self, data, out):
        def lines(figure, scale, test, theirs):
            ours = [
                plot.Series(
                    self.DRAWN[kind][0],
                    [(row['size_bytes'], row[figure] * scale) for row in rows],
                    self.DRAWN[kind][1],
                )
                for kind, rows in data['ours'].items()
            ]
            return ours + [series('UCX', data['ucx'].get(test, {}), theirs, PEER)]

        return plot.draw(
            os.path.join(out, 'sweep.svg'),
            'Message sizes, kinds of memory',
            'bench/src/sweep between two processes on two cores, beside '
            'ucx_perftest at its defaults',
            panels(
                lines('write_gbytes_per_s', 1e9, 'ucp_put_bw', 'bandwidth'),
                lines('write_latency_us', 1e-6, 'ucp_put_lat', 'median_s'),
            ),
            [machine.describe()],
        )


class TwoHosts:
    """perftest's own sizes over the RoCEv2 link, beside UCX over TCP."""

    key = 'hosts_sweep'
    MTU = 9000
    PROGRAMS = {'ib_write_bw': ['-a', '-n', '500'], 'ib_write_lat': ['-a', '-n', '1000']}
    steps = len(PROGRAMS) + 2 * len(PEER_SIZES)

    def __init__(self, bench):
        self.bench = bench

    def measure(self, progress, attempt):
        ours = {}
        with between.Between(self.bench.sidewire, self.MTU) as two:
            for program, options in self.PROGRAMS.items():
                progress.step(f'sizes 2 B to 8 MiB between hosts, {program}')
                rows = attempt(lambda: two.perftest(program, options, 60))
                if rows:
                    ours[program] = rows
            peer = ucx_rows(progress, attempt, two.ucx_tcp, ' between hosts')
        return {'ours': ours, 'ucx': peer}

    def draw(self, data, out):
        def lines(program, figure, test, theirs):
            return [
                series('Sidewire', data['ours'].get(program, {}), figure, OURS),
                series('UCX, TCP', data['ucx'].get(test, {}), theirs, PEER),
            ]

        return plot.draw(
            os.path.join(out, 'hosts_sweep.svg'),
            'Message sizes between two hosts',
            f'ib_write_bw -a and ib_write_lat -a, MTU {self.MTU}, beside ' 'ucx_perftest over TCP',
            panels(
                lines('ib_write_bw', 'bandwidth', 'ucp_put_bw', 'bandwidth'),
                lines('ib_write_lat', 'latency_s', 'ucp_put_lat', 'median_s'),
            ),
            [machine.describe()],
        )


def free_huge_pages():
    with open('/proc/meminfo') as lines:
        for line in lines:
            if line.startswith('HugePages_Free'):
                return int(line.split()[1])
    return 0


def of(bench):
    return [OneHost(bench), TwoHosts(bench), nvme_sweep.Disk(bench)]
