# SPDX-License-Identifier: BSD-2-Clause
"""What is measured of images of Ceph: our target beside fio's own engine for librbd, on one cluster
that runs on this machine."""

import os
import shutil
import tempfile
import time

import ceph_cluster
import nvme
import procs
from experiment import Experiment, Row

SIZE = 4096
DEPTHS = (1, 32)
PATTERNS = {'read': 'randread', 'write': 'randwrite'}
SECONDS, START_S = 3, 1
IMAGE_MIB = 128
TICKS = os.sysconf('SC_CLK_TCK')


class Place:
    """The cluster, and an image of which each block was written. The cluster has both cores, so
    nothing is kept on one."""

    def __init__(self, sidewire):
        self.sidewire = sidewire
        self.folder = self.cluster = self.uncached = None

    def __enter__(self):
        lacking = ceph_cluster.lacking()
        if lacking:
            raise procs.Skipped(f'{", ".join(lacking)} of Ceph: not installed')
        self.folder = tempfile.mkdtemp(prefix='sidewire-ceph-')
        try:
            self.cluster = ceph_cluster.Cluster(self.folder)
            self.cluster.pool('rbd')
            self.uncached = os.path.join(self.folder, 'uncached.conf')
            with open(self.cluster.conf, encoding='ascii') as file:
                conf = file.read()
            with open(self.uncached, 'w', encoding='ascii') as file:
                file.write(conf + '[client]\nrbd cache = false\n')
            self.cluster.rbd(f'create --size {IMAGE_MIB}M rbd/bench')
            with self.target() as target:
                target.fill(self.sidewire.command)
        except RuntimeError as error:
            self.__exit__()
            raise procs.Skipped(str(error)) from None
        return self

    def __exit__(self, *_):
        if self.cluster:
            self.cluster.end()
        shutil.rmtree(self.folder, ignore_errors=True)

    def target(self):
        spec = f'rbd:rbd/bench,conf={self.cluster.conf}'
        return nvme.Target(self.sidewire.build, self.sidewire.command, [spec])


def spent_s(pid):
    """Processor time of a process and its threads."""
    with open(f'/proc/{pid}/stat', encoding='utf-8') as file:
        fields = file.read().rsplit(')', 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def measured(child, pid, parse):
    """The rate of requests that a program tells at its end, and what `pid` spent on each while it
    ran."""
    try:
        time.sleep(2 * START_S)  # it has begun
        before_s, began = spent_s(pid), time.monotonic()
        time.sleep(SECONDS - START_S)
        load = (spent_s(pid) - before_s) / (time.monotonic() - began)
        if child.wait(nvme.PROGRAM_S):
            raise procs.RunFailed(child.report('failed'))
        rate = parse(child.text())
    finally:
        child.end()
    return {'rate': rate, 'cpu_s': load / rate}


def by_target(place, rw, depth):
    """The target's processor time counts: what the host's program has is that of its machine."""
    words = ['bench', '--rw', rw, '--destroy-data', '--bs', str(SIZE), '--iodepth', str(depth)]
    words += f'--runtime {SECONDS} --ramp_time {START_S} --sleep -o json'.split()
    with place.target() as target:
        child = procs.Child(target.host_argv(place.sidewire.command, *words))
        return measured(
            child, target.child.pid, lambda text: nvme.parse_rows(text, rw)[SIZE, depth]['rate']
        )


def by_fio(place, rw, depth):
    """Without librbd's cache, which answers before anything is written; the target has none."""
    words = ['env', f'CEPH_CONF={place.uncached}', 'fio', '--name=rbd', '--ioengine=rbd']
    words += ['--pool=rbd', '--rbdname=bench', '--clientname=admin', f'--rw={rw}', f'--bs={SIZE}']
    words += [f'--iodepth={depth}', f'--runtime={SECONDS}', f'--ramp_time={START_S}']
    words += ['--thread', '--time_based', '--norandommap', '--output-format=json']
    child = procs.Child(words)
    return measured(child, child.pid, lambda text: nvme.parse_fio(text, rw)['rate'])


def experiments(bench):
    place = Place(bench.sidewire)
    contenders = {}
    for kind, rw in PATTERNS.items():
        for depth in DEPTHS:
            contenders[f'{kind} {depth}'] = lambda rw=rw, n=depth: by_target(place, rw, n)
            contenders[f'rbd {kind} {depth}'] = lambda rw=rw, n=depth: by_fio(place, rw, n)
    return [Experiment('nvme_rbd', 'NVMe of an image of Ceph, 4 KiB', contenders, place=place)]


def rows(by_key):
    if 'nvme_rbd' not in by_key:
        return []
    found = by_key['nvme_rbd']
    cases = [(kind, depth) for kind in PATTERNS for depth in DEPTHS]
    rates = [
        Row(
            f'nvme rbd: 4 KiB {kind}, depth {depth}, and fio on librbd',
            found,
            f'{kind} {depth}',
            f'rbd {kind} {depth}',
            'rate',
            '1/s',
            False,
            0.9,
            1.0,
        )
        for kind, depth in cases
    ]
    costs = [
        Row(
            f'  processor time a request, {kind}, depth {depth}',
            found,
            f'{kind} {depth}',
            f'rbd {kind} {depth}',
            'cpu_s',
            'us',
            True,
            1.3,
            1.1,
        )
        for kind, depth in cases
    ]
    return [row for pair in zip(rates, costs) for row in pair]
