# SPDX-License-Identifier: BSD-2-Clause
"""The two pictures of NVMe over RDMA: mean latency and throughput of a file on disk, local and
remote, by size and depth."""

import os

import between
import machine
import nvme
import plot
import table
from nvme_rows import Rig

SIZES = [4096 << shift for shift in range(0, 9, 2)]
DEPTHS = [1, 4, 16, 64]
FEW, MANY = 1, 8  # depths at which the sizes are measured
SECONDS = 0.25
LINES = (
    ('local', 'read', '#e07a1f'),
    ('remote', 'read', '#0b62d6'),
    ('local', 'write', '#b8a04c'),
    ('remote', 'write', '#0a9396'),
)


class Disk:
    """fio on the file, and our host and target on the same file, by turns."""

    key = 'nvme_sweep'
    POINTS = [
        *((size, FEW) for size in SIZES),
        *((size, MANY) for size in SIZES),
        *((SIZES[0], depth) for depth in DEPTHS if depth != FEW),
    ]
    steps = 2 * len(POINTS)

    def __init__(self, bench):
        self.bench = bench

    def measure(self, progress, attempt):
        """{'local read': {(size, depth): figures}}, and the others."""
        rig = Rig(self.bench)
        rows = {f'{where} {what}': {} for where, what, _ in LINES}
        with nvme.Disk(os.path.join(rig.build, 'bench')) as disk, rig.target(
            f'file:{disk.path}'
        ) as target:
            for what in ('read', 'write'):
                for size, depth in self.POINTS:
                    progress.step(f'NVMe, {what} of {table.size_text(size)}, depth {depth}')
                    for where, measure in (('local', disk.fio), ('remote', target.one)):
                        words = [] if where == 'local' else [rig.words(between.CLIENT)]
                        found = attempt(
                            lambda: measure(*words, f'rand{what}', size, depth, SECONDS)
                        )
                        if found:
                            rows[f'{where} {what}'][size, depth] = found
        return {
            'rows': [
                {'line': line, 'size_bytes': size, 'depth': depth, **found}
                for line, points in rows.items()
                for (size, depth), found in points.items()
            ]
        }

    def draw(self, data, out):
        notes = [machine.describe()]
        subtitle = (
            'a file on the local disk, random access: fio there (io_uring, O_DIRECT), and sidewire '
            'nvme '
            'bench through the target'
        )
        files = plot.draw(
            os.path.join(out, 'nvme_latency.svg'),
            'NVMe over RDMA: mean latency',
            subtitle,
            [
                by_size(data, f'By size, depth {FEW}', 'mean_s', FEW, table.latency_tick),
                by_depth(
                    data, f'By depth, {table.size_text(SIZES[0])}', 'mean_s', table.latency_tick
                ),
            ],
            notes,
        )
        return files + plot.draw(
            os.path.join(out, 'nvme_throughput.svg'),
            'NVMe over RDMA: throughput',
            subtitle,
            [
                by_size(data, f'By size, depth {MANY}', 'bandwidth', MANY, table.bandwidth_tick),
                by_depth(
                    data,
                    f'By depth, {table.size_text(SIZES[0])}',
                    'bandwidth',
                    table.bandwidth_tick,
                ),
            ],
            notes,
        )


def lines_of(data, figure, x, chosen):
    return [
        plot.Series(
            f'{where} {what}',
            [
                (row[x], row[figure])
                for row in data['rows']
                if row['line'] == f'{where} {what}' and chosen(row)
            ],
            color,
            dash='6 4' if where == 'local' else None,
        )
        for where, what, color in LINES
    ]


def by_size(data, title, figure, depth, text):
    return plot.Panel(
        title,
        lines_of(data, figure, 'size_bytes', lambda row: row['depth'] == depth),
        text,
        table.size_text,
        'block size',
    )


def by_depth(data, title, figure, text):
    return plot.Panel(
        title,
        lines_of(data, figure, 'depth', lambda row: row['size_bytes'] == SIZES[0]),
        text,
        str,
        'depth',
    )
