# SPDX-License-Identifier: BSD-2-Clause
"""The last step of the demo: a file is served as an NVMe namespace, read back over RDMA, and
measured beside the file itself."""

import hashlib
import os
import statistics

import nvme
import procs
import table
from programs import CLIENT_CPU, SERVER_CPU, pin

SIZE = 32 * nvme.MIB
# A disk has moods that last longer than a measurement: each way is measured in turn.
TURNS, SECONDS = 3, 0.3
# Title, pattern, size, depth.
JOBS = (('random read', 'randread', 4096, 1), ('random write', 'randwrite', 4096, 1))
# Name, options of the target and of the host. A target polls for 100 us after a request.
WAYS = (('polled', (), ()), ('asleep', ('--spin', '0'), ('--sleep',)))


def digest(path):
    with open(path, 'rb') as file:
        return hashlib.file_digest(file, 'sha256').hexdigest()


def read_back(target, words, disk):
    """The digest, where what comes over RDMA is what the file has."""
    copy = disk.path + '.copy'
    procs.run(target.host_argv(words, 'read', '--data', copy), 30)
    here, there = digest(disk.path), digest(copy)
    if here != there:
        raise procs.RunFailed(
            f'NVMe: the file has digest {here}, what was read over RDMA has {there}'
        )
    return here


def run_turn(sidewire, words, disk, samples):
    """One measurement of each job, on the file and by each way."""
    for title, rw, size, depth in JOBS:
        samples[title, 'local'].append(disk.fio(rw, size, depth, SECONDS)['mean_s'])
    for way, of_target, of_host in WAYS:
        with nvme.Target(
            sidewire.build, words[1], [f'file:{disk.path}'], options=of_target
        ) as target:
            for title, rw, size, depth in JOBS:
                found = target.one(words[0], rw, size, depth, SECONDS, of_host)
                samples[title, way].append(found['mean_s'])


def run(sidewire, out):
    """{'bytes', 'sha256', 'rows'}; a digest that differs raises RunFailed."""
    words = [[*pin(cpu), *sidewire.command] for cpu in (CLIENT_CPU, SERVER_CPU)]
    ways = ['local', *(way for way, *_ in WAYS)]
    samples = {(title, way): [] for title, *_ in JOBS for way in ways}
    with nvme.Disk(out, SIZE) as disk:
        with nvme.Target(sidewire.build, words[1], [f'file:{disk.path}']) as target:
            sha256 = read_back(target, words[0], disk)
        for _ in range(TURNS):
            run_turn(sidewire, words, disk, samples)
    rows = [
        {
            'operation': title,
            'size_bytes': size,
            'depth': depth,
            'polling': way == 'polled',
            'local_s': statistics.median(samples[title, 'local']),
            'remote_s': statistics.median(samples[title, way]),
        }
        for title, _, size, depth in JOBS
        for way, *_ in WAYS
    ]
    return {'bytes': SIZE, 'sha256': sha256, 'rows': rows}


def added_text(row):
    """The disk's moods may be larger than what the network adds."""
    added = row['remote_s'] - row['local_s']
    return f'{added * 1e6:+.1f} us' if added > 0 else 'none seen'


def lines_of(found):
    header = ['NVMe over RDMA, a file', 'block', 'depth', 'polls', 'local', 'remote', 'added']
    rows = [
        [
            row['operation'],
            table.size_text(row['size_bytes']),
            str(row['depth']),
            'both sides' if row['polling'] else 'nobody',
            table.latency_text(row['local_s']),
            table.latency_text(row['remote_s']),
            added_text(row),
        ]
        for row in found['rows']
    ]
    return [
        *table.aligned(header, rows),
        '',
        f'{table.size_text(found["bytes"])} were served by "sidewire nvme target" and read back by '
        '"sidewire nvme read": '
        f'sha256 {found["sha256"][:16]}... on both',
        f'sides. Mean latency, the median of {TURNS} turns: fio on the file (io_uring, O_DIRECT, '
        'asleep), and "sidewire nvme',
        'bench" through the target. Where nobody polls, both processes are woken for each request.',
    ]
