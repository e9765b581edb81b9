#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""One rank of torch, for bench/lib/torch_rows.py; RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT say
which.

usage: torch_ranks.py BACKEND all_reduce|broadcast|all_to_all BYTES COUNT
       torch_ranks.py BACKEND ddp COUNT [view|copies]
       torch_ranks.py BACKEND first FOLDER

Each result is checked. Prints seconds as JSON: of one operation, of a step, or by CLOCK_MONOTONIC
when the rank began and when it had its first sum.

view: gradients lie in DDP's buckets. copies: no sums are made, so what is left is what DDP itself
does, which copies all gradients into its buckets and back.
"""
import contextlib
import json
import os
import statistics
import sys
import time

import torch
import torch.distributed as dist

BURST = 32  # short operations are measured by so many; a sum of two ranks doubles each time
SHORT = 4096
LAYERS, WIDTH, BATCH = 24, 1024, 4  # 101 MB of gradients


def fail(text):
    sys.exit(f'torch_ranks: rank {dist.get_rank()}: {text}')


def register(backend):
    if backend == 'sidewire':
        import sidewire_torch  # noqa: F401
    elif backend == 'nothing':
        import torch_nothing

        dist.Backend.register_backend('nothing', torch_nothing.create)


def short_all_reduce(count, does_sum):
    """The time of one; those of a burst are made on one tensor, whose values stay exact."""
    ranks, rank = dist.get_world_size(), dist.get_rank()
    first, times = sum(range(1, ranks + 1)), []
    for _ in range(max(count // BURST, 3)):
        values = torch.full((2,), rank + 1.0, dtype=torch.float32)
        begun = time.perf_counter()
        for _ in range(BURST):
            dist.all_reduce(values)
        times.append((time.perf_counter() - begun) / BURST)
        right = float(first * ranks ** (BURST - 1)) if does_sum else rank + 1.0
        if values.tolist() != [right] * 2:
            fail(f'{values.tolist()}, not {right}')
    return statistics.median(times)


class AllReduce:
    def __init__(self, count):
        ramp = torch.arange(count, dtype=torch.float32) % 1000
        ranks = dist.get_world_size()
        self.mine = ramp + dist.get_rank()
        self.values = torch.empty(count)
        self.right = ramp * ranks + sum(range(ranks))

    def prepare(self):
        self.values.copy_(self.mine)

    def run(self):
        dist.all_reduce(self.values)


class Broadcast:
    def __init__(self, count):
        self.right = torch.arange(count, dtype=torch.float32) % 1000
        self.values = torch.empty(count)

    def prepare(self):
        self.values.copy_(self.right) if dist.get_rank() == 0 else self.values.zero_()

    def run(self):
        dist.broadcast(self.values, 0)


class AllToAll:
    def __init__(self, count):
        ranks, rank = dist.get_world_size(), dist.get_rank()
        part = torch.arange(count // ranks, dtype=torch.float32) % 1000
        self.mine = torch.cat([part + rank * 10 + to for to in range(ranks)])
        self.right = torch.cat([part + by * 10 + rank for by in range(ranks)])
        self.values = torch.empty(count // ranks * ranks)

    def prepare(self):
        self.values.zero_()

    def run(self):
        dist.all_to_all_single(self.values, self.mine)


KINDS = {'all_reduce': AllReduce, 'broadcast': Broadcast, 'all_to_all': AllToAll}


def time_of(work, count):
    """By median, from a barrier on; the first two meet fresh pages."""
    times = []
    for _ in range(count + 2):
        work.prepare()
        dist.barrier()
        begun = time.perf_counter()
        work.run()
        times.append(time.perf_counter() - begun)
        if not torch.equal(work.values, work.right):
            fail('a wrong result')
    return statistics.median(times[2:])


def step(model, inputs, context):
    """The time of a forward and a backward pass."""
    begun = time.perf_counter()
    with context:
        model(inputs).square().mean().backward()
    return time.perf_counter() - begun


def check_gradients(model, inputs):
    """Those of a step are the means of all ranks' own."""
    model.zero_grad(set_to_none=True)
    step(model, inputs, model.no_sync())
    own = [each.grad.clone() for each in model.parameters()]
    model.zero_grad(set_to_none=True)
    step(model, inputs, contextlib.nullcontext())
    for parameter, value in zip(model.parameters(), own):
        dist.all_reduce(value)
        if not torch.allclose(parameter.grad, value / dist.get_world_size(), rtol=1e-3, atol=1e-6):
            fail('a wrong gradient')


def sum_nothing(_state, bucket):
    ended = torch.futures.Future()
    ended.set_result(bucket.buffer())
    return ended


def ddp(count, kind=''):
    torch.manual_seed(dist.get_rank())
    layers = [torch.nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS)]
    model = torch.nn.parallel.DistributedDataParallel(
        torch.nn.Sequential(*layers), gradient_as_bucket_view=kind == 'view'
    )
    inputs = torch.randn(BATCH, WIDTH)
    if kind == 'copies':
        model.register_comm_hook(None, sum_nothing)
    for _ in range(2):  # buckets are made anew after the first step
        if kind == 'copies':
            step(model, inputs, contextlib.nullcontext())
        else:
            check_gradients(model, inputs)
    synced, plain = [], []
    for _ in range(count):
        for times, context in ((synced, contextlib.nullcontext()), (plain, model.no_sync())):
            model.zero_grad(set_to_none=True)
            dist.barrier()
            times.append(step(model, inputs, context))
    one, other = statistics.median(synced), statistics.median(plain)
    return {'step_s': one, 'plain_s': other, 'exposed_s': max(one - other, 1e-6)}


def await_start(folder):
    with open(os.path.join(folder, f'ready.{os.environ["RANK"]}'), 'w'):
        pass
    while not os.path.exists(os.path.join(folder, 'go')):
        time.sleep(0.001)


def first(backend, folder):
    await_start(folder)
    begun = time.monotonic()
    register(backend)
    dist.init_process_group(backend)
    values = torch.ones(2)
    dist.all_reduce(values)
    ended = time.monotonic()
    if values.tolist() != [dist.get_world_size()] * 2:
        fail('a wrong sum')
    return {'begun_s': begun, 'first_s': ended}


def main(backend, kind, *words):
    torch.set_num_threads(1)
    if kind == 'first':
        found = first(backend, words[0])
    else:
        register(backend)
        dist.init_process_group(backend)
        if kind == 'ddp':
            found = ddp(int(words[0]), *words[1:])
        else:
            size, count = map(int, words)
            if size < SHORT:
                found = {'time_s': short_all_reduce(count, backend != 'nothing')}
            else:
                found = {'time_s': time_of(KINDS[kind](size // 4), count)}
    print(json.dumps(found), flush=True)
    dist.destroy_process_group()


if __name__ == '__main__':
    main(*sys.argv[1:])
