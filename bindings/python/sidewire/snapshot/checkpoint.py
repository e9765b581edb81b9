# SPDX-License-Identifier: BSD-2-Clause
"""Storage for torch's distributed checkpoint: of torch 2, and of torch 1.13, where that is called
torch.distributed._shard.checkpoint and saves by save_state_dict().

    writer = StorageWriter('file:/data/run-{rank}.snap')            instead of FileSystemWriter
    dcp.save(state_dict, storage_writer=writer)
    dcp.load(state_dict, storage_reader=StorageReader('file:/data/run-{rank}.snap'))

Each rank has volumes of its own: `{rank}` in a sink is its number. The planner reshards, so that
any number of ranks may load. Objects are saved as JSON, never pickled; what JSON and arrays cannot
hold is refused by name.

dcp.async_save() copies nothing first, where the writer is attached to the optimizer: the state is
captured while the next step computes, and optimizer.step() waits for what is left.
"""
import contextlib
import dataclasses
import json
import os
import socket
import threading
import time

import torch
from torch.futures import Future

from . import arrays
from . import library as lib
from .arrays import Storages, fresh
from .reader import Reader
from .state import COPIED_BELOW, read_small, view_values
from .values import NONSENSE, decode, encode
from .writer import Range, Writer, failure_of, put_gate


@contextlib.contextmanager
def _hashable_properties():
    """Python 3.11 takes no default of a class without a hash, as torch 1.13 gives for its
    TensorProperties: its checkpoints could not even be imported."""
    real = dataclasses.dataclass

    def dataclass(cls=None, **words):
        if getattr(cls, '__name__', '') == 'TensorProperties':
            words['unsafe_hash'] = True
        return real(cls, **words)

    dataclasses.dataclass = dataclass
    try:
        yield
    finally:
        dataclasses.dataclass = real


if int(torch.__version__.split('.')[0]) >= 2:
    from torch.distributed import checkpoint as dcp
    from torch.distributed.checkpoint import metadata as meta
    from torch.distributed.checkpoint.planner import LoadItemType, WriteItemType
    from torch.distributed.checkpoint.storage import WriteResult

    TensorProperties = meta.TensorProperties
else:
    with _hashable_properties():
        from torch.distributed._shard import checkpoint as dcp
        from torch.distributed._shard.checkpoint import metadata as meta
        from torch.distributed._shard.checkpoint.planner import LoadItemType, WriteItemType
        from torch.distributed._shard.checkpoint.storage import WriteResult
        from torch.distributed._shard.sharded_tensor.metadata import TensorProperties

BATCH_BYTES = 256 << 20  # so much is read before it is copied to where it belongs
PAUSE_S = 0.002
PROPERTIES = ('dtype', 'layout', 'requires_grad', 'memory_format', 'pin_memory')


def _refused(fqn, error):
    return lib.NotSupported(f'{fqn}: {error}')


def _done(value):
    future = Future()
    future.set_result(value)
    return future


class _Items:
    """What a rank writes of a plan: ranges, and JSON that says what they are."""

    def __init__(self, plan, planner):
        self._storages = Storages()
        self._places = {}  # by the name of the storage: (at, whole)
        self.tree, self.results = {'items': [], 'objects': []}, []
        self.tree['planner'] = encode(plan.planner_data, ('planner_data',))
        for item in plan.items:
            fqn = item.index.fqn
            if item.type == WriteItemType.BYTE_IO:
                size = self._put_object(fqn, self._object_of(planner, item))
            else:
                size = self._put_tensor(item, planner.resolve_data(item).detach())
            self.results.append(WriteResult(item.index, size, None))

    @staticmethod
    def _object_of(planner, item):
        """resolve_data() would pickle it."""
        if not hasattr(planner, 'lookup_object'):
            raise _refused(item.index.fqn, 'the planner has no lookup_object(), only pickled bytes')
        return planner.lookup_object(item.index)

    def _put_object(self, fqn, value):
        held = encode(value, (fqn,), self._storages.hold)
        self.tree['objects'].append([fqn, held])
        return len(json.dumps(held))

    def _put_tensor(self, item, tensor):
        data, fqn = item.tensor_data, item.index.fqn
        if tensor.layout != torch.strided or tensor.is_quantized:
            raise _refused(fqn, 'not a dense tensor')
        tensor = tensor.resolve_conj().resolve_neg().cpu().contiguous()
        kind = str(tensor.dtype).removeprefix('torch.')
        size, name = tensor.numel() * tensor.element_size(), None
        at, sizes, whole = (tuple(one) for one in (data.chunk.offsets, data.chunk.sizes, data.size))
        if size:
            place = self._storages.put((fqn,), tensor.data_ptr(), size, tensor)
            if place.type is None:
                place.be_one(kind, sizes)
                if place.type is not None and sizes != whole:
                    self._places[place.name] = (at, whole)
            name = place.name
        properties = {key: getattr(data.properties, key) for key in PROPERTIES}
        properties['dtype'] = tensor.dtype
        held = {'fqn': fqn, 'range': name, 'at': at, 'sizes': sizes, 'whole': whole}
        self.tree['items'].append({**held, 'properties': encode(properties, (fqn,))})
        return size

    def ranges(self):
        for one in self._storages.by_name.values():
            at, whole = self._places.get(one.name, ((), ()))
            yield Range(one.name, one.pointer, one.bytes, one.type, one.shape, at, whole)

    def small(self, step):
        tree = {'format': 1, 'kind': 'checkpoint', 'step': step, 'tied': self._storages.tied}
        return json.dumps({**tree, **self.tree}).encode()


class _Stager:
    """The state is not copied: gate() waits until it is captured."""

    _synchronize_after_execute = True

    def __init__(self):
        self._captured, self._thread, self._undo = threading.Event(), None, []
        self._captured.set()

    def attach(self, *optimizers):
        """optimizer.step() waits until all is captured, and async_save() no longer does."""
        self._undo += [put_gate(optimizer, self.gate) for optimizer in optimizers]
        self._synchronize_after_execute = False
        return self

    @property
    def should_synchronize_after_execute(self):
        return self._synchronize_after_execute

    def stage(self, state_dict, **_):
        self.gate()
        self._thread = None
        self._captured.clear()
        return _copy_small(state_dict, {})

    def synchronize_staging(self):
        self.gate()

    synchronize_after_execute = synchronize_staging

    def _note_thread(self):
        if not self._captured.is_set():
            self._thread = threading.current_thread()

    def gate(self, timeout=60.0):
        """Until the state may be written again. A save that has ended badly holds nobody up, nor
        does one that has not come so far in `timeout` seconds: that one may save what is newer."""
        until = time.monotonic() + timeout
        while not self._captured.wait(PAUSE_S):
            if (self._thread and not self._thread.is_alive()) or time.monotonic() > until:
                self._captured.set()


def _copy_small(value, seen):
    """What a forward pass may write, and plain values: they are copied at once."""
    if type(value) is torch.Tensor and value.numel() * value.element_size() < COPIED_BELOW:
        if value.layout != torch.strided:
            return value
        key = (value.data_ptr(), value.storage_offset(), value.size(), value.stride(), value.dtype)
        return seen.setdefault(key, value.clone())
    if isinstance(value, dict):
        copied = {key: _copy_small(one, seen) for key, one in value.items()}
        return copied if type(value) is dict else type(value)(copied)
    if type(value) in (list, tuple):
        return type(value)(_copy_small(one, seen) for one in value)
    return value


class StorageWriter(_Stager, dcp.StorageWriter):
    """Saves to one to three sinks. `step` numbers the snapshots; without it each has the number
    behind the newest. Other words are options of <sidewire/snapshot.h>. All ranks meet at `meet`
    (ADDRESS:PORT of rank 0); without it, at a free port of MASTER_ADDR."""

    def __init__(self, sinks, *, step=None, meet=None, **options):
        super().__init__()
        self._sinks, self.step, self._meet = sinks, step, meet
        self._options = {'take_over': True, 'looks_max': 0, **options}
        self._writer = self._ranks = self._last = self._kept = None

    # torch 2 and 1.13 call them by different names.
    def reset(self, checkpoint_id=None):
        self._note_thread()
        if checkpoint_id is not None:
            self.step = int(checkpoint_id)

    def set_up_storage_writer(self, is_coordinator, *_, **__):
        self._note_thread()

    init = set_up_storage_writer

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id):
        return str(checkpoint_id).isdigit()

    def storage_meta(self):
        return None

    def prepare_local_plan(self, plan):
        return plan

    def prepare_global_plan(self, plans):
        """The coordinator tells all which step it is, who they are, and where they meet."""
        world = len(plans)
        if self._meet is None and world > 1:
            self._meet = f'{os.environ.get("MASTER_ADDR", "127.0.0.1")}:{_free_port()}'
        told = {'world': world, 'meet': self._meet, 'step': self._next_step(world)}
        return [
            dataclasses.replace(plan, storage_data={**told, 'rank': rank})
            for rank, plan in enumerate(plans)
        ]

    def _next_step(self, world):
        if self.step is not None:
            return self.step
        if self._last is None:
            self._last = 0
            try:
                with Reader(self._sinks, **_reading(self._options), world=world) as reader:
                    self._last = max((entry.step for entry in reader.list()), default=0)
            except lib.SnapshotError:
                pass  # nothing is there yet
        return self._last + 1

    def write_data(self, plan, planner):
        self._note_thread()
        try:
            items = _Items(plan, planner)
            self._begin(plan.storage_data, items)
            status = self._writer.gate('wait')
        finally:
            self._captured.set()
        if status != 'OK':
            info = self._writer.info()
            raise failure_of(info) if info.error.status else lib.error_of(lib.CODES[status])
        self._wait()
        self._last = plan.storage_data['step']
        return _done(items.results)

    def _begin(self, told, items):
        ranks = (told['rank'], told['world'])
        if self._ranks != ranks:
            self.close()
            meet = told['meet'] if told['world'] > 1 else None
            self._writer = Writer(
                self._sinks, rank=ranks[0], world=ranks[1], meet=meet, **self._options
            )
            self._ranks = ranks
        self._writer.describe([*items.ranges()])
        self._kept = items  # their memory stays while the writer may look at it
        self._writer.begin(told['step'], items.small(told['step']))

    def _wait(self):
        while True:
            info = self._writer.info()
            if info.stage == lib.STAGES['DURABLE']:
                return
            if info.stage == lib.STAGES['FAILED']:
                raise failure_of(info)
            time.sleep(PAUSE_S)

    def finish(self, metadata, results):
        """Nothing is left to do: the metadata are in the snapshot, which is durable on all ranks,
        or on none."""

    def close(self):
        writer, self._writer, self._ranks = self._writer, None, None
        if writer is not None:
            writer.close()


def _reading(options):
    names = ('local', 'connect_timeout_ms', 'stall_timeout_ms')
    return {name: options[name] for name in names if name in options}


def _free_port():
    with socket.socket() as free:
        free.bind(('', 0))
        return free.getsockname()[1]


class StorageReader(dcp.StorageReader):
    """Reads the newest whole snapshot, or that of `step`, whichever ranks have saved it."""

    def __init__(self, sinks, *, step=None, **options):
        super().__init__()
        self._sinks, self.step, self._options = sinks, step, options
        self._reader, self._items, self._objects, self._numbers = None, {}, {}, {}

    def reset(self, checkpoint_id=None):
        if checkpoint_id is not None:
            self.step = int(checkpoint_id)

    def set_up_storage_reader(self, metadata, is_coordinator, *_, **__):
        pass

    init = set_up_storage_reader

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id):
        return str(checkpoint_id).isdigit()

    def prepare_local_plan(self, plan):
        return plan

    def prepare_global_plan(self, plans):
        return plans

    def read_metadata(self, *_, **__):
        self.close()
        self._reader = Reader(self._sinks, **self._options)
        entry = self._reader.choose(self.step)
        ranges = self._reader.items()
        self._numbers = {(one.rank, one.name): one for one in ranges}
        self._items, self._objects, planner_data = {}, {}, None
        state = {}
        for rank in range(entry.world):
            tree = read_small(self._reader.small(rank))
            if tree.get('kind') != 'checkpoint':
                raise lib.OtherState('it was saved by Snapshotter, whose restore() reads it')
            try:
                self._take(rank, tree, state)
                planner_data = _merged(planner_data, decode(tree['planner']))
            except lib.SnapshotError:
                raise
            except NONSENSE as error:
                raise lib.SnapshotError(f'metadata of rank {rank}: {error!r}', 'FORMAT') from error
        return meta.Metadata(state, planner_data=planner_data)

    def _take(self, rank, tree, state):
        for fqn, held in tree['objects']:
            state[fqn] = meta.BytesStorageMetadata()
            self._objects[fqn] = (rank, held)
        for item in tree['items']:
            fqn, properties = item['fqn'], decode(item['properties'])
            at, sizes, whole = (torch.Size(item[key]) for key in ('at', 'sizes', 'whole'))
            self._check(rank, item['range'], properties['dtype'], at, sizes, whole)
            if fqn not in state:
                made = TensorProperties(**properties)
                state[fqn] = meta.TensorStorageMetadata(made, whole, [])
            state[fqn].chunks.append(meta.ChunkStorageMetadata(at, sizes))
            index = meta.MetadataIndex(fqn, at)
            self._items[index] = (rank, item['range'], sizes, properties['dtype'])

    def _check(self, rank, name, dtype, at, sizes, whole):
        """Metadata may come from a stranger."""
        if not isinstance(dtype, torch.dtype) or not len(at) == len(sizes) == len(whole):
            raise ValueError(f'{name}: {dtype}, {at}, {sizes}, {whole}')
        if any(not 0 <= one <= one + size <= end for one, size, end in zip(at, sizes, whole)):
            raise ValueError(f'{name}: {sizes} at {at} leave {whole}')
        size = sizes.numel() * torch.empty(0, dtype=dtype).element_size()
        if size and self.range_of(rank, name).bytes != size:
            raise ValueError(f'{name} has not {size} bytes')

    # ---- data ----

    def read_data(self, plan, planner):
        waiting, size = [], 0
        for request in plan.items:
            if request.type == LoadItemType.BYTE_IO:
                _give_object(
                    planner, request.dest_index.fqn, self._object_of(request.dest_index.fqn)
                )
                continue
            part = _Part(self, request, planner)
            waiting.append(part)
            size += part.bytes
            if size > BATCH_BYTES:
                self._read(waiting)
                waiting, size = [], 0
        self._read(waiting)
        return _done(None)

    def _read(self, parts):
        self._reader.read(part.piece for part in parts if part.bytes)
        for part in parts:
            part.put()

    def range_of(self, rank, name):
        try:
            return self._numbers[rank, name]
        except KeyError:
            raise lib.SnapshotError(f'rank {rank} has no {name}', 'FORMAT') from None

    def item_of(self, index):
        return self._items[index]

    def _object_of(self, fqn):
        rank, held = self._objects[fqn]
        memory, pieces = {}, []
        for view in view_values(held):
            name = view.get('storage')
            if name is not None and name not in memory:
                one = self.range_of(rank, name)
                made, pointer = fresh(one.bytes)
                memory[name] = (made, one.bytes)
                pieces.append((one.number, 0, one.bytes, pointer))
        self._reader.read(pieces)
        return decode(held, lambda kind, view: _make(kind, view, memory))

    def close(self):
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.close()


class _Part:
    """A box of a saved chunk that goes into a box of a tensor: whole rows are read."""

    def __init__(self, reader, request, planner):
        self._request, self._planner = request, planner
        rank, name, sizes, dtype = reader.item_of(request.storage_index)
        self._target = planner.resolve_tensor(request).detach()
        self._box = [*zip(request.storage_offsets, request.lengths)]
        item = torch.empty(0, dtype=dtype).element_size()
        row = item
        for one in sizes[1:]:
            row *= one
        first, rows = self._box[0] if sizes else (0, 1)
        self.bytes = rows * row if all(request.lengths) else 0
        self._source = None
        if not self.bytes:
            return
        place = reader.range_of(rank, name)
        if first < 0 or (first + rows) * row > place.bytes:
            raise lib.SnapshotError(f'{name} has {place.bytes} bytes, too few', 'FORMAT')
        target, pointer = self._target, None
        is_plain = target.device.type == 'cpu' and target.is_contiguous() and target.dtype == dtype
        if is_plain and target.numel() * item == self.bytes:
            pointer = target.data_ptr()
        else:
            flat, pointer = fresh(self.bytes)
            self._source = flat.view(dtype).view([rows, *sizes[1:]] if sizes else [])
        self.piece = (place.number, first * row, self.bytes, pointer)

    def put(self):
        if self._source is not None:
            source = self._source
            for dim, (first, length) in enumerate(self._box):
                source = source.narrow(dim, first if dim else 0, length)
            if source.size() != self._target.size():
                name = self._request.dest_index.fqn
                raise lib.OtherState(
                    f'{name}: {source.size()} is saved, {self._target.size()} here'
                )
            self._target.copy_(source)
        self._planner.commit_tensor(self._request, self._target)


def _make(kind, view, memory):
    if kind not in arrays.MAKERS:
        return None
    storage, size = memory.get(view.get('storage'), (None, 0))
    return arrays.make(kind, view, storage, size)


def _merged(first, second):
    """What planners keep: of torch 2 a dict of the paths of flattened names."""
    if isinstance(first, dict) and isinstance(second, dict):
        return {**second, **first}
    return second if first is None else first


def _give_object(planner, fqn, value):
    """What load_bytes() of torch's own planners does, but for the pickle."""
    if not hasattr(planner, 'state_dict'):
        raise _refused(fqn, 'the planner has no state_dict, and takes pickled bytes alone')
    if not getattr(planner, 'flatten_state_dict', False):
        planner.state_dict[fqn] = value
        return
    *path, last = planner.mappings[fqn]
    container = planner.original_state_dict
    for key in path:
        key = _key_of(container, key)
        if isinstance(container, dict):
            container.setdefault(key, {})
        container = container[key]
    container[_key_of(container, last)] = value


def _key_of(container, key):
    """torch 2 makes texts of all keys on its way: optimizers have numbers."""
    if isinstance(container, dict) and key not in container:
        return next((one for one in container if str(one) == key), key)
    return key
