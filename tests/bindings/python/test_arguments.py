# SPDX-License-Identifier: BSD-2-Clause
"""Arguments: their names, and objects that change while they are read."""
import ast
import inspect
import os
import re
import unittest

import numpy as np
import served
import sidewire
from sidewire import _engine


class Number:
    """Does something when it is asked which number it is."""

    def __init__(self, what):
        self.what = what

    def __index__(self):
        self.what()
        return 0


class Text(Number):
    """The same of a text."""

    def __str__(self):
        self.what()
        return '0'


class Truth(Number):
    """The same of a bool."""

    def __bool__(self):
        self.what()
        return False


class Changing(unittest.TestCase):
    """What a program, or another thread of it, may do meanwhile."""

    def test_blocks__of_extents_that_become_fewer(self):
        with served.serving() as target:
            lease = target.memory(np.zeros(4096, np.uint8)).lease('all')
            card = target.card(lease)
            with sidewire.Agent() as agent:
                memory = agent.memory(np.zeros(4096, np.uint8))
                peer = agent.connect(card)
                for make, first in ((agent.blocks, memory), (peer.blocks_of, 'all')):
                    extents = [(Number(lambda: extents.clear()), 0, 16, 16, 1)]
                    extents += [(0, 16 * i, 16, 16, 1) for i in range(1, 100)]
                    self.assertEqual(len(make([first], extents)), 100)
                    self.assertEqual(extents, [])

    def test_agent__rails_that_are_taken_away(self):
        kept = []

        def change():
            rails.clear()
            kept.extend(''.join(['x'] * 9) for _ in range(100))  # what is freed is written over

        rails = ['.'.join(['127', '0', '0', '1'])]
        with sidewire.Agent('127.0.0.1', Text(change), rails=rails) as agent:
            self.assertEqual(agent.listening, (True, True))
        self.assertEqual(rails, [])

    def test_memory__of_an_interface_that_loses_its_parts(self):
        array = np.arange(4096, dtype=np.uint8)
        kept = []

        class Array:
            """Its parts are in no other place than this dictionary."""

            def __init__(self):
                address = array.__array_interface__['data'][0]
                self.__array_interface__ = {
                    'data': (address, Truth(self.lose)),
                    'shape': (int('64'), int('64')),
                    'typestr': ''.join(['|', 'u', '1']),
                    'version': 3,
                }

            def lose(self):
                self.__array_interface__.clear()
                kept.extend((1 << 40 | i, 1 << 41 | i) for i in range(1000))

        with sidewire.Agent() as agent:
            self.assertEqual(len(agent.memory(Array())), 4096)

    def test_agent__times_without_end(self):
        words = {'connect_timeout': 1e300, 'stall_timeout': float('inf'), 'drain_timeout': -1.0}
        with served.serving() as target, sidewire.Agent(**words) as agent:
            card = target.card(target.memory(np.zeros(64, np.uint8)).lease())
            self.assertEqual(agent.connect(card, timeout=served.LIMIT_S).state, 'live')


class Named(unittest.TestCase):
    """An argument that may be left out has a name."""

    def test_listening__of_each_address(self):
        with sidewire.Agent() as none, sidewire.Agent('127.0.0.1') as one:
            self.assertEqual(none.listening, ())
            self.assertEqual(one.listening, (True,))
        for address in '0.0.0.0', '::':
            with self.assertRaisesRegex(sidewire.Error, "'ip address'"):
                sidewire.Agent(address)

    def test_names__of_what_transfers_are_made_of(self):
        with served.serving() as target, sidewire.Agent() as agent:
            lease = target.memory(np.zeros(64, np.uint8)).lease(name='all', write=True)
            memory = agent.memory(np.arange(64, dtype=np.uint8))
            peer = agent.connect(card=target.card(lease), timeout=served.LIMIT_S)
            self.assertIs(peer.wait(timeout=served.LIMIT_S), peer)
            extents = [(0, 0, 8, 8, 8)]
            transfer = peer.write(
                local=agent.blocks(memories=[memory], extents=extents),
                remote=peer.blocks_of(regions=['all'], extents=tuple(extents), card=None),
            )
            self.assertEqual(len(peer.blocks(region='all', bytes=8, card=None)), 8)
            transfer.post(notice=b'there', deadline=None)
            self.assertIs(transfer.wait(timeout=served.LIMIT_S), transfer)
            self.assertEqual(transfer.block(index=7), 'in place')
            self.assertEqual(target.notice(timeout=served.LIMIT_S).data, b'there')
            agent.run(seconds=0)

    def test_objects__say_what_they_are(self):
        with sidewire.Agent('127.0.0.1') as agent:
            memory = agent.memory(bytearray(4096))
            lease = memory.lease('x')
            peer = sidewire.Agent().connect(agent.card(lease), wait=False)
            for thing, text in (
                (agent, r'Agent closed=False visitors=0 listening=\(True,\)'),
                (memory, "Memory bytes=4096 kind='host' readonly=False"),
                (lease, 'Lease granted=True is_window=(True|False)'),
                (memory.blocks(bytes=512), 'Blocks count=8'),
                (peer, "Peer state='connecting'"),
            ):
                self.assertRegex(repr(thing), f'^<sidewire.{text}>$')
        self.assertEqual(repr(agent), '<sidewire.Agent closed=True>')

    def test_names__of_pipes(self):
        token = bytes(range(16))
        listener = _engine.PipeListener(address='127.0.0.1')
        with self.assertRaises(sidewire.WaitTimeout):
            listener.accept(token=token, timeout=0)
        with self.assertRaises(sidewire.Error):
            _engine.Pipe.connect(address='127.0.0.1', port=listener.port, token=token, timeout=0)
        for method in 'send_array', 'send', 'recv', 'close':
            with self.assertRaises(TypeError):  # of `none`: no pipe is needed to see that
                getattr(_engine.Pipe, method)(None, none=1)


class Typed(unittest.TestCase):
    """The types that editors and type checkers read are those of the module."""

    def setUp(self):
        path = os.path.join(os.path.dirname(_engine.__file__), '_engine.pyi')
        with open(path, encoding='ascii') as file:
            tree = ast.parse(file.read())
        self.types = {one.name: one for one in tree.body if isinstance(one, ast.ClassDef)}
        self.assertTrue(os.path.exists(os.path.join(os.path.dirname(path), 'py.typed')))

    def test_stub__has_what_the_module_has(self):
        for name, kind in inspect.getmembers(_engine, inspect.isclass):
            if name in ('Pipe', 'PipeListener'):
                continue  # of sidewire.ipc alone
            stub = self.types.pop(name)
            if issubclass_of_error(name) or name == 'Notice':
                continue
            named = {getattr(one, 'name', None) or one.target.id for one in members_of(stub)}
            has = {one for one in vars(kind) if not one.startswith('_')}
            self.assertEqual({one for one in named if not one.startswith('_')}, has, name)
        self.assertEqual(self.types, {})

    def test_stub__names_arguments_as_the_module_does(self):
        for name, stub in self.types.items():
            for method in members_of(stub):
                said = getattr(getattr(_engine, name), getattr(method, 'name', ''), None)
                if not isinstance(method, ast.FunctionDef) or method.name.startswith('_'):
                    continue
                text = re.match(r'\w+\(([^)]*)\)', said.__doc__)
                words = re.findall(
                    r'(\w+)(?==|,|$)', re.sub(r"=[^,]*", '', text[1] if text else '')
                )
                args = method.args
                named = [one.arg for one in (*args.posonlyargs, *args.args, *args.kwonlyargs)][1:]
                named += [args.vararg.arg] if args.vararg else []
                self.assertEqual(named, words, f'{name}.{method.name}')


def issubclass_of_error(name):
    kind = getattr(_engine, name)
    return inspect.isclass(kind) and issubclass(kind, Exception)


def members_of(stub):
    return [one for one in stub.body if isinstance(one, (ast.FunctionDef, ast.AnnAssign))]


if __name__ == '__main__':
    unittest.main()
