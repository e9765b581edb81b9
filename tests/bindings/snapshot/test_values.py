# SPDX-License-Identifier: BSD-2-Clause
"""Values as JSON and back, states taken apart, the sampler; and the structures of ctypes beside
those of the header. Nothing is saved here."""
import array
import collections
import ctypes
import json
import math
import os
import random
import struct
import subprocess
import sys
import tempfile
import unittest

from needs import ROOT, numpy, torch

from sidewire import snapshot
from sidewire.snapshot import arrays, library, sampler, state, values


def turned(value):
    return values.decode(json.loads(json.dumps(values.encode(value))))


def nan_of(bits):
    return struct.unpack('>d', struct.pack('>Q', bits))[0]


# fmt: off
EXACT = [
    None, True, 1, -(2**200), 'text', 'a \ud800 half', '', [], {}, (), (1,), ((),), [(1, [2])],
    {1: 'int', '1': 'text'}, {(1, 2): 3}, {None: 1, True: 2, 2.5: 3}, {'$tuple': [1]}, {'$': {}},
    {1, 2}, frozenset({'a'}), b'\0\xff', range(1, 9, 3), 1 - 2.5j, collections.deque([1], 3),
    collections.deque([1]), collections.Counter({30: 2}), collections.OrderedDict([(2, 1), (1, 2)]),
    torch.float32, torch.bfloat16, torch.Size([2, 3]), torch.strided, torch.device('cpu'),
    torch.channels_last, numpy.dtype('<f4'), numpy.float32(0.1), numpy.int64(-3), numpy.bool_(True),
]
# fmt: on


class Values(unittest.TestCase):
    def test_round_trip__gives_the_same_type_and_value(self):
        for value in EXACT:
            back = turned(value)
            self.assertIs(type(back), type(value), value)
            self.assertEqual(back, value)
            self.assertEqual(repr(back), repr(value))

    def test_dict__keeps_its_order(self):
        for value in ({'b': 1, 'a': 2}, {2: 1, 1: 2}):
            self.assertEqual(list(turned(value)), list(value))

    def test_floats__bit_by_bit(self):
        draw = random.Random(1)
        drawn = [struct.unpack('>d', draw.randbytes(8))[0] for _ in range(2000)]
        named = [0.0, -0.0, 5e-324, 1.7976931348623157e308, math.inf, -math.inf]
        named += [nan_of(0x7FF8000000000000), nan_of(0xFFF8000000000123)]
        for value in named + drawn:
            self.assertEqual(struct.pack('>d', turned(value)), struct.pack('>d', value), value)

    def test_refusal__names_what_cannot_be_held(self):
        class Text(str):
            pass

        for value in (print, object(), Text('a'), lambda: 0, torch.nn.ReLU, sys):
            with self.assertRaisesRegex(snapshot.NotSupported, r'^scheduler\.0\.f is a '):
                values.encode({'scheduler': [{'f': value}]})

    def test_itself__is_refused(self):
        value = []
        value.append(value)
        with self.assertRaisesRegex(snapshot.NotSupported, 'has itself in it'):
            values.encode(value)

    def test_hostile_json__is_refused_and_runs_nothing(self):
        for text in (
            '{"$torch": "load"}',
            '{"$torch": "hub"}',
            '{"$torch": "no_such_thing"}',
            '{"$numpy": ["|O", "00"]}',
            '{"$numpy": ["<f8", "00"]}',
            '{"$float": "zz"}',
            '{"$bytes": "*"}',
            '{"$tuple": 3}',
            '{"$dict": [[[1], 2]]}',
            '{"$pickle": "gASV"}',
            '{"$numpy": []}',
            '{"$deque": [1], "max": 1180591620717411303424}',
        ):
            with self.assertRaises(snapshot.SnapshotError, msg=text):
                values.decode(json.loads(text))


class Arrays(unittest.TestCase):
    def hold(self, value):
        parts = state.Parts({'a': value})
        return parts.tree['a'], parts.storages

    def test_views__share_a_storage(self):
        base = torch.arange(20.0)
        parts = state.Parts({'a': base, 'b': base[3:9:2], 'c': base.view(4, 5).T})
        self.assertEqual([one.name for one in parts.storages], ['a'])
        self.assertEqual([parts.tree[key]['storage'] for key in 'abc'], ['a'] * 3)
        self.assertEqual(parts.storages[0].bytes, 80)

    def test_tied__is_told_for_the_export(self):
        base = torch.ones(2)
        small = json.loads(state.Parts({'a': base, 'b': {'c': base}}).small({}))
        self.assertEqual(small['tied'], {'b.c': 'a'})

    def test_names__are_unique_and_bounded(self):
        tensors = [torch.ones(1) for _ in range(4)]
        long = 'x' * 300
        given = {
            'a.b': tensors[0],
            'a': {'b': tensors[1]},
            long: tensors[2],
            long + 'y': tensors[3],
        }
        names = [one.name for one in state.Parts(given).storages]
        self.assertEqual(len({*names}), 4)
        self.assertEqual(names[:2], ['a.b', 'a.b#2'])
        self.assertLessEqual(max(map(len, names)), 255)

    def test_refusals__name_the_value(self):
        for value, words in (
            (torch.eye(2).to_sparse(), 'a is not a dense tensor'),
            (torch.empty(2, device='meta'), 'a is not a dense tensor'),
            (numpy.array([{}]), 'a is an array of object'),
            (numpy.zeros(2, [('x', 'f4')]), 'a is an array of'),
        ):
            with self.assertRaisesRegex(snapshot.NotSupported, words):
                self.hold(value)

    def test_view_outside_its_storage__is_refused(self):
        storage, _ = arrays.fresh(16)
        for view in (
            {'$tensor': ['float32', [5]], 'offset': 0, 'stride': [1]},
            {'$tensor': ['float32', [2]], 'offset': 3, 'stride': [1]},
            {'$tensor': ['float32', [2]], 'offset': 0, 'stride': [-1]},
            {'$tensor': ['float32', [2, 2]], 'offset': 0, 'stride': [1]},
        ):
            with self.assertRaises(snapshot.SnapshotError, msg=view):
                arrays.tensor_of(view, storage, 16)
            view['$array'] = ['<f4', view.pop('$tensor')[1]]
            view['offset'], view['stride'] = view['offset'] * 4, [4 * one for one in view['stride']]
            with self.assertRaises(snapshot.SnapshotError, msg=view):
                arrays.array_of(view, storage, 16)

    def test_buffers__of_modules_are_copied_at_once(self):
        """A forward pass writes them, after begin and before the gate."""
        norm = torch.nn.BatchNorm1d(1 << 15)
        copied = {one.name for one in state.Parts({'n': norm}).storages if one.is_copied}
        self.assertEqual(copied, {'n.running_mean', 'n.running_var', 'n.num_batches_tracked'})

    def test_buffer__of_python(self):
        self.assertEqual(self.hold(array.array('d', [1, 2]))[1][0].bytes, 16)


class Hostile(unittest.TestCase):
    """Small state comes from a sink, and so from a stranger."""

    def fill(self, tree):
        """As restore() does, with a state in which each storage has 80 bytes."""
        target = {'a': torch.zeros(20), 'b': numpy.zeros(10), 'm': torch.nn.Linear(4, 5), 'n': {}}
        filling = state.Filling(dict.fromkeys(['a', 'b', 'm.weight', 'n.x', 'n.y'], 80))
        filling._sizes['m.bias'] = 20
        give = filling.compare(state.read_small(json.dumps(tree))['state'], target)
        list(filling.wanted())
        give()

    def whole(self):
        both = {'x': torch.ones(4, 5).T, 'y': numpy.ones((2, 5))[::-1], 1: (2.5, {3, 'z'}, b'0')}
        given = {'a': torch.ones(20), 'b': numpy.ones(10), 'm': torch.nn.Linear(4, 5), 'n': both}
        return json.loads(state.Parts(given).small({}))

    def places(self, value, found):
        for key in value if isinstance(value, dict) else range(len(value)):
            found.append((value, key))
            if isinstance(value[key], (dict, list)):
                self.places(value[key], found)
        return found

    def test_whole__is_taken(self):
        self.fill(self.whole())

    def test_anything_else__is_refused_or_taken_but_no_other_error(self):
        seed = random.randrange(1 << 32)
        draw = random.Random(seed)
        # fmt: off
        strange = [
            None, -1, 0, 1 << 70, 2.5, '', 'a', 'n.x', '$state', [], [-1], [1 << 40], {},
            {'$tensor': ['float32', [5]]}, {'$array': ['|O', [1]], 'storage': 'a'},
            {'$dict': [[[], 1]]}, {'$state': {}}, {'$buffer': ['x', 'y'], 'storage': 'b'},
            {'$tuple': 1},
        ]
        # fmt: on
        refused = 0
        for _ in range(1000):
            tree = self.whole()
            for _ in range(draw.randrange(1, 3)):
                value, key = draw.choice(self.places(tree, []))
                value[key] = json.loads(json.dumps(draw.choice(strange)))
            with self.subTest(seed=seed, tree=tree):
                try:
                    self.fill(tree)
                except snapshot.SnapshotError:
                    refused += 1
        self.assertGreater(refused, 300)

    def test_top__that_is_no_dict_of_names(self):
        for saved in 5, None, [{}], {'$dict': 5}, {'$dict': [[{'$numpy': []}, 1]]}:
            with self.assertRaises(snapshot.SnapshotError, msg=saved):
                state.names_beyond(saved, {})

    def test_nested_deep__is_refused(self):
        for text in ('[' * 100000, '{"format":1,"state":' + '[' * 900 + ']' * 900 + '}'):
            with self.assertRaises(snapshot.SnapshotError):
                tree = state.read_small(text)
                state.Filling({}).compare(tree['state'], {})
                values.decode(tree)


class Sampled(unittest.TestCase):
    def test_order__depends_on_seed_and_epoch_alone(self):
        one, two = snapshot.Sampler(50, seed=3), snapshot.Sampler(50, seed=3)
        self.assertEqual(list(one), list(two))
        self.assertEqual(sorted(one), list(range(50)))
        two.epoch = 1
        self.assertNotEqual(list(one), list(two))
        self.assertNotEqual(list(one), list(snapshot.Sampler(50, seed=4)))

    def test_ranks__share_what_there_is(self):
        parts = [list(snapshot.Sampler(50, rank=rank, world=3)) for rank in range(3)]
        self.assertEqual(sorted(sum(parts, [])), list(range(50)))

    def test_position__is_what_was_consumed_and_not_what_was_fetched_ahead(self):
        one = snapshot.Sampler(50, seed=1)
        loader = torch.utils.data.DataLoader(
            list(range(50)), 4, sampler=one, num_workers=2, prefetch_factor=4
        )
        batches = one.batches(loader)
        taken = [next(batches).tolist() for _ in range(3)]
        saved = turned(one.state_dict())
        self.assertEqual(saved['position'], 3)
        rest = [batch.tolist() for batch in batches]
        two = snapshot.Sampler(50, seed=1)
        two.load_state_dict(saved)
        again = torch.utils.data.DataLoader(list(range(50)), 4, sampler=two)
        self.assertEqual([batch.tolist() for batch in two.batches(again)], rest)
        self.assertEqual(sorted(sum(taken + rest, [])), list(range(50)))
        self.assertEqual((two.epoch, two.position), (1, 0))

    def test_batches_of_another_size__go_on_with_the_next_index(self):
        def loader_of(size, order):
            return torch.utils.data.DataLoader(list(range(50)), size, sampler=order)

        one = snapshot.Sampler(50, seed=1)
        seen = []
        for size in 8, 4, 5:
            batches = one.batches(loader_of(size, one))
            seen += [number for _ in range(2) for number in next(batches).tolist()]
            saved = turned(one.state_dict())
            one = snapshot.Sampler(50, seed=1)
            one.load_state_dict(saved)
        seen += [number for batch in one.batches(loader_of(16, one)) for number in batch.tolist()]
        self.assertEqual(seen, snapshot.Sampler(50, seed=1).order())
        self.assertEqual(len(one), len(list(one)))  # the next epoch is whole

    def test_other_data__are_refused(self):
        saved = snapshot.Sampler(50).state_dict()
        with self.assertRaisesRegex(ValueError, 'length is 49 here, and 50'):
            snapshot.Sampler(49).load_state_dict(saved)

    def test_random_states__are_put_back_after_the_iterator(self):
        one = snapshot.Sampler(8)
        states = snapshot.RandomStates(one, own=numpy.random.default_rng(5))
        loader = torch.utils.data.DataLoader(list(range(8)), 4, sampler=one)
        saved = states.state_dict()
        wanted = (torch.rand(1), random.random(), numpy.random.rand())
        states.load_state_dict(saved)
        next(one.batches(loader))  # its iterator has drawn from torch's generator
        got = (torch.rand(1), random.random(), numpy.random.rand())
        self.assertEqual(got, wanted)

    def test_mix__is_the_same_everywhere(self):
        self.assertEqual(sampler.mix(1, 2), 0xF5C3E93CC50A88AE)


# The structures, and what the header calls them.
STRUCTS = {
    library.Error: 'sw_snap_error',
    library.Range: 'sw_snap_range',
    library.Options: 'sw_snap_options',
    library.Point: 'sw_snap_point',
    library.SinkInfo: 'sw_snap_sink_info',
    library.Info: 'sw_snap_info',
    library.Entry: 'sw_snap_entry',
    library.Item: 'sw_snap_item',
    library.Piece: 'sw_snap_piece',
}


class Header(unittest.TestCase):
    def test_structures__are_those_of_the_header(self):
        lines = ['#include <sidewire/snapshot.h>', '#include <stdio.h>', 'int main(void){']
        expected = []
        for kind, name in STRUCTS.items():
            lines.append(f'printf("%zu\\n", sizeof(struct {name}));')
            expected.append(f'{ctypes.sizeof(kind)}')
            for field, _ in kind._fields_:
                member = f'struct {name}, {field}'
                size = f'sizeof(((struct {name} *)0)->{field})'
                lines.append(f'printf("{name}.{field} %zu %zu\\n", offsetof({member}), {size});')
                place = getattr(kind, field)
                expected.append(f'{name}.{field} {place.offset} {place.size}')
        for code, status in enumerate(library.STATUSES):
            lines.append(f'printf("%d\\n", SW_SNAP_{status});')
            expected.append(f'{code}')
        for table in (library.STAGES, library.GATES):
            for name, code in table.items():
                lines.append(f'printf("%d\\n", SW_SNAP_{name.upper()});')
                expected.append(f'{code}')
        for name, code in library.LOOKS.items():
            lines.append(f'printf("%d\\n", SW_SNAP_LOOK_{name.upper()});')
            expected.append(f'{code}')
        with tempfile.TemporaryDirectory() as folder:
            source, program = os.path.join(folder, 'a.c'), os.path.join(folder, 'a')
            with open(source, 'w', encoding='ascii') as file:
                file.write('\n'.join([*lines, '}']))
            include = '-I' + os.path.join(ROOT, 'include')
            subprocess.run(['cc', include, source, '-o', program], check=True)
            told = subprocess.run([program], capture_output=True, text=True, check=True).stdout
        self.assertEqual(told.splitlines(), expected)

    def test_last_status__is_in_the_table(self):
        with open(os.path.join(ROOT, 'include/sidewire/snapshot.h'), encoding='ascii') as file:
            text = file.read()
        listed = text[text.index('SW_SNAP_OK = 0') : text.index('/* A sentence without')]
        self.assertEqual(listed.count('SW_SNAP_'), len(library.STATUSES))


if __name__ == '__main__':
    sys.exit(unittest.main())
