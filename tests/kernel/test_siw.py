#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""Unmodified programs of librdmacm between our iWARP device and a stock kernel's siw, both ways, with and without CRCs.
usage: test_siw.py SIDEWIRE"""
import os
import re
import subprocess
import sys

sys.dont_write_bytecode = True

import kernel_guest as guest  # noqa: E402

SECONDS = 60
TRIES = 5
REFUSED = re.compile(r'RDMA_CM_EVENT_REJECTED; error: -111|Connection refused')
CLOSED = 'Failed to close connection between server and client'
SIW = ('rdma link del rxe0; modprobe siw && rdma link add siw0 type siw netdev eth0 && mdev -s && rdma link show siw0/1')
DEVICES = {guest.OWN: 'iw_br0', guest.GUEST: 'siw0'}

# Server, client, what the client must say. perftest's clients fail by their status.
PROGRAMS = [
    ('rping -s -a {server} -p {port} -C 10 -V -v', 'rping -c -a {server} -p {port} -C 10 -V -v', r'^ping data: rdma-ping-9'),
    ('ucmatose -b {server} -p {port} -c 4 -C 10 -S 3000', 'ucmatose -s {server} -p {port} -c 4 -C 10 -S 3000', r'return status 0'),
    ('rstream -b {server} -p {port} -S 4096 -C 50 -I 2 -T v', 'rstream -s {server} -p {port} -S 4096 -C 50 -I 2 -T v', r'4k +50'),
    ('rdma_server -p {port}', 'rdma_client -s {server} -p {port}', r'end 0'),
    *[(f'{name} -R -d {{server_device}} -F -p {{port}} {options}', f'{name} -R -d {{client_device}} -F -p {{port}} {options} {{server}}',
       rf'^ *{size} +{count}\b') for name, options, size, count in (
           ('ib_send_bw', '-n 100 -s 65536', 65536, 100), ('ib_write_bw', '-n 100 -s 65536', 65536, 100),
           ('ib_read_bw', '-n 100 -s 65536 -o 16', 65536, 100), ('ib_send_lat', '-n 100 -s 64', 64, 100),
           ('ib_write_lat', '-n 100 -s 64', 64, 100), ('ib_read_lat', '-n 50 -s 64', 64, 50))],
]


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
    as soon as it has it, which the last word of perftest is: then all was moved. Both start again, at another port."""
    for attempt in range(TRIES):
        said, status = way(own, server, client, port + 100 * attempt)
        if status == 0 or not (REFUSED.search(said) or CLOSED in said):
            break
        print(f'     again: {client}', flush=True)
    return said, status


def run(sidewire):
    text, status = guest.inside(SIW)
    if status:
        print(f'no siw in the guest\n{text}')
        return False
    bad, port = 0, 7500
    for crc in (False, True):
        own = Own(sidewire, crc)
        for way in (from_us, from_siw):
            for server, client, says in PROGRAMS:
                if way is from_us and '_lat ' in server:
                    continue  # the emulated server measures its clock for seconds before it listens again
                port += 1
                said, status = with_patience(way, own, server, client, port)
                good = status == 0 and re.search(says, said, re.M)
                print(f'{"ok  " if good else "FAIL"} {way.__name__}{", CRC" if crc else ""}: {client}', flush=True)
                if not good:
                    bad += 1
                    print('    ' + '\n    '.join(said.strip().splitlines()[-40:]), flush=True)
    return not bad


if __name__ == '__main__':
    os.environ.update(KP_IMAGE='siw', KP_SMP='1')  # with two CPUs siw stalls now and then after the first SEND
    sys.exit(guest.with_guest(run, os.path.abspath(sys.argv[1])))
