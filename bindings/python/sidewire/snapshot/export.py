# SPDX-License-Identifier: BSD-2-Clause
"""Snapshots as files of safetensors, by the command that writes them."""
import os
import shutil
import subprocess

from . import library as lib

BUILT = os.path.join(lib.HERE, '../../../../src/cli/sidewire')


def export_safetensors(sinks, path, *, step=None, rank=None):
    """Writes the tensors of a snapshot, the newest whole one or that of `step`, to a new file: of
    all ranks, put together where each has a part, or of one."""
    built = os.path.normpath(BUILT)
    command = built if os.path.exists(built) else shutil.which('sidewire')
    if command is None:
        raise lib.NotSupported('the command sidewire is not there, which exports')
    words = [command, 'snapshot', 'export']
    for sink in lib.sinks_of(sinks):
        words += ['--sink', sink]
    if step is not None:
        words += ['--step', str(step)]
    if rank is not None:
        words += ['--rank', str(rank)]
    words.append(os.fspath(path))
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise lib.SnapshotError(done.stderr.strip() or f'{words[0]} ended with {done.returncode}')
