#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""NVMe over RDMA against a stock kernel's nvme-rdma and nvmet-rdma on rdma_rxe. usage: test_nvme.py
SIDEWIRE SIDEWIRE_NVME | test_nvme.py kernel

Our target serves the kernel's host; our host uses the kernel's target; tshark reads what passes.
SIDEWIRE_NVME does the same in a guest on stock rdma-core and rxe. With `kernel` both sides are
guests: the same steps, judged without anything of ours. The first failure ends the test, with what
the kernels say.
"""
import collections
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True

import kernel_guest as guest  # noqa: E402
from nvme_host import MIB, NQN, SHORT_KATO, KernelHost, guest_run, say  # noqa: E402
from nvme_own import OwnHost, OwnTarget, StockProgram  # noqa: E402

MEMORY_MIB = '448'
OTHER = '10.77.0.11'
PACKETS = 60000
CAPTURE_SECONDS = 1.5  # until tcpdump has what the kernel has
EXPERT_WARN = 0x600000
SAYS = 'dmesg | grep -v "speed is unknown" | tail -n 20'


class KernelTarget:
    """nvmet-rdma of a guest, over a RAM disk; namespace 2 is a null_blk with memory."""

    offers = 0
    # The refusals of RAM disks; ours must be more exact
    refusals = ['Invalid Field', 'Internal Error', 'SGL Length Invalid']

    def __init__(self, name):
        self.name, self.made = name, False

    def shell(self, script):
        return guest.inside(script, self.name)

    def start(self):
        text, status = self.shell(f'nvmet start {NQN} {MIB}' if not self.made else 'nvmet resume')
        self.made = True
        return say(status == 0, 'the kernel\'s target', text)

    def kill(self):
        self.shell('nvmet stop')

    def signal(self, number):
        with open(os.path.join(guest_run(), f'{self.name}.pid')) as file:
            os.kill(int(file.read()), number)

    def pause(self):
        self.signal(signal.SIGSTOP)

    def resume(self):
        self.signal(signal.SIGCONT)

    def controllers(self):
        """How many it has made so far."""
        return int(self.shell('dmesg | grep -c "creating nvm controller"')[0])

    def add_namespace(self):
        self.shell('nvmet add 2')

    def remove_namespace(self):
        self.shell('nvmet remove 2')


class Capture:
    """What passes on the bridge, read by tshark."""

    def __init__(self, file):
        self.file = file
        self.process = subprocess.Popen(
            [
                guest.PEER,
                *f'host tcpdump -Z root -q -i br0 -s 0 -U -B 16384 -c {PACKETS}'.split(),
                '-w',
                file,
                'udp port 4791',
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        self.process.stderr.readline()  # it listens

    def judge(self, *wanted):
        """Whether tshark finds all wanted commands, and nothing odd in any packet of NVMe."""
        time.sleep(CAPTURE_SECONDS)
        self.process.terminate()
        self.process.wait()
        command = [
            'tshark',
            '-n',
            '-r',
            self.file,
            *'-Y nvme-rdma -T fields -E separator=/t'.split(),
        ]
        for field in (
            'frame.number',
            '_ws.malformed',
            '_ws.expert.severity',
            '_ws.expert.message',
            '_ws.col.Info',
        ):
            command += ['-e', field]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        packets = [line.split('\t') for line in done.stdout.splitlines()]
        odd = [
            '\t'.join(packet)
            for packet in packets
            if packet[1] or any(int(word) >= EXPERT_WARN for word in packet[2].split(',') if word)
        ]
        names = collections.Counter(
            re.sub('.*NVMe(OF)? ', '', packet[-1])
            for packet in packets
            if re.search('NVMe(OF)? (?!CQE|Data )', packet[-1])
        )
        missing = [name for name in wanted if not any(name in seen for seen in names)]
        seen = ', '.join(f'{number} {name}' for name, number in names.most_common())
        return say(
            packets and not odd and not missing,
            f'tshark: {len(packets)} packets of NVMe: {seen}',
            f'missing: {missing}',
            *odd[:10],
            done.stderr,
        )


def use(host, target):
    """All that the kernel's host is made to do, until something fails."""
    with tempfile.TemporaryDirectory() as folder:
        capture = Capture(os.path.join(folder, 'nvme.pcap'))
        good = (
            host.discover()
            and host.connect()
            and host.ask(target)
            and host.copy()
            and host.compare()
            and host.reserve()
            and host.refusals(target)
            and host.zeroes()
        )
        good &= capture.judge(
            'Connect',
            'Identify Controller',
            'Identify Namespace',
            *'Read Write Flush Compare'.split(),
            'Write Zero',
            'Dataset Management',
            'Discovery',
        )
    return (
        good
        and host.file_system()
        and host.fio('randwrite', 2)
        and host.fio('randrw', 2)
        and host.disconnect()
        and host.connect(kato=SHORT_KATO)
        and host.outstanding(target)
        and host.target_stops(target)
        and host.host_stops()
        and (not hasattr(target, 'add_namespace') or host.namespaces_change(target))
        and host.disconnect()
    )


class OtherGuest:
    """It boots while something else is done."""

    def __init__(self, disk=''):
        self.process = subprocess.Popen(
            [guest.PEER, 'start', 'a', OTHER.split('.')[-1]],
            env={**os.environ, 'KP_NVME': disk},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def is_up(self):
        print(self.process.communicate()[0], end='', flush=True)
        return self.process.returncode == 0


def run_kernels():
    """Both sides are the kernel's."""
    target, host = KernelTarget('a'), KernelHost(OTHER)
    return OtherGuest().is_up() and host.prepare() and target.start() and use(host, target)


def run_own_target(sidewire):
    """Our target, the kernel's host."""
    with tempfile.TemporaryDirectory() as folder:
        target, host = OwnTarget(sidewire, folder), KernelHost(guest.OWN)
        try:
            good = host.prepare() and target.start() and use(host, target) and target.end()
            if not good and target.process:
                print(f'the target says:\n{target.said()}', flush=True)
            return good
        finally:
            if target.process and target.process.poll() is None:
                target.kill()


def run_own_host(sidewire, target):
    """Our host, the kernel's target."""
    host = OwnHost(sidewire, guest.GUEST)
    target.add_namespace()
    with tempfile.TemporaryDirectory() as folder:
        capture = Capture(os.path.join(folder, 'nvme.pcap'))
        good = host.ask() and host.copy(folder)
        good &= capture.judge(
            'Connect', 'Identify Controller', 'Identify Namespace', 'Read', 'Write', 'Discovery'
        )
        return (
            good
            and host.bench('--bs 512,4k,128k --iodepth 16 --loops 1')
            and host.outstanding(target)
        )


def run_stock(program, disk):
    """Our program in a guest, without Sidewire: as host of the kernel's target, and as target of
    the kernel's host for an NVMe disk."""
    stock, host = StockProgram(program, 'a'), KernelHost(OTHER)
    return (
        stock.push()
        and stock.host(guest.GUEST)
        and stock.serve(OTHER)
        and host.discover()
        and host.connect()
        and host.copy()
        and stock.holds(host, disk)
        and host.zeroes()
        and host.fio('randrw', 1)
        and host.disconnect()
    )


def tell(good, *names):
    for name in names if not good else ():
        print(f'the kernel of guest {name} says last:\n{guest.inside(SAYS, name)[0]}', flush=True)
    return good


def run(sidewire, program=None):
    if sidewire == 'kernel':
        return tell(run_kernels(), 'a', 'b')
    target = KernelTarget('b')
    if not tell(run_own_target(sidewire) and target.start(), 'b'):
        return False
    with tempfile.NamedTemporaryFile() as disk:
        disk.truncate(MIB << 20)
        other = OtherGuest(disk.name)
        good = tell(run_own_host(sidewire, target), 'b')
        return other.is_up() and good and tell(run_stock(program, disk.name), 'a', 'b')


if __name__ == '__main__':
    os.environ['KP_IMAGE'] = 'nvme'
    os.environ.setdefault('KP_MEM', MEMORY_MIB)
    if not shutil.which('tshark'):
        print('SKIP: no tshark: scripts/setup test installs it')
        sys.exit(77)
    sys.exit(guest.with_guest(run, *sys.argv[1:]))
