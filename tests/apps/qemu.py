# SPDX-License-Identifier: BSD-2-Clause
"""QEMU's migration by RDMA: a machine with random memory moves from one process to another, and its
memory is compared."""
import json
import os
import shutil
import socket
import time

import hosts
import pair
import ports
from pair import Failure, Process, Skip

QEMU = 'qemu-system-x86_64'
# No processor runs (-S), so no guest is needed: only memory moves.
MACHINE = '-M pc,accel=tcg -m 64 -S -nodefaults -display none -monitor none -serial none'.split()
AT, SIZE = 0x200000, 40 << 20
numbers = iter(range(1 << 30))


class Machine:
    """One process, asked by QMP."""

    def __init__(self, tools, wrap, options, run):
        self.path = tools.path(f'qmp.{next(numbers)}')
        self.process = Process(
            tools.run(
                QEMU,
                *MACHINE,
                '-qmp',
                f'unix:{self.path},server=on,wait=off',
                *options,
                wrap=wrap,
                **run,
            )
        )
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(pair.PATIENCE_S)
        limit = time.monotonic() + pair.PATIENCE_S
        while self.socket.connect_ex(self.path):
            if self.process.child.poll() is not None or time.monotonic() > limit:
                raise Failure(f'QEMU does not start\n{self.process.text()}')
            time.sleep(0.02)
        self.lines = self.socket.makefile('rw')
        self.lines.readline()
        self.ask('qmp_capabilities')

    def ask(self, command, **arguments):
        self.lines.write(json.dumps({'execute': command, 'arguments': arguments}) + '\n')
        self.lines.flush()
        while True:
            answer = json.loads(self.lines.readline() or '{"error": "QEMU has ended"}')
            if 'event' not in answer:
                break
        if 'error' in answer:
            raise Failure(f'{command}: {answer["error"]}\n{self.process.text()}')
        return answer['return']

    def end(self):
        self.socket.close()
        self.process.end()


def migrate(source, target, uri, pin_all):
    for machine in (source, target):
        machine.ask(
            'migrate-set-capabilities',
            capabilities=[{'capability': 'rdma-pin-all', 'state': pin_all}],
        )
    target.ask('migrate-incoming', uri=uri)
    source.ask('migrate', uri=uri)
    limit = time.monotonic() + pair.PATIENCE_S
    for machine in (source, target):
        while (state := machine.ask('query-migrate').get('status')) != 'completed':
            if state == 'failed' or time.monotonic() > limit:
                raise Failure(
                    f'migration: {state}\n--- source:\n{source.process.text()}--- target:\n'
                    f'{target.process.text()}'
                )
            time.sleep(0.05)


def move(tools, wraps=((), ()), address='127.0.0.1', pin_all=False, **run):
    if not shutil.which(QEMU):
        raise Skip(f'{QEMU} is not installed')
    memory, arrived = (tools.path(f'memory.{next(numbers)}') for _ in range(2))
    data = os.urandom(SIZE // 2)
    machines = []
    try:
        with open(memory, 'wb') as file:
            file.write(data + data)
        machines.append(
            Machine(
                tools, wraps[0], ['-device', f'loader,file={memory},addr={AT},force-raw=on'], run
            )
        )
        machines.append(Machine(tools, wraps[1], ['-incoming', 'defer'], run))
        migrate(*machines, f'rdma:{address}:{ports.claim()}', pin_all)
        machines[1].ask('pmemsave', val=AT, size=SIZE, filename=arrived)
        with open(arrived, 'rb') as file:
            if file.read() != data + data:
                raise Failure('the memory that arrived is another')
    finally:
        for machine in machines:
            machine.end()


def on_hosts(tools):
    two = hosts.Hosts()
    try:
        move(tools, wraps=two.wrap, address=hosts.ADDRESSES[1])
    finally:
        two.close()


def cases():
    return [
        ('migration', move),
        ('migration, all memory registered first', lambda tools: move(tools, pin_all=True)),
        *(
            (f'migration by {way}', lambda tools, way=way: move(tools, direct=way))
            for way in ('cma', 'ring')
        ),
        ('migration over packets', lambda tools: move(tools, link='roce')),
        ('migration to another host', on_hosts),
    ]
