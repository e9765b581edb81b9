# SPDX-License-Identifier: BSD-2-Clause
"""Takes snapshots of a state while the program goes on; docs/snapshot-torch.md has the start."""
import contextlib
import ctypes
import os
import sys
import threading
import time
import warnings

from . import library as lib
from .reader import Reader
from .state import Filling, Parts, names_beyond, read_small, refuse_top
from .writer import Range, Writer, failure_of, put_gate

ALIGNMENT = 64  # of copies of small storages
POLL_S = (0.0005, 0.02)  # how long a wait sleeps between two looks: doubling, from and up to
LIBRARY_OPTIONS = 'helpers keep look looks_max local meet quorum rank_timeout_ms ring_bytes'
LIBRARY_OPTIONS += ' stall_timeout_ms connect_timeout_ms take_over unit_bytes volume_bytes'


class SnapshotWarning(UserWarning):
    """A snapshot has failed; training goes on, and the last good one stays."""


class Stage:
    """What a snapshot will reach: .done(), .wait(timeout)."""

    def __init__(self, save, stage):
        self._save, self._stage = save, stage

    def done(self):
        """Whether it is there. A snapshot that has failed never is: wait() says why."""
        reached, error = self._save.look(self._stage)
        return reached and error is None

    def wait(self, timeout=None):
        """Until it is there, `timeout` seconds at most; else raises why not."""
        until = None if timeout is None else time.monotonic() + timeout
        pause = POLL_S[0]
        while True:
            reached, error = self._save.look(self._stage)
            if error is not None:
                raise error
            if reached:
                return self
            if until is not None and time.monotonic() >= until:
                raise lib.Timeout(
                    f'the snapshot of step {self._save.step} is not {self._stage} yet'
                )
            time.sleep(pause)
            pause = min(2 * pause, POLL_S[1])


class Save:
    """A snapshot that was begun; `staged`: the state may be written; `durable`: it is safe."""

    def __init__(self, owner, step, error=None):
        self._owner, self.step, self._error, self._reached = owner, step, error, ''
        self.staged, self.durable = Stage(self, 'staged'), Stage(self, 'durable')

    def look(self, stage):
        """(whether it has come to that stage or has ended, why it failed)."""
        if self._error is None and self._reached != 'durable':
            self._owner._look_at(self)
        return self._reached in (stage, 'durable') or self._error is not None, self._error

    def failure(self):
        """Why it has failed, or None."""
        return self.look('durable')[1]

    def settle(self, reached, error=None):
        self._reached, self._error = reached or self._reached, error


class Snapshotter:
    """Takes snapshots of `state`, a dict of tensors, arrays, plain values, and of things that have
    state_dict() and load_state_dict(), to one to three sinks.

        snapshots = Snapshotter({'model': model, 'optimizer': optimizer}, 'file:/data/run.snap')
        snapshots.restore()
        snapshots.attach(optimizer)       # optimizer.step() waits until all is captured
        ...
        snapshots.begin(step)             # after optimizer.step()

    It takes the sinks over: a program that writes to them still is fenced, as one that was started
    twice, or of which workers are left; `take_over=False` is refused instead. `leave_out` has
    patterns of names that are not saved, '*.anneal_func'. Other words are the options of
    <sidewire/snapshot.h>: quorum, keep, helpers, ring_bytes, look...
    """

    def __init__(
        self, state, sinks, *, rank=None, world=None, gate='help', leave_out=(), **options
    ):
        refuse_top(state)
        unknown = {*options} - {*LIBRARY_OPTIONS.split()}
        if unknown:
            raise TypeError(f'there is no option {", ".join(sorted(unknown))}')
        self.state, self._sinks, self._leave_out = state, lib.sinks_of(sinks), leave_out
        self.rank, self.world = _ranks(rank, world)
        # What changes while it is captured is TORN at once: a later instant of the storages would
        # not be that of the small state.
        self._words = {'take_over': True, 'looks_max': 0, **options}
        self._words.update(rank=self.rank, world=self.world)
        self._how, self._pid, self._lock = gate, os.getpid(), threading.RLock()
        self._layout = self._parts = self._arena = self._save = self._told = None
        self._hooks, self._writer, self._has_missed = [], None, False
        if gate not in lib.GATES:
            raise ValueError(f'gate is one of {", ".join(lib.GATES)}, not {gate!r}')
        # Before anything is opened: a value that cannot be saved is a mistake of the program.
        Parts(state, leave_out)
        self._writer = Writer(self._sinks, **self._words)

    def __repr__(self):
        names = ', '.join(map(str, self.state))
        return f'<sidewire.snapshot.Snapshotter of {names} in {self._sinks}, rank {self.rank}>'

    # ---- taking them ----

    def begin(self, step):
        """Begins a snapshot of the state as it is now. What fails is told once, by a warning, and
        by the snapshot that is returned; it raises nothing."""
        with self._lock:
            self._writer.check()
            save = Save(self, step)
            try:
                self._begin(step)
            except lib.SnapshotError as error:
                self._fail(save, error)
                # One that is under way stays the one that staged and durable are about.
                if self._save is not None and error.status == 'BUSY':
                    return save
            self._save = save
            return save

    def _begin(self, step):
        info = self.info()
        if lib.STAGES['CAPTURING'] <= info.stage <= lib.STAGES['STAGED']:
            if info.stage == lib.STAGES['CAPTURING']:
                self._miss_gate(info.step)
            raise lib.error_of(lib.CODES['BUSY'], f'that of step {info.step} is not durable yet')
        if self._save is not None:
            self._save.look('durable')  # the library tells of the newest alone
        parts = Parts(self.state, self._leave_out)
        layout = parts.layout()
        if layout != self._layout:
            self._describe(parts)
            self._layout = layout
        self._copy_small(parts)
        self._parts = parts  # what was captured stays where it is
        small = parts.small({'step': step, 'rank': self.rank, 'world': self.world})
        self._writer.begin(step, small)

    def _miss_gate(self, step):
        if not self._has_missed:
            self._has_missed = True
            warnings.warn(
                f'nothing has passed the gate since the snapshot of step {step} was begun: attach()'
                ' the optimizer, or call gate() before the state is written',
                SnapshotWarning,
                stacklevel=4,
            )

    def _describe(self, parts):
        size = sum(_aligned(one.bytes) for one in parts.storages if one.is_copied)
        arena = (ctypes.c_char * (size + ALIGNMENT))()
        at = _aligned(ctypes.addressof(arena))
        ranges, places = [], []
        for one in parts.storages:
            pointer = one.pointer
            if one.is_copied:
                pointer = at
                places.append(at)
                at += _aligned(one.bytes)
            ranges.append(Range(one.name, pointer, one.bytes, one.type, one.shape))
        self._writer.describe(ranges)
        self._arena = (arena, places)

    def _copy_small(self, parts):
        copied = [one for one in parts.storages if one.is_copied]
        for one, place in zip(copied, self._arena[1]):
            ctypes.memmove(place, one.pointer, one.bytes)

    def gate(self, how=None, timeout=None):
        """Before the state is written again: 'wait' sleeps until all is captured, 'help' copies
        too, 'skip' gives the snapshot up. True: the snapshot goes on, or there is none; False: it
        has failed, which is told once. The state may be written then, too. Timeout is raised only
        where `timeout` is given, in seconds: then it may not be written yet."""
        if how is not None and how not in lib.GATES:
            raise ValueError(f'a gate is one of {", ".join(lib.GATES)}, not {how!r}')
        if os.getpid() != self._pid:
            return True
        with self._lock:
            status = self._writer.gate(how or self._how, _deadline_ns(timeout))
            if status == 'TIMEOUT':
                if timeout is not None:
                    raise lib.error_of(lib.CODES[status])
                # Nobody said what to do then: training goes on, and this one is given up.
                status = self._writer.gate('skip')
            if status == 'OK':
                return True
            info = self.info()
            told = info.stage == lib.STAGES['FAILED'] and info.error.status == lib.CODES[status]
            self._fail(self._save, failure_of(info) if told else lib.error_of(lib.CODES[status]))
            return False

    def attach(self, *optimizers):
        """Each optimizer.step() passes the gate first. Returns self."""
        self._hooks += [put_gate(optimizer, self._pass_gate) for optimizer in optimizers]
        return self

    def _pass_gate(self):
        if self._writer.is_open():
            self.gate()

    # ---- what has become of them ----

    def info(self):
        """struct sw_snap_info, for those who count."""
        with self._lock:
            return self._writer.info()

    def _look_at(self, save):
        with self._lock:
            if not self._writer.is_open():
                save.settle('', lib.SnapshotError('closed before it was durable', 'AGAIN'))
                return
            info = self.info()
            if info.step != save.step:
                return
            if info.stage == lib.STAGES['FAILED']:
                self._fail(save, failure_of(info))
            elif info.stage == lib.STAGES['DURABLE']:
                save.settle('durable')
                self._told = None
            elif info.stage == lib.STAGES['STAGED']:
                save.settle('staged')

    def _fail(self, save, error):
        if save is not None:
            save.settle('', error)
        if error.status == self._told or error.status in ('SKIPPED', 'BUSY'):
            return  # it was told, or the program has chosen it
        self._told = error.status
        step = save.step if save is not None else '?'
        warnings.warn(
            f'the snapshot of step {step} has failed: {error} ({error.status})',
            SnapshotWarning,
            stacklevel=4,
        )

    @property
    def staged(self):
        """The newest snapshot is captured, so that the state may be written."""
        return self._newest().staged

    @property
    def durable(self):
        """The newest snapshot is safe in as many sinks as `quorum` says."""
        return self._newest().durable

    def _newest(self):
        return self._save or Save(self, 0, lib.NotFound('no snapshot was begun'))

    # ---- restoring ----

    def restore(self, into=None, step=None, strict=None, repair=False):
        """Fills the state with the newest whole snapshot, or that of `step`, and returns its step;
        None where there is none. OtherState: nothing was changed. Entries that the snapshot has and
        the state has not come as new values: with a warning, unless `strict` is False or the state
        is empty; True refuses them. `repair`: what is damaged in one sink is written again from
        another; this Snapshotter lets its sinks go for that, and opens them again."""
        state = self.state if into is None else into
        refuse_top(state)
        words = {'rank': self.rank, 'world': self.world, 'step': step, 'strict': strict}
        with self._sinks_free() if repair else contextlib.nullcontext():
            return restore(state, self._sinks, repair=repair, **words, **self._reading())

    @contextlib.contextmanager
    def _sinks_free(self):
        """Without its writer: one alone writes to a sink, and that which repairs does."""
        if self.world > 1:
            raise lib.NotSupported('of several ranks one repairs: sidewire snapshot scrub does it')
        with self._lock:
            was_open = self._writer.is_open()
            if was_open:
                if lib.STAGES['CAPTURING'] <= self.info().stage <= lib.STAGES['STAGED']:
                    raise lib.error_of(lib.CODES['BUSY'], 'a snapshot is under way: wait for it')
                if self._save is not None:
                    self._save.look('durable')
                self._writer.close()
                self._parts = self._arena = self._layout = None
            try:
                yield
            finally:
                if was_open:
                    self._writer = Writer(self._sinks, **self._words)

    def _reading(self):
        names = ('local', 'connect_timeout_ms', 'stall_timeout_ms')
        return {name: self._words[name] for name in names if name in self._words}

    # ---- the end ----

    def close(self):
        """Gives up what is not durable yet: wait for `durable` before."""
        for undo in self._hooks:
            undo()
        self._hooks = []
        with self._lock if os.getpid() == self._pid else contextlib.nullcontext():
            self._writer.close()
            self._parts = self._arena = self._layout = None

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        # What was begun becomes durable, unless the program is on its way out by an error.
        if kind is None and self._save is not None and self._writer.is_open():
            with contextlib.suppress(lib.SnapshotError):
                self.gate()
                self._save.durable.wait()
        self.close()


def restore(
    state, sinks, *, rank=None, world=None, step=None, strict=None, repair=False, **options
):
    """Fills `state` from the sinks, without taking them over. The step, or None. `strict` as in
    Snapshotter.restore(). `repair`: what is damaged in one sink is written again from another, so
    no program may be saving there."""
    rank, world = _ranks(rank, world)
    if repair:
        options['may_write'] = True
    with contextlib.ExitStack() as stack:
        try:
            reader = stack.enter_context(Reader(sinks, **options))
            entry = reader.choose(step)
        except lib.SnapshotError as error:
            if step is None and error.status in ('NOT_FOUND', 'AGAIN'):
                return None
            raise
        if entry.world != world:
            raise lib.OtherState(
                f'the snapshot is of {entry.world} ranks, and these are {world}:'
                ' sidewire.snapshot.checkpoint deals it out anew'
            )
        tree = read_small(reader.small(rank))
        if 'state' not in tree:
            raise lib.OtherState("torch's distributed checkpoint has saved it, and loads it")
        if state or strict:  # {} takes what there is
            _look_beyond(names_beyond(tree['state'], state), strict)
        items = {item.name: item for item in reader.items() if item.rank == rank}
        filling = Filling({name: item.bytes for name, item in items.items()})
        give = filling.compare(tree['state'], state)
        reader.read(
            (items[name].number, 0, items[name].bytes, address)
            for name, address in filling.wanted()
        )
        give()
        return entry.step


def _look_beyond(names, strict):
    if not names or strict is False:
        return
    text = f'{", ".join(names[:5])} of the snapshot is not in the state (of {len(names)} such)'
    if strict:
        raise lib.OtherState(text)
    warnings.warn(text + ': it comes as a new value', SnapshotWarning, stacklevel=3)


def _aligned(size):
    return -(-size // ALIGNMENT) * ALIGNMENT


def _deadline_ns(timeout):
    """0 is the deadline of the options, so that none has to be far away."""
    if timeout is None:
        return 0
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC) + max(1, int(timeout * 1e9))


def _ranks(rank, world):
    """This rank and how many there are: as told, or those of torch's default process group."""
    if rank is not None or world is not None:
        return rank or 0, world or 1
    torch = sys.modules.get('torch')
    if torch and torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_rank(), torch.distributed.get_world_size()
    return 0, 1
