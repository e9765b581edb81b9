# SPDX-License-Identifier: BSD-2-Clause
"""Blocks of memory moved between processes and hosts by RDMA: docs/python.md.

Agent, Memory, Lease, Card, Peer, Blocks and Transfer are the handles of <sidewire/transfer.h>.
Arrays are numpy's, torch's, or whatever else has the buffer protocol, __array_interface__ or
DLPack; their memory is used where it is.
"""
import atexit

from . import _engine
from ._engine import (
    Agent,
    BadCard,
    Blocks,
    Cancelled,
    Corrupt,
    DeadlineExceeded,
    Denied,
    Error,
    Forked,
    InstanceMismatch,
    InvalidArgument,
    LayoutMismatch,
    Lease,
    Memory,
    Notice,
    Peer,
    PeerGone,
    Refused,
    Transfer,
    VersionMismatch,
    WaitTimeout,
)
from .card import Card, Region

__version__ = '0.3.0'

__all__ = [
    'Agent',
    'BadCard',
    'Blocks',
    'Cancelled',
    'Card',
    'Corrupt',
    'DeadlineExceeded',
    'Denied',
    'Error',
    'Forked',
    'InstanceMismatch',
    'InvalidArgument',
    'LayoutMismatch',
    'Lease',
    'Memory',
    'Notice',
    'Peer',
    'PeerGone',
    'Refused',
    'Region',
    'Transfer',
    'VersionMismatch',
    'WaitTimeout',
]

# Before the interpreter frees arrays: nothing may read or write them any more then.
atexit.register(_engine.close_all)
