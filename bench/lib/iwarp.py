# SPDX-License-Identifier: BSD-2-Clause
"""Where the iWARP rows are measured: two processes of this host, two hosts, a link that loses
segments, two guests."""

import json
import os
import subprocess

import between
import guests
import procs
from between import CLIENT, SERVER, Skip
from connections import Here
from programs import CLIENT_CPU, SERVER_CPU, Sidewire, parse_perftest, pin

LossyLink = between.hosts.LossyLink
kernel_guest = guests.kernel_guest
SIW = (
    'rdma link del rxe0; modprobe siw && rdma link add siw0 type siw netdev eth0 && '
    'mdev -s && rdma link show siw0/1'
)


def command_of(sidewire):
    return [*sidewire.command[:2], '--link', 'iwarp', *sidewire.command[2:]]


def words_of(program, device, port, options):
    """perftest by librdmacm, which is all that iWARP has."""
    return [program, '-R', '-d', device, '-p', str(port), *options]


class Local(Here):
    """Two processes of this host, by TCP over its loopback."""

    latency_samples, perftest, _retried = (
        Sidewire.latency_samples,
        Sidewire.perftest,
        Sidewire._retried,
    )

    def __init__(self, sidewire, crc=False):
        super().__init__(sidewire)
        self.env = {'SIDEWIRE_IWARP_CRC': 'on'} if crc else None

    def pair(self, program, options, timeout_s, by_line=True):
        port = procs.free_port()
        words = command_of(self.sidewire) + words_of(program, 'iw_lo', port, options)
        return procs.run_pair(
            pin(SERVER_CPU) + words,
            pin(CLIENT_CPU) + words + ['127.0.0.1'],
            port,
            timeout_s,
            self.env,
            by_line,
        )

    def ours(self, source, name, *options):
        """A program of bench/src, which prints JSON."""
        port = procs.free_port()
        words = [
            *command_of(self.sidewire),
            os.path.join(source, name),
            *(word.format(port=port) for word in options),
        ]
        return json.loads(self.both(words, words + ['127.0.0.1'], port, 60))

    def tcp(self, seconds=1):
        port = procs.free_port()
        text = self.both(
            ['iperf3', '-s', '-1', '-p', str(port)],
            ['iperf3', '-p', str(port), '-t', str(seconds), '-J', '-c', '127.0.0.1'],
            port,
            seconds + 20,
        )
        return {'bandwidth': between.parse_iperf3(text)}


class Apart(between.Between):
    """A host for each side."""

    env = None

    def __enter__(self):
        super().__enter__()
        self.command = command_of(self.sidewire)
        return self

    def gid_index(self, side):
        return ''  # librdmacm finds it

    def device(self, side):
        return self.hosts.device[side].replace('sw_', 'iw_')

    def pair(self, program, options, timeout_s, by_line=True):
        port = procs.free_port()
        return self.both(
            lambda side: self.command + words_of(program, self.device(side), port, options),
            port,
            timeout_s,
            self.env,
            by_line,
        )

    def with_crc(self):
        """The same hosts for programs with CRCs, while this one is entered."""
        return WithCrc(self)

    def tcp_pingpong(self, source, size, iterations):
        port = procs.free_port()
        words = [os.path.join(source, 'tcp_pingpong'), str(port), str(size), str(iterations)]
        found = json.loads(self.both(lambda side: words, port, 60))
        return {'median_s': found['median_ns'] * 1e-9, 'mean_s': found['one_way_ns'] * 1e-9}


class WithCrc(Apart):
    env = {'SIDEWIRE_IWARP_CRC': 'on'}

    def __init__(self, plain):
        super().__init__(plain.sidewire, plain.mtu)
        self.plain = plain

    def pair(self, *args, **options):
        self.hosts, self.command = self.plain.hosts, self.plain.command
        return super().pair(*args, **options)


class Lossy(Apart):
    """Joined by a link that loses one frame in a hundred, each time others."""

    addresses = LossyLink.addresses

    def __init__(self, sidewire, mtu, source, per_mille=10):
        super().__init__(sidewire, mtu)
        self.program = os.path.join(source, 'lossy_link')
        self.per_mille = per_mille
        self.link = None

    def __enter__(self):
        super().__enter__()
        link = LossyLink(self.hosts, self.program, self.mtu, self.per_mille, os.getpid())
        try:
            self.link = link.__enter__()
        except BaseException as failure:
            super().__exit__()
            if isinstance(failure, Skip):
                raise procs.Skipped(str(failure)) from None
            raise
        return self

    def __exit__(self, *_):
        self.link.__exit__()
        super().__exit__()

    def device(self, side):
        return f'iw_{LossyLink.device}'


class Emulated(guests.Guests):
    """Two guests whose kernel has siw; it and our device are there at the same time."""

    def __init__(self, sidewire):
        super().__init__(sidewire)
        self.port = 7600
        self.image = None

    def __enter__(self):
        self.image = os.environ.get('KP_IMAGE')
        os.environ['KP_IMAGE'] = 'siw'
        super().__enter__()
        try:
            for name, _ in (guests.CLIENT, guests.SERVER):
                text, status = kernel_guest.inside(SIW, name)
                if status:
                    raise procs.Skipped(f'no siw in the guest: {text.strip()[-200:]}')
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        super().__exit__()
        os.environ.pop('KP_IMAGE')
        if self.image is not None:
            os.environ['KP_IMAGE'] = self.image

    def bandwidth(self, size, iterations, siw):
        """ib_write_bw -R by one of the two. A client that comes between two listens of the server
        is refused: it begins again."""
        for _ in range(3):
            text = self.attempt(size, iterations, siw)
            rows = parse_perftest(text, 'ib_write_bw')
            if rows:
                return rows[size]
        raise procs.RunFailed(f'ib_write_bw printed no result:\n{text[-800:]}')

    def attempt(self, size, iterations, siw):
        self.port += 1
        env = (
            ''
            if siw
            else 'env LD_LIBRARY_PATH=/bin LD_PRELOAD=/bin/libsidewire.so SIDEWIRE_LINK=iwarp '
        )
        line = env + ' '.join(
            words_of(
                'ib_write_bw',
                'siw0' if siw else 'iw_eth0',
                self.port,
                ('-F', '-N', '-s', str(size), '-n', str(iterations)),
            )
        )
        if not kernel_guest.spawn(
            'bw', line, f'netstat -ltn | grep -q :{self.port}', guests.SECONDS, guests.SERVER[0]
        ):
            raise procs.RunFailed('the server does not listen')
        try:
            return kernel_guest.inside(
                f'timeout {guests.SECONDS} {line} {guests.ADDRESS}', guests.CLIENT[0]
            )[0]
        except subprocess.TimeoutExpired:
            return 'no end'
