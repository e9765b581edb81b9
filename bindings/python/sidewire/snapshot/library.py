# SPDX-License-Identifier: BSD-2-Clause
"""libsidewire-snapshot by ctypes: the structures of <sidewire/snapshot.h>, and its errors.

Calls let go of the interpreter's lock while they wait.
"""
import ctypes
import functools
import os

LIBRARY = 'libsidewire-snapshot.so.0'
# Where the library lies in a build tree, beside which this file lies there.
HERE = os.path.dirname(os.path.abspath(__file__))
BUILT = os.path.normpath(os.path.join(HERE, '../../../../movers/snapshot'))
NAME_MAX, DIMS_MAX, SINKS_MAX = 255, 8, 3
SMALL_BYTES_MAX = 16 << 20

STATUSES = (
    'OK AGAIN TIMEOUT INVALID BUSY SKIPPED TORN NO_MEMORY NO_ROOM NO_QUORUM ADDRESS REFUSED FENCED'
    ' LOST CORRUPT FORMAT VERSION NOT_FOUND OTHER_STATE OTHER_RANK NOT_SUPPORTED FORKED SYSTEM'
).split()
CODES = {name: code for code, name in enumerate(STATUSES)}
STAGES = {name: code for code, name in enumerate('IDLE CAPTURING STAGED DURABLE FAILED'.split())}
GATES = {'wait': 1, 'help': 2, 'skip': 3}
LOOKS = {'sums': 0, 'pages': 1, 'never': 2}

_u32, _u64, _text, _pointer = ctypes.c_uint32, ctypes.c_uint64, ctypes.c_char_p, ctypes.c_void_p
_dims = _u64 * DIMS_MAX


class Error(ctypes.Structure):
    _fields_ = [('status', ctypes.c_int), ('text', ctypes.c_char * 512)]


class Range(ctypes.Structure):
    _fields_ = [('name', _text), ('data', _pointer), ('bytes', _u64), ('type', _text)]
    _fields_ += [('dims', _u32), ('shape', _dims), ('at', _dims), ('whole', _dims)]


class Options(ctypes.Structure):
    _fields_ = [('sinks', ctypes.POINTER(_text)), ('sinks_count', _u32), ('quorum', _u32)]
    _fields_ += [('ring_bytes', _u64), ('unit_bytes', _u32), ('helpers', _u32), ('keep', _u32)]
    _fields_ += [('volume_bytes', _u64), ('look', ctypes.c_int), ('looks_max', _u32)]
    _fields_ += [('local', _text), ('connect_timeout_ms', _u32), ('stall_timeout_ms', _u32)]
    _fields_ += [('take_over', ctypes.c_bool), ('may_write', ctypes.c_bool)]
    _fields_ += [('rank', _u32), ('world', _u32), ('meet', _text), ('rank_timeout_ms', _u32)]


class Point(ctypes.Structure):
    _fields_ = [('step', _u64), ('small', _text), ('small_bytes', _u32)]


class SinkInfo(ctypes.Structure):
    _fields_ = [('sink', ctypes.c_char * 128), ('is_live', ctypes.c_bool)]
    _fields_ += [('has_newest', ctypes.c_bool), ('bytes', _u64), ('free_bytes', _u64)]
    _fields_ += [('written_bytes', _u64), ('error', Error), ('note', ctypes.c_char * 256)]


class Info(ctypes.Structure):
    _fields_ = [('stage', ctypes.c_int), ('error', Error), ('step', _u64), ('durable_step', _u64)]
    _fields_ += [('has_durable', ctypes.c_bool)]
    _fields_ += [(name + '_bytes', _u64) for name in 'state copied changed moved'.split()]
    _fields_ += [(name + '_ns', _u64) for name in 'begun staged stored durable gate'.split()]
    _fields_ += [('gate_bytes', _u64)]
    _fields_ += [(name, _u64) for name in 'taken failed skipped torn'.split()]
    _fields_ += [('sinks_count', _u32), ('sinks', SinkInfo * SINKS_MAX)]


class Entry(ctypes.Structure):
    _fields_ = [('step', _u64), ('token', ctypes.c_uint8 * 16), ('world', _u32), ('bytes', _u64)]
    _fields_ += [('taken_at', _u64), ('copies', _u32), ('damaged', _u32)]
    _fields_ += [('is_whole', ctypes.c_bool)]


class Item(ctypes.Structure):
    _fields_ = [('name', ctypes.c_char * (NAME_MAX + 1)), ('type', ctypes.c_char * 16)]
    _fields_ += [('rank', _u32), ('bytes', _u64), ('dims', _u32)]
    _fields_ += [('shape', _dims), ('at', _dims), ('whole', _dims)]


class Piece(ctypes.Structure):
    _fields_ = [('number', _u32), ('offset', _u64), ('bytes', _u64), ('into', _pointer)]


_ref = ctypes.POINTER
# What each function returns, and what it takes.
FUNCTIONS = {
    'status_text': (_text, [ctypes.c_int]),
    'deadline_ms': (_u64, [_u32]),
    'options_init': (None, [_ref(Options)]),
    'options_from_launcher': (ctypes.c_int, [_ref(Options), _ref(Error)]),
    'open': (ctypes.c_int, [_ref(Options), _ref(Error), _ref(_pointer)]),
    'close': (None, [_pointer]),
    'describe': (ctypes.c_int, [_pointer, _ref(Range), _u32, _ref(Error)]),
    'begin': (ctypes.c_int, [_pointer, _ref(Point), _ref(Error)]),
    'gate': (ctypes.c_int, [_pointer, ctypes.c_int, _u64]),
    'info_of': (None, [_pointer, _ref(Info)]),
    'wait': (ctypes.c_int, [_pointer, ctypes.c_int, _u64, _ref(Error)]),
    'fd': (ctypes.c_int, [_pointer]),
    'reader_open': (ctypes.c_int, [_ref(Options), _ref(Error), _ref(_pointer)]),
    'reader_close': (None, [_pointer]),
    'list': (_u32, [_pointer, _ref(Entry), _u32]),
    'choose': (ctypes.c_int, [_pointer, _ref(_u64), _ref(Entry), _ref(Error)]),
    'items': (_u32, [_pointer]),
    'item_of': (ctypes.c_int, [_pointer, _u32, _ref(Item)]),
    'small': (
        ctypes.c_int,
        [_pointer, _u32, _pointer, ctypes.c_size_t, _ref(ctypes.c_size_t), _ref(Error)],
    ),
    'read': (ctypes.c_int, [_pointer, _ref(Piece), _u32, _ref(Error)]),
}


class SnapshotError(RuntimeError):
    """What failed, in words; `status` is the name of that of the library, such as 'TORN'."""

    status = 'SYSTEM'

    def __init__(self, text, status=None):
        super().__init__(text)
        if status is not None:
            self.status = status


class Torn(SnapshotError):
    """The state was written between begin and gate; the text names it."""

    status = 'TORN'


class Corrupt(SnapshotError):
    """Bytes have another sum than they had, in each copy."""

    status = 'CORRUPT'


class Fenced(SnapshotError):
    """Another program has taken over the sinks."""

    status = 'FENCED'


class NotFound(SnapshotError):
    """There is no such snapshot."""

    status = 'NOT_FOUND'


class OtherState(SnapshotError):
    """The state has other names, types or shapes than the snapshot; the text names them."""

    status = 'OTHER_STATE'


class NotSupported(SnapshotError):
    """Neither JSON nor arrays can hold a value; or this host, sink or build cannot do it."""

    status = 'NOT_SUPPORTED'


class Timeout(SnapshotError):
    """The time is over; what was waited for goes on."""

    status = 'TIMEOUT'


CLASSES = {
    kind.status: kind
    for kind in (Torn, Corrupt, Fenced, NotFound, OtherState, NotSupported, Timeout)
}


def name_of(code):
    return STATUSES[code] if 0 <= code < len(STATUSES) else 'SYSTEM'


def error_of(code, text=''):
    """The exception of a status."""
    name = name_of(code)
    text = text or library().sw_snap_status_text(code).decode()
    return CLASSES.get(name, SnapshotError)(text, name)


@functools.lru_cache(None)
def library():
    built = os.path.join(BUILT, LIBRARY)
    loaded = ctypes.CDLL(built if os.path.exists(built) else LIBRARY)
    for name, (returned, taken) in FUNCTIONS.items():
        function = getattr(loaded, 'sw_snap_' + name)
        function.restype, function.argtypes = returned, taken
    return loaded


def ask(name, *words, last=None):
    """Calls what takes an error, and then perhaps one word more: (status, text)."""
    error = Error()
    words = (*words, ctypes.byref(error)) if last is None else (*words, ctypes.byref(error), last)
    code = getattr(library(), 'sw_snap_' + name)(*words)
    return code, error.text.decode(errors='replace')


def call(name, *words):
    """The same; raises what is not OK."""
    code, text = ask(name, *words)
    if code:
        raise error_of(code, text)


def sinks_of(sinks):
    """A list of sinks, of one or several; a path without a kind is a file."""
    if isinstance(sinks, (str, os.PathLike)):
        sinks = [sinks]
    names = [os.fspath(sink) for sink in sinks]
    kinds = ('file:', 'peer:', 'pmem:', 'nvme:')
    return [name if name.startswith(kinds) else 'file:' + name for name in names]


def options_of(sinks, **words):
    """struct sw_snap_options; keeps its texts alive by itself. Words are the names of its fields;
    look is 'sums', 'pages' or 'never'."""
    options = Options()
    library().sw_snap_options_init(ctypes.byref(options))
    names = [name.encode() for name in sinks_of(sinks)]
    options.sinks, options.sinks_count = (_text * len(names))(*names), len(names)
    fields = {name for name, _ in Options._fields_} - {'sinks', 'sinks_count'}
    for name, value in words.items():
        if name not in fields:
            raise TypeError(f'there is no option {name!r}; there are {", ".join(sorted(fields))}')
        if value is None:
            continue
        if name == 'look':
            if value not in LOOKS:
                raise ValueError(f'look is one of {", ".join(LOOKS)}, not {value!r}')
            value = LOOKS[value]
        setattr(options, name, value.encode() if isinstance(value, str) else value)
    return options


def from_launcher(timeout=60.0):
    """{'rank': ..., 'world': ...} of this process by what has started it, as mpirun or srun; the
    ranks meet as that says, too: Snapshotter(state, sinks, **from_launcher())."""
    options = Options()
    library().sw_snap_options_init(ctypes.byref(options))
    options.rank_timeout_ms = int(timeout * 1000)
    call('options_from_launcher', ctypes.byref(options))
    return {'rank': options.rank, 'world': options.world}
