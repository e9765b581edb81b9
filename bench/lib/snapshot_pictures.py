# SPDX-License-Identifier: BSD-2-Clause
"""The time of each step of a program, with snapshots and without, as a picture."""

import os

import machine
import plot

# figure of snapshot_load, what the picture calls it, its color
WAYS = (
    ('alone', 'without', '#c8453b'),
    ('snapshots', 'with snapshots', '#0a9396'),
)
WIDTH, HEIGHT = 720, 300
LEFT, TOP, BOTTOM, RIGHT = 76, 104, 84, 230
DOT = 2.6
TICKS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5)  # seconds; at most six of them


def milliseconds(value):
    return f'{value * 1e3:g} ms'


def draw_ticks(canvas, place, top_s):
    tick_s = next((tick for tick in TICKS if top_s / tick <= 6), TICKS[-1])
    for number in range(int(top_s / tick_s) + 1):
        y = place(0, number * tick_s)[1]
        canvas.line(LEFT, y, LEFT + WIDTH, y, plot.FRAME if number == 0 else plot.GRID)
        canvas.text(LEFT - 10, y + 4, milliseconds(number * tick_s), 12, anchor='end')


def draw_steps(path, title, subtitle, lines, notes):
    """`lines`: name, color, seconds of each step in the order in which they were made."""
    top_s = max(max(steps) for _, _, steps in lines) * 1.1
    count = max(len(steps) for _, _, steps in lines)
    canvas = plot.Canvas(LEFT + WIDTH + RIGHT, TOP + HEIGHT + BOTTOM)
    canvas.text(28, 44, title, 22, plot.INK, weight=700)
    canvas.text(28, 70, subtitle, 14)

    def place(number, step_s):
        return LEFT + (number + 0.5) / count * WIDTH, TOP + HEIGHT * (1 - step_s / top_s)

    draw_ticks(canvas, place, top_s)
    ends = []
    for name, color, steps in lines:
        mean_s = sum(steps) / len(steps)
        for number, step_s in enumerate(steps):
            canvas.dot(*place(number, step_s), DOT, color)
        ends.append((place(0, mean_s)[1] + 4, (f'{name}: {mean_s * 1e3:.1f} ms', color)))
    for y, (words, color) in plot.spread_labels(ends, TOP, TOP + HEIGHT):
        canvas.text(LEFT + WIDTH + 12, y, words, 13, color, weight=600)
    canvas.text(LEFT + WIDTH / 2, TOP + HEIGHT + 24, 'steps', 12, anchor='middle')
    for index, note in enumerate(notes):
        canvas.text(28, TOP + HEIGHT + BOTTOM - 14 - 16 * (len(notes) - 1 - index), note, 11)
    return plot.save(canvas, path)


def draw(experiments, out):
    """Writes the picture if steps were measured; returns its files."""
    steps = {experiment.key: experiment for experiment in experiments}.get('snapshot_steps')
    samples = steps.samples['steps'] if steps else []
    if not samples:
        return []
    lines = [
        (name, color, [step for sample in samples for step in sample[f'{way}_steps']])
        for way, name, color in WAYS
    ]
    return draw_steps(
        os.path.join(out, 'snapshot_steps.svg'),
        'Steps of a program, with snapshots and without',
        'each step is a dot, less is better; beside a name is the mean',
        lines,
        [
            'a step computes and writes its 256 MiB; a snapshot to a file is always under way',
            machine.describe(),
        ],
    )
