#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""Folds against their definition in numpy, bit by bit: every type, operator and set of
instructions. fold_judge.c has the lengths, alignments, places and steps.

usage: test_fold.py JUDGE [SEEDS]
It draws once, or so many times.
"""
import os
import struct
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..'))
import tree

LEAVES = [*range(1, 18), 31, 33, 64]
COUNT = 71  # all lengths up to that are folded
LONG_COUNTS = [1023, 2049, 5003]  # a block and its neighbours
FOLD, FINISH = 0, 1

SPECIAL_F32 = '0 80000000 1 80000001 7fffff 807fffff 800000 7f7fffff ff7fffff 7f800000 ff800000'
SPECIAL_F32 += ' 7fc00000 ffc00001 7f800001 ff801000 3f800000 bf800000 3f808000 3f818000 33800000'


def bits_as(bits, dtype):
    return bits.astype(f'u{numpy.dtype(dtype).itemsize}').view(dtype)


def special(kind):
    """Zeros, subnormals, infinities, NaNs that are quiet or not, halves of an ulp."""
    wide = numpy.array([int(word, 16) for word in SPECIAL_F32.split()], 'u4')
    if kind == 'f64':
        more = bits_as(numpy.array([1, 1 << 63 | 5, 0x7FF0000000000001, 0xFFF8000000000003]), 'f8')
        with numpy.errstate(invalid='ignore'):
            return numpy.concatenate([wide.view('f4').astype('f8'), more])
    if kind == 'f32':
        return wide.view('f4')
    if kind == 'bf16':
        return (wide >> 16).astype('u2')
    if kind == 'f16':
        words = '0 8000 1 8001 3ff 83ff 400 7bff fbff 7c00 fc00 7e00 fe01 7c01 3c00 bc00 3c01 1000'
        return numpy.array([int(word, 16) for word in words.split()], 'u2').view('f2')
    edge = numpy.iinfo(tree.TYPES[kind])
    return numpy.array([0, 1, edge.max, edge.min, edge.max - 1, edge.min + 1, 3], edge.dtype)


def cancels(kind, draw, count):
    """What a sum in another order gives other bits of."""
    if not tree.is_float(kind):
        return draw.integers(-3, 4, count).astype(tree.TYPES[kind])
    large = {'f16': 2048, 'bf16': 256, 'f32': 1e8, 'f64': 1e17}[kind]
    values = draw.choice(numpy.array([large, 1, -large, 1, 0.5, 3]), count)
    if kind == 'bf16':
        return (values.astype('f4').view('u4') >> 16).astype('u2')
    return values.astype(tree.TYPES[kind])


def leaf_of(kind, draw, count, style):
    """One contribution: any bits, special values, or such that cancel."""
    dtype = numpy.dtype(tree.TYPES[kind])
    any_bits = numpy.frombuffer(draw.bytes(count * dtype.itemsize), dtype)
    near_one = any_bits
    if tree.is_float(kind):
        ones = draw.uniform(-2, 2, count).astype('f4')
        near_one = (ones.view('u4') >> 16).astype('u2') if kind == 'bf16' else ones.astype(dtype)
    choices = [any_bits, draw.choice(special(kind), count), cancels(kind, draw, count), near_one]
    return numpy.where(style % 4 == 3, near_one, numpy.choose(style % 4, choices)).astype(dtype)


def case(way, kind, op, sources, expected):
    names = list(tree.TYPES)
    header = struct.pack(
        '=5I', way, names.index(kind), tree.OPS.index(op), len(sources), len(sources[0])
    )
    return header + b''.join(leaf.tobytes() for leaf in sources) + expected.tobytes()


def folds(draw):
    for kind in tree.TYPES:
        for op in tree.OPS:
            for leaves in LEAVES:
                count = COUNT
                if leaves <= 9 and draw.integers(4) == 0:
                    count = int(draw.choice(LONG_COUNTS))
                # Each element has one style in all leaves: NaN in one leaf would hide the others.
                style = draw.integers(0, 4, count)
                sources = [leaf_of(kind, draw, count, style) for _ in range(leaves)]
                yield case(FOLD, kind, op, sources, tree.fold(kind, op, sources))


def roundings():
    """From f32: every number of 16 bits, the halves between them, and the neighbours of these."""
    every = numpy.arange(1 << 16, dtype='u4').astype('u2')
    for kind, half in ('f16', 1 << 12), ('bf16', 1 << 15):
        exact = tree.widened(kind, every.view('f2') if kind == 'f16' else every)
        for step in (0, 1, half - 1, half, half + 1):
            wide = (exact.view('u4') + numpy.uint32(step)).view('f4')
            with numpy.errstate(all='ignore'):
                yield case(FINISH, kind, 'sum', [wide], tree.narrowed(kind, wide))
                average = tree.narrowed(kind, wide / numpy.float32(3))
                yield case(FINISH, kind, 'avg', [wide], average)
    small = bits_as(numpy.arange(0x33000000 - 600, 0x33000000 + 600), 'f4')
    yield case(FINISH, 'f16', 'sum', [small], tree.narrowed('f16', small))


def judge(program, instructions, cases):
    env = dict(os.environ, SIDEWIRE_COLL_FOLD=instructions)
    done = subprocess.run([program], input=cases, env=env, capture_output=True)
    return instructions, done


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    seeds = int(sys.argv[2]) if len(sys.argv) == 3 else 1
    cases = [*roundings()]
    for seed in range(seeds):
        cases += folds(numpy.random.default_rng(seed))
    everything = b''.join(cases)
    with ThreadPoolExecutor(2) as pool:
        judged = list(
            pool.map(
                lambda name: judge(sys.argv[1], name, everything), 'generic avx2 avx512'.split()
            )
        )
    failed = False
    for instructions, done in judged:
        said = done.stdout.decode()
        print(f'asked for {instructions}: {said}{done.stderr.decode()}', end='')
        failed |= done.returncode != 0 or f' {len(cases)} cases' not in said
    failed |= not judged[0][1].stdout.startswith(b'generic:')
    return 1 if failed else 0


if __name__ == '__main__':
    sys.exit(main())
