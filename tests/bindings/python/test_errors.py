# SPDX-License-Identifier: BSD-2-Clause
"""Ends that are not good ones: exceptions, peers that are killed, deadlines, forks, interpreters
that exit."""
import os
import signal
import struct
import threading
import time
import unittest

import numpy as np
import served
import sidewire


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def seal(card):
    """With the sum that belongs to its bytes."""
    card = bytearray(card)
    card[12:16] = bytes(4)
    card[12:16] = struct.pack('<I', crc32c(card))
    return bytes(card)


class Errors(unittest.TestCase):
    def setUp(self):
        self.agent = sidewire.Agent(stall_timeout=2)
        self.addCleanup(self.agent.close)

    def whole(self, peer, size):
        return self.agent.memory(np.full(size, 5, np.uint8)).blocks(), peer.blocks()

    def test_exceptions__are_those_that_python_knows(self):
        for name, base in (
            ('PeerGone', ConnectionError),
            ('DeadlineExceeded', TimeoutError),
            ('Denied', PermissionError),
            ('InstanceMismatch', sidewire.PeerGone),
        ):
            self.assertTrue(issubclass(getattr(sidewire, name), base))
            self.assertTrue(issubclass(getattr(sidewire, name), sidewire.Error))

    def test_card__of_another_version(self):
        with served.serving() as target:
            card = bytearray(target.card())
        self.assertEqual(sidewire.Card(seal(card)), sidewire.Card(bytes(card)))
        card[4] = 9
        for use in (sidewire.Card, self.agent.connect):
            with self.assertRaises(sidewire.VersionMismatch):
                use(seal(card))

    def test_card__that_is_damaged(self):
        with served.serving() as target:
            card = bytes(target.card(target.memory(bytearray(8)).lease('x')))
        for at in (0, 6, 8, 12, 20, 47, 50, len(card) - 1):
            bad = bytearray(card)
            bad[at] ^= 0x55
            with self.assertRaises(sidewire.BadCard, msg=at):
                sidewire.Card(bytes(bad))
        for bad in (b'', card[:-1], card + b'\0', b'text'):
            with self.assertRaises(ValueError):
                self.agent.connect(bad)

    def test_connect__with_another_layout(self):
        with served.serving(layout='heads 8') as target, sidewire.Agent(layout='heads 16') as other:
            with self.assertRaises(sidewire.LayoutMismatch):
                other.connect(target.card(), 5)

    def test_connect__to_an_agent_that_is_gone(self):
        with served.serving() as target:
            card = target.card()
        with self.assertRaises(ConnectionError):
            self.agent.connect(card, 20)

    def test_lease__revoked_denies(self):
        array = np.zeros(4096, np.uint8)
        with served.serving() as target:
            lease = target.memory(array).lease('all', write=True)
            peer = self.agent.connect(target.card(lease), 10)
            transfer = peer.write(*self.whole(peer, 4096))
            lease.revoke()
            with self.assertRaises(sidewire.Denied):
                transfer.post().wait(10)
            self.assertEqual(transfer.state, 'failed')
            self.assertFalse(array.any())

    def test_transfer__to_a_peer_that_is_killed(self):
        with served.server(8 << 20) as (process, card):
            peer = self.agent.connect(card, 10)
            transfer = peer.write(*self.whole(peer, 8 << 20))
            transfer.post().wait(10)
            process.send_signal(signal.SIGKILL)
            with self.assertRaises(sidewire.PeerGone):
                for _ in range(1000):
                    transfer.post().wait(10)
            with self.assertRaises(sidewire.PeerGone):
                transfer.post()
            self.assertEqual(peer.state, 'gone')

    def stopped(self, process, peer):
        """A notice that nobody confirms: its peer is stopped."""
        process.send_signal(signal.SIGSTOP)
        self.addCleanup(process.send_signal, signal.SIGCONT)
        return peer

    def test_transfer__whose_sums_differ(self):
        here, there = np.full((3, 4096), 5, np.uint8), np.zeros((3, 4096), np.uint8)
        with served.serving() as target:
            peer = self.agent.connect(
                target.card(target.memory(there).lease('x', write=True)), timeout=served.LIMIT_S
            )
            transfer = peer.write(
                self.agent.memory(here).blocks(bytes=4096), peer.blocks(bytes=4096), sums=True
            )
            transfer.post(b'told').wait(served.LIMIT_S)
            self.assertEqual(target.notice(timeout=served.LIMIT_S).data, b'told')
            transfer.post(b'not told')
            # On one host post() has moved the data; it is compared when it is waited for.
            here[1, 7] = 6
            with self.assertRaises(sidewire.Corrupt):
                transfer.wait(served.LIMIT_S)
            self.assertEqual(
                [transfer.block(i) for i in range(3)], ['in place', 'corrupt', 'in place']
            )
            self.assertEqual(transfer.info()['blocks_done'], 2)

    def test_transfer__by_a_deadline(self):
        with served.server() as (process, card):
            peer = self.stopped(process, self.agent.connect(card, 10))
            transfer = peer.notify(b'is anybody there?', 0.1)
            with self.assertRaises(sidewire.DeadlineExceeded):
                transfer.wait(10)
            self.assertEqual(transfer.state, 'failed')

    def test_transfer__cancelled_by_another_thread(self):
        with served.server() as (process, card):
            peer = self.stopped(process, self.agent.connect(card, 10))
            transfer = peer.notify(b'is anybody there?')
            with self.assertRaises(sidewire.WaitTimeout):
                transfer.wait(0.05)
            self.assertEqual(transfer.state, 'posted')
            threading.Timer(0.1, transfer.cancel).start()
            with self.assertRaises(sidewire.Cancelled):
                transfer.wait(10)
            self.assertEqual(transfer.state, 'cancelled')

    def test_transfer__that_is_dropped_while_it_is_posted(self):
        with served.server() as (process, card):
            peer = self.stopped(process, self.agent.connect(card, 10))
            peer.notify(b'is anybody there?')  # nobody keeps it
            with self.assertRaises(sidewire.WaitTimeout):
                peer.agent.notice(0.05)

    def test_agent__closed_under_all_that_it_has(self):
        with served.server() as (_, card):
            peer = self.agent.connect(card, 10)
            local, remote = self.whole(peer, 1 << 20)
            transfer = peer.write(local, remote).post()
            self.agent.close()
            for use in (
                transfer.wait,
                transfer.post,
                transfer.cancel,
                peer.wait,
                peer.blocks,
                local.__len__,
                self.agent.poll,
                lambda: peer.write(local, remote),
                lambda: self.agent.memory(bytearray(8)),
                lambda: self.agent.connect(card),
            ):
                with self.assertRaises(sidewire.InvalidArgument):
                    use()
            self.assertTrue(self.agent.closed)

    def test_agent__closed_while_another_thread_waits(self):
        threading.Timer(0.1, self.agent.close).start()
        with self.assertRaises(sidewire.InvalidArgument):
            self.agent.notice(20)

    def test_agent__options_out_of_bounds(self):
        for words in (
            {'visitors': 0},
            {'visitors': 5000},
            {'depth': 1},
            {'layout': -1},
            {'port': 'x', 'address': '127.0.0.1'},
            {'address': 'no such host.invalid'},
        ):
            with self.assertRaises((sidewire.Error, OverflowError), msg=words):
                sidewire.Agent(**words)


class Processes(unittest.TestCase):
    def test_exit__with_transfers_under_way(self):
        with served.server(16 << 20) as (_, card):
            for end in (
                'pass',
                'sys.exit(3)',
                'raise SystemExit(3)',
                'threading.Thread(target=transfers[0].wait, daemon=True).start()',
                'del agent, peer, array',
                'agent.close()',
            ):
                status, _, error = served.run(
                    f'''
                    agent = sidewire.Agent()
                    peer = agent.connect(bytes.fromhex(sys.argv[1]), 10)
                    transfers = []
                    for i in range(8):
                        array = np.full(2 << 20, i, np.uint8)
                        target = peer.blocks(bytes=2 << 20, count=1)
                        transfer = peer.write(agent.memory(array).blocks(), target)
                        transfers.append(transfer.post())
                    del transfer, target
                    {end}
                ''',
                    card.hex(),
                )
                self.assertEqual((status, error), (3 if '3' in end else 0, ''), end)

    def test_exit__of_a_server_that_serves(self):
        status, out, error = served.run(
            '''
            agent = sidewire.Agent('127.0.0.1')
            card = agent.card(agent.memory(np.zeros(100)).lease('x', write=True))
            threading.Thread(target=agent.run, daemon=True).start()
            time.sleep(0.05)
            print('ends')
        '''
        )
        self.assertEqual((status, out, error), (0, 'ends\n', ''))

    def test_interrupt__ends_a_wait(self):
        process = served.start(
            '''
            agent = sidewire.Agent('127.0.0.1')
            print('waits', flush=True)
            try:
                agent.notice()
            except KeyboardInterrupt:
                print('interrupted')
        '''
        )
        self.assertEqual(process.stdout.readline(), 'waits\n')
        time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        out, error = process.communicate(timeout=served.LIMIT_S)
        self.assertEqual((process.returncode, out, error), (0, 'interrupted\n', ''))

    def test_fork__leaves_the_parent_alone(self):
        with served.server() as (_, card):
            status, out, error = served.run(
                '''
                agent = sidewire.Agent()
                peer = agent.connect(bytes.fromhex(sys.argv[1]), 10)
                array = np.full(1 << 20, 3, np.uint8)
                transfer = peer.write(agent.memory(array).blocks(), peer.blocks())
                transfer.post()
                child = os.fork()
                if not child:
                    said = []
                    register = lambda: agent.memory(bytearray(8))
                    for use in (transfer.wait, transfer.post, agent.poll, peer.wait, register):
                        try:
                            use()
                        except sidewire.Forked:
                            said.append('forked')
                    print(*said, flush=True)
                    agent.close()
                    del transfer, peer, agent
                    sys.exit(0)
                print('child', os.waitpid(child, 0)[1], flush=True)
                transfer.wait(10)
                transfer.post().wait(10)
                print(transfer.state)
            ''',
                card.hex(),
            )
        self.assertEqual(
            (status, out, error), (0, 'forked forked forked forked forked\nchild 0\ndone\n', '')
        )

    def test_fork__while_another_thread_is_in_the_agent(self):
        status, out, error = served.run(
            '''
            import multiprocessing
            agent = sidewire.Agent('127.0.0.1')
            threading.Thread(target=agent.run, daemon=True).start()
            context = multiprocessing.get_context('fork')
            for i in range(20):
                child = context.Process(target=lambda: None)
                child.start()
                child.join(20)
                assert child.exitcode == 0, child.exitcode
            print('fine')
        '''
        )
        self.assertEqual((status, out, error), (0, 'fine\n', ''))


if __name__ == '__main__':
    unittest.main()
