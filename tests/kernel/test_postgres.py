#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""PostgreSQL with checksums on ext4 in a guest, whose kernel has native multipath to two members of
a group: they are killed, stopped, cut off, and leave in turn, and come again, while pgbench runs.
usage: test_postgres.py SIDEWIRE KERNEL [ROUNDS]

At the end the books balance, no checksum is wrong, amcheck and e2fsck find nothing. Before,
reservations: the kernel's host registers at one member, ours preempts at the other one, and all
members start anew. It prints how long the longest transaction took.
"""
import glob
import os
import re
import signal
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), '../../tests/movers/nvme'))

import kernel_guest as guest  # noqa: E402
from group_members import Group, await_that  # noqa: E402
from nvme_host import NQN, KernelHost, say  # noqa: E402
from wires import Wires  # noqa: E402

BIN, SHARE, MODULES = (
    '/usr/lib/postgresql/15/bin',
    '/usr/share/postgresql/15',
    '/usr/lib/postgresql/15/lib',
)
PROGRAMS = 'postgres initdb pg_ctl pgbench psql pg_checksums pg_amcheck'.split()
PORT, LOG_PORT, MIB, FIRST = 4420, 4439, 384, 21
TIMEOUT_S = 2  # of the group: emulated guests take much of the processors
KATO, LOSS_S = 10, 600
LOAD_S = 25  # pgbench; trouble comes in its first second
OTHER_HOST = 'nqn.2014-08.org.nvmexpress:uuid:22222222-0000-4000-8000-000000000002'
KEY, OTHER_KEY = 0x7B, 0x2222
SETTINGS = (
    "unix_socket_directories='/tmp'\nlisten_addresses=''\nshared_buffers=16MB\nmax_connections=10\n"
    'max_wal_size=64MB\ncheckpoint_timeout=30s\n'
)


class Skip(Exception):
    """Something is not here."""


def archive(folder):
    """What the guest needs of PostgreSQL, as a tar."""
    if not os.path.exists(f'{BIN}/pg_amcheck'):
        raise Skip('postgresql-15 is not installed')
    root, path = os.path.join(folder, 'root'), os.path.join(folder, 'pg.tar.gz')
    os.makedirs(f'{root}/lib')
    programs = [f'{BIN}/{name}' for name in PROGRAMS]
    modules = [f'{MODULES}/{name}.so' for name in ('plpgsql', 'amcheck', 'dict_snowball')]
    for name in programs + modules:
        os.makedirs(root + os.path.dirname(name), exist_ok=True)
        subprocess.run(['cp', '-L', name, root + name], check=True)
    os.makedirs(root + os.path.dirname(SHARE))
    subprocess.run(['cp', '-rL', SHARE, root + SHARE], check=True)
    told = subprocess.run(['ldd', *programs, *modules], capture_output=True, text=True).stdout
    for library in set(re.findall(r'=> (/\S+)', told)):
        if not re.search(r'/(libc|libm|libpthread|libdl|librt|ld-linux\S*)\.so', library):
            subprocess.run(['cp', '-L', library, f'{root}/lib/'], check=True)
    for library in glob.glob('/lib/x86_64-linux-gnu/libm.so.6'):
        subprocess.run(['cp', '-L', library, f'{root}/lib/'], check=True)
    subprocess.run(['tar', '-C', root, '-czf', path, '.'], check=True)
    return path


class Base(KernelHost):
    """The guest, as a host of the group and of PostgreSQL."""

    def connect_all(self, addresses):
        text, status = self.shell(
            ' && '.join(
                f'nvme connect -t rdma -a {address} -s {PORT} -n {NQN} -k {KATO} -c 1 '
                f'-l {LOSS_S} -i 1 -Q 32'
                for address in addresses
            )
            + '; for i in $(seq 300); do mdev -s; [ -b /dev/nvme0n1 ] && break; sleep 0.1; done; '
            'uname -r; nvme list-subsys; ls -l /dev/nvme0n1'
        )
        return say(
            status == 0 and len(re.findall(r'live', text)) == len(addresses),
            f'a kernel {os.environ["KP_KERNEL"]} has two paths',
            text,
        )

    def as_postgres(self, line):
        """In a shell of that user."""
        return f"su -s /bin/sh postgres -c 'export PATH={BIN}:/bin PGHOST=/tmp; {line}'"

    def unpack(self, path):
        with open(path, 'rb') as file:
            done = subprocess.run(
                [guest.PEER, 'exec', '-t', '170', '-i', self.name, 'gunzip | tar -x -C /'],
                stdin=file,
                capture_output=True,
                text=True,
            )
        return say(done.returncode == 0, 'PostgreSQL is in the guest', done.stdout, done.stderr)

    def create(self):
        text, status = self.shell(
            'chmod 666 /dev/null /dev/zero /dev/urandom; '
            'grep -q ^postgres /etc/passwd 2>/dev/null || { echo root:x:0:0::/:/bin/sh; '
            'echo postgres:x:70:70::/tmp:/bin/sh; } >>/etc/passwd; '
            'echo postgres:x:70: >>/etc/group; mkdir -p /dev/shm; mount -t tmpfs shm /dev/shm; '
            'chmod 1777 /tmp /dev/shm; mkfs.ext4 -q -F $d && mount -t ext4 $d /mnt && '
            'mkdir /mnt/pg && chown postgres /mnt/pg && '
            + self.as_postgres('initdb -D /mnt/pg -A trust --data-checksums --locale=C -E UTF8')
            + f' && printf "%s" "{SETTINGS}" >>/mnt/pg/postgresql.conf'
        )
        return say(status == 0, 'initdb --data-checksums on ext4', text[-3000:])

    def start(self):
        text, status = self.shell(
            self.as_postgres('pg_ctl -D /mnt/pg -w -t 150 -l /tmp/pg.log start >/dev/null 2>&1')
            + ' || { cat /tmp/pg.log; exit 1; }'
        )
        return say(status == 0, 'postgres starts', text)

    def fill(self):
        text, status = self.shell(self.as_postgres('pgbench -i -q -s 1 postgres'))
        return say(status == 0, 'pgbench -i', text)

    def load(self, seconds):
        """pgbench in the background, with a log of all transactions. Without -n it would begin by
        truncating the table of what was done before. On a machine that has little left for the
        guest it may do nothing in its time: some transactions come behind it."""
        bench = f'PGHOST=/tmp {BIN}/pgbench -n -c 3 -l --log-prefix=/tmp/tx'
        self.shell(
            f'echo "{bench} -T {seconds} postgres; {bench} -t 3 postgres" '
            f'>/tmp/load.sh; rm -f /tmp/tx.*; '
            f'spawn bench {seconds + 600} su -s /bin/sh postgres /tmp/load.sh; '
            'sleep 1'
        )

    def load_ends(self):
        for _ in range(3):  # a command in the guest has three minutes
            self.shell(
                'for i in $(seq 1500); do kill -0 $(cat /tmp/bench.pid) 2>/dev/null || break; '
                'sleep 0.1; done'
            )
        text, _ = self.shell(
            'cat /tmp/bench.log; echo "longest" $(cat /tmp/tx.* | '
            "awk '$3 > m { m = $3 } END { print m }')"
        )
        done = re.findall(r'actually processed: (\d+)', text)
        failed = re.findall(r'failed transactions: 0 ', text)
        longest = re.search(r'longest (\d+)', text)
        return say(
            len(done) == len(failed) == 2 and longest,
            f'pgbench: {sum(map(int, done))} transactions, none failed; the longest took '
            f'{int(longest[1]) / 1e6 if longest else 0:.1f} s',
            text[-3000:],
        )

    def balances(self):
        query = (
            'select sum(abalance) from pgbench_accounts union all '
            'select sum(tbalance) from pgbench_tellers union all '
            'select sum(bbalance) from pgbench_branches union all '
            'select sum(delta) from pgbench_history'
        )
        text, _ = self.shell(self.as_postgres(f'psql -At -c "{query}" postgres'))
        sums = text.split()
        return say(len(sums) == 4 and len(set(sums)) == 1, f'the books balance: {sums}', text)

    def judged(self):
        """By PostgreSQL's own, and by e2fsck."""
        text = ''
        for line in (
            self.as_postgres('pg_amcheck --install-missing --heapallindexed postgres'),
            self.as_postgres('pg_ctl -D /mnt/pg -w -t 150 stop'),
            self.as_postgres('pg_checksums --check -D /mnt/pg'),
            'umount /mnt && e2fsck -fn $d',
        ):  # each has three minutes
            said, status = self.shell(line)
            text += said
            if status:
                return say(False, line, text[-3000:])
        return say(
            re.search(r'Bad checksums: +0', text),
            'pg_amcheck, pg_checksums --check, e2fsck',
            text[-3000:],
        )


# ---- what happens to members ----


class Trial:
    def __init__(self, sidewire, folder, wires):
        disk = os.path.join(folder, 'disk')
        with open(disk, 'wb') as file:
            file.truncate(MIB << 20)
        self.sidewire, self.wires, self.cut = sidewire, wires, None
        self.group = Group(
            [guest.PEER, 'host', sidewire], folder, f'file:{disk},bs=4096', LOG_PORT, NQN, TIMEOUT_S
        )
        self.group.log_address = wires.hub_address
        self.group.start_log()
        for i, name in enumerate('ab'):
            member = self.group.add(name, wires.addresses[i], PORT, LOG_PORT + 1)
            member.command = wires.inside(wires.names[i]) + [sidewire]
            member.group_address = wires.addresses[i]
            member.start().is_ready()
        self.host = Base(wires.addresses[0])

    def owner(self):
        return await_that(self.group.owner)

    def other(self, member):
        return next(one for one in self.group.members if one is not member)

    def changes(self, what, trouble):
        """The owner has trouble, the other one takes over, the first comes again."""
        owner = self.owner()
        heir, began = self.other(owner), time.monotonic()
        trouble(owner)
        taken = await_that(heir.serves)
        passed_s = time.monotonic() - began
        if self.cut is not None:
            self.wires.mend(self.cut, False)
            self.cut = None
        owner.kill()
        back = any(owner.start().is_ready() for _ in range(3))
        live = await_that(lambda: self.live_paths() == 2)
        return say(
            taken and back and live,
            f'{owner.name} {what}: {heir.name} serves after {passed_s:.1f} s, {owner.name} is back',
            owner.said()[-2000:],
            heir.said()[-2000:],
            self.host.shell('nvme list-subsys; dmesg | tail -n 20')[0],
        )

    def live_paths(self):
        return len(re.findall(r'\blive\b', self.host.shell('nvme list-subsys')[0]))

    def cut_off(self, owner):
        self.cut = self.group.members.index(owner)
        self.wires.cut(self.cut, False)

    def turns(self, rounds):
        return [
            ('is killed', lambda owner: owner.signal(signal.SIGKILL)),
            ('is stopped', lambda owner: owner.signal(signal.SIGSTOP)),
            ('is cut off', self.cut_off),
            ('leaves', lambda owner: owner.end()),
        ] * rounds

    def other_host(self, member, line):
        program, *rest = line.split()
        where = f'-a {member.address} -s {PORT} -n {NQN} -N 1 -q {OTHER_HOST}'
        done = subprocess.run(
            [*self.group.command, 'nvme', program, *where.split(), *rest],
            capture_output=True,
            text=True,
            timeout=100,
        )
        return say(done.returncode == 0, f'our host: {line}', done.stdout, done.stderr)

    def reserves(self):
        """Register at A, preempt at B, start both anew."""
        owner, host = self.owner(), self.host
        heir = self.other(owner)
        text, status = host.shell(
            f'nvme resv-register $d -k {KEY:#x} -r 0 && '
            f'nvme resv-acquire $d -c {KEY:#x} -t 1 -a 0 && nvme resv-report $d -e'
        )
        good = say(status == 0 and 'rtype' in text, f'resv-register, resv-acquire at {owner.name}')
        owner.end()
        good = good and await_that(heir.serves) is not None
        good = good and self.other_host(heir, f'resv-register --nrkey {OTHER_KEY:#x}')
        good = good and self.other_host(
            heir, f'resv-acquire --crkey {OTHER_KEY:#x} --prkey {KEY:#x} --rtype 1 --racqa 1'
        )
        heir.end()
        for member in self.group.members:
            member.start().is_ready()
        owner = self.owner()
        await_that(lambda: self.live_paths() == 2)
        text, status = host.shell('nvme resv-report $d -e')
        keys = [int(key, 16) for key in re.findall(r'rkey\s*: *(?:0x)?([0-9a-f]+)', text)]
        good = say(
            good and status == 0 and keys == [OTHER_KEY],
            'preempted at the other one, both anew: resv-report in the guest says so',
            keys,
            text,
        )
        text, status = host.shell('dd if=/dev/zero of=$d bs=4k count=1 oflag=direct 2>&1')
        good = say(status != 0, 'the guest may not write', text) and good
        return self.other_host(owner, f'resv-release --crkey {OTHER_KEY:#x} --rtype 1') and good

    def judge(self, folder, rounds):
        host = self.host
        good = (
            self.owner() is not None
            and host.prepare()
            and host.connect_all(self.wires.addresses)
            and self.reserves()
            and host.unpack(archive(folder))
            and host.create()
            and host.start()
            and host.fill()
        )
        if not good:
            return False
        for turn in self.turns(rounds):
            host.load(LOAD_S)
            if not self.changes(*turn) or not host.load_ends():
                return False
        return host.balances() and host.judged()


def run(sidewire, rounds):
    wires = Wires(2, hub=os.environ['KP_NS'], net='10.77.0', first=FIRST)
    with tempfile.TemporaryDirectory() as folder:
        trial = Trial(sidewire, folder, wires)
        try:
            good = trial.judge(folder, rounds)
            if not good:
                for member in trial.group.members:
                    print(f'{member.name} says:\n{member.said()[-3000:]}')
                print(guest.inside('dmesg | tail -n 40; tail -n 20 /tmp/pg.log')[0])
            return good
        finally:
            trial.group.close()
            wires.close()


def main(sidewire, kernel, rounds='1'):
    os.environ.update(KP_IMAGE='nvme', KP_KERNEL=kernel, KP_MEM='768', KP_SMP='1')
    if not os.path.exists(f'{BIN}/pg_amcheck'):
        print('SKIP: postgresql-15 is not installed')
        return 77
    return guest.with_guest(run, sidewire, int(rounds))


if __name__ == '__main__':
    sys.exit(main(*sys.argv[1:]))
