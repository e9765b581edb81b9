#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""The wire of an owner is cut while it holds a write: another member takes over, and the old write
never lands over a newer one. usage: test_cut.py SIDEWIRE FIRST_SEED SEEDS

Members are in network namespaces, and each goes on in its own. The first one has a slow disk
(`delay=`): it holds the write for longer than the group waits for it. Where the fence is left out
on purpose, the old write comes: the test sees that.
"""
import os
import random
import signal
import subprocess
import sys
import tempfile
import time

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), '..'))
from group_members import NQN, Group, await_that  # noqa: E402
from programs import say  # noqa: E402
from test_ghost import writes_wait  # noqa: E402
from wires import Skip, Wires  # noqa: E402

BLOCK, BLOCKS, PORT = 4096, 64, 4420
HOLDS_MS, HOLDS_LONG_MS = 3000, 8000  # the latter where nothing but time is to end it
SLOW, FAST = 0, 1  # the members
STARTS = 3  # a wire that has just come back may lose the first words


class Cuts:
    def __init__(self, sidewire, folder, wires, options, holds_ms):
        self.wires, self.folder, self.holds_s = wires, folder, holds_ms / 1000
        self.disk, self.hosts = os.path.join(folder, 'disk'), wires.inside(wires.hub) + [sidewire]
        with open(self.disk, 'wb') as file:
            file.truncate(BLOCK * BLOCKS)
        self.group = Group(self.hosts, folder, f'file:{self.disk},bs=4096{options}', PORT + 9)
        self.group.log_address = wires.hub_address
        self.group.start_log()
        for i, name in enumerate('ab'):
            member = self.group.add(name, wires.addresses[i], PORT, PORT + 1)
            member.command = wires.inside(wires.names[i]) + [sidewire]
            member.group_address = wires.addresses[i]
        self.slow, self.fast = self.group.members
        self.slow.namespace += f',delay={holds_ms}ms'

    def begin(self):
        """The slow one is the owner; the other one waits."""
        self.slow.start()
        owns = self.slow.is_ready() and await_that(self.slow.serves)
        self.fast.start()
        return owns and self.fast.is_ready()

    def again(self):
        """The same once more, after the other one has taken over. It leaves, and may have no time
        to say so on a machine that is busy."""
        self.slow.kill()
        good = any(self.slow.start().is_ready() for _ in range(STARTS))
        self.fast.end()
        good = good and await_that(self.slow.serves)
        return good and any(self.fast.start().is_ready() for _ in range(STARTS))

    def write(self, member, block, byte):
        data = os.path.join(self.folder, f'data{byte}')
        with open(data, 'wb') as file:
            file.write(bytes([byte]) * BLOCK)
        line = f'-a {member.address} -s {PORT} -n {NQN} -N 1 -k 0 -d {data}'
        return subprocess.Popen(
            [*self.hosts, 'nvme', 'write', *line.split(), '--start-block', str(block)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
        )

    def block(self, number):
        with open(self.disk, 'rb') as file:
            file.seek(number * BLOCK)
            return set(file.read(BLOCK))

    def one(self, seed):
        """The bytes on the disk at the end, and that of the newer write; None: it was not done."""
        draw = random.Random(seed)
        block, old, new = draw.randrange(BLOCKS), draw.randrange(1, 128), draw.randrange(128, 256)
        before = self.slow.status()['commands']
        late = self.write(self.slow, block, old)
        await_that(lambda: writes_wait(self.slow, before))
        time.sleep(draw.uniform(0.2, 0.5))
        began, removes = time.monotonic(), draw.random() < 0.5
        self.wires.cut(SLOW, removes)
        newer = await_that(self.fast.serves) and self.write(self.fast, block, new)
        said = newer.communicate()[0] if newer else b'the other member does not take over'
        done_s = time.monotonic() - began
        if not newer or newer.returncode:
            print(said.decode())
            new = None
        time.sleep(max(0, self.holds_s - done_s) + 0.3)
        late.kill()
        late.communicate()
        found = self.block(block)
        self.wires.mend(SLOW, removes)
        return found, new, done_s

    def end_of_slow(self):
        return self.slow.process.poll()


def run(sidewire, seeds, options, holds_ms, wants_ghost):
    wires, waits = Wires(2), []
    with tempfile.TemporaryDirectory() as folder:
        cuts = Cuts(sidewire, folder, wires, options, holds_ms)
        try:
            good = cuts.begin()
            for seed in seeds:
                found, newer, done_s = cuts.one(seed) if good else (None, None, 0)
                waits.append(done_s)
                is_ghost = found != {newer}
                was_fenced = cuts.end_of_slow() == -signal.SIGKILL
                if newer is None or is_ghost != wants_ghost or was_fenced == wants_ghost:
                    for member in cuts.group.members:
                        print(f'{member.name} says:\n{member.said()[-3000:]}')
                    return say(False, f'seed {seed}{options}', f'on the disk {found}, not {newer}')
                good = wants_ghost or cuts.again()
                if len(waits) % 20 == 0:
                    print(f'    {len(waits)} seeds', flush=True)
        finally:
            cuts.group.close()
            wires.close()
    return say(
        True,
        f'{len(waits)} seeds{options}: {"ghosts" if wants_ghost else "no ghost"}; newer data after '
        f'{min(waits):.1f} to {max(waits):.1f} s',
    )


def main(sidewire, first, count):
    seeds = range(int(first), int(first) + int(count))
    try:
        return run(sidewire, seeds, '', HOLDS_MS, False) and run(
            sidewire, seeds[:1], ',unfenced', HOLDS_LONG_MS, True
        )
    except Skip as reason:
        print(f'SKIP: {reason}')
        sys.exit(77)


if __name__ == '__main__':
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # the processes end, too
    sys.exit(not main(*sys.argv[1:]))
