# SPDX-License-Identifier: BSD-2-Clause
"""The programs that measure NVMe: our target and host, fio on the device itself, nbdkit beside
them.

Figures of all: `mean_s` of a request, `rate` in requests per second, `bandwidth` in bytes per
second.
"""

import contextlib
import json
import os
import tempfile
import time

import procs
from programs import CLIENT_CPU, SERVER_CPU, pin

NQN = 'nqn.2026-01.io.sidewire:default'
HERE = '127.0.0.1'
MIB = 1 << 20
RAMP_S = 0.2
PIECE = MIB
PROGRAM_S = 60  # at most, for one program


def host_program(build):
    """What `sidewire nvme` runs."""
    return os.path.join(build, 'movers/nvme/sidewire-nvme')


class Target:
    """Serves these namespaces while in a `with`. `words`: what is in front of its program."""

    def __init__(self, build, words, specs, address=HERE, options=()):
        self.build = build
        self.port = procs.free_port()
        self.address = address
        self.argv = [
            *words,
            host_program(build),
            'target',
            '--listen',
            f'{address}:{self.port}',
            *options,
        ]
        for spec in specs:
            self.argv += ['--namespace', spec]
        self.child = None

    def __enter__(self):
        self.child = procs.Child(self.argv)
        try:
            procs.await_text(self.child, '\nready')
        except procs.RunFailed:
            self.child.end()
            raise
        return self

    def __exit__(self, *_):
        self.child.end()

    def host_argv(self, words, command, *options):
        """A command of the host that connects here."""
        return [
            *words,
            host_program(self.build),
            command,
            '-a',
            self.address,
            '-s',
            str(self.port),
            '-n',
            NQN,
            *options,
        ]

    def measure(self, words, rw, sizes, depths, seconds, options=()):
        """{(size, depth): figures} of our host's loop."""
        text = procs.run(
            self.host_argv(
                words,
                'bench',
                '--rw',
                rw,
                '--destroy-data',
                '--bs',
                ','.join(map(str, sizes)),
                '--iodepth',
                ','.join(map(str, depths)),
                *f'--runtime {seconds} --ramp_time {RAMP_S} -o json'.split(),
                *options,
            ),
            PROGRAM_S,
        )
        return parse_rows(text, rw)

    def fill(self, words):
        """Writes each block: memory that was never written has no pages yet, and reading would make
        them."""
        procs.run(
            self.host_argv(
                words, *'bench --verify --destroy-data --loops 1 --bs 128k --iodepth 8'.split()
            ),
            PROGRAM_S,
        )

    def one(self, words, rw, size, depth, seconds, options=()):
        return self.measure(words, rw, [size], [depth], seconds, options)[size, depth]


def side_of(rw):
    return 'write' if rw.endswith('write') else 'read'


def parse_rows(text, rw):
    """What `sidewire nvme bench -o json` prints."""
    rows = {}
    try:
        for row in json.loads(text)['rows']:
            found = row[side_of(rw)]
            if row['errors']:
                raise ValueError
            if not found['requests']:
                raise procs.RunFailed(
                    f'NVMe: no request ended in {row["seconds"]:.1f} s: is this machine busy?'
                )
            rows[row['request_bytes'], row['iodepth']] = {
                'mean_s': found['mean_us'] * 1e-6,
                'rate': found['iops'],
                'bandwidth': found['iops'] * row['request_bytes'],
            }
    except (ValueError, KeyError, TypeError):
        rows = {}
    if not rows:
        raise procs.RunFailed(f'sidewire nvme bench printed no result:\n{text[-800:]}')
    return rows


def parse_fio(text, rw):
    """What fio prints as JSON, which notes may stand in front of."""
    try:
        job = json.loads(text[text.index('{') :])['jobs'][0]
        found = job[side_of(rw)]
        if job['error'] or not found['total_ios']:
            raise ValueError
        return {
            'mean_s': found['lat_ns']['mean'] * 1e-9,
            'rate': found['iops'],
            'bandwidth': float(found['bw_bytes']),
        }
    except (ValueError, KeyError, IndexError, TypeError):
        raise procs.RunFailed(f'fio printed no result:\n{text[-800:]}') from None


def fio(rw, size, depth, seconds, options):
    """One job of fio, on the core of the client."""
    return parse_fio(
        procs.run(
            [
                *pin(CLIENT_CPU),
                'fio',
                '--name=local',
                f'--rw={rw}',
                f'--bs={size}',
                f'--iodepth={depth}',
                f'--runtime={round(seconds * 1000)}ms',
                f'--ramp_time={round(RAMP_S * 1000)}ms',
                *'--time_based --norandommap --output-format=json'.split(),
                *options,
            ],
            PROGRAM_S,
        ),
        rw,
    )


class Disk:
    """A file on the local disk, all of it written, so that reads reach the disk."""

    def __init__(self, folder, size_bytes=256 * MIB):
        self.folder = folder
        self.size_bytes = size_bytes
        self.parent = self.path = None

    def __enter__(self):
        os.makedirs(self.folder, exist_ok=True)
        self.parent = tempfile.TemporaryDirectory(prefix='nvme-', dir=self.folder)
        self.path = os.path.join(self.parent.name, 'disk')
        try:
            self._fill()
            os.close(os.open(self.path, os.O_RDWR | os.O_DIRECT))
        except OSError as error:
            self.parent.cleanup()
            raise procs.Skipped(f'{self.folder}: no file for O_DIRECT there: {error}') from None
        return self

    def _fill(self):
        with open(self.path, 'wb') as file:
            for _ in range(self.size_bytes // PIECE):
                file.write(os.urandom(PIECE))
            file.flush()
            os.fsync(file.fileno())

    def __exit__(self, *_):
        self.parent.cleanup()

    def fio(self, rw, size, depth, seconds):
        """The device itself: what the target does for a request, without a network."""
        return fio(
            rw,
            size,
            depth,
            seconds,
            [
                '--ioengine=io_uring',
                '--direct=1',
                f'--filename={self.path}',
                f'--size={self.size_bytes}',
            ],
        )


@contextlib.contextmanager
def nbdkit(options, size_bytes):
    """nbdkit's memory plugin on a Unix socket; gives fio's options for it."""
    with tempfile.TemporaryDirectory(prefix='sidewire-nbd-') as folder:
        path, ready = os.path.join(folder, 'socket'), os.path.join(folder, 'pid')
        server = procs.Child(
            [
                *pin(SERVER_CPU),
                'nbdkit',
                '-f',
                '-U',
                path,
                '-P',
                ready,
                *options,
                'memory',
                str(size_bytes),
            ]
        )
        try:
            limit = time.monotonic() + 15
            while not os.path.exists(ready):  # it is written once the socket listens
                if not server.running() or time.monotonic() > limit:
                    raise procs.RunFailed(server.report('did not begin to serve'))
                time.sleep(0.01)
            yield ['--ioengine=nbd', f'--uri=nbd+unix:///?socket={path}', f'--size={size_bytes}']
        finally:
            server.end()


def use_of_memory(pid):
    """Bytes of its own: pages that several processes have are divided among them (Pss); and all
    that it maps (Rss)."""
    found = {}
    with open(f'/proc/{pid}/smaps_rollup', encoding='ascii') as lines:
        for line in lines:
            name, _, value = line.partition(':')
            if name in ('Pss', 'Rss'):
                found[name.lower()] = int(value.split()[0]) * 1024
    return found


def threads_of(pid):
    return len(os.listdir(f'/proc/{pid}/task'))
