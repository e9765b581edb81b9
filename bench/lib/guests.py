# SPDX-License-Identifier: BSD-2-Clause
"""Two emulated machines with stock kernels, in which the same program runs over rdma_rxe and over
Sidewire."""

import os
import re
import subprocess
import sys

import procs
from experiment import Experiment
from programs import parse_perftest

# The tests against a stock kernel boot the same guests.
sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), '../../tests/kernel'))
import kernel_guest  # noqa: E402

CLIENT, SERVER = ('c', '11'), ('s', '12')
ADDRESS = '10.77.0.12'
SECONDS = 120


class Guests:
    """A client and a server guest with one processor each, while in a `with`. The Ethernet MTU
    allows the path MTU 4096."""

    def __init__(self, sidewire):
        self.sidewire = sidewire
        self.has_rxe = True  # as they boot

    def __enter__(self):
        os.environ.update(KP_NS=f'kpb{os.getpid()}', KP_MTU=kernel_guest.ETHERNET_MTU, KP_SMP='1')
        reason = kernel_guest.prepare()
        if reason:
            raise procs.Skipped(reason)
        try:
            for name, number in (CLIENT, SERVER):
                started = kernel_guest.peer('start', name, number)
                if started.returncode:
                    raise procs.RunFailed(f'a guest does not boot:\n{started.stderr[-800:]}')
                for path in self.files():
                    kernel_guest.push(path, os.path.basename(path), name)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        kernel_guest.peer('stop-all')

    def files(self):
        """The library, and those that it needs and a guest does not have."""
        library = os.path.join(self.sidewire.build, 'src/preload/libsidewire.so')
        needed = procs.run(['ldd', library], 20)
        return [library, *re.findall(r'=> (\S*/libisal\.so\S*)', needed)]

    def give_port_to(self, rxe):
        """UDP port 4791 is rdma_rxe's, as long as the module is there, or Sidewire's."""
        if rxe == self.has_rxe:
            return
        command = (
            'modprobe rdma_rxe && rdma link add rxe0 type rxe netdev eth0'
            if rxe
            else 'rdma link delete rxe0 && rmmod rdma_rxe'
        )
        for name, _ in (CLIENT, SERVER):
            said, status = kernel_guest.inside(command, name)
            if status:
                raise procs.RunFailed(f'{command}: {said}')
        self.has_rxe = rxe

    def bandwidth(self, size, iterations, rxe):
        """ib_write_bw with path MTU 4096, by one of the two."""
        self.give_port_to(rxe)
        device = 'rxe0' if rxe else 'sw_eth0'
        env = (
            ''
            if rxe
            else 'env LD_LIBRARY_PATH=/bin LD_PRELOAD=/bin/libsidewire.so SIDEWIRE_LINK=roce '
        )
        gid = kernel_guest.inside(f'{env}ibv_devinfo -v -d {device}', SERVER[0])[0]
        index = re.search(r'GID\[\s*(\d+)\]:\s*::ffff:10\.\S*, RoCE v2', gid)
        if not index:
            raise procs.RunFailed(f'{device} has no IPv4 GID:\n{gid[-800:]}')
        line = (
            f'{env}ib_write_bw -d {device} -x {index[1]} -F -N -m 4096 -s {size} '
            f'-n {iterations}'
        )
        if not kernel_guest.spawn(
            'bw', line, 'grep -q :4853 /proc/net/tcp /proc/net/tcp6', SECONDS, SERVER[0]
        ):
            raise procs.RunFailed('the server does not listen')
        try:
            text, _ = kernel_guest.inside(f'timeout {SECONDS} {line} {ADDRESS}', CLIENT[0])
        except subprocess.TimeoutExpired:
            text = 'no end'
        rows = parse_perftest(text, 'ib_write_bw')
        if not rows:
            raise procs.RunFailed(f'ib_write_bw printed no result:\n{text[-800:]}')
        return rows[size]


def bandwidth_beside(two, peer, named, size, count):
    """Messages of `size` bytes by us and by the guests' kernel. `named`: the experiment's key and
    title. Slow machines, in which only the ratio means something."""
    return Experiment(
        *named,
        {
            'ib_write_bw': lambda: two.bandwidth(size, count, False),
            peer: lambda: two.bandwidth(size, count, True),
        },
        place=two,
    )
