# SPDX-License-Identifier: BSD-2-Clause
"""Our NVMe host and target: `sidewire nvme` in the namespace, and the same program on stock
rdma-core and rxe in a guest."""
import hashlib
import json
import os
import re
import signal
import subprocess
import time

import kernel_guest as guest
from nvme_host import COMPARE, KATO, MIB, NQN, PORT, RESERVATIONS, VERIFY, say

SECONDS = 400
RUN_SECONDS = (12, 60)  # of the load that the kernel's target ends, and where that came too late
DATA_BYTES = 4 << 20
BENCH = '--verify --destroy-data --size 8m --numjobs 2 -i 2'


class OwnHost:
    """`sidewire nvme COMMAND` for the target at an address of guest `name`."""

    def __init__(self, sidewire, address, name='b'):
        self.command, self.address, self.name = (
            [guest.PEER, 'host', sidewire, 'nvme'],
            address,
            name,
        )

    def start(self, line):
        program, *options = line.split()
        where = ['-t', 'rdma', '-a', self.address, '-s', PORT, '-k', str(KATO)] + (
            ['-n', NQN] if program != 'discover' else []
        )
        return subprocess.Popen(
            self.command + [program, *where, *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )

    @staticmethod
    def finish(process, seconds=SECONDS):
        try:
            return process.communicate(timeout=seconds)[0], process.returncode
        except subprocess.TimeoutExpired:
            process.kill()
            return process.communicate()[0] + '\n(took too long)', 1

    def run(self, line):
        return self.finish(self.start(line))

    def digest(self, disk, number):
        """The digest of what is on the disk in the guest."""
        return guest.inside(
            f'dd if={disk} bs=64k count={number // 65536} iflag=direct 2>/dev/null | sha256sum',
            self.name,
        )[0].split()[0]

    def ask(self):
        good = True
        for line, pattern in (
            ('discover', rf'subnqn: +{re.escape(NQN)}\n(.*\n)*traddr: +{re.escape(self.address)}'),
            ('connect-test', ''),
            ('id-ctrl', rf'mn +: Linux *\n(.*\n)*subnqn +: {re.escape(NQN)}'),
            ('id-ns -N 1', r'nsze +: 0x20000\n(.*\n)*lbaf +0 : ms:0 +lbads:9'),
            ('list', rf'{MIB * 1.048576:.2f} +MB'),
        ):
            text, status = self.run(line)
            good = (
                say(
                    status == 0 and re.search(pattern, text),
                    f'to the kernel: sidewire nvme {line}',
                    text,
                )
                and good
            )
        for line in ('discover', 'id-ctrl', 'id-ns -N 1', 'list'):
            text, status = self.run(f'{line} -o json')
            good = (
                say(
                    status == 0 and is_json(text),
                    f'to the kernel: sidewire nvme {line} -o json',
                    text,
                )
                and good
            )
        return good

    def copy(self, folder):
        """Our writes are on the disk there, and what is put on it there is read here."""
        data, got = os.path.join(folder, 'data'), os.path.join(folder, 'got')
        content = os.urandom(DATA_BYTES)
        with open(data, 'wb') as file:
            file.write(content)
        good = True
        for disk, nsid in (('/dev/ram0', 1), ('/dev/nullb1', 2)):
            text, status = self.run(f'write -N {nsid} -z {DATA_BYTES} -d {data}')
            theirs, ours = self.digest(disk, DATA_BYTES), hashlib.sha256(content).hexdigest()
            good = (
                say(
                    status == 0 and theirs == ours,
                    f'to the kernel: sidewire nvme write, {disk} has it',
                    text,
                    theirs,
                    ours,
                )
                and good
            )
            guest.inside(
                (
                    f'dd if=/dev/urandom of={disk} bs=64k count={DATA_BYTES // 65536} oflag=direct '
                    '2>/dev/null'
                ),
                self.name,
            )
            text, status = self.run(f'read -N {nsid} -z {DATA_BYTES} -d {got}')
            theirs, ours = self.digest(disk, DATA_BYTES), digest_of(got)
            good = (
                say(
                    status == 0 and theirs == ours,
                    f'to the kernel: sidewire nvme read of {disk}',
                    text,
                    theirs,
                    ours,
                )
                and good
            )
        return good

    def bench(self, options):
        text, status = self.run(f'bench {BENCH} {options}')
        return say(status == 0, f'to the kernel: sidewire nvme bench --verify {options}', text)

    def outstanding(self, target):
        """The kernel ends its connections under verified load, and takes new ones."""
        for seconds in RUN_SECONDS:
            before = target.controllers()
            process = self.start(
                f'bench {BENCH} --bs 4k --iodepth 16 --runtime {seconds} -c 1 -l 60'
            )
            guest.await_sign(process, lambda: target.controllers() > before)
            time.sleep(1)
            target.kill()
            running = process.poll() is None
            time.sleep(1)
            target.start()
            text, status = self.finish(process)
            if running:
                break
        made = target.controllers() - before
        return say(
            status == 0 and running and made > 1,
            'to the kernel: its target goes and comes under load, data verified',
            text,
            f'ran on: {running}, controllers made: {made}',
        )


class OwnTarget:
    """`sidewire nvme target` in the namespace, with a file as namespace 1."""

    offers = COMPARE | RESERVATIONS | VERIFY
    refusals = ['Invalid Log Page', 'LBA Out of Range', 'Invalid Field']

    def __init__(self, sidewire, folder):
        self.command, self.process = [guest.PEER, 'host', sidewire, 'nvme', 'target'], None
        self.control = ['--control', os.path.join(folder, 'control')]
        self.disk, self.log = os.path.join(folder, 'disk'), os.path.join(folder, 'log')
        with open(self.disk, 'wb') as file:
            file.truncate(MIB << 20)

    def start(self):
        with open(self.log, 'wb') as log:
            self.process = subprocess.Popen(
                [
                    *self.command,
                    *target_options(guest.OWN, f'file:{self.disk},bs=512'),
                    *self.control,
                ],
                stdout=log,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
            )
        return say(is_listening(self.process, self.log), 'sidewire nvme target', self.said())

    def add_namespace(self):
        subprocess.run(
            [*self.command, 'add', '--namespace', f'ram:{MIB}M,bs=512', *self.control], check=True
        )

    def remove_namespace(self):
        subprocess.run([*self.command, 'remove', '--namespace', '2', *self.control], check=True)

    def said(self):
        with open(self.log, encoding='utf-8', errors='replace') as file:
            return file.read()

    def kill(self):
        self.process.kill()
        self.process.wait()

    def pause(self):
        self.process.send_signal(signal.SIGSTOP)

    def resume(self):
        self.process.send_signal(signal.SIGCONT)

    def end(self):
        """Drains, and leaves nothing."""
        self.process.send_signal(signal.SIGTERM)
        try:
            status = self.process.wait(SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
            status = f'none in {SECONDS} s'
        return say(
            status == 0, 'sidewire nvme target ends on SIGTERM', f'status {status}', self.said()
        )


def target_options(address, namespace):
    return ['--listen', f'{address}:{PORT}', '--subsysnqn', NQN, '--namespace', namespace]


def is_listening(process, log):
    """Once it says so."""
    for _ in range(600):
        with open(log, encoding='utf-8', errors='replace') as file:
            if re.search('^ready', file.read(), re.MULTILINE):
                return True
        if process.poll() is not None:
            return False
        time.sleep(0.1)
    return False


class StockProgram:
    """The same program in guest `name`, on rdma-core's libraries and the kernel's rxe: it knows
    nothing of Sidewire."""

    def __init__(self, program, name):
        self.program, self.name = program, name

    def push(self):
        """The program, and the libraries that it wants and the guest does not have."""
        files = [(self.program, f'/bin/{os.path.basename(self.program)}')]
        linked = subprocess.run(['ldd', self.program], capture_output=True, text=True).stdout
        for name, path in re.findall(r'(\S+) => (/\S+)', linked):
            files.append((path, f'/lib/{name}'))
        present = guest.inside('ls /lib/*.so*', self.name)[0].split()
        good = True
        for path, to in files:
            if to not in present:
                with open(path, 'rb') as file:
                    good &= (
                        subprocess.run(
                            [guest.PEER, 'exec', '-i', self.name, f'cat >{to}; chmod +x {to}'],
                            stdin=file,
                        ).returncode
                        == 0
                    )
        name = os.path.basename(self.program)
        return say(good, f'{name} and its libraries are in the guest')

    def host(self, address):
        """The kernel's target is read, written and verified."""
        where = f'-t rdma -a {address} -s {PORT} -k {KATO}'
        text, status = guest.inside(
            f'cd /tmp && export where="{where}" && sidewire-nvme discover $where && '
            f'where="$where -n {NQN}" && '
            f'dd if=/dev/urandom of=own bs=64k count=64 2>/dev/null && '
            'sidewire-nvme write $where -N 1 -z 4m -d own && '
            'sidewire-nvme read $where -N 1 -z 4m -d got && '
            f'cmp own got && sidewire-nvme bench {BENCH} $where --bs 4k --iodepth 16 --loops 1',
            self.name,
        )
        return say(
            status == 0,
            'sidewire-nvme on stock rdma-core and rxe: discover, write, read, bench --verify',
            text,
        )

    def serve(self, address):
        """The guest's own NVMe disk, by passthrough."""
        text, status = guest.inside(
            (
                'modprobe nvme && for i in $(seq 300); do mdev -s; ls /dev/ng0n1 && exit 0; '
                'sleep 0.1; '
                'done; exit 1'
            ),
            self.name,
        )
        return say(status == 0, 'the guest has an NVMe disk', text) and guest.spawn(
            'target',
            f'sidewire-nvme target {" ".join(target_options(address, "nvme:/dev/ng0n1"))}',
            'grep -q ^ready /tmp/target.log',
            guest=self.name,
        )

    @staticmethod
    def holds(host, image):
        """The host's writes are on the disk."""
        theirs = host.shell('sha256sum /tmp/data')[0].split()[0]
        with open(image, 'rb') as file:
            ours = hashlib.sha256(file.read(DATA_BYTES)).hexdigest()
        return say(theirs == ours, 'nvme: by passthrough: the disk has it', theirs, ours)


def is_json(text):
    try:
        return bool(json.loads(text))
    except ValueError:
        return False


def digest_of(path):
    if not os.path.exists(path):
        return 'nothing'
    with open(path, 'rb') as file:
        return hashlib.sha256(file.read()).hexdigest()
