# SPDX-License-Identifier: BSD-2-Clause
"""Our agent and a peer that was written from docs/transfer.md with pyverbs (spec_peer.py), each in
a process of its own."""
import contextlib
import json
import os
import random
import signal
import unittest

import served
import sidewire

try:
    import pyverbs.enums as e
    import spec_peer
except ImportError as why:
    print(f'SKIP: {why}')
    raise SystemExit(77) from None

LIMIT_S, SIZE = 60, 1 << 20
LAYOUT = b'16 heads, f16'

AGENT = '''
import json
layout, visitors, rails = sys.argv[1] or None, int(sys.argv[2]), sys.argv[3:]
array = np.arange(1 << 20, dtype=np.uint32).view(np.uint8)[:1 << 20].copy()
agent = sidewire.Agent('127.0.0.1', layout=layout, visitors=visitors, rails=rails)
memory = agent.memory(array)
leases = [memory.lease('all', write=True), memory.lease('read only', offset=4096, bytes=8192)]
print(agent.card(*leases).hex(), flush=True)
threading.Thread(target=agent.run, daemon=True).start()
for line in sys.stdin:
    word, *numbers = json.loads(line)
    if word == 'bytes':
        print(array[numbers[0]:numbers[0] + numbers[1]].tobytes().hex(), flush=True)
    elif word == 'notice':
        print(agent.notice(timeout=20).data.hex(), flush=True)
    elif word == 'none':
        print(agent.try_notice(), flush=True)
    elif word == 'lease':
        offset, size = numbers
        visitor = agent.notice(timeout=20).visitor
        lease = memory.lease('its own', write=True, offset=offset, bytes=size, visitor=visitor)
        leases.append(lease)
        print(json.dumps([leases[-1].is_window, agent.card(leases[-1]).hex()]), flush=True)
    elif word == 'revoke':
        leases[numbers[0]].revoke()
        print('', flush=True)
os._exit(0)
'''


class Agent:
    def __init__(self, layout='', visitors=64, rails=()):
        self.process = served.start(AGENT, layout, str(visitors), *rails)
        self.bytes = bytes.fromhex(self.process.stdout.readline())
        self.card = spec_peer.parse_card(self.bytes)

    def ask(self, *words):
        print(json.dumps(words), file=self.process.stdin, flush=True)
        return self.process.stdout.readline().strip()

    def close(self):
        self.process.kill()
        self.process.communicate()


class Specification(unittest.TestCase):
    def setUp(self):
        signal.alarm(LIMIT_S)  # pyverbs waits with the interpreter's lock held
        self.addCleanup(signal.alarm, 0)

    def agent(self, *args, **words):
        agent = Agent(*args, **words)
        self.addCleanup(agent.close)
        return agent

    def connection(self, agent, **words):
        return self.enterContext(contextlib.closing(spec_peer.Connection(agent.card, **words)))

    def refused(self, agent, **words):
        with self.assertRaises(spec_peer.Refused) as said:
            spec_peer.Connection(agent.card, **words)
        return said.exception.args

    def test_card__says_to_both_the_same(self):
        agent = self.agent('16 heads, f16')
        ours, theirs = sidewire.Card(agent.bytes), agent.card
        self.assertEqual(theirs.layout, spec_peer.layout_of(LAYOUT))
        self.assertEqual(
            [f'{address} port {port}' for address, port in theirs.addresses], list(ours.addresses)
        )
        self.assertEqual((theirs.instance, len(theirs.instance)), (ours.instance, 16))
        self.assertEqual(
            [(region.name, region.bytes) for region in theirs.regions],
            [('all', SIZE), ('read only', 8192)],
        )
        self.assertEqual(
            [region.rights for region in theirs.regions],
            [spec_peer.READ | spec_peer.WRITE, spec_peer.READ],
        )
        self.assertEqual(theirs.regions[1].address, theirs.regions[0].address + 4096)

    def test_blocks__are_read_and_written(self):
        agent, draw = self.agent(), random.Random(3)
        connection = self.connection(agent)
        self.assertEqual(connection.instance, agent.card.instance)
        for _ in range(20):
            at, size = draw.randrange(SIZE - 70000), draw.randrange(1, 70000)
            data = draw.randbytes(size)
            self.assertEqual(connection.write(agent.card.regions[0], at, data), e.IBV_WC_SUCCESS)
            self.assertEqual(
                connection.read(agent.card.regions[0], at, size), (e.IBV_WC_SUCCESS, data)
            )
            self.assertEqual(bytes.fromhex(agent.ask('bytes', at, size)), data)
        expected = bytes.fromhex(agent.ask('bytes', 4096, 8192))
        self.assertEqual(
            connection.read(agent.card.regions[1], 0, 8192), (e.IBV_WC_SUCCESS, expected)
        )

    def test_blocks__that_the_lease_does_not_allow(self):
        agent = self.agent()
        before = agent.ask('bytes', 4096, 8192)
        connection = self.connection(agent)
        self.assertEqual(connection.write(agent.card.regions[1], 0, b'x'), e.IBV_WC_REM_ACCESS_ERR)
        self.assertEqual(
            self.connection(agent).read(agent.card.regions[1], 8000, 193)[0],
            e.IBV_WC_REM_ACCESS_ERR,
        )
        agent.ask('revoke', 0)
        self.assertEqual(
            self.connection(agent).write(agent.card.regions[0], 4096, b'x'), e.IBV_WC_REM_ACCESS_ERR
        )
        self.assertEqual(agent.ask('bytes', 4096, 8192), before)

    def test_notices__are_taken_once_and_acknowledged(self):
        agent = self.agent()
        connection = self.connection(agent, instance=b'i' * 16, session=7)
        self.assertGreaterEqual(connection.notices, 1)
        data = random.Random(5).randbytes(connection.notice_bytes)
        for tag, notice in ((3, b'one'), (4, b''), (9, data), (9, b'twice'), (5, b'late')):
            self.assertEqual(connection.notice(tag, notice), tag)
        for notice in (b'one', b'', data):
            self.assertEqual(bytes.fromhex(agent.ask('notice')), notice)
        # A connection of the same session goes on; that of another begins anew.
        again = self.connection(agent, instance=b'i' * 16, session=7)
        self.assertEqual(connection.expect(spec_peer.ce.RDMA_CM_EVENT_DISCONNECTED)[:0], b'')
        self.assertEqual((again.notice(9, b'twice'), again.notice(10, b'ten')), (9, 10))
        self.assertEqual(
            self.connection(agent, instance=b'i' * 16, session=8).notice(1, b'other'), 1
        )
        self.assertEqual([bytes.fromhex(agent.ask('notice')) for _ in range(2)], [b'ten', b'other'])
        self.assertEqual(agent.ask('none'), 'None')

    def test_messages__that_end_the_connection(self):
        agent, pack = self.agent(), spec_peer.struct.pack
        for message in (
            pack('<IBBHQ', 0x4D585754, 1, 0, 16, 1),
            pack('<IBBHQ', 0x4D585753, 3, 0, 16, 1),
            pack('<IBBHQ', 0x4D585753, 7, 0, 16, 1),
            pack('<IBBHQ', 0x4D585753, 5, 0, 16, 1),
            pack('<IBBHQ', 0x4D585753, 2, 0, 16, 1),
            pack('<IBBHQ', 0x4D585753, 1, 0, 17, 1),
            pack('<IBBHQ', 0x4D585753, 1, 0, 16, 0),
            b'short',
        ):
            connection = self.connection(agent)
            connection.message(message)
            connection.expect(spec_peer.ce.RDMA_CM_EVENT_DISCONNECTED)
        self.assertEqual(agent.ask('none'), 'None')

    def test_connect__is_refused_with_a_reason(self):
        agent = self.agent('16 heads, f16', visitors=1)
        right = spec_peer.layout_of(LAYOUT)
        self.assertEqual(
            self.refused(agent, damage=lambda data: data[:4] + b'\2\0' + data[6:]), (1, 1)
        )
        self.assertEqual(self.refused(agent, damage=lambda data: b'x' + data[1:]), (1, 2))
        self.assertEqual(self.refused(agent, called=os.urandom(16)), (1, 3))
        self.assertEqual(self.refused(agent, layout=right ^ 1), (1, 4))
        # Layout and session 0, once padded.
        connection = spec_peer.Connection(
            agent.card, instance=b'a' * 16, damage=lambda data: data[:40]
        )
        connection.close()
        connection = spec_peer.Connection(agent.card, layout=right, instance=b'a' * 16)
        self.assertEqual(self.refused(agent, layout=0, instance=b'b' * 16), (1, 5))
        connection.close()

    def test_lanes__are_ended_by_each_other(self):
        agent, ended = (
            self.agent(rails=['127.0.0.2'], visitors=1),
            spec_peer.ce.RDMA_CM_EVENT_DISCONNECTED,
        )
        self.assertEqual(
            [address for address, _ in agent.card.addresses], ['127.0.0.1', '127.0.0.2']
        )
        first, second = (self.connection(agent, lane=lane, count=250) for lane in range(2))
        for lane, data in ((first, b'first'), (second, b'second')):
            self.assertEqual(lane.write(agent.card.regions[0], 9, data), e.IBV_WC_SUCCESS)
            self.assertEqual(bytes.fromhex(agent.ask('bytes', 9, len(data))), data)
        # One session: what one lane brought comes no more by the other.
        self.assertEqual(
            (first.notice(3, b'three'), second.notice(3, b'three'), second.notice(4, b'four')),
            (3, 3, 4),
        )
        # Not what was made since, then what was made before.
        self.assertEqual(second.end(5, 0, 250), 5)
        self.assertEqual(first.write(agent.card.regions[0], 9, b'alive'), e.IBV_WC_SUCCESS)
        self.assertEqual(second.end(6, 0, 251), 6)
        first.expect(ended)
        self.assertEqual(second.end(7, 0, 251), 7)
        again = self.connection(agent, lane=0, count=1)  # 257, modulo 256
        self.assertEqual((again.notice(4, b'four'), again.notice(8, b'eight')), (4, 8))
        self.assertEqual(self.refused(agent, lane=0, count=255), (1, 2))  # it came late
        self.assertEqual(self.refused(agent, instance=b'o' * 16), (1, 5))  # another visitor
        self.assertEqual(
            [bytes.fromhex(agent.ask('notice')) for _ in range(3)], [b'three', b'four', b'eight']
        )
        own_end = (0x4D585753, spec_peer.END, 0, 24, 9, 1, 251)
        second.message(spec_peer.struct.pack('<IBBHQBB6x', *own_end))
        second.expect(ended)
        self.assertEqual(again.write(agent.card.regions[0], 9, b'there'), e.IBV_WC_SUCCESS)
        # No such lane.
        self.assertEqual(
            self.refused(self.agent(), damage=lambda data: data[:6] + b'\1' + data[7:]), (1, 2)
        )

    def test_windows__one_for_each_lane(self):
        agent = self.agent(rails=['127.0.0.2'])
        lanes = [self.connection(agent, lane=lane, count=1) for lane in range(2)]
        lanes[0].notice(1, b'me')
        is_window, card = json.loads(agent.ask('lease', 4096, 8192))
        region = spec_peer.parse_card(bytes.fromhex(card)).regions[0]
        self.assertTrue(is_window)
        self.assertNotEqual(*region.keys)
        for lane, data in zip(lanes, (b'first', b'second')):
            self.assertEqual(lane.write(region, 9, data), e.IBV_WC_SUCCESS)
            self.assertEqual(bytes.fromhex(agent.ask('bytes', 4105, len(data))), data)
        # Each is of one queue pair. A lane that is made anew has it by the same key.
        before = agent.ask('bytes', 0, 16384)
        self.assertEqual(lanes[1].write(region, 0, b'x', region.keys[0]), e.IBV_WC_REM_ACCESS_ERR)
        self.assertEqual(
            self.connection(agent, instance=b's' * 16).write(region, 0, b'x'),
            e.IBV_WC_REM_ACCESS_ERR,
        )
        self.assertEqual(agent.ask('bytes', 0, 16384), before)
        lanes[1] = self.connection(agent, lane=1, count=2)
        for lane, data in zip(lanes, (b'going on', b'anew')):
            self.assertEqual(lane.write(region, 9, data), e.IBV_WC_SUCCESS)
            self.assertEqual(bytes.fromhex(agent.ask('bytes', 4105, len(data))), data)
        # Revoked while both are up: what comes late, by either, is taken no more.
        before = agent.ask('bytes', 0, 16384)
        agent.ask('revoke', -1)
        for lane in lanes:
            self.assertEqual(lane.write(region, 9, b'late'), e.IBV_WC_REM_ACCESS_ERR)
        self.assertEqual(
            self.connection(agent, lane=1, count=3).write(region, 9, b'late'),
            e.IBV_WC_REM_ACCESS_ERR,
        )
        self.assertEqual(agent.ask('bytes', 0, 16384), before)


if __name__ == '__main__':
    unittest.main()
