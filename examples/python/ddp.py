# SPDX-License-Identifier: BSD-2-Clause
"""Trains a small network by DistributedDataParallel, and goes on with one rank less when one dies.

    sidewire run -- python3 ddp.py --ranks 3 --die 1@25
    python3 ddp.py --ranks 3 --die 1@25 --backend gloo       # the same by gloo, which ends there

With --ranks it starts its ranks itself, on this host. Without it is one rank of a launcher, which
has set RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT.
"""

import argparse
import os
import signal
import socket
import subprocess
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

POINTS = 240  # of a step, whatever number of ranks there is


def points_of(step, rank, ranks):
    """This rank's share of the points of a step: two spirals, and which of them a point is of."""
    draw = torch.Generator().manual_seed(step)
    side = torch.randint(2, (POINTS, 1), generator=draw)
    angle = 4 * torch.rand(POINTS, 1, generator=draw)
    turned = angle + side * torch.pi
    points = torch.cat((turned.cos(), turned.sin()), 1) * angle
    return points[rank::ranks], side[rank::ranks].float()


def step_once(model, optimizer, step):
    points, side = points_of(step, dist.get_rank(), dist.get_world_size())
    loss = nn.functional.binary_cross_entropy_with_logits(model(points), side)
    optimizer.zero_grad()
    loss.backward()  # the gradients of all ranks are averaged in here
    mean = loss.detach()
    dist.all_reduce(mean)
    optimizer.step()
    return mean.item() / dist.get_world_size()


def agreed(step):
    """Where all go on: DDP hands them the weights of rank 0, which may be one step further."""
    value = torch.tensor([step])
    dist.broadcast(value, 0)
    return value.item()


def train(network, options):
    model, optimizer = DistributedDataParallel(network), torch.optim.SGD(network.parameters(), 0.5)
    step = agreed(options.step)
    while step < options.steps:
        options.step = step
        if options.die == f'{options.rank}@{step}':
            os.kill(os.getpid(), signal.SIGKILL)
        loss = step_once(model, optimizer, step)
        step += 1
        if step % 10 == 0 and dist.get_rank() == 0:
            print(f'step {step}: loss {loss:.3f}, {dist.get_world_size()} ranks', flush=True)


def be_rank(options):
    if options.backend == 'sidewire':
        import sidewire_torch
    options.rank = int(os.environ['RANK'])
    dist.init_process_group(options.backend)
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(2, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh())
    network.append(nn.Linear(64, 1))
    while True:
        try:
            return train(network, options)
        except RuntimeError as error:
            print(f'rank {options.rank}: {error}', file=sys.stderr, flush=True)
            if options.backend != 'sidewire':
                raise
            sidewire_torch.shrink()  # all that are left call it; the default group is theirs now


def start_ranks(count):
    with socket.socket() as free:
        free.bind(('127.0.0.1', 0))
        port = free.getsockname()[1]
    place = {'MASTER_ADDR': '127.0.0.1', 'MASTER_PORT': str(port), 'WORLD_SIZE': str(count)}
    ranks = [
        subprocess.Popen(
            [sys.executable, *sys.argv], env={**os.environ, **place, 'RANK': str(rank)}
        )
        for rank in range(count)
    ]
    statuses = [rank.wait() for rank in ranks]
    print(f'ranks ended with {statuses}')
    return max(statuses)  # a rank that was killed has a negative one


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('--backend', default='sidewire', choices=('sidewire', 'gloo'))
    parser.add_argument('--ranks', type=int, help='start so many on this host')
    parser.add_argument('--steps', type=int, default=60)
    parser.add_argument('--die', metavar='RANK@STEP', help='kill that rank in that step')
    options = parser.parse_args()
    if options.ranks and 'RANK' not in os.environ:
        return start_ranks(options.ranks)
    options.step = 0
    torch.set_num_threads(1)
    be_rank(options)
    dist.destroy_process_group()
    return 0


if __name__ == '__main__':
    sys.exit(main())
