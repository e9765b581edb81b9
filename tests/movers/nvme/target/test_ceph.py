#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""Images of a Ceph cluster, which runs on this machine: rbd and fio's own engine for it judge what
the target does. Disks of the cluster are killed and stopped, and so is a target amid a write.

usage: test_ceph.py SIDEWIRE [ENGINE [GROUP...]]
"""
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.append(os.path.join(HERE, '..'))
sys.path.append(os.path.join(HERE, '../../../tools'))
import ceph_cluster  # noqa: E402
from group_members import Group, await_that  # noqa: E402
from programs import MIB, NQN, PORT, ports, say  # noqa: E402

SKIPPED = 77
HELD = '3s'  # how long the target keeps a write to itself


class Target:
    """At one of two ports; `serves` is false where it ended instead."""

    def __init__(self, test, *specs, port=PORT):
        words = [test.sidewire, 'nvme', 'target', '--listen', f'127.0.0.1:{port}']
        for spec in specs:
            words += ['--namespace', spec]
        self.port, self.said = port, ''
        self.log = open(test.path(f'target-{port}'), 'w+', encoding='utf-8')
        self.process = subprocess.Popen(words, stdout=self.log, stderr=subprocess.STDOUT)
        self.serves = self.says('Ctrl-C', 60)

    def says(self, words, seconds=20):
        """Whether it does within that time."""
        end = time.monotonic() + seconds
        while words not in self.said:
            is_over = self.process.poll() is not None or time.monotonic() > end
            self.log.flush()
            with open(self.log.name, encoding='utf-8') as log:
                self.said = log.read()
            if is_over:
                break
            time.sleep(0.02)
        return words in self.said

    def end(self, number=signal.SIGTERM):
        if self.process.poll() is None:
            self.process.send_signal(number)
        code = self.process.wait(timeout=30)
        self.log.close()
        return code


class Test:
    def __init__(self, sidewire, engine, folder):
        self.sidewire, self.engine, self.folder = sidewire, engine, folder
        self.cluster = ceph_cluster.Cluster(os.path.join(folder, 'ceph'))
        self.cluster.pool('rbd')

    def path(self, name):
        return os.path.join(self.folder, name)

    def image(self, name, size='64M', more=''):
        """What a target serves as it."""
        self.cluster.rbd(f'create --size {size} {more} rbd/{name}')
        return self.spec('rbd/' + name)

    def spec(self, name, *options, conf=None):
        return ','.join([f'rbd:{name}', f'conf={conf or self.cluster.conf}', *options])

    def start(self, line, port=PORT, **more):
        """A command of the host."""
        program, *words = line.split()
        at = ['-a', '127.0.0.1', '-s', str(port), '-n', NQN]
        return subprocess.Popen(
            [self.sidewire, 'nvme', program, *at, *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            **more,
        )

    def host(self, line, port=PORT, seconds=60):
        running = self.start(line, port)
        try:
            text = running.communicate(timeout=seconds)[0]
        finally:
            running.kill()
        return running.returncode, text

    def write(self, letter, port=PORT, block=0):
        """Begins to write a block of that letter."""
        with open(self.path(letter), 'w', encoding='ascii') as file:
            file.write(letter * 4096)
        line = f'write -d {self.path(letter)} --start-block {block} --ctrl-loss-tmo 2 -c 1'
        return self.start(line, port)

    def read(self, port=PORT, more='', block=0):
        """The letters of a block."""
        path = self.path('read')
        code, text = self.host(f'read -d {path} -z 4096 --start-block {block} {more}', port)
        if code:
            return text
        with open(path, encoding='latin-1') as file:
            return ''.join(sorted(set(file.read())))

    def control(self, target, line):
        words = [self.sidewire, 'nvme', 'target', *line.split(), '--pid', str(target.process.pid)]
        tried = subprocess.run(words, capture_output=True, timeout=30, check=False, text=True)
        return tried.returncode, tried.stdout + tried.stderr

    def status(self, target):
        """What it says of its namespaces."""
        text = self.control(target, 'status -o json')[1]
        return json.loads(text)['subsystems'][0]['namespaces']

    def fio(self, image, **options):
        """By the engine for our target; of `image`, by fio's own for rbd."""
        ours = {
            'ioengine': f'external:{self.engine}',
            'traddr': '127.0.0.1',
            'trsvcid': PORT,
            'nqn': NQN,
            'thread': 1,
        }
        own = {'ioengine': 'rbd', 'pool': 'rbd', 'rbdname': image, 'clientname': 'admin'}
        words = {
            'size': '32m',
            'verify': 'crc32c',
            'verify_fatal': 1,
            'verify_state_save': 0,
            'iodepth': 16,
            **(own if image else ours),
            **options,
        }
        job = self.path('rbd.fio' if image else 'ours.fio')
        with open(job, 'w', encoding='ascii') as file:
            file.write('[job]\n' + ''.join(f'{name}={value}\n' for name, value in words.items()))
        return subprocess.Popen(
            [*([] if image else [self.sidewire, 'run', '--']), 'fio', job],
            env={**os.environ, 'CEPH_CONF': self.cluster.conf},
            cwd=self.folder,
            text=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )

    def blocklist(self):
        """Until when, by address."""
        text = self.cluster.ceph('osd blocklist ls')
        return dict(line.split() for line in text.splitlines() if ':' in line)


def finish(running, seconds=100):
    text = running.communicate(timeout=seconds)[0]
    return running.returncode, text


# ---- what is refused ----


def refused(test):
    """Each by its reason, and what mends it."""
    with open(test.cluster.conf, encoding='ascii') as file:
        conf = file.read()
    changes = {
        'nokey': (r'keyring = \S*client.admin.keyring', 'keyring = /nonexistent'),
        'nomon': (r'mon host = \S*', 'mon host = [v2:127.0.0.1:9/0]'),
    }
    for name, (old, new) in changes.items():
        with open(test.path(name), 'w', encoding='ascii') as file:
            file.write(re.sub(old, new, conf))
    test.image('plain', more='--image-feature layering')
    spec = test.image('cached')
    test.cluster.rbd('config image set rbd/cached rbd_cache true')
    key = test.path('ceph/client.weak.keyring')
    words = [
        'auth',
        'get-or-create',
        'client.weak',
        'mon',
        'profile rbd',
        'osd',
        'allow r pool=none',
        '-o',
        key,
    ]
    test.cluster.tool('ceph', '-c', test.cluster.conf, *words)
    with open(test.path('weak'), 'w', encoding='ascii') as file:
        file.write(conf + f'[client.weak]\nkeyring = {key}\n')
    cases = [
        ('rbd create', test.spec('rbd/none')),
        ('ceph osd pool create', test.spec('none/none')),
        ('rbd snap create', test.spec('rbd/plain@none')),
        ('rbd feature enable', test.spec('rbd/plain')),
        ('rbd config image rm', spec),
        ('conf=', test.spec('rbd/plain', conf='/nonexistent')),
        ('keyring', test.spec('rbd/plain', conf=test.path('nokey'))),
        ('no monitor', test.spec('rbd/plain', conf=test.path('nomon'))),
        ('ceph auth caps client.weak', test.spec('rbd/plain', 'id=weak', conf=test.path('weak'))),
    ]
    good = True
    for words, spec in cases:
        target = Target(test, spec)
        good &= say(
            not target.serves and words in target.said and target.said.count('\n') == 1,
            f'refused, and "{words}" is told',
            target.said,
        )
        target.end()
    return good


# ---- what is served ----


def verified(test):
    """Data of either engine is what the other one reads."""
    target = Target(test, test.image('data'))
    ours = finish(test.fio(None, rw='randrw', bs='4k', numjobs=2, offset_increment='32m'))
    good = say(not ours[0], 'fio writes and verifies through the target', ours[1])
    ours = finish(test.fio(None, rw='write', bs='64k', do_verify=0))
    theirs = finish(test.fio('data', rw='write', bs='64k', verify_only=1))
    good &= say(not ours[0] and not theirs[0], "fio's own engine reads what we wrote", theirs[1])
    target.end()
    theirs = finish(test.fio('data', rw='randwrite', bs='16k', do_verify=0, randseed=7))
    target = Target(test, test.spec('rbd/data'))
    ours = finish(test.fio(None, rw='randwrite', bs='16k', verify_only=1, randseed=7))
    good &= say(not ours[0] and not theirs[0], 'and we what it wrote', theirs[1], ours[1])
    code, text = test.host('read -d ' + test.path('all'))
    test.cluster.rbd(f'export --no-progress rbd/data {test.path("export")}')
    same = subprocess.run(['cmp', test.path('all'), test.path('export')], check=False).returncode
    good &= say(not code and not same, 'rbd export has each byte', text)
    return say(not target.end(), 'the target ends well', target.said) and good


def snapshots(test):
    target = Target(test, test.image('snapped'))
    good = finish(test.write('a'))[0] == 0
    test.cluster.rbd('snap create --no-progress rbd/snapped@then')
    good &= finish(test.write('b'))[0] == 0
    both = Target(test, test.spec('rbd/snapped@then'), port=PORT + 1)
    good &= say(test.read(PORT + 1) == 'a' and test.read() == 'b', 'a snapshot stays as it was')
    code, text = finish(test.write('c', PORT + 1))
    good &= say(code and test.read(PORT + 1) == 'a', 'nobody writes to it', text)
    both.end()
    target.end()
    return good


def resized(test):
    target = Target(test, test.image('grows', '32M'))
    good = test.status(target)[0]['blocks'] * 4096 == 32 * MIB
    test.cluster.rbd('resize --no-progress --size 48M rbd/grows')
    end = time.monotonic() + 10
    while test.status(target)[0]['blocks'] * 4096 != 48 * MIB and time.monotonic() < end:
        time.sleep(0.1)
    code, text = finish(test.write('z', block=48 * 256 - 1))
    good &= say(not code, 'an image that grew is served to its new end', text, target.said)
    target.end()
    return good


# ---- disks of the cluster that fail ----


def disk_killed(test):
    """Its copies go on."""
    target = Target(test, test.image('copies'))
    running = test.fio(None, rw='randrw', bs='4k', time_based=1, runtime=12)
    time.sleep(2)
    test.cluster.kill('osd.0')
    time.sleep(4)
    test.cluster.start('osd.0')
    code, text = finish(running)
    good = say(not code, 'fio verifies while a disk of the cluster is killed and comes back', text)
    target.end()
    return good


def disks_stopped(test):
    """What hangs holds up nothing else."""
    spec = test.image('comes')
    target = Target(test, test.image('hangs'), 'ram:16M')
    osds = [name for name in test.cluster.daemons if name.startswith('osd')]
    for name in osds:
        test.cluster.signal(name, signal.SIGSTOP)
    writing = test.write('h')
    time.sleep(1)
    code, text = test.host('bench -N 2 --destroy-data --rw randrw --runtime 8')
    good = say(not code, 'a namespace in memory goes on, longer than a keep-alive time', text)
    good &= say(writing.poll() is None, 'while a write waits for the disks', writing.returncode)
    code, text = test.control(target, f'add --namespace {spec}')
    good &= say(code and 'has not answered' in text, 'an image that comes then is refused', text)
    for name in osds:
        test.cluster.signal(name, signal.SIGCONT)
    code, text = finish(writing)
    good &= say(not code and test.read() == 'h', 'and which is done when they are back', text)
    for name in osds:
        test.cluster.signal(name, signal.SIGSTOP)
    writing = test.write('i')
    time.sleep(1)
    code = target.end()
    good &= say(code, 'a target that is told to end meanwhile does, and says so', target.said)
    for name in osds:
        test.cluster.signal(name, signal.SIGCONT)
    writing.kill()
    writing.wait()
    return good


# ---- who has the image ----


def locked(test):
    target = Target(test, test.image('locked'))
    other = Target(test, test.spec('rbd/locked'), port=PORT + 1)
    good = say(not other.serves and 'has its lock' in other.said, 'one target has it', other.said)
    other.end()
    test.read()
    target.end(signal.SIGKILL)
    before = test.blocklist()
    other = Target(test, test.spec('rbd/locked', 'fence'), port=PORT + 1)
    shut = [until for address, until in test.blocklist().items() if address not in before]
    soon = time.strftime('%Y-%m-%d', time.gmtime(time.time() + 20 * 86400))
    good &= say(
        other.serves and len(shut) == 1 and shut[0] > soon,
        'fence does not wait for the lock of one that was killed, and shuts that out for weeks',
        other.said,
        shut,
    )
    good &= say(other.end() == 0, 'a target gives its lock back', other.said)
    other = Target(test, test.spec('rbd/locked'), port=PORT + 1)
    good &= say(other.serves, 'so the next one has it', other.said)
    other.end()
    return good


def race(test, name, first, second):
    """A target is stopped while it holds a write, another one goes on, and the first one comes
    back. What is left of both, and what the first one says."""
    one = Target(test, test.spec(name, first, f'delay={HELD}'))
    old = test.write('o')
    time.sleep(1)
    one.process.send_signal(signal.SIGSTOP)
    old.kill()
    old.wait()
    two = Target(test, test.spec(name, second), port=PORT + 1)
    code, text = finish(test.write('n', PORT + 1))
    found = [test.read(PORT + 1)]
    one.process.send_signal(signal.SIGCONT)
    is_told = one.says('is lost', 30)
    found.append(test.read(PORT + 1))
    disk_error = test.status(one)[0]['disk_error']
    one.end()
    two.end()
    say(not code, 'the second one takes a write', text, two.said)
    return found, bool(is_told and disk_error)


def ghosts(test):
    """A write that comes late comes in vain."""
    test.image('fenced')
    found, is_told = race(test, 'rbd/fenced', 'bs=4096', 'fence')
    good = say(found == ['n', 'n'], 'the write of a target that was shut out never lands', found)
    good &= say(is_told, 'and that target says why')
    test.image('unfenced', more='--image-feature layering')
    found, is_told = race(test, 'rbd/unfenced', 'shared', 'shared')
    good &= say(
        found == ['n', 'o'] and not is_told,
        'without the fence it does land: this test sees it',
        found,
    )
    return good


def grouped(test):
    """Two members of a group: the image moves with what it has, and nothing old lands there."""
    spec = test.image('grouped') + f',delay={HELD}'
    port = ports.claim(6)
    group = Group([test.sidewire], test.folder, spec, port)
    try:
        group.start_log()
        for i, name in enumerate('ab'):
            group.add(name, '127.0.0.1', port + 1 + 2 * i, port + 2 + 2 * i).start()
        owner = await_that(group.owner)
        before = test.blocklist()
        old = test.write('o', owner.port)
        time.sleep(1.5)
        owner.signal(signal.SIGSTOP)
        old.kill()
        old.wait()
        other = [member for member in group.members if member is not owner]
        heir = await_that(lambda: group.owner(*other))
        good = say(bool(heir), 'another member takes the image of one that is stopped')
        code, text = finish(test.write('n', heir.port))
        good &= say(not code and len(test.blocklist()) > len(before), 'and shuts that out', text)
        owner.signal(signal.SIGCONT)
        await_that(lambda: 'is lost' in owner.said())
        time.sleep(1)
        good &= say(test.read(heir.port) == 'n', 'what it held never lands', owner.said())
    finally:
        group.close()
    return good


GROUPS = (
    refused,
    verified,
    snapshots,
    resized,
    locked,
    ghosts,
    grouped,
    disk_killed,
    disks_stopped,
)


def main():
    programs = [os.path.abspath(path) for path in sys.argv[1:3]]
    sidewire, engine = (programs + [None])[:2]
    lacking = ceph_cluster.lacking()
    if lacking:
        print(f'SKIP: {", ".join(lacking)} of Ceph: not installed')
        return SKIPPED
    wanted = sys.argv[3:] or [group.__name__ for group in GROUPS]
    chosen = [group for group in GROUPS if group.__name__ in wanted]
    chosen = [group for group in chosen if engine or group not in (verified, disk_killed)]
    good = True
    folder = tempfile.mkdtemp(prefix='sidewire-ceph-')
    os.mkdir(os.path.join(folder, 'ceph'))
    test = None
    try:
        test = Test(sidewire, engine, folder)
        for group in chosen:
            begin = time.monotonic()
            good &= group(test)
            print(f'    {group.__name__}: {time.monotonic() - begin:.1f} s', flush=True)
    finally:
        if test:
            test.cluster.end()
        shutil.rmtree(folder, ignore_errors=True)
    return 0 if good else 1


if __name__ == '__main__':
    sys.exit(main())
