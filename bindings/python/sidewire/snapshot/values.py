# SPDX-License-Identifier: BSD-2-Clause
"""Values of Python as JSON, and back: exactly, or refused by name. Nothing is ever executed.

What JSON has is written as it is, where it comes back as the same. All else is an object whose
first key begins with `$`, the kind of the value. Arrays are handed to `hold`, which returns such an
object in their place; `find` gives them back.
"""
import base64
import collections
import math
import struct
import sys

from .library import NotSupported, SnapshotError

DEPTH_MAX = 200

# What Python raises where a value of a stranger is none that it should be.
NONSENSE = (TypeError, ValueError, AttributeError, LookupError, ArithmeticError, RuntimeError)
NONSENSE += (struct.error,)


def join_name(path):
    return '.'.join(map(str, path)) or 'state'


def _refusal(value, path):
    kind = type(value)
    name = f'{kind.__module__}.{kind.__qualname__}'.removeprefix('builtins.')
    return NotSupported(f'{join_name(path)} is a {name}, which neither JSON nor arrays can hold')


def _encode_float(value):
    if math.isfinite(value):
        return value  # repr() gives the shortest decimals that come back as the same bits
    return {'$float': struct.pack('>d', value).hex()}


def _encode_numpy(value, path):
    if value.dtype.hasobject or value.dtype.names:
        raise _refusal(value, path)
    return {'$numpy': [value.dtype.str, value.tobytes().hex()]}


def _encode_torch(torch, value, path):
    if isinstance(value, (torch.dtype, torch.layout, torch.memory_format)):
        return {'$torch': str(value).removeprefix('torch.')}
    if type(value) is torch.Size:
        return {'$size': list(value)}
    if isinstance(value, torch.device):
        return {'$device': str(value)}
    raise _refusal(value, path)


PLAIN = (bool, int, str, type(None))
LISTS = {tuple: '$tuple', set: '$set', frozenset: '$frozenset', collections.deque: '$deque'}
DICTS = {
    dict: '$dict',
    collections.OrderedDict: '$ordered',
    collections.Counter: '$counter',
}
KINDS = {name: kind for kind, name in (*LISTS.items(), *DICTS.items())}


def encode(value, path=(), hold=None):
    """What json.dumps() takes. `hold(value, path)` returns what stands for an array, or None for
    anything else."""
    if len(path) > DEPTH_MAX:
        raise NotSupported(
            f'{join_name(path[:8])}... is nested {DEPTH_MAX} deep, or has itself in it'
        )
    kind = type(value)
    if kind in PLAIN:
        return value
    if kind is float:
        return _encode_float(value)
    held = hold(value, path) if hold else None
    if held is not None:
        return held
    if kind in DICTS:
        return _encode_dict(kind, value, path, hold)
    if kind is list or kind in LISTS:
        # A set has no order; sorted by what is written, equal sets are the same bytes.
        items = [encode(item, (*path, number), hold) for number, item in enumerate(value)]
        if kind is collections.deque and value.maxlen is not None:
            return {'$deque': items, 'max': value.maxlen}
        return items if kind is list else {LISTS[kind]: items}
    if kind in (bytes, complex, range):
        return _encode_other(kind, value)
    numpy, torch = sys.modules.get('numpy'), sys.modules.get('torch')
    if numpy and isinstance(value, numpy.generic):
        return _encode_numpy(value, path)
    if numpy and isinstance(value, numpy.dtype) and not (value.hasobject or value.names):
        return {'$dtype': value.str}
    if torch:
        return _encode_torch(torch, value, path)
    raise _refusal(value, path)


def _encode_other(kind, value):
    if kind is bytes:
        return {'$bytes': base64.b64encode(value).decode()}
    if kind is complex:
        return {'$complex': struct.pack('>dd', value.real, value.imag).hex()}
    return {'$range': [value.start, value.stop, value.step]}


def _encode_dict(kind, value, path, hold):
    texts = all(type(key) is str for key in value)
    if kind is dict and texts and not any(key.startswith('$') for key in value):
        return {key: encode(item, (*path, key), hold) for key, item in value.items()}
    pairs = []
    for key, item in value.items():
        pairs.append([encode(key, (*path, 'key')), encode(item, (*path, key), hold)])
    return {DICTS[kind]: pairs}


def decode(value, find=None):
    """The value of what encode() returned. `find(kind, object)` returns what `hold` stood for."""
    try:
        return _decode(value, find)
    except RecursionError:
        raise SnapshotError('the small state is nested too deep', 'FORMAT') from None


def _decode(value, find):
    if isinstance(value, list):
        return [_decode(item, find) for item in value]
    if not isinstance(value, dict):
        return value
    kind = next(iter(value), '')
    if not kind.startswith('$'):
        return {key: _decode(item, find) for key, item in value.items()}
    try:
        return _decode_kind(kind, value, find)
    except (SnapshotError, RecursionError):
        raise
    except NONSENSE as error:
        raise SnapshotError(
            f'the small state has a {kind!r} that makes no sense: {error}', 'FORMAT'
        )


def _decode_kind(kind, value, find):
    what = value[kind]
    if kind in ('$dict', '$ordered', '$counter'):
        return KINDS[kind]({_decode(key, None): _decode(item, find) for key, item in what})
    if kind == '$deque':
        return collections.deque((_decode(item, find) for item in what), value.get('max'))
    if kind in KINDS:
        return KINDS[kind](_decode(item, find) for item in what)
    if kind in DECODERS:
        return DECODERS[kind](what)
    found = find(kind, value) if find else None
    if found is None:
        raise SnapshotError(
            f'the small state has a {kind!r}, which this version does not know', 'VERSION'
        )
    return found


def _numpy_scalar(what):
    import numpy

    kind = numpy.dtype(what[0])
    if kind.hasobject:
        raise ValueError('an object')
    return numpy.frombuffer(bytes.fromhex(what[1]), kind, 1)[0]


def _numpy_dtype(what):
    import numpy

    return numpy.dtype(what)


def _torch_member(what):
    import torch

    found = getattr(torch, what)
    if not isinstance(found, (torch.dtype, torch.layout, torch.memory_format)):
        raise ValueError(f'torch.{what} is none of its types')
    return found


def _torch_size(what):
    import torch

    return torch.Size(what)


def _torch_device(what):
    import torch

    return torch.device(what)


DECODERS = {
    '$float': lambda what: struct.unpack('>d', bytes.fromhex(what))[0],
    '$complex': lambda what: complex(*struct.unpack('>dd', bytes.fromhex(what))),
    '$bytes': lambda what: base64.b64decode(what, validate=True),
    '$range': lambda what: range(*what),
    '$numpy': _numpy_scalar,
    '$dtype': _numpy_dtype,
    '$torch': _torch_member,
    '$size': _torch_size,
    '$device': _torch_device,
}
