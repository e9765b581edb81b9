#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""Three members are active on one device, each as another host of it. usage:
test_active_device.py SIDEWIRE DOUBLED SEEDS [FIRST_SEED]

The device is a double with reservations (device_double.c). Members take each other for processes of
other machines, so none kills another: what a stopped one holds has to be refused by the device.
`delay=` holds a write at the first member, which is stopped; its host goes on at another member and
writes newer data. Then the first one continues. It finds that it is out, ends, and joins again when
it is started anew. With the fence left out on purpose the older write lands: the test sees that.
"""
import os
import random
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), '..'))
from group_members import NQN, Group, await_that  # noqa: E402
from programs import ports, say  # noqa: E402

BLOCK, BLOCKS = 4096, 64
DELAY_MS = 1000
TRIES = 5  # until a member is stopped amid its write
PLANTED = 6  # rounds in which the fault that was planted must show: a busy machine may be late
ALL_REGISTRANTS = 6  # Exclusive Access
IDLE_SLOT = 0xFF
HOSTS = ['nqn.first', 'nqn.second', 'nqn.third']
# The words of a member begin with those of `sidewire`.
BEGIN = 'doubled=$1; shift 2; exec "$0" run -- "$doubled" "$@"'


class Device:
    """What the double has: struct nvt_reservation comes first in its state."""

    def __init__(self, folder):
        self.disk, self.state = (os.path.join(folder, name) for name in ('disk', 'state'))
        with open(self.disk, 'wb') as file:
            file.truncate(BLOCK * BLOCKS)

    def block(self, number):
        with open(self.disk, 'rb') as file:
            file.seek(number * BLOCK)
            return set(file.read(BLOCK))

    def reservation(self):
        """Its type, and the keys by the number of their host."""
        with open(self.state, 'rb') as file:
            data = file.read()
        kind, count = struct.unpack_from('<5xB16x2xQ', data)
        found = (struct.unpack_from('<B15xQ', data, 32 + 24 * i) for i in range(count))
        return kind, dict(found)


class Members:
    """The first one holds what it is to write."""

    def __init__(self, sidewire, doubled, folder, unfenced=''):
        port = ports.claim(8)
        self.sidewire, self.doubled, self.folder = sidewire, doubled, folder
        self.device = Device(folder)
        self.group = Group([sidewire], folder, '', port)
        self.group.options = ['--active', 'all']
        self.group.start_log()
        for i, name in enumerate('abc'):
            member = self.group.add(name, '127.0.0.1', port + 1 + 2 * i, port + 2 + 2 * i)
            node = self.node(i + 1)
            member.command = self.as_host(i + 1)
            member.namespace = f'nvme:{node}{unfenced}' + ('' if i else f',delay={DELAY_MS}ms')
        self.all = self.group.members

    def node(self, number):
        node = os.path.join(self.folder, f'node{number}')
        with open(node, 'ab'):
            return node

    def as_host(self, number):
        words = ['env', f'DOUBLE_HOST={number}', f'DOUBLE_NODE={self.node(number)}']
        words += [f'DOUBLE_DISK={self.device.disk}', f'DOUBLE_STATE={self.device.state}']
        return [*words, 'sh', '-c', BEGIN, shutil.which(self.sidewire), self.doubled]

    def start(self):
        return all([member.start().is_ready() for member in self.all])

    def write(self, member, host, block, byte):
        """By a host that waits until the member may serve it: as one with several paths does."""
        data = os.path.join(self.folder, f'data{byte}')
        with open(data, 'wb') as file:
            file.write(bytes([byte]) * BLOCK)
        line = f'-a {member.address} -a {member.address} -s {member.port} -n {NQN} -q {host} -N 1'
        return subprocess.Popen(
            [self.sidewire, 'nvme', 'write', *line.split(), '-k', '0', '-d', data]
            + ['--start-block', str(block)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
        )

    def all_write(self, draw):
        """Each host by a member of its own; what went wrong."""
        blocks, data = draw.sample(range(BLOCKS), 3), draw.sample(range(1, 256), 3)
        writes = [self.write(*one) for one in zip(self.all, HOSTS, blocks, data)]
        said = [one.communicate()[0].decode() for one in writes]
        found = [self.device.block(block) for block in blocks]
        if any(one.returncode for one in writes) or found != [{byte} for byte in data]:
            return f'{said}, on the device {found}, not {data}'
        return None

    def ghost(self, seed):
        """Why the round is no good; None: it is."""
        draw = random.Random(seed)
        first, second, third = self.all
        block, beside = draw.sample(range(BLOCKS), 2)
        old, new, theirs = draw.sample(range(1, 256), 3)
        late = self.write(first, HOSTS[0], block, old)
        await_that(lambda: HOSTS[0] in first.hosts())
        time.sleep(draw.uniform(0.15, 0.25))  # the host hears that it is served, and writes
        first.signal(signal.SIGSTOP)
        newer = self.write(second, HOSTS[0], block, new)
        other = self.write(third, HOSTS[2], beside, theirs)
        said = [one.communicate()[0].decode() for one in (newer, other)]
        first.signal(signal.SIGCONT)
        time.sleep(2 * DELAY_MS / 1000)
        late.kill()
        late.communicate()
        if newer.returncode or other.returncode or self.device.block(beside) != {theirs}:
            return f'{said}, beside it {self.device.block(beside)}, not {theirs}'
        found = self.device.block(block)
        return None if found == {new} else f'a ghost: {found}, not {new}'

    def fenced_ghost(self, seed):
        """Why no round is any good; None: one is, in which the first member was shut out. A busy
        machine may stop it behind its write, when nobody has to fence it."""
        for attempt in range(TRIES):
            wrong = self.ghost(seed + 1000 * attempt)
            if wrong or 1 not in self.device.reservation()[1]:
                return wrong
        return 'it was stopped too late each time'

    def tell(self, what, wrong):
        for member in self.all:
            print(f'{member.name} says:\n{member.said()}')
        return say(False, what, wrong)


def fenced(members, seeds):
    """A stopped member writes nothing more, and comes back as another one."""
    first = members.all[0]
    for seed in seeds:
        before = members.device.reservation()[1]
        wrong = members.fenced_ghost(seed)
        if wrong:
            return members.tell(f'seed {seed}', wrong)
        status = first.status_of_end()
        if not status or 'shut this one out of the device' not in first.said():
            return members.tell(f'seed {seed}: the first one ends', status)
        kind, keys = members.device.reservation()
        if kind != ALL_REGISTRANTS or keys != {2: before[2], 3: before[3]}:
            return members.tell(f'seed {seed}: the others are registered alone', (kind, keys))
        if not first.start().is_ready() or members.device.reservation()[1].get(1) in (
            None,
            before[1],
        ):
            return members.tell(f'seed {seed}: it joins by another key', members.device.state)
    return say(True, f'{len(seeds)} seeds: no ghost')


def restarts(members, draw):
    """By a loss of power, and in order: the device stays reserved."""
    for member in members.all:
        member.kill()
    kind, keys = members.device.reservation()
    good = say(kind == ALL_REGISTRANTS and len(keys) == 3, 'killed, all are registered', keys)
    wrong = None if members.start() else 'they do not start'
    wrong = wrong or members.all_write(draw)
    if wrong:
        return members.tell('all members serve when they are started anew', wrong)
    ends = []
    for member in members.all:
        await_that(lambda one=member: has_leader(one))
        ends.append(member.end())
    kind, keys = members.device.reservation()
    slots = {key >> 24 & 0xFF for key in keys.values()}
    return good & say(
        ends == [0, 0, 0] and kind == ALL_REGISTRANTS and slots == {IDLE_SLOT},
        'they leave the device reserved, by nobody',
        ends,
        kind,
        keys,
        *(member.said() for member in members.all),
    )


def has_leader(member):
    """One that leaves while there is none cannot say so."""
    return member.status().get('group', {}).get('role') in ('leader', 'follower')


def second_of_host(members):
    """Two members of one host have one registration, so one is refused."""
    second = members.group.add('d', '127.0.0.1', ports.claim(2), ports.claim(1))
    members.group.members.remove(second)
    second.command, second.namespace = members.as_host(2), members.all[1].namespace
    second.start()
    status = second.status_of_end()
    return say(status and 'has it locked' in second.said(), 'one member a host', second.said())


def run(sidewire, doubled, seeds):
    with tempfile.TemporaryDirectory() as folder:
        members, draw = Members(sidewire, doubled, folder), random.Random(seeds[0])
        try:
            wrong = None if members.start() else 'they do not start'
            wrong = wrong or members.all_write(draw)
            if wrong:
                return members.tell('three members serve one device', wrong)
            good = say(True, 'three members serve one device')
            return (
                second_of_host(members) and fenced(members, seeds) and restarts(members, draw)
            ) and good
        finally:
            members.group.close()


def planted(sidewire, doubled):
    with tempfile.TemporaryDirectory() as folder:
        members = Members(sidewire, doubled, folder, ',unfenced')
        try:
            wrong = None if members.start() else 'they do not start'
            for seed in range(PLANTED if not wrong else 0):
                wrong = members.ghost(seed)
                if 'a ghost' in str(wrong):
                    return say(True, 'nothing is fenced: a ghost is found')
                members.all[0].kill()
                members.all[0].start().is_ready()
            return members.tell('nothing is fenced', wrong)
        finally:
            members.group.close()


def main(sidewire, doubled, count, first):
    good = run(sidewire, doubled, range(first, first + count))
    return planted(sidewire, doubled) and good


if __name__ == '__main__':
    found_first = int((sys.argv[4:] or '0')[0])
    sys.exit(not main(*sys.argv[1:3], int(sys.argv[3]), found_first))
