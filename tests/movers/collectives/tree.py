# SPDX-License-Identifier: BSD-2-Clause
"""What a sum is, and the other operators: docs/collectives.md, in numpy. A bf16 is a uint16 of its
bits; all other types are those of numpy."""
import numpy

# In the order of enum sw_coll_type and enum sw_coll_op (include/sidewire/coll.h).
TYPES = {
    'i8': numpy.int8,
    'u8': numpy.uint8,
    'i16': numpy.int16,
    'u16': numpy.uint16,
    'i32': numpy.int32,
    'u32': numpy.uint32,
    'i64': numpy.int64,
    'u64': numpy.uint64,
    'f16': numpy.float16,
    'bf16': numpy.uint16,
    'f32': numpy.float32,
    'f64': numpy.float64,
}
OPS = ['sum', 'prod', 'min', 'max', 'avg']


def is_float(kind):
    return kind in ('f16', 'bf16', 'f32', 'f64')


def widened(kind, leaf):
    """In the type in which it is folded."""
    if kind == 'bf16':
        return (leaf.astype(numpy.uint32) << 16).view(numpy.float32)
    return leaf.astype(numpy.float32) if kind == 'f16' else leaf


def lesser(x, y):
    """NaN where one is, and -0 below +0."""
    least = numpy.where((x < y) | ((x == y) & numpy.signbit(x)), x, y)
    return numpy.where(numpy.isnan(x) | numpy.isnan(y), numpy.array(numpy.nan, x.dtype), least)


def pair(op, x, y):
    if op in ('sum', 'avg'):
        return x + y
    if op == 'prod':
        return x * y
    if x.dtype.kind != 'f':
        return numpy.minimum(x, y) if op == 'min' else numpy.maximum(x, y)
    return lesser(x, y) if op == 'min' else -lesser(-x, -y)


def tree(op, leaves):
    """Neighbours first, split at the largest power of two below their number."""
    if len(leaves) == 1:
        return leaves[0]
    half = 1 << (len(leaves) - 1).bit_length() - 1
    return pair(op, tree(op, leaves[:half]), tree(op, leaves[half:]))


def divided(folded, count):
    if folded.dtype.kind == 'f':
        return folded / folded.dtype.type(count)
    if folded.dtype.kind == 'u':
        return (folded.astype(numpy.uint64) // numpy.uint64(count)).astype(folded.dtype)
    wide = folded.astype(numpy.int64)  # towards zero, where numpy's // is towards -infinity
    return (wide // count + ((wide < 0) & (wide % count != 0))).astype(folded.dtype)


def narrowed(kind, folded):
    """A result, rounded to nearest even where it is a 16-bit float. Every NaN is the same."""
    if kind == 'bf16':
        bits = folded.view(numpy.uint32)
        rounded = (bits + numpy.uint32(0x7FFF) + (bits >> 16 & 1)) >> 16
        return numpy.where(numpy.isnan(folded), 0x7FC0, rounded).astype(numpy.uint16)
    if not is_float(kind):
        return folded
    result = folded.astype(TYPES[kind])
    result[numpy.isnan(result)] = numpy.nan
    return result


def fold(kind, op, leaves):
    """The result of a list of arrays of one type and length."""
    with numpy.errstate(all='ignore'):
        folded = tree(op, [widened(kind, leaf) for leaf in leaves])
        if op == 'avg':
            folded = divided(folded, len(leaves))
        return narrowed(kind, folded)
