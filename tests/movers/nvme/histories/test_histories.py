#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""What several hosts see of a block that members of a group serve is linearizable, whoever is
killed, stopped or restarted. usage:
test_histories.py SIDEWIRE HISTORY_HOST FIRST_SEED SEEDS [one|all [file|tier]]

Each seed is a round: three hosts with a path to each of three members read, write and compare four
blocks, and trouble of the seed comes. With `all`, all members are active, each for some of the
hosts: an owner is a member that has one. Where the fence is left out on purpose, the checker finds
it. A `tier` has its log in a file, and memory for reads.
"""
import collections
import os
import random
import signal
import subprocess
import sys
import tempfile
import time

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), '..'))
from group_members import LIMIT_S, NQN, Group, await_that  # noqa: E402
from history import History  # noqa: E402
from programs import ports, say  # noqa: E402

HOSTS, BLOCKS, BLOCK, DEPTH, GAP_US = 3, 4, 4096, 3, 4000
TIMEOUT_S = 1  # of the group
HOST_STOPS_S = 3  # its keep-alive time is one
STARTS = 3  # of a member: a log that is busy may not answer it in time
TIER_LOG_BYTES = 5 << 20
DELAY_MS = 150  # of a disk that holds what it is to do
NEWER = 2 * HOSTS * DEPTH  # writes, after which each block has newer data than a silent owner
PLANTED = 15  # rounds, in one of which the fault that was planted must show: many do not


class Host:
    """history_host as a process, and what it tells."""

    def __init__(self, world, number, first_block, seed):
        self.name, self.path = f'host{number}', os.path.join(world.folder, f'host{number}')
        where = ','.join(f'{one.address}:{one.port}' for one in world.group.members)
        words = [where, NQN, number, first_block, BLOCKS, DEPTH, GAP_US, seed]
        with open(self.path, 'wb') as out:
            self.process = subprocess.Popen(
                [*world.host_words(number), *map(str, words)], stdout=out, stderr=subprocess.STDOUT
            )

    def told(self):
        with open(self.path, encoding='utf-8', errors='replace') as file:
            return file.read()

    def is_ready(self):
        await_that(lambda: 'ready\n' in self.told() or self.process.poll() is not None)
        return self.process.poll() is None

    def end(self):
        """Whether it has ended well, with all its requests, or was killed on purpose."""
        if self.process.poll() is None:
            self.process.terminate()
        try:
            return self.process.wait(timeout=LIMIT_S) in (0, -signal.SIGKILL)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            return False


class World:
    def __init__(self, sidewire, program, folder, options, active, members=3, kind='file'):
        port = ports.claim(1 + 2 * members)
        self.folder, self.host_command = folder, [sidewire, 'run', '--', program]
        self.disk = os.path.join(folder, 'disk')
        with open(self.disk, 'wb') as file:
            file.truncate(64 << 20)
        log = self.make_log() if kind == 'tier' else ''
        self.group = Group([sidewire], folder, f'{kind}:{self.disk}{log},bs=4096{options}', port)
        self.group.timeout_s = TIMEOUT_S
        self.group.options = ['--active', active]
        self.group.start_log()
        for i in range(members):
            name = 'abc'[i]
            self.group.add(name, '127.0.0.1', port + 1 + 2 * i, port + 2 + 2 * i)
            self.group.members[-1].start().is_ready()
        self.hosts, self.rounds, self.all_dead, self.came = [], 0, 0, []

    def make_log(self):
        """The option of a tier."""
        path = os.path.join(self.folder, 'tier.log')
        with open(path, 'wb') as file:
            os.posix_fallocate(file.fileno(), 0, TIER_LOG_BYTES)
        return f',log={path},ram=1M'

    def host_words(self, _):
        """How a host's program is begun."""
        return self.host_command

    def owner(self):
        """The member that serves. A group that nobody serves for so long has failed. A member that
        comes back from a cut, or has had no processor, may take all others for dead and kill them,
        just before the test kills it: nobody else starts them anew then."""
        owner = await_that(lambda: self.group.owner() or not self.lives())
        if not self.lives():
            self.all_dead += 1
            print(f'    all members are dead, after {", ".join(self.came)}', flush=True)
            self.revive()
            owner = await_that(self.group.owner)
        if not owner:
            raise AssertionError('nobody serves:\n' + '\n'.join(map(self.tell, self.group.members)))
        return owner

    def lives(self):
        return any(member.process.poll() is None for member in self.group.members)

    def tell(self, member):
        status = member.process.poll()
        group = member.status().get('group', {}) if status is None else {}
        return f'{member.name}: {group.get("role", f"ended, {status}")}\n{member.said()[-2000:]}'

    def revive(self):
        """Members that have ended come again. One that has crashed is a failure."""
        for member in self.group.members:
            tries = STARTS
            while member.process.poll() is not None and tries:
                if member.process.poll() not in (0, 1, -signal.SIGKILL):
                    raise AssertionError(f'crashed: {self.tell(member)}')
                member.start().is_ready()
                tries -= 1

    def round(self, seed, kinds):
        """The history, and which troubles came; None: something did not go on."""
        draw = random.Random(seed)
        first, self.rounds = BLOCKS * self.rounds, self.rounds + 1
        self.hosts = [Host(self, i + 1, first, seed) for i in range(HOSTS)]
        good = all([host.is_ready() for host in self.hosts])
        self.came = came = []
        if not good:
            return None, came
        for _ in range(draw.choice((1, 2))):
            time.sleep(draw.uniform(0.1, 0.5))
            kind = draw.choice(kinds)
            came.append(kind.__name__)
            kind(self, draw)
            self.owner()
            self.revive()
        time.sleep(draw.uniform(0.1, 0.4))
        good = all([host.end() for host in self.hosts]) and good
        history = History()
        for host in self.hosts:
            history.add_host(host.name, host.told())
        return (history if good else None), came

    def close(self):
        for host in self.hosts:
            if host.process.poll() is None:
                host.process.kill()
            host.process.wait()
        self.group.close()


def writes_of(member):
    return member.status()['subsystems'][0]['namespaces'][0]['writes']


# ---- trouble ----


def owner_killed(world, _):
    world.owner().signal(signal.SIGKILL)


def owner_leaves(world, _):
    world.owner().end()


def owner_stopped(world, _):
    """Until another one serves; it goes on then, unless it was fenced."""
    owner = world.owner()
    owner.signal(signal.SIGSTOP)
    await_that(lambda: world.group.owner(*[m for m in world.group.members if m is not owner]))
    if owner.process.poll() is None:
        owner.signal(signal.SIGCONT)


def await_writes(member, more):
    """Until that member has done so many more writes."""
    before = writes_of(member)
    await_that(lambda: writes_of(member) > before + more)


def wake_late(owner, has_all):
    """An owner that hosts keep busy is silent until the heir has newer data in all blocks. What it
    holds is done then. has_all: returns the heir, once that serves all hosts."""
    await_writes(owner, HOSTS * DEPTH)
    owner.signal(signal.SIGSTOP)
    await_writes(await_that(has_all), NEWER)
    owner.signal(signal.SIGCONT)
    time.sleep(3 * DELAY_MS / 1000)


def owner_wakes_late(world, _):
    owner = world.owner()
    others = [one for one in world.group.members if one is not owner]
    wake_late(owner, lambda: world.group.owner(*others))


def active_wakes_late(world, _):
    """The same where all are active: all hosts have gone on at the other member."""
    owner = world.owner()
    heir = [one for one in world.group.members if one is not owner][0]
    wake_late(owner, lambda: len(heir.hosts()) == HOSTS and heir)


def owner_pauses(world, draw):
    """For about as long as the group waits for it."""
    owner = world.owner()
    owner.signal(signal.SIGSTOP)
    time.sleep(draw.uniform(0.1, 2 * TIMEOUT_S))
    if owner.process.poll() is None:
        owner.signal(signal.SIGCONT)


def standby_killed(world, draw):
    owner = world.owner()
    draw.choice([one for one in world.group.members if one is not owner]).signal(signal.SIGKILL)


def two_killed(world, draw):
    """The owner, and the next one before or after it serves."""
    world.owner().signal(signal.SIGKILL)
    time.sleep(draw.uniform(0, 0.6))
    left = [one for one in world.group.members if one.process.poll() is None]
    draw.choice(left).signal(signal.SIGKILL)


def host_stopped(world, draw):
    host = draw.choice(world.hosts)
    host.process.send_signal(signal.SIGSTOP)
    time.sleep(draw.uniform(0.1, HOST_STOPS_S))
    host.process.send_signal(signal.SIGCONT)


def host_killed(world, draw):
    draw.choice(world.hosts).process.kill()


def host_stopped_amid_change(world, draw):
    """A host sleeps while the owner is killed and newer data is written; it goes on later."""
    host = draw.choice(world.hosts)
    host.process.send_signal(signal.SIGSTOP)
    world.owner().signal(signal.SIGKILL)
    world.owner()
    time.sleep(draw.uniform(0, 0.5))
    host.process.send_signal(signal.SIGCONT)


ALL = [
    owner_killed,
    owner_leaves,
    owner_stopped,
    owner_pauses,
    standby_killed,
    two_killed,
    host_stopped,
    host_killed,
    host_stopped_amid_change,
]


def tell_failure(world, seed, came, history, why):
    for member in world.group.members:
        print(f'{member.name} says:\n{member.said()[-4000:]}')
    for host in world.hosts:
        print(f'{host.name} ends: {host.process.returncode}, {host.told()[-300:]}')
    return say(False, f'seed {seed}: {", ".join(came)}', why, history and history.errors[:20])


def linearizable(world_at, kinds, seeds, what):
    """world_at: makes the world in a folder."""
    with tempfile.TemporaryDirectory() as folder:
        world, requests, unknown = world_at(folder), 0, 0
        counts, again = collections.Counter(), 0
        try:
            for done, seed in enumerate(seeds):
                history, came = world.round(seed, kinds)
                why = 'not all hosts have ended well' if not history else history.fault()
                if why or history.errors:
                    return tell_failure(world, seed, came, history, why)
                counts.update(came)
                requests += len(history.requests)
                unknown += history.unknown
                again += history.again
                if done % 20 == 19:
                    print(f'    {done + 1} rounds, {requests} requests', flush=True)
        finally:
            world.close()
    came = ', '.join(f'{name} {count}' for name, count in sorted(counts.items()))
    return say(
        requests > 50 * len(seeds),
        f'{len(seeds)} rounds are linearizable, {what}: {requests} requests, '
        f'{again} writes sent again, {unknown} without a result; {came}; all members dead '
        f'{world.all_dead}',
    )


def planted(world_at, kind):
    """An owner that is not fenced goes on: a ghost comes, and the checker says so."""
    with tempfile.TemporaryDirectory() as folder:
        world = world_at(folder)
        try:
            found = None
            for seed in range(PLANTED):
                history, _ = world.round(seed, [kind])
                found = history and history.fault()
                if found:
                    break
        finally:
            world.close()
    return say(found and 'nothing explains' in found, 'a fence that is left out is found', found)


def main(sidewire, program, first, count, active='one', kind='file'):
    first, count = int(first), int(count)
    good = linearizable(
        lambda folder: World(sidewire, program, folder, '', active, kind=kind),
        ALL,
        range(first, first + count),
        f'{active} active, {kind}',
    )
    options = f',delay={DELAY_MS}ms,unfenced'
    trouble = owner_wakes_late if active == 'one' else active_wakes_late
    return (
        planted(
            lambda folder: World(sidewire, program, folder, options, active, members=2), trouble
        )
        and good
    )


if __name__ == '__main__':
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # the processes end, too
    sys.exit(not main(*sys.argv[1:]))
