# SPDX-License-Identifier: BSD-2-Clause
"""Reads snapshots: which there are, what they have, and their bytes, whose sums are compared."""
import ctypes
import datetime
from dataclasses import dataclass, field

from . import library as lib

LIST_MAX = 64


@dataclass(frozen=True)
class Entry:
    """A snapshot: `copies` sinks have it whole, `damaged` a part of it alone; `is_whole`: there is
    a copy of it for each of the `world` ranks."""

    step: int
    token: str
    world: int
    bytes: int
    taken_at: datetime.datetime
    copies: int
    damaged: int
    is_whole: bool

    @classmethod
    def of(cls, entry):
        when = datetime.datetime.fromtimestamp(entry.taken_at, datetime.timezone.utc)
        token, counts = bytes(entry.token).hex(), (entry.copies, entry.damaged)
        return cls(entry.step, token, entry.world, entry.bytes, when, *counts, entry.is_whole)


@dataclass(frozen=True)
class Item:
    """A range of the state of a rank, and where it lies in a tensor that is spread over ranks."""

    number: int
    name: str
    type: str
    rank: int
    bytes: int
    shape: tuple = field(default=())
    at: tuple = field(default=())
    whole: tuple = field(default=())


class Reader:
    """What the sinks have, of all ranks. Damaged ones are left out as long as one can be read."""

    def __init__(self, sinks, **options):
        self._library, self._handle = lib.library(), None
        self._options = lib.options_of(sinks, **options)
        handle = ctypes.c_void_p()
        code, self.warning = lib.ask(
            'reader_open', ctypes.byref(self._options), last=ctypes.byref(handle)
        )
        if code:
            raise lib.error_of(code, self.warning)
        self._handle = handle

    def close(self):
        handle, self._handle = self._handle, None
        if handle:
            self._library.sw_snap_reader_close(handle)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def list(self):
        """The snapshots, newest first."""
        entries = (lib.Entry * LIST_MAX)()
        count = self._library.sw_snap_list(self._handle, entries, LIST_MAX)
        return [Entry.of(entry) for entry in entries[: min(count, LIST_MAX)]]

    def choose(self, step=None):
        """The one that is read from now on: of that step, or the newest that is whole."""
        entry = lib.Entry()
        wanted = None if step is None else ctypes.byref(ctypes.c_uint64(step))
        lib.call('choose', self._handle, wanted, ctypes.byref(entry))
        return Entry.of(entry)

    def items(self):
        item, found = lib.Item(), []
        for number in range(self._library.sw_snap_items(self._handle)):
            code = self._library.sw_snap_item_of(self._handle, number, ctypes.byref(item))
            if code:
                raise lib.error_of(code)
            dims = item.dims
            places = (tuple(one[:dims]) for one in (item.shape, item.at, item.whole))
            name, kind = item.name.decode(), item.type.decode()
            found.append(Item(number, name, kind, item.rank, item.bytes, *places))
        return found

    def small(self, rank=0):
        """The small state of a rank: bytes."""
        length = ctypes.c_size_t()
        lib.call('small', self._handle, rank, None, 0, ctypes.byref(length))
        raw = ctypes.create_string_buffer(length.value or 1)
        lib.call('small', self._handle, rank, raw, length.value, ctypes.byref(length))
        return raw.raw[: length.value]

    def read(self, pieces):
        """Pieces: (number of the item, offset, bytes, address that they go to)."""
        pieces = [lib.Piece(*piece) for piece in pieces if piece[2]]
        if pieces:
            lib.call('read', self._handle, (lib.Piece * len(pieces))(*pieces), len(pieces))
