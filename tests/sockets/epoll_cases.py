# SPDX-License-Identifier: BSD-2-Clause
"""What programs may expect of epoll: cases of semantics."""
import errno
import os
import select
import socket
import threading
import time

from connection import LATE_S, SOON_S, Pair, drain, fill, until


def epoll__level():
    with Pair() as pair, select.epoll() as epoll:
        epoll.register(pair.far, select.EPOLLIN)
        assert epoll.poll(0) == []
        pair.near.sendall(b'two')
        for _ in range(2):
            assert epoll.poll(LATE_S) == [(pair.far.fileno(), select.EPOLLIN)]
        pair.far.recv(10)
        assert epoll.poll(SOON_S) == []
        epoll.modify(pair.far, select.EPOLLOUT)
        assert epoll.poll(LATE_S) == [(pair.far.fileno(), select.EPOLLOUT)]
        epoll.unregister(pair.far)
        assert epoll.poll(SOON_S) == []


def epoll__edge():
    edge = select.EPOLLIN | select.EPOLLET
    with Pair() as pair, select.epoll() as epoll:
        pair.far.setblocking(False)
        epoll.register(pair.far, edge)
        assert epoll.poll(0) == []
        told = [(pair.far.fileno(), select.EPOLLIN)]
        pair.near.sendall(b'first')
        assert epoll.poll(LATE_S) == told
        assert epoll.poll(SOON_S) == []  # told once
        assert pair.far.recv(2) == b'fi'
        assert epoll.poll(SOON_S) == []  # nothing new
        pair.near.sendall(b'second')
        assert epoll.poll(LATE_S) == told  # something new behind what was not read
        assert pair.far.recv(100) == b'rstsecond'
        assert epoll.poll(SOON_S) == []
        pair.near.sendall(b'third')
        assert epoll.poll(LATE_S) == told
        epoll.modify(pair.far, edge)
        assert epoll.poll(LATE_S) == told  # a change asks anew


def epoll__edge_of_room():
    with Pair() as pair, select.epoll() as epoll:
        epoll.register(pair.near, select.EPOLLOUT | select.EPOLLET)
        told = [(pair.near.fileno(), select.EPOLLOUT)]
        assert epoll.poll(LATE_S) == told
        assert epoll.poll(SOON_S) == []
        total = fill(pair.near)
        assert epoll.poll(0) == []
        drain(pair.far, total)
        assert epoll.poll(LATE_S) == told
        assert epoll.poll(SOON_S) == []


def epoll__oneshot():
    with Pair() as pair, select.epoll() as epoll:
        epoll.register(pair.far, select.EPOLLIN | select.EPOLLONESHOT)
        pair.near.sendall(b'x')
        assert epoll.poll(LATE_S) == [(pair.far.fileno(), select.EPOLLIN)]
        assert epoll.poll(SOON_S) == []
        epoll.modify(pair.far, select.EPOLLIN | select.EPOLLONESHOT)
        assert epoll.poll(LATE_S) == [(pair.far.fileno(), select.EPOLLIN)]


def epoll__listener_and_pipe():
    read_end, write_end = os.pipe()
    with socket.create_server(('127.0.0.1', 0)) as listener, select.epoll() as epoll:
        epoll.register(listener, select.EPOLLIN)
        epoll.register(read_end, select.EPOLLIN)
        assert epoll.poll(SOON_S) == []
        threading.Timer(0.05, os.write, (write_end, b'x')).start()
        assert epoll.poll(LATE_S) == [(read_end, select.EPOLLIN)]
        os.read(read_end, 1)
        near = socket.socket()
        caller = threading.Timer(0.05, near.connect, (listener.getsockname(),))
        caller.start()
        assert epoll.poll(LATE_S) == [(listener.fileno(), select.EPOLLIN)]
        far, _ = listener.accept()
        caller.join()  # it may have yet to return
        epoll.register(far, select.EPOLLIN)
        near.send(b'x')
        assert epoll.poll(LATE_S) == [(far.fileno(), select.EPOLLIN)]
        threading.Timer(0.05, os.write, (write_end, b'x')).start()
        far.recv(1)
        assert epoll.poll(LATE_S) == [(read_end, select.EPOLLIN)]
        near.close()
        far.close()
    os.close(read_end)
    os.close(write_end)


def epoll__added_while_another_thread_sleeps():
    with Pair() as pair, select.epoll() as epoll:
        found = []
        sleeper = threading.Thread(target=lambda: found.extend(epoll.poll(LATE_S)))
        sleeper.start()
        time.sleep(0.05)
        pair.near.send(b'x')
        epoll.register(pair.far, select.EPOLLIN)
        sleeper.join()
        assert found == [(pair.far.fileno(), select.EPOLLIN)]


def epoll__end_of_the_peer():
    wanted = select.EPOLLIN | select.EPOLLRDHUP
    with Pair() as pair, select.epoll() as epoll:
        epoll.register(pair.far, wanted)
        pair.near.close()
        until(lambda: epoll.poll(0) == [(pair.far.fileno(), wanted)])
        epoll.modify(pair.far, 0)
        assert epoll.poll(SOON_S) == []  # half closed is no hang-up
        epoll.modify(pair.far, wanted)
        pair.far.close()
        assert epoll.poll(SOON_S) == []  # a closed socket leaves the set


def epoll__faults():
    with Pair() as pair, select.epoll() as epoll:
        for call, error in (
            (lambda: epoll.modify(pair.far, 1), errno.ENOENT),
            (lambda: epoll.unregister(pair.far), errno.ENOENT),
        ):
            try:
                call()
                raise AssertionError('it is not in the set')
            except OSError as fault:
                assert fault.errno == error
        epoll.register(pair.far, 1)
        try:
            epoll.register(pair.far, 1)
            raise AssertionError('it is in the set')
        except FileExistsError:
            pass


def epoll__more_than_fit():
    pairs = [Pair() for _ in range(5)]
    with select.epoll() as epoll:
        for pair in pairs:
            epoll.register(pair.far, select.EPOLLIN)
            pair.near.send(b'x')
        seen = set()
        limit = time.monotonic() + LATE_S
        while len(seen) < 5 and time.monotonic() < limit:
            seen.update(fd for fd, _ in epoll.poll(LATE_S, maxevents=2))
        assert len(seen) == 5, 'some are never told'
    for pair in pairs:
        pair.__exit__()
