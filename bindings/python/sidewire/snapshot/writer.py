# SPDX-License-Identifier: BSD-2-Clause
"""What takes snapshots of ranges of memory: struct sw_snap; and gates in front of optimizers."""
import ctypes
import functools
import os
import types
from dataclasses import dataclass

from . import library as lib


@dataclass
class Range:
    """Bytes at an address; `at` and `whole`: where they lie in a tensor spread over ranks."""

    name: str
    pointer: int
    bytes: int
    type: str = None
    shape: tuple = ()
    at: tuple = ()
    whole: tuple = ()

    def fill(self, put):
        put.name, put.data, put.bytes = self.name.encode(), self.pointer, self.bytes
        if self.type is not None:
            put.type, put.dims = self.type.encode(), len(self.shape)
            for name in ('shape', 'at', 'whole'):
                values = getattr(self, name)
                getattr(put, name)[: len(values)] = values


class Writer:
    """A handle; a thread at a time calls it. What fails is raised, but by gate()."""

    def __init__(self, sinks, **options):
        self._library, self._handle, self._pid = lib.library(), None, os.getpid()
        self._options = lib.options_of(sinks, **options)
        handle = ctypes.c_void_p()
        code, text = lib.ask('open', ctypes.byref(self._options), last=ctypes.byref(handle))
        if code:
            raise lib.error_of(code, text)
        self._handle = handle

    def is_open(self):
        return self._handle is not None and os.getpid() == self._pid

    def check(self):
        if os.getpid() != self._pid:
            raise lib.error_of(lib.CODES['FORKED'])
        if self._handle is None:
            raise lib.SnapshotError('it is closed', 'INVALID')

    def describe(self, ranges):
        self.check()
        given = (lib.Range * max(1, len(ranges)))()
        for one, put in zip(ranges, given):
            one.fill(put)
        lib.call('describe', self._handle, given, len(ranges))

    def begin(self, step, small):
        self.check()
        if len(small) > lib.SMALL_BYTES_MAX:
            raise lib.NotSupported(
                f'the small state has {len(small)} bytes, {lib.SMALL_BYTES_MAX} at most'
            )
        if not 0 <= step < 1 << 64:  # ctypes would take what is left of it
            raise lib.error_of(lib.CODES['INVALID'], f'step {step} is not of 0 to 2^64 - 1')
        lib.call('begin', self._handle, ctypes.byref(lib.Point(step, small, len(small))))

    def gate(self, how, deadline_ns=0):
        """The name of its status."""
        self.check()
        code = self._library.sw_snap_gate(self._handle, lib.GATES[how], deadline_ns)
        return lib.name_of(code)

    def info(self):
        self.check()
        info = lib.Info()
        self._library.sw_snap_info_of(self._handle, ctypes.byref(info))
        return info

    def close(self):
        handle, self._handle = self._handle, None
        if handle and os.getpid() == self._pid:  # a child of fork() has none of its threads
            self._library.sw_snap_close(handle)

    def __del__(self):
        if getattr(self, '_handle', None):
            self.close()


def failure_of(info):
    """The exception of a snapshot that has failed."""
    return lib.error_of(info.error.status, info.error.text.decode(errors='replace'))


def put_gate(optimizer, gate):
    """optimizer.step() calls gate() first; returns what undoes that."""
    if hasattr(optimizer, 'register_step_pre_hook'):  # torch 2
        return optimizer.register_step_pre_hook(lambda *_: gate()).remove
    step, had = optimizer.step, 'step' in vars(optimizer)

    @functools.wraps(step)
    def step_behind_gate(_, *args, **words):
        gate()
        return step(*args, **words)

    # A method, since schedulers of torch 1.13 look for the object that it belongs to.
    optimizer.step = bound = types.MethodType(step_behind_gate, optimizer)

    def undo():
        if vars(optimizer).get('step') is bound:
            if had:
                optimizer.step = step
            else:
                del optimizer.step

    return undo
