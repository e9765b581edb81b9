# SPDX-License-Identifier: BSD-2-Clause
"""Sums, products, least and greatest of integers by the C API, beside those of mpi4py.

Open MPI 4.1.4 is asked for what it does right: without its component `op/avx`, which saturates
sums where they should wrap, and with MPI_UINT64_T, as it compares MPI_UNSIGNED_LONG with a sign.

usage: integers.py LIBRARY, which is integers.c compiled; under mpirun"""
import ctypes
import socket
import sys

import numpy
from mpi4py import MPI

# In the order of enum sw_coll_type and of enum sw_coll_op.
TYPES = {
    'int8': MPI.INT8_T,
    'uint8': MPI.UINT8_T,
    'int16': MPI.INT16_T,
    'uint16': MPI.UINT16_T,
    'int32': MPI.INT32_T,
    'uint32': MPI.UINT32_T,
    'int64': MPI.INT64_T,
    'uint64': MPI.UINT64_T,
}
OPS = {'sum': (0, MPI.SUM), 'prod': (1, MPI.PROD), 'min': (2, MPI.MIN), 'max': (3, MPI.MAX)}
# By either side of what travels with the first message.
COUNTS = [0, 1, 3, 64, 1000, 70001]


def free_port():
    with socket.socket() as held:
        held.bind(('127.0.0.1', 0))
        return held.getsockname()[1]


def contribution(kind, count, rank):
    """All values of the type, so that sums leave it and come back at its other end."""
    size = numpy.dtype(kind).itemsize * count
    return numpy.frombuffer(numpy.random.default_rng([rank, size]).bytes(size), dtype=kind)


def main():
    world = MPI.COMM_WORLD
    library = ctypes.CDLL(sys.argv[1])
    port = world.bcast(free_port() if world.rank == 0 else None)
    assert library.integers_open(world.rank, world.size, f'127.0.0.1:{port}'.encode()) == 0
    checks = 0
    for number, (kind, handle) in enumerate(TYPES.items()):
        for name, (op, theirs) in OPS.items():
            for count in COUNTS:
                own = contribution(kind, count, world.rank)
                ours, expected = numpy.zeros_like(own), numpy.zeros_like(own)
                send, recv = (ctypes.c_void_p(each.ctypes.data) for each in (own, ours))
                assert library.integers_sum(number, op, send, recv, ctypes.c_uint64(count)) == 0
                world.Allreduce([own, handle], [expected, handle], theirs)
                assert ours.tobytes() == expected.tobytes(), (kind, name, count)
                checks += 1
    library.integers_close()
    if world.rank == 0:
        print(f'{world.size} ranks, {checks} checks')


main()
