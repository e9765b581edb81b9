# SPDX-License-Identifier: BSD-2-Clause
"""Two hosts, the servers of all movers on the first one, and what these hold over time."""
import collections
import os
import re
import signal
import subprocess
import sys
import time

for folder in '../apps', '../tools':
    sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), folder))
from hosts import ADDRESSES, Hosts  # noqa: E402
from pair import Skip  # noqa: E402,F401

NQN = 'nqn.2026-01.io.sidewire:default'
SERVING, VISITING = 0, 1  # the hosts
BEGIN_S = 30
TABLES = '/memfd:sidewire-tables'
DISK_BYTES = 24 << 20  # of the file system that gets full
MEMORY_BYTES = 16 << 20  # that transfers serve
NAMESPACES = '64m', '256m'  # of memory
SERVED_BYTES = 64 << 20  # of the file on it, which has holes
# A device takes these when it first adopts memory, which may be late, and keeps them: a
# userfaultfd for each of 8 groups of segments and one for a fork, and files that a fork reads.
ADOPTING = collections.Counter(
    {
        'anon_inode:[userfaultfd]': 9,
        **{f'/proc/N/{name}': 1 for name in ('maps', 'fd', 'task', 'pagemap')},
    }
)


def run(words, patience_s=120, data=None):
    """Returns the status and what was said."""
    try:
        done = subprocess.run(
            words, input=data, capture_output=True, timeout=patience_s, check=False
        )
    except subprocess.TimeoutExpired:
        return 124, f'not done after {patience_s} s'
    return done.returncode, (done.stdout + done.stderr).decode(errors='replace').strip()


class Server:
    """A process that serves, and the samples of its memory and descriptors."""

    def __init__(self, name, words, log):
        self.name = name
        self.log = log
        self.samples = []  # of (time, KiB, descriptors)
        with open(log, 'wb') as out:
            self.process = subprocess.Popen(words, stdout=out, stderr=out)
        limit = time.monotonic() + BEGIN_S
        while 'Ctrl-C' not in self.said():
            if self.process.poll() is not None or time.monotonic() > limit:
                raise RuntimeError(f'{name} does not begin: {self.said()}')
            time.sleep(0.05)

    def said(self):
        with open(self.log, errors='replace') as file:
            return file.read()

    def is_alive(self):
        return self.process.poll() is None

    def holds(self):
        """KiB of memory that no file is behind, and descriptors. Memory that is mapped twice, as a
        namespace is, counts once. The device's tables do not count: they have a size, and are
        walked through once, so that no number comes again soon. The descriptors for adopted memory
        count as if all were taken: what exceeds them is a leak."""
        folder = f'/proc/{self.process.pid}'
        with open(f'{folder}/smaps_rollup') as file:
            fields = dict(line.split(':', 1) for line in file if ': ' in line)
        kib = sum(int(fields[name].split()[0]) for name in ('Pss_Anon', 'Pss_Shmem'))
        return kib - self.tables_kib(), (self.descriptors() | ADOPTING).total()

    def tables_kib(self):
        kib, is_table = 0, False
        with open(f'/proc/{self.process.pid}/smaps') as file:
            for line in file:
                if line[0] in '0123456789abcdef':
                    is_table = TABLES in line
                elif is_table and line.startswith('Pss:'):
                    kib += int(line.split()[1])
        return kib

    def descriptors(self):
        """How many of each kind: what they lead to, without numbers."""
        folder = f'/proc/{self.process.pid}/fd'
        kinds = collections.Counter()
        for number in os.listdir(folder):
            try:
                kinds[re.sub(r'\d+', 'N', os.readlink(f'{folder}/{number}'))] += 1
            except FileNotFoundError:
                continue  # closed meanwhile
        return kinds

    def sample(self, now):
        if self.is_alive():
            self.samples.append((now, *self.holds()))

    def end(self):
        if self.is_alive():
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()


class World:
    def __init__(self, sidewire, connects, folder):
        self.sidewire, self.connects, self.folder = sidewire, connects, folder
        self.disk = self.path('disk')
        os.makedirs(self.disk)
        subprocess.run(
            ['mount', '-t', 'tmpfs', '-o', f'size={DISK_BYTES}', 'soak', self.disk], check=True
        )
        self.hosts = Hosts()
        self.card = self.path('card')
        self.servers = []
        try:
            self.begin_servers()
        except BaseException:
            self.close()
            raise

    def path(self, name):
        return os.path.join(self.folder, name)

    def begin_servers(self):
        with open(os.path.join(self.disk, 'served'), 'wb') as file:
            file.truncate(SERVED_BYTES)
        target = ['target', '--listen', ADDRESSES[SERVING], '--control', self.path('control')]
        for spec in (*(f'ram:{size}' for size in NAMESPACES), f'file:{self.disk}/served'):
            target += ['--namespace', spec]
        self.serve('nvme', *target)
        region = ['--size', '16M', '--listen', ADDRESSES[SERVING]]
        self.serve('pmem', 'serve', self.path('region'), *region)
        files = ['-c', self.card, '--memory', str(MEMORY_BYTES), '--size', '1M', self.path('moved')]
        self.serve('transfer', 'serve', '-l', ADDRESSES[SERVING], *files)

    def serve(self, mover, *words):
        words = self.command(SERVING, mover, *words)
        self.servers.append(Server(mover, words, self.path(f'{mover}.log')))

    def command(self, host, *words):
        return [*self.hosts.wrap[host], self.sidewire, *words]

    def nvme(self, host, program, *words):
        return self.command(
            host, 'nvme', program, '-a', ADDRESSES[SERVING], '-n', NQN, '-c', '1', *words
        )

    def pmem(self, host, program, *words):
        return self.command(host, 'pmem', program, '-a', ADDRESSES[SERVING], *words)

    def transfer(self, host, program, *words):
        return self.command(host, 'transfer', program, '-c', self.card, *words)

    def sample(self, now):
        for server in self.servers:
            server.sample(now)

    def dead(self):
        return [server for server in self.servers if not server.is_alive()]

    def close(self):
        for server in self.servers:
            server.end()
        self.hosts.close()
        subprocess.run(['umount', '--lazy', self.disk], check=False)
