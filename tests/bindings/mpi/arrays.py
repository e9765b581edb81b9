# SPDX-License-Identifier: BSD-2-Clause
"""Drawn calls of mpi4py with arrays of numpy; sums are compared with the tree of tree.py, bit for
bit, and objects travel as mpi4py pickles them."""
import os
import sys

import numpy
from mpi4py import MPI

sys.path.insert(0, os.path.join(os.path.dirname(__file__), '../../movers/collectives'))
import tree  # noqa: E402

CALLS = 40
KINDS = ['f32', 'f64', 'i32', 'i64', 'u64', 'i16']
OPS = {'sum': MPI.SUM, 'min': MPI.MIN, 'max': MPI.MAX}


def contribution(seed, rank, count, kind):
    draw = numpy.random.default_rng([seed, rank])
    if tree.is_float(kind):
        values = draw.standard_normal(count) * 10.0 ** draw.integers(-6, 7, count)
    else:
        values = draw.integers(-100, 100, count)
    return values.astype(tree.TYPES[kind])


def check_sum(comm, seed, draw):
    count, kind = int(draw.integers(0, 5000)), str(draw.choice(KINDS))
    op, in_place = str(draw.choice(list(OPS))), bool(draw.integers(0, 2))
    parts = [contribution(seed, rank, count, kind) for rank in range(comm.size)]
    expected = tree.fold(kind, op, parts)
    got = parts[comm.rank].copy()
    comm.Allreduce(MPI.IN_PLACE if in_place else parts[comm.rank], got, OPS[op])
    assert got.tobytes() == expected.tobytes(), (seed, count, kind, op, in_place)
    got[:] = 0
    comm.Iallreduce(parts[comm.rank], got, OPS[op]).Wait()
    assert got.tobytes() == expected.tobytes(), (seed, count, kind, op)
    root = int(draw.integers(0, comm.size))
    got[:] = 0
    comm.Reduce(parts[comm.rank], got, OPS[op], root)
    assert comm.rank != root or got.tobytes() == expected.tobytes(), (seed, count, kind, op, root)


def check_objects(comm, seed):
    """In pickles: their lengths are told by one call, their bytes by the next."""
    own = {'rank': comm.rank, 'seed': seed, 'more': 'x' * comm.rank * 100}
    assert [item['rank'] for item in comm.allgather(own)] == list(range(comm.size))
    assert comm.bcast(own, root=seed % comm.size)['rank'] == seed % comm.size
    assert comm.allreduce([comm.rank]) == list(range(comm.size))  # an operator of Python's
    assert comm.alltoall([(comm.rank, i) for i in range(comm.size)]) == [
        (i, comm.rank) for i in range(comm.size)
    ]


def main():
    world = MPI.COMM_WORLD
    for seed in range(CALLS):
        check_sum(world, seed, numpy.random.default_rng(seed))
    check_objects(world, 3)
    half = world.Split(world.rank % 2, world.rank)
    check_sum(half, 1000, numpy.random.default_rng(1000))
    check_objects(half, 4)
    half.Free()
    if world.rank == 0:
        print(f'{world.size} ranks, {CALLS} calls')


main()
