#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""A write that an owner of a namespace still holds never lands over a newer one. usage:
test_ghost.py SIDEWIRE SEEDS [FIRST_SEED [KIND]]

KIND is file, which is what is said without it, tier, or tier-pmem, whose log lies on a pmem server.

`delay=` holds each operation of the owner for a while. Amid a write the owner is stopped (SIGSTOP),
so another member takes over, and a host writes newer data there. What the stopped one held must not
come any more. Where the fence is left out on purpose, it comes: the test sees that.

What a tier has is mostly in its log. So both members are killed at the end, and a host reads what
the next one has found there.
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
from programs import ports, say  # noqa: E402

DELAY_MS, BLOCK, BLOCKS = 150, 4096, 64
TRIES = 3
LOG_BYTES = 16 << 20
UNFENCED = 5  # seeds, until one shows a ghost
LANDS_S = 2 * DELAY_MS / 1000  # what is held has come by then


class Ghosts:
    def __init__(self, sidewire, folder, kind, options):
        port = ports.claim(8)
        self.disk = os.path.join(folder, 'disk')
        with open(self.disk, 'wb') as file:
            file.truncate(BLOCK * BLOCKS)
        self.sidewire, self.folder, self.kind, self.server = sidewire, folder, kind, None
        log = self.make_log(port + 6) if kind != 'file' else ''
        self.group = Group(
            [sidewire],
            folder,
            f'{kind.split("-")[0]}:{self.disk}{log},bs=4096,delay={DELAY_MS}ms{options}',
            port,
        )
        self.group.start_log()
        for i, name in enumerate('ab'):
            self.group.add(name, '127.0.0.1', port + 1 + 2 * i, port + 2 + 2 * i)
            self.group.members[-1].start().is_ready()

    def make_log(self, port):
        """The option of a tier."""
        log = os.path.join(self.folder, 'tier.log')
        if self.kind == 'tier':
            with open(log, 'wb') as file:
                os.posix_fallocate(file.fileno(), 0, LOG_BYTES)
            return f',log={log}'
        words = [self.sidewire, 'pmem', 'serve', log, '--size', str(LOG_BYTES)]
        words += ['--listen', f'127.0.0.1:{port}', '--control', log + '.control']
        self.server = subprocess.Popen(
            words,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            stdin=subprocess.DEVNULL,
        )
        return f',log=127.0.0.1:{port}/tier.log'

    def close(self):
        self.group.close()
        if self.server:
            self.server.kill()
            self.server.wait()

    def write(self, member, block, byte):
        data = os.path.join(self.folder, f'data{byte}')
        with open(data, 'wb') as file:
            file.write(bytes([byte]) * BLOCK)
        line = f'-a {member.address} -s {member.port} -n {NQN} -N 1 -k 0 -d {data}'
        return subprocess.Popen(
            [self.sidewire, 'nvme', 'write', *line.split(), '--start-block', str(block)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
        )

    def found(self, number):
        """What the next owner has of a block."""
        for member in self.group.members:
            member.kill()
        for member in self.group.members:
            member.start().is_ready()
        member, data = await_that(self.group.owner), os.path.join(self.folder, 'found')
        line = f'-a {member.address} -s {member.port} -n {NQN} -N 1 -k 0 -z {BLOCK} -d {data}'
        words = [self.sidewire, 'nvme', 'read', *line.split(), '--start-block', str(number)]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        if done.returncode:
            print(done.stdout, done.stderr)
            return None
        with open(data, 'rb') as file:
            return set(file.read(BLOCK))

    def block(self, number):
        with open(self.disk, 'rb') as file:
            file.seek(number * BLOCK)
            return set(file.read(BLOCK))

    def one(self, seed):
        """The bytes that are on the disk at the end, and those of the newer write."""
        self.bring_back()
        draw = random.Random(seed)
        block, old, new = draw.randrange(BLOCKS), draw.randrange(1, 128), draw.randrange(128, 256)
        owner = await_that(self.group.owner)
        others = [member for member in self.group.members if member is not owner]
        before = owner.status()['commands']
        late = self.write(owner, block, old)
        # The host's commands before the write are of the admin queue, and are not held.
        await_that(lambda: writes_wait(owner, before))
        time.sleep(draw.uniform(0, DELAY_MS / 4000))
        owner.signal(signal.SIGSTOP)
        heir = await_that(lambda: self.group.owner(*others))
        newer = self.write(heir, block, new) if heir else None
        if newer and newer.wait():
            print(newer.stdout.read().decode())
        owner.signal(signal.SIGCONT)
        time.sleep(LANDS_S)
        late.kill()
        late.communicate()
        if self.kind != 'file':
            return (self.found(block), {new}) if newer and not newer.returncode else (None, None)
        found = self.block(block)
        owner.kill()
        owner.start().is_ready()
        return (found, {new}) if newer and not newer.returncode else (None, None)

    def bring_back(self):
        """A member that a busy machine keeps from saying that it lives is taken for dead, and
        killed, also where it has given its namespace up by then: nobody else starts it anew."""
        for member in self.group.members:
            if member.process.poll() is not None:
                member.start().is_ready()

    def some(self, seed):
        """one(), once more if the next owner was none any more when the newer write came."""
        for _ in range(TRIES):
            found, newer = self.one(seed)
            if newer:
                break
        return found, newer


def writes_wait(owner, before):
    """The write has come; those of Connect, Identify and the like are about a dozen."""
    status = owner.status()
    return status and status['connections'] > 1 and status['commands'] > before + 3


def run(sidewire, kind, seeds, options, wants_ghost):
    with tempfile.TemporaryDirectory() as folder:
        ghosts = Ghosts(sidewire, folder, kind, options)
        try:
            for seed in seeds:
                found, newer = ghosts.some(seed)
                if wants_ghost and newer and found and found != newer:
                    break
                if newer is None or found != newer or (wants_ghost and seed == seeds[-1]):
                    for member in ghosts.group.members:
                        print(f'{member.name} says:\n{member.said()}')
                    return say(False, f'seed {seed}{options}', f'on the disk {found}, not {newer}')
        finally:
            ghosts.close()
    found = 'ghosts' if wants_ghost else 'no ghost'
    return say(True, f'{kind}: {seed - seeds[0] + 1} seeds{options}: {found}')


def main(sidewire, count, first, kind):
    haunts = kind != 'tier-pmem'  # the session of the next owner shuts the last one out, too
    tries = range(UNFENCED if haunts else 1)  # a busy machine may let a ghost come too late
    return run(sidewire, kind, range(first, first + count), '', False) and run(
        sidewire, kind, tries, ',unfenced', haunts
    )


if __name__ == '__main__':
    found_options = [*sys.argv[3:], *('0', 'file')[len(sys.argv[3:]) :]]
    sys.exit(not main(sys.argv[1], int(sys.argv[2]), int(found_options[0]), found_options[1]))
