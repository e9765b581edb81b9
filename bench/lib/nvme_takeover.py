# SPDX-License-Identifier: BSD-2-Clause
"""The longest gap in the writes of our host, when the owner of its namespace is killed or falls
silent and another member of the group takes over."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time

import procs
from experiment import Added, Experiment

# The tests of groups start the same members.
sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), '../../tests/movers/nvme'))
import group_members  # noqa: E402

HERE = '127.0.0.1'
DISK_BYTES = 16 << 20
SILENT_S = 5  # the keep-alive time of hosts, and the time-out of the group
BEFORE_S = 1
TRIES = 5


@contextlib.contextmanager
def log_of_group(bench):
    """A pmem server for the log of a group."""
    with tempfile.TemporaryDirectory(prefix='sidewire-group-') as folder:
        group = group_members.Group(bench.sidewire.command[:1], folder, '', procs.free_port())
        group.start_log()
        try:
            yield group
        finally:
            group.close()


def gap_of(bench, number, runtime_s):
    for _ in range(TRIES):
        time_s = gap_once(bench, number, runtime_s)
        if time_s:
            return {'time_s': time_s}
    raise procs.RunFailed(f'no write was under way in {TRIES} tries')


def gap_once(bench, number, runtime_s):
    with tempfile.TemporaryDirectory(prefix='sidewire-takeover-') as folder:
        disk = os.path.join(folder, 'disk')
        with open(disk, 'wb') as file:
            file.truncate(DISK_BYTES)
        group = group_members.Group(
            bench.sidewire.command[:1],
            folder,
            f'file:{disk},bs=4096',
            procs.free_port(),
            timeout_s=SILENT_S,
        )
        try:
            owner = begin(group, members_here())
            return longest_write(bench, group, owner, number, runtime_s)
        finally:
            group.close()


def members_here():
    """Their names, addresses and ports: of hosts, and of the group."""
    return [(name, HERE, procs.free_port(), procs.free_port()) for name in 'ab']


def begin(group, members):
    """Starts the log and the members, and returns the owner of the namespace."""
    group.start_log()
    for member in members:
        group.add(*member).start()
    owner = group_members.await_that(group.owner)
    if not owner or not all(member.is_ready() for member in group.members):
        raise procs.RunFailed('the group does not begin')
    return owner


def longest_of(text):
    """What our host's bench prints. None: it has met no other member."""
    found = json.loads(text)
    moved = any(path['moved'] for path in found['paths'])
    return found['rows'][0]['write']['max_us'] / 1e6 if moved else None


def longest_write(bench, group, owner, number, runtime_s):
    words = [bench.sidewire.command[0], 'nvme', 'bench', '-n', group.nqn, '-o', 'json', '--sleep']
    words += ['--destroy-data', '--rw', 'randwrite', '--runtime', str(runtime_s), '--ramp_time=0.1']
    for member in group.members:
        words += ['-a', f'{member.address}:{member.port}']
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as host:
        time.sleep(BEFORE_S)
        owner.signal(number)
        out, said = host.communicate(timeout=100)
    if host.returncode:
        raise procs.RunFailed(said)
    return longest_of(out)  # None: it had not begun yet, on a machine that is busy


def experiments(bench):
    return [
        Experiment(
            'nvme_takeover',
            'another member of a group takes over',
            {
                'killed': lambda: gap_of(bench, signal.SIGKILL, 3),
                'silent': lambda: gap_of(bench, signal.SIGSTOP, 9),
            },
        )
    ]


# title, contender, at least, aim
ROWS = (
    ('nvme: the longest gap in writes, the owner killed', 'killed', 1.0, 0.4),
    ('  the owner silent, whose time-out is 5 s', 'silent', SILENT_S + 2.0, SILENT_S + 0.5),
)


def rows(by_key):
    return [
        Added(title, by_key['nvme_takeover'], ours, None, 'time_s', 'us', at_least, aim)
        for title, ours, at_least, aim in ROWS
        if 'nvme_takeover' in by_key
    ]
