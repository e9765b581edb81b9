# SPDX-License-Identifier: BSD-2-Clause
"""The kernel's NVMe host in a guest, and what it is made to do with a target,
whoever wrote that."""
import os
import re
import signal
import time

import kernel_guest as guest
import test_programs

NQN = 'nqn.2026-01.test:kernel'
PORT = '4420'
MIB = 64
KATO = 30  # seconds of the keep-alive timer, so that a guest that gets no processor is not given up
SHORT_KATO = 3  # where it is to expire
HOST_STOPS = 3
LOSS_SECONDS = 60
MARK = '@@ status '

COMPARE, RESERVATIONS, VERIFY = 0x1, 0x20, 0x80  # of ONCS, in Identify Controller

# A command of nvme-cli for controller {c} or its first namespace {d}, what it must print, and the
# bit of ONCS that offers it.
QUESTIONS = [
    ('list', rf'/dev/nvme\d+n1 .*{MIB * 1.048576:.2f}  MB', 0),
    ('list-subsys', rf'NQN={re.escape(NQN)}[\s\S]*rdma traddr=\S+,trsvcid={PORT} live', 0),
    (
        'id-ctrl {c}',
        (
            r'sqes +: 0x66\n(.*\n)*sgls +: 0x[1-9a-f]'
            rf'(.*\n)*subnqn +: {re.escape(NQN)}\n(.*\n)*ioccsz +: [1-9]'
        ),
        0,
    ),
    ('id-ns {d}', r'nsze +: 0x20000\n(.*\n)*lbaf +0 : ms:0 +lbads:9 .*in use', 0),
    ('list-ns {c}', r'0\]:0x1', 0),
    ('ns-descs {d}', r'(uuid|nguid) +: (?!0{8})[0-9a-f]{8}', 0),
    ('smart-log {c}', r'critical_warning\s+: 0\n(.*\n)*host_write_commands\s+: \d', 0),
    ('error-log {c} -e 4', r'entries:4', 0),
    ('fw-log {c}', r'Firmware Log', 0),
    # Log pages are read without effect.
    ('effects-log {c} -c 0', r'ACS2 .* 00000001[\s\S]*IOCS2 .* 00000001', 0),
    ('ana-log {c}', r'state\s+:\s+optimized', 0),
    ('get-feature {c} -f 0x7', r'value:0x00[0-9a-f]{2}00[0-9a-f]{2}', 0),
    ('get-feature {c} -f 0xb', r'value:0x', 0),
    ('get-feature {c} -f 0xf', rf'value:0x{KATO * 1000:08x}', 0),
    # Not show-regs: nvme-cli 2.3 shows its own stack, whatever the target.
    ('get-property {c} -o 0', r'value: [1-9a-f]', 0),
    ('get-property {c} -o 0x14', r'value: 4600[0-6]1$', 0),
    ('get-property {c} -o 0x8', r'value: 10[34]00|value: 20000', 0),
    ('get-property {c} -o 0x1c', r'value: 1$', 0),
    ('resv-report {d} -e', r'regctl\s+: 0', RESERVATIONS),
    ('flush {d}', r'success', 0),
    ('write-zeroes {d} -s 0 -c 7', r'Success', 0),
    ('dsm {d} -d -b 8 -s 0', r'success', 0),
    ('verify {d} -s 0 -c 7', r'Success', VERIFY),
]
FIO = f'''[global]
filename={{device}}
direct=1
ioengine=libaio
thread
iodepth=16
rw={{pattern}}
bssplit=512/20:4k/40:16k/20:64k/10:128k/10
blockalign=512
verify=crc32c
verify_fatal=1
norandommap=0
group_reporting
[jobs]
numjobs={{jobs}}
size={{size}}M
offset_increment={{size}}M
'''


def say(good, title, *texts):
    return test_programs.say(bool(good), title, *texts)


class KernelHost:
    """Connects to a target at an address by nvme-rdma of guest `name`."""

    def __init__(self, address, name='b'):
        self.address, self.name, self.offered = address, name, 0

    def shell(self, script, seconds=guest.LIMIT_SECONDS):
        """Runs a script in which $c is the controller and $d its first namespace; its output and
        status."""
        head = (
            f'c=$(grep -ls {NQN} /sys/class/nvme/*/subsysnqn); c=/dev/$(basename ${{c%/*}}); '
            'd=/dev/$(ls /sys/block | '
            'grep "^nvme[0-9]*n1$"); '
        )
        done = guest.peer('exec', '-t', str(seconds), self.name, head + script, errors='replace')
        return done.stdout + done.stderr, done.returncode

    def prepare(self):
        """The modules, and an identity that stays the same."""
        text, status = self.shell(
            'modprobe -a nvme-rdma ext4 && mkdir -p /etc/nvme /mnt && '
            'id=$(cat /proc/sys/kernel/random/uuid) && '
            'echo nqn.2014-08.org.nvmexpress:uuid:$id >/etc/nvme/hostnqn && '
            'echo $id >/etc/nvme/hostid'
        )
        return say(status == 0, 'the guest has the NVMe host', text)

    def discover(self):
        text, status = self.shell(f'nvme discover -t rdma -a {self.address} -s {PORT}')
        good = status == 0 and re.search(
            rf'subtype: nvme subsystem\n(.*\n)*trsvcid: {PORT}\nsubnqn: +{re.escape(NQN)}\n'
            r'traddr: +'
            f'{self.address}\n',
            text,
        )
        return say(good, 'nvme discover', text)

    def connect(self, options='-i 2 -Q 128', kato=KATO):
        text, status = self.shell(
            f'nvme connect -t rdma -a {self.address} -s {PORT} -n {NQN} -k {kato} -c 1 -l '
            f'{LOSS_SECONDS} {options}; '
            'for i in $(seq 300); do ls /sys/block | grep -q "^nvme[0-9]*n1$" && break; '
            'sleep 0.1; done; '
            'mdev -s; ls /sys/block/ | grep "^nvme[0-9]*n1$" && dmesg | tail -n 3'
        )
        return say(status == 0 and 'I/O queues' in text, f'nvme connect {options}', text)

    def disconnect(self):
        text, status = self.shell(f'nvme disconnect -n {NQN}; ls /sys/class/nvme')
        return say(
            status == 0
            and 'disconnected 1 controller' in text
            and 'nvme0' not in text.split('\n')[1:],
            'nvme disconnect',
            text,
        )

    def state(self):
        return self.shell('cat /sys/class/nvme/$(basename $c)/state')[0].strip()

    def await_state(self, wanted, seconds):
        """Whether the controller comes into a state, or out of it ('!live'), in time."""
        test = '[ "$(cat /sys/class/nvme/$(basename $c)/state)" ' + (
            f'!= {wanted[1:]} ]' if wanted[0] == '!' else f'= {wanted} ]'
        )
        return (
            self.shell(
                f'for i in $(seq {seconds * 10}); do {test} && exit 0; sleep 0.1; done; exit 1',
                seconds + 20,
            )[1]
            == 0
        )

    def ask(self, target):
        """What nvme-cli asks of a controller and of a namespace. The target must refuse what it
        does not offer, by the right status."""
        script = ''.join(
            f'nvme {line}; echo "{MARK}$?"; '.replace('{c}', '$c').replace('{d}', '$d')
            for line, _, _ in QUESTIONS
        )
        text = self.shell(script)[0]
        answers = re.split(rf'{MARK}(\d+)\n', text)
        oncs = re.search(r'^oncs +: 0x([0-9a-f]+)$', text, re.MULTILINE)
        self.offered = int(oncs[1], 16) if oncs else 0
        good = say(
            self.offered & target.offers == target.offers,
            f'the target offers optional commands: {self.offered:#x}',
            text,
        )
        for (line, pattern, bit), text, status in zip(QUESTIONS, answers[::2], answers[1::2]):
            title = 'nvme ' + re.sub(' {[cd]}', '', line)
            if bit & ~self.offered:
                good &= say(
                    'Invalid Command Opcode' in text, f'{title}: not offered, refused', text
                )
            else:
                good &= say(status == '0' and re.search(pattern, text, re.MULTILINE), title, text)
        return good and len(answers) == 2 * len(QUESTIONS) + 1

    def copy(self):
        """Bytes there and back."""
        text, status = self.shell(
            'dd if=/dev/urandom of=/tmp/data bs=64k count=64 2>/dev/null; '
            'dd if=/tmp/data of=$d bs=64k oflag=direct '
            '2>/dev/null && dd if=$d bs=128k count=32 iflag=direct 2>/dev/null | cmp - /tmp/data '
            '&& '
            'dd if=/tmp/data of=$d bs=512 count=9 seek=33 oflag=direct 2>/dev/null && '
            'dd if=$d bs=512 count=9 skip=33 iflag=direct 2>/dev/null | cmp -n 4608 - /tmp/data && '
            'dd if=/tmp/data of=$d bs=64k oflag=direct 2>/dev/null'
        )
        return say(status == 0, 'dd there and back, 128k, 64k, 512', text)

    def compare(self):
        """Equal, then unequal, by the target itself. tshark does not put a capsule of two packets
        together, so one is small."""
        command = 'nvme compare $d -s 0 -c 7 -z 4096 -d /tmp/'
        text, _ = self.shell(
            f'dd if=/tmp/data of=/tmp/other bs=4k skip=1 count=1 2>/dev/null; {command}data; '
            f'{command}other; '
            'nvme compare $d -s 0 -c 0 -z 512 -d /tmp/data'
        )
        wanted = (
            r'(Invalid Command Opcode[\s\S]*){3}'
            if not self.offered & COMPARE
            else r'Success[\s\S]*Compare Failure[\s\S]*Success'
        )
        return say(re.search(wanted, text), 'nvme compare', text)

    def reserve(self):
        """Registers, takes the namespace, writes as its holder, and gives it up."""
        if not self.offered & RESERVATIONS:
            return True
        text, status = self.shell(
            'nvme resv-register $d -k 0x7b -r 0 && nvme resv-acquire $d -c 0x7b -t 1 -a 0 && '
            'nvme resv-report $d -e && '
            'dd if=/tmp/data of=$d bs=64k count=1 oflag=direct 2>/dev/null && '
            'nvme resv-release $d -c 0x7b -t 1 -a 0 && '
            'nvme resv-register $d -c 0x7b -r 1 && nvme resv-report $d -e'
        )
        reported = (
            r'rtype\s+: 1\nregctl\s+: 1\n[\s\S]*rcsts\s+: 1\n[\s\S]*rkey\s+: (7b|0x7b)\n[\s\S]*'
            r'rtype\s+: 0\nregctl\s+: 0'
        )
        return say(
            status == 0 and re.search(reported, text),
            'nvme resv-register, -acquire, -report, -release',
            text,
        )

    def refusals(self, target):
        """Errors have the right type and code: nvme-cli and the kernel have words for those."""
        text, _ = self.shell(
            'nvme get-log $c -i 0x7e -l 512; nvme read $d -s 0x20000 -c 0 -z 512 -d /tmp/x; '
            'nvme get-feature $c -f 0x7e; '
            f'nvme connect -t rdma -a {self.address} -s {PORT} -n {NQN}x; dmesg | tail -n 4'
        )
        return say(
            re.search(r'[\s\S]*'.join(target.refusals + ['Connect Invalid Data Parameter']), text),
            'a log page, a block, a feature and a subsystem that are not there',
            text,
        )

    def zeroes(self):
        """Write Zeroes and what it leaves."""
        text, status = self.shell(
            'nvme write-zeroes $d -s 8 -c 15 && dd if=$d bs=512 skip=8 count=16 iflag=direct '
            '2>/dev/null | '
            'cmp -n 8192 - /dev/zero && dd if=$d bs=4k count=1 iflag=direct 2>/dev/null | cmp -n '
            '4096 - /tmp/data && '
            'dd if=$d bs=4k skip=3 count=1 iflag=direct 2>/dev/null >/tmp/got && '
            'dd if=/tmp/data bs=4k skip=3 count=1 2>/dev/null | cmp - /tmp/got && '
            'fallocate -l 1 /tmp/x && blkdiscard -o 0 -l 65536 $d'
        )
        return say(status == 0, 'write zeroes where it must and nowhere else, discard', text)

    def file_system(self):
        text, status = self.shell(
            'mkfs.ext4 -q -F $d && mount -t ext4 $d /mnt && for i in 1 2 3 4; do mkdir /mnt/$i && '
            'cp /tmp/data /mnt/$i/ && cp /bin/busybox /mnt/$i/; done && rm /mnt/2/data && '
            'umount /mnt && '
            'e2fsck -fn $d && mount -t ext4 $d /mnt && cmp /mnt/4/data /tmp/data && '
            'cmp /mnt/3/busybox /bin/busybox && '
            'umount /mnt && e2fsck -fn $d'
        )
        return say(status == 0, 'mkfs.ext4, mount, files, umount, e2fsck', text)

    def fio(self, pattern, size, jobs=4, seconds=150):
        job = FIO.format(device='$d', pattern=pattern, size=size, jobs=jobs)
        text, status = self.shell(
            f'cat >/tmp/job.fio <<END\n{job}END\ntimeout {seconds} fio /tmp/job.fio', seconds + 10
        )
        done = re.search(r'issued rwts: .*', text)
        return say(
            status == 0 and 'err= 0' in text,
            f'fio {pattern}, {jobs} jobs, depth 16, {size} MiB each, crc32c: {done and done[0]}',
            text,
        )

    def outstanding(self, target):
        """I/O that is under way while the target is killed; it finishes with the target that is
        started again."""
        self.shell(
            'spawn fio 100 fio --name=slow --filename=$d --direct=1 --ioengine=libaio --iodepth=16 '
            '--bs=4k --rw=randwrite '
            '--size=8M --rate_iops=400 --verify=crc32c --verify_fatal=1; sleep 2'
        )
        target.kill()
        left = self.await_state('!live', 60)
        running = self.shell('kill -0 $(cat /tmp/fio.pid)')[1] == 0
        target.start()
        text, _ = self.shell(
            'while kill -0 $(cat /tmp/fio.pid) 2>/dev/null; do sleep 0.1; done; cat /tmp/fio.log'
        )
        return say(
            left
            and running
            and 'err= 0' in text
            and 'issued rwts: total=2048,2048' in text
            and self.await_state('live', 60),
            'the target is killed and started again: I/O outstanding finishes, data verified',
            f'noticed: {left}, fio ran on: {running}',
            text,
        )

    def target_stops(self, target):
        """Keep-alive expires here."""
        target.pause()
        left = self.await_state('!live', 60)
        target.resume()
        back = self.await_state('live', 60)
        return say(
            left and back,
            'the target stands still: the host gives up its connections, and comes back',
            f'noticed {left}, back {back}',
        )

    def stand_still(self, seconds, looks):
        """All of the guest. How often it has connected anew some tenths of a second after that."""
        count = 'dmesg | grep -c "uccessfully reconnected"'
        before = int(self.shell(count)[0])
        with open(os.path.join(guest_run(), f'{self.name}.pid'), encoding='ascii') as file:
            pid = int(file.read())
        os.kill(pid, signal.SIGSTOP)
        time.sleep(seconds)
        os.kill(pid, signal.SIGCONT)
        return (
            int(
                self.shell(
                    f'for i in $(seq {looks}); do n=$({count}); [ $n -gt {before} ] && break; '
                    'sleep 0.1; done; echo $n'
                )[0]
            )
            - before
        )

    def host_stops(self):
        """Keep-alive expires there, not too early."""
        # A machine that takes the guest's processor away may make a short while a long one, so that
        # is tried again: a target that ends a controller too early does so each time.
        short = all(self.stand_still(1, 50) for _ in range(HOST_STOPS))
        long = self.stand_still(SHORT_KATO + 4, 300)
        return say(
            not short and long and self.await_state('live', 60) and self.copy(),
            (
                'the host stands still for too long: the target ends its controller, and takes it '
                'again'
            ),
            f'reconnected {short}, {long}',
        )

    def namespaces_change(self, target):
        """By the event that the target sends, without a rescan of ours."""
        seen = 'ls /sys/block | grep -q "^nvme[0-9]*n2$"'
        target.add_namespace()
        came = (
            self.shell(f'for i in $(seq 300); do {seen} && exit 0; sleep 0.1; done; exit 1')[1] == 0
        )
        used = (
            self.shell(
                'mdev -s; e=${d%1}2; dd if=/tmp/data of=$e bs=64k oflag=direct && '
                'dd if=$e bs=64k count=64 iflag=direct | '
                'cmp - /tmp/data'
            )[1]
            == 0
        )
        target.remove_namespace()
        went = (
            self.shell(f'for i in $(seq 300); do {seen} || exit 0; sleep 0.1; done; exit 1')[1] == 0
        )
        return say(
            came and used and went,
            'a namespace comes and goes, live',
            f'came {came}, used {used}, went {went}',
        )


def guest_run():
    """Where kernel-peer keeps the guests' process ids."""
    cache = os.environ.get('KP_DIR') or os.path.join(
        os.environ.get('XDG_CACHE_HOME') or os.path.expanduser('~/.cache'), 'sidewire-kernel'
    )
    return os.path.join(cache, 'run', os.environ['KP_NS'])
