# SPDX-License-Identifier: BSD-2-Clause
"""Two hosts on this machine, and the programs that measure between them: the RoCEv2 link beside
TCP."""

import json
import os
import re
import sys

import procs
from programs import CLIENT_CPU, SERVER_CPU, Sidewire, connect_rate_words, parse_ucx, pin

# The tests of unmodified programs make their two hosts in the same way.
sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), '../../tests/apps'))
import hosts  # noqa: E402
from pair import Skip  # noqa: E402

CLIENT, SERVER = 0, 1
BTH_AND_ICRC = 16
PACKET_OVERHEAD = 88  # of the largest headers
CPUS = (CLIENT_CPU, SERVER_CPU)


class Between(Sidewire):
    """Client and server on a host each, joined by a link of this MTU while in a `with`."""

    addresses = hosts.ADDRESSES

    def __init__(self, sidewire, mtu):
        self.sidewire = sidewire
        self.command = None
        self.mtu = mtu
        self.hosts = None
        self.gids = []

    def __enter__(self):
        self.command = self.sidewire.command
        try:
            self.hosts = hosts.Hosts(self.mtu)
        except Skip as reason:
            raise procs.Skipped(str(reason)) from None
        try:
            self.gids = [self.gid_index(side) for side in (CLIENT, SERVER)]
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        self.hosts.close()

    def gid_index(self, side):
        """The index of a host's IPv4 address."""
        text = procs.run(
            [
                *self.hosts.wrap[side],
                *self.command,
                'ibv_devinfo',
                '-v',
                '-d',
                self.hosts.device[side],
            ],
            20,
        )
        found = re.search(r'GID\[\s*(\d+)\]:\s*::ffff:10\.\S*, RoCE v2', text)
        if not found:
            raise procs.RunFailed(f'{self.hosts.device[side]} has no IPv4 GID:\n{text[-800:]}')
        return found[1]

    def on(self, side, words):
        return [*self.hosts.wrap[side], *pin(CPUS[side]), *words]

    def both(self, words_of, port, timeout_s, env=None, by_line=False):
        """Runs the words of each side; the client's end with the server's address. What the client
        printed."""
        return procs.run_pair(
            self.on(SERVER, words_of(SERVER)),
            self.on(CLIENT, words_of(CLIENT) + [self.addresses[SERVER]]),
            port,
            timeout_s,
            env,
            by_line,
        )

    def pair(self, program, options, timeout_s, gid_option=(), by_line=True):
        port = procs.free_port()
        return self.both(
            lambda side: self.command
            + [
                program,
                '-d',
                self.hosts.device[side],
                '-x',
                self.gids[side],
                '-p',
                str(port),
                *options,
            ],
            port,
            timeout_s,
            by_line=by_line,
        )

    def with_faults(self, spec):
        """The same hosts for programs under these faults, on both sides."""
        other = Between(self.sidewire, self.mtu)
        other.hosts, other.gids = self.hosts, self.gids
        other.command = [*self.command[:-1], '--faults', spec, '--']
        return other

    def qp_rate(self, source, qps, ops):
        """Short WRITEs per second over that many connections."""
        port = procs.free_port()
        text = self.both(
            lambda side: self.command
            + [
                os.path.join(source, 'qp_rate'),
                '-d',
                self.hosts.device[side],
                *f'-p {port} --qps {qps} --ops {ops}'.split(),
            ],
            port,
            40,
        )
        return {'rate': json.loads(text)['mops_per_s'] * 1e6}

    def connect_rate(self, source, kind, count, in_flight):
        """Connections per second; `kind` as bench/src/connect_rate has it."""
        port = procs.free_port()
        words = connect_rate_words(self.command, source, kind, port, count, in_flight)
        return {'rate': json.loads(self.both(lambda side: words, port, 60))['connections_per_s']}

    def tcp(self, seconds=1):
        """One stream of iperf3."""
        port = procs.free_port()
        server = ['iperf3', '-s', '-1', '-p', str(port)]
        client = ['iperf3', '-p', str(port), '-t', str(seconds), '-J', '-c']
        text = self.both(lambda side: client if side == CLIENT else server, port, seconds + 20)
        return {'bandwidth': parse_iperf3(text)}

    def udp(self, source, seconds=1):
        """What UDP moves, with a CRC for each packet of the size that RoCEv2 has at this MTU, and
        nothing above it."""
        port = procs.free_port()
        packet = 4096 if self.mtu > 4096 + PACKET_OVERHEAD else 1024
        words = [
            os.path.join(source, 'udp_stream'),
            str(port),
            str(packet + BTH_AND_ICRC),
            str(seconds),
        ]
        text = self.both(lambda side: words, port, seconds + 20)
        return {'bandwidth': json.loads(text)['bytes_per_s']}

    def ucx_tcp(self, test, size, iterations):
        """ucx_perftest over its transport for TCP, which is the only one between two hosts."""
        port = procs.free_port()
        server = ['ucx_perftest', '-p', str(port)]
        client = server + ['-t', test, '-s', str(size), '-n', str(iterations), '-f']
        text = self.both(
            lambda side: client if side == CLIENT else server, port, 40, {'UCX_TLS': 'tcp,self'}
        )
        return parse_ucx(text, client)


def parse_iperf3(text):
    """Bytes per second that the receiver got."""
    try:
        return json.loads(text)['end']['sum_received']['bits_per_second'] / 8
    except (ValueError, KeyError, TypeError):
        raise procs.RunFailed(f'iperf3 printed no result:\n{text[-800:]}') from None


class Local:
    """Two processes of one host, as far as qp_rate() goes: the direct link."""

    def __init__(self, sidewire):
        self.sidewire = sidewire

    def qp_rate(self, source, qps, ops):
        port = procs.free_port()
        words = [
            os.path.join(source, 'qp_rate'),
            '-d',
            self.sidewire.device,
            *f'-p {port} --qps {qps} --ops {ops}'.split(),
        ]
        text = procs.run_pair(
            self.sidewire.wrap(SERVER_CPU, words),
            self.sidewire.wrap(CLIENT_CPU, words + ['127.0.0.1']),
            port,
            40,
        )
        return {'rate': json.loads(text)['mops_per_s'] * 1e6}
