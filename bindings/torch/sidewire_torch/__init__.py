# SPDX-License-Identifier: BSD-2-Clause
"""PyTorch's collective operations of tensors on CPUs, over RDMA.

    import torch.distributed as dist
    import sidewire_torch

    dist.init_process_group("sidewire")

and nothing else changes. Programs are started by `sidewire run -- python3 ...` where there is no
RDMA device. docs/torch.md has all of it.
"""
import atexit
import importlib
import os
import pkgutil
import socket

import torch
import torch.distributed as dist

__all__ = ['Options', 'leaves', 'shrink', 'gone', 'failure', 'abort', 'dump', 'from_launcher']


def _load():
    """The module of this version of torch."""
    version = '.'.join(torch.__version__.split('.')[:2])
    name = '_torch_' + version.replace('.', '_')
    built = [module.name for module in pkgutil.iter_modules(__path__)]
    if name in built:
        return importlib.import_module('.' + name, __name__)
    others = [one[len('_torch_') :].replace('_', '.') for one in built if one.startswith('_torch_')]
    raise ImportError(
        f'sidewire_torch was built for torch {" and ".join(sorted(others)) or "of no version"}, '
        f'and this is torch {torch.__version__}: build it with the headers of that version '
        '(docs/torch.md)'
    )


_native = _load()  # before what wants names of this version of torch

from sidewire_torch import monitored, watched  # noqa: E402


class Options:
    """What a process group may be told: init_process_group("sidewire", pg_options=Options(...)).

    address: an RDMA device of this host has it, and other ranks connect to it
    algorithm: "eager", "owners", "halving" or "ring"; the fastest, unless said
    order: of sums, "tree", or "any", which "ring" wants
    spin_us: waits poll for so long before they sleep
    eager_bytes: what one rank has for another travels with the first message if it is no more
    """

    def __init__(self, address=None, algorithm=None, order='tree', spin_us=None, eager_bytes=None):
        if order not in ('tree', 'any'):
            raise ValueError(f'order is "tree" or "any", not {order!r}')
        self.address = address
        self.algorithm = algorithm
        self.order = order
        self.spin_us = spin_us
        self.eager_bytes = eager_bytes

    def _settings(self, timeout_ms):
        settings = _native.Settings()
        settings.timeout_ms = timeout_ms
        settings.address = self.address or _own_address()
        settings.algorithm = self.algorithm or ''
        settings.is_any_order = self.order == 'any'
        if self.spin_us is not None:
            settings.spin_us = self.spin_us
        if self.eager_bytes is not None:
            settings.eager_bytes = self.eager_bytes
        return settings


def _own_address():
    """That of this host which packets to MASTER_ADDR come from; 127.0.0.1 without that."""
    master = os.environ.get('MASTER_ADDR')
    if not master:
        return '127.0.0.1'
    found = socket.getaddrinfo(master, 9, type=socket.SOCK_DGRAM)
    for family, kind, _, _, address in sorted(found, key=lambda one: one[0]):  # IPv4 first
        with socket.socket(family, kind) as probe:
            try:
                probe.connect(address)
                return probe.getsockname()[0]
            except OSError:
                continue
    return '127.0.0.1'


# ---- groups ----

_shrunk = None  # what shrink() has made, for the group that torch opens next


def _open(backend_options, options):
    """What torch calls for a new group."""
    global _shrunk
    if _shrunk is not None:
        group, _shrunk = _shrunk, None
        return group
    if options is None:
        options = Options()
    elif not isinstance(options, Options):
        raise TypeError('pg_options of sidewire is a sidewire_torch.Options')
    timeout = backend_options.timeout
    settings = options._settings(round(timeout.total_seconds() * 1000))
    settings.is_deferred = getattr(backend_options, 'enable_reconfigure', False)
    ranks = list(backend_options.global_ranks_in_group)
    return _native.Group(
        _store_of(ranks) or backend_options.store,
        backend_options.group_rank,
        backend_options.group_size,
        settings,
        *_watched(ranks),
    )


def _store_of(ranks):
    """What all ranks have since the default group was reconfigured, or None: torch's own store may
    have ended, and those that came later never had it."""
    whole = _watched(ranks)[0]
    store = whole.store() if whole is not None else None
    return store and dist.PrefixStore('/'.join(map(str, ranks)), store)


def _watched(ranks):
    """The group whose ranks a new one has, and which ones: a death ends the opening."""
    try:
        return (_native_group(), ranks) if ranks else (None, [])
    except TypeError:  # the default group is of another back end
        return None, []


def _native_group(group=None):
    """The object of this package in a process group of torch's."""
    if group is None:
        group = dist.distributed_c10d._get_default_group()
    if not isinstance(group, _native.Group) and hasattr(group, '_get_backend'):
        group = group._get_backend(torch.device('cpu'))
    # With TORCH_DISTRIBUTED_DEBUG=DETAIL torch 2 compares calls of ranks in a class around ours.
    group = getattr(group, 'wrapped_pg', group)
    if not isinstance(group, _native.Group):
        raise TypeError('this process group is not of the backend "sidewire"')
    return group


def _register():
    extra = {}
    if int(torch.__version__.split('.')[0]) >= 2:
        extra['devices'] = ['cpu']
    dist.Backend.register_backend('sidewire', _open, extended_api=True, **extra)


_register()
monitored.install()
watched.install()
# Callbacks of futures want the interpreter, and threads of groups may be in them.
atexit.register(_native.close_all)


def gone(group=None):
    """The ranks of a group that have died, closed, or not come by the deadline of an operation:
    those that a shrink leaves out."""
    return _native_group(group).gone()


def failure(group=None):
    """Why a group has failed, or None. After a failure it can only be shrunk, or destroyed."""
    return _native_group(group).failure() or None


def abort(group=None):
    """Ends all operations of a group on all ranks, with an error."""
    _native_group(group).abort()


def dump(path, group=None):
    """Writes the last 1,024 operations of this rank into a file, as JSON: also while others wait,
    or after a failure. `sidewire coll diagnose` reads those of all ranks."""
    _native_group(group).dump(os.fspath(path))


from sidewire_torch.launcher import from_launcher  # noqa: E402
from sidewire_torch.leaves import leaves  # noqa: E402
from sidewire_torch.shrink import shrink  # noqa: E402
