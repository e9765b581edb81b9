#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""Unmodified programs of librdmacm between our iWARP device and a stock kernel's siw, both ways.
usage: test_siw.py SIDEWIRE KERNEL [--all] [SIDEWIRE_NVME]

With CRCs and without, and on 6.1 with a siw that asks for them itself; tshark reads what passes.
With KERNEL 6.1 there are more programs. Each program goes each way once on each kernel. With CRCs
that we ask for go those that tshark reads, with CRCs that siw asks for one of each operation.
`--all` runs each program by each way. With SIDEWIRE_NVME, which `sidewire nvme` runs, NVMe over
RDMA in both roles.
"""
import os
import re
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True

import kernel_guest as guest  # noqa: E402
import siw_capture  # noqa: E402
from nvme_host import KernelHost  # noqa: E402
from nvme_own import OwnHost, OwnTarget  # noqa: E402
from test_nvme import SAYS, KernelTarget  # noqa: E402

SECONDS = 60
LAST_SECONDS = 15
TRIES = 20
REFUSED = re.compile(r'RDMA_CM_EVENT_REJECTED; error: -111|Connection refused')
# By librdmacm's events, and as rsockets tell the same error of a connection.
HASTY = re.compile(r'RDMA_CM_EVENT_CONNECT_ERROR, error: -22|rpoll: Invalid argument')
CLOSED = 'Failed to close connection between server and client'
# fio's client says it, and then waits for ever: it acknowledges -1 events before it destroys the CQ
LAST_SEND = 'cq completion status 2(local QP operation error)'
ALL_CAME = re.compile(r'--- our server: 0\n[\s\S]*err= 0')
ALL_SENDS_CAME = re.compile(r'--- our server: 0\n[\s\S]*err= 0[\s\S]*io=1024KiB')
MEMORY_MIB = '448'
READ = 2  # the first programs, whose packets tshark reads
DEVICES = {guest.OWN: 'iw_br0', guest.GUEST: 'siw0'}

# Server, client, what the client must say. perftest's clients fail by their status.
FEW = [
    (
        'rping -s -a {server} -p {port} -C 10 -V -v',
        'rping -c -a {server} -p {port} -C 10 -V -v',
        r'^ping data: rdma-ping-9',
    ),
    (
        'ucmatose -b {server} -p {port} -c 4 -C 10 -S 3000',
        'ucmatose -s {server} -p {port} -c 4 -C 10 -S 3000',
        r'return status 0',
    ),
    (
        'rstream -b {server} -p {port} -S 4096 -C 50 -I 2 -T v',
        'rstream -s {server} -p {port} -S 4096 -C 50 -I 2 -T v',
        r'4k +50',
    ),
    *[
        (
            f'{name} -R -d {{server_device}} -F -p {{port}} {options}',
            f'{name} -R -d {{client_device}} -F -p {{port}} {options} {{server}}',
            rf'^ *65536 +100\b',
        )
        for name, options in (
            ('ib_send_bw', '-n 100 -s 65536'),
            ('ib_write_bw', '-n 100 -s 65536'),
            ('ib_read_bw', '-n 100 -s 65536 -o 16'),
        )
    ],
]
PROGRAMS = FEW + [
    ('rdma_server -p {port}', 'rdma_client -s {server} -p {port}', r'end 0'),
    *[
        (
            f'{name} -R -d {{server_device}} -F -p {{port}} {options}',
            f'{name} -R -d {{client_device}} -F -p {{port}} {options} {{server}}',
            rf'^ *{size} +{count}\b',
        )
        for name, options, size, count in (
            ('ib_send_lat', '-n 100 -s 64', 64, 100),
            ('ib_write_lat', '-n 100 -s 64', 64, 100),
            ('ib_read_lat', '-n 50 -s 64', 64, 50),
        )
    ],
]
# fio's engine has no receive to spare: its server wants one for each block. It verifies data that
# comes by SENDs.
FIO = [
    (
        (
            f'fio --name=s --ioengine=rdma --port={{port}} --rw=read --iodepth=32 --bs=64k '
            f'--size=1m{server}'
        ),
        (
            f'fio --name=c --ioengine=rdma --hostname={{server}} --port={{port}} --verb={verb} '
            f'--rw=write --iodepth=4 --bs=64k --size=1m{client}'
        ),
        r'err= 0',
    )
    for verb, server, client in (
        ('write', '', ''),
        ('read', '', ''),
        ('send', ' --verify=crc32c', ' --verify=crc32c --do_verify=0'),
    )
]


def words_of(line, server, client, port):
    return line.format(
        server=server, port=port, server_device=DEVICES[server], client_device=DEVICES[client]
    )


class Own:
    """Our side."""

    def __init__(self, sidewire, crc):
        self.command = [
            guest.PEER,
            'host',
            'env',
            *(['SIDEWIRE_IWARP_CRC=on'] if crc else []),
            *f'timeout -k 2 {SECONDS}'.split(),
            sidewire,
            *'run --link iwarp --'.split(),
        ]

    def start(self, line):
        return subprocess.Popen(
            self.command + line.split(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )


def from_us(own, server, client, port):
    if not guest.spawn(
        'server',
        words_of(server, guest.GUEST, guest.OWN, port),
        f'netstat -ltn | grep -q :{port}',
        SECONDS,
    ):
        return 'the server in the guest does not listen', 1
    started = own.start(words_of(client, guest.GUEST, guest.OWN, port))
    text = started.communicate()[0]
    if started.returncode == 0 and '--verify' in server:  # it is the server that looks at the data
        said = guest.ended('server')
        return text + said, int('err= 0' not in said or 'io=1024KiB' not in said)
    return text, started.returncode


def run_in_guest(line):
    """A client there. One of fio is ended once it has said what it never goes on from."""
    line = f'timeout {SECONDS} {line}'
    if ' fio ' not in line:
        return guest.inside(line)
    return guest.inside(
        f'{line} >/tmp/client.log 2>&1 & '
        f'while kill -0 $! 2>/dev/null; do grep -qsF "{LAST_SEND}" /tmp/client.log && '
        'kill -9 $(pidof fio); sleep 0.1; done; '
        'wait $!; status=$?; cat /tmp/client.log; exit $status'
    )


def from_siw(own, server, client, port):
    started = own.start(words_of(server, guest.OWN, guest.GUEST, port))
    if not guest.await_tcp(started, port):
        started.kill()
        return 'our server does not listen\n' + started.communicate()[0], 1
    text, status = run_in_guest(words_of(client, guest.OWN, guest.GUEST, port))
    seconds = SECONDS if status == 0 else LAST_SECONDS if LAST_SEND in text else 1
    try:  # a client that failed has left none that the server could wait for
        said = started.communicate(timeout=seconds)[0]
    except subprocess.TimeoutExpired:
        started.terminate()
        said = started.communicate()[0]
    ended = started.returncode
    return f'{text}\n--- our server: {ended}\n{said}', status or ended


def is_of_siw(server, said):
    """Whether a client failed for what siw does, or for its own end, not for anything of ours
    (with_patience). A server of fio whose memory is written or read counts no bytes; it ends after
    the client's last SEND."""
    came = ALL_SENDS_CAME if '--verify' in server else ALL_CAME
    return (
        REFUSED.search(said)
        or HASTY.search(said)
        or CLOSED in said
        or (LAST_SEND in said and came.search(said))
        or (guest.is_end_of_rping(said) and '--- our server: 0' in said)
    )


def with_patience(way, own, server, client, port):
    """A client that comes between two listens of perftest's server is refused. And siw gives up
    where its peer's first message is there before it has looked at the reply, as on a busy machine.
    And it tells of a SEND as failed whose peer closes as soon as it has it, which the last message
    of perftest and fio is: then all was moved (docs/iwarp.md). Such clients start again, at another
    port.
    """
    for attempt in range(TRIES):
        said, status = way(own, server, client, port + 100 * attempt)
        if status == 0 or not is_of_siw(server, said):
            break
        print(f'     again: {client}', flush=True)
    return said, status


class Ports:
    """Each program has its own."""

    def __init__(self):
        self.last = 7500

    def next(self):
        self.last += 1
        return self.last


def say(good, title, text):
    print(f'{"ok  " if good else "FAIL"} {title}', flush=True)
    if not good:
        print('    ' + '\n    '.join(text.strip().splitlines()[-40:]), flush=True)
    return bool(good)


def run_rows(own, rows, ports, name):
    """Both ways; False if one failed."""
    good = True
    for way in (from_us, from_siw):
        for server, client, says in rows:
            if way is from_us and '_lat ' in server:
                # The emulated server measures its clock for seconds before it listens again.
                continue
            said, status = with_patience(way, own, server, client, ports.next())
            good &= say(
                status == 0 and re.search(says, said, re.M), f'{way.__name__}{name}: {client}', said
            )
    return good


def run_read(own, rows, ports, name, askers):
    """The same, while tshark's ears are open."""
    with siw_capture.Capture() as capture:
        good = run_rows(own, rows, ports, name)
        text, faults = capture.judge(askers)
    return say(not faults, f'tshark{name}: {text}', '\n'.join(faults)) and good


def load(module):
    text, status = guest.inside(
        f'rdma link del rxe0; modprobe {module} && rdma link add siw0 type siw netdev eth0 && '
        'mdev -s && '
        'rdma link show siw0/1'
    )
    return say(status == 0, f'{module} of Linux {os.environ["KP_KERNEL"]}', text)


def run_programs(sidewire, module, programs, programs_crc):
    """With CRCs by our wish and without; siw-crc wants them itself."""
    ports, good = Ports(), load(module)
    for crc in (False, True) if module == 'siw' and good else (False,):
        own = Own(sidewire, crc)
        name = ', CRC' if crc else ', siw wants CRCs' if module != 'siw' else ''
        # siw asks in requests alone.
        askers = (guest.OWN, guest.GUEST) if crc else (guest.GUEST,) if module != 'siw' else ()
        rows = programs if module == 'siw' and not crc else programs_crc
        good &= run_read(own, rows[:READ], ports, name, askers)
        good &= run_rows(own, rows[READ:], ports, name)
    return good


def nvme_target(sidewire):
    """Our target, the kernel's host: data there and back, verified load."""
    with tempfile.TemporaryDirectory() as folder:
        target, host = OwnTarget(sidewire, folder), KernelHost(guest.OWN)
        try:
            good = (
                host.prepare()
                and target.start()
                and host.discover()
                and host.connect()
                and host.ask(target)
                and host.copy()
                and host.compare()
                and host.fio('randrw', 1)
                and host.disconnect()
                and target.end()
            )
            return good or print(f'the target says:\n{target.said()}', flush=True)
        finally:
            if target.process and target.process.poll() is None:
                target.kill()


def nvme_host(sidewire):
    """Our host, the kernel's target."""
    target, host = KernelTarget('b'), OwnHost(sidewire, guest.GUEST)
    if not target.start():
        return False
    target.add_namespace()
    with tempfile.TemporaryDirectory() as folder:
        return host.copy(folder) and host.bench('--bs 512,4k,128k --iodepth 16 --loops 1')


def run_nvme(sidewire):
    os.environ['SIDEWIRE_LINK'] = 'iwarp'
    good = nvme_target(sidewire) and nvme_host(sidewire)
    del os.environ['SIDEWIRE_LINK']
    if not good:
        print(f'the kernel says last:\n{guest.inside(SAYS)[0]}', flush=True)
    return bool(good)


def run(sidewire, module, programs, programs_crc, has_nvme):
    good = run_programs(sidewire, module, programs, programs_crc)
    return (not has_nvme or run_nvme(sidewire)) and good


def main(sidewire, kernel, *more):
    # With two CPUs siw stalls now and then after the first SEND.
    os.environ.update(KP_IMAGE='siw', KP_KERNEL=kernel, KP_MEM=MEMORY_MIB, KP_SMP='1')
    if not siw_capture.has_tshark():
        print('SKIP: no tshark: scripts/setup test installs it')
        return 77
    goes_all, nvme = '--all' in more, [word for word in more if word != '--all']
    usual = PROGRAMS + FIO if kernel == '6.1' else FEW + FIO if goes_all else FEW
    guests = [('siw', bool(nvme), usual if goes_all else FEW[:READ])]
    if goes_all or kernel == '6.1':
        guests.append(('siw-crc', False, FEW))
    for module, has_nvme, crc in guests:
        status = guest.with_guest(run, os.path.abspath(sidewire), module, usual, crc, has_nvme)
        if status:
            return status
    return 0


if __name__ == '__main__':
    sys.exit(main(*sys.argv[1:]))
