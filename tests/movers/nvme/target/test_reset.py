#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""A host has lost its controller at one member of a group, and asks another one to reset it. When
that says that the controller is quiet, no write of it comes any more: not the one that the first
member still held (`delay=`), whether that member goes on, is stopped, or was started anew.

usage: test_reset.py SIDEWIRE [RESET-HOST]

Without RESET-HOST it is Sidewire's own host: stopped for longer than its keep-alive time, it loses
all paths amid a write, while the owner lives, so no fence proves anything. It asks by itself.
"""
import os
import signal
import subprocess
import sys
import tempfile
import time

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), '..'))
from group_members import NQN, Group, await_that  # noqa: E402
from programs import ports, say  # noqa: E402

DELAY_MS, SLOW_MS, BLOCK, BLOCKS, LBA, OLD, NEW = 500, 5000, 4096, 64, 5, 0x11, 0x22
LANDS_S = 2 * DELAY_MS / 1000  # what is held has come by then


class Host:
    def __init__(self, program, sidewire, owner, other):
        """The write is under way at the owner."""
        self.process = subprocess.Popen(
            [sidewire, 'run', program, owner.address, str(owner.port), str(other.port), NQN],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.said = self.process.stdout.readline().strip()

    def order(self, line):
        self.process.stdin.write(line + '\n')
        self.process.stdin.flush()
        self.said = self.process.stdout.readline().strip()
        return self.said

    def end(self):
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()


def block_of(disk):
    with open(disk, 'rb') as file:
        file.seek(LBA * BLOCK)
        return set(file.read(BLOCK))


def one(program, sidewire, group, disk, what, mishap, held):
    with open(disk, 'r+b') as file:
        file.write(bytes(BLOCK * BLOCKS))
    owner = await_that(group.owner)
    other = next(member for member in group.members if member is not owner)
    host = Host(program, sidewire, owner, other)
    try:
        time.sleep(DELAY_MS / 5000)  # it has come, and is held
        before = host.said
        mishap(owner)
        quiet = host.order('go')
        at_that = block_of(disk)
        time.sleep(LANDS_S)
        later = block_of(disk)
        heir = await_that(group.owner)
        done = host.order(f'go {heir.port}')
        found = block_of(disk)
    finally:
        host.end()
    owner.signal(signal.SIGCONT)
    return say(
        (before, quiet, done) == ('written', 'quiet', 'done')
        and at_that in held
        and (later, found) == (at_that, {NEW}),
        f'the member {what}: what is on the disk when its controller is quiet stays',
        f'{before}, {quiet}, {done}; on the disk {at_that}, later {later}, then {found}',
        *[f'{member.name} says:\n{member.said()}' for member in group.members],
    )


def begin_anew(member):
    member.kill()
    member.start().is_ready()


def own_host(sidewire):
    """One write, and the owner is slower than the host is patient."""
    with tempfile.TemporaryDirectory() as folder:
        port = ports.claim(6)
        disk, data = os.path.join(folder, 'disk'), os.path.join(folder, 'data')
        with open(disk, 'wb') as file:
            file.truncate(BLOCK * BLOCKS)
        with open(data, 'wb') as file:
            file.write(bytes([NEW]) * BLOCK)
        group = Group([sidewire], folder, f'file:{disk},bs=4096,delay={SLOW_MS}ms', port)
        group.start_log()
        try:
            for i, name in enumerate('ab'):
                group.add(name, '127.0.0.1', port + 1 + 2 * i, port + 2 + 2 * i)
                group.members[-1].start().is_ready()
            owner = await_that(group.owner)
            ways = ' '.join(f'-a {member.address}:{member.port}' for member in group.members)
            host = subprocess.Popen(
                [
                    *[sidewire, 'nvme', 'write', *ways.split(), '-n', NQN, '-d', data],
                    *f'--start-block {LBA} -k 1 -c 1 -l 60'.split(),
                ],
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            await_that(lambda: owner.status()['connections'] > 1)
            time.sleep(DELAY_MS / 1000)  # the write has come, and is held
            host.send_signal(signal.SIGSTOP)
            await_that(lambda: not owner.status()['connections'])
            host.send_signal(signal.SIGCONT)
            said = host.communicate(timeout=100)[0]
            return say(
                host.returncode == 0 and block_of(disk) == {NEW} and group.owner() is owner,
                'a write of a lost connection is sent again, though its owner lives',
                said,
                block_of(disk),
                *[f'{member.name} says:\n{member.said()}' for member in group.members],
            )
        finally:
            group.close()


def main(sidewire, program):
    with tempfile.TemporaryDirectory() as folder:
        port = ports.claim(6)
        disk = os.path.join(folder, 'disk')
        with open(disk, 'wb') as file:
            file.truncate(BLOCK * BLOCKS)
        group = Group([sidewire], folder, f'file:{disk},bs=4096,delay={DELAY_MS}ms', port)
        group.start_log()
        try:
            for i, name in enumerate('ab'):
                group.add(name, '127.0.0.1', port + 1 + 2 * i, port + 2 + 2 * i)
                group.members[-1].start().is_ready()
            owner = await_that(group.owner)
            good = one(program, sidewire, group, disk, 'goes on', lambda member: None, [{OLD}])
            good = (
                say(
                    'ended: its host asked another member' in owner.said(),
                    'the other member has asked it',
                    owner.said(),
                )
                and good
            )
            good = (
                one(program, sidewire, group, disk, 'is started anew', begin_anew, [{0}, {OLD}])
                and good
            )
            good = (
                one(
                    program,
                    sidewire,
                    group,
                    disk,
                    'is stopped',
                    lambda member: member.signal(signal.SIGSTOP),
                    [{0}],
                )
                and good
            )
        finally:
            group.close()
    return 0 if good else 1


if __name__ == '__main__':
    sys.exit(main(*sys.argv[1:]) if len(sys.argv) > 2 else not own_host(*sys.argv[1:]))
