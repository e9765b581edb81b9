#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""Two members are active, each with a host of its own. No write that a member still holds for a
host lands over a newer one that this host has written by the other. usage:
test_active.py SIDEWIRE SEEDS [FIRST_SEED]

`delay=` holds what a member writes. Then it is stopped, and its host goes on at the other member,
which kills it; or it lives, and its host has left it, so the other one waits until it is quiet. The
other member's own host writes all the time. Where fence and wait are left out on purpose, the old
write lands over the new one: the test sees that. A host with a secret has a place by that alone.
"""
import os
import random
import signal
import subprocess
import sys
import tempfile
import time

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), '..'))
from group_members import LIMIT_S, NQN, Group, await_that  # noqa: E402
from programs import SECRETS, ports, say  # noqa: E402

BLOCK, BLOCKS = 4096, 64
STOPPED_MS, QUIET_MS = 400, 3000  # how long the first member holds a write
NAMED_S = 1  # a host that has come is known by then
PLANTED = 6  # rounds in which the fault that was planted must show: a busy machine may be late
MOVER, OTHER = 'nqn.mover', 'nqn.other'  # hosts


class Pair:
    """Members a and b. The first one holds what it is to write."""

    def __init__(self, sidewire, folder, delay_ms, unfenced, options=()):
        port = ports.claim(6)
        self.sidewire, self.folder, self.delay_s = sidewire, folder, delay_ms / 1000
        self.disk = os.path.join(folder, 'disk')
        with open(self.disk, 'wb') as file:
            file.truncate(BLOCK * BLOCKS)
        namespace = f'file:{self.disk},bs=4096{unfenced}'
        self.group = Group([sidewire], folder, namespace, port)
        self.group.options = ['--active', 'all', *options]
        self.group.start_log()
        for i, name in enumerate('ab'):
            member = self.group.add(name, '127.0.0.1', port + 1 + 2 * i, port + 2 + 2 * i)
            if not i:
                member.namespace += f',delay={delay_ms}ms'
            member.start().is_ready()
        self.first, self.second = self.group.members

    def write(self, member, host, block, byte, *options):
        """By a host that waits until the member may serve it: as one with several paths does."""
        data = os.path.join(self.folder, f'data{byte}')
        with open(data, 'wb') as file:
            file.write(bytes([byte]) * BLOCK)
        line = f'-a {member.address} -a {member.address} -s {member.port} -n {NQN} -q {host} -N 1'
        return subprocess.Popen(
            [self.sidewire, 'nvme', 'write', *line.split(), '-k', '0', '-d', data]
            + ['--start-block', str(block), *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
        )

    def block(self, number):
        with open(self.disk, 'rb') as file:
            file.seek(number * BLOCK)
            return set(file.read(BLOCK))

    def one(self, seed, trouble):
        """Why the round is no good; None: it is. What is on the disk, where that is wrong."""
        draw = random.Random(seed)
        block, beside = draw.sample(range(BLOCKS), 2)
        old, new, theirs = draw.sample(range(1, 256), 3)
        other = self.write(self.second, OTHER, beside, theirs)
        late = self.write(self.first, MOVER, block, old)
        await_that(lambda: MOVER in self.first.hosts())
        # The host hears that it is served, and writes.
        time.sleep(draw.uniform(0.15, 0.25) if trouble == 'stopped' else 0.7)
        if trouble == 'stopped':
            self.first.signal(signal.SIGSTOP)
        newer = self.write(self.second, MOVER, block, new)
        if trouble == 'left':
            await_that(lambda: MOVER in connected(self.second))
            late.kill()
        lands = time.monotonic() + self.delay_s
        said = [one.communicate()[0].decode() for one in (newer, other)]
        if trouble == 'stopped':
            self.first.signal(signal.SIGCONT)
            lands = time.monotonic() + self.delay_s
        time.sleep(max(0.1, lands + 0.1 - time.monotonic()))
        late.kill()
        late.communicate()
        self.first.kill()
        self.first.start().is_ready()
        if newer.returncode or other.returncode or self.block(beside) != {theirs}:
            return f'{said}, beside it {self.block(beside)}, not {theirs}'
        return None if self.block(block) == {new} else f'a ghost: {self.block(block)}, not {new}'


def connected(member):
    subsystems = member.status().get('subsystems', [{}])
    return [one['hostnqn'] for one in subsystems[0].get('controllers', [])]


def tell_failure(pair, what, wrong):
    for member in pair.group.members:
        print(f'{member.name} says:\n{member.said()}')
    return say(False, what, wrong)


def run(sidewire, seeds, trouble, delay_ms):
    with tempfile.TemporaryDirectory() as folder:
        pair = Pair(sidewire, folder, delay_ms, '')
        try:
            for seed in seeds:
                wrong = pair.one(seed, trouble)
                if wrong:
                    return tell_failure(pair, f'seed {seed}, {trouble}', wrong)
        finally:
            pair.group.close()
    return say(True, f'{len(seeds)} seeds, {trouble}: no ghost')


def planted(sidewire, trouble, delay_ms):
    with tempfile.TemporaryDirectory() as folder:
        pair = Pair(sidewire, folder, delay_ms, ',unfenced')
        try:
            for seed in range(PLANTED):
                wrong = pair.one(seed, trouble)
                if 'a ghost' in str(wrong):
                    return say(True, f'{trouble}, nothing is waited for: a ghost is found')
            return tell_failure(pair, f'{trouble}, nothing is waited for', wrong)
        finally:
            pair.group.close()


def strangers(sidewire):
    """A host that has not proved itself has none of the places that the group has for hosts."""
    with tempfile.TemporaryDirectory() as folder:
        pair = Pair(sidewire, folder, 1, '', ['--dhchap-secret', f'{MOVER}={SECRETS[0]}'])
        try:
            stranger = pair.write(pair.second, MOVER, 0, 1)
            code = await_end(stranger)
            time.sleep(NAMED_S)
            hosts = pair.second.status()['group']['host_owners']
            good = say(code and not hosts, 'a stranger has no place in the group', hosts)
            own = pair.write(pair.second, MOVER, 0, 2, '-S', SECRETS[0])
            code = await_end(own)
            return good & say(not code, 'the host has one', own.said, pair.second.said())
        finally:
            pair.group.close()


def moves_while_it_calls(sidewire):
    """A host is moved. The disk has yet to do its last write, and it connects there anew."""
    with tempfile.TemporaryDirectory() as folder:
        pair = Pair(sidewire, folder, QUIET_MS, '')
        try:
            hosts = [pair.write(pair.first, MOVER, 0, 1)]
            await_that(lambda: MOVER in pair.first.hosts())
            time.sleep(NAMED_S)  # the write is with the disk
            newer = pair.write(pair.second, MOVER, 1, 2)
            await_that(lambda: MOVER in connected(pair.second))
            words = ['--hostnqn', MOVER, '--to', 'b', '--control', pair.second.control]
            move = subprocess.Popen([sidewire, 'nvme', 'target', 'move', *words])
            await_that(lambda: is_resting(pair.first))
            hosts.append(pair.write(pair.first, MOVER, 2, 3))
            await_that(lambda: MOVER in connected(pair.first))
            good = say(is_resting(pair.first), 'a host calls while its member comes to rest')
            good &= say(not move.wait(LIMIT_S), 'it moves nonetheless', pair.first.said())
            code = await_end(newer)
            for host in hosts:
                host.kill()
                host.communicate()
            return good & say(not code, 'and writes there', newer.said)
        finally:
            pair.group.close()


def is_resting(member):
    hosts = member.status().get('group', {}).get('host_owners', [])
    return any(one['here'] == 'resting' for one in hosts)


def await_end(host):
    host.said = host.communicate(timeout=LIMIT_S)[0].decode()
    return host.returncode


def main(sidewire, count, first):
    seeds = range(first, first + count)
    good = moves_while_it_calls(sidewire)
    good = strangers(sidewire) and good
    for trouble, delay_ms in (('stopped', STOPPED_MS), ('left', QUIET_MS)):
        good = run(sidewire, seeds, trouble, delay_ms) and good
        good = planted(sidewire, trouble, delay_ms) and good
    return good


if __name__ == '__main__':
    sys.exit(not main(sys.argv[1], int(sys.argv[2]), int((sys.argv[3:] or '0')[0])))
