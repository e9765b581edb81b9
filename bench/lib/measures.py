# SPDX-License-Identifier: BSD-2-Clause
"""What is measured, against whom, and what is asked of it.

What an experiment and a row are is in experiment.py; those of the link between hosts are in
links.py, those of the connection manager in connections.py, those of TCP programs in
tcp_programs.py, of libraries above verbs in libraries.py, those of NVMe in nvme_rows.py, those of
iWARP in iwarp_rows.py, of persistent memory in pmem_rows.py, of transfers and of Python in
transfer_rows.py, of snapshots in snapshot_rows.py.
"""

import json
import os
import statistics

import coll_rows
import connections
import gap_rows
import gate
import iwarp_rows
import libraries
import links
import nvme_rows
import pmem_rows
import procs
import rbd_rows
import rpc
import snapshot_rows
import tcp_programs
import tcp_rows
import tier_rows
import torch_rows
import transfer_rows
import waiting
from experiment import Experiment, Row
from programs import ucx, pin

# UCX by itself, and by the transports it could be told to use: the best of them is the peer.
UCX_SETTINGS = {
    'default': {},
    'posix,cma': {'UCX_TLS': 'posix,cma,self'},
    'sysv,cma': {'UCX_TLS': 'sysv,cma,self'},
    'posix': {'UCX_TLS': 'posix,self'},
}
# UCX's lower layer is given one transport by name.
UCT_TRANSPORTS = ('posix', 'sysv')
# perftest's options for each type of queue pair, and for a shared receive queue.
QP_TYPES = {
    'UD': ('-c', 'UD'),
    'RC': ('-c', 'RC'),
    'UC': ('-c', 'UC'),
    'XRC': ('-c', 'XRC'),
    'SRQ': ('-c', 'RC', '--use-srq'),
}
MILLION = 1000000
ONE_SIDED = ('write', 'read', 'fadd', 'cswap')


# Queue pairs of other types: UD beside UCX, the rest beside RC, shared receive queues beside plain
# ones.
LATENCY, RATE = ('types_latency', 'median_s', 's', True), ('types_rate', 'rate', 'op/s', False)
TYPE_ROWS = (
    ('ib_send_lat -c UD -s 64', LATENCY, 'ib_send_lat UD', 'UCX tag_lat', 1.2, 1.0),
    ('  and its am_lat', LATENCY, 'ib_send_lat UD', 'UCX am_lat', None, None),
    ('  and RC', LATENCY, 'ib_send_lat UD', 'ib_send_lat RC', None, None),
    ('ib_send_lat -c UC -s 64, and RC', LATENCY, 'ib_send_lat UC', 'ib_send_lat RC', 1.2, 1.0),
    ('ib_send_lat -c XRC -s 64, and RC', LATENCY, 'ib_send_lat XRC', 'ib_send_lat RC', None, None),
    (
        'ib_send_lat --use-srq -s 64, and without',
        LATENCY,
        'ib_send_lat SRQ',
        'ib_send_lat RC',
        None,
        None,
    ),
    ('ib_send_bw -c UD -s 64', RATE, 'ib_send_bw UD', 'UCX tag_bw', 0.9, 1.3),
    ('  and its am_bw', RATE, 'ib_send_bw UD', 'UCX am_bw', None, None),
    ('  and RC', RATE, 'ib_send_bw UD', 'ib_send_bw RC', None, None),
    ('ib_send_bw -c UC -s 64, and RC', RATE, 'ib_send_bw UC', 'ib_send_bw RC', 0.9, 1.0),
    ('ib_send_bw -c XRC -s 64, and RC', RATE, 'ib_send_bw XRC', 'ib_send_bw RC', 0.8, 0.95),
    ('ib_send_bw --use-srq -s 64, and without', RATE, 'ib_send_bw SRQ', 'ib_send_bw RC', 0.8, 0.95),
    ('ib_write_bw -c UC -s 64, and RC', RATE, 'ib_write_bw UC', 'ib_write_bw RC', 0.9, 1.0),
)


# Beside other work who runs takes turns with it, some hundred times a second, and a run that has
# rested gets more than its part at first. A run that is over in 0.3 s says little of it.
BUSY_REPEAT = 5


class Bench:
    """Everything that can be measured, made of one Sidewire build."""

    def __init__(self, sidewire, source, quick, busy=False):
        self.sidewire = sidewire
        self.source = source  # directory of the programs of bench/src
        self.divide = 5 if quick else 1
        self.repeat = BUSY_REPEAT if busy else 1
        self.settings = dict(list(UCX_SETTINGS.items())[:2]) if quick else UCX_SETTINGS

    def trips(self, count):
        """How many messages are sent where `count` do on an idle machine."""
        return count * self.repeat // self.divide

    def program(self, name, *options):
        return self.sidewire.command + [
            os.path.join(self.source, name),
            '-d',
            self.sidewire.device,
            *options,
        ]

    def write_rate(self, *options, cpus='0,1'):
        cpus = ','.join(pin(int(cpu))[-1] if pin(0) else '0' for cpu in cpus.split(','))
        return self.program('write_rate', '--cpus', cpus, *options)

    def rate(self, threads):
        ops = 5 * MILLION // self.divide
        argv = self.write_rate(
            '--threads',
            str(threads),
            '--ops',
            str(ops),
            '--cpu-time',
            cpus=','.join(str(i % 2) for i in range(threads)) + ',1',
        )
        found = json.loads(procs.run(argv, 60))
        return {'rate': found['mops_per_s'] * 1e6, 'cpu_rate': found['mops_per_cpu_s'] * 1e6}

    def latency(self, program, size=8, options=(), iterations=100000, sidewire=None):
        samples = (sidewire or self.sidewire).latency_samples(
            program, ['-s', str(size), '-n', str(self.trips(iterations)), *options]
        )
        return {
            'median_s': samples[len(samples) // 2],
            'mean_s': statistics.fmean(samples),
            'p99_s': samples[len(samples) * 99 // 100],
        }

    def bandwidth(self, program, size, iterations, options=(), timeout_s=30, sidewire=None):
        rows = (sidewire or self.sidewire).perftest(
            program,
            ['-s', str(size), '-N', '-n', str(iterations // self.divide), *options],
            timeout_s,
        )
        return rows[size]

    def floor(self):
        pair = ','.join(pin(cpu)[-1] if pin(0) else '0' for cpu in (0, 1))
        text = procs.run([os.path.join(self.source, 'line_bounce'), pair], 20)
        return {'median_s': json.loads(text)['one_way_ns'] * 1e-9}

    def ucx(self, test, size, iterations):
        """Contenders of one UCX test, one for each setting."""
        count = max(self.trips(iterations), 100)
        return {
            f'UCX {test} [{name}]': lambda settings=settings: ucx(test, size, count, settings)
            for name, settings in self.settings.items()
        }

    def uct(self, test, size, iterations):
        """The same of UCX's lower layer, which is told its transport."""
        count = max(self.trips(iterations), 100)
        return {
            f'UCX {test} [{name}]': lambda name=name: ucx(
                test, size, count, {}, options=('-x', name, '-d', 'memory')
            )
            for name in UCT_TRANSPORTS
        }

    def types_latency(self):
        """A SEND of 64 B over each type of queue pair."""
        return Experiment(
            'types_latency',
            '64 B SEND by type of QP',
            {
                **{
                    f'ib_send_lat {name}': lambda options=options: self.latency(
                        'ib_send_lat', 64, options
                    )
                    for name, options in QP_TYPES.items()
                },
                **self.ucx('tag_lat', 64, MILLION // 2),
                **self.uct('am_lat', 64, MILLION // 2),
            },
        )

    def datagram_rate(self, size, iterations, options):
        """perftest waits for ever for a datagram that was dropped, because its receiver had lost
        its core for long: tried again."""
        for attempt in range(3):
            try:
                return self.bandwidth('ib_send_bw', size, iterations, options, timeout_s=10)
            except procs.RunFailed:
                if attempt == 2:
                    raise

    def types_rate(self):
        """Messages of 64 B, posted one by one, over each type of queue pair."""
        count = 2 * MILLION
        return Experiment(
            'types_rate',
            '64 B messages by type of QP',
            {
                'ib_send_bw UD': lambda: self.datagram_rate(64, count, QP_TYPES['UD']),
                **{
                    f'ib_send_bw {name}': lambda options=options: self.bandwidth(
                        'ib_send_bw', 64, count, options
                    )
                    for name, options in QP_TYPES.items()
                    if name != 'UD'
                },
                **{
                    f'ib_write_bw {name}': lambda options=QP_TYPES[name]: self.bandwidth(
                        'ib_write_bw', 64, count, options
                    )
                    for name in ('RC', 'UC')
                },
                **self.ucx('tag_bw', 64, count),
                **self.uct('am_bw', 64, count),
            },
        )

    def experiments(self):
        size, large = 65536, 1 << 20
        small = Experiment(
            'small_write',
            '8 B WRITE',
            {
                'ib_write_lat': lambda: self.latency('ib_write_lat'),
                **self.ucx('ucp_put_lat', 8, MILLION // 2),
                'write_rate': lambda: self.rate(1),
                **self.ucx('ucp_put_bw', 8, 5 * MILLION),
                'cache line': self.floor,
            },
            rounds_factor=3,
        )
        send = Experiment(
            'small_send',
            '8 B SEND',
            {
                'ib_send_lat': lambda: self.latency('ib_send_lat'),
                **self.ucx('tag_lat', 8, MILLION // 2),
            },
            rounds_factor=3,
        )
        one_sided = Experiment(
            'one_sided_bandwidth',
            '64 KiB WRITE and READ',
            {
                'ib_write_bw': lambda: self.bandwidth('ib_write_bw', size, 100000),
                **self.ucx('ucp_put_bw', size, 100000),
                'ib_read_bw': lambda: self.bandwidth('ib_read_bw', size, 100000),
                **self.ucx('ucp_get', size, 100000),
            },
        )
        send_64k = Experiment(
            'send_bandwidth_64k',
            '64 KiB SEND',
            {
                'ib_send_bw': lambda: self.bandwidth('ib_send_bw', size, 50000),
                **self.ucx('tag_bw', size, 50000),
            },
        )
        send_1m = Experiment(
            'send_bandwidth_1m',
            '1 MiB SEND',
            {
                'ib_send_bw': lambda: self.bandwidth('ib_send_bw', large, 5000),
                **self.ucx('tag_bw', large, 5000),
            },
        )
        threads = Experiment(
            'threads',
            '8 B WRITE by threads',
            {'one thread': lambda: self.rate(1), 'two threads': lambda: self.rate(2)},
            rounds_factor=2,
        )
        return [
            small,
            send,
            one_sided,
            send_64k,
            send_1m,
            threads,
            self.types_latency(),
            self.types_rate(),
            *links.experiments(self),
            *rpc.experiments(self),
            *connections.experiments(self),
            *libraries.experiments(self),
            *tcp_programs.experiments(self),
            *waiting.experiments(self),
            *nvme_rows.experiments(self),
            *rbd_rows.experiments(self),
            *tier_rows.experiments(self),
            *gap_rows.experiments(self),
            *coll_rows.experiments(self),
            *pmem_rows.experiments(self),
            *transfer_rows.experiments(self),
            *iwarp_rows.experiments(self),
            *tcp_rows.experiments(self),
            *torch_rows.experiments(self),
            *snapshot_rows.experiments(self),
        ]

    @staticmethod
    def rows(experiments):
        by_key = {experiment.key: experiment for experiment in experiments}
        # fmt: off
        plan = [
            ('ib_write_lat -s 8', 'small_write', 'ib_write_lat', 'UCX ucp_put_lat', 'median_s', 's',
             True, 1.5, 1.0),
            ('  and one cache line, core to core', 'small_write', 'ib_write_lat', 'cache line',
             'median_s', 's', True, 1.25, 1.1),
            ('ib_send_lat -s 8', 'small_send', 'ib_send_lat', 'UCX tag_lat', 'median_s', 's', True,
             1.3, 0.9),
            ('ib_write_bw -s 65536', 'one_sided_bandwidth', 'ib_write_bw', 'UCX ucp_put_bw',
             'bandwidth', 'B/s', False, 0.95, 1.05),
            ('ib_read_bw -s 65536', 'one_sided_bandwidth', 'ib_read_bw', 'UCX ucp_put_bw',
             'bandwidth', 'B/s', False, 0.9, 1.0),
            ('  and its get', 'one_sided_bandwidth', 'ib_read_bw', 'UCX ucp_get', 'bandwidth',
             'B/s', False, None, None),
            ('ib_send_bw -s 65536', 'send_bandwidth_64k', 'ib_send_bw', 'UCX tag_bw', 'bandwidth',
             'B/s', False, 1.0, 1.3),
            ('ib_send_bw -s 1048576', 'send_bandwidth_1m', 'ib_send_bw', 'UCX tag_bw', 'bandwidth',
             'B/s', False, 1.0, 1.3),
            ('8 B WRITE rate, lists of 32', 'small_write', 'write_rate', 'UCX ucp_put_lat', 'rate',
             'op/s', False, 1.3, 3.0),
            ('  and its put_bw of 8 B', 'small_write', 'write_rate', 'UCX ucp_put_bw', 'rate',
             'op/s', False, None, None),
            ('two threads, passive target', 'threads', 'two threads', 'one thread', 'rate', 'op/s',
             False, 1.8, 1.95),
            ('  each by its own CPU time', 'threads', 'two threads', 'one thread', 'cpu_rate',
             'op/s', False, None, None),
            *(
                (title, key, ours, peer, figure, unit, least, at_least, aim)
                for title, (key, figure, unit, least), ours, peer, at_least, aim in TYPE_ROWS
            ),
            *links.ROWS,
            *rpc.ROWS,
            *connections.ROWS,
            *libraries.ROWS,
            *tcp_programs.ROWS,
            *waiting.ROWS,
        ]
        # fmt: on
        return [
            Row(title, by_key[key], ours, peer, figure, unit, least, at_least, aim)
            for title, key, ours, peer, figure, unit, least, at_least, aim in plan
            if key in by_key
        ] + [
            row
            for module in (
                nvme_rows,
                rbd_rows,
                tier_rows,
                gap_rows,
                coll_rows,
                pmem_rows,
                transfer_rows,
                iwarp_rows,
                tcp_rows,
                torch_rows,
                snapshot_rows,
            )
            for row in module.rows(by_key)
        ]

    def syscalls(self, op):
        """System calls of both sides while a million operations run."""
        with gate.Gate(self.write_rate('--op', op, '--ops', str(MILLION))) as phase:
            counters = [gate.SyscallCount(pid) for pid in phase.pids()]
            phase.begin()
            phase.end()
            initiator, target = (counter.stop() for counter in counters)
            phase.finish()
        return {'op': op, 'initiator': initiator, 'target': target}

    def target_cpu(self, op):
        """Processor time of the sleeping target while a million operations reach it."""
        with gate.Gate(self.write_rate('--op', op, '--ops', str(MILLION))) as phase:
            _, target = phase.pids()
            before = gate.cpu_time_ns(target)
            phase.begin()
            phase.end()
            spent = gate.cpu_time_ns(target) - before
            phase.finish()
        return {'op': op, 'cpu_ns': spent}

    def sweep(self, kind):
        cpus = ','.join(pin(cpu)[-1] if pin(0) else '0' for cpu in (0, 1))
        argv = self.program('sweep', '-b', kind, '-c', cpus)
        return json.loads(procs.run(argv, 120))['rows']
