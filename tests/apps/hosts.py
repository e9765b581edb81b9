# SPDX-License-Identifier: BSD-2-Clause
"""Two hosts on one machine: network namespaces joined by a veth pair. Only
root can make them here."""
import contextlib
import itertools
import os
import re
import subprocess
import sys

from pair import Failure, Skip

numbers = itertools.count()
ADDRESSES = ('10.99.0.1', '10.99.0.2')
SUBNET = '10.99.0.0/24'
MEET_S = 30  # patience
# Calls until it is refused, which is when it is heard. While the kernel still looks at the
# addresses of an interface that has come up, a question for the other's IPv6 address is lost, and
# so is a call. Both are repeated after a second: earlier here.
PROBE = f'''
import socket, sys, time
name, *addresses = sys.argv[1:]
limit = time.monotonic() + {MEET_S}

def call(own, address):
    patience_s = 0.04
    while True:
        try:
            socket.create_connection((address, 1), patience_s, (own, 0))
        except ConnectionRefusedError:
            return
        except OSError:
            if time.monotonic() > limit:
                raise
        patience_s *= 1.5
        time.sleep(0.01)

with open(f"/proc/sys/net/ipv6/neigh/{{name}}/retrans_time_ms", "r+") as file:
    usual = file.read()
    file.write("20")
    file.flush()
    try:
        for pair in zip(addresses[::2], addresses[1::2]):
            call(*pair)
    finally:
        file.write(usual)
'''


class Hosts:
    """wrap[i] puts a command on host i, whose device is device[i]; each has ADDRESSES[i] and a
    fd99:: address."""

    def __init__(self, mtu=9000):
        if os.geteuid() != 0:
            raise Skip('network namespaces with names need root')
        number = next(numbers)
        self.names = [f'sw{os.getpid()}x{number}{side}' for side in 'ab']
        self.wrap = [('ip', 'netns', 'exec', name) for name in self.names]
        self.device = [f'sw_{name}' for name in self.names]
        try:
            for name in self.names:
                self.ip('netns', 'add', name)
                setting = 'net.ipv6.conf.default.accept_dad=0'  # else addresses wait
                self.ip('netns', 'exec', name, 'sysctl', '-qw', setting)
            self.add_veth(self.names)
            for name, address in zip(self.names, ADDRESSES):
                here = ('-n', name)
                self.ip(*here, 'link', 'set', 'lo', 'up')
                self.ip(*here, 'addr', 'add', f'{address}/24', 'dev', name)
                self.ip(*here, 'addr', 'add', f'fd99::{address[-1]}/64', 'dev', name, 'nodad')
                self.ip(*here, 'link', 'set', name, 'mtu', str(mtu), 'up')
        except (OSError, subprocess.CalledProcessError) as error:
            self.close()
            raise Skip(f'no network namespaces: {error}') from error

        self.meet()

    def add_veth(self, names):
        """A pair of interfaces, one on each host."""
        here, there = self.names
        peer = ('type', 'veth', 'peer', 'name', names[1], 'netns', there)
        self.ip('link', 'add', names[0], 'netns', here, *peer)

    def add_rail(self, subnet='10.98.0'):
        """A second veth pair between the two; the names of its interfaces."""
        names = [f'{name}r' for name in self.names]
        self.add_veth(names)
        for i, name in enumerate(names):
            here = ('-n', self.names[i])
            self.ip(*here, 'addr', 'add', f'{subnet}.{i + 1}/24', 'dev', name)
            self.ip(*here, 'link', 'set', name, 'mtu', '9000', 'up')
        return names

    def set_link(self, host, name, state):
        self.ip('-n', self.names[host], 'link', 'set', name, state)

    def meet(self):
        """Waits until the two find each other's addresses."""
        pairs = (*ADDRESSES, 'fd99::1', 'fd99::2')
        argv = [*self.wrap[0], sys.executable, '-c', PROBE, self.names[0], *pairs]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=3 * MEET_S)
        if done.returncode:
            self.close()
            raise Failure(f'the two hosts do not find each other: {done.stderr}')

    @staticmethod
    def ip(*words):
        subprocess.run(['ip', *words], check=True, capture_output=True, timeout=20)

    def close(self):
        for name in self.names:
            subprocess.run(['ip', 'netns', 'del', name], capture_output=True, timeout=20)


class LossyLink:
    """One more link between two hosts, by bench/src/lossy_link: so many frames of a thousand are
    lost; `more`: sent twice, and passed by the next one. In a `with`; after it `told` says how many
    there were."""

    addresses = ('10.98.0.1', '10.98.0.2')
    device = 'lossy'

    def __init__(self, two, program, mtu, lost, seed, more=()):
        numbers = map(str, (lost, seed, *more))
        self.words = [program, *two.names, self.device, *numbers]
        self.two, self.mtu, self.told = two, mtu, ''

    def __enter__(self):
        self.process = subprocess.Popen(self.words, stdout=subprocess.PIPE, text=True)
        try:
            if self.process.stdout.readline() != 'ready\n':
                raise Skip('no TAP devices in network namespaces')
            for name, address in zip(self.two.names, self.addresses):
                here = ('-n', name)
                self.two.ip(*here, 'addr', 'add', f'{address}/24', 'dev', self.device)
                self.two.ip(*here, 'link', 'set', self.device, 'mtu', str(self.mtu), 'up')
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        self.process.terminate()
        try:
            self.told = self.process.communicate(timeout=20)[0]
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.communicate()


class Pool:
    """Pairs of hosts that cases use one after another: a new pair takes up to two seconds until its
    halves meet."""

    def __init__(self):
        self.free = []  # a list's pop() and append() need no lock

    @contextlib.contextmanager
    def lend(self):
        """Two hosts without a process. A case that fails may leave some, so nobody else gets its
        pair."""
        try:
            two = self.free.pop()
        except IndexError:
            two = Hosts()
        try:
            yield two
        except BaseException:
            two.close()
            raise
        self.free.append(two)

    def close(self):
        while self.free:
            self.free.pop().close()


def gid_index(tools, two, number, family):
    """The index of a host's own GID of RoCE v2."""
    prefix = {4: '::ffff:10.99', 6: 'fd99'}[family]
    listing = tools.output('ibv_devinfo', '-v', '-d', two.device[number], wrap=two.wrap[number])
    return re.search(rf'GID\[\s*(\d+)\]:\s*{prefix}\S*, RoCE v2', listing)[1]
