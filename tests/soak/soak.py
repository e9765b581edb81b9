#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""An hour in which hosts are killed, stopped and cut off, connect by the thousand, and the disk
gets full, beside peers that behave. The servers of all movers must serve on, and hold in the end
what they held in the beginning.

usage: soak.py SIDEWIRE CONNECTS [--minutes M] [--seed N] [--out FOLDER]
"""
import argparse
import os
import random
import subprocess
import sys
import tempfile
import threading
import time

import report
import trouble
import witness
import world as worlds

MOVED = 'SIDEWIRE_SOAK_MOVED'
SAMPLE_S = 2
SETTLE_S = 180  # until what was held for the dead is let go
IDLE_S = 15  # until sockets of streams that have ended are closed
STEADY = 5  # samples that are alike, a second apart
# Rings and buffers are taken as far as they are used, and reused from then on: by so many visits of
# each peer and connects, which shorter runs have fewer of.
WARM_VISITS, WARM_CONNECTS, WARM_MINUTES = 200, 4, 20
# The memory that the allocator keeps differs by a little from run to run, and so do the descriptors
# of a device: of flows of packets. Neither adds up with the hosts.
SLACK_KIB, SLACK_SHARE, SLACK_DESCRIPTORS = 2048, 0.05, 8


def move_to_own_mounts():
    """The file system that gets full is gone with this process."""
    if os.geteuid():
        print('SKIP: network namespaces and file systems need root')
        sys.exit(77)
    if MOVED not in os.environ:
        os.environ[MOVED] = '1'
        words = ['unshare', '--mount', '--propagation', 'private', sys.executable, *sys.argv]
        os.execvp('unshare', words)


def draw_plan(minutes, chance):
    """So many of each kind, in random order."""
    plan = []
    for kind, (in_an_hour, _) in trouble.KINDS.items():
        count = in_an_hour / trouble.AT_A_TIME.get(kind, 1) * minutes / 60
        plan += [kind] * max(1, round(count))
    chance.shuffle(plan)
    return plan


class Sampler(threading.Thread):
    def __init__(self, world):
        super().__init__(daemon=True)
        self.world = world
        self.began = time.monotonic()
        self.ending = threading.Event()

    def now(self):
        return time.monotonic() - self.began

    def run(self):
        while not self.ending.is_set():
            self.world.sample(self.now())
            self.ending.wait(SAMPLE_S)


def settle(world, base=None):
    """Waits until each server holds no more than it did, or until that stands still: within what is
    allowed, if there is a base. Returns what each holds, by name."""
    if base is None:
        time.sleep(IDLE_S)
    limit = time.monotonic() + SETTLE_S
    seen = []
    while time.monotonic() < limit:
        held = {server.name: server.holds() for server in world.servers}
        seen = [*seen[-STEADY + 1 :], held]
        stands = len(seen) == STEADY and all(other == held for other in seen)
        if base is None and stands:
            return held
        if base is not None and all(
            now <= before for name in base for now, before in zip(held[name], base[name])
        ):
            return held
        if base is not None and stands and is_all_as_before(base, held):
            return held
        time.sleep(1)
    return held


def is_as_before(base, held):
    kib, descriptors = base
    return (
        held[1] <= descriptors + SLACK_DESCRIPTORS
        and held[0] <= kib * (1 + SLACK_SHARE) + SLACK_KIB
    )


def is_all_as_before(base, held):
    return all(is_as_before(base[name], held[name]) for name in base)


def fill_memory(world):
    """Memory is taken when it is written. All of it, so that it grows no more. What the other host
    writes, the server's own process puts in its place, and it has the pages then."""
    words = '--verify --destroy-data --bs 1m --iodepth 8 --loops 1'.split()
    zeros = world.path('zeros')
    with open(zeros, 'wb') as file:
        file.truncate(worlds.MEMORY_BYTES)
    for command in (
        *(
            world.nvme(worlds.SERVING, 'bench', *words, '-N', str(nsid), '--size', size)
            for nsid, size in enumerate(worlds.NAMESPACES, 1)
        ),
        world.transfer(worlds.VISITING, 'write', '-r', 'memory', zeros),
    ):
        status, said = worlds.run(command)
        if status:
            raise RuntimeError(f'{" ".join(command)}: {said}')


def make_trouble(world, kind, chance, outages, counts, faults):
    begun = time.monotonic()
    try:
        if kind is trouble.restart_network:
            with outages:
                done = kind(world, chance)
        else:
            done = kind(world, chance)
        counts[kind] += done
    except trouble.Fault as fault:
        faults.append(f'{kind.__name__}: {fault}')
        print('FAIL', faults[-1], flush=True)
    except subprocess.CalledProcessError as error:
        faults.append(f'{kind.__name__}: {error}')
    faults += [f'{server.name} has ended: {server.said()[-500:]}' for server in world.dead()]
    return time.monotonic() - begun


def warm_up(world, witnesses, share, chance, outages):
    faults = []
    for _ in range(round(WARM_CONNECTS * share)):
        make_trouble(world, trouble.connect, chance, outages, {trouble.connect: 0}, faults)
    for _ in range(max(1, round(WARM_VISITS * share))):
        faults += [said for thread in witnesses if (said := thread.visit())]
    return faults


def soak(world, options, chance):
    faults, counts, outages = [], dict.fromkeys(trouble.KINDS, 0), witness.Outages()
    warm = dict(counts)
    fill_memory(world)
    print('one of each first, so that what is taken once is there ...', flush=True)
    for kind in trouble.KINDS:
        make_trouble(world, kind, chance, outages, warm, faults)
    sampler, witnesses = Sampler(world), witness.all_of(world, outages)
    faults += warm_up(world, witnesses, min(1, options.minutes / WARM_MINUTES), chance, outages)
    base = settle(world)
    kinds = {server.name: server.descriptors() for server in world.servers}
    plan = draw_plan(options.minutes, chance)
    for thread in (sampler, *witnesses):
        thread.start()
    for number, kind in enumerate(plan):
        if world.dead():
            break
        due_s = options.minutes * 60 * number / len(plan) - sampler.now()
        time.sleep(max(0, due_s))
        took_s = make_trouble(world, kind, chance, outages, counts, faults)
        print(
            f'{sampler.now() / 60:6.1f} min {number + 1:4}/{len(plan)}  {kind.__name__:16}'
            f'{took_s:6.1f} s',
            flush=True,
        )
    for thread in witnesses:
        thread.end()
    faults += [fault for thread in witnesses for fault in thread.faults]
    faults += [f'{thread.name} was never served' for thread in witnesses if not thread.done]
    held = base if world.dead() else settle(world, base)
    sampler.ending.set()
    sampler.join()
    for server in world.servers:
        before, now = base[server.name], held[server.name]
        if not is_as_before(before, now):
            more = dict(server.descriptors() - kinds[server.name]) if server.is_alive() else {}
            faults.append(
                f'{server.name} holds {now} (KiB, descriptors), before {before}; more are {more}'
            )
    report.write(options.out, world.servers, base, held, counts, witnesses, sampler.began)
    return faults


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('sidewire')
    parser.add_argument('connects')
    parser.add_argument('--minutes', type=float, default=60)
    parser.add_argument('--seed', type=int, default=random.randrange(1 << 31))
    parser.add_argument('--out', default='build/soak')
    options = parser.parse_args()
    move_to_own_mounts()
    print(f'seed {options.seed}, {options.minutes:g} minutes', flush=True)
    with tempfile.TemporaryDirectory() as folder:
        os.environ['XDG_RUNTIME_DIR'] = folder
        try:
            world = worlds.World(options.sidewire, options.connects, folder)
        except worlds.Skip as skip:
            print(f'SKIP: {skip}')
            return 77
        try:
            faults = soak(world, options, random.Random(options.seed))
        finally:
            world.close()
    for fault in faults:
        print('FAIL', fault)
    print(f'{len(faults)} faults; once more: soak.py ... --seed {options.seed}')
    return 1 if faults else 0


if __name__ == '__main__':
    sys.exit(main())
