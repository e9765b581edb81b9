# SPDX-License-Identifier: BSD-2-Clause
"""new_group() ends where a rank has died. All ranks of the default group meet in torch's store at
its end, and wait there for the whole timeout: half an hour, unless the program says another."""
import functools
import time

import torch.distributed as dist
from torch.distributed import distributed_c10d

FIRST_PAUSE_S = 0.001
LONGEST_PAUSE_S = 0.02
LAST_WORKER = ':last_worker'  # what torch 2 waits for, behind the name of the counter


class WatchedStore:
    """The store, as torch's barrier in it uses it: to count, and to wait for the last one."""

    def __init__(self, store, native, ranks):
        self._store, self._native, self._ranks = store, native, ranks

    def __getattr__(self, name):
        return getattr(self._store, name)

    def add(self, key, amount):
        count = self._store.add(key, amount)
        if not amount and count < self._ranks:
            self._look(key)
        return count

    def _look(self, key):
        gone = self._native.gone()
        # A rank may have come, and then have ended, between the two looks.
        if not gone or self._store.add(key, 0) >= self._ranks:
            return
        names = ' and '.join(map(str, gone))
        raise RuntimeError(
            f'sidewire: new_group: rank{"s" if gone[1:] else ""} {names} of the default group '
            'died, or closed before the others'
        )

    def wait(self, keys, *timeout):
        until = time.monotonic() + (timeout[0].total_seconds() if timeout else 300)
        pause_s = FIRST_PAUSE_S
        counter = keys[0][: -len(LAST_WORKER)] if keys[0].endswith(LAST_WORKER) else None
        while counter and self.add(counter, 0) < self._ranks and time.monotonic() < until:
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
        self._store.wait(keys, *timeout)


def install():
    theirs = distributed_c10d._store_based_barrier

    @functools.wraps(theirs)
    def barrier_in_store(rank, store, *words, **named):
        import sidewire_torch

        if dist.is_initialized() and dist.get_backend() == 'sidewire':
            store = WatchedStore(store, sidewire_torch._native_group(), dist.get_world_size())
        return theirs(rank, store, *words, **named)

    distributed_c10d._store_based_barrier = barrier_in_store
