# SPDX-License-Identifier: BSD-2-Clause
"""Tensors, arrays and buffers as views of storages, by name; and made again from bytes.

A view is a JSON object: {"$tensor": ["float32", [2, 3]], "storage": NAME, "offset": 0, "stride":
[3, 1]}; torch counts in elements, numpy ("$array") in bytes. Views without bytes have no storage.
"""
import array
import ctypes
import functools
import hashlib
import sys

from .library import DIMS_MAX, NAME_MAX, NotSupported, SnapshotError
from .values import NONSENSE, join_name

# As safetensors calls them; other types are bytes there.
TYPES = {
    'float64': 'F64',
    'float32': 'F32',
    'float16': 'F16',
    'bfloat16': 'BF16',
    'int64': 'I64',
    'int32': 'I32',
    'int16': 'I16',
    'int8': 'I8',
    'uint8': 'U8',
    'bool': 'BOOL',
}


class Storage:
    """Bytes that several views may share. `keep` keeps them where they are; `is_copied`: they are
    copied when the snapshot begins, and not read where they are later."""

    def __init__(self, name, pointer, size, keep, is_copied=False):
        self.name, self.pointer, self.bytes, self.keep = name, pointer, size, keep
        self.is_copied, self.type, self.shape = is_copied, None, (size,)

    def be_one(self, kind, shape):
        """It is the whole of one tensor."""
        if kind in TYPES and len(shape) <= DIMS_MAX:
            self.type, self.shape = TYPES[kind], tuple(shape)


def cut_name(name):
    """A name of at most 255 bytes; the end of a long one is a hash of it all."""
    raw = name.encode('utf-8', 'replace')
    if len(raw) <= NAME_MAX:
        return raw.decode()
    digest = hashlib.sha256(raw).hexdigest()[:16]
    return f'{raw[: NAME_MAX - 17].decode("utf-8", "ignore")}~{digest}'


@functools.lru_cache(1 << 16)
def name_of(path):
    return cut_name(join_name(path))


@functools.lru_cache(None)
def _kind_of(dtype):
    return str(dtype).removeprefix('torch.')


def storage_of(tensor):
    """The address of the storage of a tensor, and its bytes."""
    get = getattr(tensor, 'untyped_storage', tensor.storage)  # torch 2, and before
    storage = get()
    return storage.data_ptr(), storage.nbytes()


def _bounds_of(value):
    """The address of the first byte of an array of numpy, and the one behind the last."""
    low = high = value.__array_interface__['data'][0]
    for count, stride in zip(value.shape, value.strides):
        low += min(0, (count - 1) * stride)
        high += max(0, (count - 1) * stride)
    return low, high + value.itemsize


class Storages:
    """The storages of a state, in the order in which they are met, each once."""

    def __init__(self):
        self.by_name, self.tied = {}, {}
        self._by_place = {}

    def put(self, path, pointer, size, keep, is_copied=False):
        storage = self._by_place.get((pointer, size))
        if storage is None:
            plain = name = name_of(path)
            number = 2
            while name in self.by_name:
                name = cut_name(f'{plain[: NAME_MAX - 24]}#{number}')
                number += 1
            storage = Storage(name, pointer, size, keep, is_copied)
            self.by_name[name] = self._by_place[pointer, size] = storage
        return storage

    def hold(self, value, path):
        """What stands for an array in JSON; None where the value is none."""
        numpy, torch = sys.modules.get('numpy'), sys.modules.get('torch')
        if torch and isinstance(value, torch.Tensor):
            return self._hold_tensor(torch, value, path)
        if numpy and isinstance(value, numpy.ndarray):
            return self._hold_array(numpy, value, path)
        if type(value) in (bytearray, array.array):
            return self._hold_buffer(value, path)
        return None

    def _hold_tensor(self, torch, value, path):
        if type(value) not in (torch.Tensor, torch.nn.Parameter):
            raise NotSupported(
                f"{join_name(path)} is a {type(value).__name__}: sidewire.snapshot.checkpoint saves"
                ' those that are spread over ranks'
            )
        if value.layout != torch.strided or value.is_quantized or value.is_meta:
            raise NotSupported(f'{join_name(path)} is not a dense tensor with memory of its own')
        if value.is_conj() or value.is_neg():
            value = value.detach().resolve_conj().resolve_neg()
        is_far, device = not value.is_cpu, value.device
        if is_far:
            value = value.detach().cpu()
        kind, count = _kind_of(value.dtype), value.numel()
        held = {'$tensor': [kind, [*value.shape]]}
        pointer, size = storage_of(value)
        if size and count:
            place = self.put(path, pointer, size, value, is_far)
            held.update(
                storage=place.name, offset=value.storage_offset(), stride=list(value.stride())
            )
            if value.is_contiguous() and count * value.element_size() == size:
                self._name_whole(place, path, kind, value.shape)
        if is_far:
            held['device'] = str(device)
        return held

    def _name_whole(self, place, path, kind, shape):
        """A view that is the whole of a storage gives it its type and shape; the next one of the
        same kind is tied to it."""
        if place.type is None:
            place.be_one(kind, shape)
        elif place.type == TYPES.get(kind) and place.shape == tuple(shape):
            self.tied[name_of(path)] = place.name

    def _hold_array(self, numpy, value, path):
        if type(value) is not numpy.ndarray or value.dtype.hasobject or value.dtype.names:
            raise NotSupported(f'{join_name(path)} is an array of {value.dtype}, not of numbers')
        held = {'$array': [value.dtype.str, list(value.shape)]}
        base = value
        while type(base.base) is numpy.ndarray:
            base = base.base
        if value.size:
            # Its owner's memory, if that is in one piece; else the bytes from first to last.
            if base.flags.c_contiguous or base.flags.f_contiguous:
                low, size = base.__array_interface__['data'][0], base.nbytes
            else:
                low, high = _bounds_of(value)
                size = high - low
            at = value.__array_interface__['data'][0]
            place = self.put(path, low, size, value)
            held.update(storage=place.name, offset=at - low, stride=list(value.strides))
            if value.flags.c_contiguous and value.dtype.isnative and value.nbytes == size:
                self._name_whole(place, path, value.dtype.name, value.shape)
        return held

    def _hold_buffer(self, value, path):
        kind = 'B' if type(value) is bytearray else value.typecode
        held = {'$buffer': [type(value).__name__, kind]}
        size = len(value) * (1 if type(value) is bytearray else value.itemsize)
        if size:
            # A copy: else the program could not make it longer any more.
            copy = (ctypes.c_char * size).from_buffer_copy(value)
            held['storage'] = self.put(path, ctypes.addressof(copy), size, copy, True).name
            held['bytes'] = size
        return held


def fresh(size):
    """Memory for a storage: an array of torch or numpy, whichever is there, and its address."""
    torch, numpy = sys.modules.get('torch'), sys.modules.get('numpy')
    if torch:
        made = torch.empty(size, dtype=torch.uint8)
        return made, made.data_ptr()
    if numpy:
        made = numpy.empty(size, numpy.uint8)
        return made, made.__array_interface__['data'][0]
    made = (ctypes.c_char * size)()
    return made, ctypes.addressof(made)


def _ints(values):
    """A list of numbers, as it says; a text times a number would be a long text."""
    if type(values) is not list or any(type(one) is not int or abs(one) >> 62 for one in values):
        raise SnapshotError(f'{values!r:.80} are no numbers of a view', 'FORMAT')
    return values


def _check_view(offset, item, shape, strides, size):
    """All in bytes; a view that leaves its storage would read the memory of others."""
    if any(count < 0 for count in shape):
        raise SnapshotError(f'a view of {shape}', 'FORMAT')
    low = offset + sum(min(0, (count - 1) * stride) for count, stride in zip(shape, strides))
    high = (
        offset + item + sum(max(0, (count - 1) * stride) for count, stride in zip(shape, strides))
    )
    if len(shape) != len(strides) or low < 0 or high > size:
        raise SnapshotError(f'a view of {shape} leaves its storage of {size} bytes', 'FORMAT')


def _check_empty(shape):
    if 0 not in shape:
        raise SnapshotError(f'a view of {shape} has no storage', 'FORMAT')


def tensor_of(view, storage, size):
    """A tensor; `storage` is an array of bytes, or None where it has no bytes."""
    import torch

    kind, shape = getattr(torch, view['$tensor'][0]), _ints(view['$tensor'][1])
    if not isinstance(kind, torch.dtype):
        raise ValueError(f'torch.{view["$tensor"][0]} is no type')
    if storage is None:
        _check_empty(shape)
        return torch.empty(shape, dtype=kind, device=view.get('device', 'cpu'))
    item = torch.empty(0, dtype=kind).element_size()
    (offset,), strides = _ints([view['offset']]), _ints(view['stride'])
    _check_view(offset * item, item, shape, [item * one for one in strides], size)
    flat = torch.as_tensor(storage)[: size // item * item].view(kind)
    made = flat.as_strided(shape, view['stride'], view['offset'])
    return made.to(view['device']) if 'device' in view else made


def array_of(view, storage, size):
    import numpy

    kind, shape = numpy.dtype(view['$array'][0]), _ints(view['$array'][1])
    if kind.hasobject:
        raise ValueError('an array of objects')
    if storage is None:
        _check_empty(shape)
        return numpy.empty(shape, kind)
    _ints([view['offset'], *view['stride']])
    _check_view(view['offset'], kind.itemsize, shape, view['stride'], size)
    raw = numpy.asarray(storage)
    return numpy.ndarray(shape, kind, raw.data, view['offset'], tuple(view['stride']))


def buffer_of(view, storage, size):
    name, kind = view['$buffer']
    raw = (
        b'' if storage is None else bytes(memoryview(getattr(storage, 'numpy', lambda: storage)()))
    )
    return bytearray(raw) if name == 'bytearray' else array.array(kind, raw)


MAKERS = {'$tensor': tensor_of, '$array': array_of, '$buffer': buffer_of}


def make(kind, view, storage, size):
    """The array that a view of JSON, which may come from a stranger, stands for."""
    try:
        return MAKERS[kind](view, storage, size)
    except SnapshotError:
        raise
    except NONSENSE as error:
        raise SnapshotError(f'a view makes no sense: {error}', 'FORMAT') from error
