# SPDX-License-Identifier: BSD-2-Clause
"""Data: what numpy says is what arrives, wherever the memory comes from, and
it is nowhere copied."""
import array
import gc
import mmap
import os
import random
import tempfile
import threading
import time
import unittest

import numpy as np
import served
import sidewire

SEED = int(os.environ.get('SEED', '7'))


class Interface:
    """Has nothing but __array_interface__."""

    def __init__(self, of):
        self.of = of
        self.__array_interface__ = of.__array_interface__


class Tensor:
    """Has nothing but DLPack, as tensors of torch have."""

    def __init__(self, of):
        self.of = of

    def __dlpack__(self, stream=None):
        return self.of.__dlpack__()

    def __dlpack_device__(self):
        return self.of.__dlpack_device__()


class Memory(unittest.TestCase):
    def setUp(self):
        self.agent = sidewire.Agent()
        self.addCleanup(self.agent.close)

    def address(self, thing):
        return self.agent.memory(thing).address

    def test_memory__is_where_numpy_has_it(self):
        of = np.arange(1000, dtype=np.float32)
        for thing in (
            of,
            Interface(of),
            Tensor(of),
            memoryview(of),
            of.reshape(10, 100),
            of.reshape(10, 100).T,
        ):
            memory = self.agent.memory(thing)
            self.assertEqual(memory.address, of.ctypes.data)
            self.assertEqual(len(memory), of.nbytes)
        self.assertEqual(self.address(of[100:]), of.ctypes.data + 400)
        self.assertEqual(self.address(Tensor(of[100:])), of.ctypes.data + 400)

    def test_memory__of_other_buffers(self):
        of = array.array('d', range(50))
        self.assertEqual(self.address(of), of.buffer_info()[0])
        with mmap.mmap(-1, 8192) as mapped:
            memory = self.agent.memory(mapped)
            self.assertEqual(memory.address, np.frombuffer(mapped, np.uint8).ctypes.data)
            memory.release()
            del memory
            gc.collect()

    def test_memory__views_are_the_same_memory(self):
        of = np.zeros(64, np.uint8)
        view = np.frombuffer(self.agent.memory(of), np.uint8)
        self.assertEqual(view.ctypes.data, of.ctypes.data)
        view[5] = 9
        self.assertEqual(of[5], 9)

    def test_memory__is_not_released_under_a_view(self):
        memory = self.agent.memory(np.zeros(64, np.uint8))
        view = memoryview(memory)
        with self.assertRaises(BufferError):
            memory.release()
        view.release()
        memory.release()
        with self.assertRaises(BufferError):
            memoryview(memory)

    def test_memory__keeps_its_object(self):
        of = bytearray(100)
        memory = self.agent.memory(of)
        with self.assertRaises(BufferError):
            of.append(1)
        memory.release()
        of.append(1)

    def test_memory__in_pieces_is_refused(self):
        of = np.zeros((8, 8))
        for thing in (of[:, 1], Interface(of[:, 1]), Tensor(of[:, 1])):
            with self.assertRaises((ValueError, BufferError)):
                self.agent.memory(thing)

    def test_memory__of_something_else_is_refused(self):
        for thing in (5, None, [1, 2], 'text', np.zeros(0)):
            with self.assertRaises((TypeError, ValueError)):
                self.agent.memory(thing)

    def test_memory__with_an_interface_that_lies(self):
        class Liar:
            pass

        good = np.zeros(8).__array_interface__
        for bad in (
            5,
            {},
            {**good, 'data': (1,)},
            {**good, 'shape': (-1,)},
            {**good, 'shape': (1 << 62, 1 << 62)},
            {**good, 'typestr': '<f' + '8' * 30},
            {**good, 'shape': (1,) * 33},
            {**good, 'data': ('a', False)},
            {**good, 'typestr': None},
        ):
            liar = Liar()
            liar.__array_interface__ = bad
            with self.assertRaises((TypeError, ValueError)):
                self.agent.memory(liar)


class Transfers(unittest.TestCase):
    def setUp(self):
        self.random = np.random.default_rng(SEED)
        self.target = self.enterContext(served.serving())
        self.agent = sidewire.Agent()
        self.addCleanup(self.agent.close)

    def share(self, array, name='all'):
        return self.target.memory(array).lease(name, write=True)

    def test_transfer__writes_and_reads_random_layouts(self):
        draw = random.Random(SEED)
        for case in range(20):
            block, count = draw.choice([1, 8, 100, 4096, 5000]), draw.randrange(1, 200)
            here, there = (
                self.random.integers(
                    0, 256, (draw.randrange(count, 2 * count + 1), block), np.uint8
                )
                for _ in 'ab'
            )
            mine, theirs = (self.random.permutation(len(of))[:count] for of in (here, there))
            is_write = draw.random() < 0.5
            expected = [here.copy(), there.copy()]
            if is_write:
                expected[1][theirs] = here[mine]
            else:
                expected[0][mine] = there[theirs]
            lease = self.share(there)
            peer = self.agent.connect(self.target.card(lease), 10)
            kind = draw.choice([np.int64, np.uint32, np.int32, np.uint64])
            local = self.agent.memory(here).blocks(mine.astype(kind), block)
            remote = peer.blocks('all', theirs.astype(kind), block)
            self.assertEqual((len(local), len(remote)), (count, count))
            (peer.write if is_write else peer.read)(local, remote).post().wait(10)
            np.testing.assert_array_equal(here, expected[0], f'case {case} of seed {SEED}')
            np.testing.assert_array_equal(there, expected[1], f'case {case} of seed {SEED}')
            lease.revoke()

    def test_transfer__posts_by_index(self):
        here, there = np.arange(40, dtype=np.int64), np.zeros(40, np.int64)
        peer = self.agent.connect(self.target.card(self.share(there)), 10)
        transfer = peer.write(self.agent.memory(here).blocks(bytes=8), peer.blocks('all', bytes=8))
        transfer.post(local_index=np.array([3, 1, 2]), remote_index=[30, 10, 20]).wait(10)
        self.assertEqual([there[30], there[10], there[20]], [3, 1, 2])
        self.assertEqual(np.count_nonzero(there), 3)
        with self.assertRaises(ValueError):
            transfer.post(local_index=[1, 2], remote_index=[1])
        with self.assertRaises(ValueError):
            transfer.post(local_index=[40], remote_index=[1])

    def test_transfer__of_fifteen_thousand_blocks(self):
        here, there = self.random.integers(0, 256, (15000, 512), np.uint8), np.zeros(
            (15000, 512), np.uint8
        )
        order = self.random.permutation(15000)
        peer = self.agent.connect(self.target.card(self.share(there)), 10)
        transfer = peer.write(self.agent.memory(here).blocks(order, 512), peer.blocks(0, bytes=512))
        self.assertEqual(transfer.state, 'prepared')
        transfer.post().wait(20)
        self.assertEqual(transfer.state, 'done')
        info = transfer.info()
        self.assertEqual(
            (info['blocks_done'], info['bytes_done'], info['is_drained']),
            (15000, here.nbytes, True),
        )
        self.assertEqual(transfer.block(14999), 'in place')
        np.testing.assert_array_equal(there, here[order])

    def test_transfer__between_kinds_of_memory(self):
        of = np.arange(1024, dtype=np.float64)
        there = np.zeros(1024)
        peer = self.agent.connect(self.target.card(self.share(Tensor(there))), 10)
        peer.write(self.agent.memory(Interface(of)).blocks(), peer.blocks('all')).post().wait(10)
        np.testing.assert_array_equal(there, of)

    def test_transfer__from_a_file(self):
        of = self.random.integers(0, 256, 10000, np.uint8)
        there = np.zeros(10000, np.uint8)
        with tempfile.TemporaryFile() as file:
            of.tofile(file)
            file.flush()
            memory = self.agent.file(file)
        self.assertEqual((len(memory), memory.kind, memory.readonly), (10000, 'file', True))
        peer = self.agent.connect(self.target.card(self.share(there)), 10)
        peer.write(memory.blocks(), peer.blocks()).post().wait(10)
        np.testing.assert_array_equal(there, of)
        with self.assertRaises(sidewire.Denied):
            peer.read(memory.blocks(), peer.blocks())

    def test_dmabuf__is_read_and_written_unmapped(self):
        of = os.memfd_create('exporter')  # what Sidewire takes for a DMA buffer
        there = np.arange(8192, dtype=np.uint8)
        self.addCleanup(os.close, of)
        os.ftruncate(of, 65536)
        memory = self.agent.dmabuf(of, 8192, offset=4096)
        self.assertEqual((len(memory), memory.kind, memory.readonly), (8192, 'dmabuf', False))
        with self.assertRaises(BufferError):
            memoryview(memory)
        peer = self.agent.connect(self.target.card(self.share(there)), 10)
        peer.read(memory.blocks(), peer.blocks()).post().wait(10)
        self.assertEqual(os.pread(of, 16384, 0), bytes(4096) + there.tobytes() + bytes(4096))
        os.pwrite(of, b'changed', 4096 + 100)
        peer.write(memory.blocks([1], 4096), peer.blocks('all', [0], 4096)).post().wait(10)
        np.testing.assert_array_equal(there[:4096], there[4096:])
        shared = self.target.dmabuf(of, 4096)
        reached = self.agent.connect(self.target.card(shared.lease('buffer', write=True)), 10)
        reached.write(
            self.agent.memory(b'reached').blocks(), reached.blocks('buffer', bytes=7, count=1)
        ).post().wait(10)
        self.assertEqual(os.pread(of, 8, 0), b'reached\0')
        with self.assertRaises(sidewire.InvalidArgument):
            self.agent.dmabuf(of, 0)

    def test_transfer__never_writes_what_can_only_be_read(self):
        there = np.zeros(16, np.uint8)
        peer = self.agent.connect(self.target.card(self.share(there)), 10)
        with self.assertRaises(sidewire.Denied):
            peer.read(self.agent.memory(b'0123456789abcdef').blocks(), peer.blocks())
        with self.assertRaises(PermissionError):
            self.target.memory(b'constant').lease(write=True)

    def test_transfer__keeps_what_it_uses(self):
        there = np.zeros(1 << 16, np.uint8)
        peer = self.agent.connect(self.target.card(self.share(there)), 10)
        transfer = peer.write(
            self.agent.memory(np.full(1 << 16, 7, np.uint8)).blocks(), peer.blocks()
        )
        del peer
        gc.collect()
        transfer.post().wait(10)
        self.assertTrue((there == 7).all())

    def test_blocks__that_do_not_fit_are_refused(self):
        there = np.zeros(100, np.uint8)
        peer = self.agent.connect(self.target.card(self.share(there)), 10)
        memory = self.agent.memory(np.zeros(100, np.uint8))
        for words in (
            {'bytes': 101},
            {'offset': 100},
            {'index': [10], 'bytes': 10},
            {'index': [1 << 62], 'bytes': 10},
            {'index': [-1], 'bytes': 10},
            {'index': [0]},
            {'count': 11, 'bytes': 10},
            {'index': [], 'bytes': 1},
            {'bytes': -1},
            {'stride': 4},
        ):
            for make in (memory.blocks, peer.blocks):
                with self.assertRaises(ValueError, msg=words):
                    make(**words)
        for index in (np.zeros((2, 2), int), np.zeros(2), 'text', 5):
            with self.assertRaises(TypeError, msg=index):
                memory.blocks(index, 1)
        for region in ('none', 1, 1 << 40):
            with self.assertRaises(ValueError):
                peer.blocks(region)

    def test_notice__comes_behind_the_data(self):
        here, there = np.full(1 << 16, 3, np.uint8), np.zeros(1 << 16, np.uint8)
        lease = self.share(there)
        peer = self.agent.connect(self.target.card(lease), 10)
        peer.write(self.agent.memory(here).blocks(), peer.blocks()).post(b'request 17').wait(10)
        notice = self.target.notice(10)
        self.assertEqual((notice.data, notice.instance), (b'request 17', self.agent.instance))
        self.assertTrue((there == 3).all())
        peer.notify(b'other').wait(10)
        peer.notify(b'wanted').wait(10)
        self.assertEqual(self.target.notice(10, match=b'wanted').data, b'wanted')
        self.assertEqual(self.target.try_notice().data, b'other')
        self.assertIsNone(self.target.try_notice())
        with self.assertRaises(TimeoutError):
            self.target.notice(0)
        with self.assertRaises(ValueError):
            peer.notify(b'x' * 1025)

    def test_card__says_what_is_there(self):
        leases = [
            self.share(np.zeros(10, np.uint8), 'first'),
            self.target.memory(np.zeros(20, np.uint8)).lease('second'),
        ]
        card = sidewire.Card(bytes(self.target.card(*leases)))
        self.assertEqual(card.regions, [('first', 10, True, True), ('second', 20, True, False)])
        self.assertEqual(
            (card.instance, card.version, len(card.addresses)), (self.target.instance, 1, 1)
        )
        leases[0].revoke()
        self.assertFalse(leases[0].granted)
        with self.assertRaises(ValueError):
            self.target.card(*leases)

    def test_wait__lets_other_threads_run(self):
        """A thread counts while another one is inside a wait that does not end by itself."""
        counted, over = [0], threading.Event()

        def count():
            while not over.is_set():
                counted[0] += 1

        thread = threading.Thread(target=count)
        thread.start()
        try:
            waiting = threading.Thread(
                target=lambda: self.assertRaises(TimeoutError, self.agent.notice, 2)
            )
            waiting.start()
            before, until = counted[0], time.monotonic() + served.LIMIT_S
            while counted[0] < before + 1000 and waiting.is_alive() and time.monotonic() < until:
                time.sleep(0.001)
            self.assertTrue(waiting.is_alive(), 'nothing else ran during the wait')
        finally:
            over.set()
            thread.join()
            waiting.join()


if __name__ == '__main__':
    unittest.main()
