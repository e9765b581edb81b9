# SPDX-License-Identifier: BSD-2-Clause
"""Peers that behave, beside all that goes wrong: each checks what it has written, again and again,
and may fail only while the network is away."""
import os
import threading
import time

from world import SERVING, VISITING, run

PAUSE_S = 1


class Witness(threading.Thread):
    def __init__(self, name, visit, outages):
        super().__init__(daemon=True)
        self.name = name
        self.visit = visit
        self.outages = outages
        self.done = 0
        self.faults = []
        self.longest_s, self.longest_at = 0, 0
        self.ending = threading.Event()

    def run(self):
        while not self.ending.is_set():
            began = time.monotonic()
            said = self.visit()
            ended = time.monotonic()
            if self.outages.overlap(began, ended):
                continue
            if ended - began > self.longest_s:
                self.longest_s, self.longest_at = ended - began, began
            self.done += 1
            if said:
                self.faults.append(f'{self.name}: {said}')
            self.ending.wait(PAUSE_S)

    def end(self):
        self.ending.set()
        self.join()


class Outages:
    """When nobody could be reached, on purpose."""

    def __init__(self):
        self.spans = []  # of [from, until]

    def __enter__(self):
        self.spans.append([time.monotonic(), float('inf')])

    def __exit__(self, *_):
        self.spans[-1][1] = time.monotonic()

    def overlap(self, began, ended):
        return any(first <= ended and began <= last for first, last in self.spans)


def said_if_failed(*commands):
    for words in commands:
        status, said = run(words)
        if status:
            return said or f'status {status}'
    return ''


def of_nvme(world, host, offset):
    words = f'--verify --destroy-data -N 1 --size 4m --loops 1 --offset {offset}m'.split()
    return lambda: said_if_failed(world.nvme(host, 'bench', *words))


def of_pmem(world):
    path = world.path('pmem-data')

    def visit():
        data = os.urandom(1 << 20)
        with open(path, 'wb') as file:
            file.write(data)
        said = said_if_failed(world.pmem(VISITING, 'put', path))
        if said:
            return said
        said = said_if_failed(world.pmem(VISITING, 'get', '-b', str(len(data)), path + '-back'))
        if said:
            return said
        with open(path + '-back', 'rb') as file:
            return '' if file.read() == data else 'other bytes than were written'

    return visit


def of_transfer(world):
    path = world.path('transfer-data')
    with open(path, 'wb') as file:
        file.write(os.urandom(1 << 20))
    return lambda: said_if_failed(
        world.transfer(VISITING, 'write', '-r', 'moved', '--sums', path),
        world.transfer(SERVING, 'read', '-r', 'moved', '--sums', path + '-back'),
    )


def all_of(world, outages):
    return [
        Witness('NVMe on the same host', of_nvme(world, SERVING, 0), outages),
        Witness('NVMe from the other host', of_nvme(world, VISITING, 8), outages),
        Witness('persistent memory', of_pmem(world), outages),
        Witness('transfers', of_transfer(world), outages),
    ]
