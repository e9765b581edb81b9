# SPDX-License-Identifier: BSD-2-Clause
"""Programs of docs/programs.md on iWARP devices: those of the other groups that need neither
datagrams, XRC nor atomics."""
import time

import cm
import fabric
import hosts
import others
import pair
import ports
from pair import Process


class OverIwarp(pair.Tools):
    """The same tools, with which everything runs on iWARP devices."""

    def __init__(self, tools):  # pylint: disable=super-init-not-called
        self.__dict__.update(tools.__dict__)

    def run(self, *words, link=None, **options):
        return super().run(*words, link='iwarp', **options)


def over(case, *arguments):
    return lambda tools: case(OverIwarp(tools), *arguments)


def qperf(tools):
    """The tests of qperf without atomics and immediate data, and without rc_bw: it sends without
    asking for receives, and there is no RNR."""
    port = ports.claim()
    server = Process(tools.run('qperf', '-lp', str(port)))
    try:
        while not pair.is_listening(port, server.child.pid):
            time.sleep(0.01)
        for test, figure in (
            ('rc_lat', 'latency'),
            ('rc_rdma_read_lat', 'latency'),
            ('rc_rdma_read_bw', 'bw'),
        ):
            cm.qperf_one(tools, port, test, figure)
    finally:
        server.end()


def libfabric(tools, kind, provider, on):
    two = hosts.Hosts()
    try:
        fabric.check_data(
            tools, two, kind, provider, on, lambda device: device.replace('sw_', 'iw_')
        )
    finally:
        two.close()


def pingpong(tools, kind, provider):
    two = hosts.Hosts()
    try:
        port = ports.claim()
        fabric.run_sides(
            tools,
            two,
            lambda side, device: [
                *'fi_pingpong -c -I 100'.split(),
                '-d',
                device.replace('sw_', 'iw_'),
                '-p',
                provider,
                '-e',
                kind,
                *(['-P', str(port), hosts.ADDRESSES[0]] if side == 'client' else ['-B', str(port)]),
            ],
            port,
            1,
            '=100',
        )
    finally:
        two.close()


def cases():
    return [
        ('rcopy', over(cm.needs('rcopy', cm.copy))),
        ('qperf -cm 1', over(cm.needs('qperf', qperf))),
        (
            'rdma_xserver -c r',
            over(
                lambda tools: cm.run_pair(
                    tools,
                    'rdma_xserver -p {port}',
                    'rdma_xclient -s {host} -p {port}',
                    'tcp',
                    r'end 0',
                    r'end 0',
                )
            ),
        ),
        *(
            (f'fio --verb={verb}', over(cm.needs('fio', cm.fio), verb, depth))
            for verb, depth in (('write', 4), ('read', 4), ('send', 1))
        ),
        ('fio --verb=send --verify=crc32c', over(cm.needs('fio', cm.fio_verified))),
        ('dtest', over(others.on_hosts(others.dtest, 1))),
        *(
            (f'{kind} {provider}', over(libfabric, kind, provider, 1))
            for kind, provider in fabric.TYPES[:3]
        ),
        *(
            (
                f'fi_pingpong {kind} {provider}',
                over(cm.needs('fi_pingpong', pingpong), kind, provider),
            )
            for kind, provider in fabric.PINGPONGS[:2]
        ),
    ]
