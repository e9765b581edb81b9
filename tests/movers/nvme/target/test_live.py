#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""A target that is changed while it serves: by a configuration file and SIGHUP, and by add, remove
and status.

usage: test_live.py SIDEWIRE
"""
import json
import os
import signal
import subprocess
import sys
import tempfile
import time

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), '..'))
from programs import HOST_NQN, MIB, NQN, PORT, SECRETS, host, say  # noqa: E402

OTHER = 'nqn.2026-01.test:other'
UUID = 'd592cdf3-5d1c-44e0-8412-3fcf7d99df27'


class Target:
    def __init__(self, sidewire, *words):
        self.sidewire = sidewire
        self.process = subprocess.Popen(
            [sidewire, 'nvme', 'target', *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.said = ''
        self.wait_for('Ctrl-C')

    def wait_for(self, words):
        while True:
            line = self.process.stdout.readline()
            self.said += line
            if words in line:
                return line
            if not line:
                raise RuntimeError(f'the target never said "{words}": {self.said}')

    def control(self, line):
        tried = subprocess.run(
            [self.sidewire, 'nvme', 'target', *line.split()],
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
        return tried.returncode, tried.stdout + tried.stderr

    def status(self):
        code, text = self.control('status -o json')
        return json.loads(text) if code == 0 else {}

    def await_host(self):
        """Until a host has a queue."""
        for _ in range(200):
            if any(one['io_queues'] for one in self.status()['subsystems'][0]['controllers']):
                return True
            time.sleep(0.05)
        return False

    def kill(self):
        self.process.kill()
        self.process.wait()

    def end(self):
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=20)


def bench(sidewire, seconds):
    return subprocess.Popen(
        [
            sidewire,
            *f'nvme bench -a 127.0.0.1 -s {PORT}'.split(),
            '-n',
            NQN,
            *'-N 1 --verify --destroy-data --size 8m --bs 4k --iodepth 8'.split(),
            *f'--runtime {seconds}'.split(),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def namespaces(sidewire, nqn=NQN):
    code, text = host(sidewire, f'list -n {nqn} -o json')
    if code:
        return text
    return sorted((one['NameSpace'], one['PhysicalSize']) for one in json.loads(text)['Devices'])


def added_and_removed(sidewire):
    """Beside a host that reads and writes all the while."""
    target = Target(sidewire, '--listen', f'127.0.0.1:{PORT}', '--namespace', 'ram:8M')
    load = bench(sidewire, 8)
    good = say(target.await_host(), 'status: who is connected', target.status())
    code, text = target.control('add --namespace ram:16M --namespace null:1G,nsid=7')
    good = (
        say(
            code == 0 and namespaces(sidewire) == [(1, 8 * MIB), (2, 16 * MIB), (7, 1024 * MIB)],
            'add: two namespaces',
            text,
            namespaces(sidewire),
        )
        and good
    )
    code, text = target.control('remove --namespace 2')
    good = (
        say(
            code == 0 and namespaces(sidewire) == [(1, 8 * MIB), (7, 1024 * MIB)],
            'remove: one of them',
            text,
        )
        and good
    )
    code, text = target.control(f'add --subsysnqn {OTHER} --namespace ram:1M')
    good = (
        say(code == 0 and namespaces(sidewire, OTHER) == [(1, MIB)], 'add: another subsystem', text)
        and good
    )
    code, text = target.control('add --namespace ram:1M')
    good = (
        say(code == 1 and '--subsysnqn' in text, 'add: which of the two subsystems is asked', text)
        and good
    )
    code, text = target.control(
        f'add --subsysnqn {NQN} --namespace ram:1M --namespace file:/not/there'
    )
    good = (
        say(
            code == 1 and '/not/there' in text and len(namespaces(sidewire)) == 2,
            'add: all of it or nothing',
            text,
        )
        and good
    )
    code, text = target.control(f'remove --subsysnqn {OTHER}')
    good = (
        say(
            f'removed        subsystem {OTHER}' in text
            and code == 0
            and OTHER not in host(sidewire, 'discover')[1],
            'remove: the subsystem',
            text,
        )
        and good
    )
    good = (
        say(target.control('status')[1].startswith('target '), 'status: to be read by people')
        and good
    )
    code, text = target.control('metrics')
    wanted = f'sidewire_nvme_namespace_reads_total{{nqn="{NQN}",nsid="1"}} '
    good = say(code == 0 and wanted in text, 'metrics: by namespace', text) and good
    text = load.communicate(timeout=60)[0]
    good = say(load.returncode == 0, 'a host in the meantime: every byte', text) and good
    code, text = target.control(f'add --listen 127.0.0.1:{PORT + 1}')
    found, why = host(sidewire, 'discover')
    good = (
        say(code == 0 and f'{PORT + 1}' in why, 'add --listen: discovery shows it', text, why)
        and good
    )
    code, text = target.control('add --allow nqn.2026-01.test:nobody')
    refused, why = host(sidewire, f'id-ctrl -n {NQN}')
    good = say(code == 0 and refused, 'add --allow: others are not let in', text, why) and good
    code, text = target.control(f'add --dhchap-secret {HOST_NQN}={SECRETS[0]}')
    refused, why = host(sidewire, f'id-ctrl -n {NQN} -q {HOST_NQN}')
    knows = host(sidewire, f'id-ctrl -n {NQN} -q {HOST_NQN} -S {SECRETS[0]}')
    good = (
        say(
            code == 0 and refused and knows[0] == 0,
            'add --dhchap-secret: who knows it is let in',
            text,
            why,
            knows[1],
        )
        and good
    )
    code, text = target.control(f'remove --dhchap-secret {HOST_NQN}={SECRETS[0]}')
    good = say(code and 'remove the host' in text, 'a secret alone is not removed', text) and good
    return say(target.end() == 0, 'SIGTERM: it ends by itself') and good


def config(folder, *backends, groups=(), referrals=(), hosts=()):
    listed = [
        {
            'nsid': number,
            'enable': 1,
            'ana_grpid': group,
            'device': {'path': path, **({'uuid': UUID} if number == 1 else {})},
        }
        for number, (path, group) in backends
    ]
    port = {
        'portid': 1,
        'addr': {
            'adrfam': 'ipv4',
            'traddr': '127.0.0.1',
            'trsvcid': str(PORT),
            'trtype': 'rdma',
            'treq': 'not specified',
        },
        'ana_groups': [{'grpid': number, 'ana': {'state': state}} for number, state in groups],
        'subsystems': [NQN],
        'referrals': list(referrals),
    }
    subsystem = {
        'nqn': NQN,
        'attr': {'allow_any_host': '1', 'serial': 'S1', 'model': 'Bring your own'},
        'allowed_hosts': [one['nqn'] for one in hosts],
        'namespaces': listed,
    }
    path = os.path.join(folder, 'config.json')
    with open(path, 'w', encoding='utf-8') as file:
        json.dump({'hosts': list(hosts), 'ports': [port], 'subsystems': [subsystem]}, file)
    return path


def reloaded(sidewire, folder):
    """Unchanged parts go on, beside a host that reads and writes."""
    disk = os.path.join(folder, 'disk')
    with open(disk, 'wb') as file:
        file.truncate(4 * MIB)
    path = config(folder, (1, ('ram:8M', 1)))
    target = Target(sidewire, '--config', path)
    load = bench(sidewire, 4)
    text = host(sidewire, f'id-ctrl -n {NQN}')[1]
    good = say('Bring your own' in text and 'S1' in text, '--config: as the file says', text)
    text = host(sidewire, f'id-ns -n {NQN} -N 1')[1]
    good = (
        say(
            UUID.replace('-', '') in text.replace('-', ''),
            '--config: the namespace has its UUID',
            text,
        )
        and good
    )
    referral = {
        'name': 'more',
        'enable': 1,
        'addr': {'adrfam': 'ipv4', 'traddr': '192.0.2.77', 'trsvcid': '4420', 'trtype': 'rdma'},
    }
    config(
        folder,
        (1, ('ram:8M', 1)),
        (2, (f'file:{disk}', 2)),
        groups=[(2, 'inaccessible')],
        referrals=[referral],
    )
    target.process.send_signal(signal.SIGHUP)
    target.wait_for('read again')
    good = (
        say(
            namespaces(sidewire) == [(1, 8 * MIB), (2, 4 * MIB)],
            'SIGHUP: another namespace',
            namespaces(sidewire),
        )
        and good
    )
    text = host(sidewire, 'discover')[1]
    good = (
        say(
            '192.0.2.77' in text and 'discovery subsystem referral' in text,
            'SIGHUP: a referral',
            text,
        )
        and good
    )
    code, text = host(sidewire, f'read -n {NQN} -N 2 -z 4096 -d {disk}.got --ctrl-loss-tmo 1')
    good = say(code != 0, 'a group that is inaccessible by this port is not read', text) and good
    with open(path, 'a', encoding='utf-8') as file:
        file.write('}')
    target.process.send_signal(signal.SIGHUP)
    line = target.wait_for('stays as it was')
    good = (
        say(
            len(namespaces(sidewire)) == 2 and 'config.json' in target.said,
            'SIGHUP: of a file that is no JSON nothing is taken',
            line,
        )
        and good
    )
    config(folder, (1, ('ram:8M', 1)), (2, ('file:/not/there', 2)), groups=[(2, 'optimized')])
    target.process.send_signal(signal.SIGHUP)
    target.wait_for('but for what is said')
    config(folder, (1, ('ram:8M', 1)), (2, (f'file:{disk}', 2)), groups=[(2, 'optimized')])
    target.process.send_signal(signal.SIGHUP)
    target.wait_for('read again')
    code, text = host(sidewire, f'read -n {NQN} -N 2 -z 4096 -d {disk}.got')
    good = (
        say(code == 0, 'SIGHUP: what failed is tried again, the group is there', text, target.said)
        and good
    )
    text = load.communicate(timeout=60)[0]
    good = say(load.returncode == 0, 'a host in the meantime: every byte', text) and good
    return say(target.end() == 0, 'SIGTERM: it ends by itself') and good


def killed(sidewire):
    """A socket that is left behind is no hindrance."""
    first = Target(sidewire, '--listen', f'127.0.0.1:{PORT}', '--namespace', 'ram:1M')
    second = Target(sidewire, '--listen', f'127.0.0.1:{PORT + 1}', '--namespace', 'ram:1M')
    code, text = first.control('status')
    good = say(code == 1 and '--pid' in text, 'status: of two targets, which is asked', text)
    code, text = first.control(f'status --pid {second.process.pid}')
    good = say(code == 0 and f'process {second.process.pid}' in text, 'status --pid', text) and good
    second.kill()
    code, text = first.control('status')
    good = (
        say(
            code == 0 and f'process {first.process.pid}' in text,
            'after kill -9 of one: the other',
            text,
        )
        and good
    )
    good = say(first.end() == 0, 'SIGTERM: it ends by itself') and good
    code, text = first.control('status')
    return say(code == 1 and 'no target' in text, 'status: of none', text) and good


def faulty(sidewire):
    """Errors, short reads and delays by request."""
    folder = os.environ['XDG_RUNTIME_DIR']
    disk = os.path.join(folder, 'short')
    with open(disk, 'wb') as file:
        file.truncate(16 * MIB)
    target = Target(
        sidewire,
        '--listen',
        f'127.0.0.1:{PORT}',
        '--namespace',
        'ram:16M,error=100%',
        '--namespace',
        f'file:{disk},short=50%',
        '--namespace',
        'ram:1M,delay=300ms',
    )
    code, text = host(sidewire, f'read -n {NQN} -N 1 -z 4096 -d {disk}.got')
    good = say(code != 0, 'error=100%: a read fails', text)
    code, text = host(
        sidewire,
        f'bench -n {NQN} -N 2 --verify --destroy-data --size 8m --bs 128k --iodepth 4 -i 1',
    )
    good = say(code == 0, 'short=50%: every byte all the same', text) and good
    begun = time.monotonic()
    code, text = host(sidewire, f'read -n {NQN} -N 3 -z 4096 -d {disk}.got')
    took = time.monotonic() - begun
    good = say(code == 0 and took > 0.3, f'delay=300ms: {took:.2f} s', text) and good
    return say(target.end() == 0, 'SIGTERM: it ends by itself') and good


def proves_itself(sidewire):
    return subprocess.Popen(
        [
            sidewire,
            *f'nvme list -a 127.0.0.1 -s {PORT}'.split(),
            '-n',
            NQN,
            '-q',
            HOST_NQN,
            '-S',
            SECRETS[0],
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def proven_beside_load(sidewire, folder):
    """Hosts prove themselves with the largest group, some of them are killed meanwhile; a host that
    need not reads and writes."""
    one = {'nqn': HOST_NQN, 'dhchap_key': SECRETS[0], 'dhchap_dhgroup': 'ffdhe8192'}
    target = Target(sidewire, '--config', config(folder, (1, ('ram:8M', 1)), hosts=[one]))
    load = bench(sidewire, 4)
    good = True
    for number in range(8):
        stay, leave = proves_itself(sidewire), [proves_itself(sidewire) for _ in range(3)]
        time.sleep(0.05 + 0.02 * number)
        for each in leave:
            each.kill()
            each.communicate()
        text = stay.communicate(timeout=60)[0]
        if stay.returncode:
            good = say(False, 'a host proves itself with ffdhe8192', text)
    text = load.communicate(timeout=60)[0]
    good = (
        say(
            load.returncode == 0,
            (
                'hosts prove themselves with ffdhe8192, others are killed; a host in the meantime: '
                'every byte'
            ),
            text,
        )
        and good
    )
    for _ in range(100):
        left = target.status()['subsystems'][0]['controllers']
        if not left:
            break
        time.sleep(0.1)
    good = say(not left, 'of all that is nothing left', left) and good
    last = [proves_itself(sidewire) for _ in range(3)]
    time.sleep(0.1)
    good = (
        say(target.end() == 0, 'SIGTERM while hosts prove themselves: it ends by itself') and good
    )
    for each in last:
        each.kill()
        each.communicate()
    return good


def main(sidewire):
    with tempfile.TemporaryDirectory() as folder:
        os.environ['XDG_RUNTIME_DIR'] = folder
        good = added_and_removed(sidewire)
        good = reloaded(sidewire, folder) and good
        good = proven_beside_load(sidewire, folder) and good
        good = killed(sidewire) and good
        good = faulty(sidewire) and good
    return 0 if good else 1


if __name__ == '__main__':
    sys.exit(main(sys.argv[1]))
