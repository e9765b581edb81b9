# SPDX-License-Identifier: BSD-2-Clause
"""Commands of snapshots as users give them, in a folder of each test, and files of safetensors by
their specification. The first argument of the program is the command `sidewire`.
"""
import json
import os
import struct
import subprocess
import sys
import tempfile
import unittest

SIDEWIRE = sys.argv[1]


def tensors_of(path):
    """({name: (dtype, shape, bytes)}, metadata) of a file of safetensors, by its specification."""
    with open(path, 'rb') as file:
        (length,) = struct.unpack('<Q', file.read(8))
        header = json.loads(file.read(length))
        data = file.read()
    assert length % 8 == 0
    metadata, ends = header.pop('__metadata__', {}), [0]
    found = {}
    for name, one in sorted(header.items(), key=lambda item: item[1]['data_offsets']):
        begin, end = one['data_offsets']
        assert begin == ends[-1], 'a hole, or bytes of two tensors'
        ends.append(end)
        found[name] = one['dtype'], one['shape'], data[begin:end]
    assert ends[-1] == len(data)
    return found, metadata


def write_tensors(path, tensors):
    header, at = {}, 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {'dtype': dtype, 'shape': shape, 'data_offsets': [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header).encode()
    with open(path, 'wb') as file:
        file.write(struct.pack('<Q', len(text)) + text)
        for _, _, data in tensors.values():
            file.write(data)


class Commands(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(dir='/var/tmp')
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def at(self, name):
        return os.path.join(self.folder, name)

    def sink(self, kind, name='run'):
        made = kind(SIDEWIRE, self.folder, name)
        self.addCleanup(made.end)
        return made

    def run_command(self, command, sinks, *words, code=0):
        """What it printed, or said on standard error where it should fail."""
        named = [word for sink in sinks for word in ('--sink', getattr(sink, 'text', sink))]
        done = subprocess.run(
            [SIDEWIRE, 'snapshot', command, *named, *map(str, words)],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done.stderr if code else done.stdout

    def json_of(self, command, sinks, *words):
        return json.loads(self.run_command(command, sinks, *words, '-o', 'json'))

    def make_file(self, name, size, seed=None):
        data = seed * (size // len(seed)) if seed else os.urandom(size)
        with open(self.at(name), 'wb') as file:
            file.write(data)
        return data
