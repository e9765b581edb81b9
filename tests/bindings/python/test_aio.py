# SPDX-License-Identifier: BSD-2-Clause
"""Awaiting by asyncio: one thread, many transfers, the loop goes on."""
import asyncio
import signal
import unittest

import numpy as np
import served
import sidewire


class Awaiting(unittest.IsolatedAsyncioTestCase):
    async def asyncSetUp(self):
        self.agent = sidewire.Agent(stall_timeout=2)
        self.addCleanup(self.agent.close)

    async def test_await__peer_and_transfers_at_once(self):
        with served.server() as (_, card):
            peer = await self.agent.connect(card, wait=False)
            array = np.random.default_rng(1).integers(0, 256, (64, 4096), np.uint8)
            memory = self.agent.memory(array)
            transfers = [
                peer.write(memory.blocks([i], 4096), peer.blocks(0, [63 - i], 4096))
                for i in range(64)
            ]

            async def move(transfer):
                return await transfer.post()

            done = await asyncio.gather(*map(move, transfers))
            self.assertEqual(done, transfers)
            back = np.zeros_like(array)
            await peer.read(
                self.agent.memory(back).blocks(), peer.blocks(bytes=back.nbytes, count=1)
            ).post()
            np.testing.assert_array_equal(back, array[::-1])
            self.assertIsNone(self.agent._watcher)

    async def test_await__notices_of_two_agents_in_one_loop(self):
        with sidewire.Agent('127.0.0.1') as target:
            comes = asyncio.ensure_future(target.next_notice())
            await asyncio.sleep(0)
            peer = await self.agent.connect(target.card(), wait=False)
            await peer.notify(b'hello')
            self.assertEqual((await comes).data, b'hello')

    async def test_await__the_loop_goes_on(self):
        with served.server() as (process, card):
            peer = await self.agent.connect(card, wait=False)
            process.send_signal(signal.SIGSTOP)
            ticks, transfer = 0, peer.notify(b'is anybody there?', 0.2)
            task = asyncio.ensure_future(asyncio.wait_for(transfer, 10))
            while not task.done():
                await asyncio.sleep(0.001)
                ticks += 1
            self.assertIsInstance(task.exception(), sidewire.DeadlineExceeded)
            self.assertGreater(ticks, 3)
            process.send_signal(signal.SIGCONT)

    async def test_await__cancelled_cancels_the_transfer(self):
        with served.server() as (process, card):
            peer = await self.agent.connect(card, wait=False)
            process.send_signal(signal.SIGSTOP)
            transfer = peer.notify(b'is anybody there?')
            with self.assertRaises(asyncio.TimeoutError):
                await asyncio.wait_for(transfer, 0.1)
            with self.assertRaises(sidewire.Cancelled):
                await transfer
            process.send_signal(signal.SIGCONT)

    async def test_await__of_an_agent_that_is_closed(self):
        waits = asyncio.ensure_future(self.agent.next_notice())
        await asyncio.sleep(0.01)
        self.agent.close()
        with self.assertRaises(sidewire.InvalidArgument):
            await asyncio.wait_for(waits, 10)


if __name__ == '__main__':
    unittest.main()
