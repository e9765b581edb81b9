# SPDX-License-Identifier: BSD-2-Clause
"""What is measured of a tier: a log in memory (a tmpfs, so flushes are visible ones) before a file
on the disk, beside what such a write is made of, and the file itself."""

import contextlib
import json
import os
import signal
import tempfile
import time

import between
import nvme
import nvme_rows
import pmem_rows
import procs
from experiment import Experiment, Row
from programs import CLIENT_CPU, pin

MIB = 1 << 20
SHORT, DEEP = 4096, 32
RECORD = 64 + SHORT
FILE_BYTES = 256 * MIB
LOG_BYTES = 1 << 30  # room for all that is written at depth 1
SMALL_LOG_BYTES = 64 * MIB  # full before the measurement begins
LARGE_LOG_BYTES, FILL_S = 5 << 30, 4  # a block waits for five seconds
DIRTY_BYTES = 1 << 30  # at least, or the row says nothing
SECONDS, FULL_S, TAIL_S = 0.5, 4, 6
RAMP_S = 2
MTU = 9000
JOB = ('randwrite', SHORT, 1, SECONDS)


class Place:
    """A file on the disk of the build directory, and a folder in memory for logs."""

    def __init__(self, folder):
        self.disk = nvme.Disk(folder, FILE_BYTES)
        self.stack = self.logs = None

    @property
    def path(self):
        return self.disk.path

    def __enter__(self):
        with contextlib.ExitStack() as stack:
            stack.enter_context(self.disk)
            self.logs = stack.enter_context(
                tempfile.TemporaryDirectory(prefix='sw-tier-', dir='/dev/shm')
            )
            self.stack = stack.pop_all()
        return self

    def __exit__(self, *_):
        self.stack.close()

    def log(self, size_bytes):
        """A new log, all of which has pages."""
        room = os.statvfs(self.logs)
        path = os.path.join(self.logs, 'log')
        if os.path.exists(path):
            os.unlink(path)
        if room.f_bavail * room.f_frsize < size_bytes + 256 * MIB:
            raise procs.Skipped(f'/dev/shm has no {size_bytes >> 20} MiB')
        with open(path, 'wb') as file:
            os.posix_fallocate(file.fileno(), 0, size_bytes)
        return path

    def spec(self, size_bytes, *copies):
        return ','.join([f'tier:{self.path}', f'log={self.log(size_bytes)}', 'new-log', *copies])


class Hosts:
    """A file and logs on one of two hosts; pmem's servers are on the other."""

    def __init__(self, two, folder):
        self.two, self.files = two, Place(folder)

    def __enter__(self):
        with contextlib.ExitStack() as stack:
            for each in (self.two, self.files):
                stack.enter_context(each)
            self.stack = stack.pop_all()
        return self

    def __exit__(self, *_):
        self.stack.close()


def figures(target, words, rw, size, depth, seconds, ramp_s=nvme.RAMP_S):
    text = procs.run(
        target.host_argv(
            words,
            *f'bench --rw {rw} --destroy-data --bs {size} --iodepth {depth} -o json'.split(),
            *f'--runtime {seconds} --ramp_time {ramp_s}'.split(),
        ),
        nvme.PROGRAM_S,
    )
    found = json.loads(text)['rows'][0]['write']
    return {
        'mean_s': found['mean_us'] * 1e-6,
        'median_s': found['p50_us'] * 1e-6,
        'p999_s': found['p999_us'] * 1e-6,
        'rate': found['iops'],
    }


class Rigs:
    """The programs on this host: the client's and the target's core."""

    def __init__(self, bench):
        self.nvme, self.pmem = nvme_rows.Rig(bench), pmem_rows.Rig(bench)
        self.bench = bench

    def serve(self, spec, words=None, address=nvme.HERE):
        return nvme.Target(
            self.nvme.build, words or self.nvme.words(between.SERVER), [spec], address
        )

    def of(self, spec, *job):
        with self.serve(spec) as target:
            return figures(target, self.nvme.words(between.CLIENT), *job)

    def parts(self):
        """A write into memory of the target, and one into persistent memory with its flush."""
        with self.serve(nvme_rows.RAM) as target:
            target.fill(self.nvme.words(between.CLIENT))
            ram = figures(target, self.nvme.words(between.CLIENT), *JOB)
        pmem = self.pmem.direct(SHORT, 200000 // self.bench.divide)
        return {'mean_s': ram['mean_s'] + pmem['mean_s']}


def one_write(rigs, place):
    return Experiment(
        'nvme_tier_write',
        'a write to a tier, 4 KiB, depth 1',
        {'tier': lambda: rigs.of(place.spec(LOG_BYTES), *JOB), 'parts': rigs.parts},
        place=place,
    )


def two_copies(rigs, place):
    """Target and its host on one host, which has a copy of the log; the other copy is on another
    host, and both have to have it. For information: how long a client of that copy's server takes
    for a write with its flush, with nobody else on the two processors."""
    two = place.two
    rig = pmem_rows.Rig(rigs.bench, two)

    def tier():
        command = two.command
        with pmem_rows.Servers(rig, region_bytes=LOG_BYTES // 4) as servers:
            copy = f'log={rig.address}:{servers.ports[0]}/region0'
            here = two.hosts.wrap[between.CLIENT]
            with rigs.serve(
                place.files.spec(LOG_BYTES // 4, copy),
                two.on(between.CLIENT, command),
                between.hosts.ADDRESSES[between.CLIENT],
            ) as target:
                return figures(target, [*here, *pin(1 - CLIENT_CPU), *command], *JOB)

    def parts():
        trip_s = nvme_rows.tcp_round_trip(rigs.bench, two, 20000 // rigs.bench.divide)
        return {'mean_s': rigs.parts()['mean_s'] + trip_s}

    return Experiment(
        'nvme_tier_hosts',
        'the same with a copy of the log on a second host',
        {
            'tier': tier,
            'parts': parts,
            'copy': lambda: rig.direct(SHORT, 20000 // rig.bench.divide),
        },
        place=place,
    )


def full_log(rigs, place):
    job = ('randwrite', SHORT, DEEP, FULL_S, RAMP_S)
    return Experiment(
        'nvme_tier_full',
        'a tier whose log is full, random writes of 4 KiB, depth 32',
        {
            'tier': lambda: rigs.of(place.spec(SMALL_LOG_BYTES), *job),
            'fio': lambda: place.disk.fio('randwrite', SHORT, DEEP, FULL_S),
        },
        place=place,
    )


def tail(rigs, place):
    job = ('randwrite', SHORT, 1, TAIL_S, RAMP_S)
    return Experiment(
        'nvme_tier_tail',
        'writes to a tier while it destages, 4 KiB, depth 1',
        {'tier': lambda: rigs.of(place.spec(2 * SMALL_LOG_BYTES), *job)},
        place=place,
    )


def first_answer_s(rigs, spec):
    """From the start of a target until a host has read a block."""
    begun = time.monotonic()
    with rigs.serve(spec) as target:
        words = f'read -N 1 --start-block 0 -z {SHORT} -d /dev/null'.split()
        procs.run(target.host_argv(rigs.nvme.words(between.CLIENT), *words), nvme.PROGRAM_S)
        return time.monotonic() - begun


def used_bytes(rigs, target):
    words = [nvme.host_program(rigs.nvme.build), 'target', 'status', '-o', 'json']
    found = json.loads(procs.run([*words, '--control', target.control], 20))
    return found['subsystems'][0]['namespaces'][0]['tier']['used_bytes']


def restart(rigs, place):
    """What the log makes of a start, and the heads of its records read one by one. A target is
    killed before the first block has waited for five seconds, and nothing has gone to the file."""

    def tier():
        spec = place.spec(LARGE_LOG_BYTES)
        control = os.path.join(place.logs, 'control')
        target = rigs.serve(spec)
        target.argv += ['--control', control]
        target.control = control
        with target:
            figures(target, rigs.nvme.words(between.CLIENT), 'randwrite', SHORT, DEEP, FILL_S, 0.1)
            used = used_bytes(rigs, target)
            records = used // RECORD
            os.kill(target.child.pid, signal.SIGKILL)
        if used < DIRTY_BYTES and rigs.bench.divide == 1:
            raise procs.Skipped(f'{FILL_S} s of writes made {used >> 20} MiB dirty, and not 1 GiB')
        log = os.path.join(place.logs, 'log')
        heads = [os.path.join(rigs.bench.source, 'tier_heads'), log, str(records), str(RECORD)]
        floor_s = json.loads(procs.run(heads, 60))['time_s']
        kept = f'tier:{place.path},log={log}'
        return {
            'time_s': first_answer_s(rigs, kept) - first_answer_s(rigs, kept),
            'floor_s': floor_s,
        }

    return Experiment(
        'nvme_tier_restart', 'a tier starts with a log that is dirty', {'tier': tier}, place=place
    )


def experiments(bench):
    rigs = Rigs(bench)
    folder = os.path.join(rigs.nvme.build, 'bench')
    place = Place(folder)
    hosts = Hosts(between.Between(bench.sidewire, MTU), folder)
    return [
        one_write(rigs, place),
        two_copies(rigs, hosts),
        full_log(rigs, place),
        tail(rigs, place),
        restart(rigs, place),
    ]


# title, experiment, ours, peer, figure, unit, less is better, at least, aim, figure of the peer
# fmt: off
ROWS = (
    ('nvme tier: 4 KiB write, depth 1; ram: and pmem with a flush', 'nvme_tier_write', 'tier',
     'parts', 'mean_s', 'us', True, 1.8, 1.2),
    ('hosts: the same with a copy there, and a round trip of TCP', 'nvme_tier_hosts', 'tier',
     'parts', 'mean_s', 'us', True, 1.5, 1.2),
    ('nvme tier: log full, 4 KiB random writes, and fio on the file', 'nvme_tier_full', 'tier',
     'fio', 'rate', '1/s', False, 0.9, 1.3),
    ('nvme tier: 99.9% of writes while it destages, and the median', 'nvme_tier_tail', 'tier',
     'tier', 'p999_s', 'us', True, 10.0, 4.0, 'median_s'),
    ('nvme tier: start with a dirty log, and its heads read', 'nvme_tier_restart', 'tier', 'tier',
     'time_s', 's', True, 2.0, 1.2, 'floor_s'),
)
# fmt: on


def rows(by_key):
    return [Row(title, by_key[key], *rest) for title, key, *rest in ROWS if key in by_key]
