#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""Programs of librdmacm between this host, over packets, and a stock kernel's rdma_cm on rdma_rxe,
both ways.
usage: test_cm.py SIDEWIRE BOUND SIDEWIRE-COLL COLL-BITS [CPP-SERVER CPP-CLIENT [SIDEWIRE-TRANSFER
       MODULE]]

The output of programs that check their data decides (rping -V, rstream -T v), and both sides'
statuses.
"""
import hashlib
import os
import shutil
import sys
import tempfile
import time

sys.dont_write_bytecode = True

import collectives  # noqa: E402
import kernel_guest as guest  # noqa: E402
import own_programs as own  # noqa: E402
from test_programs import Host, say  # noqa: E402

NOT_IN_IMAGE = ['rstream', 'rcopy']
SECONDS = 40
SILENT, SILENT_MAC = '10.77.0.99', '02:77:00:00:00:63'  # packets to it are lost
SILENCE_SECONDS = 170  # 16 requests, 4.3 s each
GROUP, GROUP_IN_IGMP, GROUP_OF_RXE = '239.7.7.7', '070707EF', '3333ef070707'
UDADDY_PORT = 7174
FAULTS = 'loss=3%,dup=3%,reorder=5%:2ms,seed=7'
# Server and client; {to}: the server's address, {own}: that of the side it runs on. What both must
# print.
# fmt: off
CASES = [
    ('rping -s -a {to} -p {port} -C 10 -V', 'rping -c -a {to} -p {port} -C 10 -V -v', 4, '',
     'rdma-ping-9'),
    ('rping -s -a {to} -p {port} -C 10 -V', 'rping -c -a {to} -p {port} -C 10 -V -v', 6, '',
     'rdma-ping-9'),
    ('ucmatose -p {port} -c 10', 'ucmatose -s {to} -p {port} -c 10', 4, 'return status 0',
     'return status 0'),
    ('udaddy -c 3', 'udaddy -s {to} -c 3', 4, 'return status 0', 'return status 0'),
    ('udaddy -b {to} -f ip6', 'udaddy -s {to} -f ip6', 6, 'return status 0', 'return status 0'),
    ('rstream -b {to} -p {port} -S 4096 -C 100 -T v',
     'rstream -s {to} -p {port} -S 4096 -C 100 -T v', 4, '4k', '4k'),
    (f'mckey -m {GROUP} -b {{own}}', f'mckey -m {GROUP} -b {{own}} -s', 4, 'return status 0',
     'return status 0'),
]
# fmt: on


def addresses(family):
    return (guest.OWN, guest.GUEST) if family == 4 else (guest.OWN6, guest.GUEST6)


def port_of(line, port):
    return UDADDY_PORT if line.startswith('udaddy') else port


def serve(line, port):
    """A server in the guest, once it can be asked, or its queue pair is in the group."""
    return guest.spawn(
        'server',
        line,
        f'grep -q {GROUP_OF_RXE} /proc/net/dev_mcast'
        if GROUP in line
        else f'rdma res show cm_id | grep LISTEN | grep -q ":{port_of(line, port)} "',
        SECONDS,
    )


def await_server(process, line, port):
    """The same of ours: what is sent to the group before is lost."""
    if GROUP in line:
        return guest.await_sign(process, lambda: GROUP_IN_IGMP in guest.table(process, 'igmp'))
    return guest.await_service(process, port_of(line, port))


def to_kernel(host, case, port):
    """Our client, the kernel's server."""
    server, client, family, server_says, client_says = case
    own, other = addresses(family)
    serve(server.format(to=other, own=other, port=port), port)
    text, status = host.finish(host.start(client.format(to=other, own=own, port=port)), SECONDS)
    theirs = guest.ended('server')
    return say(
        status == 0 and client_says in text and server_says in theirs,
        f'to the kernel: {client.split()[0]} (IPv{family})',
        text,
        theirs,
    )


def from_kernel(host, case, port):
    """The kernel's client, our server."""
    server, client, family, server_says, client_says = case
    own, other = addresses(family)
    process = host.start(server.format(to=own, own=own, port=port))
    await_server(process, server, port)
    theirs, status = guest.inside(
        f'timeout {SECONDS} {client.format(to=own, own=other, port=port)}'
    )
    text, own_status = host.finish(process, SECONDS)
    return say(
        (status == 0 or guest.is_end_of_rping(theirs))
        and own_status == 0
        and server_says in text
        and client_says in theirs,
        f'from the kernel: {client.split()[0]} (IPv{family})',
        text,
        theirs,
    )


def nobody_listens(host, port):
    """Refused by either side, with the reason."""
    text, status = host.finish(host.start(f'rping -c -a {guest.GUEST} -p {port} -C 1'), SECONDS)
    good = say(status != 0 and 'REJECTED, error 8' in text, 'the kernel refuses', text)
    server = host.start(f'rping -s -P -a {guest.OWN} -p {port + 1}')
    guest.await_service(server, port + 1)
    theirs, status = guest.inside(f'timeout {SECONDS} rping -c -a {guest.OWN} -p {port} -C 1')
    server.kill()
    text = host.finish(server)[0]
    return good & say(
        status != 0 and 'REJECTED, error 8' in theirs, 'we refuse the kernel', text, theirs
    )


def messages_lost(sidewire, port):
    """Connections come to be and end all the same; of the rules, those of our side count."""
    host = Host(sidewire)
    host.command[-1:] = ['--faults', FAULTS, '--']
    good = True
    for case in (CASES[0], CASES[2]):
        good &= to_kernel(host, case, port) & from_kernel(host, case, port + 1)
        port += 2
    return say(good, f'with {FAULTS}')


def killed_while_connected(host, port):
    """Our server sees the end of the kernel's client, which says DREQ for a process that was
    killed."""
    server = host.start(f'rping -s -a {guest.OWN} -p {port}')
    guest.await_service(server, port)
    guest.inside(
        f'spawn client {SECONDS} rping -c -a {guest.OWN} -p {port} -d; '
        f'while kill -0 $(cat /tmp/client.pid); do rdma res show cm_id | grep CONNECT | '
        f'grep -q {guest.OWN}:{port} && break; sleep 0.1; done; sleep 1; '
        f'for p in $(pidof rping); do grep -q {SILENT} /proc/$p/cmdline || kill -9 $p; done'
    )
    text, _ = host.finish(server, SECONDS)
    return say(
        'DISCONNECT EVENT' in text, 'the kernel\'s client is killed: our server sees its end', text
    )


class Silence:
    """Both sides ask a host that never answers; it takes more than a minute, so it goes on beside
    the other cases."""

    def __init__(self, host, port):
        rule = f'ip neigh replace {SILENT} lladdr {SILENT_MAC} nud permanent dev'
        guest.peer('host', *f'{rule} br0'.split())
        line = f'rping -c -a {SILENT} -p {port} -C 1'
        guest.inside(f'{rule} eth0; spawn silence {SILENCE_SECONDS} {line}')
        self.host, self.start = host, time.monotonic()
        self.process = host.start(line)

    def judge(self):
        """Gives up with the same event and status, after as long as the kernel."""
        text, status = self.host.finish(
            self.process, SILENCE_SECONDS - (time.monotonic() - self.start)
        )
        seconds = time.monotonic() - self.start
        theirs = guest.ended('silence')
        event = 'RDMA_CM_EVENT_UNREACHABLE, error -110'
        return say(
            status != 0 and event in text and event in theirs and seconds > 60,
            'nobody answers: UNREACHABLE, ETIMEDOUT on both sides',
            text,
            theirs,
        )


def copied(host, port):
    """rcopy of a file each way; the digests are compared."""
    folder = tempfile.mkdtemp(prefix='sidewire-kernel-')
    try:
        source, target = os.path.join(folder, 'source'), os.path.join(folder, 'target')
        with open(source, 'wb') as out:
            out.write(os.urandom(1000003))
        with open(source, 'rb') as data:
            digest = hashlib.sha256(data.read()).hexdigest()
        serve(f'rcopy -p {port}', port)
        text, status = host.finish(
            host.start(f'rcopy {source} {guest.GUEST}:/tmp/copy -p {port}'), SECONDS
        )
        theirs = guest.inside('sha256sum /tmp/copy')[0]
        good = say(status == 0 and digest in theirs, 'to the kernel: rcopy', text, theirs)
        guest.inside('kill $(cat /tmp/server.pid)')
        server = host.start(f'rcopy -p {port + 1}')
        guest.await_service(server, port + 1)
        theirs, status = guest.inside(
            f'timeout {SECONDS} rcopy /tmp/copy {guest.OWN}:{target} -p {port + 1}'
        )
        server.terminate()
        text = host.finish(server)[0]
        back = ''
        if os.path.exists(target):
            with open(target, 'rb') as data:
                back = hashlib.sha256(data.read()).hexdigest()
        return good & say(status == 0 and back == digest, 'from the kernel: rcopy', text, theirs)
    finally:
        shutil.rmtree(folder)


def devices_of_ids(host, bound):
    """When an ID has a device, by the address it is bound to: as the kernel says."""
    if not guest.push(bound, 'bound'):
        return say(False, 'bound cannot be copied into the guest')
    line = '127.0.0.1 ::1 127.0.0.5 0.0.0.0 ::'
    text, status = host.finish(host.start(f'{bound} {line} {guest.OWN} {guest.OWN6}'), SECONDS)
    theirs, their_status = guest.inside(
        f'timeout {SECONDS} bound {line} {guest.GUEST} {guest.GUEST6}'
    )
    same = text.replace(guest.OWN6, 'IPv6').replace(guest.OWN, 'IPv4') == theirs.replace(
        guest.GUEST6, 'IPv6'
    ).replace(guest.GUEST, 'IPv4')
    told = theirs.count('a device') > 8 and theirs.count('no device') > 8
    return say(
        status == their_status == 0 and same and told,
        'IDs bound to an address have a device where they have one with the kernel',
        text,
        theirs,
    )


def own_programs(host, port, server='', client='', command='', module=''):
    """Runs the programs that were built."""
    good = not server or own.cpp_examples(host, say, server, client, port)
    return good & (not command or own.transfers(host, say, command, module))


def run(sidewire, bound, coll, bits, *built):
    host, port, good = Host(sidewire), 17100, True
    for name in NOT_IN_IMAGE:
        path = shutil.which(name)
        if not path or not guest.push(path, name):
            print(f'FAIL {name}: not there (package rdmacm-utils)')
            return False
    good &= devices_of_ids(host, bound)
    silence = Silence(host, port)
    for case in CASES:
        good &= to_kernel(host, case, port) & from_kernel(host, case, port + 1)
        port += 2
    for _ in range(2):  # each from another source port, and beside a process that has not joined
        good &= from_kernel(host, CASES[-1], port)
        port += 1
    for check in (copied, nobody_listens, killed_while_connected):
        good &= check(host, port)
        port += 2
    good &= own_programs(host, port, *built)
    good &= collectives.run(host, say, coll, bits, port + 2)
    return good & messages_lost(sidewire, port + 10) & silence.judge()


if __name__ == '__main__':
    sys.exit(guest.with_guest(run, *sys.argv[1:]))
