#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""A tier that a group of targets has: the next owner finds in the log what the last one has
answered, and the file is whole when a tier alone has ended. usage: test_tier_group.py SIDEWIRE
"""
import os
import subprocess
import sys
import tempfile
import time

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), '..'))
from group_members import NQN, Group, await_that  # noqa: E402
from programs import ports, say  # noqa: E402

BLOCK, BLOCKS, LOG_BYTES = 4096, 256, 16 << 20
OLD_S = 5  # a block may go to FILE then


class Session:
    def __init__(self, sidewire, folder):
        self.sidewire, self.folder = sidewire, folder
        self.port = ports.claim(8)
        self.disk, self.log = os.path.join(folder, 'disk'), os.path.join(folder, 'tier.log')
        with open(self.disk, 'wb') as file:
            file.truncate(BLOCK * BLOCKS)
        with open(self.log, 'wb') as file:
            os.posix_fallocate(file.fileno(), 0, LOG_BYTES)
        self.spec = f'tier:{self.disk},log={self.log},bs=4096'
        self.group = Group([sidewire], folder, self.spec, self.port)
        self.group.start_log()
        for i, name in enumerate('ab'):
            at = self.port + 1 + 2 * i
            self.group.add(name, '127.0.0.1', at, at + 1).start().is_ready()

    def host(self, member, command, path, *more):
        line = f'{command} -a {member.address} -s {member.port} -n {NQN} -N 1 -k 0 -d {path}'
        done = subprocess.run(
            [self.sidewire, 'nvme', *line.split(), '--start-block', '7', *more],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            print(done.stdout, done.stderr)
        return not done.returncode

    def write(self, member, byte):
        path = os.path.join(self.folder, 'data')
        with open(path, 'wb') as file:
            file.write(bytes([byte]) * BLOCK)
        return self.host(member, 'write', path)

    def read(self, member):
        path = os.path.join(self.folder, 'found')
        if not self.host(member, 'read', path, '-z', str(BLOCK)):
            return None
        with open(path, 'rb') as file:
            return set(file.read())

    def on_disk(self):
        with open(self.disk, 'rb') as file:
            file.seek(7 * BLOCK)
            return set(file.read(BLOCK))

    def refused(self, *words):
        """What a target says that does not start."""
        done = subprocess.run(
            [self.sidewire, 'nvme', 'target', *words],
            capture_output=True,
            text=True,
            check=False,
            timeout=30,
        )
        return done.stderr if done.returncode else 'it has started'


def is_ready(path):
    with open(path, 'rb') as file:
        return b'ready' in file.read()


def moves(session):
    """The log goes with the namespace, and FILE has nothing of it, as long as it is too young."""
    first = await_that(session.group.owner)
    other = next(member for member in session.group.members if member is not first)
    young_until = time.monotonic() + OLD_S
    good = session.write(first, 11)
    first.ask('move', '-n', '1', '--to', other.name)
    good = good and await_that(lambda: session.group.owner(other))
    found, below = session.read(other), session.on_disk()
    is_young = time.monotonic() < young_until
    good = good and found == {11} and (below == {0} or not is_young)
    return say(good, 'moved with its log', found, below)


def is_killed(session):
    first = await_that(session.group.owner)
    other = next(member for member in session.group.members if member is not first)
    good = session.write(first, 22)
    first.kill()
    good = good and await_that(lambda: session.group.owner(other))
    found = session.read(other)
    first.start().is_ready()
    return say(good and found == {22}, 'the owner is killed', found)


def is_refused(session):
    here = f'--listen 127.0.0.1:{session.port + 6} --member c'.split()
    here += ['--group', f'127.0.0.1:{session.port}', '--group-listen']
    here += [f'127.0.0.1:{session.port + 7}', '--namespace']
    anew = session.refused(*here, session.spec + ',new-log')
    other = session.refused(*here, session.spec.replace('tier.log', 'other.log'))
    good = 'leave new-log away' in anew and 'another medium here than in the group' in other
    return say(good, 'new-log and another log are refused', anew, other)


def ends(session):
    """A tier alone, which ends, makes FILE whole."""
    good = session.write(await_that(session.group.owner), 33)
    for member in session.group.members:
        member.end()
    path = os.path.join(session.folder, 'alone')
    words = [session.sidewire, 'nvme', 'target', '--listen', f'127.0.0.1:{session.port + 6}']
    with open(path, 'wb') as out:
        with subprocess.Popen([*words, '--namespace', session.spec], stdout=out) as alone:
            await_that(lambda: is_ready(path) or alone.poll() is not None)
            alone.terminate()
    found = session.on_disk()
    return say(good and found == {33}, 'FILE is whole at the end', good, found)


def main(sidewire):
    with tempfile.TemporaryDirectory() as folder:
        session = Session(sidewire, folder)
        try:
            good = all([moves(session), is_killed(session), is_refused(session), ends(session)])
            if not good:
                for member in session.group.members:
                    print(f'{member.name} says:\n{member.said()}')
            return good
        finally:
            session.group.close()


if __name__ == '__main__':
    sys.exit(not main(os.path.abspath(sys.argv[1])))
