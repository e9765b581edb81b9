#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""A tier of a running target: what it answers is in the log, its file is whole when it has let it
go, and what it may not use it refuses.

usage: test_tier.py SIDEWIRE
"""
import json
import os
import signal
import subprocess
import sys
import tempfile
import time

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), '..'))
from programs import MIB, NQN, Target, host, ports, say  # noqa: E402

SIZE = 32 * MIB
LOG = 8 * MIB


class Tier:
    def __init__(self, sidewire, folder, logs=1):
        self.sidewire = sidewire
        self.folder = folder
        self.file = os.path.join(folder, 'disk')
        self.logs = [os.path.join(folder, f'log{i}') for i in range(logs)]
        make(self.file, SIZE)
        for log in self.logs:
            make(log, LOG)

    def spec(self, more=''):
        return f'tier:{self.file},' + ','.join(f'log={log}' for log in self.logs) + more

    def serve(self, more=''):
        return Target(self.sidewire, self.spec(more))

    def refusal(self, more=''):
        """What the target says that does not begin."""
        try:
            target = self.serve(more)
        except RuntimeError as error:
            return str(error)
        target.end(signal.SIGKILL)
        return ''

    def write(self, data, at=0):
        path = os.path.join(self.folder, 'data')
        with open(path, 'wb') as file:
            file.write(data)
        where = f'-n {NQN} -N 1 -s {at // 4096} -z {len(data)}'
        return host(self.sidewire, f'write {where} -d {path}'.replace('-s ', '--start-block '))

    def read(self, count, at=0):
        path = os.path.join(self.folder, 'got')
        where = f'-n {NQN} -N 1 --start-block {at // 4096} -z {count}'
        status, text = host(self.sidewire, f'read {where} -d {path}')
        if status:
            return text
        with open(path, 'rb') as file:
            return file.read()

    def in_file(self, count, at=0):
        with open(self.file, 'rb') as file:
            file.seek(at)
            return file.read(count)

    def status(self):
        text = control(self.sidewire, 'status -o json')[1]
        return json.loads(text)['subsystems'][0]['namespaces'][0]['tier']


def make(path, size):
    with open(path, 'wb') as file:
        file.truncate(size)


def control(sidewire, line):
    tried = subprocess.run(
        [sidewire, 'nvme', 'target', *line.split()],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    return tried.returncode, tried.stdout + tried.stderr


def outlives(sidewire, folder):
    tier = Tier(sidewire, folder)
    first, second = os.urandom(MIB), os.urandom(8192)
    target = tier.serve(',ram=8M')
    good = say(tier.write(first)[0] == 0 and tier.write(second, 4096)[0] == 0, 'it writes')
    wanted = first[:4096] + second + first[12288:]
    good = say(tier.read(MIB) == wanted, 'a read sees the newest of what overlaps') and good
    told = tier.status()
    good = (
        say(
            told['tier_phase'] == 'serving'
            and told['used_bytes'] > MIB
            and told['dirty_bytes'] == MIB
            and told['ram_bytes'] == 8 * MIB
            and told['copies'] == [{'log': tier.logs[0], 'copy_state': 'live'}],
            'status: what is in the log',
            told,
        )
        and good
    )
    text = control(sidewire, 'status')[1]
    good = say('1 MiB dirty, the oldest for' in text, 'status, as text', text) and good
    target.end(signal.SIGKILL)
    good = say(tier.in_file(MIB) == bytes(MIB), 'SIGKILL: the file has nothing yet') and good
    target = tier.serve()
    good = say(tier.read(MIB) == wanted, 'the next target finds it in the log') and good
    good = say(target.end() == 0, 'SIGTERM: it ends by itself') and good
    return say(tier.in_file(MIB) == wanted, 'and the file alone is whole then') and good


def refused(sidewire, folder):
    tier = Tier(sidewire, folder)
    data = os.urandom(65536)
    target = tier.serve()
    tier.write(data)
    target.end(signal.SIGKILL)
    said = tier.refusal(',ro')
    good = say('leave ro' in said, 'ro is refused', said)
    with open(tier.file, 'r+b') as file:
        file.write(b'somebody else')
    said = tier.refusal()
    good = (
        say(
            'it was written to' in said and 'new-log' in said,
            'a file that others have changed is refused, and it says what helps',
            said,
        )
        and good
    )
    with open(tier.file, 'ab') as file:
        file.truncate(SIZE + 4096)
    said = tier.refusal()
    good = say('its size differs' in said, 'so is one that has grown', said) and good
    os.rename(tier.file, tier.file + '.old')
    make(tier.file, SIZE)
    said = tier.refusal()
    good = say('it is another file' in said, 'and another file in its place', said) and good
    tier.serve(',new-log').end()
    good = say(tier.in_file(65536) == bytes(65536), 'new-log gives up what the log has') and good
    with open(tier.logs[0], 'r+b') as file:
        file.write(b'a letter')
    said = tier.refusal()
    good = say('has something else' in said, 'a file that is no log is refused', said) and good
    for at, what in (512, b'LABELONE'), (1080, b'\x53\xef'), (4096, b'\xfc\x4e'), (65600, b'_BHR'):
        os.remove(tier.logs[0])
        make(tier.logs[0], LOG)
        with open(tier.logs[0], 'r+b') as file:
            file.seek(at)
            file.write(what)
        said = tier.refusal()
        good = say('has something else' in said, f'so is a disk with {what} at {at}', said) and good
    return good


def relative(sidewire, folder):
    """A path of a log may begin with a folder; an empty file is no log."""
    tier = Tier(sidewire, folder)
    os.mkdir(os.path.join(folder, 'fast'))
    os.rename(tier.logs[0], os.path.join(folder, 'fast', 'log'))
    tier.logs = ['fast/log']
    before = os.getcwd()
    os.chdir(folder)
    try:
        said = tier.refusal()
        good = say(not said, 'log=FOLDER/FILE is a path where the folder is', said)
        make('fast/log', 0)
        said = tier.refusal()
        return say('is empty' in said, 'an empty file is refused, and why', said) and good
    finally:
        os.chdir(before)


def damaged(sidewire, folder):
    """A byte in the middle of the log: what is before goes to the file, and nothing else."""
    tier = Tier(sidewire, folder)
    data = os.urandom(MIB)
    target = tier.serve()
    tier.write(data)  # by one command: after five seconds the file would have it
    target.end(signal.SIGKILL)
    record = 64 + 65536
    with open(tier.logs[0], 'r+b') as file:
        file.seek(16384 + 64 + 4 * record + 40)  # behind the record that begins: a head
        file.write(b'\xff')
    target = tier.serve()
    good = say(tier.read(MIB)[: 4 * 65536] == data[: 4 * 65536], 'what is before is there')
    told = tier.status()
    good = say('damaged at' in (told['trouble'] or ''), 'the damage is named', told) and good
    target.end()
    wanted = data[: 4 * 65536] + bytes(MIB - 4 * 65536)
    return say(tier.in_file(MIB) == wanted, 'the file has that, and nothing else') and good


def leaves_out(tier):
    """A copy that begins with zeroes, as a new one does, and has something behind them."""
    with open(tier.logs[1], 'r+b') as file:
        first = file.read(64)
        file.seek(0)
        file.write(bytes(64))
        file.seek(0)
        before = file.read(128 << 10)
    target = tier.serve()
    states = [copy['copy_state'] for copy in tier.status()['copies']]
    target.end(signal.SIGKILL)
    with open(tier.logs[1], 'r+b') as file:
        after = file.read(128 << 10)
        file.seek(0)
        file.write(first)
    good = states[1] not in ('live', 'behind') and before == after
    return say(good, 'one with something behind its zeroes is left out', states)


def copies(sidewire, folder):
    tier = Tier(sidewire, folder, 3)
    data = os.urandom(65536)
    target = tier.serve()
    tier.write(data)
    target.end(signal.SIGKILL)
    make(tier.logs[1], LOG)  # a new disk
    target = tier.serve()
    good = say(tier.read(65536) == data, 'a copy is lost: two of three have it')
    tier.write(data[::-1], 65536)
    for _ in range(200):
        states = [copy['copy_state'] for copy in tier.status()['copies']]
        if states == ['live'] * 3:
            break
    good = say(states == ['live'] * 3, 'the new one gets all that they have', states) and good
    target.end(signal.SIGKILL)
    good = leaves_out(tier) and good
    make(tier.logs[0], LOG)
    make(tier.logs[2], LOG)
    said = tier.refusal()
    good = say('1 of 3 copies' in said, 'one of three is too few', said) and good
    tier.logs.reverse()
    said = tier.refusal()
    return say('in that order' in said or '1 of 3' in said, 'in their order', said) and good


class Server:
    """A region of persistent memory on a server of its own."""

    def __init__(self, sidewire, folder, number):
        self.words = [sidewire, 'pmem', 'serve', os.path.join(folder, f'region{number}')]
        self.words += ['--size', str(LOG), '--listen', f'127.0.0.1:{ports.claim()}']
        self.name = f'{self.words[-1]}/region{number}'
        self.begin()

    def begin(self):
        self.process = subprocess.Popen(self.words, stdout=subprocess.PIPE, text=True)
        line = ' '
        while line and 'Ctrl-C' not in line:
            line = self.process.stdout.readline()

    def end(self, number=signal.SIGKILL):
        self.process.send_signal(number)
        self.process.communicate(timeout=20)


def await_copies(tier, wanted):
    states = []
    for _ in range(100):
        states = [copy['copy_state'] for copy in tier.status()['copies']]
        if states == wanted:
            break
        time.sleep(0.1)
    return say(states == wanted, 'copies are ' + ', '.join(wanted), states)


def remote(sidewire, folder):
    """Two copies in regions of servers, one in a file."""
    tier = Tier(sidewire, folder)
    servers = [Server(sidewire, folder, number) for number in range(2)]
    tier.logs += [server.name for server in servers]
    data = os.urandom(65536)
    try:
        target = tier.serve()
        good = say(tier.write(data)[0] == 0, 'it writes to a file and two servers')
        servers[0].end()
        good = say(tier.write(data, MIB)[0] == 0, 'and goes on without one of them') and good
        good = await_copies(tier, ['live', 'behind', 'live']) and good
        servers[0].begin()
        good = await_copies(tier, ['live'] * 3) and good
        target.end(signal.SIGKILL)
        os.unlink(tier.logs[0])  # what is left is what the servers have
        make(tier.logs[0], LOG)
        target = tier.serve()
        good = (
            say(tier.read(65536) + tier.read(65536, MIB) == 2 * data, 'servers have all') and good
        )
        target.end(signal.SIGKILL)
        servers[1].end()
        target = tier.serve()
        good = say(tier.read(65536, MIB) == data, 'it starts without one of them') and good
        servers[1].begin()
        good = await_copies(tier, ['live'] * 3) and good
        good = say(target.end() == 0, 'SIGTERM: it ends by itself') and good
    finally:
        for server in servers:
            server.end()
    return say(tier.in_file(65536, MIB) == data, 'the file is whole then') and good


def full_disk(sidewire, folder):
    """A file system that is full below: writes fail, reads go on, the log keeps all."""
    tier = Tier(sidewire, folder)
    data = os.urandom(MIB)
    limited = os.path.join(folder, 'limited')
    with open(limited, 'w', encoding='utf-8') as file:
        file.write(
            f"""#!/bin/sh
trap '' XFSZ
ulimit -f {SIZE // 2 // 512}
exec {sidewire} "$@"
"""
        )
    os.chmod(limited, 0o700)
    target = Target(limited, tier.spec())
    good = say(tier.write(data, SIZE - MIB)[0] == 0, 'what the disk will not take is in the log')
    told = {}
    for _ in range(400):
        told = tier.status()
        if told['tier_phase'] == 'failed':
            break
        tier.write(data[:65536])
    good = (
        say(
            told['tier_phase'] == 'failed' and told['trouble'] and told['dirty_bytes'] >= MIB,
            'it stops, and forgets nothing',
            told,
        )
        and good
    )
    good = say(tier.write(data[:4096])[0] != 0, 'writes end with an error') and good
    good = say(tier.read(MIB, SIZE - MIB) == data, 'reads go on') and good
    good = say(target.end() == 0, 'it ends by itself all the same') and good
    target = tier.serve()
    target.end()
    return say(tier.in_file(MIB, SIZE - MIB) == data, 'the next one writes it') and good


def main():
    sidewire = os.path.abspath(sys.argv[1])  # a case changes its folder
    good = True
    for case in (outlives, refused, relative, damaged, copies, remote, full_disk):
        with tempfile.TemporaryDirectory() as folder:
            os.environ['XDG_RUNTIME_DIR'] = folder
            good = case(sidewire, folder) and good
    return 0 if good else 1


if __name__ == '__main__':
    sys.exit(main())
