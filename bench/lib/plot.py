# SPDX-License-Identifier: BSD-2-Clause
"""Line charts with logarithmic axes, side by side in one SVG, and its PNG by rsvg-convert."""

import math
import os
import shutil
import subprocess
from html import escape

FONT = "Inter, 'Helvetica Neue', Helvetica, Arial, 'DejaVu Sans', sans-serif"
INK, SOFT, GRID, FRAME = '#1b2430', '#5d6b7a', '#e6eaef', '#c3ccd6'
PANEL_WIDTH, PANEL_HEIGHT = 460, 340
MARGIN_LEFT, MARGIN_RIGHT, PANEL_GAP = 92, 112, 196
TOP, BOTTOM = 124, 84
LABEL_STEP = 16


class Series:
    def __init__(self, name, points, color, dash=None, marker=True):
        self.name = name
        self.points = sorted((x, y) for x, y in points if x > 0 and y > 0)
        self.color = color
        self.dash = dash
        self.marker = marker


class Panel:
    def __init__(self, title, series, y_text, x_text, x_title='message size'):
        self.title = title
        self.x_title = x_title
        self.series = [line for line in series if line.points]
        self.y_text = y_text  # figures at the y axis
        self.x_text = x_text


def decades(low, high):
    return [
        10.0**power
        for power in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    ]


class Canvas:
    def __init__(self, width, height):
        self.parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
            f'width="{width}" height="{height}" font-family="{escape(FONT)}">',
            f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
        ]

    def line(self, x1, y1, x2, y2, color, width=1.0):
        self.parts.append(
            f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" '
            f'stroke="{color}" stroke-width="{width}"/>'
        )

    def rectangle(self, x, y, width, height, color):
        self.parts.append(
            f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(width, 1):.1f}" '
            f'height="{height}" rx="2" fill="{color}"/>'
        )

    def dot(self, x, y, radius, color):
        self.parts.append(
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius}" fill="{color}" fill-opacity="0.7"/>'
        )

    def text(self, x, y, words, size=13, color=SOFT, anchor='start', weight=400):
        self.parts.append(
            f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" fill="{color}" '
            f'text-anchor="{anchor}" font-weight="{weight}">{escape(words)}</text>'
        )

    def curve(self, points, series):
        path = ' '.join(f'{x:.1f},{y:.1f}' for x, y in points)
        dash = f' stroke-dasharray="{series.dash}"' if series.dash else ''
        self.parts.append(
            f'<polyline points="{path}" fill="none" stroke="{series.color}" '
            f'stroke-width="2.4" stroke-linejoin="round" '
            f'stroke-linecap="round"{dash}/>'
        )
        for x, y in points if series.marker else ():
            self.parts.append(
                f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{series.color}" '
                f'stroke="#ffffff" stroke-width="1"/>'
            )

    def finish(self):
        return '\n'.join(self.parts + ['</svg>', ''])


def spread_labels(places, low, high):
    """Moves labels apart, each as little as need be; `places` are (y, label), returned in the same
    form."""
    places = sorted(places, key=lambda place: place[0])
    moved = []
    for y, label in places:
        if moved and y - moved[-1][0] < LABEL_STEP:
            y = moved[-1][0] + LABEL_STEP
        moved.append((y, label))
    overflow = moved[-1][0] - high if moved else 0
    if overflow > 0:
        limit = high
        for index in range(len(moved) - 1, -1, -1):
            y, label = moved[index]
            moved[index] = (min(y, limit), label)
            limit = moved[index][0] - LABEL_STEP
    return [(max(y, low), label) for y, label in moved]


def draw_panel(canvas, panel, left):
    right, bottom = left + PANEL_WIDTH, TOP + PANEL_HEIGHT
    xs = [x for line in panel.series for x, _ in line.points]
    ys = [y for line in panel.series for _, y in line.points]
    x_low, x_high = math.log2(min(xs)), math.log2(max(xs))
    # A little air above and below, not a whole decade of it.
    y_low, y_high = math.log10(min(ys) / 1.6), math.log10(max(ys) * 1.6)

    def place(x, y):
        return (
            left + (math.log2(x) - x_low) / max(x_high - x_low, 1e-9) * PANEL_WIDTH,
            bottom - (math.log10(y) - y_low) / (y_high - y_low) * PANEL_HEIGHT,
        )

    canvas.text(left, TOP - 18, panel.title, 15, INK, weight=600)
    for tick in decades(10**y_low, 10**y_high):
        for part in (1, 2, 5):
            y = place(min(xs), tick * part)[1]
            if TOP - 0.5 <= y <= bottom + 0.5 and part == 1:
                canvas.line(left, y, right, y, '#d5dce4')
                canvas.text(left - 10, y + 4, panel.y_text(tick), 12, anchor='end')
            elif TOP <= y <= bottom:
                canvas.line(left, y, right, y, GRID, 0.7)
    power = first = math.ceil(x_low)
    step = 4 if x_high - x_low > 10 else 2
    while power <= x_high:
        x = place(2.0**power, min(ys))[0]
        canvas.line(x, TOP, x, bottom, GRID, 0.7)
        if (power - first) % step == 0 or power == x_high:
            canvas.line(x, bottom, x, bottom + 5, FRAME)
            if power == x_high or x_high - power >= 2:
                canvas.text(x, bottom + 20, panel.x_text(2**power), 12, anchor='middle')
        power += 1
    canvas.line(left, bottom, right, bottom, FRAME, 1.2)
    canvas.line(left, TOP, left, bottom, FRAME, 1.2)
    canvas.text((left + right) / 2, bottom + 42, panel.x_title, 12, anchor='middle')

    ends = []
    for line in panel.series:
        points = [place(x, y) for x, y in line.points]
        canvas.curve(points, line)
        ends.append((points[-1][1] + 4, line))
    for y, line in spread_labels(ends, TOP + 4, bottom + 4):
        canvas.text(right + 10, y, line.name, 13, line.color, weight=600)


def draw(path, title, subtitle, panels, notes=()):
    """Writes `path` (.svg) and the .png beside it, if rsvg-convert is there; returns the files
    written."""
    panels = [panel for panel in panels if panel.series]
    if not panels:
        return []
    width = MARGIN_LEFT + MARGIN_RIGHT + len(panels) * PANEL_WIDTH + (len(panels) - 1) * PANEL_GAP
    height = TOP + PANEL_HEIGHT + BOTTOM + 16 * max(0, len(notes) - 1)
    canvas = Canvas(width, height)
    canvas.text(28, 44, title, 22, INK, weight=700)
    canvas.text(28, 70, subtitle, 14)
    for index, panel in enumerate(panels):
        draw_panel(canvas, panel, MARGIN_LEFT + index * (PANEL_WIDTH + PANEL_GAP))
    for index, note in enumerate(notes):
        canvas.text(28, height - 14 - 16 * (len(notes) - 1 - index), note, 11)
    return save(canvas, path)


def save(canvas, path):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, 'w') as file:
        file.write(canvas.finish())
    files = [path]
    if shutil.which('rsvg-convert'):
        png = os.path.splitext(path)[0] + '.png'
        words = ['rsvg-convert', '-z', '2', '-o', png, path]
        if subprocess.run(words, stdin=subprocess.DEVNULL, timeout=20, check=False).returncode == 0:
            files.append(png)
    return files


BAR_LEFT, BAR_WIDTH, BAR_STEP = 300, 620, 38


def draw_bars(path, title, subtitle, bars, notes=()):
    """Bars of speed against a peer's, who is 1. `bars`: name, ratio, least wanted, aim, whether it
    is a ratio of times."""
    speeds = [
        [(1 / value if of_times else value) for value in (ratio, least, aim)]
        for _, ratio, least, aim, of_times in bars
    ]
    top = max(max(values) for values in speeds) * 1.05
    bottom = TOP - 20 + BAR_STEP * len(bars)
    width, height = BAR_LEFT + BAR_WIDTH + 90, bottom + 74
    canvas = Canvas(width, height)
    canvas.text(28, 44, title, 22, INK, weight=700)
    canvas.text(28, 70, subtitle, 14)

    def place(value):
        return BAR_LEFT + value / top * BAR_WIDTH

    step = next(step for step in (0.5, 1, 2, 5, 10, 20, 50, 100) if top / step <= 9)
    for tick in range(int(top / step) + 1):
        x = place(tick * step)
        canvas.line(x, TOP - 26, x, bottom - 12, '#9aa7b4' if tick * step == 1 else GRID)
        canvas.text(x, bottom + 6, f'{tick * step:g}x', 12, anchor='middle')
    for index, ((name, *_), (speed, least, aim)) in enumerate(zip(bars, speeds)):
        y = TOP - 20 + BAR_STEP * index
        color = '#0a9396' if speed >= aim else '#0b62d6' if speed >= least else '#c8453b'
        canvas.rectangle(BAR_LEFT, y, place(speed) - BAR_LEFT, 20, color)
        canvas.text(BAR_LEFT - 14, y + 15, name, 13, INK, anchor='end')
        for limit, weight in ((least, 1.4), (aim, 2.6)):
            canvas.line(place(limit), y - 4, place(limit), y + 24, INK, weight)
        canvas.text(
            max(place(speed), place(aim)) + 8, y + 15, f'{speed:.2f}x', 13, color, weight=600
        )
    for index, note in enumerate(notes):
        canvas.text(28, height - 14 - 16 * (len(notes) - 1 - index), note, 11)
    return save(canvas, path)


GROUP_STEP = 62


def draw_groups(path, title, subtitle, groups, notes=()):
    """Groups of bars, each from zero and with a scale of its own. `groups`: title, bars; `bars`:
    name, value, color, text."""
    groups = [(name, bars) for name, bars in groups if bars]
    if not groups:
        return []
    height = TOP + sum(GROUP_STEP + BAR_STEP * len(bars) for _, bars in groups) + 30
    canvas = Canvas(BAR_LEFT + BAR_WIDTH + 130, height)
    canvas.text(28, 44, title, 22, INK, weight=700)
    canvas.text(28, 70, subtitle, 14)
    y = TOP
    for name, bars in groups:
        canvas.text(28, y, name, 15, INK, weight=600)
        top = max(value for _, value, _, _ in bars) or 1
        bottom = y + 16 + BAR_STEP * len(bars)
        canvas.line(BAR_LEFT, y + 12, BAR_LEFT, bottom, FRAME, 1.2)
        for index, (label, value, color, text) in enumerate(bars):
            at = y + 20 + BAR_STEP * index
            canvas.rectangle(BAR_LEFT, at, value / top * BAR_WIDTH, 20, color)
            canvas.text(BAR_LEFT - 14, at + 15, label, 13, INK, anchor='end')
            canvas.text(
                BAR_LEFT + value / top * BAR_WIDTH + 8, at + 15, text, 13, color, weight=600
            )
        y += GROUP_STEP + BAR_STEP * len(bars)
    for index, note in enumerate(notes):
        canvas.text(28, height - 14 - 16 * (len(notes) - 1 - index), note, 11)
    return save(canvas, path)
