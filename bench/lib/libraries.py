# SPDX-License-Identifier: BSD-2-Clause
"""What is measured of libraries over verbs: libfabric's ping-pong, gloo's broadcast, the C++
header."""

import json
import os
import re
import shutil
import tempfile

import between
import procs
from between import CLIENT, SERVER
from connections import Here
from experiment import Experiment
from load import beside_load
from programs import CLIENT_CPU, SERVER_CPU, pin

MTU = 9000
SHORT = 64
BROADCAST = 4 << 20
GLOO = '/usr/include/gloo/transport/ibverbs/device.h'
SOURCES = os.path.join(os.path.dirname(os.path.abspath(__file__)), '../src')
# How the requests of header_rate are posted, and its option.
LISTS = {'lists of 32': '32', 'one by one': '1'}

# fmt: off
ROWS = [
    *(
        (f'hosts: fi_pingpong msg of {SHORT} B, {state}, and tcp', 'hosts_libfabric',
         f'verbs {state}', f'tcp {state}', 'mean_s', 'us', True, 1.0, 0.8)
        for state in ('idle', 'busy')
    ),
    ('gloo: broadcast of 4 MiB, and TCP', 'gloo', 'ibverbs', 'tcp', 'median_s', 'us', True, 1.0,
     0.7),
    ('hosts: gloo broadcast of 4 MiB, and TCP', 'hosts_gloo', 'ibverbs', 'tcp', 'median_s', 'us',
     True, 1.0, 0.7),
    *(
        (f'C++ header: an 8 B WRITE, {how}, and raw verbs', 'cpp_header', f'header, {how}',
         f'raw, {how}', 'mean_s', 's', True, 1.1, 1.03)
        for how in LISTS
    ),
]
# fmt: on


def fi_pingpong(two, provider, count):
    """The mean time of a message, one way."""
    if not shutil.which('fi_pingpong'):
        raise procs.Skipped('fi_pingpong is not installed')
    port = procs.free_port()
    command, domains = (
        ([], two.hosts.names) if provider == 'tcp' else (two.command, two.hosts.device)
    )

    def words(side):
        return [
            *command,
            'fi_pingpong',
            '-p',
            provider,
            '-e',
            'msg',
            '-d',
            domains[side],
            *f'-S {SHORT} -I {count}'.split(),
            '-P' if side == CLIENT else '-B',
            str(port),
        ]

    return {'mean_s': parse_pingpong(two.both(words, port, 60))}


def parse_pingpong(text):
    """The latency in its only row: microseconds are the last column but one."""
    found = re.search(rf'^{SHORT}\s.*\s([0-9.]+)\s+[0-9.]+\s*$', text, re.M)
    if not found:
        raise procs.RunFailed(f'fi_pingpong printed no result:\n{text[-800:]}')
    return float(found[1]) * 1e-6


def gloo_program(bench, name):
    """The path of a program of bench/src; built when it is first asked for, or has changed."""
    if not shutil.which('g++') or not os.path.exists(GLOO):
        raise procs.Skipped('g++ or libgloo-dev is not installed')
    source, path = os.path.join(SOURCES, f'{name}.cc'), os.path.join(bench.source, name)
    if not os.path.exists(path) or os.path.getmtime(path) < os.path.getmtime(source):
        procs.run(
            [
                *'g++ -std=c++17 -O2 -Wall -Wextra'.split(),
                '-Wno-sign-compare',
                source,
                '-lgloo',
                '-libverbs',
                '-o',
                path,
            ],
            120,
        )
    return path


def broadcast(bench, words_of, count):
    """One run of both ranks; words_of(side, rank's words) puts a rank on its core. Figures of the
    rank that receives."""
    program = gloo_program(bench, 'gloo_broadcast')
    with tempfile.TemporaryDirectory(prefix='bench-gloo-') as store:
        commands = [
            words_of(
                side,
                lambda *way, rank=rank: [
                    program,
                    str(rank),
                    store,
                    *way,
                    str(BROADCAST),
                    str(count),
                ],
            )
            for rank, side in enumerate((SERVER, CLIENT))
        ]
        found = json.loads(procs.run_all(commands, 60)[1])
    return {name.replace('_us', '_s'): value * 1e-6 for name, value in found.items()}


def libfabric(bench):
    two, count = between.Between(bench.sidewire, MTU), 200000 // bench.divide
    measures = {
        provider: lambda provider=provider: fi_pingpong(two, provider, count)
        for provider in ('verbs', 'tcp')
    }
    return Experiment(
        'hosts_libfabric',
        'libfabric between hosts',
        {
            **{f'{provider} idle': measure for provider, measure in measures.items()},
            **{f'{provider} busy': beside_load(measure) for provider, measure in measures.items()},
        },
        place=two,
        loads=True,
    )


def gloo(bench):
    here, count = Here(bench.sidewire), 500 // bench.divide

    def words(side, way):
        return [
            *pin(SERVER_CPU if side == SERVER else CLIENT_CPU),
            *here.sidewire.command,
            *way('ibverbs', here.sidewire.device, '1'),
        ]

    return Experiment(
        'gloo',
        'gloo on one host',
        {
            'ibverbs': lambda: broadcast(bench, words, count),
            'tcp': lambda: broadcast(
                bench,
                lambda side, way: [
                    *pin(SERVER_CPU if side == SERVER else CLIENT_CPU),
                    *way('tcp', '127.0.0.1'),
                ],
                count,
            ),
        },
    )


def hosts_gloo(bench):
    two, count = between.Between(bench.sidewire, MTU), 500 // bench.divide
    return Experiment(
        'hosts_gloo',
        'gloo between hosts',
        {
            'ibverbs': lambda: broadcast(
                bench,
                lambda side, way: two.on(
                    side, [*two.command, *way('ibverbs', two.hosts.device[side], two.gids[side])]
                ),
                count,
            ),
            'tcp': lambda: broadcast(
                bench,
                lambda side, way: two.on(side, way('tcp', between.hosts.ADDRESSES[side])),
                count,
            ),
        },
        place=two,
    )


def header_rate(bench, way, size):
    program = os.path.join(bench.source, 'header_rate')
    if not os.path.exists(program):
        raise procs.Skipped('header_rate is not built: g++ was not there')
    cpus = ','.join(pin(cpu)[-1] if pin(0) else '0' for cpu in (CLIENT_CPU, SERVER_CPU))
    ops = str(5000000 // bench.divide)
    found = json.loads(
        procs.run(bench.program('header_rate', '-w', way, '-l', size, '-c', cpus, '-n', ops), 60)
    )
    return {'mean_s': found['op_s']}


def cpp_header(bench):
    """One program that does all but requests and completions alike."""
    return Experiment(
        'cpp_header',
        'the C++ header',
        {
            f'{way}, {how}': lambda way=way, size=size: header_rate(bench, way, size)
            for how, size in LISTS.items()
            for way in ('header', 'raw')
        },
        rounds_factor=2,
    )


def experiments(bench):
    return [libfabric(bench), gloo(bench), hosts_gloo(bench), cpp_header(bench)]
