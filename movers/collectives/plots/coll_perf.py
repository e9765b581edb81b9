# SPDX-License-Identifier: BSD-2-Clause
"""The picture of `sidewire coll perf --plot FILE`: reads what it prints as JSON. The modules are
those of bench/lib, which lie beside this file where it is installed.

usage: coll_perf.py FILE.svg <JSON
"""

import json
import os
import sys

sys.dont_write_bytecode = True

import machine  # noqa: E402
import plot  # noqa: E402
import table  # noqa: E402

COLORS = ('#0b62d6', '#e07a1f', '#0a9396', '#7b4fd0', '#c8453b', '#5d6b7a')


def series(rows, key, scale):
    """Out of place and in place; of several types or operators a line each, out of place."""
    names = {(row['type'], row['op']): None for row in rows}
    if len(names) == 1:
        lines = [('out of place', key, rows), ('in place', f'in_place_{key}', rows)]
    else:
        lines = [
            (
                ' '.join(filter(None, name)),
                key,
                [row for row in rows if (row['type'], row['op']) == name],
            )
            for name in names
        ]
    return [
        plot.Series(
            name,
            [(row['bytes'], row[figure] * scale) for row in its if figure in row],
            COLORS[number % len(COLORS)],
        )
        for number, (name, figure, its) in enumerate(lines)
    ]


def panels(rows):
    return [
        plot.Panel(
            'Bus bandwidth, more is better',
            series(rows, 'bus_mb_per_s', 1e6),
            table.bandwidth_tick,
            table.size_text,
            'size',
        ),
        plot.Panel(
            'Time, less is better',
            series(rows, 'time_us', 1e-6),
            table.latency_tick,
            table.size_text,
            'size',
        ),
    ]


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    said = json.load(sys.stdin)
    files = plot.draw(
        os.path.abspath(sys.argv[1]),
        f'{said["collective"]} of {said["ranks"]} ranks',
        'sidewire coll perf; the size is that of the longest buffer of a rank',
        panels(said['rows']),
        [machine.describe()],
    )
    if not files:
        sys.exit('a barrier has no sizes: there is nothing to draw')
    return 0


if __name__ == '__main__':
    try:
        sys.exit(main())
    except OSError as error:
        sys.exit(str(error))
