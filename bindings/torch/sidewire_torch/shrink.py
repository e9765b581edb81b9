# SPDX-License-Identifier: BSD-2-Clause
"""A process group of the ranks that are left."""
import datetime

import torch
import torch.distributed as dist


def shrink(group=None, timeout=None):
    """Makes the ranks that are left the default group, in their order, after an operation has
    failed because ranks are gone; returns it. All that are left call it. It ends all other groups.
    Objects that hold one, as DistributedDataParallel does, have to be made anew.

    The new group has a store of its own, so rank 0 may be among those that are gone.
    """
    import sidewire_torch

    if group is not None and group is not dist.group.WORLD:
        raise ValueError(
            'shrink() is of the default group, which has lost a rank, too, if another group has: '
            'shrink that one, and make the other anew by new_group()'
        )
    old = sidewire_torch._native_group()
    timeout_ms = 0 if timeout is None else round(timeout.total_seconds() * 1000)
    rest = old.shrink_to_rest(timeout_ms)
    store = _make_store(rest, timeout or datetime.timedelta(minutes=5))
    rank, size = rest.rank(), rest.size()
    dist.destroy_process_group()
    sidewire_torch._shrunk = rest
    try:
        dist.init_process_group('sidewire', store=store, rank=rank, world_size=size)
    finally:
        sidewire_torch._shrunk = None
    return dist.group.WORLD


def _make_store(group, timeout):
    """The first rank opens a store; the others are told by the group where it is."""
    import sidewire_torch

    is_first = group.rank() == 0
    words = torch.zeros(256, dtype=torch.uint8)
    store = None
    if is_first:
        host = sidewire_torch._own_address()
        store = _open_store(host, 0, group.size(), True, timeout)
        said = f'{host} {store.port}'.encode()
        words[: len(said)] = torch.tensor(list(said), dtype=torch.uint8)
    options = dist.BroadcastOptions()
    options.rootRank = 0
    options.rootTensor = 0
    group.broadcast([words], options).wait()
    if is_first:
        return store
    host, port = bytes(words.tolist()).rstrip(b'\0').decode().split()
    return _open_store(host, int(port), group.size(), False, timeout)


def _open_store(*where):
    try:
        return dist.TCPStore(*where, wait_for_workers=False)
    except RuntimeError as error:
        if 'libuv' not in str(error):
            raise
        # Debian's torch 2.6 is built without it, and wants it all the same.
        return dist.TCPStore(*where, wait_for_workers=False, use_libuv=False)
