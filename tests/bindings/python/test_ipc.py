# SPDX-License-Identifier: BSD-2-Clause
"""Arrays between processes, and bytes that are none."""
import random
import socket
import struct
import threading
import time
import unittest

import numpy as np
import served
import sidewire
from sidewire import _engine, ipc

ECHO = '''
from sidewire import ipc
with ipc.connect('127.0.0.1', int(sys.argv[1]), 20) as connection:
    for i in range(int(sys.argv[2])):
        connection.send(connection.recv(timeout=20), timeout=20)
'''


class Arrays(unittest.TestCase):
    def setUp(self):
        self.listener = self.enterContext(ipc.listen('127.0.0.1'))

    def echo(self, count):
        """A connection to a process that sends back so many arrays."""
        process = served.start(ECHO, str(self.listener.port), str(count))
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        return process, self.enterContext(self.listener.accept(20))

    def test_arrays__of_all_types_and_shapes_come_back(self):
        draw, made = random.Random(5), np.random.default_rng(5)
        arrays = []
        for kind in ('?', 'i1', 'u2', '<i4', '>i4', 'u8', 'f2', 'f4', 'f8', 'c8', 'c16'):
            shape = tuple(draw.randrange(1, 9) for _ in range(draw.randrange(4)))
            arrays.append(made.integers(0, 2, shape).astype(kind))
        arrays += [
            np.zeros((0, 5)),
            np.array(7),
            np.zeros((1,) * 32, 'u1'),
            made.random(100000),
            made.integers(0, 255, 1000, 'u1'),
            made.integers(0, 255, 4064, 'u1'),
            made.integers(0, 255, 4065, 'u1'),
        ]
        _, connection = self.echo(len(arrays))
        for array in arrays:
            connection.send(array, 20)
            back = connection.recv(timeout=20)
            self.assertEqual((back.dtype, back.shape), (array.dtype, array.shape))
            np.testing.assert_array_equal(back, array)

    def test_recv__into_an_array_of_the_caller(self):
        _, connection = self.echo(4)
        for size in (10, 100000):
            array, out = np.arange(size, dtype=np.float32), np.zeros(size, np.float32)
            connection.send(array, 20)
            self.assertIs(connection.recv(out, 20), out)
            np.testing.assert_array_equal(out, array)
        connection.send(np.zeros(10), 20)
        with self.assertRaises(ValueError):
            connection.recv(np.zeros(9), 20)
        connection.send(np.zeros(10), 20)
        with self.assertRaises(ValueError):
            connection.recv(np.zeros(20, np.float32), 20)

    def test_arrays__are_kept_and_let_go(self):
        _, connection = self.echo(6)
        array = np.zeros(5000, 'u1')
        for i in range(6):
            array[:] = i
            connection.send(array, 20)
            out = np.zeros(5000, 'u1')
            self.assertTrue((connection.recv(out, 20) == i).all())
        self.assertEqual(len(connection.kept), ipc.KEPT_MAX)
        held = bytearray(5000)
        connection._memory(held)
        self.assertIs(connection._memory(memoryview(held)), connection._memory(held))
        with self.assertRaises(BufferError):
            held.append(1)
        connection.forget()
        held.append(1)

    def test_send__many_small_ones_before_any_is_received(self):
        with ipc.listen('127.0.0.1') as listener:
            accepted = []
            thread = threading.Thread(target=lambda: accepted.append(listener.accept(20)))
            thread.start()
            here = self.enterContext(ipc.connect('127.0.0.1', listener.port, 20))
            thread.join()
            there = self.enterContext(accepted[0])
            for i in range(400):
                here.send(np.array([i]))
            self.assertEqual([int(there.recv(timeout=20)[0]) for _ in range(400)], list(range(400)))
            with self.assertRaises(TimeoutError):  # nobody receives
                for i in range(2000):
                    here.send(np.array([i]), timeout=0.01)
            for k in range(i):
                self.assertEqual(int(there.recv(timeout=20)[0]), k)

    def test_send__of_a_large_array_while_small_ones_come(self):
        with ipc.listen('127.0.0.1') as listener:

            def answer():
                with listener.accept(20) as there:
                    for i in range(30):
                        there.send(np.array([i]))
                    out.append(there.recv(timeout=20))
                    there.send(np.array([30]))
                    there.recv(timeout=20)

            out = []
            thread = threading.Thread(target=answer)
            thread.start()
            with ipc.connect('127.0.0.1', listener.port, 20) as here:
                here.send(np.arange(10000), 20)
                self.assertEqual(
                    [int(here.recv(np.zeros(1, int), 20)[0]) for _ in range(31)], list(range(31))
                )
                here.send(np.zeros(1))
                thread.join()
            np.testing.assert_array_equal(out[0], np.arange(10000))

    def test_recv__asleep(self):
        _, connection = self.echo(3)
        for _ in range(3):
            time.sleep(0.01)  # the other one sleeps by then
            connection.send(np.ones(8), 20)
            self.assertEqual(connection.recv(np.zeros(8), 20).sum(), 8)

    def test_pipe__of_another_token_version_or_length(self):
        listener = _engine.PipeListener('127.0.0.1')
        with self.assertRaises(ValueError):
            _engine.Pipe.connect('127.0.0.1', listener.port, b'short', 1)
        with self.assertRaises(TimeoutError):
            listener.accept(bytes(16), 0.05)

    def test_pipe__that_is_closed(self):
        _, connection = self.echo(1)
        connection.close()
        with self.assertRaises(sidewire.InvalidArgument):
            connection.send(np.zeros(1))
        with self.assertRaises(sidewire.InvalidArgument):
            connection.recv()

    def test_send__of_what_is_no_array(self):
        _, connection = self.echo(1)
        for thing in (
            {'a': 1},
            'text',
            np.array([None]),
            np.zeros(3, 'U4'),
            np.zeros(3, [('a', 'i4'), ('b', 'f8')]),
        ):
            with self.assertRaises(TypeError):
                connection.send(thing)
        with self.assertRaises(ValueError):
            connection.send(np.zeros((4, 5)).T)

    def test_recv__of_a_peer_that_is_killed(self):
        process, connection = self.echo(9)
        process.kill()
        with self.assertRaises(sidewire.PeerGone):
            connection.recv(timeout=20)

    def test_recv__in_time(self):
        _, connection = self.echo(9)
        with self.assertRaises(TimeoutError):
            connection.recv(timeout=0.05)
        with self.assertRaises(TimeoutError):
            self.listener.accept(0.05)

    def test_recv__larger_than_the_limit(self):
        _, connection = self.echo(2)
        connection.limit = 1000
        connection.send(np.zeros(1001, 'u1'), 20)
        with self.assertRaises(ipc.BadMessage):
            connection.recv(timeout=20)

    def test_connect__to_somebody_else(self):
        with socket.create_server(('127.0.0.1', 0)) as other:

            def answer():
                stream, _ = other.accept()
                stream.sendall(b'HTTP/1.1 400 Bad Request')
                stream.close()

            thread = threading.Thread(target=answer)
            thread.start()
            with self.assertRaises(sidewire.Error):
                ipc.connect('127.0.0.1', other.getsockname()[1], 10)
            thread.join()


class Messages(unittest.TestCase):
    def test_message__is_what_was_packed(self):
        message = ipc.unpack(ipc.pack(ipc.INLINE, '<f4', (2, 3), 9, bytes(24)))
        self.assertEqual(message, (ipc.INLINE, '<f4', (2, 3), 24, 9, bytes(24)))

    def test_message__that_contradicts_itself(self):
        good = ipc.pack(ipc.INLINE, '<f4', (2, 3), 9, bytes(24))
        for at, value in (
            (0, b'x'),
            (4, b'\2'),
            (5, b'\4'),
            (6, b'O'),
            (6, b'V'),
            (7, b'='),
            (8, b'\3'),
            (8, b'\0'),
            (9, b'\41'),
            (9, b'\1'),
            (24, b'\3'),
            (24, struct.pack('<Q', 1 << 63)),
            (24, struct.pack('<QQ', 1 << 32, 1 << 32)),
            (24, struct.pack('<QQ', 0, 1 << 63)),
        ):
            with self.assertRaises(ipc.BadMessage, msg=(at, value)):
                ipc.unpack(good[:at] + value + good[at + len(value) :])
        for cut in range(len(good)):
            with self.assertRaises(ipc.BadMessage, msg=cut):
                ipc.unpack(good[:cut])

    def test_message__of_random_bytes_never_fails_otherwise(self):
        draw = random.Random(11)
        for i in range(20000):
            data = bytearray(
                ipc.pack(
                    draw.choice([1, 2, 3]),
                    draw.choice(['<f4', '|u1', '>c16']),
                    (2, 2),
                    1,
                    bytes(draw.randrange(40)),
                )
            )
            for _ in range(draw.randrange(4)):
                data[draw.randrange(len(data))] = draw.randrange(256)
            try:
                message = ipc.unpack(
                    bytes(data[: draw.randrange(len(data) + 1)] if draw.random() < 0.2 else data)
                )
            except ipc.BadMessage:
                continue
            self.assertTrue(message.kind != ipc.INLINE or len(message.rest) == message.bytes)


if __name__ == '__main__':
    unittest.main()
