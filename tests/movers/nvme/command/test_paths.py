#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""A host with two paths to one file that two targets serve: turns, a target that is killed, stopped
or says by its ANA log that it is not to be used, a path that leads to something else.

usage: test_paths.py SIDEWIRE [roce]
"""
import json
import os
import signal
import subprocess
import sys
import tempfile
import time

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), '..'))
from programs import MIB, NQN, PORT, say  # noqa: E402

PORTS = (PORT, PORT + 1)
BOTH = f'-a 127.0.0.1:{PORTS[0]} -a 127.0.0.1:{PORTS[1]} -n {NQN}'
UUID = '0a1b2c3d-0405-0607-0809-0a0b0c0d0e0f'
DELAYS_S = (0.5, 1.5, 3)


class Member:
    """A target at one of the ports, of a configuration file so that its ANA state can change."""

    def __init__(self, sidewire, folder, number, disk, state='optimized', options=''):
        self.sidewire, self.folder, self.number, self.disk = sidewire, folder, number, disk
        self.options = options
        self.process = None
        self.said = ''
        self.write(state)
        self.start()

    def write(self, state):
        port = {
            'portid': 1,
            'addr': {
                'adrfam': 'ipv4',
                'traddr': '127.0.0.1',
                'trsvcid': str(PORTS[self.number]),
                'trtype': 'rdma',
                'treq': 'not specified',
            },
            'ana_groups': [{'grpid': 1, 'ana': {'state': state}}],
            'subsystems': [NQN],
        }
        namespace = {
            'nsid': 1,
            'enable': 1,
            'ana_grpid': 1,
            'device': {'path': f'file:{self.disk},shared{self.options}', 'uuid': UUID},
        }
        subsystem = {
            'nqn': NQN,
            'attr': {'allow_any_host': '1', 'serial': 'ONE'},
            'namespaces': [namespace],
        }
        path = os.path.join(self.folder, f'{self.number}.json')
        with open(path + '.new', 'w', encoding='utf-8') as file:
            json.dump({'hosts': [], 'ports': [port], 'subsystems': [subsystem]}, file)
        os.rename(path + '.new', path)
        return path

    def start(self):
        path = os.path.join(self.folder, f'{self.number}.json')
        self.process = subprocess.Popen(
            [self.sidewire, 'nvme', 'target', '--config', path],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.wait_for('Ctrl-C')

    def wait_for(self, word):
        line = ''
        while word not in line:
            line = self.process.stdout.readline()
            if not line:
                raise RuntimeError(f'target {self.number} ended: {self.said}')
            self.said += line

    def becomes(self, state):
        self.write(state)
        self.process.send_signal(signal.SIGHUP)
        self.wait_for('read again')

    def kill(self):
        self.process.kill()
        self.process.wait()

    def end(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.process.stdout.close()


class Bench:
    def __init__(self, sidewire, words, addresses=BOTH):
        self.process = subprocess.Popen(
            [sidewire, *f'nvme bench {addresses} -o json --destroy-data {words}'.split()],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def result(self):
        """(exit status, JSON, what it said)"""
        out, said = self.process.communicate(timeout=100)
        try:
            return self.process.returncode, json.loads(out), said
        except ValueError:
            return self.process.returncode, {}, out + said


def paths_of(sidewire, addresses=BOTH, more=''):
    tried = subprocess.run(
        [sidewire, *f'nvme list {addresses} -o json {more}'.split()],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    found = json.loads(tried.stdout) if tried.stdout else {}
    return found.get('paths', []), tried.stderr + tried.stdout


def requests_of(result):
    return [path['requests'] for path in result.get('paths', [])]


def turns(sidewire):
    paths, text = paths_of(sidewire)
    states = [(path['state'], path['ana'], path['address']) for path in paths]
    wanted = [('used', 'optimized', f'127.0.0.1:{port}') for port in PORTS]
    good = say(states == wanted, 'list: two paths, both optimized', text)
    words = '--rw randrw --iodepth 8 --runtime 0.3'
    code, result, said = Bench(sidewire, words).result()
    counts = requests_of(result)
    even = len(counts) == 2 and counts[0] and abs(counts[0] - counts[1]) <= 2
    good = say(code == 0 and even, f'round-robin: {counts} requests', said) and good
    for policy in ('queue-depth', 'numa'):
        code, result, said = Bench(sidewire, f'{words} --iopolicy {policy}').result()
        counts = requests_of(result)
        good = say(code == 0 and all(counts), f'{policy}: {counts} requests', said) and good
    code, result, said = Bench(sidewire, words, BOTH + ' --no-in-capsule -i 2 --numjobs 2').result()
    return say(code == 0 and all(requests_of(result)), 'two threads', said) and good


def disturbed(sidewire, words, disturb, mend, wanted=('requests', 'moved')):
    """(exit status, JSON, what it said, its second path), of some seconds of a load.

    The path is disturbed when it has been used, which takes longer on a busy machine: again, until
    one of its figures that are wanted is there.
    """
    for delay_s in DELAYS_S:
        load = Bench(sidewire, f'--runtime {4 + delay_s} {words}')
        time.sleep(delay_s)
        disturb()
        try:
            code, result, said = load.result()
        finally:
            mend()
        path = (result.get('paths') or [{}, {}])[1]
        has_failed = code and path.get('requests')  # which no other try may hide
        if has_failed or any(path.get(name) for name in wanted):
            break
    return code, result, said, path


def killed(sidewire, member):
    """Without proof a write may have been done; a user who wants it goes on at once."""

    def kill_briefly():
        member.kill()
        time.sleep(1)
        member.start()

    words = '--verify --size 8m --bs 4k --iodepth 16 --reconnect-delay 1 --quiesce-tmo 0'
    # A busy target may have answered all that it was asked when it is killed: nothing moves then.
    code, _, said, path = disturbed(sidewire, words, kill_briefly, lambda: None, ('moved',))
    good = say(
        code == 0 and path.get('reconnects', 0) >= 1 and path['moved'],
        'a target is killed and comes again: all is verified, its path is used again',
        said,
        path,
    )
    words = '--rw randwrite --iodepth 32 --bs 64k'
    code, _, said, path = disturbed(sidewire, words, member.kill, member.start)
    told = 'it may have happened' in said and path.get('maybe_done', 0) > 0
    return say(code and told, 'without proof a write may have been done', said, path) and good


def stopped(sidewire, member):
    """Nothing goes to another path before its time."""
    quiesce_s = 2
    code, result, said, path = disturbed(
        sidewire,
        f'--rw randwrite --iodepth 32 --bs 64k --keep-alive-tmo 1 --quiesce-tmo {quiesce_s}',
        lambda: member.process.send_signal(signal.SIGSTOP),
        lambda: member.process.send_signal(signal.SIGCONT),
    )
    longest_us = result['rows'][0]['write']['max_us'] if result.get('rows') else 0
    held = path.get('held', 0) and path.get('maybe_done') == 0
    return say(
        code == 0 and held and longest_us >= quiesce_s * 1e6,
        f'a target is stopped: its writes wait {longest_us / 1e6:.2f} s before they go elsewhere',
        said,
        path,
    )


def moved_by_ana(sidewire, members):
    members[0].becomes('optimized')
    members[1].becomes('inaccessible')
    load = Bench(sidewire, '--verify --size 8m --bs 4k --iodepth 8 --runtime 2')
    time.sleep(0.7)
    members[1].becomes('optimized')
    time.sleep(0.2)
    members[0].becomes('inaccessible')
    code, result, said = load.result()
    counts = requests_of(result)
    good = say(code == 0 and all(counts), f'ANA moves requests: {counts}', said)
    members[0].becomes('non-optimized')
    code, result, said = Bench(sidewire, '--rw randrw --iodepth 8 --runtime 0.3').result()
    counts = requests_of(result)
    good = say(counts[0] == 0 and counts[1], f'optimized ones first: {counts}', said) and good
    members[1].becomes('inaccessible')
    code, result, said = Bench(sidewire, '--rw randrw --iodepth 8 --runtime 0.3').result()
    counts = requests_of(result)
    good = say(counts[0] and not counts[1], f'then the others: {counts}', said) and good
    members[1].becomes('optimized')
    members[0].becomes('optimized')
    return good


def another_disk(sidewire, folder, members):
    members[1].kill()
    other = os.path.join(folder, 'other')
    with open(other, 'wb') as file:
        file.truncate(8 * MIB)
    members[1].disk = other
    members[1].write('optimized')
    members[1].start()
    paths, text = paths_of(sidewire)
    good = say(
        [path['state'] for path in paths] == ['used', 'refused'] and 'blocks' in paths[1]['why'],
        'a path to another file is refused: ' + (paths[1]['why'] if len(paths) > 1 else ''),
        text,
    )
    members[0].kill()
    members[1].kill()
    paths, text = paths_of(sidewire, more='--ctrl-loss-tmo 1')
    return say('no path can be used' in text, 'no path at all: it says so', text) and good


def discovered(sidewire, folder, disk):
    words = [sidewire, 'nvme', 'target', '--namespace', f'file:{disk}']
    for port in PORTS:
        words += ['--listen', f'127.0.0.1:{port}']
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as target:
        line = ' '
        while line and 'Ctrl-C' not in line:
            line = target.stdout.readline()
        one = f'-a 127.0.0.1:{PORTS[1]} -n {NQN}'
        paths, text = paths_of(sidewire, one, '--discover-paths')
        target.kill()
    addresses = [path['address'] for path in paths]
    wanted = [f'127.0.0.1:{port}' for port in reversed(PORTS)]
    return say(addresses == wanted, '--discover-paths: the other address too', text, folder)


def main(sidewire):
    with tempfile.TemporaryDirectory() as folder:
        disk = os.path.join(folder, 'disk')
        with open(disk, 'wb') as file:
            file.truncate(16 * MIB)
        members = [Member(sidewire, folder, number, disk) for number in range(2)]
        try:
            good = turns(sidewire)
            good = moved_by_ana(sidewire, members) and good
            good = killed(sidewire, members[1]) and good
            good = stopped(sidewire, members[1]) and good
            good = another_disk(sidewire, folder, members) and good
        finally:
            for member in members:
                member.end()
        return 0 if discovered(sidewire, folder, disk) and good else 1


def leave_others():
    """Over packets the stopped programs of other tests would hold what came to the shared port."""
    if os.geteuid() == 0 and 'SIDEWIRE_LINK' not in os.environ:
        os.environ['SIDEWIRE_LINK'] = 'roce'
        enter = ['unshare', '--net', 'sh', '-c', 'ip link set lo up; exec "$@"', 'alone']
        os.execvp(enter[0], [*enter, sys.executable, *sys.argv])
    os.environ['SIDEWIRE_LINK'] = 'roce'


if __name__ == '__main__':
    if sys.argv[2:] == ['roce']:
        leave_others()
    sys.exit(main(sys.argv[1]))
