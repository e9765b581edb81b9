# SPDX-License-Identifier: BSD-2-Clause
"""new_group() ends where a rank has died, and tells which one has not come. All ranks of the
default group meet in torch's store at its end, and wait there for the whole timeout: half an hour,
unless the program says another."""
import functools
import sys
import time

import torch.distributed as dist
from torch.distributed import distributed_c10d

FIRST_PAUSE_S = 0.001
LONGEST_PAUSE_S = 0.02
FIRST_LINE_S = 10
FIRST_SHOW_S = 1
LAST_WORKER = ':last_worker'  # what torch 2 waits for, behind the name of the counter


class WatchedStore:
    """The store, as torch's barrier in it uses it: to count, and to wait for the last one. Each
    rank writes its name there, too, so that those are known that have not come."""

    def __init__(self, store, native, rank, is_of_all):
        self._store, self._native, self._rank = store, native, rank
        self._ranks, self._is_of_all = dist.get_world_size(), is_of_all
        self._begun = time.monotonic()
        self._next_line_s = FIRST_LINE_S
        self._next_show_s = FIRST_SHOW_S
        self._is_shown = False
        self._counter = None

    def __getattr__(self, name):
        return getattr(self._store, name)

    def add(self, key, amount):
        if amount:
            self._counter = key
            self._store.add(self._name_of(self._rank), 1)
        count = self._store.add(key, amount)
        if not amount and count < self._ranks:
            self._look(key)
        return count

    def _name_of(self, rank):
        return f'{self._counter}/sidewire/{rank}'

    def _absent_ranks(self):
        if self._counter is None or not self._is_of_all:
            return []
        return [r for r in range(self._ranks) if not self._store.add(self._name_of(r), 0)]

    def _show(self, ranks):
        """`sidewire coll status` and `diagnose` tell who is awaited."""
        if ranks or self._is_shown:
            waited_s = time.monotonic() - self._begun
            self._native.show_wait(ranks, round(waited_s * 1000))
        self._is_shown = bool(ranks)

    def done(self):
        self._show([])

    def absent(self):
        """ "; these ranks have not come: 1, 2", or an empty text."""
        ranks = self._absent_ranks()
        return f'; these ranks have not come: {", ".join(map(str, ranks))}' if ranks else ''

    def _look(self, key):
        waited_s = time.monotonic() - self._begun
        if waited_s >= self._next_line_s:
            self._next_line_s *= 2
            print(
                f'sidewire-coll: rank {self._rank}: new_group() waits for {waited_s:.1f} s'
                + self.absent(),
                file=sys.stderr,
                flush=True,
            )
        if waited_s >= self._next_show_s:
            self._next_show_s = 1.25 * waited_s
            self._show(self._absent_ranks())
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

        if not dist.is_initialized() or dist.get_backend() != 'sidewire':
            return theirs(rank, store, *words, **named)
        # Torch 2 says how many ranks meet, which may be those of the new group alone.
        counts = [one for one in (*words, *named.values()) if type(one) is int]
        is_of_all = not counts or counts[0] == dist.get_world_size()
        watched = WatchedStore(store, sidewire_torch._native_group(), rank, is_of_all)
        try:
            return theirs(rank, watched, *words, **named)
        except RuntimeError as error:
            absent = watched.absent()
            if not absent or 'sidewire' in str(error):
                raise
            raise type(error)(f'{error}{absent}') from error
        finally:
            watched.done()

    distributed_c10d._store_based_barrier = barrier_in_store
