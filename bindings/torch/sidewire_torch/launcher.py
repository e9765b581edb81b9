# SPDX-License-Identifier: BSD-2-Clause
"""What has started this process: mpirun of Open MPI, mpiexec of MPICH, srun, torchrun, variables.

    launch = sidewire_torch.from_launcher()
    torch.distributed.init_process_group(
        'sidewire', store=launch.store(), rank=launch.rank, world_size=launch.size
    )

or, so that a script stays as it is written for torchrun:

    sidewire_torch.from_launcher().export()
    torch.distributed.init_process_group('sidewire')

docs/collectives.md, "Launchers", says who is asked.
"""
import ctypes
import datetime
import os

from torch import distributed

__all__ = ['Launch', 'LauncherError', 'from_launcher']

LIBRARY = 'libsidewire-coll.so.0'
# Where the library lies in a build tree, beside which this file lies there.
BUILT = os.path.join(os.path.dirname(os.path.abspath(__file__)), '../../../movers/collectives')
ENVIRONMENT = ('RANK', 'WORLD_SIZE', 'MASTER_ADDR', 'MASTER_PORT')


class _Launch(ctypes.Structure):
    """struct sw_coll_launch of <sidewire/coll.h>."""

    _fields_ = [
        ('rank', ctypes.c_uint32),
        ('size', ctypes.c_uint32),
        ('local_rank', ctypes.c_uint32),
        ('local_size', ctypes.c_uint32),
        ('launcher', ctypes.c_char * 48),
        ('meet', ctypes.c_char * 112),
        ('token', ctypes.c_char * 40),
    ]


class _Error(ctypes.Structure):
    """struct sw_coll_error."""

    _fields_ = [('status', ctypes.c_int), ('text', ctypes.c_char * 256)]


class LauncherError(RuntimeError):
    """No launcher has started this process, or it does not say where ranks meet."""


class Launch:
    """A rank: `rank` of `size`; `local_rank` of `local_size` on this host (0: nobody says how many
    there are); `launcher` says who has told so, and at `host` and `port` rank 0 may listen."""

    def __init__(self, found):
        self.rank, self.size = found.rank, found.size
        self.local_rank, self.local_size = found.local_rank, found.local_size
        self.launcher = found.launcher.decode()
        host, port = found.meet.decode().rsplit(':', 1)
        self.host, self.port = host.strip('[]'), int(port)
        self.is_of_torch = all(name in os.environ for name in ENVIRONMENT)

    def __repr__(self):
        return f'<rank {self.rank} of {self.size}, by {self.launcher}>'

    def store(self, timeout=datetime.timedelta(minutes=5)):
        """The store of torch in which ranks find each other: torchrun's, where that is there."""
        os.environ.setdefault('MASTER_ADDR', self.host)  # devices are chosen by it
        if self.is_of_torch:
            return next(distributed.rendezvous('env://', timeout=timeout))[0]
        where = (self.host, self.port, self.size, self.rank == 0, timeout)
        try:
            return distributed.TCPStore(*where)
        except RuntimeError as error:
            if 'libuv' not in str(error):
                raise
            return distributed.TCPStore(*where, use_libuv=False)  # a torch that is built without

    def export(self):
        """Sets what torchrun sets, in the environment of this process; returns this."""
        if not self.is_of_torch:
            values = (self.rank, self.size, self.host, self.port)
            os.environ.update(zip(ENVIRONMENT, map(str, values)))
            os.environ['LOCAL_RANK'] = str(self.local_rank)
            if self.local_size:
                os.environ['LOCAL_WORLD_SIZE'] = str(self.local_size)
            self.is_of_torch = True
        return self


def _library():
    built = os.path.join(BUILT, LIBRARY)
    return ctypes.CDLL(built if os.path.exists(built) else LIBRARY)


_found = None


def from_launcher(timeout=60.0):
    """Asks, once in a process, and waits until rank 0 has said where to meet: `timeout` seconds at
    most. All ranks call it."""
    global _found
    if _found is None:
        found, error = _Launch(), _Error()
        ask = _library().sw_coll_launch_find
        ask.argtypes = [ctypes.POINTER(_Launch), ctypes.c_uint32, ctypes.POINTER(_Error)]
        if ask(ctypes.byref(found), int(timeout * 1000), ctypes.byref(error)):
            raise LauncherError(error.text.decode(errors='replace'))
        _found = Launch(found)
    return _found
