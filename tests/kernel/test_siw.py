#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""Unmodified programs of librdmacm between our iWARP device and a stock kernel's siw, both ways. usage: test_siw.py SIDEWIRE KERNEL [SIDEWIRE_NVME]

With CRCs and without, and with a siw that asks for them itself; tshark reads what passes. With KERNEL 6.1 there are more programs. With
SIDEWIRE_NVME, which `sidewire nvme` runs, NVMe over RDMA in both roles.
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
TRIES = 5
REFUSED = re.compile(r'RDMA_CM_EVENT_REJECTED; error: -111|Connection refused')
HASTY = 'RDMA_CM_EVENT_CONNECT_ERROR, error: -22'
CLOSED = 'Failed to close connection between server and client'
MEMORY_MIB = '448'
DEVICES = {guest.OWN: 'iw_br0', guest.GUEST: 'siw0'}

# Server, client, what the client must say. perftest's clients fail by their status.
FEW = [
    ('rping -s -a {server} -p {port} -C 10 -V -v', 'rping -c -a {server} -p {port} -C 10 -V -v', r'^ping data: rdma-ping-9'),
    ('ucmatose -b {server} -p {port} -c 4 -C 10 -S 3000', 'ucmatose -s {server} -p {port} -c 4 -C 10 -S 3000', r'return status 0'),
    ('rstream -b {server} -p {port} -S 4096 -C 50 -I 2 -T v', 'rstream -s {server} -p {port} -S 4096 -C 50 -I 2 -T v', r'4k +50'),
    *[(f'{name} -R -d {{server_device}} -F -p {{port}} {options}', f'{name} -R -d {{client_device}} -F -p {{port}} {options} {{server}}',
       rf'^ *65536 +100\b') for name, options in (('ib_send_bw', '-n 100 -s 65536'), ('ib_write_bw', '-n 100 -s 65536'),
                                                 ('ib_read_bw', '-n 100 -s 65536 -o 16'))],
]
PROGRAMS = FEW + [
    ('rdma_server -p {port}', 'rdma_client -s {server} -p {port}', r'end 0'),
    *[(f'{name} -R -d {{server_device}} -F -p {{port}} {options}', f'{name} -R -d {{client_device}} -F -p {{port}} {options} {{server}}',
       rf'^ *{size} +{count}\b') for name, options, size, count in (
           ('ib_send_lat', '-n 100 -s 64', 64, 100), ('ib_write_lat', '-n 100 -s 64', 64, 100), ('ib_read_lat', '-n 50 -s 64', 64, 50))],
]
# fio's engine has no receive to spare: its server wants one for each block. What it gets by SENDs it verifies.
FIO = [(f'fio --name=s --ioengine=rdma --port={{port}} --rw=read --iodepth=32 --bs=64k --size=1m{server}',
        f'fio --name=c --ioengine=rdma --hostname={{server}} --port={{port}} --verb={verb} --rw=write --iodepth=4 --bs=64k --size=1m{client}',
        r'err= 0') for verb, server, client in (('write', '', ''), ('read', '', ''),
                                                ('send', ' --verify=crc32c', ' --verify=crc32c --do_verify=0'))]


def words_of(line, server, client, port):
    return line.format(server=server, port=port, server_device=DEVICES[server], client_device=DEVICES[client])


class Own:
    """Our side."""

    def __init__(self, sidewire, crc):
        self.command = [guest.PEER, 'host', 'env', *(['SIDEWIRE_IWARP_CRC=on'] if crc else []), 'timeout', str(SECONDS), sidewire, 'run',
                        '--link', 'iwarp', '--']

    def start(self, line):
        return subprocess.Popen(self.command + line.split(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    @staticmethod
    def listens(port):
        return subprocess.run([guest.PEER, 'host', 'sh', '-c', f'for i in 1 2 3 4 5 6 7 8 9 10 11 12; do ss -ltn | grep -q :{port} && exit 0; '
                               'sleep 0.25; done; exit 1'], check=False).returncode == 0


def from_us(own, server, client, port):
    if not guest.spawn('server', words_of(server, guest.GUEST, guest.OWN, port), f'netstat -ltn | grep -q :{port}', SECONDS):
        return 'the server in the guest does not listen', 1
    started = own.start(words_of(client, guest.GUEST, guest.OWN, port))
    text = started.communicate()[0]
    if started.returncode == 0 and '--verify' in server:  # it is the server that looks at the data
        said, _ = guest.inside('for i in $(seq 50); do kill -0 $(cat /tmp/server.pid) 2>/dev/null || break; sleep 0.1; done; cat /tmp/server.log')
        return text + said, int('err= 0' not in said or 'io=1024KiB' not in said)
    return text, started.returncode


def from_siw(own, server, client, port):
    started = own.start(words_of(server, guest.OWN, guest.GUEST, port))
    if not own.listens(port):
        started.kill()
        return 'our server does not listen\n' + started.communicate()[0], 1
    text, status = guest.inside(f'timeout {SECONDS} {words_of(client, guest.OWN, guest.GUEST, port)}')
    try:
        said, ended = started.communicate(timeout=SECONDS)[0], started.returncode
    except subprocess.TimeoutExpired:
        started.kill()
        said, ended = started.communicate()[0], 1
    return f'{text}\n--- our server: {ended}\n{said}', status or ended


def with_patience(way, own, server, client, port):
    """A client that comes between two listens of perftest's server is refused. And siw tells of a SEND as failed whose peer closes
    as soon as it has it, which the last word of perftest is: then all was moved. And siw gives up where its peer's first message is there
    before it has looked at the reply, as on a busy machine (docs/iwarp.md). Both start again, at another port."""
    for attempt in range(TRIES):
        said, status = way(own, server, client, port + 100 * attempt)
        if status == 0 or not (REFUSED.search(said) or CLOSED in said or HASTY in said):
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
                continue  # the emulated server measures its clock for seconds before it listens again
            said, status = with_patience(way, own, server, client, ports.next())
            good &= say(status == 0 and re.search(says, said, re.M), f'{way.__name__}{name}: {client}', said)
    return good


def run_read(own, rows, ports, name, askers):
    """The same, while tshark's ears are open."""
    with siw_capture.Capture() as capture:
        good = run_rows(own, rows, ports, name)
        text, faults = capture.judge(askers)
    return say(not faults, f'tshark{name}: {text}', '\n'.join(faults)) and good


def load(module):
    text, status = guest.inside(f'rdma link del rxe0; modprobe {module} && rdma link add siw0 type siw netdev eth0 && mdev -s && '
                                'rdma link show siw0/1')
    return say(status == 0, f'{module} of Linux {os.environ["KP_KERNEL"]}', text)


def run_programs(sidewire, module, programs):
    """With CRCs by our wish and without; siw-crc wants them itself."""
    ports, good = Ports(), load(module)
    for crc in (False, True) if module == 'siw' and good else (False,):
        own, name = Own(sidewire, crc), ', CRC' if crc else ', siw wants CRCs' if module != 'siw' else ''
        askers = (guest.OWN, guest.GUEST) if crc else (guest.GUEST,) if module != 'siw' else ()  # siw asks in requests alone
        good &= run_read(own, programs[:2], ports, name, askers)
        good &= run_rows(own, programs[2:], ports, name)
    return good


def nvme_target(sidewire):
    """Our target, the kernel's host: data there and back, verified load."""
    with tempfile.TemporaryDirectory() as folder:
        target, host = OwnTarget(sidewire, folder), KernelHost(guest.OWN)
        try:
            good = host.prepare() and target.start() and host.discover() and host.connect() and host.ask(target) and host.copy() and \
                host.compare() and host.fio('randrw', 1) and host.disconnect() and target.end()
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


def run(sidewire, module, programs, has_nvme):
    good = run_programs(sidewire, module, programs)
    return (not has_nvme or run_nvme(sidewire)) and good


def main(sidewire, kernel, nvme=None):
    os.environ.update(KP_IMAGE='siw', KP_KERNEL=kernel, KP_MEM=MEMORY_MIB,
                      KP_SMP='1')  # with two CPUs siw stalls now and then after the first SEND
    if not siw_capture.has_tshark():
        print('SKIP: no tshark: scripts/setup test installs it')
        return 77
    more = kernel == '6.1'
    for module, programs, has_nvme in (('siw', PROGRAMS + FIO if more else FEW + FIO, bool(nvme)), ('siw-crc', FEW, False)):
        status = guest.with_guest(run, os.path.abspath(sidewire), module, programs, has_nvme)
        if status:
            return status
    return 0


if __name__ == '__main__':
    sys.exit(main(*sys.argv[1:]))
