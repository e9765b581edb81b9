# SPDX-License-Identifier: BSD-2-Clause
"""Aligned tables, figures with units, and a line of progress."""

import sys
import time


def size_text(size):
    for unit, factor in (('MiB', 1 << 20), ('KiB', 1 << 10)):
        if size >= factor and size % factor == 0:
            return f'{size // factor} {unit}'
    return f'{size} B'


def three_digits(value):
    if value >= 99.95:
        return f'{value:.0f}'
    return f'{value:.1f}' if value >= 9.995 else f'{value:.2f}'


def latency_text(seconds):
    if seconds >= 0.99995e-3:
        return f'{three_digits(seconds * 1e3)} ms'
    return f'{three_digits(seconds * 1e6)} us'


def bandwidth_text(bytes_per_s):
    if bytes_per_s >= 0.9995e9:
        return f'{three_digits(bytes_per_s / 1e9)} GB/s'
    return f'{three_digits(bytes_per_s / 1e6)} MB/s'


def latency_tick(seconds):
    """A decade at an axis."""
    for unit, scale in (('s', 1), ('ms', 1e3), ('us', 1e6)):
        if seconds * scale > 0.999:
            return f'{seconds * scale:.0f} {unit}'
    return f'{seconds * 1e9:.0f} ns'


def bandwidth_tick(bytes_per_s):
    for unit, scale in (('GB/s', 1e9), ('MB/s', 1e6), ('kB/s', 1e3)):
        if bytes_per_s / scale > 0.999:
            return f'{bytes_per_s / scale:.0f} {unit}'
    return f'{bytes_per_s:.0f} B/s'


def ratio_text(ratio):
    return f'{three_digits(ratio)}x'


def aligned(header, rows, left=(0,), gap='  '):
    """Lines of a table; columns in `left` are aligned to the left, the others to the right. None
    draws a rule."""
    cells = [header] + [row for row in rows if row is not None]
    widths = [max(len(row[column]) for row in cells) for column in range(len(header))]

    def line(row):
        return gap.join(
            cell.ljust(width) if column in left else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths))
        ).rstrip()

    rule = '-' * (sum(widths) + len(gap) * (len(widths) - 1))
    return [line(header), rule] + [rule if row is None else line(row) for row in rows]


class Progress:
    """A line that is written over on a terminal, and one line a step elsewhere."""

    def __init__(self, steps):
        self.steps = steps
        self.done = 0
        self.started = time.monotonic()
        self.terminal = sys.stderr.isatty()

    def step(self, what):
        self.done += 1
        text = f'[{min(self.done, self.steps)}/{self.steps}] {self.seconds():3.0f} s  {what}'
        if self.terminal:
            sys.stderr.write(f'\r\033[K{text[:100]}')
        else:
            sys.stderr.write(text + '\n')
        sys.stderr.flush()

    def seconds(self):
        return time.monotonic() - self.started

    def clear(self):
        if self.terminal:
            sys.stderr.write('\r\033[K')
            sys.stderr.flush()
