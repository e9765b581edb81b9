# SPDX-License-Identifier: BSD-2-Clause
"""Arrays between two processes, of one host or of two.

    connection = sidewire.ipc.connect('192.0.2.1', 4440)
    connection.send(array)
    array = connection.recv()

An array is sent as its type, its shape and its bytes: nothing is pickled, so nothing of a peer is
ever executed. A small array goes within a message of <sidewire/pipe.h>; a larger one the receiver
reads from the sender's memory into its own, which is the only copy. docs/python.md has the bytes. A
connection is used by one thread at a time.
"""
import collections
import os
import socket
import struct
import time

from . import _engine
from ._engine import Agent, Error, PeerGone, WaitTimeout
from .card import Card

MAGIC, VERSION, MEETING_VERSION = 0x41495753, 1, 2  # "SWIA"
INLINE, TO_BE_READ, TAKEN = 1, 2, 3
# Magic, version, kind, letter, order, item bytes, dimensions, card bytes, reserved, tag.
HEAD = struct.Struct('<IBBccBBHIQ')
# Magic, version, card bytes, port of the pipe, reserved, its token.
MEETING = struct.Struct('<IHHHH4x16s')
TOKEN_BYTES, CARD_MAX, DIMENSIONS_MAX, EARLY_MAX = 16, 2048, 32, 1024
SIZES = {'b': (1,), 'i': (1, 2, 4, 8), 'u': (1, 2, 4, 8), 'f': (2, 4, 8, 16), 'c': (8, 16, 32)}
# What a type of numpy is to a memoryview.
LETTERS = dict(zip('b1 i1 i2 i4 i8 u1 u2 u4 u8 f4 f8'.split(), '?bhiqBHIQfd'))
SLICE_S = 0.05  # no call of a pipe waits longer
KEPT_MAX = 4  # arrays that a connection keeps registered
LIMIT_BYTES = 1 << 34  # of an array that recv() makes room for
HELLO = b'sidewire.ipc'


class BadMessage(Error):
    """What the peer sent is no array."""


Message = collections.namedtuple('Message', 'kind type shape bytes tag rest')


def pack(kind, kind_of, shape, tag, rest=b''):
    """A message; `kind_of` is a type as numpy writes it, e.g. <f4."""
    card_bytes = len(rest) if kind == TO_BE_READ else 0
    order, letter, size = kind_of[0].encode(), kind_of[1].encode(), int(kind_of[2:])
    head = HEAD.pack(MAGIC, VERSION, kind, letter, order, size, len(shape), card_bytes, 0, tag)
    return head + struct.pack(f'<{len(shape)}Q', *shape) + rest


def unpack(data):
    """A Message; BadMessage where the bytes are none. All of it is checked here, nothing later."""
    if len(data) < HEAD.size:
        raise BadMessage('a message is too short')
    fields = HEAD.unpack_from(data)
    magic, version, kind, letter, order, size, dimensions, card_bytes, _, tag = fields
    letter, order = letter.decode('latin-1'), order.decode('latin-1')
    if magic != MAGIC or version != VERSION or kind not in (INLINE, TO_BE_READ, TAKEN):
        raise BadMessage('a message is not of this protocol')
    if kind == TAKEN:
        return Message(kind, None, (), 0, tag, b'')
    if (
        size not in SIZES.get(letter, ())
        or order not in '<>|'
        or (order == '|') != (size == 1)
        or dimensions > DIMENSIONS_MAX
    ):
        raise BadMessage('a message has no type that arrays have')
    rest = HEAD.size + 8 * dimensions
    if len(data) < rest:
        raise BadMessage('a message is too short for its shape')
    shape = struct.unpack_from(f'<{dimensions}Q', data, HEAD.size)
    total = size
    for length in shape:
        total *= length
    if (
        total >= 1 << 63
        or any(length >= 1 << 63 for length in shape)
        or len(data) - rest != (total if kind == INLINE else card_bytes)
    ):
        raise BadMessage('the length of a message and its shape contradict each other')
    return Message(kind, f'{order}{letter}{size}', shape, total, tag, data[rest:])


def describe(array):
    """(type, shape, bytes) of what can be sent; TypeError or ValueError where it cannot."""
    kind_of, shape, total, _, _ = _engine.describe(array)
    if int(kind_of[2:]) not in SIZES.get(kind_of[1], ()):
        sent = 'integers, floats, complex numbers and truth values'
        raise TypeError(f'arrays of {kind_of} are not sent: {sent} are')
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
        letter = LETTERS.get(message.type[1:])
        if letter and message.bytes and message.shape and message.type[0] != '>':
            return view.cast(letter, message.shape)
        return view
    return numpy.empty(message.shape, message.type)


class Clock:
    """What is left of a time; None is no end."""

    def __init__(self, timeout, gone=0.0):
        self.end = None if timeout is None else time.monotonic() + timeout - gone

    def left(self):
        return None if self.end is None else max(0.0, self.end - time.monotonic())

    def is_over(self):
        return self.end is not None and time.monotonic() >= self.end


class Connection:
    """To one other process: listen() and connect() make it."""

    def __init__(self, agent, peer, pipe, limit=LIMIT_BYTES):
        self.agent, self.peer, self.pipe, self.limit = agent, peer, pipe, limit
        self.kept = collections.OrderedDict()
        self.early = collections.deque()  # messages that came while a large array was sent

    def __repr__(self):
        return f'<sidewire.ipc.Connection to {self.peer!r}>'

    def send(self, array, timeout=None):
        """A small array is on its way when this returns; any other is in the hands of the receiver,
        who has called recv()."""
        sent = self.pipe.send_array(array, timeout)
        if sent:
            return
        if sent is None:
            self._offer(array, Clock(timeout))
            return
        clock = Clock(timeout, SLICE_S)
        self._until_room(lambda: self.pipe.send_array(array, clock.left()), clock)

    def recv(self, out=None, timeout=None):
        """The next array: a new one, or `out`, which has its type and as many bytes."""
        data = self.early.popleft() if self.early else self.pipe.recv(out, timeout)
        if data is out and out is not None:
            return out
        clock = Clock(timeout, 0 if data else SLICE_S)
        while data is not out or out is None:
            if data is not None:
                message = unpack(data)
                if message.kind != TAKEN:  # else of a send that was given up
                    return self._place(message, out, clock)
            data = self._wait(clock, out)
        return out

    def _offer(self, array, clock):
        """To be read by the receiver."""
        kind_of, shape, total = describe(array)
        tag = self.pipe.next_tag()
        lease = self._memory(array).lease()
        try:
            data = pack(TO_BE_READ, kind_of, shape, tag, self.agent.card(lease))
            self._post(data, clock)
            expected = pack(TAKEN, '|u1', (), tag)
            while (data := self._wait(clock)) != expected:
                if len(self.early) >= EARLY_MAX:
                    raise BadMessage('the other process sends, and does not receive')
                if unpack(data).kind != TAKEN:
                    self.early.append(data)
        finally:
            lease.revoke()

    def _place(self, message, out, clock):
        if message.bytes > self.limit and out is None:
            raise BadMessage(
                f'an array of {message.bytes} bytes is larger than the limit of {self.limit}'
            )
        if out is not None:
            kind_of, _, total = describe(out)
            if (kind_of, total) != (message.type, message.bytes):
                raise ValueError(
                    f'an array of {message.type} and {message.bytes} bytes came; '
                    f'there is room for {kind_of} and {total}'
                )
        array = room(message) if out is None else out
        if message.kind == INLINE:
            _engine.fill(array, message.rest)
        else:
            memory = self.agent.memory(array) if out is None else self._memory(array)
            self._read(message, memory, clock)
        return array

    def _memory(self, array):
        """Registered: to register takes longer than to copy, so the last few are kept, and with
        them their arrays."""
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
        self._until_room(lambda: self.pipe.send(data, clock.left()), clock)

    def _until_room(self, send, clock):
        while not send():
            if clock.is_over():
                raise WaitTimeout('the other process does not receive')
            self.agent.poll()

    def _wait(self, clock, out=None):
        """The next message. Meanwhile the peer's connection may have to be made anew, which the
        agent does."""
        while (data := self.pipe.recv(out, clock.left())) is None:
            if clock.is_over():
                raise WaitTimeout('no array has come')
            self.agent.poll()
        return data

    def close(self, timeout=1.0):
        """Waits for small arrays that are under way, no longer than `timeout` seconds, then ends
        the connection."""
        self.kept.clear()
        self.pipe.close(timeout)
        self.agent.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def meet(stream, timeout, is_listening):
    """Each tells the other its card, and has heard of the other over RDMA when this returns. The
    side that listens says where its pipe is."""
    clock = Clock(timeout)
    address = stream.getsockname()[0]
    agent = Agent(address)
    try:
        listener = _engine.PipeListener(address) if is_listening else None
        token = os.urandom(TOKEN_BYTES) if is_listening else bytes(TOKEN_BYTES)
        card = agent.card()
        stream.settimeout(clock.left())
        port = listener.port if listener else 0
        stream.sendall(MEETING.pack(MAGIC, MEETING_VERSION, len(card), port, 0, token) + card)
        magic, version, length, port, _, said = MEETING.unpack(read_exactly(stream, MEETING.size))
        if (
            magic != MAGIC
            or version != MEETING_VERSION
            or length > CARD_MAX
            or (port == 0) != is_listening
        ):
            raise BadMessage('who is there does not speak this protocol')
        peer = agent.connect(read_exactly(stream, length), clock.left())
        peer.notify(HELLO).wait(clock.left())
        agent.notice(clock.left(), match=HELLO)
        if listener:
            pipe = listener.accept(token, clock.left())
        else:
            pipe = _engine.Pipe.connect(stream.getpeername()[0], port, said, clock.left())
        return Connection(agent, peer, pipe)
    except BaseException:
        agent.close()
        raise


def read_exactly(stream, length):
    data = b''
    while len(data) < length:
        try:
            more = stream.recv(length - len(data))
        except ConnectionResetError:
            more = b''
        if not more:
            raise PeerGone('the other process has ended the connection')
        data += more
    return data


class Listener:
    """Where others connect: an address of an RDMA device, and a port of TCP for the first words."""

    def __init__(self, address, port=0):
        family = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)[0][0]
        self.socket = socket.create_server((address, port), family=family)

    def __repr__(self):
        return f'<sidewire.ipc.Listener at {self.socket.getsockname()[:2]}>'

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
            return meet(stream, clock.left(), True)

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
    """A Connection to the listener there."""
    clock = Clock(timeout)
    with socket.create_connection((address, port), clock.left()) as stream:
        return meet(stream, clock.left(), False)
