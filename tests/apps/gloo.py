# SPDX-License-Identifier: BSD-2-Clause
"""gloo over its ibverbs transport: gloo_all.cc is built against the library, and its ranks are
started one by one."""
import os
import re
import shutil
import tempfile
import time

import hosts
import pair
from mpi import in_own_network
from pair import Failure, Process, Skip

SOURCE = os.path.join(os.path.dirname(os.path.abspath(__file__)), 'gloo_all.cc')
RESULT = re.compile(r'^(\d+) ranks, ([1-9]\d*) bytes to others by each, (\d+) by the device$', re.M)


def build(tools):
    if not shutil.which('g++') or not os.path.exists(
        '/usr/include/gloo/transport/ibverbs/device.h'
    ):
        raise Skip('g++ or libgloo-dev is not installed')
    return tools.build('gloo_all', 'g++', '-std=c++17', '-O1', SOURCE, '-lgloo', '-libverbs')


def run_ranks(tools, commands, share):
    """Each command is one rank's; all must end well, and this share of what they sent must have
    left by the first one's device."""
    sides = [Process(words) for words in commands]
    limit = time.monotonic() + pair.PATIENCE_S
    try:
        hung = [rank for rank, side in enumerate(sides) if not side.wait(limit)]
    finally:
        for side in sides:
            side.end()
    texts = ''.join(side.text() for side in sides)
    found = RESULT.search(texts)
    statuses = [side.child.returncode for side in sides]
    if hung or any(statuses) or not found or 'sidewire[' in texts:
        raise Failure(f'hung: {hung}, statuses {statuses}\n{commands[0]}\n{texts}')
    if int(found[3]) < share * len(sides) * int(found[2]):
        raise Failure(f'the data took another way: {found[0]}')


def one_host(tools, ranks, **run):
    """All ranks join the network of one holder: nobody else's traffic is counted
    on its loopback."""
    program = build(tools)
    with tempfile.TemporaryDirectory() as store:
        ranks_of_shell = ' & '.join(f'"$@" {rank} {ranks} {store} sw_lo 1' for rank in range(ranks))
        script = f'{ranks_of_shell} & for job in $(jobs -p); do wait $job || exit 1; done'
        run_ranks(
            tools,
            [[*in_own_network(), 'bash', '-c', script, 'bash', *tools.run(program, **run)]],
            share=ranks,
        )


def two_hosts(tools, ranks):
    program = build(tools)
    two = hosts.Hosts()
    try:
        with tempfile.TemporaryDirectory() as store:
            run_ranks(
                tools,
                [
                    tools.run(
                        program,
                        str(rank),
                        str(ranks),
                        store,
                        two.device[rank % 2],
                        hosts.gid_index(tools, two, rank % 2, 4),
                        wrap=two.wrap[rank % 2],
                    )
                    for rank in range(ranks)
                ],
                share=0.25,
            )
    finally:
        two.close()


def cases():
    return [
        *(
            (f'{ranks} ranks', lambda tools, ranks=ranks: one_host(tools, ranks))
            for ranks in (2, 3, 4)
        ),
        ('over packets', lambda tools: one_host(tools, 2, link='roce')),
        ('two hosts', lambda tools: two_hosts(tools, 4)),
    ]
