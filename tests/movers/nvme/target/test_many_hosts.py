#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""More hosts than a group has places for, at a member whose group has all members active. An
address has half of the places. A host that finds none hears so at its Connect, and one that comes
when another has left is served.

usage: test_many_hosts.py SIDEWIRE MANY_HOSTS
"""
import os
import subprocess
import sys
import tempfile
import time

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), '..'))
from group_members import NQN, Group, await_that  # noqa: E402
from programs import MIB, ports, say  # noqa: E402

PLACES = 64
BUSY = 'Controller Busy'


class Hosts:
    """Those of one address."""

    def __init__(self, program, member, address, prefix, count):
        self.process = subprocess.Popen(
            [*program, member.address, str(member.port), NQN, address, prefix, str(count)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.said = []

    def come(self):
        """What became of each."""
        for line in self.process.stdout:
            if line == 'all\n':
                break
            self.said.append(line.strip())
        return self

    def live(self):
        self.process.stdin.write('\n')
        self.process.stdin.flush()
        return int(self.process.stdout.readline().split()[1])

    def lived(self):
        return [line for line in self.said if line.endswith(' lives')]

    def refused(self):
        return [line for line in self.said if ' is refused: ' in line]

    def leave(self):
        self.process.stdin.close()
        self.process.wait()


def served(member):
    return len(member.hosts())


def group_of(member):
    return member.status().get('group', {})


def fill(program, first, second):
    """Two addresses have all places: what they got, and those that are there."""
    a = Hosts(program, first, '127.0.0.1', 'nqn.a', PLACES // 2).come()
    good = say(
        len(a.lived()) == PLACES // 2 and await_that(lambda: served(first) == PLACES // 2),
        'an address has half of the places',
        a.refused(),
        group_of(first),
    )
    # Those of one more come in, and hear then that they have no place; later ones, at once.
    more = Hosts(program, second, '127.0.0.1', 'nqn.more', 1).come()
    gone = await_that(lambda: more.live() == 0)
    later = Hosts(program, second, '127.0.0.1', 'nqn.later', 3).come()
    good &= say(
        bool(gone and BUSY in later.refused()[0] and group_of(second)['hosts_refused']),
        'and no more: Controller Busy',
        later.said,
        group_of(second),
    )
    b = Hosts(program, second, '127.0.0.2', 'nqn.b', PLACES // 2).come()
    good &= say(
        len(b.lived()) == PLACES // 2 and await_that(lambda: served(second) == PLACES // 2),
        'another address finds the others',
        b.refused(),
        group_of(second),
    )
    more.leave()
    later.leave()
    return a, b, good


def overfill(program, group):
    first, second = group.members
    a, b, good = fill(program, first, second)
    if not good:
        return False
    try:
        one = Hosts(program, first, '127.0.0.3', 'nqn.one', 2).come()
        said = 'serves 64 hosts already'
        good &= say(
            len(one.refused()) == 2
            and all(BUSY in line for line in one.refused())
            and said in first.said()
            and group_of(first)['hosts_refused'] == 2,
            'the 65th host is refused at its Connect, which is counted and told',
            one.said,
            first.said(),
        )
        one.leave()
        good &= say(a.live() == b.live() == PLACES // 2, 'the others go on', a.live(), b.live())
        b.leave()
        await_that(lambda: not served(second))
        anew = []

        def comes():
            anew.append(Hosts(program, second, '127.0.0.2', f'nqn.anew{len(anew)}', 4).come())
            if len(anew[-1].lived()) == 4 and await_that(lambda: served(second) == 4, 5):
                return True
            anew[-1].leave()
            time.sleep(0.5)
            return False

        good &= say(
            await_that(comes), 'newcomers have the places of those that left', anew[-1].said
        )
        anew[-1].leave()
    finally:
        for hosts in (a, b):
            hosts.process.kill()
    return good


def main(sidewire, program):
    with tempfile.TemporaryDirectory() as folder:
        disk = os.path.join(folder, 'disk')
        with open(disk, 'wb') as file:
            file.truncate(MIB)
        port = ports.claim(5)
        group = Group([sidewire], folder, f'file:{disk},bs=4096', port)
        group.options = ['--active', 'all']
        group.start_log()
        try:
            for i, name in enumerate('ab'):
                group.add(name, '127.0.0.1', port + 1 + 2 * i, port + 2 + 2 * i).start().is_ready()
            return overfill([sidewire, 'run', program], group)
        finally:
            group.close()


if __name__ == '__main__':
    sys.exit(not main(*sys.argv[1:]))
