# SPDX-License-Identifier: BSD-2-Clause
"""The longest gap in a host's writes, when the owner is killed: of the kernel's host, in a guest,
and of ours, where the next owner finds a tier's log that is dirty."""

import contextlib
import io
import os
import re
import signal
import sys
import tempfile

import nvme_takeover
import procs
import tier_rows
from experiment import Added, Experiment

# The tests of groups against a stock kernel have the same host and the same members.
sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), '../../tests/kernel'))
import group_members  # noqa: E402
import kernel_guest  # noqa: E402
import test_group  # noqa: E402

FILE_BYTES, LOAD_MIB, LOAD_IOPS = 16 << 20, 8, 500  # fio writes for 4 s
KILL_S, RUN_S = 4, 9


class Guest:
    """One with a stock kernel and its NVMe host."""

    def __enter__(self):
        os.environ.update(
            KP_NS=f'kpg{os.getpid()}', KP_MTU=kernel_guest.ETHERNET_MTU, KP_IMAGE='nvme'
        )
        reason = kernel_guest.prepare()
        if reason:
            self.__exit__()
            raise procs.Skipped(reason)
        started = kernel_guest.peer('start', 'b', '12')
        words = f'host ip addr add {test_group.ADDRESSES["b"]}/24 dev br0'.split()
        if started.returncode or kernel_guest.peer(*words).returncode:
            self.__exit__()
            raise procs.RunFailed(f'the guest does not boot:\n{started.stderr[-800:]}')
        return self

    def __exit__(self, *_):
        kernel_guest.peer('stop-all')
        del os.environ['KP_IMAGE']


def kernel_gap(sidewire):
    with tempfile.TemporaryDirectory(prefix='sidewire-gap-') as folder:
        disk = os.path.join(folder, 'disk')
        with open(disk, 'wb') as file:
            file.truncate(FILE_BYTES)
        command = [kernel_guest.PEER, 'host', sidewire]
        port, log_port = test_group.PORT, test_group.LOG_PORT
        group = group_members.Group(
            command, folder, f'file:{disk},bs=4096', log_port, test_group.NQN, 5
        )
        said = io.StringIO()
        try:
            places = enumerate(test_group.ADDRESSES.items())
            members = [(*who, port, log_port + 1 + i) for i, who in places]
            owner = nvme_takeover.begin(group, members)
            host = test_group.Host(kernel_guest.OWN)
            with contextlib.redirect_stdout(said):
                if not (host.prepare() and host.connect_all() and host.sees(owner)):
                    raise procs.RunFailed(f'the kernel has no two paths:\n{said.getvalue()[-800:]}')
                host.spawn_fio(LOAD_MIB, LOAD_IOPS)
                owner.signal(signal.SIGKILL)
                host.fio_ends('')
                host.shell('nvme disconnect-all')
        finally:
            group.close()
    found = re.search(r'longest I/O took ([\d.]+) s', said.getvalue())
    if not found:
        raise procs.RunFailed(f'fio in the guest has no figures:\n{said.getvalue()[-800:]}')
    return {'time_s': float(found[1])}


def tier_gap(bench, place):
    """No block has waited for five seconds, so the file has none of them."""
    log = place.log(tier_rows.LARGE_LOG_BYTES)
    with contextlib.suppress(OSError):
        os.removexattr(place.path, 'user.sidewire.tier')  # of the round before
    with tempfile.TemporaryDirectory(prefix='sidewire-gap-') as folder:
        spec = f'tier:{place.path},log={log},bs=4096'
        group = group_members.Group(
            bench.sidewire.command[:1], folder, spec, procs.free_port(), timeout_s=5
        )
        try:
            owner = nvme_takeover.begin(group, nvme_takeover.members_here())
            return {'time_s': longest_write(bench, group, owner)}
        finally:
            group.close()


def longest_write(bench, group, owner):
    words = [*bench.sidewire.command[:1], *'nvme bench -o json --sleep --destroy-data'.split()]
    words += f'-n {group.nqn} --rw randwrite --iodepth 32 --ramp_time 0.1'.split()
    words += ['--runtime', str(RUN_S)]
    for member in group.members:
        words += ['-a', f'{member.address}:{member.port}']
    host = procs.Child(words)
    try:
        host.wait(KILL_S)
        tier = owner.status()['subsystems'][0]['namespaces'][0]['tier']
        owner.signal(signal.SIGKILL)
        if host.wait(100):
            raise procs.RunFailed(host.report('failed'))
        gap_s = nvme_takeover.longest_of(host.text())
    finally:
        host.end()
    if tier['used_bytes'] < tier_rows.DIRTY_BYTES and bench.divide == 1:
        raise procs.Skipped(f'{KILL_S} s of writes made {tier["used_bytes"] >> 20} MiB dirty')
    if not gap_s:
        raise procs.RunFailed('the host has not met the other member')
    return gap_s


def experiments(bench):
    place = tier_rows.Place(os.path.join(bench.sidewire.build if bench.sidewire else '', 'bench'))
    sidewire = bench.sidewire.command[0] if bench.sidewire else ''
    return [
        Experiment(
            'nvme_gap_kernel',
            "the longest gap of the kernel's host",
            {'killed': lambda: kernel_gap(sidewire)},
            place=Guest(),
        ),
        Experiment(
            'nvme_gap_tier',
            'the longest gap where the next owner finds 1 GiB that is dirty',
            {'killed': lambda: tier_gap(bench, place)},
            place=place,
        ),
    ]


# title, experiment, at least, aim
ROWS = (
    ("nvme: the longest gap of the kernel's host, the owner killed", 'nvme_gap_kernel', 3.0, 1.0),
    ('nvme tier: the longest gap, the owner of 1 GiB killed', 'nvme_gap_tier', 1.4, 0.6),
)


def rows(by_key):
    return [
        Added(title, by_key[key], 'killed', None, 'time_s', 'us', at_least, aim)
        for title, key, at_least, aim in ROWS
        if key in by_key
    ]
