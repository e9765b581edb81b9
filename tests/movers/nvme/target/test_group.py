#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""Members of a group as users see them. usage: test_group.py SIDEWIRE

A host with two paths goes on while the owner is killed. A reservation that was taken at one member
is there at the next, and after all of them were started anew. What cannot be fenced is refused.
"""
import json
import os
import signal
import subprocess
import sys
import tempfile

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), '..'))
from group_members import NQN, Group, await_that  # noqa: E402
from programs import ports, say  # noqa: E402

HOSTS = [
    f'nqn.2014-08.org.nvmexpress:uuid:{digit * 8}-0000-4000-8000-00000000000{digit}'
    for digit in '12'
]
KEYS = (0x1111, 0x2222)
WRITE_EXCLUSIVE_REGISTRANTS = 3
MIB = 1 << 20


class Session:
    def __init__(self, sidewire, folder):
        self.sidewire, self.folder, self.good = sidewire, folder, True
        port = ports.claim(6)
        disk = os.path.join(folder, 'disk')
        with open(disk, 'wb') as file:
            file.truncate(16 * MIB)
        self.group = Group([sidewire], folder, f'file:{disk},bs=4096', port)
        self.group.start_log()
        for i, name in enumerate('ab'):
            self.group.add(name, '127.0.0.1', port + 1 + 2 * i, port + 2 + 2 * i)

    def note(self, good, what, *more):
        self.good = say(good, what, *more) and self.good
        return good

    def run(self, *words):
        return subprocess.run(
            [self.sidewire, 'nvme', *words],
            capture_output=True,
            text=True,
            check=False,
            timeout=100,
            stdin=subprocess.DEVNULL,
        )

    def start(self):
        """One after the other; the owner."""
        ready = [member.start().is_ready() for member in self.group.members]
        return self.note(
            all(ready),
            'both members are ready',
            *[member.said() for member in self.group.members],
        ) and await_that(self.group.owner)

    def at(self, member, line, number=0):
        """A command of a host at one member."""
        program, *rest = line.split()
        where = f'-a {member.address} -s {member.port} -n {NQN} -N 1 -q {HOSTS[number]}'
        return self.run(program, *where.split(), *rest)

    def other(self, member):
        return next(one for one in self.group.members if one is not member)


def shows(session, owner):
    """Status, metrics, and what is refused."""
    heir = session.other(owner)
    text = heir.ask('status')
    session.note(
        f'owned {owner.name}, epoch 1; here: standby' in text and f'127.0.0.1:{owner.port}' in text,
        'status of the other member shows the owner',
        text,
    )
    wanted = {
        'sidewire_nvme_group_members 2',
        'sidewire_nvme_group_is_owner{nsid="1"} 1',
        'sidewire_nvme_group_has_quorum 1',
    }
    session.note(
        await_that(lambda: wanted <= set(owner.ask('metrics').splitlines())),
        'metrics',
        owner.ask('metrics'),
    )
    done = session.run('target', 'add', '--namespace', 'ram:1M', '--control', owner.control)
    session.note('a member of a group serves' in done.stderr, 'add is refused', done.stderr)
    for spec, why in ('ram:1M', 'no group can serve it'), ('null:1M', 'no group can serve it'):
        done = session.run(
            *f'target --namespace {spec} --group 127.0.0.1:{session.group.log_port} --member c '
            f'--listen 127.0.0.1:{owner.port}'.split()
        )
        session.note(done.returncode == 1 and why in done.stderr, f'{spec}: {why}', done.stderr)
    done = session.at(heir, 'resv-report')
    session.note(done.returncode, 'the other member serves nothing of it', done.stdout)


def goes_on(session, owner):
    """A host with a path to each member, whose owner is killed: data verified."""
    heir = session.other(owner)
    words = f'bench -n {NQN} -a 127.0.0.1:{owner.port} -a 127.0.0.1:{heir.port}'
    words += ' --bs 4k --iodepth 8 --rw randwrite --verify --destroy-data --size 8m --runtime 4'
    load = subprocess.Popen(
        [session.sidewire, 'nvme', *words.split()],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        stdin=subprocess.DEVNULL,
    )
    await_that(lambda: owner.status()['subsystems'][0]['namespaces'][0]['writes'] > 100)
    owner.kill()
    text = load.communicate(timeout=100)[0]
    session.note(
        load.returncode == 0 and heir.serves(), 'a host goes on while the owner is killed', text
    )
    owner.start()
    session.note(owner.is_ready(), 'it joins again', owner.said())
    return heir


def report(session, member):
    told = json.loads(session.at(member, 'resv-report -o json').stdout)
    return told['rtype'], sorted(int(one['rkey'], 0) for one in told['regctlext']), told['ptpls']


def keeps_reservations(session, owner):
    """Register at A, preempt at B, start both anew."""
    heir = session.other(owner)
    for i, key in enumerate(KEYS):
        done = session.at(owner, f'resv-register --nrkey {key:#x}', i)
        session.note(done.returncode == 0, f'resv-register at {owner.name}', done.stderr)
    done = session.at(owner, f'resv-acquire --crkey {KEYS[0]:#x} --rtype 3')
    session.note(done.returncode == 0, f'resv-acquire at {owner.name}', done.stderr)
    session.note(
        owner.end() == 0 and await_that(heir.serves), f'{owner.name} leaves, {heir.name} serves'
    )
    found = report(session, heir)
    session.note(
        found == (WRITE_EXCLUSIVE_REGISTRANTS, list(KEYS), 1), f'the same at {heir.name}', found
    )
    done = session.at(
        heir, f'resv-acquire --crkey {KEYS[1]:#x} --prkey {KEYS[0]:#x} --rtype 3 --racqa 1', 1
    )
    session.note(done.returncode == 0, f'preempted at {heir.name}', done.stderr)
    heir.kill()
    last = session.start()
    found = last and report(session, last)
    session.note(
        found == (WRITE_EXCLUSIVE_REGISTRANTS, [KEYS[1]], 1), 'the same after a new start', found
    )
    return last


def epoch_at(member):
    return member.status()['group']['owners'][0]['epoch']


def refuses_another_file(session, owner):
    """The file was replaced by one of its name and size, which lacks what hosts have written."""
    heir = session.other(owner)
    disk = os.path.join(session.folder, 'disk')
    os.rename(disk, disk + '.kept')
    with open(disk, 'wb') as file:
        file.truncate(16 * MIB)
    owner.kill()
    session.note(
        await_that(lambda: 'another file than the group has' in heir.said()) and not heir.serves(),
        'another file of that name is not served',
        heir.said(),
    )
    tries = epoch_at(heir) + 3
    await_that(lambda: epoch_at(heir) >= tries)
    count = heir.said().count('another file than the group has')
    session.note(count < 3, 'it is tried again, and not said each time', count)
    os.rename(disk + '.kept', disk)
    session.note(await_that(heir.serves), 'it is served when it is back', heir.said())
    owner.start()
    session.note(owner.is_ready(), 'it joins again', owner.said())
    return heir


def has_one_of_a_name(session, owner):
    """A second process by the name of one that serves takes its place."""
    old = owner.process
    owner.port += 100 - owner.port % 2  # its ports are not free
    owner.group_port += 100
    owner.control += '2'
    owner.start()
    session.note(
        await_that(lambda: old.poll() is not None) and await_that(session.group.owner),
        'the older one of two members of a name ends',
        owner.said(),
    )
    old.wait()


def main(sidewire):
    with tempfile.TemporaryDirectory() as folder:
        session = Session(sidewire, folder)
        try:
            owner = session.start()
            if not owner:
                return False
            shows(session, owner)
            owner = goes_on(session, owner)
            last = keeps_reservations(session, owner)
            if last:
                last = refuses_another_file(session, last)
                has_one_of_a_name(session, last)
            if not session.good:
                for member in session.group.members:
                    print(f'{member.name} says:\n{member.said()}')
        finally:
            session.group.close()
        return session.good


if __name__ == '__main__':
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    sys.exit(not main(sys.argv[1]))
