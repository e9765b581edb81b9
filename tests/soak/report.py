# SPDX-License-Identifier: BSD-2-Clause
"""What a soak found: a table, and memory and descriptors over time as SVG."""
import os
import sys

import trouble

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), '../../bench/lib'))
import plot  # noqa: E402

COLORS = {'nvme': '#0b62d6', 'pmem': '#0a9396', 'transfer': '#c8453b'}
LEFT, WIDTH, HEIGHT, TOP, GAP = 92, 820, 200, 110, 70


def share_of_first(samples, place):
    first = max(samples[0][place], 1)
    return [(sample[0], sample[place] / first) for sample in samples]


def draw_lines(canvas, top, title, lines):
    """`lines`: name, points of (seconds, share of the first one)."""
    last = max(x for _, points in lines for x, _ in points) or 1
    highest = max(1.2, max(y for _, points in lines for _, y in points))
    bottom = top + HEIGHT
    canvas.text(LEFT, top - 14, title, 15, plot.INK, weight=600)
    for tick in range(6):
        value = highest * tick / 5
        y = bottom - HEIGHT * tick / 5
        canvas.line(LEFT, y, LEFT + WIDTH, y, plot.GRID)
        canvas.text(LEFT - 10, y + 4, f'{value:.1f}x', 12, anchor='end')
        x = LEFT + WIDTH * tick / 5
        canvas.text(x, bottom + 20, f'{last * tick / 5 / 60:.0f} min', 12, anchor='middle')
    for name, points in lines:
        places = [(LEFT + x / last * WIDTH, bottom - y / highest * HEIGHT) for x, y in points]
        canvas.curve(places, plot.Series(name, points, COLORS[name], marker=False))
        canvas.text(LEFT + WIDTH + 8, places[-1][1] + 4, name, 13, COLORS[name], weight=600)


def draw(out, servers):
    canvas = plot.Canvas(LEFT + WIDTH + 110, TOP + 2 * HEIGHT + GAP + 40)
    canvas.text(28, 44, 'What the servers hold while their hosts die', 22, plot.INK, weight=700)
    canvas.text(28, 70, 'Beside what they held in the beginning', 14)
    for number, (place, title) in enumerate(((1, 'Memory'), (2, 'Descriptors'))):
        lines = [(each.name, share_of_first(each.samples, place)) for each in servers]
        draw_lines(canvas, TOP + number * (HEIGHT + GAP), title, lines)
    return plot.save(canvas, os.path.join(out, 'soak.svg'))


def write(out, servers, base, held, counts, witnesses, began):
    print()
    for kind, (_, what) in trouble.KINDS.items():
        print(f'{counts[kind]:8} {what}')
    print()
    print(f'{"":26} visits  longest  begun after')
    for thread in witnesses:
        after_min = max(0, thread.longest_at - began) / 60
        print(f'{thread.name:26} {thread.done:6} {thread.longest_s:6.1f} s {after_min:8.1f} min')
    print()
    print(f'{"":10}{"memory, MiB":^30}{"descriptors":^26}')
    print(' ' * 10 + f'{"begin":>10}{"highest":>10}{"end":>10}{"begin":>9}{"highest":>8}{"end":>9}')
    for each in servers:
        most_kib = max(sample[1] for sample in each.samples)
        most = max(sample[2] for sample in each.samples)
        mib = [f'{kib / 1024:10.1f}' for kib in (base[each.name][0], most_kib, held[each.name][0])]
        print(f'{each.name:10}{"".join(mib)}{base[each.name][1]:9}{most:8}{held[each.name][1]:9}')
    print()
    for path in draw(out, servers):
        print(path)
