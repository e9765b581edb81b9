# SPDX-License-Identifier: BSD-2-Clause
"""Awaiting: an event loop watches the agent's descriptor while somebody awaits something of it.

One loop at a time may watch an agent. A thread that waits for the same agent may take what the loop
would wake up for, so the loop looks again every LOOK_S at the latest.
"""
import asyncio

from ._engine import Error

LOOK_S = 0.05


class Watcher:
    """What one loop awaits of one agent: futures, each with a question that has an answer, None or
    an exception."""

    def __init__(self, agent, loop):
        self.agent, self.loop, self.waiting, self.timer = agent, loop, {}, None
        self.fd = agent.fileno()
        loop.add_reader(self.fd, self.turn)

    def add(self, question):
        future = self.loop.create_future()
        self.waiting[future] = question
        self.loop.call_soon(self.turn)
        return future

    def answer(self):
        for future, question in list(self.waiting.items()):
            if future.done():  # cancelled by the task that awaited it
                del self.waiting[future]
                continue
            try:
                result = question()
            except Exception as error:
                future.set_exception(error)
                del self.waiting[future]
                continue
            if result is not None:
                future.set_result(result)
                del self.waiting[future]

    def turn(self):
        if self.agent._watcher is not self:
            return
        if self.timer:
            self.timer.cancel()
            self.timer = None
        is_armed = True
        try:
            self.agent.poll()
            self.answer()
            is_armed = not self.waiting or self.agent.arm()
        except Error:  # the agent was closed
            self.answer()
        if not self.waiting:
            self.end()
        elif is_armed:
            self.timer = self.loop.call_later(LOOK_S, self.turn)
        else:
            self.loop.call_soon(self.turn)

    def end(self):
        self.loop.remove_reader(self.fd)
        self.agent._watcher = None


def ask(agent, question):
    """A future of the answer."""
    loop = asyncio.get_running_loop()
    watcher = agent._watcher
    if watcher and watcher.loop is not loop:
        if not watcher.loop.is_closed():
            raise RuntimeError('another event loop awaits something of this agent')
        watcher = None
    if not watcher:
        watcher = agent._watcher = Watcher(agent, loop)
    return watcher.add(question)


async def finish(thing):
    try:
        return await ask(thing.agent, thing._result)
    except asyncio.CancelledError:
        if hasattr(thing, 'cancel'):
            thing.cancel()
        raise


def iterate(thing):
    """__await__ of transfers and peers."""
    return finish(thing).__await__()


async def next_notice(agent):
    return await ask(agent, agent.try_notice)
