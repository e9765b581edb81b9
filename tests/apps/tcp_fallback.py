# SPDX-License-Identifier: BSD-2-Clause
"""RoCE's devices without options, where nothing passes to UDP port 4791: connections go over TCP by
themselves, and only then."""
import os
import re
import signal
import subprocess
import time

import cm
import hosts
import iwarp
import pair
import ports
import tcp
from pair import Failure, Process, Skip

SAID = 'queue pairs to it go over TCP'
ROWS = [
    tcp.perftest('ib_write_bw -n 500', r'65536 +500'),
    tcp.perftest('ib_write_bw -n 500 -b -q 2', r'65536 +1000'),
    tcp.perftest('ib_send_lat -n 100 -s 8', r'8 +100'),
    tcp.perftest('ib_read_bw -n 300', r'65536 +300'),
    tcp.perftest('ib_send_bw -n 300 -e -q 4', r'65536 +1200'),
    tcp.perftest('ib_atomic_lat -n 100', r'8 +100'),
]
# By rdma_cm, whose messages are said again and find TCP so.
CM_ROWS = [
    cm.PING,
    cm.MATOSE_SMALL,
    (
        'ib_send_bw -R -d {device} -F -p {port} -n 500',
        'ib_send_bw -R -d {device} -F -p {port} -n 500 {host}',
        'tcp',
        r'65536 +500',
        r'65536 +500',
    ),
]
NEVER = ('env', 'SIDEWIRE_TCP_FALLBACK=never')


class Auto:
    """Runs commands without --link, whatever was asked for."""

    def __init__(self, tools):
        self.tools = tools

    def __getattr__(self, name):
        return getattr(self.tools, name)

    def run(self, *words, link=None, **options):
        del link
        return self.tools.run(*words, **options)


def block(two, side, protocol):
    """Packets that a host sends to port 4791 by that protocol go nowhere."""
    for family in ('-4', '-6'):
        rule = f'rule add ipproto {protocol} dport {tcp.UDP_PORT} pref 1 blackhole'
        two.ip('-n', two.names[side], family, *rule.split())


def with_hosts(case, *more, blocked=((0, 'udp'), (1, 'udp'))):
    def run(tools):
        two = hosts.Hosts(1500)
        try:
            for side, protocol in blocked:
                block(two, side, protocol)
            case(Auto(tools), two, *more)
        finally:
            two.close()

    return run


def run_row(tools, two, words, moves=True, around=((), ())):
    """`moves`: it is said that it goes over TCP, by either side. `around`: the server's words and
    the client's."""
    parts = [words[side].replace('{device}', two.device[1 - side]) for side in (0, 1)]
    texts = cm.run_pair(
        tools,
        *parts,
        *words[2:],
        host=hosts.ADDRESSES[1],
        wraps=((*two.wrap[1], *around[0]), (*two.wrap[0], *around[1])),
    )
    if (SAID in texts[0] + texts[1]) != moves:
        raise Failure('\n'.join(texts))


def run_cm(tools, two, words, **options):
    parts = [words[side].replace('{device}', two.device[1 - side]) for side in (0, 1)]
    cm.run_pair(
        tools,
        *parts,
        *words[2:],
        host=hosts.ADDRESSES[1],
        wraps=(two.wrap[1], two.wrap[0]),
        **options,
    )


def udaddy(tools, two):
    """Datagrams that nothing came before but the message that asks where they are to go."""
    run_cm(tools, two, cm.UDADDY, port=cm.UDADDY_PORT)


def give_up(tools, two, around=((), ())):
    """As without TCP: the client's request ends for want of an answer."""
    port = ports.claim()
    line = f'ib_write_bw -n 500 -d {{device}} -F -p {port}'
    sides = []
    try:
        for side in (1, 0):
            words = (
                (line + ' {host}' * (side == 0))
                .format(device=two.device[side], host=hosts.ADDRESSES[1])
                .split()
            )
            sides.append(
                Process(tools.run(*words, log='info', wrap=(*two.wrap[side], *around[1 - side])))
            )
            if side:
                tcp.wait_until_it_listens(sides[0], port)
        sides[1].wait(time.monotonic() + pair.PATIENCE_S)
        text = sides[1].text()
        if (
            not sides[1].child.poll()
            or not re.search(r'failed \(status 12\)', text)
            or SAID in text
        ):
            raise Failure(f'status {sides[1].child.poll()}\n{text}')
    finally:
        for one in sides:
            one.end()


def killed(tools, two, side):
    """The side that is left has been told what carries the connection, and that it has ended; so is
    the doctor."""
    port = ports.claim()
    line = f'ib_send_bw -D 60 -d {{device}} -F -p {port}'
    ends = [None, tcp.start(tools, two, 1, line, log='info')]
    try:
        tcp.wait_until_it_listens(ends[1], port)
        ends[0] = tcp.start(tools, two, 0, line + ' {host}', log='info')
        for one in ends:
            tcp.wait_for(one, 'over TCP to QP')
        iwarp.await_diagnosis(
            tools,
            ends[0].child.pid,
            'RoCE over TCP, to queue pair 0x.*nothing had come by UDP',
            two.wrap[0],
        )
        time.sleep(0.3)
        ends[side].child.send_signal(signal.SIGKILL)
        ends[1 - side].wait(time.monotonic() + tcp.TOLD_S)
        if ends[1 - side].child.poll() is None or not re.search(
            'connection to the peer has ended', ends[1 - side].text()
        ):
            raise Failure(f'the other side is not told\n{ends[1 - side].text()}')
    finally:
        for one in filter(None, ends):
            one.end()


def port_in_use(tools, two):
    """A program that has the TCP port is left alone, and nothing is said: its host
    can still call."""
    holder = Process(
        [
            *two.wrap[0],
            'python3',
            '-u',
            '-c',
            (
                'import socket, time\ns = socket.create_server(("", 4791))\nprint("holds")\n'
                'time.sleep(100)'
            ),
        ]
    )
    try:
        tcp.wait_for(holder, 'holds')
        run_row(tools, two, ROWS[0])
    finally:
        holder.end()


def program(tools, two, how):
    path = os.path.join(pair.BUILD, 'tests/stress/fallback')
    if not os.path.exists(path):
        raise Skip('tests/stress/fallback is not built')
    env = {
        **pair.environment(),
        'VU_HOSTS': ','.join(two.names),
        'LD_PRELOAD': tools.path('src/preload/libsidewire.so'),
    }
    done = subprocess.run(
        [path, how], env=env, capture_output=True, text=True, timeout=pair.PATIENCE_S
    )
    if done.returncode or (SAID in done.stderr) != (how in ('moves', 'crossed')):
        raise Failure(f'status {done.returncode}\n{done.stdout}{done.stderr}')


def cases():
    lossy = ('env', 'SIDEWIRE_FAULTS=loss=20%,seed=3')
    found = [
        (words[0].format(port='PORT', device='DEVICE'), with_hosts(run_row, words))
        for words in ROWS
    ]
    found += [(words[0].split()[0] + ' by rdma_cm', with_hosts(run_cm, words)) for words in CM_ROWS]
    return found + [
        ('udaddy', with_hosts(udaddy)),
        ('udaddy, where UDP passes', with_hosts(udaddy, blocked=())),
        ('the server says never', with_hosts(give_up, (NEVER, ()))),
        ('the client says never', with_hosts(give_up, ((), NEVER))),
        (
            'nothing answers by TCP',
            with_hosts(give_up, blocked=[(side, way) for side in (0, 1) for way in ('udp', 'tcp')]),
        ),
        ('what the server sends is lost', with_hosts(give_up, blocked=[(1, 'udp')])),
        (
            'what the client sends is lost',
            with_hosts(lambda *given: run_row(*given, ROWS[0]), blocked=[(0, 'udp')]),
        ),
        (
            'the server can be called alone',
            with_hosts(
                lambda *given: run_row(*given, ROWS[1]),
                blocked=[(0, 'udp'), (1, 'udp'), (1, 'tcp')],
            ),
        ),
        (
            'the client can be called alone',
            with_hosts(
                lambda *given: run_row(*given, ROWS[1]),
                blocked=[(0, 'udp'), (1, 'udp'), (0, 'tcp')],
            ),
        ),
        (
            'a fifth of the packets is lost',
            with_hosts(
                lambda *given: run_row(*given, ROWS[2], False, around=(lossy, lossy)), blocked=()
            ),
        ),
        (
            'one side has --link tcp',
            with_hosts(
                lambda *given: run_row(
                    *given, ROWS[0], True, around=(('env', 'SIDEWIRE_LINK=tcp'), ())
                )
            ),
        ),
        ('the port is in use', with_hosts(port_in_use)),
        ('the client is killed', with_hosts(killed, 0)),
        ('the server is killed', with_hosts(killed, 1)),
        ('strangers', with_hosts(tcp.strangers)),
        ('requests that wait', with_hosts(program, 'moves')),
        ('answers that are lost', with_hosts(program, 'answers', blocked=[(1, 'udp')])),
        ('a peer that is stopped', with_hosts(program, 'stopped', blocked=())),
        ('calls that cross', with_hosts(program, 'crossed')),
    ]
