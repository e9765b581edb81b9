# SPDX-License-Identifier: BSD-2-Clause
"""Reservations by a stock kernel's host with a path to each of two active members, beside a host of
ours that knows the other member alone.

The guest registers and acquires by nvme-cli at the member that serves it, ours preempts at the
other one; all members start anew. Then the guest registers at its member, that is killed, and the
guest preempts ours by the path that is left.
"""
import os
import re
import subprocess

import kernel_guest as guest
from group_members import await_that
from nvme_host import NQN, say

OTHER_HOST = 'nqn.2014-08.org.nvmexpress:uuid:22222222-0000-4000-8000-000000000002'
KEY, OTHER_KEY = 0x7B, 0x2222
TRIES = 8  # a change that waits for a fence ends with Namespace Not Ready after five seconds
CONFLICT = 'Reservation Conflict'
NOT_YET = re.compile(r'not.ready|resource temporarily unavailable', re.IGNORECASE)


class Reserver:
    """`host` is the guest, whose kernel chooses the path."""

    def __init__(self, host, group):
        self.host, self.group = host, group
        self.nqn = host.shell('cat /etc/nvme/hostnqn')[0].strip()
        self.data = os.path.join(group.folder, 'data')
        with open(self.data, 'wb') as file:
            file.truncate(4096)

    def server(self):
        """The member that serves the guest."""
        return await_that(
            lambda: next((one for one in self.group.members if self.nqn in one.hosts()), None)
        )

    def other(self, member):
        return next(one for one in self.group.members if one is not member)

    def shell(self, script):
        """Again where a member is not ready yet, or the kernel knows of no path that serves."""
        for _ in range(TRIES):
            text, status = self.host.shell(script)
            if status == 0 or not NOT_YET.search(text):
                break
        return text, status

    def by_guest(self, title, script):
        text, status = self.shell(script)
        return say(status == 0, f'the guest: {title}', text)

    def ours(self, member, line, refused=''):
        """By our host. The address is there twice: it waits until the member may serve it."""
        program, *rest = line.split()
        where = f'-a {member.address} -a {member.address} -s {member.port} -n {NQN} -N 1'
        for _ in range(TRIES):
            done = subprocess.run(
                [*self.group.command, 'nvme', program, *where.split(), '-q', OTHER_HOST, *rest],
                capture_output=True,
                text=True,
                timeout=guest.LIMIT_SECONDS,
                check=False,
            )
            text = done.stdout + done.stderr
            if done.returncode == 0 or 'Namespace Not Ready' not in text:
                break
        right = refused in text and done.returncode == 1 if refused else done.returncode == 0
        title = f'our host at {member.name}: {line.replace(self.data, "DATA")}'
        return say(right, f'{title}{", refused" if refused else ""}', text)

    def finds(self, keys):
        """What the report has in the guest, by whichever path."""
        text, status = self.shell('nvme resv-report $d -e')
        found = [int(key, 16) for key in re.findall(r'rkey\s*: *(?:0x)?([0-9a-f]+)', text)]
        names = ', '.join(f'{key:#x}' for key in keys)
        return say(
            status == 0 and sorted(found) == sorted(keys) and re.search(r'rtype\s*: 1\n', text),
            f'the guest: resv-report has {names} and type 1',
            text,
        )

    def may_write(self, may):
        text, status = self.host.shell('dd if=/dev/zero of=$d bs=4k count=1 oflag=direct 2>&1')
        return say((status == 0) == may, f'the guest may {"" if may else "not "}write', text)

    def start_anew(self):
        """All members at once, killed; both are paths of the guest again."""
        for member in self.group.members:
            member.kill()
        ready = [member.start() and member.is_ready() for member in self.group.members]
        server = self.server()
        return say(all(ready) and server, 'both start anew') and self.host.sees(server)

    def preempted(self):
        """The guest's reservation, at the member that does not serve it."""
        server = self.server()
        heir = self.other(server)
        return (
            self.by_guest(
                f'resv-register, resv-acquire at {server.name}',
                f'nvme resv-register $d -k {KEY:#x} -r 0 && '
                f'nvme resv-acquire $d -c {KEY:#x} -t 1 -a 0',
            )
            and self.finds([KEY])
            and self.may_write(True)
            and self.ours(heir, f'write -z 4096 -d {self.data}', CONFLICT)
            and self.ours(heir, f'resv-register --nrkey {OTHER_KEY:#x}')
            and self.ours(
                heir,
                f'resv-acquire --crkey {OTHER_KEY:#x} --prkey {KEY:#x} --rtype 1 --racqa 1',
            )
            and self.finds([OTHER_KEY])
            and self.may_write(False)
            and self.start_anew()
            and self.finds([OTHER_KEY])
            and self.may_write(False)
        )

    def preempts(self):
        """By the path that is left when the member at which the guest has registered is dead."""
        server = self.server()
        heir = self.other(server)
        if not self.by_guest(
            f'resv-register at {server.name}', f'nvme resv-register $d -k {KEY:#x} -r 0'
        ):
            return False
        server.kill()
        return (
            say(
                await_that(lambda: self.nqn in heir.hosts()),
                f'{server.name} is killed, {heir.name} serves the guest',
            )
            and self.finds([KEY, OTHER_KEY])
            and self.by_guest(
                f'resv-acquire preempts at {heir.name}',
                f'nvme resv-acquire $d -c {KEY:#x} -p {OTHER_KEY:#x} -t 1 -a 1',
            )
            and self.finds([KEY])
            and self.may_write(True)
            and self.ours(heir, f'write -z 4096 -d {self.data}', CONFLICT)
            and self.start_anew()
            and self.finds([KEY])
            and self.may_write(True)
            and self.ours(self.other(self.server()), f'write -z 4096 -d {self.data}', CONFLICT)
            and self.by_guest(
                'resv-release, and no key any more',
                f'nvme resv-release $d -c {KEY:#x} -t 1 -a 0 && '
                f'nvme resv-register $d -c {KEY:#x} -r 1',
            )
            and self.ours(self.other(self.server()), f'write -z 4096 -d {self.data}')
        )

    def judge(self):
        return self.preempted() and self.preempts()
