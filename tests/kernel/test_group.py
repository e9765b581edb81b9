#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""A stock kernel's NVMe host with native multipath, and two targets of a group that serve one file.
usage: test_group.py SIDEWIRE [all]

The host goes on writing verified data while the target that owns the file is killed, and while it
is stopped. Targets that come again are paths again. Then the same with all targets active: the one
that the host is served by is killed; with `all`, it is that alone, and has the other troubles, too,
and reservations.
"""
import os
import re
import signal
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), '../../tests/movers/nvme'))

import kernel_guest as guest  # noqa: E402
from group_members import Group, await_that  # noqa: E402
from group_reserve import Reserver  # noqa: E402
from nvme_host import NQN, KernelHost, say  # noqa: E402

ADDRESSES = {'a': guest.OWN, 'b': '10.77.0.2'}
PORT, LOG_PORT, MIB = 4420, 4439, 32
TIMEOUT_S = 2  # of the group: emulated guests take much of the processors
KATO, RECONNECT = 30, 1
FIO = (
    'fio --name=load --filename=$d --direct=1 --ioengine=libaio --iodepth=8 --bs=4k --rw=randwrite '
    '--size={mib}M --rate_iops={iops} --verify=crc32c --verify_fatal=1'
)


class Host(KernelHost):
    """With a path to each target."""

    def paths(self):
        """From the address of each path to its state and that of its ANA group."""
        text, _ = self.shell(
            'for p in /sys/class/nvme-subsystem/*/nvme*/; do [ -e $p/address ] || continue; '
            'echo "$(cat $p/address) $(cat $p/state) $(cat $p/nvme*c*n1/ana_state)"; done'
        )
        return {
            found[1]: (found[2], found[3])
            for found in re.finditer(r'traddr=([\d.]+)\S* (\S+) (\S*)', text)
        }

    def connect_all(self):
        text, status = self.shell(
            ' && '.join(
                f'nvme connect -t rdma -a {address} -s {PORT} -n {NQN} -k {KATO} -c {RECONNECT} '
                '-l 300 -i 1 -Q 32'
                for address in ADDRESSES.values()
            )
            + '; for i in $(seq 300); do mdev -s; [ -b /dev/nvme0n1 ] && break; sleep 0.1; done; '
            'ls -l /dev/nvme0n1; dmesg | tail -n 5'
        )
        return say(status == 0 and 'nvme0n1' in text, 'two paths to one namespace', text)

    def leaves(self):
        text, status = self.shell(
            f'nvme disconnect -n {NQN}; for i in $(seq 300); do '
            'ls /sys/class/nvme-subsystem/ 2>/dev/null | grep -q . || exit 0; sleep 0.1; done; '
            'exit 1'
        )
        return say(status == 0, 'nvme disconnect', text)

    def discovers_all(self):
        text, status = self.shell(f'nvme discover -t rdma -a {guest.OWN} -s {PORT}')
        found = set(re.findall(r'traddr: +(\S+)', text))
        return say(
            status == 0 and found >= set(ADDRESSES.values()), 'nvme discover: both members', text
        )

    def sees(self, owner, seconds=60):
        """Whether the owner's path alone is optimized, and both live."""
        wanted = {
            address: ('live', 'optimized' if owner.address == address else 'inaccessible')
            for address in ADDRESSES.values()
        }
        await_that(lambda: self.paths() == wanted, seconds)
        return say(self.paths() == wanted, f'{owner.name} is the path in use', self.paths())

    def asks(self, owner):
        text, _ = self.shell(
            'nvme list-subsys; for c in 0 1; do echo "@@ $(cat /sys/class/nvme/nvme$c/address)"; '
            'nvme ana-log /dev/nvme$c; done'
        )
        live = re.findall(r'rdma traddr=(\S+?),\S* live', text)
        logs = [
            (re.match(r'traddr=([\d.]+)', part)[1], re.search(r'state\s*:\s*(\S+)', part)[1])
            for part in text.split('@@ ')[1:]
        ]
        good = sorted(live) == sorted(ADDRESSES.values()) and all(
            state == ('optimized' if address == owner.address else 'inaccessible')
            for address, state in logs
        )
        return say(good and len(logs) == 2, 'nvme list-subsys, nvme ana-log', text)

    def spawn_fio(self, mib, iops):
        self.shell(f'spawn fio 150 {FIO.format(mib=mib, iops=iops)}; sleep 1')

    def fio_runs(self):
        return self.shell('kill -0 $(cat /tmp/fio.pid)')[1] == 0

    def fio_ends(self, title):
        text, _ = self.shell(
            'while kill -0 $(cat /tmp/fio.pid) 2>/dev/null; do sleep 0.1; done; cat /tmp/fio.log; '
            'dmesg | tail -n 12'
        )
        return say('err= 0' in text, f'{title}; its longest I/O took {longest(text)}', text)

    def file_system(self, amid):
        """What is written is there after amid(), which changes the owner."""
        text, status = self.shell(
            'head -c 2000000 /dev/urandom >/tmp/data; mkfs.ext4 -q -F $d && '
            'mount -t ext4 $d /mnt && for i in 1 2 3; do cp /tmp/data /mnt/$i || exit 1; done'
        )
        good = status == 0 and amid()
        after, status = self.shell(
            'for i in 4 5; do cp /tmp/data /mnt/$i || exit 1; done; umount /mnt && '
            'e2fsck -fn $d && mount -t ext4 $d /mnt && for i in 1 2 3 4 5; do '
            'cmp /mnt/$i /tmp/data || exit 1; done; umount /mnt'
        )
        return say(good and status == 0, 'ext4 over a change of the owner', text, after)


def longest(text):
    """The longest I/O that fio has measured: the gap while no member served."""
    units = {'nsec': 1e-9, 'usec': 1e-6, 'msec': 1e-3, '': 1, 'k': 1e3, 'M': 1e6}
    found = re.findall(r' lat \((\w+)\): min=\s*\S+, max=\s*([\d.]+)([kM]?)', text)
    times = [float(number) * units[unit] * units[prefix] for unit, number, prefix in found]
    return f'{max(times):.2f} s' if times else 'nobody knows how long'


def other(group, member):
    return next(one for one in group.members if one is not member)


def take_over(group, host, owner, number):
    """The owner gets the signal amid a load; the other one has the namespace then."""
    heir = other(group, owner)
    owner.signal(number)
    taken = await_that(heir.serves)
    ended = owner.status_of_end() == -signal.SIGKILL
    return say(
        taken and ended and host.fio_runs(),
        f'{signal.Signals(number).name} of {owner.name}: {heir.name} takes over',
        f'taken {taken}, ended {owner.process.returncode}',
        heir.said(),
    )


def rejoin(host, member, owner):
    member.start()
    return say(member.is_ready(), f'{member.name} joins again', member.said()) and host.sees(owner)


def hand_over(group, owner):
    """The owner ends by itself: the other one serves, and no connection breaks that it needs."""
    heir = other(group, owner)
    status = owner.end()
    return say(
        status == 0 and await_that(heir.serves), f'{owner.name} leaves, {heir.name} takes over'
    )


def judge_all(host, group, is_long):
    """All members are active: the host has one of them. Whether that member is killed, stopped, or
    leaves, the host goes on at the other one."""
    owner = host.connect_all() and await_that(group.owner)
    good = (
        say(owner, 'a member serves the host', *[member.said() for member in group.members])
        and host.sees(owner)
        and host.asks(owner)
    )
    if not good:
        return False
    heir = other(group, owner)
    host.spawn_fio(MIB // 4 if is_long else MIB // 8, 500)
    good = take_over(group, host, owner, signal.SIGKILL) and rejoin(host, owner, heir)
    if good and is_long:
        good = take_over(group, host, heir, signal.SIGSTOP) and rejoin(host, heir, owner)
        owner, heir = heir, owner
    good = good and host.fio_ends('all active: fio has verified all that it wrote')
    if not good or not is_long:
        return good
    if not host.file_system(lambda: hand_over(group, heir)):
        return False
    return rejoin(host, heir, owner) and Reserver(host, group).judge()


def judge(host, group):
    owner = await_that(group.owner)
    good = (
        say(owner, 'the group has an owner', *[member.said() for member in group.members])
        and host.discovers_all()
        and host.connect_all()
        and host.sees(owner)
        and host.asks(owner)
    )
    if not good:
        return False
    heir = other(group, owner)
    host.spawn_fio(MIB // 2, 500)
    return (
        take_over(group, host, owner, signal.SIGKILL)
        and rejoin(host, owner, heir)
        and take_over(group, host, heir, signal.SIGSTOP)
        and host.fio_ends('fio has verified all that it wrote')
        and rejoin(host, heir, owner)
        and host.file_system(lambda: hand_over(group, owner))
    )


def try_group(sidewire, folder, log_port, options, judge_it):
    """Two members with a disk and a log of their own."""
    os.mkdir(folder)
    disk = os.path.join(folder, 'disk')
    with open(disk, 'wb') as file:
        file.truncate(MIB << 20)
    group = Group(
        [guest.PEER, 'host', sidewire], folder, f'file:{disk},bs=4096', log_port, NQN, TIMEOUT_S
    )
    group.options = options
    try:
        group.start_log()
        for i, (name, address) in enumerate(ADDRESSES.items()):
            group.add(name, address, PORT, log_port + 1 + i).start().is_ready()
        good = judge_it(group)
        if not good:
            for member in group.members:
                print(f'{member.name} says:\n{member.said()}')
            print(guest.inside('dmesg | tail -n 40')[0])
        return good
    finally:
        group.close()


def run(sidewire, *kind):
    host, is_long = Host(guest.OWN), 'all' in kind
    subprocess.run(
        [guest.PEER, *f'host ip addr add {ADDRESSES["b"]}/24 dev br0'.split()], check=True
    )
    with tempfile.TemporaryDirectory() as folder:
        one, every = os.path.join(folder, 'one'), os.path.join(folder, 'all')
        good = host.prepare()
        if not is_long:
            good = good and try_group(
                sidewire, one, LOG_PORT, [], lambda it: judge(host, it) and host.leaves()
            )
        return good and try_group(
            sidewire,
            every,
            LOG_PORT + 4,
            '--active all'.split(),
            lambda it: judge_all(host, it, is_long),
        )


if __name__ == '__main__':
    os.environ['KP_IMAGE'] = 'nvme'
    sys.exit(guest.with_guest(run, *sys.argv[1:]))
