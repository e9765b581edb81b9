# SPDX-License-Identifier: BSD-2-Clause
"""Snapshots exported as safetensors: their header is read by the npm package @huggingface/hub,
their tensors by what the format says.

usage: test_safetensors.py SIDEWIRE [CASE...]
"""
import json
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest

from needs import LIMIT_S, torch

from sidewire import snapshot

SIDEWIRE = sys.argv.pop(1)
HERE = os.path.dirname(os.path.abspath(__file__))
PACKAGE = '@huggingface/hub@2.17.5'


def install(folder):
    """The package in a folder of its own, or the reason why not."""
    if not shutil.which('npm') or not shutil.which('node'):
        return 'npm is not installed'
    words = ['npm', 'install', '--prefer-offline', '--no-audit', '--no-fund', '--ignore-scripts']
    try:
        done = subprocess.run(
            [*words, '--fetch-retries=1', '--prefix', folder, PACKAGE],
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f'npm has not fetched {PACKAGE} in {LIMIT_S} s'
    if done.returncode:
        return f'npm cannot fetch {PACKAGE}: {done.stderr.strip().splitlines()[-1:]}'
    return None


class Exported(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = folder.name
        torch.manual_seed(1)
        cls.model = torch.nn.Sequential(torch.nn.Linear(30, 40), torch.nn.BatchNorm1d(40))
        tied = torch.arange(6.0).reshape(2, 3)
        cls.state = {'model': cls.model, 'tied': tied, 'again': tied, 'half': torch.ones(5).half()}
        cls.state.update(
            brain=torch.rand(7).bfloat16(), one=torch.tensor(3.5), big=torch.rand(99999)
        )
        sink = f'{cls.folder}/run.snap'
        with snapshot.Snapshotter(cls.state, sink) as snapshots:
            snapshots.begin(12)
            snapshots.gate()
            snapshots.durable.wait(LIMIT_S)
        cls.path = f'{cls.folder}/model.safetensors'
        snapshot.export_safetensors(sink, cls.path)
        with open(cls.path, 'rb') as file:
            (length,) = struct.unpack('<Q', file.read(8))
            cls.header, cls.data = json.loads(file.read(length)), file.read()

    def wanted(self):
        state = {f'model.{name}': one for name, one in self.model.state_dict().items()}
        state.update(
            (name, one) for name, one in self.state.items() if name not in ('model', 'again')
        )
        return state

    def test_tensors__are_those_of_the_state(self):
        """Read by what the format says: eight bytes of length, JSON, bytes."""
        self.assertEqual({*self.header} - {'__metadata__'}, {*self.wanted()})
        for name, tensor in self.wanted().items():
            begin, end = self.header[name]['data_offsets']
            flat = torch.frombuffer(bytearray(self.data[begin:end]), dtype=tensor.dtype)
            self.assertTrue(torch.equal(flat.reshape(self.header[name]['shape']), tensor), name)
        spans = sorted(self.header[name]['data_offsets'] for name in self.wanted())
        self.assertEqual(spans[0][0], 0)  # and without a hole, which the format forbids
        self.assertEqual(
            [one[1] for one in spans], [one[0] for one in spans[1:]] + [len(self.data)]
        )

    def test_tied__is_there_once_and_told(self):
        self.assertEqual(self.header['__metadata__']['again'], 'tied')
        self.assertTrue(all(type(one) is str for one in self.header['__metadata__'].values()))

    def test_npm__reads_the_header(self):
        folder = f'{self.folder}/npm'
        os.mkdir(folder)
        reason = install(folder)
        if reason:
            self.skipTest(reason)
        shutil.copy(f'{HERE}/read_safetensors.mjs', folder)
        done = subprocess.run(
            ['node', f'{folder}/read_safetensors.mjs', self.path],
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
        self.assertEqual((done.returncode, done.stderr), (0, ''))
        found = json.loads(done.stdout)
        self.assertIs(found['sharded'], False)
        self.assertEqual(found['header'], self.header)
        types = {torch.float32: 'F32', torch.float16: 'F16', torch.bfloat16: 'BF16'}
        counted = {}
        for tensor in self.wanted().values():
            if tensor.dim():  # the package counts no others
                kind = types[tensor.dtype]
                counted[kind] = counted.get(kind, 0) + tensor.numel()
        self.assertEqual(found['parameterCount'], counted)


if __name__ == '__main__':
    program = unittest.main(exit=False)
    if program.result.wasSuccessful() and program.result.skipped:
        print('SKIP:', program.result.skipped[0][1])
        sys.exit(77)
    sys.exit(not program.result.wasSuccessful())
