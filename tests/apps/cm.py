# SPDX-License-Identifier: BSD-2-Clause
"""Programs that connect by librdmacm, in pairs under `sidewire run`:
docs/programs.md lists them."""
import hashlib
import os
import re
import shlex
import shutil
import tempfile
import time

import hosts
import pair
import ports
from pair import Failure, Process, Skip

SPACES = {'tcp': 0x106, 'udp': 0x111, 'ib': 0x13F}
SETTLE_S = 0.3  # by then what must not happen would have
GROUP, GROUP_IN_IGMP = '00000000000000000000ffffef010203', '030201EF'  # 239.1.2.3
TRIES = 8  # the servers of qperf and perftest tell a port before they listen there
# A refused connection, also by TCP; refused datagrams
NOBODY_YET = re.compile(r'RDMA_CM_EVENT_(REJECTED; error: (8|-111)|UNREACHABLE; error: 1)\b')
UDADDY_PORT = 7174  # mckey's, too; neither can be told another
UDADDY = (
    'udaddy -b {host} -c 2 -C 20',
    'udaddy -s {host} -c 2 -C 20',
    'udp',
    r'return status 0',
    r'return status 0',
)

UDPONG = (
    'udpong -b {host} -p {port} -S 1024 -C 500 -T e',
    'udpong -s {host} -p {port} -S 1024 -C 500 -T e',
    'datagram',
    None,
    r'1k',
)

PING = (
    'rping -s -a {host} -p {port} -C 20 -V -v',
    'rping -c -a {host} -p {port} -C 20 -V -v',
    'tcp',
    r'server ping data: rdma-ping-19',
    r'^ping data: rdma-ping-19',
)
MATOSE = (
    'ucmatose -b {host} -p {port} -c {n} -C 20 -S {size}',
    'ucmatose -s {host} -p {port} -c {n} -C 20 -S {size}',
    'tcp',
    r'return status 0',
    r'return status 0',
)
# fmt: off
RDMA_SERVER = ('rdma_server -p {port}', 'rdma_client -s {host} -p {port}', 'tcp', r'end 0',
               r'end 0')
RDMA_XSERVER = ('rdma_xserver -p {port}', 'rdma_xclient -s {host} -p {port}', 'tcp', r'end 0',
                r'end 0')
RSTREAM = ('rstream -b {host} -p {port} -S 4096 -C 200 -I 5 -T v',
           'rstream -s {host} -p {port} -S 4096 -C 200 -I 5 -T v', 'tcp', r'4k', r'4k')
RSTREAM_LONG = ('rstream -b {host} -p {port} -S 65536 -C 50 -I 2 -T b',
                'rstream -s {host} -p {port} -S 65536 -C 50 -I 2 -T b', 'tcp', r'64k', r'64k')
RIOSTREAM = ('riostream -b {host} -p {port} -S 65536 -C 100 -I 1 -T v',
             'riostream -s {host} -p {port} -S 65536 -C 100 -I 1 -T v', 'tcp', r'64k', r'64k')
CMTIME = ('cmtime -b {host} -p {port} -c 50', 'cmtime -s {host} -p {port} -c 50', 'tcp', None,
          r'connect +: +\d')
# Server, client, port space, what either must say. A server of which nothing is asked may run on,
# and is ended.
PAIRS = [
    PING,
    ('rping -s -a {host} -p {port} -C 5 -S 4096 -V -q',
     'rping -c -a {host} -p {port} -C 5 -S 4096 -V -q', 'tcp', '', ''),
    MATOSE,
    ('ucmatose -p {port} -c 5 -C 10 -m', 'ucmatose -s {host} -p {port} -c 5 -C 10 -m -t 8 -a 14',
     'tcp', r'return status 0', r'return status 0'),
    ('ucmatose -p {port} -P ib', 'ucmatose -s {host} -p {port} -P ib', 'ib', r'return status 0',
     r'return status 0'),
    RDMA_SERVER,
    RDMA_XSERVER,
    ('rdma_xserver -p {port} -c x', 'rdma_xclient -s {host} -p {port} -c x', 'ib', r'end 0',
     r'end 0'),
    RSTREAM,
    RSTREAM_LONG,
    RIOSTREAM,
    CMTIME,
    ('ib_write_bw -R -d sw_lo -F -p {port} -n 500',
     'ib_write_bw -R -d sw_lo -F -p {port} -n 500 {host}', 'tcp', r'65536 +500', r'65536 +500'),
    ('ib_read_lat -R -d sw_lo -F -p {port} -n 500',
     'ib_read_lat -R -d sw_lo -F -p {port} -n 500 {host}', 'tcp', r'', r'\b2 +500'),
    ('ib_send_bw -R -d sw_lo -F -p {port} -n 500 -q 4',
     'ib_send_bw -R -d sw_lo -F -p {port} -n 500 -q 4 {host}', 'tcp', r'65536 +2000',
     r'65536 +2000'),
    ('ib_send_lat -R -c UD -d sw_lo -F -p {port} -n 200',
     'ib_send_lat -R -c UD -d sw_lo -F -p {port} -n 200 {host}', 'tcp', r'\b2 +200', r'\b2 +200'),
]
# fmt: on
# Those with a port of their own, one at a time.
ALONE = [
    (
        'mckey -m 239.1.2.3 -b 127.0.0.1 -C 20',
        'mckey -m 239.1.2.3 -b 127.0.0.1 -C 20 -s',
        'group',
        r'return status 0',
        r'return status 0',
    ),
    UDADDY,
]


def hears(port, pid):
    """Whether a TCP socket of that network listens to the port."""
    listens = re.compile(rf'^ *\d+: [0-9A-F]+:{port:04X} [0-9A-F]+:0000 0A ', re.M)
    texts = []
    for name in ('tcp', 'tcp6'):
        with open(f'/proc/{pid}/net/{name}', encoding='ascii') as lines:
            texts.append(lines.read())
    return any(listens.search(text) for text in texts)


def has_text(pid, name, pattern):
    """Whether that file on the network of that process has such a line."""
    with open(f'/proc/{pid}/net/{name}', encoding='ascii', errors='replace') as lines:
        return re.search(pattern, lines.read(), re.M) is not None


def has_name(space, port, pid):
    """Whether a process of that network listens on a RoCE device."""
    return has_text(pid, 'unix', rf'@sidewire\.cm\.s{SPACES[space] << 16 | port:x}\.')


def is_ready(space, port, pid):
    """Whether a process of that network listens to the port, or is in the group, also for other
    hosts."""
    if space == 'socket':
        return hears(port, pid)
    if space == 'datagram':
        return has_text(pid, 'udp', rf'^ *\d+: [0-9A-F]+:{port:04X} ')
    if space == 'multicast':
        return has_text(pid, 'igmp', GROUP_IN_IGMP)
    if space == 'tcp' and hears(port, pid):
        return True  # on an iWARP device
    return has_text(pid, 'unix', GROUP) if space == 'group' else has_name(space, port, pid)


def group_members(pid):
    """How many processes are in the group; in the network of that one."""
    with open(f'/proc/{pid}/net/unix', encoding='ascii', errors='replace') as lines:
        return sum(GROUP in line for line in lines)


def run_pair(tools, server_line, client_line, *rest, **options):
    for tries_left in reversed(range(TRIES)):
        try:
            return run_once(tools, server_line, client_line, *rest, **options)
        except Failure as failure:
            if (
                not tries_left
                or not server_line.startswith('ib_')
                or not NOBODY_YET.search(str(failure))
            ):
                raise


def run_alone(tools, *row, **options):
    """In this network, where other tests may run a program of that port, or be in that group."""
    with ports.Only(UDADDY_PORT):
        run_pair(tools, *row, port=UDADDY_PORT, **options)


def run_once(
    tools,
    server_line,
    client_line,
    space,
    server_says,
    client_says,
    port=None,
    host='127.0.0.1',
    wraps=((), ()),
    own=None,
    **options,
):
    """Starts both; returns what they said. A server that ends by itself must end well. `own`: the
    client's address."""
    port = port or ports.claim()
    words = [
        shlex.split(line.format(host=host, port=port, own=own or host))
        for line in (server_line, client_line)
    ]
    if not all(shutil.which(one[0]) for one in words):
        raise Skip(f'{words[0][0]} is not installed')
    sides = [Process(tools.run(*words[0], wrap=wraps[0], **options))]
    limit = time.monotonic() + pair.PATIENCE_S
    try:
        while sides[0].child.poll() is None and not is_ready(space, port, sides[0].child.pid):
            if time.monotonic() > limit:
                raise Failure(f'{words[0]} does not listen\n{sides[0].text()}')
            time.sleep(0.01)
        sides.append(Process(tools.run(*words[1], wrap=wraps[1], **options)))
        hung = not sides[1].wait(limit)
        hung = hung or (
            server_says is not None and sides[1].child.returncode == 0 and not sides[0].wait(limit)
        )
    finally:
        runs_on = sides[0].child.poll() is None
        for side in sides:
            side.end()
    texts = [side.text() for side in sides]
    ends = [
        0 if runs_on and server_says is None else sides[0].child.returncode,
        sides[1].child.returncode,
    ]
    said = [
        re.search(says or '', text, re.M) for says, text in zip((server_says, client_says), texts)
    ]
    if hung or any(ends) or not all(said):
        raise Failure(
            f'hung: {hung}, statuses {ends}, said {[bool(one) for one in said]}\n--- server: '
            f'{words[0]}\n{texts[0]}'
            f'--- client: {words[1]}\n{texts[1]}'
        )
    return texts


def persistent(tools):
    """One server, several clients after another."""
    port = ports.claim()
    server = Process(tools.run(*shlex.split(f'rping -s -P -a 127.0.0.1 -p {port}')))
    try:
        while not is_ready('tcp', port, server.child.pid):
            time.sleep(0.01)
        for _ in range(3):
            tools.output(*shlex.split(f'rping -c -a 127.0.0.1 -p {port} -C 5 -V'))
        if server.child.poll() is not None:
            raise Failure(f'the server has ended\n{server.text()}')
    finally:
        server.end()


def copy(tools, **options):
    """rcopy of a file, whose digest is compared."""
    folder = tempfile.mkdtemp(prefix='sidewire-cm-')
    try:
        source, target = os.path.join(folder, 'source'), os.path.join(folder, 'target')
        with open(source, 'wb') as out:
            out.write(os.urandom(5000003))
        run_pair(
            tools,
            'rcopy -p {port}',
            f'rcopy {source} {{host}}:{target} -p {{port}}',
            'tcp',
            None,
            r'5000003 bytes',
            **options,
        )
        digests = []
        for path in (source, target):
            with open(path, 'rb') as data:
                digests.append(hashlib.sha256(data.read()).digest())
        if digests[0] != digests[1]:
            raise Failure('the copy differs')
    finally:
        shutil.rmtree(folder)


def pong(tools):
    run_pair(
        tools,
        'udpong -b {host} -p {port} -S 1024 -C 500 -T e',
        'udpong -s {host} -p {port} -S 1024 -C 500 -T e',
        'datagram',
        None,
        r'1k',
    )


def fio(tools, verb, depth):
    """fio's engine. A SEND without a receive fails (its server allows no retries), so there is one
    for each message."""
    size = '--bs=64k --size=1m'
    text = run_pair(
        tools,
        f'fio --name=s --ioengine=rdma --port={{port}} --rw=read --iodepth=32 {size}',
        (
            f'fio --name=c --ioengine=rdma --hostname={{host}} --port={{port}} --verb={verb} '
            f'--rw=write --iodepth={depth} {size}'
        ),
        'tcp',
        '',
        r'io=1024KiB',
    )[1]
    if re.search(r'err= *[1-9]', text):
        raise Failure(text)


def fio_run(tools, verify):
    """Messages that the server checks as fio checks what it reads; returns what the server said."""
    size = '--bs=64k --size=1m'
    return run_pair(
        tools,
        (
            f'fio --name=s --ioengine=rdma --port={{port}} --rw=read --iodepth=32 --verify=crc32c '
            f'{size}'
        ),
        (
            f'fio --name=c --ioengine=rdma --hostname={{host}} --port={{port}} --verb=send '
            '--rw=write '
            f'--iodepth=4 {verify} {size}'
        ),
        'tcp',
        '',
        r'io=1024KiB',
    )[0]


def fio_verified(tools):
    fio_run(tools, '--verify=crc32c --do_verify=0')
    try:
        fio_run(tools, '')  # blocks that bear no header
    except Failure as failure:
        if 'verify: bad magic header' not in str(failure):
            raise
    else:
        raise Failure('fio did not see that blocks are wrong')


def fio_random(tools):
    """The engine itself refuses it."""
    for how in ('--rw=randread --verb=read', '--rw=randwrite --verb=write'):
        words = shlex.split(
            f'fio --name=c --ioengine=rdma --hostname=127.0.0.1 --port=1 --bs=4k --size=1m {how}'
        )
        client = Process(tools.run(*words))
        ended = client.wait(time.monotonic() + pair.PATIENCE_S)
        client.end()
        if not ended or "fio: RDMA network IO can't be random" not in client.text():
            raise Failure(client.text())


def qperf(tools):
    port = ports.claim()
    server = Process(tools.run('qperf', '-lp', str(port)))
    try:
        while not pair.is_listening(port, server.child.pid):
            time.sleep(0.01)
        for test, figure in (
            ('rc_lat', 'latency'),
            ('rc_bw', 'bw'),
            ('rc_rdma_read_lat', 'latency'),
            ('rc_rdma_write_bw', 'bw'),
            ('rc_fetch_add_mr', 'msg_rate'),
        ):
            qperf_one(tools, port, test, figure)
    finally:
        server.end()


def qperf_one(tools, port, test, figure):
    for tries_left in reversed(range(TRIES)):
        client = Process(tools.run(*shlex.split(f'qperf 127.0.0.1 -lp {port} -cm 1 -t 1 {test}')))
        ended = client.wait(time.monotonic() + pair.PATIENCE_S)
        client.end()
        text = client.text()
        if ended and re.search(rf'{figure} += +\d', text):
            return
        if not tries_left or 'Event rejected' not in text:
            raise Failure(f'{test}: {text}')


def needs(program, case):
    def run(tools, *arguments):
        if not shutil.which(program):
            raise Skip(f'{program} is not installed')
        case(tools, *arguments)

    return run


def cases():
    found = [
        (
            server.format(host='HOST', port='PORT', n=3, size=1000),
            lambda tools, row=(
                server.replace('{n}', '3').replace('{size}', '1000'),
                client.replace('{n}', '3').replace('{size}', '1000'),
                *rest,
            ): run_pair(tools, *row),
        )
        for server, client, *rest in PAIRS
    ]
    found += [
        (f'IPv6: {row[0].split()[0]}', lambda tools, row=row: run_pair(tools, *row, host='::1'))
        for row in (PING,)
    ]
    found += [
        ('rping -s -P', needs('rping', persistent)),
        ('rcopy', needs('rcopy', copy)),
        ('udpong', needs('udpong', pong)),
        ('qperf -cm 1', needs('qperf', qperf)),
    ]
    found += [
        (
            f'fio --verb={verb}',
            lambda tools, verb=verb, depth=depth: needs('fio', lambda t: fio(t, verb, depth))(
                tools
            ),
        )
        for verb, depth in (('write', 4), ('read', 4), ('send', 1))
    ]
    found += [
        ('fio --verb=send --verify=crc32c', needs('fio', fio_verified)),
        ('fio --rw=randread is refused by fio', needs('fio', fio_random)),
    ]
    found += [
        (row[0].format(host='HOST'), lambda tools, row=row: run_alone(tools, *row)) for row in ALONE
    ]
    return found


MATOSE_SMALL = (
    'ucmatose -p {port} -c 3 -C 20 -S 1000',
    'ucmatose -s {host} -p {port} -c 3 -C 20 -S 1000',
    *MATOSE[2:],
)


def packet_cases():
    """The same with every message a packet."""
    rows = [PING, MATOSE_SMALL, RSTREAM, ALONE[0]]
    return [
        (
            row[0].format(host='HOST', port='PORT'),
            lambda tools, row=row: (run_alone if row in ALONE else run_pair)(
                tools, *row, link='roce'
            ),
        )
        for row in rows
    ]


HOST_ROWS = [
    PING,
    ('ucmatose -p {port} -c 10 -C 20', 'ucmatose -s {host} -p {port} -c 10 -C 20', *MATOSE[2:]),
    RDMA_SERVER,
    RSTREAM,
    RIOSTREAM,
]
# libfabric's own: all sizes to 1 MiB, with every byte looked at; they meet over TCP first.
FABRIC = (
    'fi_pingpong -p verbs -e msg -I 20 -c -B {port}',
    'fi_pingpong -p verbs -e msg -I 20 -c -P {port} {host}',
    'socket',
    r'1m +20',
    r'1m +20',
)
# Datagrams by GID 0, libfabric's own choice: RoCE v1, whose packets are v2 all the same.
FABRIC_DGRAM = (
    'fi_pingpong -p verbs -e dgram -I 20 -c -B {port}',
    'fi_pingpong -p verbs -e dgram -I 20 -c -P {port} {host}',
    'socket',
    r'1k +20',
    r'1k +20',
)
UD_V1 = (
    'ibv_ud_pingpong -g 0 -n 100 -p {port}',
    'ibv_ud_pingpong -g 0 -n 100 -p {port} {host}',
    'socket',
    r'100 iters',
    r'100 iters',
)
MCKEY = (
    'mckey -m 239.1.2.3 -b {host} -C 20',
    'mckey -m 239.1.2.3 -b {own} -C 20 -s',
    'multicast',
    r'return status 0',
    r'return status 0',
)
FAULTS = 'loss=3%,reorder=5%:1ms,dup=3%,seed=5'


def on_hosts(tools, row, family=4, **options):
    """The server on one of two hosts, the client on the other."""
    two = hosts.Hosts()
    own, host = hosts.ADDRESSES if family == 4 else ('fd99::1', 'fd99::2')
    try:
        run_pair(tools, *row, host=host, own=own, wraps=(two.wrap[1], two.wrap[0]), **options)
    finally:
        two.close()


def fabric_on_one_host(tools):
    """fi_info lists connected endpoints on the device, but none on the loopback's, as with a
    kernel's devices; and they work."""
    two = hosts.Hosts()
    try:
        listing = Process(tools.run('fi_info', '-p', 'verbs', '-t', 'FI_EP_MSG', wrap=two.wrap[0]))
        listing.wait(time.monotonic() + pair.PATIENCE_S)
        listing.end()
        domains = set(re.findall(r'domain: (\S+)', listing.text()))
        if domains != {two.device[0]}:
            raise Failure(f'connected endpoints of {domains or "no device"}\n{listing.text()}')
        run_pair(tools, *FABRIC, host=hosts.ADDRESSES[0], wraps=(two.wrap[0], two.wrap[0]))
    finally:
        two.close()


def host_cases():
    found = [
        (
            f'IPv4: {row[0].format(host="HOST", port="PORT")}',
            lambda tools, row=row: on_hosts(tools, row),
        )
        for row in HOST_ROWS
    ]
    found += [
        ('IPv6: rping', lambda tools: on_hosts(tools, PING, 6)),
        ('IPv4: udaddy', lambda tools: on_hosts(tools, UDADDY, port=UDADDY_PORT)),
        (
            'IPv6: udaddy',
            lambda tools: on_hosts(
                tools,
                tuple(part and part.replace('udaddy', 'udaddy -f ip6') for part in UDADDY),
                6,
                port=UDADDY_PORT,
            ),
        ),
        ('IPv4: mckey', lambda tools: on_hosts(tools, MCKEY)),
    ]
    found += [
        ('fi_info, fi_pingpong on one host', needs('fi_pingpong', fabric_on_one_host)),
        ('IPv4: fi_pingpong', needs('fi_pingpong', lambda tools: on_hosts(tools, FABRIC))),
        (
            'IPv4: fi_pingpong -e dgram',
            needs('fi_pingpong', lambda tools: on_hosts(tools, FABRIC_DGRAM)),
        ),
        ('IPv4: ibv_ud_pingpong -g 0', lambda tools: on_hosts(tools, UD_V1)),
    ]
    found += [
        (
            f'IPv4, with {FAULTS}: {row[0].split()[0]}',
            lambda tools, row=row: on_hosts(tools, row, faults=FAULTS),
        )
        for row in HOST_ROWS[:2]
    ]
    return found
