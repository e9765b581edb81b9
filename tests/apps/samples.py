# SPDX-License-Identifier: BSD-2-Clause
"""A line of each kind, where it matters who runs it and by which way: other users, each rung of the
ladder, system calls that are refused. The groups `..._more` are for `make check`."""
import os
import shlex
import subprocess

from judge import judge, run_case
from lines import SAMPLE, dealt, left
from pair import Pair, Skip

NOBODY = ('setpriv', '--reuid=nobody', '--regid=nogroup', '--clear-groups', '--no-new-privs', '--')
USER = 'unshare --user --'.split()
MAPPED_ROOT = 'unshare --user --map-root-user --'.split()
CMA = 'process_vm_readv,process_vm_writev'
QUICK = '-d sw_lo -F'
RUNGS = ['auto', 'mapped', 'cma', 'ring']
BETWEEN_RUNGS = [('mapped', 'ring'), ('ring', 'cma'), ('cma', 'mapped')]
REFUSED = [
    CMA,
    'userfaultfd',
    'memfd_create',
    f'userfaultfd,{CMA}',
    f'memfd_create,userfaultfd,{CMA}',
]


def users_at_once(tools, wraps):
    """A pair of each user at the same time."""
    pairs = []
    try:
        for line in (
            'ib_send_bw -s 4096 -D 1',
            'ib_write_bw -s 65536 -D 1',
            'ib_atomic_bw -n 3000',
        ):
            for wrap in wraps:
                words = shlex.split(line) + shlex.split(QUICK)
                pairs.append((Pair(tools, words, wrap=wrap).start(), words))
        for one, words in pairs:
            judge(one, one.finish(), words)
    finally:
        for one, _ in pairs:
            for side in (one.server, one.client):
                if side:
                    side.end()


def needs_root(case):
    def run(tools):
        if os.geteuid() != 0:
            raise Skip('becoming another user needs root')
        case(tools)

    return run


def needs_namespaces(case):
    def run(tools):
        if subprocess.run([*MAPPED_ROOT, 'true'], capture_output=True).returncode:
            raise Skip('user namespaces are not allowed here')
        case(tools)

    return run


USERS = {
    'nobody': (needs_root, NOBODY),
    'unshare --user': (needs_namespaces, USER),
    'unshare --user --map-root-user': (needs_namespaces, MAPPED_ROOT),
}


def by_users(chosen):
    for user, line in chosen:
        guard, wrap = USERS[user]
        yield (
            f'{user}: {line}',
            guard(lambda tools, line=line, wrap=wrap: run_case(tools, line, wrap=wrap)),
        )


def user_cases():
    return [
        *by_users(dealt(list(USERS), SAMPLE)),
        ('two users side by side', needs_root(lambda tools: users_at_once(tools, [(), NOBODY]))),
        ('two pairs of one user side by side', lambda tools: users_at_once(tools, [(), ()])),
    ]


def on_rungs(chosen):
    for rung, line in chosen:
        yield (
            f'--direct {rung}: {line}',
            lambda tools, line=line, rung=rung: run_case(tools, line, direct=rung),
        )


def between_rungs(line):
    for mine, other in BETWEEN_RUNGS:
        yield (
            f'--direct {mine} to {other}: {line}',
            lambda tools, mine=mine, other=other: run_case(
                tools, line, direct=mine, client_direct=other
            ),
        )


def with_refusals(chosen):
    for calls, line in chosen:
        yield (
            f'{calls} refused: {line}',
            lambda tools, line=line, calls=calls: run_case(
                tools, line, wrap=(tools.path('tests/tools/deny'), calls, '--')
            ),
        )


def groups():
    return {
        'users': user_cases(),
        'users_more': [*by_users(left(list(USERS), SAMPLE))],
        'rungs': [
            *on_rungs(dealt(RUNGS, SAMPLE)),
            *between_rungs('ib_write_bw -s 65536 -n 500 -b'),
        ],
        'rungs_more': [
            *on_rungs(left(RUNGS, SAMPLE)),
            *between_rungs('ib_send_lat -s 4096 -n 300'),
        ],
        'refused': [*with_refusals(dealt(REFUSED, SAMPLE, 2))],
        'refused_more': [*with_refusals(left(REFUSED, SAMPLE, 2))],
    }
