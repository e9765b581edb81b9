# SPDX-License-Identifier: BSD-2-Clause
"""Programs that connect by librdmacm between processes of one host and user that refuse each
other."""
import os
import shlex
import shutil
import subprocess
import time

import hosts
import pair
from cm import (
    ALONE,
    MATOSE_SMALL,
    PING,
    RSTREAM,
    SETTLE_S,
    UDADDY_PORT,
    UDPONG,
    group_members,
    needs,
    run_pair,
)
from pair import Failure, Process, Skip


STRANGERS = 'unshare --user --'.split()
NOBODY = ('setpriv', '--reuid=nobody', '--regid=nogroup', '--clear-groups', '--no-new-privs', '--')


def needs_strangers(case):
    def run(tools, *args):
        if subprocess.run([*STRANGERS, 'true'], capture_output=True).returncode:
            raise Skip('user namespaces are not allowed here')
        case(tools, *args)

    return run


@needs_strangers
def between_strangers(tools, row):
    """The two sides are in user namespaces of their own, and what others send does not come to
    them."""
    two = hosts.Hosts()
    wrap = (*two.wrap[0], *STRANGERS)
    try:
        run_pair(tools, *row, wraps=(wrap, wrap), port=UDADDY_PORT if row in ALONE else None)
    finally:
        two.close()


def beside_undumpable(tools, row):
    """A program whose file its user may not read is not dumpable: nobody without capabilities may
    look into it."""
    if os.geteuid():
        raise Skip('a file that may be executed and not read is of another user: root makes it')
    name = row[0].split()[0]
    hidden = tools.path(f'{name}-hidden')
    if not shutil.which(name):
        raise Skip(f'{name} is not installed')
    if not os.path.exists(hidden):
        shutil.copy(shutil.which(name), hidden)
        os.chmod(hidden, 0o711)
    two = hosts.Hosts()  # where no other user has the UDP port
    wrap = (*two.wrap[0], *NOBODY)
    try:
        run_pair(
            tools,
            row[0].replace(name, hidden, 1),
            *row[1:],
            wraps=(wrap, wrap),
            port=UDADDY_PORT if row in ALONE else None,
        )
    finally:
        two.close()


def each_copy_once(tools):
    """Two members of a group that want twice as much as is sent, one of them a stranger to the
    sender: neither has it before it is sent again."""
    words = shlex.split('mckey -m 239.1.2.3 -b 127.0.0.1 -C')
    members, two = [], hosts.Hosts()
    try:
        limit = time.monotonic() + pair.PATIENCE_S
        for wrap in ((), STRANGERS):
            members.append(Process(tools.run(*words, '20', wrap=(*two.wrap[0], *wrap))))
        while group_members(members[0].child.pid) < len(members):
            if time.monotonic() > limit:
                raise Failure(''.join(member.text() for member in members))
            time.sleep(0.01)
        tools.output(*words, '10', '-s', wrap=two.wrap[0])
        time.sleep(SETTLE_S)
        ended = [member.child.poll() is not None for member in members]
        tools.output(*words, '10', '-s', wrap=two.wrap[0])
        hung = [not member.wait(limit) for member in members]
        if any(ended + hung) or any(member.child.returncode for member in members):
            raise Failure(
                f'ended early: {ended}, hung: {hung}\n'
                + ''.join(member.text() for member in members)
            )
    finally:
        for member in members:
            member.end()
        two.close()


def strange_cases():
    """Processes of one host and user that refuse each other."""
    rows = [PING, MATOSE_SMALL, RSTREAM, *ALONE, UDPONG]
    return [
        (
            f'{name}: {row[0].format(host="HOST", port="PORT")}',
            needs(row[0].split()[0], lambda tools, case=case, row=row: case(tools, row)),
        )
        for name, case in (('strangers', between_strangers), ('not dumpable', beside_undumpable))
        for row in rows
    ] + [('strangers: each copy once', needs('mckey', needs_strangers(each_copy_once)))]
