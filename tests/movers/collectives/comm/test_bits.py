#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""Whole operations against their definition in numpy, bit by bit: every kind, type and operator,
leaves, unequal counts with zeros, in place, data that cancels, counts around the thresholds.

With --link roce or iwarp over a network that loses, doubles and reorders packets: RoCE's by
--faults, that of iWARP, whose packets are the kernel's, by bench/src/lossy_link between two hosts.

usage: test_bits.py SIDEWIRE TEST_BITS CASES RANKS... [--link LINK --seeds N] [--lossy LOSSY_LINK]
"""
import argparse
import contextlib
import os
import re
import struct
import subprocess
import sys

import numpy

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path += [os.path.join(HERE, folder) for folder in ('..', '../core', '../../../apps')]
import test_fold  # noqa: E402
import tree  # noqa: E402
from hosts import Hosts, LossyLink  # noqa: E402
from pair import Skip  # noqa: E402

KINDS = 'barrier all_reduce reduce_scatter all_gather all_to_all broadcast reduce gather scatter'
KINDS = KINDS.split()
FOLDS = ('all_reduce', 'reduce_scatter', 'reduce')
BLOCKS = ('reduce_scatter', 'all_gather', 'all_to_all', 'gather', 'scatter')
TYPES = list(tree.TYPES)
EAGER = 4096
ROOM = 20  # ranks in a part, as RANKS of ranks.h
INLINE = 24
CHUNKS = 200 << 10  # bytes: several chunks of each algorithm
WORDS = ('kind', 'type', 'op', 'root', 'leaves', 'count', 'has_counts')


class Case:
    """What each rank sends, and has to receive. It may be like the last one but for a word."""

    def __init__(self, draw, size, last, is_any_order):
        self.draw, self.size, self.is_any_order = draw, size, is_any_order
        changed = str(draw.choice(WORDS[1:])) if last and draw.integers(2) else None
        for word in WORDS:
            value = getattr(last, word) if changed not in (None, word) else None
            setattr(self, word, getattr(self, f'drawn_{word}')() if value is None else value)
        self.place = 0 if self.kind == 'all_to_all' else int(draw.integers(4))
        self.counts = self.drawn_counts()
        self.sends, self.wanted = self.folds() if self.kind in FOLDS else self.moves()

    def drawn_kind(self):
        return str(self.draw.choice(KINDS + 2 * list(FOLDS)))

    def drawn_type(self):
        return str(self.draw.choice(TYPES + 2 * [*filter(tree.is_float, TYPES)]))

    def drawn_op(self):
        return str(self.draw.choice(tree.OPS))

    def drawn_root(self):
        return int(self.draw.integers(self.size))

    def drawn_leaves(self):
        return int(self.draw.choice([0, 1, 2, 3, 4, 7])) if self.kind in FOLDS else 0

    def drawn_has_counts(self):
        return self.kind in BLOCKS and bool(self.draw.integers(2))

    def drawn_count(self):
        """Around the number of ranks, a record, a message, lines and pages."""
        if self.kind == 'barrier':
            return 0
        one = numpy.dtype(tree.TYPES[self.type]).itemsize
        each = one * max(self.leaves, 1)
        edges = [0, self.size, INLINE // each, 64 // one * self.size, EAGER // each, 5000]
        edges += [CHUNKS // each] if self.kind in FOLDS else []
        return max(0, int(self.draw.choice(edges)) + int(self.draw.integers(-1, 2)))

    def drawn_counts(self):
        """counts[a][b]: of the block of b, where a is asked; in all_to_all from a to b."""
        if not self.has_counts:
            return numpy.full((self.size, self.size), self.count, 'u8')
        shape = (self.size, self.size) if self.kind == 'all_to_all' else self.size
        drawn = self.draw.integers(0, self.count + 2, shape) * self.draw.integers(0, 2, shape)
        return numpy.broadcast_to(drawn, (self.size, self.size)).astype('u8')

    def data(self, count):
        return test_fold.leaf_of(self.type, self.draw, count, self.draw.integers(0, 4, count))

    def blocks(self, whole):
        return numpy.split(whole, numpy.cumsum(self.counts[0]).astype(int)[:-1])

    def at_root(self, array):
        return [array if rank == self.root else array[:0] for rank in range(self.size)]

    def leaf(self, total, style):
        """Small whole numbers where a sum may have any order: it is exact in each."""
        if not self.is_any_order or self.op in ('min', 'max') or not tree.is_float(self.type):
            return test_fold.leaf_of(self.type, self.draw, total, style)
        few = [-1, 1] if self.op == 'prod' else range(-4, 5)
        whole = self.draw.choice(few, total).astype('f4')
        is_bf16 = self.type == 'bf16'
        return (whole.view('u4') >> 16 if is_bf16 else whole).astype(tree.TYPES[self.type])

    def folds(self):
        """Each element has one style in all leaves: NaN in one would hide the others."""
        total = int(self.counts[0].sum()) if self.kind == 'reduce_scatter' else self.count
        style = self.draw.integers(0, 4, total)
        leaves = [self.leaf(total, style) for _ in range(self.size * max(self.leaves, 1))]
        folded = tree.fold(self.type, self.op, leaves).astype(leaves[0].dtype)
        sends = numpy.split(numpy.concatenate(leaves), self.size)
        if self.kind == 'all_reduce':
            return sends, [folded] * self.size
        return sends, self.at_root(folded) if self.kind == 'reduce' else self.blocks(folded)

    def moves(self):
        if self.kind in ('barrier', 'broadcast'):
            data = self.data(self.count)
            return self.at_root(data), [data] * self.size
        if self.kind == 'scatter':
            data = self.data(int(self.counts[0].sum()))
            return self.at_root(data), self.blocks(data)
        if self.kind == 'all_to_all':
            parts = [[self.data(int(count)) for count in row] for row in self.counts]
            columns = zip(*parts)
            return [*map(numpy.concatenate, parts)], [*map(numpy.concatenate, columns)]
        sends = [self.data(int(count)) for count in self.counts[0]]
        whole = numpy.concatenate(sends)
        return sends, self.at_root(whole) if self.kind == 'gather' else [whole] * self.size

    def encoded(self):
        words = (KINDS.index(self.kind), TYPES.index(self.type), tree.OPS.index(self.op))
        text = struct.pack('=6I', *words, self.root, self.leaves, self.place)
        text += struct.pack('=2Q', 77 if self.has_counts else self.count, self.has_counts)
        for rank in range(self.size):
            counts = numpy.zeros((2, ROOM), 'u8')
            counts[0, : self.size], counts[1, : self.size] = self.counts[rank], self.counts[:, rank]
            text += struct.pack('=2Q', self.sends[rank].nbytes, self.wanted[rank].nbytes)
            text += counts.tobytes()
        return text + b''.join(array.tobytes() for array in self.sends + self.wanted)


def cases_of(size, number, seed=0, is_any_order=False):
    """So many of them, as the program reads them."""
    draw = numpy.random.default_rng([size, seed] if seed else size)
    cases, case = b'', None
    for _ in range(number):
        case = Case(draw, size, case, is_any_order)
        cases += case.encoded()
    return cases


class Runs:
    """Runs of the program, and what has been wrong."""

    def __init__(self, options):
        self.options, self.failed, self.told = options, False, ''

    def run(self, size, seed=0, link=(), hosts=()):
        number = self.options.cases
        cases = cases_of(size, number, seed)
        ways = [str(EAGER), ''], ['64', 'owners'], ['64', 'halving'], ['64', 'ring']
        for words in ways:
            if words[1] == 'ring':
                cases = cases_of(size, number, seed, is_any_order=True)
            done = subprocess.run(
                [self.options.sidewire, 'run', *link, '--']
                + [self.options.program, str(size), *words, *hosts],
                input=cases,
                capture_output=True,
            )
            said = done.stdout.decode() + done.stderr.decode()
            is_right = done.returncode == 0 and f'{number} cases' in said
            note = f', seed {seed}' if seed else ''
            print(f'{size} ranks, {words}{note}: ' + ('right' if is_right else said), flush=True)
            self.failed |= not is_right
            self.told += said

    def require(self, *words):
        """That what was told has more than 0 of each. One that never happens tests nothing."""
        for word in words:
            if not sum(map(int, re.findall(rf'(\d+) {word}', self.told))):
                print(f'no packet was {word}: {self.told[-400:]}')
                self.failed = True

    def on_bad_network(self):
        if self.options.link == 'roce':
            for size in self.options.ranks:
                for seed in range(1, self.options.seeds + 1):
                    faults = f'loss=2%,dup=2%,reorder=4%:200us,seed={seed}'
                    self.run(size, seed, ('--link', 'roce', '--faults', faults))
            return self.require('dropped', 'duplicated', 'reordered')
        with contextlib.closing(Hosts(1500)) as two:
            for seed in range(1, self.options.seeds + 1):
                link = LossyLink(two, self.options.lossy, 1500, 10, seed, (20, 20))
                pairs = zip(two.names, link.addresses)
                hosts = [word for pair in pairs for word in pair]
                with link:
                    for size in self.options.ranks:
                        self.run(size, seed, ('--link', 'iwarp'), hosts)
                self.told += link.told
        return self.require('lost', 'doubled', 'swapped')


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument('sidewire')
    parser.add_argument('program')
    parser.add_argument('cases', type=int)
    parser.add_argument('ranks', type=int, nargs='+')
    parser.add_argument('--link', choices=('roce', 'iwarp'))
    parser.add_argument('--seeds', type=int, default=1)
    parser.add_argument('--lossy')
    runs = Runs(parser.parse_args())
    if runs.options.link:
        try:
            runs.on_bad_network()
        except Skip as reason:
            print(f'SKIP: {reason}')
            return 77
    else:
        for size in runs.options.ranks:
            runs.run(size)
    return 1 if runs.failed else 0


if __name__ == '__main__':
    sys.exit(main())
