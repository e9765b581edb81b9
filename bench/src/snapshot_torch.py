# SPDX-License-Identifier: BSD-2-Clause
"""What saving costs the steps of a training in torch, for bench/lib/snapshot_rows.py.

usage: snapshot_torch.py WAY FOLDER BYTES STEPS

Each turn has steps without a save, and then as many beside saves: the next one begins when the one
before has ended. Prints one JSON object: seconds that a step took more, and all steps.
"""
import copy
import json
import os
import statistics
import sys
import threading
import time

import torch

WAY, FOLDER, BYTES, STEPS = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
TURNS, WIDTH, ROWS = 3, 1024, 8


def make_model():
    # Weights, and the momentum of each
    layers = max(1, BYTES // (2 * 4 * WIDTH * WIDTH))
    return torch.nn.Sequential(*[torch.nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(layers)])


class Saver:
    """Nothing is saved."""

    def __init__(self, model, optimizer):
        self.model, self.optimizer = model, optimizer
        self.path = os.path.join(FOLDER, 'saved')

    def state(self):
        return {'model': self.model.state_dict(), 'optimizer': self.optimizer.state_dict()}

    def begin(self, step):
        pass

    def finish(self):
        pass


class Written(Saver):
    """torch.save() and fsync(), in the step."""

    def write(self, state):
        with open(self.path, 'wb') as file:
            torch.save(state, file)
            file.flush()
            os.fsync(file.fileno())

    def begin(self, step):
        self.write(self.state())


class Threaded(Written):
    """A copy in the step, and the rest in a thread."""

    thread = None

    def begin(self, step):
        if self.thread and self.thread.is_alive():
            return
        state = copy.deepcopy(self.state())
        self.thread = threading.Thread(target=self.write, args=(state,))
        self.thread.start()

    def finish(self):
        if self.thread:
            self.thread.join()


class Forked(Written):
    """A child that has the memory as it was."""

    child = 0

    def has_ended(self, flags):
        return not self.child or os.waitpid(self.child, flags)[0] != 0

    def begin(self, step):
        if not self.has_ended(os.WNOHANG):
            return
        self.child = os.fork()
        if not self.child:
            self.write(self.state())
            os._exit(0)

    def finish(self):
        self.has_ended(0)
        self.child = 0


class Distributed(Saver):
    """Distributed checkpoints of torch 1.13, or as they are called now."""

    def begin(self, step):
        # Torch 1.13's cannot be imported by itself with Python 3.11
        from sidewire.snapshot.checkpoint import dcp

        writer = dcp.FileSystemWriter(self.path)
        dcp.save_state_dict(self.model.state_dict(), writer, no_dist=True)


class Sidewire(Saver):
    def __init__(self, model, optimizer):
        super().__init__(model, optimizer)
        from sidewire.snapshot import Snapshotter

        state = {'model': model, 'optimizer': optimizer}
        self.snapshots = Snapshotter(state, f'file:{self.path}.snap')
        self.snapshots.attach(optimizer)
        self.last = None

    def begin(self, step):
        if self.last is None or self.last.durable.done():
            self.last = self.snapshots.begin(step)

    def finish(self):
        if self.last is not None:
            self.last.durable.wait()


WAYS = {
    'sidewire': Sidewire,
    'torch.save': Written,
    'thread': Threaded,
    'fork': Forked,
    'distributed': Distributed,
}


def main():
    torch.manual_seed(1)
    torch.set_num_threads(1)
    model = make_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, momentum=0.9)
    data = torch.randn(ROWS, WIDTH)
    steps = {False: [], True: []}

    def step(number, saver):
        begun = time.perf_counter()
        loss = model(data).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if saver:
            saver.begin(number)
        return time.perf_counter() - begun

    number = 0
    step(number, None)  # the optimizer has its state now
    saver = WAYS[WAY](model, optimizer)
    for turn in range(TURNS + 1):
        for is_saving in False, True:
            for _ in range(STEPS):
                number += 1
                took = step(number, saver if is_saving else None)
                if turn:  # the first one makes files and memory
                    steps[is_saving].append(took)
            saver.finish()
    cost = statistics.mean(steps[True]) - statistics.mean(steps[False])
    print(json.dumps({'cost_s': cost, 'alone_steps': steps[False], 'saving_steps': steps[True]}))


if __name__ == '__main__':
    main()
