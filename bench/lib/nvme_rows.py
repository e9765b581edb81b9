# SPDX-License-Identifier: BSD-2-Clause
"""What is measured of NVMe over RDMA: what our target and host add to the device, beside nbdkit,
TCP and the NIC itself."""

import json
import os
import time

import between
import nvme
import nvme_takeover
import procs
from experiment import Added, Experiment, Row
from programs import CLIENT_CPU, SERVER_CPU, pin

SHORT, LONG = 4096, 128 << 10
DEEP, LONG_DEPTH = 32, 8
MTU = 9000
SECONDS = 0.5  # of each measurement
RAM, NULL = 'ram:16M', 'null:16M'
QUEUES, QUEUE_SIZE = 64, 128
POLLING = ('--spin', '1000000000')  # us: never asleep
MEGA = 1e6


class Rig:
    """Runs of target and host, each on its core; `two`: on a host each, else both on this one."""

    def __init__(self, bench, two=None):
        self.sidewire = two or bench.sidewire
        self.build = bench.sidewire.build if bench.sidewire else ''
        self.two = two
        self.seconds = SECONDS / (2 if bench.divide > 1 else 1)

    def words(self, side):
        if self.two:
            return self.two.on(side, self.two.command)
        return [*pin((CLIENT_CPU, SERVER_CPU)[side]), *self.sidewire.command]

    def target(self, *specs, options=()):
        address = between.hosts.ADDRESSES[between.SERVER] if self.two else nvme.HERE
        return nvme.Target(self.build, self.words(between.SERVER), specs, address, options)

    def run(self, spec, jobs, options=()):
        """The jobs, one after the other: {name: figures}; a job is (name, pattern, size, depth)."""
        with self.target(spec, options=options) as target:
            if spec == RAM:
                target.fill(self.words(between.CLIENT))
            return {
                name: target.one(self.words(between.CLIENT), rw, size, depth, self.seconds)
                for name, rw, size, depth in jobs
            }

    def local(self, disk, jobs):
        return {name: disk.fio(rw, size, depth, self.seconds) for name, rw, size, depth in jobs}


def flat(found, figure):
    """{job: value} of one figure."""
    return {name: each[figure] for name, each in found.items()}


ALONE = (('read', 'randread', SHORT, 1), ('write', 'randwrite', SHORT, 1))
STREAMS = (('long_read', 'read', LONG, LONG_DEPTH), ('long_write', 'write', LONG, LONG_DEPTH))
DEEP_READ = ('deep_read', 'randread', SHORT, DEEP)


def added_in_memory(bench):
    rig = Rig(bench)
    return Experiment(
        'nvme_memory',
        'NVMe of memory, depth 1',
        {
            spec.split(':')[0]: lambda spec=spec: flat(rig.run(spec, ALONE), 'mean_s')
            for spec in (NULL, RAM)
        },
    )


def _of_disk(bench, key, title, jobs, figure):
    rig = Rig(bench)
    disk = nvme.Disk(os.path.join(rig.build, 'bench'))
    return Experiment(
        key,
        title,
        {
            'local': lambda: flat(rig.local(disk, jobs), figure),
            'remote': lambda: flat(rig.run(f'file:{disk.path}', jobs), figure),
        },
        place=disk,
    )


def added_to_disk(bench):
    return _of_disk(bench, 'nvme_disk', 'NVMe of a file on disk, depth 1', ALONE, 'mean_s')


def disk_throughput(bench):
    return _of_disk(
        bench,
        'nvme_disk_rate',
        'NVMe of a file on disk, throughput',
        (DEEP_READ, *STREAMS),
        'bandwidth',
    )


def beside_nbdkit(bench):
    rig, job = Rig(bench), DEEP_READ

    def of_nbdkit(options):
        _, rw, size, depth = job
        with nvme.nbdkit(options, 16 * nvme.MIB) as place:
            return nvme.fio(rw, size, depth, rig.seconds, place)

    return Experiment(
        'nvme_nbdkit',
        'NVMe beside NBD, 4 KiB',
        {
            'null': lambda: rig.run(NULL, [job])['deep_read'],
            'nbdkit [default]': lambda: of_nbdkit([]),
            'nbdkit [one thread]': lambda: of_nbdkit(['-t', '1']),
        },
    )


def same_messages(bench):
    """What a read of NVMe moves, by verbs alone: a request of 64 B, a WRITE of a random block, an
    answer of 16 B."""
    port = procs.free_port()
    program = [
        os.path.join(bench.source, 'rpc'),
        '--way',
        'verbs',
        '--device',
        bench.sidewire.device,
        *f'--port {port} --depth {DEEP} --data {SHORT} --span {16 * nvme.MIB}'.split(),
        *f'--count {1000000 // bench.divide}'.split(),
    ]
    text = procs.run_pair(
        bench.sidewire.wrap(SERVER_CPU, program),
        bench.sidewire.wrap(CLIENT_CPU, [*program, nvme.HERE]),
        port,
        nvme.PROGRAM_S,
    )
    return {'rate': json.loads(text)['requests_per_s']}


def message_rate(bench):
    rig = Rig(bench)
    return Experiment(
        'nvme_messages',
        'NVMe beside bare WRITEs, 4 KiB',
        {
            'ram': lambda: rig.run(RAM, [DEEP_READ], POLLING)['deep_read'],
            'verbs': lambda: same_messages(bench),
            'ib_write_bw': lambda: bench.bandwidth('ib_write_bw', SHORT, 1000000),
        },
    )


def between_hosts(bench):
    two = between.Between(bench.sidewire, MTU)
    rig, trips = Rig(bench, two), 20000 // bench.divide

    def remote():
        found = rig.run(RAM, (*ALONE, *STREAMS))
        return {
            **flat({name: found[name] for name in ('read', 'write')}, 'mean_s'),
            **flat({name: found[name] for name in ('long_read', 'long_write')}, 'bandwidth'),
        }

    def tcp():
        trip_s, stream = tcp_round_trip(bench, two, trips), two.tcp()['bandwidth']
        return {'read': trip_s, 'write': trip_s, 'long_read': stream, 'long_write': stream}

    return Experiment('nvme_hosts', 'NVMe between hosts', {'remote': remote, 'TCP': tcp}, place=two)


def tcp_round_trip(bench, two, trips):
    """Round trip of one byte, by sockets that are polled on both sides."""
    port = procs.free_port()
    words = [os.path.join(bench.source, 'tcp_pingpong'), str(port), '1', str(trips)]
    return 2e-9 * json.loads(two.both(lambda side: words, port, 60))['one_way_ns']


def footprint(bench):
    """The target's memory without a host, and with 64 queues whose entries are all in use."""
    rig = Rig(bench)
    disk = nvme.Disk(os.path.join(rig.build, 'bench'), 16 * nvme.MIB)

    def with_queues(rw):
        with rig.target(f'file:{disk.path}') as target:
            host = procs.Child(
                target.host_argv(
                    rig.words(between.CLIENT),
                    'bench',
                    '--rw',
                    rw,
                    *f'--destroy-data --numjobs {QUEUES} --queue-size {QUEUE_SIZE}'.split(),
                    *f'--iodepth {QUEUE_SIZE - 1} --sleep --runtime {nvme.PROGRAM_S}'.split(),
                )
            )
            try:
                await_threads(host, QUEUES)
                return nvme.use_of_memory(target.child.pid)
            finally:
                host.end()

    def idle():
        with rig.target(f'file:{disk.path}') as target:
            return nvme.use_of_memory(target.child.pid)

    return Experiment(
        'nvme_footprint',
        'memory of the NVMe target',
        {
            'idle': idle,
            'reads': lambda: with_queues('randread'),
            'writes': lambda: with_queues('randwrite'),
        },
        place=disk,
    )


def await_threads(host, count):
    """All queues are connected before the first thread begins. Then a while, in which each has sent
    all that it has room for."""
    limit = time.monotonic() + 20
    while nvme.threads_of(host.pid) <= count:
        if not host.running() or time.monotonic() > limit:
            raise procs.RunFailed(host.report(f'did not connect {count} queues'))
        time.sleep(0.05)
    time.sleep(3 * SECONDS)


def group_of_one(bench):
    """What it costs a target to be a member of a group, whose log is on the same host."""
    rig = Rig(bench)
    disk = nvme.Disk(os.path.join(rig.build, 'bench'))

    def member():
        with nvme_takeover.log_of_group(bench) as group:
            place = f'127.0.0.1:{group.log_port}'
            listen = f'127.0.0.1:{procs.free_port()}'
            words = ['--group', place, '--group-listen', listen, '--member', 'one']
            return rig.run(f'file:{disk.path}', [DEEP_READ], words)['deep_read']

    def alone():
        return rig.run(f'file:{disk.path}', [DEEP_READ])['deep_read']

    return Experiment(
        'nvme_group',
        'NVMe of a group of one, and of no group',
        {'group': member, 'alone': alone},
        place=disk,
    )


def experiments(bench):
    return [
        added_in_memory(bench),
        added_to_disk(bench),
        disk_throughput(bench),
        beside_nbdkit(bench),
        message_rate(bench),
        between_hosts(bench),
        footprint(bench),
        group_of_one(bench),
        *nvme_takeover.experiments(bench),
    ]


# title, experiment, ours, peer (of Added: None), figure, unit, at least, aim
# fmt: off
ADDED = (
    *(
        (f'nvme {kind}: 4 KiB {rw}, depth 1', 'nvme_memory', kind, None, rw, 'us', 10e-6, 3e-6)
        for kind in ('null', 'ram')
        for rw in ('read', 'write')
    ),
    *(
        (f'nvme file: 4 KiB {rw}, depth 1, above local', 'nvme_disk', 'remote', 'local', rw,
         'us', 10e-6, 4e-6)
        for rw in ('read', 'write')
    ),
)
RATIOS = (
    ('nvme file: 4 KiB random read, depth 32, and local', 'nvme_disk_rate', 'remote', 'local',
     'deep_read', 'B/s', False, 0.95, 1.0),
    *(
        (f'nvme file: 128 KiB {rw}, depth 8, and local', 'nvme_disk_rate', 'remote', 'local',
         f'long_{rw}', 'B/s', False, 0.95, 1.0)
        for rw in ('read', 'write')
    ),
    ('nvme file: 4 KiB random read, depth 32, a group of one, and none', 'nvme_group', 'group',
     'alone', 'rate', '1/s', False, 0.97, 1.0),
    ('nvme null: 4 KiB read, depth 32, and NBD', 'nvme_nbdkit', 'null', 'nbdkit', 'rate', '1/s',
     False, 3.0, 8.0),
    ('nvme ram: 4 KiB read, depth 32, and ib_write_bw', 'nvme_messages', 'ram', 'ib_write_bw',
     'rate', '1/s', False, 0.25, 0.5),
    ('  and the same messages by bare verbs', 'nvme_messages', 'ram', 'verbs', 'rate', '1/s', False,
     None, None),
    *(
        (f'hosts: nvme 4 KiB {rw}, and a round trip of TCP', 'nvme_hosts', 'remote', 'TCP', rw,
         'us', True, 1.5, 1.0)
        for rw in ('read', 'write')
    ),
    *(
        (f'hosts: nvme 128 KiB {rw}, and one TCP stream', 'nvme_hosts', 'remote', 'TCP',
         f'long_{rw}', 'B/s', False, 1.0, 2.0)
        for rw in ('read', 'write')
    ),
)
# fmt: on
MEMORY = (
    ('nvme target, idle: memory', 'nvme_footprint', 'idle', None, 'pss', 'MB', 20 * MEGA, 8 * MEGA),
    *(
        (
            f'  with 64 queues of 128, {rw}',
            'nvme_footprint',
            rw,
            None,
            'pss',
            'MB',
            120 * MEGA,
            60 * MEGA,
        )
        for rw in ('reads', 'writes')
    ),
    ('  and all that it maps (Rss)', 'nvme_footprint', 'writes', None, 'rss', 'MB', None, None),
)


def rows(by_key):
    """The rows of the experiments that were made."""
    plan = [
        (kind, *row)
        for kind, table in ((Added, ADDED), (Row, RATIOS), (Added, MEMORY))
        for row in table
    ]
    found = [kind(title, by_key[key], *rest) for kind, title, key, *rest in plan if key in by_key]
    return found + nvme_takeover.rows(by_key)
