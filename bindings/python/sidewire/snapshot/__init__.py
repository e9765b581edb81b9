# SPDX-License-Identifier: BSD-2-Clause
"""Snapshots of the state of a program, mostly of training: docs/snapshot-torch.md.

    snapshots = Snapshotter({'model': model, 'optimizer': optimizer, 'data': sampler}, sinks)
    snapshots.restore()
    snapshots.attach(optimizer)
    ...
    snapshots.begin(step)

sidewire.snapshot.checkpoint has what torch's distributed checkpoint wants; it imports torch, and
nothing else here does.
"""
from .export import export_safetensors
from .library import (
    Corrupt,
    Fenced,
    NotFound,
    NotSupported,
    OtherState,
    SnapshotError,
    Timeout,
    Torn,
    from_launcher,
)
from .reader import Entry, Item, Reader
from .sampler import RandomStates, Sampler
from .snapshotter import Save, Snapshotter, SnapshotWarning, restore

__all__ = [
    'Corrupt',
    'Entry',
    'Fenced',
    'Item',
    'NotFound',
    'NotSupported',
    'OtherState',
    'RandomStates',
    'Reader',
    'Sampler',
    'Save',
    'SnapshotError',
    'SnapshotWarning',
    'Snapshotter',
    'Timeout',
    'Torn',
    'export_safetensors',
    'from_launcher',
    'restore',
]
