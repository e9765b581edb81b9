#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""A file that one target serves, no other one serves without being told to. And it is asked without
a descriptor left.

usage: test_served.py SIDEWIRE
"""
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), '..'))
from programs import NQN, PORT, say  # noqa: E402


class Target:
    def __init__(self, sidewire, port, *words):
        self.sidewire = sidewire
        listen = ['--listen', f'127.0.0.1:{port}'] if port else []
        self.process = subprocess.Popen(
            [sidewire, 'nvme', 'target', *listen, *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors='replace',
        )
        self.said = ''
        self.serves = self.wait_for('Ctrl-C')

    def wait_for(self, words):
        """False: it has ended."""
        while True:
            line = self.process.stdout.readline()
            self.said += line
            if words in line:
                return True
            if not line:
                self.process.wait()
                return False

    def control(self, line):
        tried = subprocess.run(
            [self.sidewire, 'nvme', 'target', *line.split(), '--pid', str(self.process.pid)],
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
        return tried.returncode, tried.stdout + tried.stderr

    def end(self, number=signal.SIGTERM):
        if self.process.poll() is None:
            self.process.send_signal(number)
            self.process.wait(timeout=20)


def names(text, path, target):
    return f'{path}: ' in text and f'(PID {target.process.pid})' in text


def refused(sidewire, path):
    """By another target, and by the same one."""
    good = True
    for first, second in ('file', 'file'), ('file', 'nvram'), ('nvram', 'file,ro'):
        one = Target(sidewire, PORT, '--namespace', f'{first}:{path}')
        kind, _, option = second.partition(',')
        spec = f'{kind}:{path}' + (',' + option if option else '')
        two = Target(sidewire, PORT + 1, '--namespace', spec)
        good &= say(
            one.serves and not two.serves and names(two.said, path, one) and 'sidewire' in two.said,
            f'{second} of what is served by {first} is refused by name and PID',
            two.said,
        )
        two.end()
        code, text = one.control(f'add --namespace {spec}')
        good &= say(
            code and path in text and 'this process' in text,
            'also by add, to the target that serves it',
            text,
        )
        one.end()
    return good


def killed(sidewire, path):
    one = Target(sidewire, PORT, '--namespace', f'file:{path}')
    one.end(signal.SIGKILL)
    two = Target(sidewire, PORT + 1, '--namespace', f'file:{path}')
    good = say(two.serves, 'a target that was killed leaves no lock', two.said)
    code, text = two.control('remove --namespace 1')
    three = Target(sidewire, PORT, '--namespace', f'file:{path}')
    good &= say(
        not code and three.serves, 'nor does a namespace that was removed', text, three.said
    )
    two.end()
    three.end()
    return good


def shared(sidewire, path):
    one = Target(sidewire, PORT, '--namespace', f'file:{path},shared')
    two = Target(sidewire, PORT + 1, '--namespace', f'file:{path},shared')
    good = say(one.serves and two.serves, 'those who say so share', one.said, two.said)
    code, text = one.control(f'add --namespace nvram:{path}')
    good &= say(code and 'shared' in text, 'and nobody else has it alone', text)
    one.end()
    two.end()
    one = Target(sidewire, PORT, '--namespace', f'file:{path},ro')
    two = Target(sidewire, PORT + 1, '--namespace', f'file:{path},ro')
    good &= say(one.serves and two.serves, 'readers share', one.said, two.said)
    one.end()
    two.end()
    memory = Target(sidewire, PORT, '--namespace', 'ram:1M,shared')
    good &= say(not memory.serves and 'leave shared away' in memory.said, 'memory is not shared')
    memory.end()
    return good


def configure(file, backends):
    """What a target serves: the text of the backend, by number."""
    namespaces = [
        {'nsid': nsid, 'enable': 1, 'device': {'path': backend}}
        for nsid, backend in backends.items()
    ]
    subsystem = {'nqn': NQN, 'attr': {'allow_any_host': '1'}, 'namespaces': namespaces}
    addr = {'trtype': 'rdma', 'adrfam': 'ipv4', 'traddr': '127.0.0.1', 'trsvcid': str(PORT)}
    with open(file, 'w', encoding='ascii') as out:
        json.dump(
            {
                'subsystems': [subsystem],
                'ports': [{'portid': 1, 'addr': addr, 'subsystems': [NQN]}],
            },
            out,
        )


def reload(target, file, backends):
    """What the target says to its new configuration."""
    configure(file, backends)
    target.said = ''
    target.process.send_signal(signal.SIGHUP)
    target.wait_for('read again')
    return target.said


def taken(said):
    return 'read again\n' in said and 'locked' not in said


def served_now(target):
    """What it says that it serves."""
    status = json.loads(target.control('status -o json')[1])
    return {ns['nsid']: ns['backend'] for ns in status['subsystems'][0]['namespaces']}


def replaced(sidewire, path):
    """A namespace is opened anew while the old one serves."""
    file = path + '.json'
    configure(file, {1: f'file:{path}'})
    target = Target(sidewire, 0, '--config', file)
    good = say(target.serves, 'a configuration is served', target.said)
    for backend in f'file:{path},bs=512', f'nvram:{path}', f'nvram:{path},ro', f'file:{path}':
        said = reload(target, file, {1: backend})
        good &= say(taken(said), f'{backend} takes the place of what served the file before', said)
    other = Target(sidewire, PORT + 1, '--namespace', f'file:{path}')
    good &= say(not other.serves and names(other.said, path, target), 'and has its lock')
    other.end()
    target.end()
    return good


def swapped(sidewire, path):
    """Namespaces that change places have each other's files."""
    file, more = path + '.json', path + '-2'
    with open(more, 'wb') as out:
        out.truncate(2 << 20)
    first = {1: f'file:{path}', 2: f'file:{more}'}
    second = {1: f'file:{more}', 2: f'file:{path}'}
    configure(file, first)
    target = Target(sidewire, 0, '--config', file)
    good = True
    for wanted in second, first:
        said = reload(target, file, wanted)
        good &= say(taken(said) and served_now(target) == wanted, 'two files change places', said)
    said = reload(target, file, {1: f'file:{more}', 2: f'file:{path}-gone'})
    good &= say(
        'removed        namespace 2' in said and served_now(target) == {1: f'file:{more}'},
        'one whose file was taken, and whose own is not there, does not serve it besides',
        said,
        served_now(target),
    )
    reload(target, file, first)
    said = reload(target, file, {1: f'file:{path}-gone', 2: f'file:{path}'})
    good &= say(
        served_now(target) == first and 'this process' in said,
        'one that goes on keeps its file, and that is shown',
        said,
        served_now(target),
    )
    target.end()
    return good


def load(sidewire, target):
    """Reads that take half a second each, and are under way when it returns."""
    words = '-a 127.0.0.1 --iodepth 8 --runtime 30'.split()
    host = subprocess.Popen(
        [sidewire, 'nvme', 'bench', *words, '-s', str(PORT), '-n', NQN],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    for _ in range(300):
        status = json.loads(target.control('status -o json')[1])
        if sum(ns['reads'] for ns in status['subsystems'][0]['namespaces']) > 8:
            return host
        time.sleep(0.1)
    say(False, 'the load does not begin')
    return host


def busy(sidewire, path):
    """A file is served anew while requests to it are under way where it was served before."""
    file, slow = path + '.json', f'file:{path},delay=500ms'
    configure(file, {1: slow})
    target = Target(sidewire, 0, '--config', file)
    host = load(sidewire, target)
    said = reload(target, file, {2: slow})
    good = say(
        taken(said) and served_now(target) == {2: slow}, 'a busy file gets another number', said
    )
    host.kill()
    host.wait()
    reload(target, file, {1: slow})
    host = load(sidewire, target)
    code, text = target.control('remove --namespace 1')
    good &= say(not code, 'a busy file is removed', text)
    code, text = target.control(f'add --namespace {slow}')
    good &= say(not code, 'and added again at once', text)
    other = Target(sidewire, PORT + 1, '--namespace', f'file:{path}')
    good &= say(not other.serves and names(other.said, path, target), 'for that target alone')
    other.end()
    host.kill()
    host.wait()
    target.end()
    return good


def states(pid, count):
    """How often its first thread was found asleep."""
    asleep = 0
    for _ in range(count):
        with open(f'/proc/{pid}/stat', encoding='ascii') as stat:
            asleep += stat.read().rsplit(')', 1)[1].split()[0] == 'S'
        time.sleep(0.01)
    return asleep


def starved(sidewire, path):
    """Asked without a descriptor for who asks, the target waits; it does not spin."""
    looks = 40
    target = Target(sidewire, PORT, '--namespace', f'file:{path}')
    pid = target.process.pid
    before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (3, before[1]))
    asks = subprocess.Popen(
        [sidewire, 'nvme', 'target', 'status', '--pid', str(pid)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    time.sleep(0.3)
    asleep = states(pid, looks)
    waits = asks.poll() is None
    resource.prlimit(pid, resource.RLIMIT_NOFILE, before)
    text = asks.communicate(timeout=30)[0]
    good = say(
        waits and asleep > looks // 2 and not asks.returncode,
        'a target without a descriptor left sleeps, and answers later',
        f'asleep {asleep} of {looks} times, waits: {waits}',
        text,
    )
    target.end()
    return good


def read_only(sidewire, path):
    """A server of a file that nobody writes meets no writer, unless it shares the file, too."""
    good = True
    for first, second in (',ro', ',shared'), (',shared', ',ro'):
        one = Target(sidewire, PORT, '--namespace', f'file:{path}{first}')
        other = Target(sidewire, PORT + 1, '--namespace', f'file:{path}{second}')
        good &= say(
            one.serves and not other.serves and f'PID {one.process.pid}' in other.said,
            f'{first} refuses {second}',
            other.said,
        )
        other.end()
        one.end()
    for options in (',ro', ',ro'), (',ro,shared', ',shared'):
        both = [
            Target(sidewire, PORT + i, '--namespace', f'file:{path}{options[i]}') for i in (0, 1)
        ]
        good &= say(
            both[0].serves and both[1].serves,
            f'{options[0]} beside {options[1]}',
            both[0].said + both[1].said,
        )
        for one in both:
            one.end()
    return good


def not_utf8(sidewire, path):
    other = path + os.fsdecode(b'-\xff')
    os.link(path, other)
    target = Target(sidewire, PORT, '--namespace', f'file:{other}', '--namespace', 'null:1M')
    code, text = target.control('status')
    target.end()
    good = not code and f'file:{path}-?' in text
    return say(good, 'a file whose name is not UTF-8 is served, and shown', target.said, text)


def short_of_memory(sidewire, _):
    target = Target(sidewire, PORT, '--namespace', 'ram:4T', '--namespace', 'ram:1M')
    good = say(
        target.serves
        and 'namespace 1: larger than the' in target.said
        and 'namespace 2: larger' not in target.said,
        'a namespace that is larger than the memory is served with a warning',
        target.said,
    )
    target.end()
    return good


def main():
    sidewire = sys.argv[1]
    good = True
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, 'disk')
        with open(path, 'wb') as file:
            file.truncate(1 << 20)
        for case in (
            *(refused, killed, shared, replaced, swapped, busy, starved),
            *(read_only, not_utf8, short_of_memory),
        ):
            good &= case(sidewire, path)
    return not good


if __name__ == '__main__':
    sys.exit(main())
