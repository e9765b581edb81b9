# SPDX-License-Identifier: BSD-2-Clause
"""What the tests train: points of spirals that wind around each other, and a small network that
says which spiral a point is of, by DistributedDataParallel. A job says how."""

import contextlib
import dataclasses
import itertools

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.join import Join
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

SPIRALS, INPUTS = 3, 16
# DDP's first bucket has 1 MiB in any case: there have to be more than that.
WIDTH, MIDDLE = 384, 3
BATCH = 24


@dataclasses.dataclass(frozen=True)
class Job:
    steps: int = 6
    micro: int = 1  # batches of a rank for each step of the optimizer
    leaves: bool = False  # ... each of them a contribution of its own to the sum
    dropout: float = 0.0
    has_norm: bool = False  # a batch norm, whose buffers rank 0 hands to the others
    has_branch: bool = False  # each step leaves parameters without a gradient
    is_uneven: bool = False  # later ranks have more batches
    has_zero: bool = False  # each rank keeps the optimizer's state of a part of the parameters
    bucket_mb: float = 25.0


class Network(nn.Module):
    def __init__(self, job):
        super().__init__()
        self.enter = nn.Linear(INPUTS, WIDTH)
        self.norm = nn.BatchNorm1d(WIDTH) if job.has_norm else nn.Identity()
        self.dropout = nn.Dropout(job.dropout)
        self.middle = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(MIDDLE))
        self.leave = nn.Linear(WIDTH, SPIRALS)
        self.has_branch = job.has_branch

    def forward(self, points, turn):
        values = torch.relu(self.norm(self.enter(points)))
        chosen = [self.middle[turn % MIDDLE]] if self.has_branch else self.middle
        for layer in chosen:
            values = self.dropout(torch.relu(layer(values)))
        return self.leave(values)


def batch_of(number):
    """The points of a batch and their spirals: alike on every rank that asks for that number."""
    draw = torch.Generator().manual_seed(1000 + number)
    spiral = torch.randint(SPIRALS, (BATCH,), generator=draw)
    radius = torch.rand(BATCH, generator=draw)
    angle = 4 * radius + spiral * (2 * torch.pi / SPIRALS)
    flat = torch.stack((radius * angle.cos(), radius * angle.sin()), 1)
    flat += 0.02 * torch.randn(BATCH, 2, generator=draw)
    spread = torch.randn(2, INPUTS, generator=torch.Generator().manual_seed(7))
    return torch.sin(3 * flat @ spread), spiral


def optimizer_of(job, model):
    kind = {'lr': 0.002, 'weight_decay': 0.01}
    if job.has_zero:
        return ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, **kind)
    return torch.optim.Adam(model.parameters(), **kind)


def steps_of(job, model, rank, ranks):
    """Yields after each backward pass, with the loss: (is it the last of a step, loss)"""
    per_rank = job.steps + (rank if job.is_uneven else 0)
    for step, part in itertools.product(range(per_rank), range(job.micro)):
        leaf = rank * job.micro + part
        number = step * ranks * job.micro + leaf
        torch.manual_seed(number)  # what drops out is the batch's, not the rank's
        points, spiral = batch_of(number)
        is_last = part == job.micro - 1
        own = contextlib.nullcontext() if is_last or job.leaves else model.no_sync()
        with own:
            loss = nn.functional.cross_entropy(model(points, step), spiral)
            (loss if job.leaves else loss / job.micro).backward()
        yield is_last, loss.item()


def train(job):
    """Trains in the default group; the weights and what a test wants to know of the way."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(3)
    model = DistributedDataParallel(
        Network(job), bucket_cap_mb=job.bucket_mb, find_unused_parameters=job.has_branch
    )
    if job.leaves:
        import sidewire_torch

        leaves = sidewire_torch.leaves(job.micro)
        model.register_comm_hook(leaves, leaves.hook)
    optimizer = optimizer_of(job, model)
    losses = []
    joined = [model, optimizer] if job.has_zero else [model]
    with Join(joined) if job.is_uneven else contextlib.nullcontext():
        for is_last, loss in steps_of(job, model, rank, ranks):
            losses.append(loss)
            if is_last:
                optimizer.step()
                optimizer.zero_grad()
    log = model._get_ddp_logging_data()
    return {
        'weights': {name: value.detach().clone() for name, value in model.named_parameters()},
        'losses': losses,
        'buckets': len(log.get('rebuilt_bucket_sizes', log['bucket_sizes']).split(',')),
    }
