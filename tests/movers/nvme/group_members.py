# SPDX-License-Identifier: BSD-2-Clause
"""A group of targets as processes: a pmem server with its log, and members that serve one file. For
tests of whole programs, here and against a kernel."""
import json
import os
import signal
import subprocess
import time

LIMIT_S = 120  # until something has to have happened
LOOPBACK = '127.0.0.1'
NQN = 'nqn.2026-01.io.sidewire:default'


def await_that(is_there, seconds=LIMIT_S):
    """What is_there() returns as soon as that is something; what it returns last."""
    limit = time.monotonic() + seconds
    while True:
        found = is_there()
        if found or time.monotonic() > limit:
            return found
        time.sleep(0.02)


class Member:
    """A target of the group. A test may change what is its own before it starts: `command` may lead
    into a network namespace."""

    def __init__(self, group, name, address, port, group_port):
        self.group, self.name, self.address, self.port = group, name, address, port
        self.group_port = group_port
        self.log = os.path.join(group.folder, f'{name}.log')
        self.control = os.path.join(group.folder, f'{name}.control')
        self.process, self.said_before = None, 0
        self.command, self.namespace, self.group_address = group.command, group.namespace, LOOPBACK

    def start(self, *options):
        words = [*self.command, 'nvme', 'target', '--listen', f'{self.address}:{self.port}']
        words += ['--subsysnqn', self.group.nqn, '--namespace', self.namespace]
        words += [
            '--group',
            f'{self.group.log_address}:{self.group.log_port}',
            '--member',
            self.name,
        ]
        words += [
            '--group-listen',
            f'{self.group_address}:{self.group_port}',
            '--control',
            self.control,
        ]
        words += ['--group-timeout', str(self.group.timeout_s), *self.group.options, *options]
        with open(self.log, 'ab') as log:
            self.said_before = log.tell()
            self.process = subprocess.Popen(
                words, stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL
            )
        return self

    def said(self):
        with open(self.log, encoding='utf-8', errors='replace') as file:
            return file.read()

    def is_ready(self):
        """Since it was started the last time."""
        await_that(
            lambda: 'ready  ' in self.said()[self.said_before :] or self.process.poll() is not None
        )
        return self.process.poll() is None

    def ask(self, *words):
        done = subprocess.run(
            [*self.command, 'nvme', 'target', *words, '--control', self.control],
            capture_output=True,
            text=True,
            check=False,
            timeout=LIMIT_S,
        )
        return done.stdout if done.returncode == 0 else ''

    def status(self):
        text = self.ask('status', '-o', 'json')
        return json.loads(text) if text else {}

    def serves(self):
        """Whether it has the first namespace, or a host where all members are active."""
        group = self.status().get('group', {})
        is_all = group.get('active') == 'all'
        has = group.get('host_owners', []) if is_all else group.get('owners', [])[:1]
        return any(one['here'] == 'serving' for one in has)

    def hosts(self):
        """The NQNs of those that it serves, where all members are active."""
        hosts = self.status().get("group", {}).get("host_owners", [])
        return {one['hostnqn'] for one in hosts if one['here'] == 'serving'}

    def signal(self, number):
        self.process.send_signal(number)

    def kill(self):
        """It is waited for, also if another member has killed it."""
        if self.process is None:
            return None
        if self.process.poll() is None:
            self.process.kill()
        return self.process.wait()

    def end(self):
        self.signal(signal.SIGTERM)
        return self.process.wait(timeout=LIMIT_S)

    def status_of_end(self, seconds=LIMIT_S):
        """How it has ended, by somebody else; None: it goes on."""
        await_that(lambda: self.process.poll() is not None, seconds)
        return self.process.poll()


class Group:
    """Its log is at log_port of the loopback, or of `log_address`. `command` is how Sidewire is
    begun."""

    def __init__(self, command, folder, namespace, log_port, nqn=NQN, timeout_s=1):
        self.command, self.folder, self.namespace = command, folder, namespace
        self.log_port, self.nqn, self.timeout_s = log_port, nqn, timeout_s
        self.members, self.server, self.log_address = [], None, LOOPBACK
        self.options = []  # of each member

    def start_log(self):
        words = [*self.command, 'pmem', 'serve', os.path.join(self.folder, 'group.log')]
        words += ['--size', '16M', '--listen', f'{self.log_address}:{self.log_port}']
        words += ['--control', os.path.join(self.folder, 'log.control')]
        self.server = subprocess.Popen(
            words,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            stdin=subprocess.DEVNULL,
        )

    def add(self, name, address, port, group_port):
        self.members.append(Member(self, name, address, port, group_port))
        return self.members[-1]

    def owner(self, *among):
        """The member that serves; None in between."""
        for member in among or self.members:
            if member.process and member.process.poll() is None and member.serves():
                return member
        return None

    def close(self):
        for member in self.members:
            member.kill()
        if self.server:
            self.server.kill()
            self.server.wait()
