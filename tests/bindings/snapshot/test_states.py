# SPDX-License-Identifier: BSD-2-Clause
"""States that are saved to a file and come back: bit by bit, or not at all."""
import array
import os
import random
import re
import sys
import tempfile
import threading
import time
import unittest
import warnings

from needs import LIMIT_S, ROOT, numpy, run, torch

from sidewire import snapshot
from torch import nn

MIB = 1 << 20


def alike(one, two):
    """Equal in type, shape and bits, at any depth."""
    if type(one) is not type(two):
        return False
    if torch.is_tensor(one):
        same = one.dtype == two.dtype and one.shape == two.shape
        raw = (value.contiguous().flatten().view(torch.uint8) for value in (one, two) if one.dim())
        return same and (torch.equal(*raw) if one.dim() else torch.equal(one, two))
    if isinstance(one, numpy.ndarray):
        return one.dtype == two.dtype and one.tobytes() == two.tobytes() and one.shape == two.shape
    if isinstance(one, dict):
        return list(one) == list(two) and all(alike(one[key], two[key]) for key in one)
    if isinstance(one, (list, tuple)):
        return len(one) == len(two) and all(map(alike, one, two))
    return repr(one) == repr(two)


class Trained:
    """A network with what a state has in real life."""

    def __init__(self, seed=0, width=300):
        torch.manual_seed(seed)
        layers = nn.Linear(8, width), nn.BatchNorm1d(width), nn.Dropout(), nn.Linear(width, width)
        self.network = nn.Sequential(*layers, nn.Linear(width, 1))
        self.network[4].bias = nn.Parameter(torch.zeros(1))
        self.optimizer = torch.optim.Adam(self.network.parameters(), 0.01)
        self.scheduler = torch.optim.lr_scheduler.MultiStepLR(self.optimizer, [3, 30])
        self.state = {'network': self.network, 'optimizer': self.optimizer}
        self.state.update(scheduler=self.scheduler, random=snapshot.RandomStates())

    def step(self):
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.network(torch.randn(16, 8)).square().mean()
        loss.backward()
        self.optimizer.step()
        self.scheduler.step()
        return loss.item()

    def values(self):
        return {name: one.state_dict() for name, one in self.state.items()}


def extras():
    base = torch.arange(24.0)
    return {
        'view': base[3:9:2],
        'turned': base.view(4, 6).T,
        'tied': base,
        'empty': torch.zeros(0, 3),
        'half': torch.tensor([1.5, float('nan'), -0.0], dtype=torch.bfloat16),
        'one': torch.tensor(7),
        'complex': torch.tensor([1 + 2j]),
        'truth': torch.tensor([True, False]),
        'array': numpy.arange(12.0).reshape(3, 4).T[::-1],
        'scalar': numpy.array(3, numpy.int16),
        'big': numpy.arange(70000, dtype='>u4'),
        'python': bytearray(b'abc'),
        'doubles': array.array('d', [1.5, -0.0]),
        'nested': [{'deep': (torch.ones(3), 1)}, None],
        'epoch': 4,
    }


def cleared():
    state = extras()
    for value in state.values():
        if torch.is_tensor(value):
            value.zero_()
        elif isinstance(value, numpy.ndarray):
            value[...] = 0
    state.update(python=bytearray(), doubles=array.array('d'), nested=None, epoch=0)
    return state


def take(snapshots, step):
    """Begins a snapshot; the one before may keep the sinks busy for a moment after it is told."""
    until = time.monotonic() + LIMIT_S
    save = snapshots.begin(step)
    while save.failure() and save.failure().status == 'BUSY' and time.monotonic() < until:
        time.sleep(0.002)
        save = snapshots.begin(step)
    return save


class Files(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.sink = os.path.join(folder.name, 'run.snap')

    def open(self, state, **options):
        opened = snapshot.Snapshotter(state, self.sink, **options)
        self.addCleanup(opened.close)
        return opened

    def save(self, state, step=1):
        with snapshot.Snapshotter(state, self.sink) as snapshots:
            save = snapshots.begin(step)
            self.assertTrue(snapshots.gate())
            save.durable.wait(LIMIT_S)


class Restored(Files):
    def test_nothing_there__is_none(self):
        self.assertIsNone(self.open({'a': torch.ones(2)}).restore())

    def test_training__goes_on_with_the_same_losses(self):
        one = Trained()
        snapshots = self.open(one.state).attach(one.optimizer)
        for step in range(1, 5):
            one.step()
            take(snapshots, step)
            snapshots.gate()
            snapshots.durable.wait(LIMIT_S)
        losses = [one.step() for _ in range(5)]
        snapshots.close()
        two = Trained(seed=9)
        place = two.network[3].weight.data_ptr()
        self.assertEqual(snapshot.restore(two.state, self.sink), 4)
        self.assertEqual(two.network[3].weight.data_ptr(), place)
        self.assertEqual([two.step() for _ in range(5)], losses)
        self.assertTrue(alike(one.values(), two.values()))

    def test_extras__each_kind_of_value(self):
        self.save({'extras': extras()})
        state = {'extras': cleared()}
        snapshot.restore(state, self.sink)
        self.assertTrue(alike(state['extras'], extras()), state)
        kept = state['extras']
        self.assertEqual(kept['view'].storage().data_ptr(), kept['tied'].storage().data_ptr())

    def test_into_nothing__makes_the_values_anew(self):
        self.save({'extras': extras()})
        state = {}
        snapshot.restore(state, self.sink)
        self.assertTrue(alike(state['extras'], extras()), state)
        kept = state['extras']
        self.assertEqual(kept['view'].storage().data_ptr(), kept['tied'].storage().data_ptr())

    def test_step__an_older_one_when_asked_for(self):
        state = {'a': torch.zeros(4)}
        with snapshot.Snapshotter(state, self.sink, keep=3) as snapshots:
            for step in (10, 20, 30):
                state['a'].fill_(step)
                take(snapshots, step)
                snapshots.gate()
                snapshots.durable.wait(LIMIT_S)
        for step in (20, 10, 30):
            self.assertEqual(snapshot.restore(state, self.sink, step=step), step)
            self.assertEqual(state['a'].tolist(), [step] * 4)
        with self.assertRaises(snapshot.NotFound):
            snapshot.restore(state, self.sink, step=15)

    def test_numpy__without_torch(self):
        program = '''if True:
            import sys, numpy
            from sidewire.snapshot import Snapshotter, restore
            state = {'w': numpy.arange(100000.0), 'step': 3}
            with Snapshotter(state, sys.argv[1]) as snapshots:
                snapshots.begin(3)
                snapshots.gate()
                snapshots.durable.wait()
            state['w'][:] = 0
            state['step'] = 0
            assert restore(state, sys.argv[1]) == 3
            assert (state['w'] == numpy.arange(100000.0)).all() and state['step'] == 3
            assert 'torch' not in sys.modules
        '''
        self.assertEqual(run('-c', program, self.sink), (0, '', ''))

    def test_nobody__saves_and_restores(self):
        if os.geteuid():
            self.skipTest('only root can become nobody')
        os.chmod(self.folder, 0o777)
        program = '''if True:
            import os, sys, array
            from sidewire.snapshot import Snapshotter, restore
            assert os.geteuid() == 65534
            state = {'w': array.array('d', range(50000))}
            with Snapshotter(state, sys.argv[1]) as snapshots:
                snapshots.begin(1)
                snapshots.gate()
                snapshots.durable.wait()
            again = {}
            restore(again, sys.argv[1])
            assert again == state
        '''
        code, _, error = run('-c', program, self.sink, user=65534, group=65534, extra_groups=[])
        if 'ModuleNotFoundError' in error:
            self.skipTest('nobody may not read the tree')
        self.assertEqual((code, error), (0, ''))


class Ranks(Files):
    def test_launcher__says_which_rank_this_is(self):
        program = 'from sidewire import snapshot; print(snapshot.from_launcher())'
        launched = {'RANK': '2', 'WORLD_SIZE': '3', 'MASTER_ADDR': '127.0.0.1'}
        launched['MASTER_PORT'] = '29400'
        code, out, error = run('-c', program, env={**os.environ, **launched})
        self.assertEqual((code, out), (0, "{'rank': 2, 'world': 3}\n"), error)
        code, out, error = run('-c', program)
        self.assertEqual((code, out), (1, ''))
        self.assertIn('no launcher has started this process', error)


class Page(Files):
    def test_start__runs_as_it_stands(self):
        with open(os.path.join(ROOT, 'docs/snapshot-torch.md'), encoding='utf-8') as file:
            blocks = re.findall(r'^```python\n(.*?)^```', file.read(), re.M | re.S)
        code = blocks[1].replace('file:/data/run.snap', f'file:{self.sink}')
        self.assertIn(self.sink, code)

        def names_of(epochs):
            torch.manual_seed(1)
            model = nn.Sequential(nn.Linear(4, 4), nn.Dropout())
            names = {'dataset': [torch.full((4,), float(one)) for one in range(128)]}
            names.update(model=model, optimizer=torch.optim.Adam(model.parameters()))
            names.update(epochs=epochs, DataLoader=torch.utils.data.DataLoader)
            return {**names, 'loss_of': lambda model, batch: model(batch).square().mean()}

        def run_page(epochs):
            names = names_of(epochs)
            exec(code, names)
            return names['step'], dict(names['model'].state_dict())

        whole = run_page(4)
        os.unlink(self.sink)
        self.assertEqual(run_page(2)[0], 8)
        halves = run_page(4)
        self.assertEqual((whole[0], halves[0]), (16, 16))
        self.assertTrue(alike(whole[1], halves[1]), (whole, halves))


class Lies(Files):
    def refuse(self, saved, state, words):
        """And nothing has changed."""
        self.save(saved)
        before = {key: value.clone() for key, value in state.items() if torch.is_tensor(value)}
        with self.assertRaisesRegex(snapshot.OtherState, words):
            snapshot.restore(state, self.sink)
        for key, value in before.items():
            self.assertTrue(torch.equal(state[key], value))

    def test_other_shape(self):
        saved, state = {'a': torch.ones(3), 'w': torch.ones(2, 3)}, {'a': torch.zeros(3)}
        state['w'] = torch.zeros(3, 2)
        self.refuse(saved, state, r'w is float32 \[3, 2\] here, and float32 \[2, 3\] in the snap')

    def test_other_type(self):
        state = {'w': torch.zeros(2, dtype=torch.float64)}
        self.refuse({'w': torch.ones(2)}, state, 'w is float64')

    def test_missing_tensor(self):
        self.refuse({'a': torch.ones(2)}, {'a': torch.zeros(2), 'b': torch.zeros(2)}, 'b is not in')

    def test_fewer_entries__are_told(self):
        self.save({'a': torch.ones(2), 'b': torch.ones(3)})
        with self.assertRaisesRegex(snapshot.OtherState, 'b of the snapshot is not in the state'):
            snapshot.restore({'a': torch.zeros(2)}, self.sink, strict=True)
        state = {'a': torch.zeros(2)}
        with self.assertWarnsRegex(snapshot.SnapshotWarning, 'b of the snapshot'):
            snapshot.restore(state, self.sink)
        self.assertTrue(torch.equal(state['b'], torch.ones(3)))
        with warnings.catch_warnings():
            warnings.simplefilter('error')
            snapshot.restore({'a': torch.zeros(2)}, self.sink, strict=False)

    def test_other_model(self):
        saved = {'m': nn.Linear(3, 4)}
        self.refuse(saved, {'m': nn.Linear(3, 5)}, r'm\.weight is float32 \[5, 3\] here')

    def test_model_with_a_layer_more(self):
        saved = {'m': nn.Sequential(nn.Linear(3, 4))}
        more = {'m': nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 4))}
        self.refuse(saved, more, r'm\.1\.weight is not in the snapshot')

    def test_optimizer_of_other_groups(self):
        one = nn.Linear(3, 4)
        saved = {'o': torch.optim.SGD(one.parameters(), 0.1)}
        other = {'o': torch.optim.SGD([one.weight], 0.1)}
        self.refuse(saved, other, r'o\.param_groups have \[1\] here, \[2\] in the snapshot')

    def test_tied_here_and_not_there(self):
        both = torch.zeros(3)
        saved = {'a': torch.ones(3), 'b': torch.zeros(3)}
        self.refuse(saved, {'a': both, 'b': both}, 'b shares its memory here')

    def test_value_that_cannot_be_saved__is_told_at_once(self):
        with self.assertRaisesRegex(snapshot.NotSupported, r'a\.f is a builtin_function'):
            snapshot.Snapshotter({'a': {'f': print}}, self.sink)
        self.assertFalse(os.path.exists(self.sink))

    def test_left_out__by_name(self):
        class Scheduled:
            def state_dict(self):
                return {'anneal': print, 'last': 3}

            def load_state_dict(self, state):
                self.state = state

        one = Scheduled()
        with snapshot.Snapshotter({'s': one}, self.sink, leave_out=['*.anneal']) as snapshots:
            snapshots.begin(1)
        snapshot.restore({'s': one}, self.sink)
        self.assertEqual(one.state, {'last': 3})


class Taken(Files):
    def test_forward_pass__between_begin_and_gate(self):
        """It writes what batch norm counts; the snapshot has what was there at begin."""
        one = Trained()
        one.step()
        snapshots = self.open(one.state)
        wanted = {key: value.clone() for key, value in one.network.state_dict().items()}
        after = random.getstate(), torch.get_rng_state()
        snapshots.begin(1)
        one.network(torch.randn(16, 8))
        random.random()
        self.assertFalse(torch.equal(one.network[1].running_mean, wanted['1.running_mean']))
        self.assertTrue(snapshots.gate())
        snapshots.durable.wait(LIMIT_S)
        two = Trained(seed=1)
        snapshot.restore(two.state, self.sink)
        self.assertTrue(alike(dict(two.network.state_dict()), wanted))
        self.assertEqual(random.getstate(), after[0])
        self.assertTrue(torch.equal(torch.get_rng_state(), after[1]))

    def test_memory_that_moves__is_described_anew(self):
        one = Trained()
        snapshots = self.open(one.state).attach(one.optimizer)
        for step in range(1, 5):
            take(snapshots, step)  # the first comes before the optimizer has a state
            one.step()
            snapshots.durable.wait(LIMIT_S)
            if step == 2:
                one.optimizer.load_state_dict(one.optimizer.state_dict())
            if step == 3:
                one.network[3].weight.data = one.network[3].weight.data.clone()
        take(snapshots, 5)
        snapshots.gate()
        snapshots.durable.wait(LIMIT_S)
        two = Trained(seed=1)
        self.assertEqual(snapshot.restore(two.state, self.sink), 5)
        self.assertTrue(alike(two.values(), one.values()))

    def test_attached__the_gate_comes_before_the_step(self):
        one = Trained()
        one.step()
        snapshots = self.open(one.state).attach(one.optimizer)
        wanted = {key: value.clone() for key, value in one.network.state_dict().items()}
        snapshots.begin(1)
        one.step()
        self.assertEqual(snapshots.info().stage >= 2, True)
        snapshots.durable.wait(LIMIT_S)
        snapshots.close()
        one.step()  # as if it had never been attached
        two = Trained(seed=1)
        snapshot.restore(two.state, self.sink)
        self.assertTrue(alike(dict(two.network.state_dict()), wanted))

    def test_busy__the_one_under_way_goes_on(self):
        snapshots = self.open({'a': torch.zeros(8 * MIB)})
        for step in range(1, 101, 2):  # until helpers have not copied all before the second one
            snapshots.begin(step)
            with warnings.catch_warnings(record=True) as said:
                warnings.simplefilter('always')
                second = snapshots.begin(step + 1)
            if second.failure():
                break
            snapshots.gate()
            second.durable.wait(LIMIT_S)
        self.assertRegex(str(said[0].message), 'nothing has passed the gate')
        with self.assertRaises(snapshot.SnapshotError) as caught:
            second.durable.wait()
        self.assertEqual(caught.exception.status, 'BUSY')
        snapshots.gate()
        snapshots.durable.wait(LIMIT_S)
        self.assertEqual(snapshots.info().durable_step, step)

    def test_step__that_is_none_is_refused(self):
        snapshots = self.open({'a': torch.zeros(MIB)})
        for good, step in (1, -1), (2, 1 << 64):
            with self.assertWarnsRegex(snapshot.SnapshotWarning, str(step)):
                self.assertEqual(snapshots.begin(step).failure().status, 'INVALID')
            self.assertIsNone(snapshots.begin(good).failure())
            snapshots.gate()
            snapshots.durable.wait(LIMIT_S)

    def test_one_after_another__is_never_busy(self):
        """Once the last one is durable; the sinks may still forget those that are not kept."""
        state = {'a': torch.zeros(MIB)}
        snapshots = self.open(state)
        for step in range(1, 11):
            state['a'].add_(1)
            save = snapshots.begin(step)
            self.assertIsNone(save.failure())
            self.assertTrue(snapshots.gate())
            save.durable.wait(LIMIT_S)

    def test_second_one__fences_the_first(self):
        state, other = {'a': torch.zeros(MIB)}, {'a': torch.ones(MIB)}
        first = self.open(state)
        first.begin(1)
        first.gate()
        first.durable.wait(LIMIT_S)
        with self.assertRaisesRegex(snapshot.SnapshotError, 'locked'):
            self.open(other, take_over=False)
        second = self.open(other)
        self.assertEqual(second.restore(), 1)
        second.begin(2)
        second.gate()
        second.durable.wait(LIMIT_S)
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter('always')
            state['a'].fill_(9)
            save = first.begin(3)
            first.gate()
            with self.assertRaises(snapshot.Fenced):
                save.durable.wait(LIMIT_S)
        self.assertEqual(len(told), 1)
        self.assertEqual(snapshot.restore(other, self.sink), 2)
        self.assertEqual(other['a'].sum().item(), 0)

    def test_repair__and_goes_on(self):
        sinks = [self.sink, os.path.join(self.folder, 'other.snap')]
        state = {'a': torch.rand(MIB)}
        bits = state['a'].numpy().tobytes()[4096:8192]
        with snapshot.Snapshotter(state, sinks) as snapshots:
            snapshots.begin(1)
            with self.assertRaises(snapshot.SnapshotError) as caught:
                snapshots.restore(repair=True)
            self.assertEqual(caught.exception.status, 'BUSY')
            snapshots.gate()
            snapshots.durable.wait(LIMIT_S)
            with open(self.sink, 'r+b') as file:
                at = file.read().index(bits)
                file.seek(at)
                file.write(b'damaged')
            for repair, is_good in (False, False), (True, True):
                state['a'].zero_()
                self.assertEqual(snapshots.restore(repair=repair), 1)
                self.assertEqual(state['a'].numpy().tobytes()[4096:8192], bits)
                with open(self.sink, 'rb') as file:
                    self.assertEqual(bits in file.read(), is_good)
            state['a'].fill_(2)
            take(snapshots, 2)
            self.assertTrue(snapshots.gate())
            snapshots.durable.wait(LIMIT_S)
        self.assertEqual(snapshot.restore(state, sinks[:1]), 2)

    def test_skip__gives_it_up_and_the_last_one_stays(self):
        state = {'a': torch.zeros(16 * MIB)}
        snapshots = self.open(state)
        snapshots.begin(1)
        snapshots.gate()
        snapshots.durable.wait(LIMIT_S)
        state['a'].fill_(1)
        save = snapshots.begin(2)
        if snapshots.gate('skip'):
            self.skipTest('all was copied before the gate')
        with self.assertRaises(snapshot.SnapshotError) as caught:
            save.durable.wait(LIMIT_S)
        self.assertEqual(caught.exception.status, 'SKIPPED')
        snapshots.close()
        self.assertEqual(snapshot.restore(state, self.sink), 1)
        self.assertEqual(state['a'].sum().item(), 0)

    def test_no_room__is_told_once_and_ends_nothing(self):
        state = {'a': torch.zeros(MIB)}
        snapshots = self.open(state, volume_bytes=64 * MIB)
        snapshots.begin(1)
        snapshots.gate()
        snapshots.durable.wait(LIMIT_S)
        state['a'] = torch.rand(64 * MIB)
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter('always')
            for step in (2, 3):
                save = take(snapshots, step)
                self.assertTrue(snapshots.gate())
                with self.assertRaises(snapshot.SnapshotError) as caught:
                    save.durable.wait(LIMIT_S)
                self.assertEqual(caught.exception.status, 'NO_ROOM')
        self.assertEqual([one.category for one in told], [snapshot.SnapshotWarning])
        self.assertIn('step 2 has failed', str(told[0].message))
        snapshots.close()
        self.assertEqual(snapshot.restore({'a': torch.zeros(MIB)}, self.sink), 1)

    def test_written_meanwhile__is_torn_by_name(self):
        state = {'quiet': torch.zeros(MIB), 'busy': torch.zeros(16 * MIB)}
        snapshots = self.open(state)
        over = threading.Event()

        def write():
            while not over.is_set():
                state['busy'].add_(1)  # without the interpreter's lock

        thread = threading.Thread(target=write)
        thread.start()
        try:
            with warnings.catch_warnings(record=True) as told:
                warnings.simplefilter('always')
                # The writer may stand still for a whole capture where other programs run.
                for step in range(1, 9):
                    take(snapshots, step)
                    if not snapshots.gate():
                        break
                    snapshots.durable.wait(LIMIT_S)
        finally:
            over.set()
            thread.join(LIMIT_S)
        with self.assertRaisesRegex(snapshot.Torn, 'busy'):
            snapshots.durable.wait()
        self.assertEqual(len(told), 1)
        self.assertNotIn('quiet', str(told[0].message))

    def test_busy_interpreter__helpers_copy_meanwhile(self):
        """A trainer that never lets go of the interpreter's lock holds nobody up."""
        snapshots = self.open({'a': torch.zeros(8 * MIB)})
        before = sys.getswitchinterval()
        sys.setswitchinterval(LIMIT_S)
        try:
            snapshots.begin(1)
            until = time.monotonic() + LIMIT_S
            info = snapshots.info()
            while info.copied_bytes < info.state_bytes and time.monotonic() < until:
                sum(range(20000))
                info = snapshots.info()
        finally:
            sys.setswitchinterval(before)
        self.assertEqual(info.copied_bytes, info.state_bytes)
        self.assertTrue(snapshots.gate())
        self.assertEqual(snapshots.info().gate_bytes, 0)

    def test_workers_fork__amid_a_snapshot(self):
        state = {'a': torch.rand(8 * MIB)}
        snapshots = self.open(state)
        save = snapshots.begin(1)

        class Data(torch.utils.data.Dataset):
            def __len__(self):
                return 8

            def __getitem__(self, index):
                said = snapshots.gate()  # in a child it is nothing
                try:
                    snapshots.begin(99)
                except snapshot.SnapshotError as error:
                    return said, error.status
                return said, 'begun'

        loader = torch.utils.data.DataLoader(Data(), 4, num_workers=2, collate_fn=list)
        self.assertEqual(sum(loader, []), [(True, 'FORKED')] * 8)
        self.assertTrue(snapshots.gate())
        save.durable.wait(LIMIT_S)
        again = {'a': torch.zeros(8 * MIB)}
        snapshot.restore(again, self.sink)
        self.assertTrue(torch.equal(again['a'], state['a']))


if __name__ == '__main__':
    sys.exit(unittest.main())
