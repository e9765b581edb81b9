#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""Reservations where two members are active, each with a host of its own: what one host has changed
at its member holds at the other one when the command is answered. usage:
test_active_reserve.py SIDEWIRE

A host registers and acquires at a member, the other one's writes are refused at once; it preempts
at its own member; both members start anew. A member that is killed, or stopped, keeps no change
from its answer for good: it is fenced first.
"""
import os
import re
import signal
import subprocess
import sys
import tempfile

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), '..'))
from group_members import NQN, Group, await_that  # noqa: E402
from programs import ports, say  # noqa: E402

HOSTS = [f'nqn.2014-08.org.nvmexpress:uuid:{d * 8}-0000-4000-8000-00000000000{d}' for d in '12']
OWN, OTHER = 0x1111, 0x2222
MIB = 1 << 20
TRIES = 8  # of a change that waits for a fence: each ends after five seconds at most


class Pair:
    """Members a and b. Each host knows the path to one of them, so that one serves it."""

    def __init__(self, sidewire, folder):
        port = ports.claim(6)
        self.sidewire, self.folder, self.good = sidewire, folder, True
        self.data = os.path.join(folder, 'data')
        disk = os.path.join(folder, 'disk')
        for path, size in ((disk, 4 * MIB), (self.data, 4096)):
            with open(path, 'wb') as file:
                file.truncate(size)
        self.group = Group([sidewire], folder, f'file:{disk},bs=4096', port, timeout_s=3)
        self.group.options = ['--active', 'all']
        self.group.start_log()
        for i, name in enumerate('ab'):
            self.group.add(name, '127.0.0.1', port + 1 + 2 * i, port + 2 + 2 * i)
        self.start()

    def start(self):
        for member in self.group.members:
            member.start().is_ready()

    def ask(self, number, words):
        """A command of a host at its member, and what it says. The address is there twice: a host
        with paths waits until a member may serve it."""
        member = self.group.members[number]
        program, *rest = words.split()
        line = f'-a {member.address} -a {member.address} -s {member.port} -n {NQN} -N 1'
        done = subprocess.run(
            [self.sidewire, 'nvme', program, *line.split(), '-q', HOSTS[number], *rest],
            capture_output=True,
            text=True,
            check=False,
        )
        return done.returncode, done.stdout + done.stderr

    def run(self, number, words, refused=''):
        status, text = self.ask(number, words)
        right = refused in text and status == 1 if refused else status == 0
        title = f'host {number} at {"ab"[number]}: {words}{", refused" if refused else ""}'
        self.good = say(right, title, text, *self.told(right)) and self.good
        return text

    def told(self, right):
        return [] if right else [f'{one.name}: {one.said()}' for one in self.group.members]

    def until_done(self, number, words):
        """Namespace Not Ready means: later."""
        for _ in range(TRIES):
            status, text = self.ask(number, words)
            if status == 0:
                break
        self.good = say(status == 0, f'host {number}: {words}', text, *self.told(False))
        return self.good

    def write(self, number, refused=''):
        self.run(number, f'write -z 4096 -d {self.data}', refused)

    def report(self, number, keys, rtype):
        text = self.run(number, 'resv-report')
        found = sorted(int(key, 16) for key in re.findall(r'rkey +: (\w+)', text))
        right = found == sorted(keys) and re.search(rf'rtype +: {rtype}\n', text)
        self.good = say(right, f'host {number} finds {len(keys)} hosts, type {rtype}', text)


def exclude(pair):
    conflict = 'Reservation Conflict'
    pair.run(0, f'resv-register --nrkey {OWN}')
    pair.run(0, f'resv-acquire --crkey {OWN} --rtype 1')
    pair.write(1, conflict)
    pair.write(0)
    pair.report(1, [OWN], 1)
    pair.run(1, f'resv-register --nrkey {OTHER}')
    pair.run(1, f'resv-acquire --crkey {OTHER} --rtype 1', conflict)
    pair.run(1, f'resv-acquire --crkey {OTHER} --prkey {OWN} --rtype 1 --racqa 2')
    pair.write(0, conflict)
    pair.write(1)
    pair.report(0, [OTHER], 1)


def start_anew(pair):
    for member in pair.group.members:
        member.kill()
    pair.start()
    pair.report(0, [OTHER], 1)
    pair.write(0, 'Reservation Conflict')
    pair.write(1)


def lose_member(pair, number):
    """The host of a has gone, as far as it can: a is stopped, or dead, and may hold its writes."""
    first, second = pair.group.members
    hold = subprocess.Popen(
        [pair.sidewire, 'nvme', 'bench', '-a', first.address, '-a', first.address]
        + f'-s {first.port} -n {NQN} -q {HOSTS[0]} -N 1'.split()
        + '--rw randread --sleep --runtime 600'.split(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    here = await_that(lambda: HOSTS[0] in first.hosts())
    pair.good = say(here, 'a serves its host') and pair.good
    first.signal(number)
    hold.kill()
    hold.wait()
    title = signal.Signals(number).name
    pair.until_done(1, f'resv-register --iekey --nrkey {OTHER + number} --rrega 2')
    ended = first.status_of_end() == -signal.SIGKILL
    pair.good = say(ended, f'{title} of a: a change waits for its fence') and pair.good
    first.start().is_ready()
    pair.until_done(1, f'resv-register --iekey --nrkey {OTHER} --rrega 2')


def main(sidewire):
    with tempfile.TemporaryDirectory() as folder:
        pair = Pair(sidewire, folder)
        try:
            exclude(pair)
            if pair.good:
                start_anew(pair)
            for number in (signal.SIGKILL, signal.SIGSTOP):
                if pair.good:
                    lose_member(pair, number)
            return pair.good
        finally:
            pair.group.close()


if __name__ == '__main__':
    sys.exit(not main(*sys.argv[1:]))
