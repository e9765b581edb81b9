# SPDX-License-Identifier: BSD-2-Clause
"""Datagrams of RoCE's devices over TCP, and what begins with them: between hosts where nothing
passes to UDP port 4791."""
import re
import signal
import struct
import time

import cm
import hosts
import pair
import ports
import tcp
from pair import Failure, Process

# As the rows of cm.py: server, client, port space, what either must say.
# fmt: off
CM_ROWS = [
    cm.PING,
    cm.MATOSE_SMALL,
    cm.RSTREAM_LONG,
    cm.CMTIME,
    ('ib_send_bw -R -d {device} -F -p {port} -n 500',
     'ib_send_bw -R -d {device} -F -p {port} -n 500 {host}', 'tcp', r'65536 +500', r'65536 +500'),
    ('ib_send_lat -R -c UD -d {device} -F -p {port} -n 200',
     'ib_send_lat -R -c UD -d {device} -F -p {port} -n 200 {host}', 'tcp', r'\b2 +200',
     r'\b2 +200'),
]
# fmt: on
UD_ROWS = [
    tcp.perftest('ib_send_lat -c UD -n 100 -s 8', r'8 +100'),
    tcp.perftest('ib_send_bw -c UD -n 500 -r 512 -s 1024', r'1024 +500'),
    tcp.perftest('ib_send_bw -c UD -n 500 -r 512 -s 64 -b', r'64 +500'),
]
# More of docs/programs.md, in a group of their own.
PROGRAMS = [
    cm.RDMA_SERVER,
    cm.RIOSTREAM,
    cm.RDMA_XSERVER,
    # With its header a message of 1024 bytes is longer than what MTU 1500 has room for, by packets
    # as well.
    tuple(part and part.replace('1024', '512').replace('1k', '512') for part in cm.UDPONG),
    cm.FABRIC,
    cm.FABRIC_DGRAM,
    (
        'qperf -lp {port}',
        'qperf {host} -lp {port} -cm 1 -t 1 rc_lat rc_bw rc_rdma_write_bw rc_fetch_add_mr',
        'socket',
        None,
        r'msg_rate += +\d',
    ),
    (
        'fio --name=s --ioengine=rdma --port={port} --rw=read --iodepth=32 --bs=64k --size=1m',
        'fio --name=c --ioengine=rdma --hostname={host} --port={port} --verb=write --rw=write '
        '--iodepth=4 --bs=64k --size=1m',
        'tcp',
        '',
        r'io=1024KiB',
    ),
]
# Without an address its server listens at those of IPv4.
MATOSE_AT = (cm.MATOSE_SMALL[0].replace('ucmatose', 'ucmatose -b {host}'), *cm.MATOSE_SMALL[1:])
UCX = [
    ('rc_verbs,ud_verbs', 'tag_lat'),
    ('rc_verbs,ud_verbs', 'tag_bw'),
    ('ud_verbs', 'tag_lat'),
    ('ud_verbs', 'tag_bw'),
]
SETTINGS = {'CRC': ('env', 'SIDEWIRE_IWARP_CRC=on'), 'port 4000': ('env', 'SIDEWIRE_TCP_PORT=4000')}
PING_FOR_LONG = 'ibv_ud_pingpong -d {{device}} -g {gid} -n 10000000 -p {port}'


def ucx(tools, two, transports, operation):
    words = f'ucx_perftest -n 500 -w 10 -t {operation} -s 8 -p {{port}}'
    around = [
        (
            'env',
            'UCX_WARN_UNUSED_ENV_VARS=n',
            f'UCX_TLS={transports}',
            f'UCX_NET_DEVICES={two.device[side]}:1',
        )
        for side in (1, 0)
    ]
    texts = cm.run_pair(
        tools,
        words,
        f'{words} {{host}}',
        'socket',
        '',
        r'Final: +500 ',
        host=hosts.ADDRESSES[1],
        wraps=((*two.wrap[1], *around[0]), (*two.wrap[0], *around[1])),
        link='tcp',
    )
    if any(' ERROR ' in text or ' WARN ' in text or 'sidewire[' in text for text in texts):
        raise Failure('\n'.join(texts))


def by_cm(tools, two, words, family, **options):
    own, host = hosts.ADDRESSES if family == 4 else ('fd99::1', 'fd99::2')
    cm.run_pair(
        tools, *words, host=host, own=own, wraps=(two.wrap[1], two.wrap[0]), link='tcp', **options
    )


def copy(tools, two):
    cm.copy(tools, host=hosts.ADDRESSES[1], wraps=(two.wrap[1], two.wrap[0]), link='tcp')


def udaddy(tools, two, family):
    words = (
        cm.UDADDY
        if family == 4
        else tuple(part.replace('udaddy', 'udaddy -f ip6') for part in cm.UDADDY)
    )
    by_cm(tools, two, words, family, port=cm.UDADDY_PORT)


def counters(tools, two, side, name):
    done = Process([*two.wrap[side], tools.path('src/cli/sidewire'), 'devices', '--counters'])
    done.wait(time.monotonic() + pair.PATIENCE_S)
    done.end()
    return sum(int(value) for value in re.findall(rf'{name}\s+(\d+)', done.text()))


def await_counter(tools, two, side, name):
    limit = time.monotonic() + pair.PATIENCE_S
    while not counters(tools, two, side, name):
        if time.monotonic() > limit:
            raise Failure(f'{name} does not count')
        time.sleep(0.1)


def start_ping(tools, two):
    """Datagrams to and fro without an end; server and client."""
    port = ports.claim()
    lines = [
        PING_FOR_LONG.format(gid=hosts.gid_index(tools, two, side, 4), port=port) for side in (0, 1)
    ]
    server = tcp.start(tools, two, 1, lines[1], log='info')
    tcp.wait_until_it_listens(server, port)
    client = tcp.start(tools, two, 0, lines[0] + ' {host}', log='info')
    for end in (server, client):
        tcp.wait_for(end, 'datagrams to 10.99.0.. go over TCP')
    return server, client


def killed_and_back(tools, two):
    """A sender to a process that was killed goes on, and a new one at that address is found."""
    server, client = start_ping(tools, two)
    try:
        server.child.send_signal(signal.SIGKILL)
        server.wait(time.monotonic() + pair.PATIENCE_S)
        time.sleep(0.3)
        if client.child.poll() is not None:
            raise Failure(client.text())
        tcp.run_row(tools, two, UD_ROWS[0])
    finally:
        for end in (client, server):
            end.end()


def stopped(tools, two):
    """A process that is stopped holds up nobody: others of its host are reached, and asked for
    connections."""
    server, client = start_ping(tools, two)
    try:
        server.child.send_signal(signal.SIGSTOP)
        for row in (UD_ROWS[0], cm.PING, cm.MATOSE_SMALL):
            tcp.run_row(tools, two, row)
        server.child.send_signal(signal.SIGCONT)
    finally:
        for end in (client, server):
            end.end()


STRANGER = '''
import socket, sys
for words in sys.argv[2:]:
    s = socket.create_connection((sys.argv[1], 4791), 5)
    s.settimeout(5)
    request, behind = (bytes.fromhex(part) for part in words.split(":"))
    s.sendall(request)
    answer = s.recv(600)
    if not answer.startswith(b"MPA ID Rep Frame"):
        print("refused")
        continue
    s.sendall(behind)
    s.settimeout(10)
    s.shutdown(socket.SHUT_WR)
    try:
        end = s.recv(1)
    except ConnectionResetError:
        end = b""
    print("ended", len(end))
'''


def fpdu(ulpdu, length=None):
    body = struct.pack('>H', length or len(ulpdu)) + ulpdu
    return body + bytes(-len(body) % 4 + 4)


def segment(packet, msn=1, opcode=0x43, queue=0, offset=0, control=0x41):
    return (
        struct.pack('>BBIIII', control, opcode, 0, queue, msn, offset)
        + b'\x00\x40\xc0\x00'
        + packet
    )


def datagram(qpn, opcode=0x64, icrc=b'\xde\xad\xbe\xef'):
    """One whose ICRC is wrong, as all are that were made for other addresses."""
    return (
        struct.pack('>BBHII', opcode, 0x40, 0xFFFF, qpn, 1)
        + struct.pack('>II', 0x11111111, 5)
        + bytes(64)
        + icrc
    )


def strangers(tools, two):
    """Wrong frames end their connection, damaged packets are counted; nothing of it reaches a
    program, which goes on."""
    server, client = start_ping(tools, two)
    request = tcp.frame(tcp.pairing(0, 0, kind=5)).hex()
    wrong = [
        b'GET / HTTP/1.0\r\n\r\n' * 4,
        fpdu(segment(datagram(1)), 0xFFFF),
        fpdu(segment(datagram(1), msn=2)),
        fpdu(segment(datagram(1), opcode=0x40)),
        fpdu(segment(datagram(1), queue=1)),
        fpdu(segment(datagram(1), offset=4)),
        fpdu(segment(datagram(1), control=0x01)),
        fpdu(segment(datagram(2, opcode=0x04))),
        fpdu(segment(b'short')),
        fpdu(segment(datagram(1) + bytes(5000))),
        b'\xff',
        b'',
    ]
    try:
        words = [f'{request}:{behind.hex()}' for behind in wrong] + [
            f'{request}:{fpdu(segment(datagram(1))).hex()}'
        ]
        intruder = Process(
            [*two.wrap[0], 'python3', '-u', '-c', STRANGER, hosts.ADDRESSES[1], *words]
        )
        intruder.wait(time.monotonic() + pair.PATIENCE_S)
        intruder.end()
        if intruder.child.returncode or intruder.text().split('\n') != ['ended 0'] * len(words) + [
            ''
        ]:
            raise Failure(intruder.text())
        await_counter(tools, two, 1, 'rx_drop_malformed')
        await_counter(tools, two, 1, 'rx_icrc_encapsulated')
        if server.child.poll() is not None or client.child.poll() is not None:
            raise Failure(server.text() + client.text())
    finally:
        for end in (client, server):
            end.end()


def cases():
    def row(words, around=()):
        return tcp.with_hosts(tcp.run_row, words, around)

    found = [
        (words[0].format(host='HOST', port='PORT', device='DEVICE'), row(words))
        for words in (*CM_ROWS, *UD_ROWS)
    ]
    found += [
        (
            f'ucx_perftest {transports} {operation}',
            cm.needs('ucx_perftest', tcp.with_hosts(ucx, transports, operation)),
        )
        for transports, operation in UCX
    ]
    found += [
        (f'{name}: {words[0].split()[0]}', row(words, around))
        for name, around in SETTINGS.items()
        for words in (UD_ROWS[0], CM_ROWS[0])
    ]
    return found + [
        ('a process is killed', tcp.with_hosts(killed_and_back)),
        ('a process is stopped', tcp.with_hosts(stopped)),
        ('strangers', tcp.with_hosts(strangers)),
    ]


def program_cases():
    found = [
        (words[0].format(host='HOST', port='PORT'), tcp.with_hosts(tcp.run_row, words))
        for words in PROGRAMS
    ]
    found += [(f'IPv{family}: udaddy', tcp.with_hosts(udaddy, family)) for family in (4, 6)]
    found += [
        ('IPv6: rping', tcp.with_hosts(by_cm, cm.PING, 6)),
        ('IPv6: ucmatose', tcp.with_hosts(by_cm, MATOSE_AT, 6)),
    ]
    return found + [('rcopy', cm.needs('rcopy', tcp.with_hosts(copy)))]
