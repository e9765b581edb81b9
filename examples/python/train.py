# SPDX-License-Identifier: BSD-2-Clause
"""Trains a small network, and goes on after any end as if there had been none: kill it amid an
epoch, start it with --resume, and the losses are the same, bit by bit.

    sidewire snapshot serve -l 127.0.0.1 --memory 64M --background
    sidewire run -- python3 train.py --steps 300 --losses out --snapshot peer:127.0.0.1/run,run.snap

--snapshot has one to three sinks between commas; a path is a file, which needs no `sidewire run`.
"""
import argparse
import os
import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

try:
    from sidewire.snapshot import RandomStates, Sampler, Snapshotter
except ImportError:  # in the tree where it was built
    sys.path.append(os.path.join(os.path.dirname(__file__), '../../build/bindings/python'))
    from sidewire.snapshot import RandomStates, Sampler, Snapshotter

POINTS, BATCH, WORKERS = 640, 32, 4


class Spirals(Dataset):
    """Two spirals, and which of them a point is of. Workers draw noise, by the seed of the key."""

    def __len__(self):
        return POINTS

    def __getitem__(self, key):
        index, seed = key
        draw = torch.Generator().manual_seed(seed)
        angle, side = torch.tensor(4.0 * index / POINTS), index % 2
        turned = angle + side * torch.pi
        point = torch.stack((turned.cos(), turned.sin())) * angle
        return point + 0.05 * torch.randn(2, generator=draw), torch.tensor([float(side)])


def network_of(width):
    layers = nn.Linear(2, width), nn.BatchNorm1d(width), nn.ReLU(), nn.Dropout(0.2)
    return nn.Sequential(*layers, nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1))


def train(options):
    torch.manual_seed(options.seed)
    network = network_of(options.width)
    optimizer = torch.optim.AdamW(network.parameters(), 0.01)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, options.steps)
    sampler = Sampler(POINTS, seed=options.seed, keyed=True)
    loader = DataLoader(Spirals(), BATCH, sampler=sampler, num_workers=options.workers)
    state = {'network': network, 'optimizer': optimizer, 'scheduler': scheduler}
    state.update(data=sampler, random=RandomStates(sampler))

    sinks = options.snapshot.split(',')
    with Snapshotter(state, sinks, quorum=options.quorum) as snapshots:
        step = (snapshots.restore() or 0) if options.resume else 0
        snapshots.attach(optimizer)  # optimizer.step() waits until all is captured
        with open_losses(options.losses, step) as losses:
            while step < options.steps:
                for points, sides in sampler.batches(loader):
                    loss = nn.functional.binary_cross_entropy_with_logits(network(points), sides)
                    optimizer.zero_grad()
                    loss.backward()
                    optimizer.step()
                    scheduler.step()
                    step += 1
                    losses.write(f'{loss.item()!r}\n')
                    losses.flush()
                    if step % options.every == 0 or step == options.steps:
                        snapshots.begin(step)
                    if step == options.steps:
                        break


def open_losses(path, step):
    """The file of losses, cut to those of the first steps: the others come once more."""
    kept = []
    if step:
        with open(path, encoding='ascii') as file:
            kept = file.readlines()[:step]
    if len(kept) < step or (kept and not kept[-1].endswith('\n')):
        sys.exit(f'{path} has {len(kept)} losses, and the snapshot is of step {step}')
    with open(path + '.new', 'w', encoding='ascii') as file:
        file.writelines(kept)
    os.replace(path + '.new', path)
    return open(path, 'a', encoding='ascii')


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('--steps', type=int, required=True)
    parser.add_argument('--losses', required=True, metavar='FILE', help='a loss a line')
    parser.add_argument('--snapshot', required=True, metavar='SINK[,SINK]', help='where states go')
    parser.add_argument('--resume', action='store_true', help='go on with the newest snapshot')
    parser.add_argument('--every', type=int, default=5, help='steps between snapshots')
    parser.add_argument('--quorum', type=int, default=1, help='so many sinks make it durable')
    parser.add_argument('--workers', type=int, default=WORKERS)
    parser.add_argument('--width', type=int, default=64)
    parser.add_argument('--seed', type=int, default=1)
    torch.set_num_threads(1)
    train(parser.parse_args())


if __name__ == '__main__':
    main()
