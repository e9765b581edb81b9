# SPDX-License-Identifier: BSD-2-Clause
"""Gradients whose bits do not depend on how micro-batches are divided among ranks."""
import torch
import torch.distributed as dist

LEAVES_MAX = 64


class leaves:
    """A communication hook of DistributedDataParallel that takes `count` micro-batches of this rank
    to a step, and averages the gradients of all micro-batches of all ranks in one fixed tree:

        leaves = sidewire_torch.leaves(2)
        model.register_comm_hook(leaves, leaves.hook)
        for batch in batches:
            for micro_batch in split(batch, 2):
                loss(model(micro_batch)).backward()     # without no_sync()
            optimizer.step()
            optimizer.zero_grad()

    4 ranks with leaves(2) and 2 ranks with leaves(4) have the same gradients, bit for bit, if
    micro-batch number `rank * count + i` is the same. Until the last micro-batch of a step the
    gradients of the parameters are zero.
    """

    def __init__(self, count, group=None):
        if not 1 <= count <= LEAVES_MAX:
            raise ValueError(f'leaves are 1 to {LEAVES_MAX}, not {count}')
        self.count = count
        self.group = group
        # Gradients of earlier micro-batches. DistributedDataParallel makes its buckets anew after
        # its first backward pass, so each gradient is kept by its parameter.
        self._earlier = {}

    def hook(self, state, bucket):
        buffer, parameters, gradients = bucket.buffer(), bucket.parameters(), bucket.gradients()
        if len(self._earlier.get(parameters[0], ())) + 1 < self.count:
            for parameter, gradient in zip(parameters, gradients):
                self._earlier.setdefault(parameter, []).append(gradient.clone())
            future = torch.futures.Future()
            future.set_result(torch.zeros_like(buffer))
            return future
        rows = torch.empty((self.count, buffer.numel()), dtype=buffer.dtype)
        for parameter, gradient in zip(parameters, gradients):
            begin = gradient.storage_offset() - buffer.storage_offset()
            for row, earlier in zip(rows, self._earlier.pop(parameter, ())):
                row[begin : begin + gradient.numel()].copy_(earlier.reshape(-1))
        rows[self.count - 1].copy_(buffer)
        return average(rows, self.group)


def average(rows, group=None):
    """The average of the rows of all ranks, as a future of one row."""
    from sidewire_torch import _native_group

    work = _native_group(group).allreduce_leaves(rows, dist.ReduceOp.AVG)
    return work.get_future().then(lambda future: future.value()[0])
