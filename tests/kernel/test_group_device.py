#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""A device that two hosts have is the medium of a group: its own reservation fences.
usage: test_group_device.py SIDEWIRE LIBRARY SIDEWIRE-NVME SIDEWIRE-PMEM [all]

The device is a namespace of ours, which a kernel in a guest has twice, as two hosts (host IDs): a
target there serves it by each, over our direct link. They take each other for processes of other
machines, so none kills the other. The owner is stopped amid a write that `delay=` holds, the other
one takes over and gets a newer write; then the first continues. The device must refuse what it
held. With the fence left out on purpose the older write comes.

With `all` both members are active, and the host goes from the first one to the second.
"""
import os
import re
import sys
import tempfile
import time

sys.dont_write_bytecode = True
sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), '../../tests/movers/nvme'))

import kernel_guest as guest  # noqa: E402
from group_members import Group, await_that  # noqa: E402
from nvme_host import say  # noqa: E402
from nvme_own import StockProgram  # noqa: E402

PORT, MEDIUM_LOG, GROUP_LOG = 4420, 4439, 4449
MEDIUM_NQN, NQN = 'nqn.2026-01.test:medium', 'nqn.2026-01.test:shared'
BLOCK, MIB, DELAY_MS = 4096, 16, 6000
BEGINNING = 3  # commands of a host before its write, and more
MEMORY_MIB = '448'
LIVES_S = 900  # members and their log, on a busy machine
OURS = 'env LD_PRELOAD=/lib/libsidewire.so SIDEWIRE_LINK=direct'
HOST_IDS = ['11111111-2222-4333-8444-55555555555' + end for end in '12']


class InGuest:
    """A target in the guest, on the kernel's own RDMA, that has the device as the host of that
    number."""

    def __init__(self, number, options, is_all):
        self.name, self.port, self.is_all = f'member{number}', PORT + 10 * number, is_all
        self.where = f'--control /tmp/{self.name}.sock'
        self.command = (
            f'exec {OURS} sidewire-nvme target -l 127.0.0.1:{self.port} --subsysnqn {NQN} '
            f'--group 127.0.0.1:{GROUP_LOG} --member {self.name} --group-timeout 10 '
            f'--group-listen 127.0.0.1:{self.port + 1} {self.where} {options}'
            f'{" --active all" if is_all else ""}'
        )

    def start(self):
        """As a process of a machine of its own, by its boot ID."""
        return guest.spawn(
            self.name,
            f"'{self.command}'",
            f'grep -q ^ready /tmp/{self.name}.log',
            LIVES_S,
        )

    def signal(self, name):
        guest.inside(f'kill -{name} -$(cat /tmp/{self.name}.pid)')

    def serves(self):
        text, _ = guest.inside(f'sidewire-nvme target status -o json {self.where}')
        return '"here": "serving"' in text

    def holds_a_write(self):
        """A host is connected by a queue for I/O, and has sent more than it begins with."""
        text, _ = guest.inside(f'sidewire-nvme target status -o json {self.where}')
        if self.is_all:  # it knows of that, and writes, in a moment
            is_served = '"here": "serving"' in text[text.find('"host_owners"') :]
            return is_served and not time.sleep(DELAY_MS / 2000)
        found = re.search(r'"connections": (\d+).*?"commands": (\d+)', text, re.DOTALL)
        return found and int(found[1]) > 1 and int(found[2]) > BEGINNING

    def said(self):
        return guest.inside(f'cat /tmp/{self.name}.log')[0]

    def write(self, byte):
        """The command of a host that fills the first block with a byte. Where it has to wait for
        its member, it has two paths there."""
        path = f'-a 127.0.0.1{" -a 127.0.0.1" if self.is_all else ""} -s {self.port} -q nqn.writer'
        return (
            f"tr '\\000' '\\{byte:03o}' </dev/zero | head -c {BLOCK} >/tmp/data{byte}; exec {OURS} "
            f'sidewire-nvme write -t rdma {path} -n {NQN} -N 1 -k 0 '
            f'-d /tmp/data{byte}'
        )


def other_machine():
    """From now on processes of the guest see another boot ID."""
    return guest.inside(
        'cat /proc/sys/kernel/random/uuid >/tmp/boot && '
        'mount --bind /tmp/boot /proc/sys/kernel/random/boot_id'
    )


def prepare(library):
    """Our library there, and a file system that is no memory, for the log of the group."""
    good = guest.push(library, 'libsidewire.so')
    text, status = guest.inside(
        'mv /bin/libsidewire.so /lib/ && modprobe nvme_core multipath=N && '
        'modprobe -a nvme nvme-rdma ext4 && '
        'for i in $(seq 300); do mdev -s; [ -b /dev/nvme0n1 ] && break; sleep 0.1; done; '
        'mkdir -p /mnt && mkfs.ext4 -q -F /dev/nvme0n1 && mount -t ext4 /dev/nvme0n1 /mnt'
    )
    return say(good and status == 0, 'our library is in the guest', text)


def connect_twice():
    """Each host has the device by nodes of its own: without multipath."""
    # nvme-cli 2.3 has one connection to an address.
    connects = ' && '.join(
        f'echo transport=rdma,traddr={guest.OWN},trsvcid={PORT},nqn={MEDIUM_NQN},nr_io_queues=1,'
        f'queue_size=32,keep_alive_tmo=30,hostnqn=nqn.2014-08.org.nvmexpress:uuid:{host},'
        f'hostid={host} >/dev/nvme-fabrics'
        for host in HOST_IDS
    )
    text, status = guest.inside(
        f'{connects} && '
        'for i in $(seq 300); do mdev -s; [ -b /dev/nvme2n1 ] && [ -c /dev/ng2n1 ] && exit 0; '
        'sleep 0.1; done; ls /dev/nvme* /dev/ng*; exit 1'
    )
    return say(status == 0, 'a kernel has the device twice, as two hosts', text)


def free_device():
    """As docs/shared-storage.md says, at both hosts."""
    guest.inside(
        'for d in /dev/nvme1n1 /dev/nvme2n1; do nvme resv-register $d --rrega=1 --iekey; done'
    )


def holder():
    """The key by which the device is reserved, of all that are registered: one."""
    text, _ = guest.inside('nvme resv-report /dev/nvme2n1 -e')
    keys = re.findall(r'rkey\s*:\s*(?:0x)?([0-9a-f]+)', text)
    return (keys[0] if len(keys) == 1 else None), text


class Ghost:
    def __init__(self, folder, device, options, is_all):
        self.folder, self.options, self.is_all = folder, options, is_all
        self.title = device.split(':')[0] + options + (', all active' if is_all else '')
        delays = f',delay={DELAY_MS}ms', '' if is_all else f',delay={DELAY_MS}ms'
        self.members = [
            InGuest(i, f'-n {device.format(i + 1)},bs=4096{delays[i]}{options}', is_all)
            for i in (0, 1)
        ]

    def on_device(self):
        with open(os.path.join(self.folder, 'disk'), 'rb') as file:
            return set(file.read(BLOCK))

    def start(self):
        guest.inside('rm -f /mnt/log.img')
        started = guest.spawn(
            'log',
            f"'exec {OURS} sidewire-pmem serve /mnt/log.img --size 4M -l 127.0.0.1:{GROUP_LOG}'",
            'grep -q Ctrl-C /tmp/log.log',
            LIVES_S,
        )
        if not started:
            return say(False, 'a server for the log of the group')
        for member in self.members:
            other_machine()
            if not member.start():
                return say(False, f'{member.name} serves {self.title}', member.said())
        return say(await_that(self.members[0].serves), f'a group serves {self.title}')

    def run(self):
        first, second = self.members
        before, newer = 0x21, 0x42
        guest.spawn('late', f'"{first.write(before)}"', 'true')
        held = await_that(first.holds_a_write, 60)
        first.signal('STOP')
        taken = await_that(second.serves)
        text, status = guest.inside(f'({second.write(newer)})')
        key, report = holder()
        written = self.on_device()
        first.signal('CONT')
        time.sleep(1.5 * DELAY_MS / 1000)
        found = self.on_device()
        if not say(
            held and taken and status == 0 and written == {newer},
            f'{self.title}: the second owner gets the newer write',
            text,
            second.said(),
        ):
            return False
        if self.options:
            return say(found == {before}, f'{self.title}: a ghost without the fence', found)
        sign = 'shut this one out' if self.is_all else 'is lost'
        lost = sign in first.said() or await_that(lambda: sign in first.said(), 10)
        return (
            say(found == {newer}, f'{self.title}: no ghost with it', found, first.said())
            and say(lost, f'{self.title}: the first one knows that it was fenced', first.said())
            and say(key, f'{self.title}: the device is reserved by one key, {key}', report)
            and (not self.is_all or self.comes_back())
        )

    def comes_back(self):
        """Started anew, the first one is registered again beside the second."""
        other_machine()
        back = self.members[0].start()
        text, _ = guest.inside('nvme resv-report /dev/nvme2n1 -e')
        keys = set(re.findall(r'rkey\s*:\s*(?:0x)?([0-9a-f]+)', text))
        is_of_all = re.search(r'rtype\s*:\s*6', text)
        return say(
            back and len(keys) == 2 and is_of_all,
            f'{self.title}: the first one joins again',
            text,
            self.members[0].said(),
        )

    def end(self):
        for member in self.members:
            member.signal('CONT')
            member.signal('KILL')
        guest.inside('kill -KILL -$(cat /tmp/log.pid)')
        free_device()


def judge(folder, is_all):
    for device in 'nvme:/dev/ng{}n1', 'block:/dev/nvme{}n1':
        for options in '', ',unfenced':
            ghost = Ghost(folder, device, options, is_all)
            try:
                if not (ghost.start() and ghost.run()):
                    return False
            finally:
                ghost.end()
    return True


def run(sidewire, library, nvme, pmem, active='one'):
    with tempfile.TemporaryDirectory() as folder:
        disk = os.path.join(folder, 'disk')
        with open(disk, 'wb') as file:
            file.truncate(MIB << 20)
        os.mkdir(os.path.join(folder, 'medium'))
        medium = Group(
            [guest.PEER, 'host', sidewire],
            os.path.join(folder, 'medium'),
            f'file:{disk},bs=4096',
            MEDIUM_LOG,
            MEDIUM_NQN,
        )
        try:
            medium.start_log()
            device = medium.add('medium', guest.OWN, PORT, PORT + 1).start()
            good = (
                say(device.is_ready() and await_that(device.serves), 'the device', device.said())
                and StockProgram(nvme, 'b').push()
                and StockProgram(pmem, 'b').push()
                and prepare(library)
                and connect_twice()
                and judge(folder, active == 'all')
            )
            if not good:
                print(device.said())
                print(guest.inside('dmesg | tail -n 30')[0])
            return good
        finally:
            medium.close()


if __name__ == '__main__':
    os.environ['KP_IMAGE'] = 'nvme'
    os.environ.setdefault('KP_MEM', MEMORY_MIB)
    with tempfile.NamedTemporaryFile() as local:  # the guest's own disk
        local.truncate(MIB << 20)
        os.environ['KP_NVME'] = local.name
        status = guest.with_guest(run, *sys.argv[1:])
    sys.exit(status)
