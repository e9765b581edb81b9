#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""What Python programs move between two processes, by the module sidewire and by what else there
is. bench/lib/transfer_rows.py runs it.

usage: moves.py WAY [ARGUMENT...]

The result is JSON: seconds, or bytes per second.
"""
import contextlib
import json
import os
import signal
import statistics
import sys
import tempfile
import threading
import time

BLOCKS, BLOCK = 15000, 71552  # together 1 GiB
# 1000 trips were over in 2 ms: all of it was the beginning
TURNS, SINGLES, FIRSTS, TRIPS, BATCHES = (3, 2000, 20, 5000, 11)
SMALL, LARGE = 64, 100 << 20
SOON_S = 60


def say(**figures):
    print(json.dumps(figures), flush=True)


def seconds_of(action):
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def beside(serve):
    """A child on the other core that runs `serve` and ends. With MOVES_FREE=1 both run where the
    kernel likes."""
    cpus = sorted(os.sched_getaffinity(0))
    is_free = os.environ.get('MOVES_FREE')
    child = os.fork()
    if not child:
        if not is_free:
            os.sched_setaffinity(0, {cpus[-1]})
        try:
            serve()
        finally:
            os._exit(0)
    if not is_free:
        os.sched_setaffinity(0, {cpus[0]})
    return child


# ---- blocks ----


def memory_of_blocks(value):
    import numpy

    return numpy.full((BLOCKS, BLOCK), value, numpy.uint8)


def serve(address, path):
    import sidewire

    memory = memory_of_blocks(0)
    agent = sidewire.Agent(address)
    card = agent.card(agent.memory(memory).lease('blocks', write=True))
    with open(path + '.new', 'wb') as file:
        file.write(card)
    os.rename(path + '.new', path)
    agent.run()


def connect(path):
    import sidewire

    while not os.path.exists(path):
        time.sleep(0.01)
    agent = sidewire.Agent()
    with open(path, 'rb') as file:
        return agent, file.read()


def orders():
    import numpy

    draw = numpy.random.default_rng(1)
    return draw.permutation(BLOCKS), draw.permutation(BLOCKS)


def blocks(path):
    """Both sides' blocks in an order of their own."""
    agent, card = connect(path)
    peer = agent.connect(card, SOON_S)
    here, there = orders()
    memory = agent.memory(memory_of_blocks(1))
    moves, setups = [], []
    for turn in range(TURNS + 1):
        start = time.perf_counter()
        transfer = peer.write(
            memory.blocks(index=here, bytes=BLOCK), peer.blocks('blocks', index=there, bytes=BLOCK)
        )
        prepared = time.perf_counter()
        transfer.post()
        posted = time.perf_counter()
        transfer.wait(SOON_S)
        moves.append(time.perf_counter() - prepared)
        setups.append(posted - start)
    move = statistics.median(moves[1:])  # the first one meets fresh pages
    say(bandwidth=BLOCKS * BLOCK / move, move_s=move, setup_s=statistics.median(setups[1:]))


def single(path):
    agent, card = connect(path)
    peer = agent.connect(card, SOON_S)
    memory = agent.memory(bytearray(1 << 16))
    transfer = peer.write(memory.blocks(), peer.blocks('blocks', bytes=1 << 16, count=1))
    times = [seconds_of(lambda: transfer.post().wait()) for _ in range(SINGLES)]
    say(mean_s=statistics.median(times))


def first(path):
    """A peer that is new: connection, one transfer, and its end. The memory is registered, as it is
    where many peers come."""
    agent, card = connect(path)
    memory = agent.memory(bytearray(1 << 16))

    def meet():
        peer = agent.connect(card, SOON_S)
        transfer = peer.write(memory.blocks(), peer.blocks('blocks', bytes=1 << 16, count=1))
        transfer.post().wait(SOON_S)
        del transfer, peer

    say(mean_s=statistics.median(seconds_of(meet) for _ in range(FIRSTS)))


def ends():
    """How long after the peer's death, and after a cancellation, a transfer of all blocks has
    ended."""
    import sidewire

    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, 'card')
        child = beside(lambda: serve('127.0.0.1', path))
        try:
            agent, card = connect(path)
            peer = agent.connect(card, SOON_S)
            here, there = orders()
            memory = agent.memory(memory_of_blocks(1))
            transfer = peer.write(
                memory.blocks(index=here, bytes=BLOCK),
                peer.blocks('blocks', index=there, bytes=BLOCK),
            )
            transfer.post().wait(SOON_S)
            cancelled, killed = [], []
            for _ in range(9):
                transfer.post()
                with contextlib.suppress(sidewire.WaitTimeout):
                    transfer.wait(0.005)
                cancelled.append(
                    seconds_of(lambda: ends_by(sidewire.Cancelled, transfer, transfer.cancel))
                )
            transfer.post()

            def kill():
                killed.append(time.perf_counter())
                os.kill(child, signal.SIGKILL)

            threading.Timer(0.005, kill).start()
            with contextlib.suppress(sidewire.PeerGone):
                while True:
                    transfer.wait(SOON_S)
                    transfer.post()
            say(kill_s=time.perf_counter() - killed[0], cancel_s=max(cancelled))
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)


def ends_by(exception, transfer, action):
    action()
    with contextlib.suppress(exception):
        transfer.wait(SOON_S)


def gloo(rank, store):
    """Each block a send and a receive, as programs of torch do it."""
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group('gloo', init_method='file://' + store, rank=int(rank), world_size=2)
    memory = torch.from_numpy(memory_of_blocks(1))
    order = orders()[int(rank)].tolist()
    done = torch.zeros(1)
    moves = []
    for _ in range(TURNS + 1):
        dist.barrier()
        start = time.perf_counter()
        for i in order:
            if rank == '0':
                dist.send(memory[i], 1)
            else:
                dist.recv(memory[i], 0)
        if rank == '0':
            dist.recv(done, 1)
        else:
            dist.send(done, 0)
        moves.append(time.perf_counter() - start)
    if rank == '0':
        say(bandwidth=BLOCKS * BLOCK / statistics.median(moves[1:]))


def mpi():
    from mpi4py import MPI

    world = MPI.COMM_WORLD
    memory, order = memory_of_blocks(1), orders()[world.rank].tolist()
    moves = []
    for _ in range(TURNS + 1):
        world.Barrier()
        start = time.perf_counter()
        if world.rank == 0:
            requests = [world.Isend(memory[i], 1) for i in order]
        else:
            requests = [world.Irecv(memory[i], 0) for i in order]
        MPI.Request.Waitall(requests)
        world.Barrier()
        moves.append(time.perf_counter() - start)
    if world.rank == 0:
        say(bandwidth=BLOCKS * BLOCK / statistics.median(moves[1:]))


# ---- arrays and bytes between processes ----


@contextlib.contextmanager
def ipc_pair(serve_connection):
    from sidewire import ipc

    with ipc.listen('127.0.0.1') as listener:

        def answer():
            with ipc.connect('127.0.0.1', listener.port, SOON_S) as connection:
                serve_connection(connection)

        beside(answer)
        with listener.accept(SOON_S) as connection:
            yield connection


def trips(round_trip):
    """The median of batches."""
    for _ in range(TRIPS):
        round_trip()
    times = []
    for _ in range(BATCHES):
        start = time.perf_counter()
        for _ in range(TRIPS):
            round_trip()
        times.append((time.perf_counter() - start) / TRIPS)
    say(mean_s=statistics.median(times))


ALL_TRIPS = TRIPS * (BATCHES + 1)


def small_ipc():
    import numpy

    array, out = numpy.zeros(SMALL, numpy.uint8), numpy.zeros(SMALL, numpy.uint8)

    def echo(connection):
        for _ in range(ALL_TRIPS):
            connection.send(connection.recv(out))

    with ipc_pair(echo) as connection:
        trips(lambda: (connection.send(array), connection.recv(out)))


def small_pipe():
    import multiprocessing

    ours, theirs = multiprocessing.Pipe()
    data, out = bytes(SMALL), bytearray(SMALL)

    def echo():
        for _ in range(ALL_TRIPS):
            theirs.recv_bytes_into(out)
            theirs.send_bytes(out)

    beside(echo)
    trips(lambda: (ours.send_bytes(data), ours.recv_bytes_into(out)))


def small_zmq():
    import zmq

    with tempfile.TemporaryDirectory() as folder:
        path, data = f'ipc://{folder}/socket', bytes(SMALL)

        def echo():
            socket = zmq.Context().socket(zmq.PAIR)
            socket.connect(path)
            for _ in range(ALL_TRIPS):
                socket.send(socket.recv())
            socket.close()

        beside(echo)
        socket = zmq.Context().socket(zmq.PAIR)
        socket.bind(path)
        trips(lambda: (socket.send(data), socket.recv()))


LARGE_TURNS = 7


def large(move):
    """One way, until the receiver says so."""
    times = [seconds_of(move) for _ in range(LARGE_TURNS + 1)]
    say(bandwidth=LARGE / statistics.median(times[1:]))


def large_ipc():
    import numpy

    array, done = numpy.ones(LARGE, numpy.uint8), numpy.zeros(1, numpy.uint8)

    def take(connection):
        out = numpy.zeros(LARGE, numpy.uint8)
        for _ in range(LARGE_TURNS + 1):
            connection.recv(out)
            connection.send(done)

    with ipc_pair(take) as connection:
        large(lambda: (connection.send(array), connection.recv(done)))


def large_pipe():
    import multiprocessing

    ours, theirs = multiprocessing.Pipe()
    data = bytes(LARGE)

    def take():
        out = bytearray(LARGE)
        for _ in range(LARGE_TURNS + 1):
            theirs.recv_bytes_into(out)
            theirs.send_bytes(b'1')

    beside(take)
    large(lambda: (ours.send_bytes(data), ours.recv_bytes()))


def large_shared():
    """The sender copies into shared memory; the receiver is told, and uses it there."""
    import multiprocessing
    import multiprocessing.shared_memory
    import numpy

    ours, theirs = multiprocessing.Pipe()
    shared = multiprocessing.shared_memory.SharedMemory(create=True, size=LARGE)
    array, there = numpy.ones(LARGE, numpy.uint8), numpy.ndarray(LARGE, numpy.uint8, shared.buf)

    def take():
        for _ in range(LARGE_TURNS + 1):
            theirs.recv_bytes()
            theirs.send_bytes(b'1')

    def move():
        there[:] = array
        ours.send_bytes(b'1')
        ours.recv_bytes()

    beside(take)
    large(move)
    del there
    shared.close()
    shared.unlink()


if __name__ == '__main__':
    globals()[sys.argv[1]](*sys.argv[2:])
