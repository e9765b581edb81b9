#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""A flush fails at one member of a group: what hosts wrote may be lost. The next owner fails
flushes, too, as do all members that are active, and one that starts anew, until somebody says that
the disk is sound. usage: test_failed_disk.py SIDEWIRE FAILING_DISK
"""
import os
import subprocess
import sys
import tempfile

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), '..'))
from group_members import NQN, Group, await_that  # noqa: E402
from programs import ports, say  # noqa: E402

BLOCK, BLOCKS = 4096, 256


class World:
    def __init__(self, sidewire, library, folder, active):
        self.sidewire, self.mark = sidewire, os.path.join(folder, 'failing')
        self.disk = os.path.join(folder, 'disk')
        with open(self.disk, 'wb') as file:
            file.truncate(BLOCKS * BLOCK)
        port = ports.claim(5)
        self.group = Group([sidewire], folder, f'file:{self.disk},bs={BLOCK}', port)
        self.group.options = ['--active', active]
        self.group.start_log()
        for i, name in enumerate('ab'):
            member = self.group.add(name, '127.0.0.1', port + 1 + 2 * i, port + 2 + 2 * i)
            member.command = ['env', f'LD_PRELOAD={library}', f'FAILING_DISK={self.mark}', sidewire]
            member.start().is_ready()

    def write(self, member):
        """A write and its flush: whether they went well."""
        where = f'-a {member.address} -s {member.port} -n {NQN} -N 1 -k 0 -d {self.disk}.data'
        with open(f'{self.disk}.data', 'wb') as file:
            file.write(bytes([7]) * BLOCK)
        words = [self.sidewire, 'nvme', 'write', *where.split(), '--start-block', '3']

        def is_served():
            done = subprocess.run(words, capture_output=True, text=True, check=False)
            # Where all are active, no member may have this host yet.
            return 'Asymmetric Access' not in done.stderr and done

        done = await_that(is_served)
        return done and not done.returncode, done and done.stderr

    def fail_disk(self, is_failing):
        if is_failing:
            open(self.mark, 'w', encoding='utf-8').close()
        else:
            os.unlink(self.mark)

    def known_by(self, member):
        """The error of the disk, as its status shows it."""
        return member.status()['subsystems'][0]['namespaces'][0]['disk_error']


def one_active(world):
    group = world.group
    owner = await_that(group.owner)
    good = say(world.write(owner)[0], 'a write and a flush of a sound disk')
    world.fail_disk(True)
    good &= say(not world.write(owner)[0], 'a flush fails')
    world.fail_disk(False)
    good &= say(
        await_that(lambda: 'Input/output' in (group_error(owner) or '')), 'the group knows of it'
    )
    owner.kill()
    heir = await_that(lambda: group.owner(*[one for one in group.members if one is not owner]))
    is_well, said = world.write(heir)
    good &= say(not is_well, 'at the next owner flushes fail, too', said)
    owner.start().is_ready()
    good &= say(bool(owner.ask('clear', '--namespace', '1')), 'an operator says that it is sound')
    await_that(lambda: not world.known_by(heir))
    is_well, said = world.write(heir)
    good &= say(is_well, 'and the owner flushes again', said)
    good &= say(not owner.ask('clear', '--namespace', '9'), 'a namespace that is none is refused')
    return good


def group_error(member):
    owners = member.status().get('group', {}).get('owners', [])
    return owners[0].get('disk_error') if owners else None


def all_active(world):
    first, other = world.group.members
    world.fail_disk(True)
    good = say(not world.write(first)[0], 'all active: a flush fails')
    world.fail_disk(False)
    good &= say(bool(await_that(lambda: world.known_by(other))), 'the other member knows of it')
    is_well, said = world.write(other)
    good &= say(not is_well, 'and fails flushes, too', said)
    for member in world.group.members:
        member.kill()
    for member in world.group.members:
        member.start().is_ready()
    good &= say(
        bool(await_that(lambda: world.known_by(first))), 'so do members that are started anew'
    )
    other.ask('clear', '--namespace', '1')
    good &= say(await_that(lambda: not world.known_by(first)), 'until an operator has looked')
    is_well, said = world.write(first)
    return good & say(is_well, 'and flushes go on', said)


def main(sidewire, library):
    good = True
    for active, check in ('one', one_active), ('all', all_active):
        with tempfile.TemporaryDirectory() as folder:
            world = World(sidewire, os.path.abspath(library), folder, active)
            try:
                good &= check(world)
            finally:
                world.group.close()
    return good


if __name__ == '__main__':
    sys.exit(not main(os.path.abspath(sys.argv[1]), sys.argv[2]))
