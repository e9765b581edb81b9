# SPDX-License-Identifier: BSD-2-Clause
"""What goes wrong in a soak. Each kind is a function of the world and a source of chance. It
returns how often it did what it is counted by, and raises Fault where somebody did not behave."""
import os
import signal
import subprocess
import time

from world import ADDRESSES, DISK_BYTES, NQN, SERVING, VISITING, run

KILLED_AT_A_TIME = 4
CONNECTS_AT_A_TIME = 250
SILENT_CALLERS = 200
BACK_S = 60  # until all servers listen again
TCP_PORT = '4791'
CALLERS = '''
import socket, sys, time
held = []
for _ in range(int(sys.argv[3])):
    caller = socket.socket()
    caller.settimeout(1)
    try:
        caller.connect((sys.argv[1], int(sys.argv[2])))
        held.append(caller)
    except OSError:
        pass
time.sleep(float(sys.argv[4]))
'''


class Fault(Exception):
    pass


def start(words):
    return subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def end(process):
    process.kill()
    process.wait()


def failed(hosts):
    """A host that failed kept nobody busy: then nothing was tried. A bench may be done."""
    return [' '.join(process.args) for process in hosts if process.poll()]


def end_all(hosts, early):
    for process in hosts:
        end(process)
    if early:
        raise Fault(f'failed by itself: {early[0]}')


def load(world, chance, host):
    """A process that keeps a server busy, with more under way than the target's pool holds."""
    kind = chance.randrange(4)
    if kind == 0:
        return start(world.pmem(host, 'bench', *'-D -f 8M --bs 64K --count 10000000'.split()))
    if kind == 1:
        return start(world.transfer(host, 'bench', '-r', 'memory'))
    words = '--bs 1m --iodepth 32 --rw randrw --destroy-data --runtime 60 -N 2'.split()
    return start(world.nvme(host, 'bench', *words))


def kill_hosts(world, chance):
    hosts = [load(world, chance, chance.randrange(2)) for _ in range(KILLED_AT_A_TIME)]
    time.sleep(chance.uniform(0.3, 2.5))
    end_all(hosts, failed(hosts))
    return KILLED_AT_A_TIME


def connect(world, chance):
    host = chance.randrange(2)
    where = (ADDRESSES[SERVING], '4420', NQN, str(CONNECTS_AT_A_TIME))
    status, said = run(world.command(host, 'run', '--', world.connects, *where), 240)
    if status != -signal.SIGKILL and status != 128 + signal.SIGKILL:  # it kills itself
        raise Fault(f'a host could not connect: {said}')
    return CONNECTS_AT_A_TIME


def stop(world, chance):
    """Hosts that stand still for longer than the target waits for anybody."""
    hosts = [load(world, chance, host) for host in (SERVING, VISITING)]
    time.sleep(chance.uniform(0.5, 2))
    early = failed(hosts)
    for process in hosts:
        process.send_signal(signal.SIGSTOP)
    time.sleep(chance.uniform(2, 30))
    for process in hosts:
        process.send_signal(signal.SIGCONT)
    time.sleep(1)
    end_all(hosts, early)
    return 1


def reachable(world):
    for words in (
        world.nvme(VISITING, 'list'),
        world.pmem(VISITING, 'ls'),
        world.transfer(VISITING, 'read', '-b', '4096', world.path('probe')),
    ):
        status, said = run(words, 20)
        if status:
            return said
    return ''


def restart_network(world, chance):
    name, address = world.hosts.names[SERVING], ADDRESSES[SERVING]
    world.hosts.ip('-n', name, 'addr', 'del', f'{address}/24', 'dev', name)
    world.hosts.set_link(SERVING, name, 'down')
    time.sleep(chance.uniform(0.1, 5))
    world.hosts.set_link(SERVING, name, 'up')
    world.hosts.ip('-n', name, 'addr', 'add', f'{address}/24', 'dev', name)
    limit = time.monotonic() + BACK_S
    while said := reachable(world):
        if time.monotonic() > limit:
            raise Fault(f'not served {BACK_S} s after the network was back: {said}')
        time.sleep(0.5)
    return 1


def fill_disk(world, chance):
    """A program that writes to the full file system fails, and nobody else."""
    filler = os.path.join(world.disk, 'filler')
    with open(filler, 'wb') as file:
        left = os.statvfs(world.disk)
        os.posix_fallocate(file.fileno(), 0, max(left.f_bavail * left.f_frsize, 4096))
    words = f'--rw write --bs 64k --destroy-data --runtime 2 -N 3 --size {2 * DISK_BYTES}'
    status, said = run(world.nvme(chance.randrange(2), 'bench', *words.split()))
    os.unlink(filler)
    if not status:
        raise Fault(f'a full file system took writes: {said}')
    return 1


def call_in_silence(world, chance):
    """Strangers who connect to the TCP port of RoCE, and say nothing."""
    words = ['python3', '-c', CALLERS, ADDRESSES[SERVING], TCP_PORT, str(SILENT_CALLERS)]
    status, said = run([*world.hosts.wrap[VISITING], *words, str(chance.uniform(0, 10))])
    if status:
        raise Fault(said)
    return SILENT_CALLERS


# How often in an hour, counted by what the function returns, and what that is.
KINDS = {
    kill_hosts: (200, 'hosts killed under load'),
    connect: (10000, 'connects'),
    stop: (12, 'hosts stopped'),
    restart_network: (6, 'network restarts'),
    fill_disk: (6, 'full disks'),
    call_in_silence: (1200, 'silent callers'),
}
AT_A_TIME = {
    kill_hosts: KILLED_AT_A_TIME,
    connect: CONNECTS_AT_A_TIME,
    call_in_silence: SILENT_CALLERS,
}
