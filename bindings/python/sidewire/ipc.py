# SPDX-License-Identifier: BSD-2-Clause
"""Arrays between two processes, of one host or of two.

    connection = sidewire.ipc.connect('192.0.2.1', 4440)
    connection.send(array)
    array = connection.recv()

An array is sent as its type, its shape and its bytes: nothing is pickled, so nothing of a peer is ever executed. What is small goes within a
notice; what is not, the receiver reads from the sender's memory into its own, which is the only copy. docs/python.md has the bytes.
A connection is used by one thread at a time.
"""
import collections
import socket
import struct
import time

from . import _engine
from ._engine import Agent, Error, PeerGone, WaitTimeout
from .card import Card

MAGIC, VERSION = 0x41495753, 1  # "SWIA"
INLINE, TO_BE_READ, TAKEN = 1, 2, 3
HEAD = struct.Struct('<IBBccBBHIQ')  # magic, version, kind, letter, order, item bytes, dimensions, card bytes, reserved, tag
MEETING = struct.Struct('<IHH')  # magic, version, card bytes
NOTICE_MAX, CARD_MAX, DIMENSIONS_MAX = 1024, 4096, 32
SIZES = {'b': (1,), 'i': (1, 2, 4, 8), 'u': (1, 2, 4, 8), 'f': (2, 4, 8, 16), 'c': (8, 16, 32)}
UNCONFIRMED_MAX = 32  # small arrays that are under way
LOOK_S = 0.05  # how often a wait looks whether the peer lives
KEPT_MAX = 4  # arrays that a connection keeps registered
LIMIT_BYTES = 1 << 34  # of an array that recv() makes room for
HELLO = b'sidewire.ipc'


class BadMessage(Error):
    """What the peer sent is no array."""


Message = collections.namedtuple('Message', 'kind type shape bytes tag rest')


def pack(kind, kind_of, shape, tag, rest=b''):
    """A message; `kind_of` is a type as numpy writes it, e.g. <f4."""
    card_bytes = len(rest) if kind == TO_BE_READ else 0
    head = HEAD.pack(MAGIC, VERSION, kind, kind_of[1].encode(), kind_of[0].encode(), int(kind_of[2:]), len(shape), card_bytes, 0, tag)
    return head + struct.pack(f'<{len(shape)}Q', *shape) + rest


def unpack(data):
    """A Message; BadMessage where the bytes are none. All of it is checked here, nothing later."""
    if len(data) < HEAD.size:
        raise BadMessage('a message is too short')
    magic, version, kind, letter, order, size, dimensions, card_bytes, _, tag = HEAD.unpack_from(data)
    letter, order = letter.decode('latin-1'), order.decode('latin-1')
    if magic != MAGIC or version != VERSION or kind not in (INLINE, TO_BE_READ, TAKEN):
        raise BadMessage('a message is not of this protocol')
    if kind == TAKEN:
        return Message(kind, None, (), 0, tag, b'')
    if size not in SIZES.get(letter, ()) or order not in '<>|' or (order == '|') != (size == 1) or dimensions > DIMENSIONS_MAX:
        raise BadMessage('a message has no type that arrays have')
    rest = HEAD.size + 8 * dimensions
    if len(data) < rest:
        raise BadMessage('a message is too short for its shape')
    shape = struct.unpack_from(f'<{dimensions}Q', data, HEAD.size)
    total = size
    for length in shape:
        total *= length
    if total >= 1 << 63 or any(length >= 1 << 63 for length in shape) or len(data) - rest != (total if kind == INLINE else card_bytes):
        raise BadMessage('the length of a message and its shape contradict each other')
    return Message(kind, f'{order}{letter}{size}', shape, total, tag, data[rest:])


def describe(array):
    """(type, shape, bytes) of what can be sent; TypeError or ValueError where it cannot."""
    kind_of, shape, total, _, _ = _engine.describe(array)
    if int(kind_of[2:]) not in SIZES.get(kind_of[1], ()):
        raise TypeError(f'arrays of {kind_of} are not sent: integers, floats, complex numbers and truth values are')
    try:
        in_order = memoryview(array).c_contiguous
    except TypeError:  # by __array_interface__ or DLPack, which were looked at above
        in_order = True
    if not in_order:
        raise ValueError('an array is sent in the order of C: numpy.ascontiguousarray()')
    return kind_of, shape, total


def room(message):
    """A new array: numpy's, or a memoryview where there is no numpy."""
    try:
        import numpy
    except ImportError:
        view = memoryview(bytearray(message.bytes))
        letter = {'b1': '?', 'i1': 'b', 'i2': 'h', 'i4': 'i', 'i8': 'q', 'u1': 'B', 'u2': 'H', 'u4': 'I', 'u8': 'Q', 'f4': 'f',
                  'f8': 'd'}.get(message.type[1:])
        return view.cast(letter, message.shape) if letter and message.bytes and message.shape and message.type[0] != '>' else view
    return numpy.empty(message.shape, message.type)


class Clock:
    """What is left of a time; None is no end."""

    def __init__(self, timeout):
        self.end = None if timeout is None else time.monotonic() + timeout

    def left(self):
        return None if self.end is None else max(0.0, self.end - time.monotonic())

    def slice(self):
        left = self.left()
        return LOOK_S if left is None else min(LOOK_S, left)

    def is_over(self):
        return self.end is not None and time.monotonic() >= self.end


class Connection:
    """To one other process: listen() and connect() make it."""

    def __init__(self, agent, peer, limit=LIMIT_BYTES):
        self.agent, self.peer, self.limit = agent, peer, limit
        self.tag, self.unconfirmed = 0, collections.deque()
        self.kept = collections.OrderedDict()

    def send(self, array, timeout=None):
        """A small array is on its way when this returns; any other is in the hands of the receiver, who has called recv()."""
        kind_of, shape, total = describe(array)
        self.tag += 1
        if total <= NOTICE_MAX - HEAD.size - 8 * len(shape):
            self._post(pack(INLINE, kind_of, shape, self.tag, _engine.bytes_of(array)), Clock(timeout))
            return
        lease = self._memory(array).lease()
        try:
            clock = Clock(timeout)
            self._post(pack(TO_BE_READ, kind_of, shape, self.tag, self.agent.card(lease)), clock)
            self._notice(clock, pack(TAKEN, '|u1', (), self.tag))
        finally:
            lease.revoke()

    def recv(self, out=None, timeout=None):
        """The next array: a new one, or `out`, which has its type and as many bytes."""
        clock = Clock(timeout)
        message = unpack(self._notice(clock))
        while message.kind == TAKEN:  # of a send that was given up
            message = unpack(self._notice(clock))
        if message.bytes > self.limit and out is None:
            raise BadMessage(f'an array of {message.bytes} bytes is larger than the limit of {self.limit}')
        if out is not None:
            kind_of, _, total = describe(out)
            if (kind_of, total) != (message.type, message.bytes):
                raise ValueError(f'an array of {message.type} and {message.bytes} bytes came; there is room for {kind_of} and {total}')
        array = room(message) if out is None else out
        if message.kind == INLINE:
            _engine.fill(array, message.rest)
        else:
            self._read(message, self.agent.memory(array) if out is None else self._memory(array), clock)
        return array

    def _memory(self, array):
        """Registered: to register takes longer than to copy, so the last few are kept, and with them their arrays."""
        key = _engine.describe(array)[2:]
        memory = self.kept.pop(key, None) or self.agent.memory(array)
        self.kept[key] = memory  # the newest is the last
        if len(self.kept) > KEPT_MAX:
            self.kept.popitem(last=False)
        return memory

    def forget(self):
        """Lets go of the arrays that were sent or filled."""
        self.kept.clear()

    def _read(self, message, memory, clock):
        card = Card(message.rest)
        if len(card.regions) != 1 or card.regions[0].bytes != message.bytes:
            raise BadMessage('a message and its card contradict each other')
        transfer = self.peer.read(memory.blocks(), self.peer.blocks(card=card))
        transfer.post(deadline=clock.left()).wait()
        self._post(pack(TAKEN, '|u1', (), message.tag), clock)

    def _post(self, data, clock):
        while len(self.unconfirmed) >= UNCONFIRMED_MAX:
            self.unconfirmed.popleft().wait(clock.left())
        while self.unconfirmed and self.unconfirmed[0].state != 'posted':
            self.unconfirmed.popleft().wait()
        self.unconfirmed.append(self.peer.notify(data))

    def _notice(self, clock, match=None):
        while True:
            try:
                return self.agent.notice(clock.slice(), match=match).data if match else self.agent.notice(clock.slice()).data
            except WaitTimeout:
                if clock.is_over():
                    raise
                if self.peer.state == 'gone':
                    raise PeerGone('the other process has ended the connection') from None

    def close(self, timeout=1.0):
        """Waits for small arrays that are under way, no longer than `timeout` seconds, then ends the connection."""
        clock = Clock(timeout)
        try:
            while self.unconfirmed:
                self.unconfirmed.popleft().wait(clock.left())
        except Error:
            pass
        finally:
            self.unconfirmed.clear()
            self.kept.clear()
            self.agent.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def meet(stream, timeout):
    """Each tells the other its card, and has heard of the other over RDMA when this returns."""
    clock = Clock(timeout)
    agent = Agent(stream.getsockname()[0])
    try:
        card = agent.card()
        stream.settimeout(clock.left())
        stream.sendall(MEETING.pack(MAGIC, VERSION, len(card)) + card)
        magic, version, length = MEETING.unpack(read_exactly(stream, MEETING.size))
        if magic != MAGIC or version != VERSION or length > CARD_MAX:
            raise BadMessage('who is there does not speak this protocol')
        peer = agent.connect(read_exactly(stream, length), clock.left())
        connection = Connection(agent, peer)
        connection._post(HELLO, clock)
        connection._notice(clock, HELLO)
        return connection
    except BaseException:
        agent.close()
        raise


def read_exactly(stream, length):
    data = b''
    while len(data) < length:
        more = stream.recv(length - len(data))
        if not more:
            raise PeerGone('the other process has ended the connection')
        data += more
    return data


class Listener:
    """Where others connect: an address of an RDMA device, and a port of TCP for the first words."""

    def __init__(self, address, port=0):
        family = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)[0][0]
        self.socket = socket.create_server((address, port), family=family)

    @property
    def port(self):
        return self.socket.getsockname()[1]

    def accept(self, timeout=None):
        """The next connection."""
        clock = Clock(timeout)
        self.socket.settimeout(clock.left())
        try:
            stream, _ = self.socket.accept()
        except TimeoutError:
            raise WaitTimeout('nobody has connected') from None
        with stream:
            return meet(stream, clock.left())

    def close(self):
        self.socket.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def listen(address, port=0):
    """A Listener; port 0 is a free one."""
    return Listener(address, port)


def connect(address, port, timeout=10.0):
    """A Connection to who listens there."""
    clock = Clock(timeout)
    with socket.create_connection((address, port), clock.left()) as stream:
        return meet(stream, clock.left())
