# SPDX-License-Identifier: BSD-2-Clause
"""Ranks that save a state by torch's distributed checkpoint, or load it and compare; or that train,
each with a state of its own, until one is killed, and go on.

usage: checkpoint_ranks.py SINK save|load,WORLD,rows|columns... train,WORLD,KILLED...

One after another, each by WORLD ranks. They are forked, since torch takes long to be imported.
"""
import os
import socket
import sys
import traceback

from needs import torch

from sidewire.snapshot import Snapshotter, SnapshotError
from sidewire.snapshot.checkpoint import StorageReader, StorageWriter, dcp
from torch import distributed
from torch.distributed._shard import sharded_tensor
from torch.distributed._shard.metadata import ShardMetadata
from torch.distributed._shard.sharded_tensor.metadata import TensorProperties

ROWS, COLUMNS = 11, 7  # no number of ranks divides them
FULL = torch.arange(float(ROWS * COLUMNS)).reshape(ROWS, COLUMNS)


def part_of(length, rank, world):
    """The first have the most; with 5 ranks of 11 rows the last has fewer, with 7 one has none."""
    each = -(-length // world)
    begin = min(length, rank * each)
    return begin, min(length, begin + each)


def box_of(by, rank, world):
    if by == 'rows':
        begin, end = part_of(ROWS, rank, world)
        return [begin, 0], [end - begin, COLUMNS]
    begin, end = part_of(COLUMNS, rank, world)
    return [0, begin], [ROWS, end - begin]


def sharded(by, rank, world, kind, is_filled):
    boxes = [box_of(by, one, world) for one in range(world)]
    places = [
        ShardMetadata(at, sizes, f'rank:{one}/cpu')
        for one, (at, sizes) in enumerate(boxes)
        if min(sizes)
    ]
    (top, left), (rows, columns) = boxes[rank]
    part = FULL[top : top + rows, left : left + columns].to(kind)
    local = part.clone() if is_filled else torch.zeros_like(part)
    mine = [sharded_tensor.Shard(local, one) for one in places if one.placement.rank() == rank]
    whole = sharded_tensor.ShardedTensorMetadata(places, FULL.size(), TensorProperties(dtype=kind))
    made = sharded_tensor.ShardedTensor._init_from_local_shards_and_global_metadata(mine, whole)
    return made, local, part


def distributed_tensor(by, rank, world, is_filled):
    """The same of torch 2, which deals it out itself."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor

    dealt = [Shard(0 if by == 'rows' else 1)]
    full = FULL.clone() if is_filled else torch.zeros_like(FULL)
    made = distribute_tensor(full, init_device_mesh('cpu', (world,)), dealt)
    (top, left), (rows, columns) = box_of(by, rank, world)
    return made, made.to_local(), FULL[top : top + rows, left : left + columns]


def state_of(by, rank, world, is_filled):
    """(state, what was given to its tensors, what they should be)."""
    kinds = {'weight': torch.float32, 'half': torch.bfloat16}
    shards = {name: sharded(by, rank, world, kind, is_filled) for name, kind in kinds.items()}
    if hasattr(dcp, 'save'):
        shards['dealt'] = distributed_tensor(by, rank, world, is_filled)
    state = {name: made for name, (made, _, _) in shards.items()}
    tied = torch.arange(5.0) if is_filled else torch.zeros(5)
    state.update(plain=tied, tied=tied if is_filled else torch.zeros(5))
    state.update(empty=torch.zeros(0, 4), one=torch.tensor(3.5 if is_filled else 0.0))
    # Objects: to save them pickled was torch's way. torch 2 asks for each by its place.
    moment = torch.ones(3) if is_filled else torch.zeros(3)
    moments = {0: {'moment': moment, 'step': 7 if is_filled else 0}}
    state['optimizer'] = {'state': moments, 'betas': (0.9, 0.999) if is_filled else None}
    return state, shards


def check(state, shards):
    for name, (_, local, part) in shards.items():
        assert torch.equal(local, part), (name, local, part)
    assert torch.equal(state['plain'], torch.arange(5.0)), state['plain']
    assert torch.equal(state['tied'], torch.arange(5.0)), state['tied']
    assert state['one'].item() == 3.5
    found = state['optimizer']
    assert found['betas'] == (0.9, 0.999) and found['state'][0]['step'] == 7, found
    assert torch.equal(found['state'][0]['moment'], torch.ones(3)), found


def train(sink, killed, rank, world):
    """Ten steps more than the snapshot has; the rank `killed` ends amid the eighth."""
    weights, total = torch.zeros(200000), [0]
    snapshots = Snapshotter({'weights': weights, 'total': total}, sink, rank=rank, world=world)
    begun = snapshots.restore() or 0
    assert weights.unique().tolist() == [begun * (rank + 1)], (rank, begun, weights)
    assert total == [begun], total
    said = torch.tensor([begun])
    distributed.broadcast(said, 0)
    assert said.item() == begun, 'the ranks go on from different steps'
    for step in range(begun + 1, begun + 11):
        if step == 8 and killed == rank:
            os._exit(0)
        snapshots.gate()
        weights += rank + 1
        total[0] += 1
        try:
            snapshots.begin(step)
            snapshots.gate()
            snapshots.durable.wait(30)
        except SnapshotError as error:
            assert killed >= 0 and error.status in ('OTHER_RANK', 'LOST'), error.status
            break
    if killed < 0:
        assert snapshots.info().durable_step == begun + 10 and begun in (0, 7), begun
        distributed.barrier()
    snapshots.close()


def be_rank(order, sink, by, rank, world):
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(world))
    distributed.init_process_group('gloo')
    if order == 'train':
        train(sink, int(by), rank, world)
        return
    state, shards = state_of(by, rank, world, order == 'save')
    if order == 'save':
        save = dcp.save if hasattr(dcp, 'save') else dcp.save_state_dict
        writer = StorageWriter(sink)
        save(state, storage_writer=writer)
        writer.close()
    else:
        load = dcp.load if hasattr(dcp, 'load') else dcp.load_state_dict
        load(state, storage_reader=StorageReader(sink))
        check(state, shards)
    distributed.barrier()
    distributed.destroy_process_group()


def fork_rank(*words):
    child = os.fork()
    if child:
        return child
    status = 1
    try:
        be_rank(*words)
        status = 0
    except BaseException:  # torch's own is no Exception
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)


def main(sink, *orders):
    # Debian's torch 2 is built without the other one.
    os.environ.update(MASTER_ADDR='127.0.0.1', USE_LIBUV='0')
    for order in orders:
        what, world, by = order.split(',')
        with socket.socket() as free:
            free.bind(('127.0.0.1', 0))
            os.environ['MASTER_PORT'] = str(free.getsockname()[1])
        ranks = [fork_rank(what, sink, by, rank, int(world)) for rank in range(int(world))]
        statuses = [os.waitstatus_to_exitcode(os.waitpid(rank, 0)[1]) for rank in ranks]
        if any(statuses):
            sys.exit(f'{order}: ranks ended with {statuses}')


if __name__ == '__main__':
    main(*sys.argv[1:])
