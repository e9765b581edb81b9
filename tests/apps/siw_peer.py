# SPDX-License-Identifier: BSD-2-Clause
"""A hand-made peer of ucmatose, whose server speaks first, that does to our iWARP device what siw
does: docs/iwarp.md, "What siw does otherwise"."""
import contextlib
import select
import shlex
import socket
import struct
import time

import cm
import pair
import ports
from pair import Failure, Process

REQUEST, REPLY = b'MPA ID Req Frame', b'MPA ID Rep Frame'
CRC, REJECT, ENHANCED, LARGE, UNKNOWN = 0x40, 0x20, 0x10, 0x08, 0x07  # flags; the last are nobody's
PEER_TO_PEER, RTR_WRITE = 0x8000, 0x8000  # in the word of IRD, and in that of ORD
WRITE, SEND, TERMINATE = 0, 3, 7
COUNT, SIZE = 10, 4999  # of messages each way; the size wants a pad
SILENCE_S = 0.3  # in which nothing may come
PIECES_S = 0.0005
SINGLES = 400
SEGMENT = 1448
# Remote protection of RDMAP, bounds; the DDP header follows
TERMINATE_SWAPPED = struct.pack('>BBBB', 0x10, 0x01, 0x02, 0)


def fpdu(ulpdu, pad=b'\xff'):
    """Without a CRC, and with a pad that siw did not clear."""
    return struct.pack('>H', len(ulpdu)) + ulpdu + pad * (-(len(ulpdu) + 2) % 4) + bytes(4)


def untagged(opcode, queue, msn, payload, offset=0, last=0x40):
    return fpdu(struct.pack('>BBIIII', 0x01 | last, 0x40 | opcode, 0, queue, msn, offset) + payload)


def sends(length=1444):
    """The messages of ucmatose, each in segments of so many bytes."""
    out = b''
    for msn in range(1, COUNT + 1):
        for at in range(0, SIZE, length):
            part = bytes(min(length, SIZE - at))
            out += untagged(SEND, 0, msn, part, at, 0x40 if at + length >= SIZE else 0)
    return out


def receive_all(sock, count):
    """Fewer at the end alone: MSG_WAITALL does not wait at a socket that has a timeout."""
    got = b''
    while len(got) < count and (more := sock.recv(count - len(got))):
        got += more
    return got


class Stream:
    """One end of a connection, as bytes."""

    def __init__(self, sock):
        self.sock = sock
        sock.settimeout(pair.PATIENCE_S)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def take(self, count):
        got = receive_all(self.sock, count)
        if len(got) != count:
            raise Failure(f'the stream ends within {count} bytes: {got.hex()}')
        return got

    def start_frame(self, key):
        """Flags, revision and what follows."""
        head = self.take(20)
        if head[:16] != key:
            raise Failure(f'no start frame: {head}')
        return head[16], head[17], self.take(struct.unpack('>H', head[18:])[0])

    def fpdu(self):
        """Opcode and payload; (None, b'') at the end."""
        length = receive_all(self.sock, 2)
        if len(length) < 2:
            return None, b''
        count = struct.unpack('>H', length)[0]
        rest = self.take(count + -(count + 2) % 4 + 4)
        return rest[1] & 0x0F, rest[14 if rest[0] & 0x80 else 18 : count]

    def messages(self):
        """All SENDs of ucmatose: the lengths of their FPDUs."""
        got, lengths = 0, []
        while got < COUNT * SIZE:
            opcode, payload = self.fpdu()
            if opcode is None:
                raise Failure(f'it has ended after {got} bytes')
            if opcode == SEND:
                got += len(payload)
                lengths.append(len(untagged(SEND, 0, 1, payload)))
        return lengths

    def is_silent(self):
        return not select.select([self.sock], [], [], SILENCE_S)[0]

    def put(self, data, piece=0):
        """In pieces, of which the first ones may be single bytes."""
        at, single = 0, SINGLES if piece == 1 else 0
        while at < len(data):
            count = 1 if at < single else piece if piece > 1 else len(data)
            self.sock.sendall(data[at : at + count])
            at += count
            time.sleep(PIECES_S if piece else 0)

    def until_closed(self):
        self.sock.shutdown(socket.SHUT_WR)
        while self.fpdu()[0] is not None:
            pass


def reply_to(request, more=0, wants_large=False):
    """siw edits the request's header, and does not want to be spoken to first."""
    flags, revision, data = request
    words = b''
    if flags & ENHANCED:
        ird, ord_ = struct.unpack('>HH', data[:4])
        words = struct.pack('>HH', ord_ & 0x3FFF, ird & 0x3FFF)
    return (
        REPLY
        + struct.pack(
            '>BBH',
            flags & ~LARGE & 0xFF | more | (LARGE if wants_large else 0),
            revision,
            len(words),
        )
        + words
    )


@contextlib.contextmanager
def client(tools, segment=None):
    """ucmatose, which connects to a socket of ours. `segment`: TCP's segments are no longer."""
    with socket.socket() as listener:
        listener.bind(('127.0.0.1', 0))
        if segment:
            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, segment)
        listener.listen()
        listener.settimeout(pair.PATIENCE_S)
        line = f'ucmatose -s 127.0.0.1 -p {listener.getsockname()[1]} -c 1 -C {COUNT} -S {SIZE}'
        process = Process(tools.run(*shlex.split(line), link='iwarp', log='info'))
        try:
            yield listener, process
        except (Failure, OSError) as failure:
            process.end()
            raise Failure(f'{failure}\n--- client\n{process.text()}') from failure
        finally:
            process.end()


def accept(listener):
    return Stream(listener.accept()[0])


def expect_good(process):
    process.wait(time.monotonic() + pair.PATIENCE_S)
    if process.child.returncode != 0 or 'return status 0' not in process.text():
        raise Failure(f'status {process.child.returncode}')


def finish(stream, process):
    """All messages of ucmatose come, and it is content with ours."""
    stream.messages()
    stream.until_closed()
    expect_good(process)


@contextlib.contextmanager
def asked(tools):
    """ucmatose has connected and asked: the stream and its request. In the end all messages have
    passed."""
    with client(tools) as (listener, process):
        stream = accept(listener)
        yield stream, stream.start_frame(REQUEST)
        finish(stream, process)


def answers(tools, behind_reply, piece=0, more=0, length=1444):
    """A responder that sends its messages at once, with the reply or a little later."""
    with asked(tools) as (stream, request):
        reply = reply_to(request, more, wants_large=length > 1500)
        if behind_reply:
            stream.put(reply + sends(length), piece)
        else:
            stream.put(reply)
            stream.put(sends(length), piece)


def asks_alone(tools):
    """siw takes any byte behind the request for a fault: none comes before the reply."""
    with asked(tools) as (stream, request):
        if not stream.is_silent():
            raise Failure('more than the request came')
        stream.put(reply_to(request) + sends())


def oversleeps(tools):
    """siw does not see what came right behind its reply until more comes: an empty WRITE does,
    though the client waits for it to speak."""
    with asked(tools) as (stream, request):
        stream.put(reply_to(request))
        opcode, payload = stream.fpdu()  # and sends nothing until it comes
        if opcode != WRITE or payload:
            raise Failure(f'opcode {opcode} instead of an empty WRITE')
        stream.put(sends())


def fits_segments(tools, wants_large):
    """FPDUs are as long as TCP's segments, as siw's are; one is a whole message for a peer that
    says that it takes such."""
    with client(tools, SEGMENT) as (listener, process):
        stream = accept(listener)
        request = stream.start_frame(REQUEST)
        stream.put(reply_to(request, wants_large=wants_large) + sends())
        segment = stream.sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG)
        lengths = stream.messages()
        stream.until_closed()
        expect_good(process)
        least = segment & ~7
        of_each = 1 if wants_large else -(-SIZE // (least - len(untagged(SEND, 0, 1, b''))))
        if (
            not wants_large
            and not least - 4 <= max(lengths) <= segment
            or len(lengths) != COUNT * of_each
        ):
            raise Failure(
                f'FPDUs of {sorted(set(lengths))} bytes, {len(lengths)} of them, and segments of '
                f'{segment}'
            )


def older(tools):
    """A peer of revision 1 answers so and closes; it is asked again so."""
    with client(tools) as (listener, process):
        first = accept(listener)
        _, revision, _ = first.start_frame(REQUEST)
        first.put(REPLY + struct.pack('>BBH', 0, 1, 0))
        first.sock.close()
        stream = accept(listener)
        request = stream.start_frame(REQUEST)
        if (revision, request[1]) != (2, 1) or request[0] & ENHANCED:
            raise Failure(
                f'asked with revision {revision}, then {request[1]}, flags {request[0]:#x}'
            )
        stream.put(reply_to(request) + sends())
        finish(stream, process)


def gives_up(tools, last, text, behind_reply=False):
    """The connection ends before its messages have come, by a Terminate as siw writes it or
    without: ucmatose ends, and we say why. (For ucmatose a receive that is flushed is one that has
    come.) All may come at once: a TCP that is corked keeps it until the end is with it."""
    with client(tools) as (listener, process):
        stream = accept(listener)
        reply = reply_to(stream.start_frame(REQUEST))
        stream.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, behind_reply)
        stream.put(reply)
        stream.put(sends()[: SIZE * 3 // 2] if last is None else last)
        stream.until_closed()
        process.wait(time.monotonic() + pair.PATIENCE_S)
        if process.child.returncode is None or text not in process.text():
            raise Failure(f'status {process.child.returncode}, without "{text}"')


def waits_for_first(tools):
    """Between peers that agreed on a first message nothing comes from us before it."""
    port = ports.claim()
    server = Process(
        tools.run(
            *shlex.split(f'ucmatose -b 127.0.0.1 -p {port} -c 1 -C {COUNT} -S {SIZE}'), link='iwarp'
        )
    )
    try:
        limit = time.monotonic() + pair.PATIENCE_S
        while not cm.hears(port, server.child.pid) and time.monotonic() < limit:
            time.sleep(0.01)
        with socket.create_connection(('127.0.0.1', port), pair.PATIENCE_S) as sock:
            stream = Stream(sock)
            stream.put(
                REQUEST
                + struct.pack('>BBHHH', ENHANCED | UNKNOWN, 2, 4, PEER_TO_PEER | 4, RTR_WRITE | 4)
            )
            flags, revision, words = stream.start_frame(REPLY)
            if (
                flags & REJECT
                or revision != 2
                or not struct.unpack('>H', words[:2])[0] & PEER_TO_PEER
                or not stream.is_silent()
            ):
                raise Failure(f'reply {flags:#x} {revision} {words.hex()}, or something behind it')
            stream.put(fpdu(struct.pack('>BBIQ', 0xC1, 0x40 | WRITE, 1, 0)), 1)
            stream.put(sends(), 97)
            stream.messages()
            stream.until_closed()
        server.wait(time.monotonic() + pair.PATIENCE_S)
        if server.child.returncode != 0 or 'return status 0' not in server.text():
            raise Failure(f'status {server.child.returncode}')
    except (Failure, OSError) as failure:
        server.end()
        raise Failure(f'{failure}\n--- server\n{server.text()}') from failure
    finally:
        server.end()


def cases():
    terminate = untagged(
        TERMINATE, 2, 1, TERMINATE_SWAPPED + struct.pack('>BBIQ', 0xC1, 0x40, 1, 0)
    )
    return [
        (
            'data right behind the reply, a pad that is not zeros',
            lambda tools: answers(tools, True),
        ),
        (
            'the reply has flags that nobody knows',
            lambda tools: answers(tools, False, more=UNKNOWN),
        ),
        (
            'data right behind the reply, in pieces of 1 byte',
            lambda tools: answers(tools, True, piece=1),
        ),
        ('FPDUs in pieces of 997 bytes', lambda tools: answers(tools, False, piece=997)),
        (
            'FPDUs over several segments, in pieces of 1,313 bytes',
            lambda tools: answers(tools, True, piece=1313, length=SIZE),
        ),
        ('nothing is sent between request and reply', asks_alone),
        ('the peer does not see what is behind its reply', oversleeps),
        ('FPDUs fit into segments', lambda tools: fits_segments(tools, False)),
        ('FPDUs are longer for a peer that takes such', lambda tools: fits_segments(tools, True)),
        ('the peer has revision 1', older),
        ('a Terminate whose bits are swapped', lambda tools: gives_up(tools, terminate, '0x0101')),
        (
            'a Terminate and the end right behind the reply',
            lambda tools: gives_up(tools, terminate, '0x0101', behind_reply=True),
        ),
        (
            'the peer closes within an FPDU, without a Terminate',
            lambda tools: gives_up(tools, None, ''),
        ),
        ('nothing is sent before the first message that was agreed on', waits_for_first),
    ]
