# SPDX-License-Identifier: BSD-2-Clause
"""Programs of librdmacm on iWARP devices, own to own: on the loopback, between hosts, IPv4 and
IPv6, with and without CRCs."""
import json
import re
import shlex
import shutil
import signal
import socket
import struct
import subprocess
import time

import cm
import cm_server
import hosts
import pair
import ports
import siw_peer
from pair import Failure, Process, Skip

CRC = ('env', 'SIDEWIRE_IWARP_CRC=on')
TOLD_S = 20  # until the end of a process is known to its peer


def row(line, says, server_says=''):
    """A program that is told its address alike on both sides."""
    name, _, rest = line.partition(' ')
    return (
        f'{name} -b {{host}} -p {{port}} {rest}',
        f'{name} -s {{host}} -p {{port}} {rest}',
        'socket',
        server_says,
        says,
    )


def perftest(line, says):
    """The servers of one-sided latencies say nothing."""
    return (
        f'{line} -R -d {{device}} -F -p {{port}}',
        f'{line} -R -d {{device}} -F -p {{port}} {{host}}',
        'socket',
        '' if line.startswith('ib_read_lat') else says,
        says,
    )


PING = (*cm.PING[:2], 'socket', *cm.PING[3:])
# fmt: off
ROWS = [
    PING,
    ('rping -s -a {host} -p {port} -C 5 -S 60000 -V',
     'rping -c -a {host} -p {port} -C 5 -S 60000 -V', 'socket', '', ''),
    row('ucmatose -c 8 -C 20 -S 5000', r'return status 0', r'return status 0'),
    row('ucmatose -c 3 -C 10 -S 1000000', r'return status 0', r'return status 0'),
    ('ucmatose -p {port} -c 5 -C 10 -m', 'ucmatose -s {host} -p {port} -c 5 -C 10 -m', 'socket',
     r'return status 0', r'return status 0'),
    ('rdma_server -p {port}', 'rdma_client -s {host} -p {port}', 'socket', r'end 0', r'end 0'),
    row('rstream -S 4096 -C 100 -I 5 -T v', r'4k', r'4k'),
    row('rstream -S 65536 -C 20 -I 2 -T b', r'64k', r'64k'),
    row('riostream -S 65536 -C 50 -I 1 -T v', r'64k', r'64k'),
    ('cmtime -b {host} -p {port} -c 50', 'cmtime -s {host} -p {port} -c 50', 'socket', None,
     r'connect +: +\d'),
]
# fmt: on
# ib_send_bw -e with as many receives as messages, or it may stand still (docs/iwarp.md): of an odd
# number perftest makes one more.
PERFTEST = [
    perftest('ib_send_bw -n 500', r'65536 +500'),
    perftest('ib_send_bw -n 5000 -s 64', r'64 +5000'),
    perftest('ib_send_bw -n 300 -s 65536 -q 4', r'65536 +1200'),
    perftest('ib_send_bw -n 501 -s 65536 -e', r'65536 +501'),
    perftest('ib_write_bw -n 500', r'65536 +500'),
    perftest('ib_write_bw -n 3200 -s 8 -l 32 -t 128', r'8 +3200'),
    perftest('ib_read_bw -n 300', r'65536 +300'),
    perftest('ib_send_lat -n 100 -s 8', r'8 +100'),
    perftest('ib_write_lat -n 100 -s 64', r'64 +100'),
    perftest('ib_read_lat -n 100 -s 64', r'64 +100'),
]


def run_row(tools, words, device='iw_lo', **options):
    server, client, *rest = (
        part and part.replace('{device}', device) if isinstance(part, str) else part
        for part in words
    )
    return cm.run_pair(tools, server, client, *rest, link='iwarp', **options)


def on_hosts(tools, words, family=4, mtu=1500):
    two = hosts.Hosts(mtu)
    try:
        address = hosts.ADDRESSES[1] if family == 4 else 'fd99::2'
        server = tuple(
            part.replace('{device}', two.device[1].replace('sw_', 'iw_')) for part in words[:1]
        )
        client = tuple(
            part.replace('{device}', two.device[0].replace('sw_', 'iw_')) for part in words[1:2]
        )
        cm.run_pair(
            tools,
            *server,
            *client,
            *words[2:],
            host=address,
            wraps=(two.wrap[1], two.wrap[0]),
            link='iwarp',
        )
    finally:
        two.close()


def nobody_listens(tools):
    """A connection that TCP refuses is REJECTED, with TCP's own status."""
    port = ports.claim()
    client = Process(tools.run('ucmatose', '-s', '127.0.0.1', '-p', str(port), link='iwarp'))
    client.wait(time.monotonic() + pair.PATIENCE_S)
    client.end()
    if 'RDMA_CM_EVENT_REJECTED, error: -111' not in client.text():
        raise Failure(client.text())


def killed_client(tools):
    """The kernel tells of a process that is gone: the server hears DISCONNECTED."""
    with cm_server.serving(tools, '127.0.0.1', link='iwarp') as (server, port):
        client = Process(
            tools.run(*shlex.split(f'rping -c -a 127.0.0.1 -p {port} -d'), link='iwarp')
        )
        try:
            cm_server.await_text(client, 'ESTABLISHED', pair.PATIENCE_S)
        finally:
            client.end()
        cm_server.await_text(server, 'DISCONNECTED', TOLD_S)


def strangers(tools):
    """Bytes that are no request of MPA, a stall and a half close take nothing from a listener: the
    next client is served."""
    script = (
        'import socket, sys\n'
        'for data in (b"GET / HTTP/1.0\\r\\n\\r\\n", b"MPA ID Req Frame", b"MPA ID Req '
        'Frame\\x90\\x02\\x00\\x04\\0\\0\\0\\0", b""):\n'
        '    s = socket.create_connection(("127.0.0.1", int(sys.argv[1])))\n'
        '    s.sendall(data)\n'
        '    s.shutdown(socket.SHUT_WR)\n'
    )
    port = ports.claim()
    server = Process(tools.run(*shlex.split(f'rping -s -P -a 127.0.0.1 -p {port}'), link='iwarp'))
    try:
        limit = time.monotonic() + pair.PATIENCE_S
        while not cm.hears(port, server.child.pid) and time.monotonic() < limit:
            time.sleep(0.01)
        for _ in range(2):
            subprocess.run(
                ['python3', '-c', script, str(port)], check=True, timeout=pair.PATIENCE_S
            )
            client = Process(
                tools.run(*shlex.split(f'rping -c -a 127.0.0.1 -p {port} -C 3 -V'), link='iwarp')
            )
            client.wait(time.monotonic() + pair.PATIENCE_S)
            client.end()
            if client.child.returncode:
                raise Failure(f'{client.text()}\n--- server\n{server.text()}')
        if server.child.poll() is not None:
            raise Failure(f'the server has ended\n{server.text()}')
    finally:
        server.end()


def fpdu(ulpdu):
    return struct.pack('>H', len(ulpdu)) + ulpdu + bytes(-(len(ulpdu) + 2) % 4 + 4)


def tagged(opcode, stag, offset, payload, control=0xC1):
    return fpdu(struct.pack('>BBIQ', control, 0x40 | opcode, stag, offset) + payload)


def untagged(opcode, queue, msn, offset, payload, control=0x41, stag=0):
    return fpdu(struct.pack('>BBIIII', control, 0x40 | opcode, stag, queue, msn, offset) + payload)


# What a peer may send, and the first two bytes of the Terminate that it is told: docs/iwarp.md. The
# receive has 16 bytes.
TRESPASSES = [
    ('a WRITE by no key', tagged(0, 0x1234, 0, bytes(8)), 0x1100),
    ('a WRITE that wraps', tagged(0, 0x1234, 2**64 - 4, bytes(8)), 0x1103),
    ('a READ by no key', untagged(1, 1, 1, 0, struct.pack('>IQIIQ', 1, 0, 64, 0x1234, 0)), 0x0100),
    ('an answer to no READ', tagged(2, 0x1234, 0, bytes(8)), 0x1100),
    ('a SEND out of turn', untagged(3, 0, 2, 0, bytes(16)), 0x1203),
    ('a SEND from its middle on', untagged(3, 0, 1, 4, bytes(12)), 0x1204),
    ('a SEND that is too long', untagged(3, 0, 1, 0, bytes(17)), 0x1205),
    (
        'a second SEND, not received',
        untagged(3, 0, 1, 0, bytes(16), control=0x01) + untagged(3, 0, 1, 16, bytes(4)),
        0x1205,
    ),
    ('an invalidate of no key', untagged(4, 0, 1, 0, bytes(16), stag=0x1234), 0x0109),
    ('no such queue', untagged(3, 9, 1, 0, bytes(16)), 0x1201),
    ('no such opcode', untagged(12, 0, 1, 0, bytes(16)), 0x0206),
    ('no such version, tagged', tagged(0, 1, 0, b'', control=0xC0), 0x1104),
    ('no such version', untagged(3, 0, 1, 0, bytes(16), control=0x40), 0x1206),
    ('an FPDU that is too short', struct.pack('>H', 2) + bytes(8), 0x2003),
]


def read_all(peer):
    got = b''
    while True:
        part = peer.recv(4096)
        if not part:
            return got
        got += part


def begin(peer):
    """The start of a connection, which the server accepts."""
    peer.sendall(b'MPA ID Req Frame' + struct.pack('>BBHHH', 0x10, 2, 4, 1, 1))
    reply = siw_peer.receive_all(peer, 24)
    if reply[:16] != b'MPA ID Rep Frame' or reply[16] & 0x20:
        raise Failure(f'no connection: {reply}')


def trespass(port, data, cause):
    """Starts a connection, does what may not be, and reads what comes until the
    other side closes."""
    with socket.create_connection(('127.0.0.1', port), pair.PATIENCE_S) as peer:
        begin(peer)
        peer.sendall(data)
        last = read_all(peer)
    if len(last) < 24 or last[3] & 0x0F != 7 or struct.unpack('>H', last[20:22])[0] != cause:
        raise Failure(f'not the Terminate 0x{cause:04x}: {last.hex()}')


def behave(port):
    """A message comes back."""
    message = b'one that is good'
    with socket.create_connection(('127.0.0.1', port), pair.PATIENCE_S) as peer:
        begin(peer)
        peer.sendall(untagged(3, 0, 1, 0, message))
        back = siw_peer.receive_all(peer, len(untagged(3, 0, 1, 0, message)))
    if back[20:36] != message:
        raise Failure(f'not the message: {back.hex()}')


def await_counter(tools, name, least):
    """Until all processes together have counted so much: one that gets no processor does not tell
    what it has."""
    limit = time.monotonic() + pair.PATIENCE_S
    while True:
        counted = subprocess.run(
            [tools.path('src/cli/sidewire'), 'devices', '--counters'],
            capture_output=True,
            text=True,
            timeout=pair.PATIENCE_S,
            env=dict(pair.environment(), SIDEWIRE_LINK='iwarp'),
        ).stdout
        found = re.search(rf'{name} +(\d+)', counted)
        if found and int(found[1]) >= least:
            return
        if time.monotonic() > limit:
            raise Failure(f'{name} is less than {least}\n{counted}')


def trespassers(tools):
    """Each ends its own connection, is told why and counted; the next client is
    served as before."""
    with cm_server.serving(tools, '127.0.0.1', link='iwarp') as (_, port):
        for name, data, cause in TRESPASSES:
            try:
                trespass(port, data, cause)
            except (Failure, OSError) as failure:
                raise Failure(f'{name}: {failure}') from failure
        behave(port)
        await_counter(tools, 'iwarp_terminates_sent', len(TRESPASSES))


def diagnosis(tools, pid, wrap):
    """What the doctor says of a process's connections."""
    done = subprocess.run(
        [*wrap, tools.path('src/cli/sidewire'), 'doctor', '--json'],
        capture_output=True,
        text=True,
        timeout=pair.PATIENCE_S,
        env=pair.environment(),
    )
    return [
        item
        for item in json.loads(done.stdout).get('connections', [])
        if f' {pid} ' in item['name']
    ]


def await_diagnosis(tools, pid, text, wrap=()):
    """Until the doctor says something of the process; what it says of that connection."""
    limit = time.monotonic() + pair.PATIENCE_S
    while True:
        found = diagnosis(tools, pid, wrap)
        for item in found:
            if re.search(text, item['detail']):
                return item
        if time.monotonic() > limit:
            raise Failure(f'the doctor does not say {text}: {found}')


def await_stranger(tools, pid, port):
    """Until the doctor tells of one who connects and does not ask. He has 5 s: on a machine where
    the doctor takes longer, another one comes."""
    limit = time.monotonic() + pair.PATIENCE_S
    while True:
        with socket.create_connection(('127.0.0.1', port), pair.PATIENCE_S) as stranger:
            own = f'127.0.0.1:{stranger.getsockname()[1]}'
            found = diagnosis(tools, pid, ())
            if any(
                f'{own}, the peer has connected and not asked' in item['detail'] for item in found
            ):
                return
        if time.monotonic() > limit:
            raise Failure(f'the doctor does not tell of {own}: {found}')


def doctor_tells(tools):
    """The doctor tells who is connected to whom and how; that a peer is stopped, or does not
    ask."""
    port = ports.claim()
    line = f'ib_write_bw -R -d iw_lo -F -p {port} -s 65536 -D 100'
    server = Process(tools.run(*shlex.split(line), link='iwarp', wrap=CRC))
    client = None
    try:
        limit = time.monotonic() + pair.PATIENCE_S
        while not cm.hears(port, server.child.pid) and time.monotonic() < limit:
            time.sleep(0.01)
        await_stranger(tools, server.child.pid, port)
        client = Process(tools.run(*shlex.split(f'{line} 127.0.0.1'), link='iwarp'))
        seen = await_diagnosis(
            tools,
            client.child.pid,
            rf'iWARP, 127.0.0.1:\d+ to 127.0.0.1:{port}, RTS, CRC on,.* [1-9]\d* requests wait',
        )
        if not seen['name'].startswith('ib_write_bw'):
            raise Failure(seen)
        server.child.send_signal(signal.SIGSTOP)
        seen = await_diagnosis(tools, client.child.pid, "waits for the peer's window")
        if seen['works'] is not False:
            raise Failure(seen)
        server.child.send_signal(signal.SIGCONT)
    finally:
        for end in filter(None, (client, server)):
            end.end()


def output_of(tools, *words, devices=None, link=None):
    env = dict(
        pair.environment(),
        **({'SIDEWIRE_DEVICES': devices} if devices else {}),
        **({'SIDEWIRE_LINK': link} if link else {}),
    )
    done = subprocess.run(
        tools.run(*words), capture_output=True, text=True, timeout=pair.PATIENCE_S, env=env
    )
    return done.stdout + done.stderr


def shows_devices(tools):
    """An RNIC beside the RoCE device, or instead of it; without P_Keys, its GID the hardware
    address."""
    listing = output_of(tools, 'ibv_devices', devices='lo,iw_lo')
    if 'sw_lo' not in listing or 'iw_lo' not in listing:
        raise Failure(listing)
    instead = output_of(tools, 'ibv_devinfo', '-v', '-d', 'iw_lo', link='iwarp')
    for text in (
        r'transport:\s+iWARP \(1\)',
        r'atomic_cap:\s+ATOMIC_NONE',
        r'max_sge_rd:\s+1\b',
        r'max_mcast_grp:\s+0',
        r'link_layer:\s+Ethernet',
    ):
        if not re.search(text, instead):
            raise Failure(f'no {text}\n{instead}')
    tree = '/sys/class/infiniband/iw_lo'
    for path, text in (('node_type', '4: RNIC'), ('ports/1/cap_mask', '0x00090000')):
        if text not in output_of(tools, 'cat', f'{tree}/{path}', link='iwarp'):
            raise Failure(path)
    for name, expected in (('', True), ('gids/0', True), ('gids/1', False), ('pkeys', False)):
        if (
            'No such' not in output_of(tools, 'ls', f'{tree}/ports/1/{name}', link='iwarp')
        ) != expected:
            raise Failure(f'{name} is there, or is not')
    own = subprocess.run(
        [tools.path('src/cli/sidewire'), 'devices'],
        capture_output=True,
        text=True,
        timeout=pair.PATIENCE_S,
        env=dict(pair.environment(), SIDEWIRE_LINK='iwarp'),
    ).stdout
    if not re.search(r'^iw_lo .*iWARP$', own, re.M) or 'sw_lo' in own:
        raise Failure(own)


def hears_on_both(port, pid):
    """On the iWARP device by TCP; on the RoCE device, which comes after it, by a name."""
    return cm.hears(port, pid) and cm.has_name('tcp', port, pid)


def beside_roce(tools):
    """With both devices of an interface, the one that is named first is found by its address, and a
    listener to any has both."""
    port = ports.claim()
    env = dict(pair.environment(), SIDEWIRE_DEVICES='lo,iw_lo')
    server = subprocess.Popen(
        tools.run(*shlex.split(f'rping -s -P -a 0.0.0.0 -p {port}')),
        env=env,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        limit = time.monotonic() + pair.PATIENCE_S
        while not hears_on_both(port, server.pid) and time.monotonic() < limit:
            time.sleep(0.01)
        for devices in ('lo', 'iw_lo'):
            client = subprocess.run(
                tools.run(*shlex.split(f'rping -c -a 127.0.0.1 -p {port} -C 3 -V')),
                capture_output=True,
                text=True,
                timeout=pair.PATIENCE_S,
                env=dict(pair.environment(), SIDEWIRE_DEVICES=devices),
            )
            if client.returncode:
                raise Failure(f'{devices}: {client.stdout}{client.stderr}')
    finally:
        server.kill()
        server.wait()


def refuses(tools):
    """What iWARP does not have: datagrams, and queue pairs of other types."""
    for line, text in (
        ('udaddy -b 127.0.0.1', 'Operation not supported'),
        ('ibv_uc_pingpong -d iw_lo', "Couldn't create QP"),
        ('ibv_ud_pingpong -d iw_lo', "Couldn't create QP"),
    ):
        done = subprocess.run(
            tools.run('timeout', '20', *shlex.split(line), link='iwarp'),
            capture_output=True,
            text=True,
            env=pair.environment(),
            timeout=pair.PATIENCE_S,
        )
        if done.returncode in (0, 124) or text not in done.stdout + done.stderr:
            raise Failure(f'{line}: {done.returncode}\n{done.stdout}{done.stderr}')


def needs(name, case):
    def run(tools):
        if not shutil.which(name):
            raise Skip(f'{name} is not installed')
        return case(tools)

    return run


def cases():
    found = [
        (
            words[0].format(host='HOST', port='PORT', device='DEVICE'),
            lambda tools, words=words: run_row(tools, words),
        )
        for words in ROWS + PERFTEST
    ]
    found += [
        (
            f'CRC: {words[0].format(host="HOST", port="PORT", device="DEVICE")}',
            lambda tools, words=words: run_row(tools, words, wraps=(CRC, CRC)),
        )
        for words in (ROWS[0], ROWS[3], PERFTEST[0], PERFTEST[5])
    ]
    found += [
        ('nobody listens', needs('ucmatose', nobody_listens)),
        ('a client is killed', needs('rping', killed_client)),
        ('strangers connect', needs('rping', strangers)),
        ('trespassers', trespassers),
        ('what is shown', needs('ibv_devinfo', shows_devices)),
        ('beside RoCE', needs('rping', beside_roce)),
        ('the doctor', needs('ib_write_bw', doctor_tells)),
        ('what is refused', needs('udaddy', refuses)),
    ]
    return found + [(f'as siw: {name}', needs('ucmatose', case)) for name, case in siw_peer.cases()]


def host_cases():
    rows = [ROWS[0], ROWS[2], ROWS[3], ROWS[7], PERFTEST[1], PERFTEST[3], PERFTEST[5]]
    found = [
        (
            f'IPv4, MTU {mtu}: {words[0].format(host="HOST", port="PORT", device="DEVICE")}',
            lambda tools, words=words, mtu=mtu: on_hosts(tools, words, mtu=mtu),
        )
        for mtu in (1500, 9000)
        for words in rows
    ]
    return found + [
        ('IPv6: rping', needs('rping', lambda tools: on_hosts(tools, ROWS[0], family=6)))
    ]
