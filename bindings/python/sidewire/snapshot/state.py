# SPDX-License-Identifier: BSD-2-Clause
"""A state, taken apart into small JSON and storages; and put back where it came from.

A state is a dict, nested at will, of tensors, arrays, numbers, texts, and of things that have
state_dict() and load_state_dict(): models, optimizers, schedulers, scalers, samplers.
"""
import ctypes
import fnmatch
import json
import sys

from . import arrays
from .library import NotSupported, OtherState, SnapshotError
from .values import NONSENSE, decode, encode, join_name

COPIED_BELOW = 64 << 10  # storages as small are copied when a snapshot begins


def is_stateful(value):
    return callable(getattr(value, 'state_dict', None)) and callable(
        getattr(value, 'load_state_dict', None)
    )


def _is_module(value):
    torch = sys.modules.get('torch')
    return bool(torch) and isinstance(value, torch.nn.Module)


class Parts:
    """A state at an instant: `tree` for JSON, and its storages."""

    def __init__(self, state, leave_out=()):
        self._leave_out = leave_out
        self._storages, self._buffers = arrays.Storages(), set()
        self.tree = encode(state, (), self._hold)
        self.storages = list(self._storages.by_name.values())
        for storage in self.storages:
            # A forward pass writes buffers, before the gate: batch norm does.
            storage.is_copied |= storage.bytes < COPIED_BELOW or storage.pointer in self._buffers

    def _hold(self, value, path):
        if not is_stateful(value):
            return self._storages.hold(value, path)
        if _is_module(value):
            self._buffers.update(arrays.storage_of(one)[0] for one in value.buffers())
        return {'$state': encode(self._trim(value.state_dict(), path), path, self._hold)}

    def _trim(self, state, path):
        if not isinstance(state, dict) or not self._leave_out:
            return state
        names = {key: join_name((*path, key)) for key in state}
        gone = {
            key for key in state for one in self._leave_out if fnmatch.fnmatchcase(names[key], one)
        }
        return {key: value for key, value in state.items() if key not in gone} if gone else state

    def small(self, more):
        tree = {'format': 1, **more, 'tied': self._storages.tied, 'state': self.tree}
        return json.dumps(tree, separators=(',', ':')).encode()

    def layout(self):
        """What has to be described anew when it is another one."""
        return tuple(
            (one.name, None if one.is_copied else one.pointer, one.bytes, one.type, one.shape)
            for one in self.storages
        )


def read_small(raw):
    """The object that small() wrote."""
    try:
        tree = json.loads(raw)
        if tree['format'] != 1:
            raise SnapshotError(f'its small state is of format {tree["format"]}', 'VERSION')
        return tree
    except (ValueError, TypeError, KeyError, RecursionError):
        raise SnapshotError('its small state was not written by Snapshotter', 'FORMAT') from None


def names_beyond(saved, target):
    """What the snapshot has at its top, and the state has not."""
    try:
        kind = next(iter(saved), '')
        if kind in ('$dict', '$ordered'):
            saved = {decode(key): one for key, one in saved[kind]}
        return [str(key) for key in saved if key not in target]
    except SnapshotError:
        raise
    except NONSENSE as error:
        raise SnapshotError(f'its small state makes no sense: {error!r}', 'FORMAT') from error


class Filling:
    """Storages of a snapshot that go back into a state.

    First everything is compared, then all is read, then things are told. So a state of another
    shape is refused before anything has changed."""

    def __init__(self, sizes):
        self._sizes = sizes  # of each storage of the snapshot, by name
        self._memory = (
            {}
        )  # by name: an array of bytes, its address, whether it is the program's own
        self._targets = {}  # by address: the name of the storage that goes there
        self._copies, self._actions = [], []

    # ---- comparing ----

    def compare(self, saved, target):
        """Plans all; what makes no sense is refused. Returns the function that fills the target."""
        try:
            return self.plan(saved, target)[0]
        except SnapshotError:
            raise
        except NONSENSE as error:
            raise SnapshotError(f'its small state makes no sense: {error!r}', 'FORMAT') from error

    def plan(self, saved, target, path=()):
        """Plans `saved` (JSON) into `target`; returns a function that gives the value afterwards,
        and whether that is `target` itself, filled."""
        if is_stateful(target):
            return self._plan_stateful(saved, target, path), True
        if isinstance(target, dict) and isinstance(saved, dict):
            return self._plan_dict(saved, target, path)
        held = self._held(target, path)
        if held is not None:
            return self._plan_array(saved, held, target, path), True
        if isinstance(target, list) and isinstance(saved, list) and len(target) == len(saved):
            return self._plan_pairs(list(enumerate(saved)), target, path), True
        if isinstance(saved, dict) and '$state' in saved:
            raise OtherState(f'{join_name(path)} had a state_dict() in the snapshot')
        return self._plan_new(saved), False

    @staticmethod
    def _held(target, path):
        held = arrays.Storages().hold(target, path)
        return None if held and '$buffer' in held else held  # buffers are given anew

    def _plan_pairs(self, pairs, target, path):
        plans = [(key, *self.plan(one, target[key], (*path, key))) for key, one in pairs]

        def give():
            for key, value, is_same in plans:
                if is_same:
                    value()
                else:
                    target[key] = value()
            return target

        return give

    def _plan_dict(self, saved, target, path):
        kind = next(iter(saved), '')
        if kind in ('$dict', '$ordered'):
            saved = {decode(key): one for key, one in saved[kind]}
        elif kind.startswith('$'):
            if kind == '$counter':
                return self._plan_new(saved), False
            raise OtherState(f'{join_name(path)} is no dict in the snapshot')
        for key, one in target.items():
            if key not in saved and (is_stateful(one) or self._held(one, path) is not None):
                raise OtherState(f'{join_name((*path, key))} is not in the snapshot')
        there = [(key, one) for key, one in saved.items() if key in target]
        new = [(key, self._plan_new(one)) for key, one in saved.items() if key not in target]
        fill = self._plan_pairs(there, target, path)

        def give():
            fill()
            target.update((key, value()) for key, value in new)
            return target

        return give, True

    def _plan_stateful(self, saved, target, path):
        if not isinstance(saved, dict) or '$state' not in saved:
            raise OtherState(f'{join_name(path)} had no state_dict() in the snapshot')
        current, saved = target.state_dict(), saved['$state']
        is_module = _is_module(target)
        if isinstance(current, dict):
            self._compare(saved, current, path, is_module)
            self._compare_groups(saved, current, path)
        if is_module:
            plan, _ = self.plan(saved, current, path)
        else:
            plan = self._plan_new(saved)

        def give():
            value = plan()
            if is_module and value is not current:
                value._metadata = getattr(current, '_metadata', None)
            try:
                target.load_state_dict(value)
            except (ValueError, KeyError, RuntimeError) as error:
                raise OtherState(f'{join_name(path)}: {error}') from error
            return target

        return give

    def _compare(self, saved, current, path, is_strict):
        """Names and shapes that differ are told before anything is changed."""
        kind = next(iter(saved), '') if isinstance(saved, dict) else None
        if kind in ('$dict', '$ordered'):
            saved = {decode(key): one for key, one in saved[kind]}
        elif kind is None or kind.startswith('$'):
            if is_strict:
                raise OtherState(f'{join_name(path)} is no dict in the snapshot')
            return
        if is_strict and saved.keys() != current.keys():
            for what, names in (
                ('is not in the snapshot', [key for key in current if key not in saved]),
                (
                    'of the snapshot is not in the state',
                    [key for key in saved if key not in current],
                ),
            ):
                if names:
                    raise OtherState(
                        f'{join_name((*path, names[0]))} {what} (of {len(names)} such)'
                    )
        for key, one in current.items():
            if key not in saved:
                continue
            held = self._held(one, (*path, key))
            if held is not None:
                self._compare_arrays(saved[key], held, (*path, key))
            elif isinstance(one, dict) and isinstance(saved[key], dict):
                self._compare(saved[key], one, (*path, key), False)

    @staticmethod
    def _compare_groups(saved, current, path):
        """Optimizers: the groups of parameters."""
        ours, theirs = current.get('param_groups'), saved.get('param_groups')
        if isinstance(ours, list) and isinstance(theirs, list):
            counts = [[len(one.get('params', ())) for one in groups] for groups in (ours, theirs)]
            if counts[0] != counts[1]:
                name = join_name((*path, 'param_groups'))
                raise OtherState(f'{name} have {counts[0]} here, {counts[1]} in the snapshot')

    @staticmethod
    def _compare_arrays(saved, held, path):
        kind = next(iter(held))
        if not isinstance(saved, dict) or kind not in saved:
            raise OtherState(f'{join_name(path)} is no {kind[1:]} in the snapshot')
        if saved[kind] != held[kind]:
            ours, theirs = (f'{one[0]} {one[1]}' for one in (held[kind], saved[kind]))
            raise OtherState(f'{join_name(path)} is {ours} here, and {theirs} in the snapshot')

    def _plan_array(self, saved, held, target, path):
        self._compare_arrays(saved, held, path)
        kind = next(iter(held))
        if 'storage' not in saved:
            return lambda: target
        own = arrays.Storages()
        own.hold(target, path)
        place = next(iter(own.by_name.values()))
        name = saved['storage']
        # Views that are not the whole of a storage may have been of several when they were saved.
        if self._targets.setdefault(place.pointer, name) != name and place.type is not None:
            raise OtherState(f'{join_name(path)} shares its memory here, and not in the snapshot')
        alike = all(saved.get(key) == held.get(key) for key in ('offset', 'stride', 'device'))
        if place.bytes == self._size_of(name, path) and alike and not place.is_copied:
            self._memory[name] = self._memory.get(name) or (target, place.pointer, True)

        def give():
            _, pointer, is_own = self._memory[name]
            if is_own and pointer == place.pointer and alike:
                return target
            source = arrays.make(kind, saved, self._bytes_of(name), self._sizes[name])
            if kind == '$tensor':
                target.detach().copy_(source)
            else:
                target[...] = source
            return target

        self._memory.setdefault(name, None)  # None: to be read into memory of its own
        return give

    def _plan_new(self, saved):
        """A value of its own, with memory of its own."""
        for view in view_values(saved):
            if 'storage' in view:
                self._size_of(view['storage'], ())
                self._memory.setdefault(view['storage'], None)
        return lambda: decode(saved, self._find)

    def _size_of(self, name, path):
        if name not in self._sizes:
            raise SnapshotError(
                f'{name}, of which {join_name(path)} is a view, is missing', 'FORMAT'
            )
        return self._sizes[name]

    # ---- reading ----

    def wanted(self):
        """(name, address) of each storage that is to be read."""
        for name, memory in self._memory.items():
            if memory is None:
                made, pointer = arrays.fresh(self._sizes[name])
                self._memory[name] = memory = (made, pointer, False)
            yield name, memory[1]

    def _bytes_of(self, name):
        memory, pointer, is_own = self._memory[name]
        if not is_own:
            return memory
        # The program's own: as bytes, without a copy.
        size = self._sizes[name]
        made, at = arrays.fresh(size)
        ctypes.memmove(at, pointer, size)
        return made

    def _find(self, kind, view):
        if kind not in arrays.MAKERS:
            return decode(view['$state'], self._find) if kind == '$state' else None
        name = view.get('storage')
        if name is None:
            return arrays.make(kind, view, None, 0)
        memory = self._memory[name]
        storage = self._bytes_of(name) if memory[2] else memory[0]
        return arrays.make(kind, view, storage, self._sizes[name])


def view_values(saved):
    """The objects in JSON that stand for arrays."""
    stack = [saved]
    while stack:
        one = stack.pop()
        if isinstance(one, list):
            stack.extend(one)
        elif isinstance(one, dict):
            if next(iter(one), '') in arrays.MAKERS:
                yield one
            else:
                stack.extend(one.values())


def refuse_top(state):
    """A state is a dict: what it has, has a name."""
    if not isinstance(state, dict):
        raise NotSupported(f'a state is a dict, not a {type(state).__name__}')
