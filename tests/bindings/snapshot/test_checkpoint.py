# SPDX-License-Identifier: BSD-2-Clause
"""torch's distributed checkpoint over our storage: saved by some ranks, loaded by others."""
import os
import sys
import tempfile
import unittest

from needs import LIMIT_S, run, torch

from sidewire import snapshot
from sidewire.snapshot.checkpoint import StorageReader, StorageWriter, dcp

RANKS = os.path.join(os.path.dirname(os.path.abspath(__file__)), 'checkpoint_ranks.py')
SAVE = dcp.save if hasattr(dcp, 'save') else dcp.save_state_dict
LOAD = dcp.load if hasattr(dcp, 'load') else dcp.load_state_dict
ALONE = {} if hasattr(dcp, 'save') else {'no_dist': True}


class Folder(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.sink = 'file:' + os.path.join(folder.name, 'rank-{rank}.snap')


class Ranks(Folder):
    def run_ranks(self, *orders):
        code, out, error = run(RANKS, self.sink, *orders)
        self.assertEqual((code, out), (0, ''), error)

    def test_four_ranks__are_loaded_by_three_and_five(self):
        self.run_ranks('save,4,rows', 'load,3,rows', 'load,5,rows')

    def test_rows__are_loaded_as_columns(self):
        self.run_ranks('save,3,rows', 'load,2,columns')

    def test_snapshotter__all_ranks_go_on_from_the_same_step(self):
        """One is killed; then all are there again."""
        self.run_ranks('train,3,1', 'train,3,-1')

    def test_one_rank__saves_a_second_time(self):
        self.run_ranks('save,1,rows', 'save,1,rows', 'load,2,rows')
        with snapshot.Reader(self.sink) as reader:
            self.assertEqual([entry.step for entry in reader.list()], [2, 1])


class Alone(Folder):
    def save(self, state, **options):
        SAVE(state, storage_writer=StorageWriter(self.sink, **options), **ALONE)

    def load(self, state, **options):
        LOAD(state, storage_reader=StorageReader(self.sink, **options), **ALONE)

    def test_views__only_their_own_bytes_are_saved(self):
        base = torch.arange(100000.0)
        self.save({'view': base[10:20:2], 'turned': base.view(10, -1)[:, :3].T})
        state = {'view': torch.zeros(5), 'turned': torch.zeros(3, 10)}
        self.load(state)
        self.assertTrue(torch.equal(state['view'], base[10:20:2]))
        self.assertTrue(torch.equal(state['turned'], base.view(10, -1)[:, :3].T))
        with snapshot.Reader(self.sink) as reader:
            self.assertLess(reader.choose().bytes, 8192)

    def test_steps__are_numbered(self):
        for step in (5, 6):
            self.save({'a': torch.full((3,), float(step))}, step=step if step == 5 else None)
        for step in (5, 6):
            state = {'a': torch.zeros(3)}
            self.load(state, step=step)
            self.assertEqual(state['a'].tolist(), [step] * 3)

    def test_object__that_json_cannot_hold_is_refused_by_name(self):
        with self.assertRaisesRegex(BaseException, 'bad.fn is a builtin_function_or_method'):
            self.save({'a': torch.ones(2), 'bad': {'fn': (print,)[0]}})

    def test_nothing_is_pickled(self):
        """What pickles is not even there while it saves and loads."""
        import pickle

        kept = {
            name: getattr(pickle, name) for name in ('dumps', 'dump', 'loads', 'load', 'Pickler')
        }

        def refuse(*_, **__):
            raise AssertionError('something was pickled')

        try:
            for name in kept:
                setattr(pickle, name, refuse)
            self.save({'a': torch.ones(3), 'b': {'c': (1, 2)}})
            state = {'a': torch.zeros(3), 'b': None if ALONE else {'c': None}}
            self.load(state)
        finally:
            for name, value in kept.items():
                setattr(pickle, name, value)
        self.assertEqual(state['a'].tolist(), [1] * 3)
        self.assertEqual(state['b'], {'c': (1, 2)})

    def test_snapshot_of_another_kind__is_refused(self):
        with snapshot.Snapshotter({'a': torch.ones(3)}, self.sink) as snapshots:
            snapshots.begin(1)
        with self.assertRaisesRegex(BaseException, 'it was saved by Snapshotter'):
            self.load({'a': torch.ones(3)})
        self.save({'a': torch.ones(3)}, step=2)
        with self.assertRaises(snapshot.SnapshotError):
            snapshot.restore({'a': torch.zeros(3)}, self.sink)


@unittest.skipUnless(hasattr(dcp, 'async_save'), 'torch 1.13 has no async_save()')
class Later(Folder):
    def test_async__is_what_was_there_when_it_was_called(self):
        model = torch.nn.Sequential(torch.nn.Linear(300, 300), torch.nn.BatchNorm1d(300))
        optimizer = torch.optim.Adam(model.parameters())
        writer = StorageWriter(self.sink).attach(optimizer)
        self.addCleanup(writer.close)

        def step():
            optimizer.zero_grad()
            model(torch.randn(8, 300)).sum().backward()
            optimizer.step()

        for number in range(1, 4):
            step()
            wanted = {key: value.clone() for key, value in model.state_dict().items()}
            saved = dcp.async_save({'model': model, 'number': number}, storage_writer=writer)
            step()
            saved.result(LIMIT_S)
            state = {'model': {key: value.clone() for key, value in model.state_dict().items()}}
            state['number'] = 0
            self.load(state)
            self.assertEqual(state['number'], number)
            for key, value in wanted.items():
                self.assertTrue(torch.equal(state['model'][key], value), key)

    def load(self, state):
        dcp.load(state, storage_reader=StorageReader(self.sink))


if __name__ == '__main__':
    sys.exit(unittest.main())
