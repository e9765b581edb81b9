# SPDX-License-Identifier: BSD-2-Clause
"""Where training is in its data, and the states of the random generators, so that it goes on there.

    sampler = Sampler(len(dataset), seed=1)
    loader = DataLoader(dataset, batch_size=32, sampler=sampler, num_workers=4)
    state = {..., 'data': sampler, 'random': RandomStates(sampler)}
    while sampler.epoch < epochs:
        for batch in sampler.batches(loader):
            ...

The loader's workers fetch ahead. What counts is what sampler.batches() has handed out.
"""
import hashlib
import random
import sys


def mix(*numbers):
    """64 bits that depend on all of the numbers, on every machine the same."""
    text = ','.join(map(str, numbers)).encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), 'little')


class Sampler:
    """The indices of a data set, shuffled anew in each epoch, by seed and epoch alone; of them
    rank `rank` of `world` has each `world`-th. With `keyed` each is a pair: the index, and a seed
    of 63 bits for what a data set draws itself, which does not depend on the worker that draws."""

    def __init__(self, length, *, seed=0, shuffle=True, rank=0, world=1, keyed=False):
        if length < 0 or not 0 <= rank < world:
            raise ValueError(f'a length of {length}, rank {rank} of {world}')
        self.length, self.seed, self.shuffle, self.keyed = length, seed, shuffle, keyed
        self.rank, self.world = rank, world
        self.epoch = self.position = 0  # batches that were handed out
        self._before = 0  # indices that went into batches of another size, before those
        self.random = None  # RandomStates that wait for the loader's iterator

    def order(self):
        """All indices of this rank in this epoch."""
        indices = list(range(self.length))
        if self.shuffle:
            random.Random(mix(self.seed, self.epoch)).shuffle(indices)
        return indices[self.rank :: self.world]

    def __len__(self):
        return len(range(self.rank, self.length, self.world))

    def __iter__(self):
        epoch, left = self.epoch, self.order()[self._skipped() :]
        for index in left:
            yield (index, mix(self.seed, epoch, index) >> 1) if self.keyed else index

    def _skipped(self):
        return self._before + self.position * self._batch

    _batch = 1

    def batches(self, loader):
        """The batches of this epoch that are left, then the next epoch has begun."""
        batch = getattr(loader, 'batch_size', None)
        if not batch:
            raise ValueError('the loader has no batch_size')
        if batch != self._batch:
            self._before, self.position, self._batch = self._skipped(), 0, batch
        left = iter(loader)  # it draws a seed for its workers: states are put back after that
        if self.random is not None:
            self.random.put_back()
        for one in left:
            self.position += 1
            yield one
        self.epoch, self.position, self._before = self.epoch + 1, 0, 0

    def state_dict(self):
        names = 'length seed shuffle rank world epoch position _batch _before'
        return {name.strip('_'): getattr(self, name) for name in names.split()}

    def load_state_dict(self, state):
        for name in ('length', 'seed', 'shuffle', 'rank', 'world'):
            if state[name] != getattr(self, name):
                ours = getattr(self, name)
                raise ValueError(f'{name} is {ours} here, and {state[name]} in the snapshot')
        self.epoch, self.position, self._batch = state['epoch'], state['position'], state['batch']
        self._before = state.get('before', 0)


class RandomStates:
    """The states of the generators of Python, numpy and torch, and of others that are given: of
    random.Random, numpy.random.Generator or torch.Generator. They are put back when they are
    restored, and once more when `sampler` has made the loader's iterator."""

    def __init__(self, sampler=None, **others):
        self._others, self._waiting = others, None
        if sampler is not None:
            sampler.random = self

    def state_dict(self):
        state = {'python': random.getstate()}
        numpy, torch = sys.modules.get('numpy'), sys.modules.get('torch')
        if numpy:
            state['numpy'] = numpy.random.get_state()
        if torch:
            state['torch'] = torch.get_rng_state()
            if torch.cuda.is_initialized():
                state['cuda'] = torch.cuda.get_rng_state_all()
        state['others'] = {name: _state_of(one) for name, one in self._others.items()}
        return state

    def load_state_dict(self, state):
        if state['others'].keys() != self._others.keys():
            raise ValueError(f'generators {[*self._others]} here, {[*state["others"]]} there')
        self._waiting = state
        self._put(state)

    def put_back(self):
        """Once after a state was restored; does nothing else."""
        state, self._waiting = self._waiting, None
        if state is not None:
            self._put(state)

    def _put(self, state):
        random.setstate(state['python'])
        numpy, torch = sys.modules.get('numpy'), sys.modules.get('torch')
        if numpy and 'numpy' in state:
            numpy.random.set_state(state['numpy'])
        if torch and 'torch' in state:
            torch.set_rng_state(state['torch'])
            if 'cuda' in state and torch.cuda.is_available():
                torch.cuda.set_rng_state_all(state['cuda'])
        for name, one in self._others.items():
            _put_into(one, state['others'][name])


def _state_of(generator):
    for getter in ('getstate', 'get_state'):
        if hasattr(generator, getter):
            return getattr(generator, getter)()
    return generator.bit_generator.state


def _put_into(generator, state):
    for setter in ('setstate', 'set_state'):
        if hasattr(generator, setter):
            getattr(generator, setter)(state)
            return
    generator.bit_generator.state = state
