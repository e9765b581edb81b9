# SPDX-License-Identifier: BSD-2-Clause
"""The last step of the demo: a file is served as an NVMe namespace, read back over RDMA, and
measured beside the file itself."""

import hashlib
import os

import nvme
import procs
import table
from programs import CLIENT_CPU, SERVER_CPU, pin

SIZE = 32 * nvme.MIB
SECONDS = 0.4
# Title, pattern, size, depth.
JOBS = (('random read', 'randread', 4096, 1), ('random write', 'randwrite', 4096, 1))


def digest(path):
    with open(path, 'rb') as file:
        return hashlib.file_digest(file, 'sha256').hexdigest()


def run(sidewire, out):
    """{'bytes', 'sha256', 'rows'}; a digest that differs raises RunFailed."""
    words = [[*pin(cpu), *sidewire.command] for cpu in (CLIENT_CPU, SERVER_CPU)]
    with nvme.Disk(out, SIZE) as disk, nvme.Target(
        sidewire.build, words[1], [f'file:{disk.path}']
    ) as target:
        copy = disk.path + '.copy'
        procs.run(target.host_argv(words[0], 'read', '--data', copy), 30)
        here, there = digest(disk.path), digest(copy)
        if here != there:
            raise procs.RunFailed(
                f'NVMe: the file has digest {here}, what was read over RDMA has {there}'
            )
        rows = []
        for title, rw, size, depth in JOBS:
            local = disk.fio(rw, size, depth, SECONDS)
            remote = target.one(words[0], rw, size, depth, SECONDS)
            rows.append(
                {
                    'operation': title,
                    'size_bytes': size,
                    'depth': depth,
                    'local_s': local['mean_s'],
                    'remote_s': remote['mean_s'],
                }
            )
        return {'bytes': SIZE, 'sha256': here, 'rows': rows}


def lines_of(found):
    header = ['NVMe over RDMA, a file', 'block', 'depth', 'local', 'remote', 'added']
    rows = [
        [
            row['operation'],
            table.size_text(row['size_bytes']),
            str(row['depth']),
            table.latency_text(row['local_s']),
            table.latency_text(row['remote_s']),
            f'{(row["remote_s"] - row["local_s"]) * 1e6:+.1f} us',
        ]
        for row in found['rows']
    ]
    return [
        *table.aligned(header, rows),
        '',
        f'{table.size_text(found["bytes"])} were served by "sidewire nvme target" and read back by '
        '"sidewire nvme read": '
        f'sha256 {found["sha256"][:16]}... on both',
        'sides. Mean latency: fio on the file (io_uring, O_DIRECT), and '
        '"sidewire nvme bench" through the target.',
    ]
