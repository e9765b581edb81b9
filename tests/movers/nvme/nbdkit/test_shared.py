#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""Two hosts share one namespace without a kernel's NVMe: each has it as a file, by nbdkit and
nbdfuse, with a path to both members of a group. sanlock, a daemon for each host, keeps its leases
there, and who has the lease writes to a database of sqlite beside them. The owner is killed and
stopped meanwhile.

usage: test_shared.py SIDEWIRE PLUGIN UNLIMITED
"""
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), '..'))
from group_members import LIMIT_S, NQN, Group, await_that  # noqa: E402
from programs import MIB, ports, say  # noqa: E402

LEASES, RESOURCE = 8 * MIB, 9 * MIB  # behind the database
IO_TIMEOUT_S = 2  # of sanlock: a host is dead after eight times as long
ADDS = 8  # of each host
ADD = '''
import sqlite3, sys, time
with sqlite3.connect(sys.argv[1], isolation_level=None) as base:
    base.execute('pragma journal_mode=memory')
    base.execute('begin immediate')
    n = base.execute('select n from counter').fetchone()[0]
    time.sleep(0.1)
    base.execute('update counter set n = ?', (n + 1,))
    base.execute('insert into log values (?, ?, ?)', (n, sys.argv[2], 'x' * 3000))
    base.execute('commit')
'''


class Host:
    def __init__(self, world, number):
        self.number, self.folder = number, os.path.join(world.folder, f'host{number}')
        self.file = os.path.join(self.folder, 'mnt', 'disk')
        os.makedirs(os.path.dirname(self.file))
        self.environment = {**os.environ, 'SANLOCK_RUN_DIR': os.path.join(self.folder, 'run')}
        self.sidewire, self.plugin, self.group = world.sidewire, world.plugin, world.group
        self.unlimited, self.processes, self.failures = world.unlimited, [], []

    def spawn(self, *words):
        with open(os.path.join(self.folder, 'log'), 'ab') as log:
            process = subprocess.Popen(words, stdout=log, stderr=log, env=self.environment)
        self.processes.append(process)
        return process

    def said(self):
        with open(os.path.join(self.folder, 'log'), encoding='utf-8', errors='replace') as file:
            return f'host {self.number}: {file.read()[-2000:]}'

    def start(self):
        socket, ready = os.path.join(self.folder, 'socket'), os.path.join(self.folder, 'pid')
        there = [f'traddr={one.address}:{one.port}' for one in self.group.members]
        own = f'5aed0000-0000-4000-8000-00000000000{self.number}'
        disk = self.spawn(
            *f'{self.sidewire} run -- nbdkit -f -U {socket} -P {ready} {self.plugin}'.split(),
            *f'nqn={NQN} reconnect-delay=1 hostid={own}'.split(),
            f'hostnqn=nqn.2014-08.org.nvmexpress:uuid:{own}',
            *there,
        )
        await_that(lambda: os.path.exists(ready) or disk.poll() is not None)
        file = self.spawn('nbdfuse', self.file, '--unix', socket)
        await_that(lambda: os.path.exists(self.file) or file.poll() is not None)
        return os.path.exists(self.file)

    def lock(self, *words):
        done = subprocess.run(
            ['sanlock', 'client', *words],
            capture_output=True,
            text=True,
            env=self.environment,
            timeout=LIMIT_S,
            check=False,
        )
        return done.returncode, done.stdout + done.stderr

    def start_sanlock(self):
        self.environment['LD_PRELOAD'] = self.unlimited
        self.spawn(*f'sanlock daemon -D -w 0 -h 0 -l 0 -U root -G root -e h{self.number}'.split())
        return await_that(lambda: self.lock('status')[0] == 0)

    def join(self):
        space = f'shared:{self.number}:{self.file}:{LEASES}'
        return self.lock('add_lockspace', '-s', space, '-o', str(IO_TIMEOUT_S))

    def resource(self):
        return f'shared:base:{self.file}:{RESOURCE}'

    def add_all(self):
        """With the lease, which one host has at a time."""
        for _ in range(ADDS):
            limit = time.monotonic() + LIMIT_S
            while True:
                command = f'command -r {self.resource()} -c {sys.executable} -c'.split()
                code, said = self.lock(*command, ADD, self.file, str(self.number))
                if code == 0:
                    break
                if time.monotonic() > limit:
                    self.failures.append(said)
                    return
                time.sleep(0.1)

    def close(self):
        subprocess.run(
            ['fusermount3', '-uz', os.path.dirname(self.file)], capture_output=True, check=False
        )
        for process in self.processes:
            process.kill()
            process.wait()


class World:
    def __init__(self, sidewire, plugin, unlimited, folder):
        self.sidewire, self.plugin, self.folder = sidewire, plugin, folder
        self.unlimited = os.path.abspath(unlimited)
        port = ports.claim(5)
        disk = os.path.join(folder, 'disk')
        self.make_base(disk)
        self.group = Group([sidewire], folder, f'file:{disk},bs=512', port)
        self.group.start_log()
        for i, name in enumerate('ab'):
            self.group.add(name, '127.0.0.1', port + 1 + 2 * i, port + 2 + 2 * i)
            self.group.members[-1].start().is_ready()
        self.hosts = [Host(self, number) for number in (1, 2)]

    @staticmethod
    def make_base(path):
        """A database, and room behind it."""
        with sqlite3.connect(path) as base:
            base.execute('create table counter (n integer)')
            base.execute('create table log (n integer, host text, data text)')
            base.execute('insert into counter values (0)')
        base.close()
        os.truncate(path, 16 * MIB)

    def owner(self):
        return await_that(self.group.owner)

    def trouble(self, number):
        owner = self.owner()
        owner.signal(number)
        others = [one for one in self.group.members if one is not owner]
        taken = await_that(lambda: self.group.owner(*others))
        owner.kill()
        owner.start().is_ready()
        return say(taken, f'{signal.Signals(number).name} of {owner.name}: the other one serves')

    def close(self):
        for host in self.hosts:
            host.close()
        self.group.close()


def shares(world):
    first, second = world.hosts
    good = say(all([one.start() for one in world.hosts]), 'two hosts have the namespace as a file')
    good = good and say(all([one.start_sanlock() for one in world.hosts]), 'each has sanlock')
    made = [
        first.lock('init', '-s', f'shared:0:{first.file}:{LEASES}', '-o', str(IO_TIMEOUT_S)),
        first.lock('init', '-r', first.resource()),
    ]
    joining = [
        threading.Thread(target=lambda one=one: made.append(one.join())) for one in world.hosts
    ]
    for thread in joining:
        thread.start()
    for thread in joining:
        thread.join()
    good = good and say(not any(code for code, _ in made), 'both are in the lockspace', made)
    if not good:
        return False
    adding = [threading.Thread(target=one.add_all) for one in world.hosts]
    for thread in adding:
        thread.start()
    time.sleep(1)
    good = world.trouble(signal.SIGKILL)
    time.sleep(1)
    good = world.trouble(signal.SIGSTOP) and good
    for thread in adding:
        thread.join()
    failures = first.failures + second.failures
    good = say(not failures, 'each has had the lease as often as it wanted', failures) and good
    with sqlite3.connect(f'file:{second.file}?mode=ro', uri=True) as base:
        whole = base.execute('pragma integrity_check').fetchall()
        count = base.execute('select n from counter').fetchall()
        rows = base.execute('select n, count(*) from log group by n').fetchall()
    wanted = [(i, 1) for i in range(2 * ADDS)]
    return (
        say(
            whole == [('ok',)] and count == [(2 * ADDS,)] and rows == wanted,
            f'sqlite: {2 * ADDS} transactions by two hosts, each is there once',
            whole,
            count,
            rows,
        )
        and good
    )


def main(sidewire, plugin, unlimited):
    for program in 'nbdkit', 'nbdfuse', 'fusermount3', 'sanlock':
        if not shutil.which(program):
            print(f'SKIP: no {program}')
            return 77
    if not os.access('/dev/fuse', os.W_OK) or os.geteuid():
        print('SKIP: /dev/fuse is not here, or this is not root')
        return 77
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    with tempfile.TemporaryDirectory() as folder:
        world = World(sidewire, plugin, unlimited, folder)
        try:
            good = shares(world)
            if not good:
                print(*[host.said() for host in world.hosts], sep='\n')
            return 0 if good else 1
        finally:
            world.close()


if __name__ == '__main__':
    sys.exit(main(*sys.argv[1:]))
