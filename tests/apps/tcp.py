# SPDX-License-Identifier: BSD-2-Clause
"""Programs that connect without librdmacm, on RoCE's devices over TCP: between hosts where nothing
passes to UDP port 4791."""
import os
import re
import shlex
import signal
import struct
import subprocess
import time

import cm
import hosts
import iwarp
import pair
import ports
from pair import Failure, Process, Skip

UDP_PORT = TCP_PORT = 4791
TOLD_S = 20  # until the end of a process is known to its peer
SETTINGS = {
    'MPTCP': ('env', 'SIDEWIRE_TCP_MPTCP=on'),
    'CRC': ('env', 'SIDEWIRE_IWARP_CRC=on'),
    'reno, port 4000': ('env', 'SIDEWIRE_TCP_CC=reno', 'SIDEWIRE_TCP_PORT=4000'),
}


STANDING = {
    'receive': 'waits for a receive',
    'meeting': 'not connected yet',
    'stopped': 'waits for the peer',
}


def perftest(line, says):
    """The servers of one-sided latencies say nothing."""
    return (
        f'{line} -d {{device}} -F -p {{port}}',
        f'{line} -d {{device}} -F -p {{port}} {{host}}',
        'socket',
        '' if line.startswith(('ib_read_lat', 'ib_atomic_lat')) else says,
        says,
    )


ROWS = [
    perftest('ib_send_bw -n 500', r'65536 +500'),
    perftest('ib_send_bw -n 1000 -s 64 -b', r'64 +1000'),
    perftest('ib_send_bw -n 300 -e -q 4', r'65536 +1200'),
    perftest('ib_write_bw -n 500 -b -q 2', r'65536 +1000'),
    perftest('ib_write_bw -n 3200 -s 8 -l 32 -t 128', r'8 +3200'),
    perftest('ib_read_bw -n 300', r'65536 +300'),
    perftest('ib_atomic_bw -n 500', r'8 +500'),
    perftest('ib_atomic_bw -n 500 -A CMP_AND_SWAP', r'8 +500'),
    perftest('ib_send_lat -n 100 -s 8', r'8 +100'),
    perftest('ib_write_lat -n 100 -s 64', r'64 +100'),
    perftest('ib_read_lat -n 100 -s 64', r'64 +100'),
    perftest('ib_atomic_lat -n 100', r'8 +100'),
]


class BlockedHosts(hosts.Hosts):
    """Two hosts of which neither sends anything to UDP port 4791."""

    def __init__(self, mtu=1500):
        super().__init__(mtu)
        for name in self.names:
            for family in ('-4', '-6'):
                self.ip(
                    '-n',
                    name,
                    family,
                    *f'rule add ipproto udp dport {UDP_PORT} pref 1 blackhole'.split(),
                )


def with_hosts(case, *more):
    def run(tools):
        two = BlockedHosts()
        try:
            case(tools, two, *more)
        finally:
            two.close()

    return run


def run_row(tools, two, words, around=()):
    parts = [words[side].replace('{device}', two.device[1 - side]) for side in (0, 1)]
    parts = [part.replace('{n}', '3').replace('{size}', '1000') for part in parts]
    cm.run_pair(
        tools,
        *parts,
        *words[2:],
        host=hosts.ADDRESSES[1],
        wraps=((*two.wrap[1], *around), (*two.wrap[0], *around)),
        link='tcp',
    )


def start(tools, two, side, line, log=None):
    words = shlex.split(line.format(device=two.device[side], host=hosts.ADDRESSES[1]))
    return Process(tools.run(*words, link='tcp', log=log, wrap=two.wrap[side]))


def finish(process, says):
    process.wait(time.monotonic() + pair.PATIENCE_S)
    process.end()
    if process.child.returncode or not re.search(says, process.text()):
        raise Failure(process.text())


def wait_for(process, says):
    limit = time.monotonic() + pair.PATIENCE_S
    while not re.search(says, process.text()):
        if time.monotonic() > limit or process.child.poll() is not None:
            raise Failure(process.text())
        time.sleep(0.02)


def wait_until_it_listens(server, port):
    limit = time.monotonic() + pair.PATIENCE_S
    while not cm.hears(port, server.child.pid):
        if time.monotonic() > limit or server.child.poll() is not None:
            raise Failure(server.text())
        time.sleep(0.02)


def many_processes(tools, two):
    """Four servers of one host share the port, and each gets its own client."""
    numbers = [ports.claim() for _ in range(4)]
    lines = [f'ib_write_bw -n 2000 -d {{device}} -F -p {port}' for port in numbers]
    servers = [start(tools, two, 1, line) for line in lines]
    try:
        for server, port in zip(servers, numbers):
            wait_until_it_listens(server, port)
        clients = [start(tools, two, 0, line + ' {host}') for line in lines]
        for client in clients:
            finish(client, r'65536 +2000')
        for server in servers:
            finish(server, r'65536 +2000')
    finally:
        for server in servers:
            server.end()


def killed_client(tools, two):
    """The doctor says what carries it. The server's queue pair ends with its peer, and its program
    hears of it."""
    port = ports.claim()
    line = f'ib_send_bw -D 60 -d {{device}} -F -p {port}'
    server, client = start(tools, two, 1, line, log='info'), None
    try:
        wait_until_it_listens(server, port)
        client = start(tools, two, 0, line + ' {host}')
        wait_for(server, 'over TCP to QP')
        iwarp.await_diagnosis(
            tools, client.child.pid, 'RoCE over TCP, to queue pair 0x', two.wrap[0]
        )
        time.sleep(0.3)
        client.child.send_signal(signal.SIGKILL)
        server.wait(time.monotonic() + TOLD_S)
        if server.child.poll() is None or not re.search(
            'connection to the peer has ended', server.text()
        ):
            raise Failure(f'the server is not told\n{server.text()}')
    finally:
        for end in filter(None, (client, server)):
            end.end()


def frame(private, flags=0x10, revision=2):
    body = bytes(4) + private if flags & 0x10 else private
    return b'MPA ID Req Frame' + struct.pack('>BBH', flags, revision, len(body)) + body


def pairing(own_qpn, peer_qpn, psn=0, version=1, kind=0):
    return b'SwQP' + struct.pack('>BBHIIIIQ', version, kind, 0, own_qpn, peer_qpn, psn, psn, 77)


STRANGER = '''
import socket, sys, time
address = (sys.argv[1], int(sys.argv[2]))
kept = []
for request in sys.argv[3:]:
    s = socket.create_connection(address, 5)
    s.settimeout(5)
    s.sendall(bytes.fromhex(request))
    kept.append(s)
time.sleep(0.2)
said = 0
for s in kept[:-64]:
    try:
        answer = s.recv(600)
    except OSError:
        answer = b""
    said += answer.startswith(b"MPA ID Rep Frame") and not answer[16] & 0x20
print("accepted", said)
sys.stdout.flush()
time.sleep(float(10))
'''


def stranger_requests():
    """None of these may be accepted: no MPA, no pairing, other versions, queue pairs that are not
    there or are connected, silence."""
    found = [
        b'GET / HTTP/1.0\r\n\r\n',
        frame(b''),
        frame(b'x' * 300),
        frame(pairing(1, 2, version=9)),
        frame(pairing(1, 2, kind=1)),
        frame(pairing(1, 0xFFFFFF)),
        frame(pairing(1, 2), flags=0x90),
        frame(pairing(1, 2)) + b'more',
        frame(pairing(1, 2), 0, 1),
    ]
    found += [frame(pairing(1, slot << 13 | index)) for slot in (1, 2, 1024) for index in range(8)]
    return found + [b'MPA ID'] * 64


def strangers(tools, two):
    """Nothing of theirs is accepted, a program that runs does not notice, and the next one finds
    its peer beside those that are silent."""
    port = ports.claim()
    line = f'ib_write_bw -D 3 -d {{device}} -F -p {port}'
    server, intruder = start(tools, two, 1, line, log='info'), None
    try:
        wait_until_it_listens(server, port)
        client = start(tools, two, 0, line + ' {host}')
        wait_for(server, 'over TCP to QP')
        words = [request.hex() for request in stranger_requests()]
        intruder = Process(
            [
                *two.wrap[0],
                'python3',
                '-u',
                '-c',
                STRANGER,
                hosts.ADDRESSES[1],
                str(TCP_PORT),
                *words,
            ]
        )
        wait_for(intruder, r'accepted \d+')
        if 'accepted 0' not in intruder.text():
            raise Failure(intruder.text())
        finish(client, r'65536 ')
        finish(server, r'65536 ')
        run_row(tools, two, ROWS[0])
    finally:
        for end in filter(None, (intruder, server)):
            end.end()


def congestion(tools, two):
    """The kernel uses what was asked for; what it does not have is said, and its own serves."""
    port = ports.claim()
    line = f'ib_write_bw -D 100 -d {{device}} -F -p {port}'
    around = ('env', 'SIDEWIRE_TCP_CC=reno')
    words = [
        shlex.split(text.format(device=two.device[side], host=hosts.ADDRESSES[1]))
        for side, text in ((1, line), (0, line + ' {host}'))
    ]
    server = Process(tools.run(*words[0], link='tcp', log='info', wrap=(*two.wrap[1], *around)))
    client = None
    try:
        wait_until_it_listens(server, port)
        client = Process(
            tools.run(
                *words[1],
                link='tcp',
                log='info',
                wrap=(*two.wrap[0], 'env', 'SIDEWIRE_TCP_CC=no_such_thing'),
            )
        )
        wait_for(server, 'over TCP to QP')
        shown = subprocess.run(
            [*two.wrap[1], 'ss', '-tin', f'( sport = :{TCP_PORT} or dport = :{TCP_PORT} )'],
            capture_output=True,
            text=True,
            timeout=pair.PATIENCE_S,
        ).stdout
        if ' reno ' not in shown:
            raise Failure(f'not reno: {shown}')
        if 'SIDEWIRE_TCP_CC=no_such_thing' not in client.text():
            raise Failure(client.text())
    finally:
        for end in filter(None, (client, server)):
            end.end()


def standing(tools, two, how, text, says=''):
    """What the doctor says of a sender whose peer does not take what it is sent. `says`: what one
    of them says, too."""
    program = os.path.join(pair.BUILD, 'tests/stress/standing')
    if not os.path.exists(program):
        raise Skip('tests/stress/standing is not built')
    env = {
        **pair.environment(),
        'VU_HOSTS': ','.join(two.names),
        'LD_PRELOAD': tools.path('src/preload/libsidewire.so'),
        'SIDEWIRE_LINK': 'tcp',
        'SIDEWIRE_LOG': 'debug',
    }
    done = subprocess.run(
        [program, how, text, tools.path('src/cli/sidewire'), 'doctor', '--json'],
        env=env,
        capture_output=True,
        text=True,
        timeout=pair.PATIENCE_S,
    )
    if done.returncode or says not in done.stderr:
        raise Failure(f'status {done.returncode}\n{done.stdout}{done.stderr}')


def late(tools, two):
    """A queue pair that is in RTR after its peer has called in vain says so, and is called at
    once."""
    standing(tools, two, 'late', STANDING['meeting'], 'its peer is ready')


def host_cases():
    found = [
        (words[0].format(port='PORT', device='DEVICE'), with_hosts(run_row, words))
        for words in ROWS
    ]
    found += [
        (
            f'{name}: {ROWS[0][0].format(port="PORT", device="DEVICE")}',
            with_hosts(run_row, ROWS[0], around),
        )
        for name, around in SETTINGS.items()
    ]
    found += [
        (f'the doctor: {text}', with_hosts(standing, how, text)) for how, text in STANDING.items()
    ]
    return found + [
        ('four processes share the port', with_hosts(many_processes)),
        ('a client is killed', with_hosts(killed_client)),
        ('a queue pair is in RTR late', with_hosts(late)),
        ('strangers', with_hosts(strangers)),
        ('congestion control', with_hosts(congestion)),
    ]
