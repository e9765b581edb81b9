# SPDX-License-Identifier: BSD-2-Clause
"""Two hosts on one machine: network namespaces joined by a veth pair. Only root can make them here."""
import itertools
import os
import re
import subprocess
import sys

from pair import Skip

numbers = itertools.count()
ADDRESSES = ('10.99.0.1', '10.99.0.2')
SUBNET = '10.99.0.0/24'


class Hosts:
    """wrap[i] puts a command on host i, whose device is device[i]; each has ADDRESSES[i] and a fd99:: address."""

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
                self.ip('netns', 'exec', name, 'sysctl', '-qw', 'net.ipv6.conf.default.accept_dad=0')  # else addresses wait
            self.ip('link', 'add', self.names[0], 'netns', self.names[0], 'type', 'veth', 'peer', 'name', self.names[1],
                    'netns', self.names[1])
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

    def add_rail(self, subnet='10.98.0'):
        """A second veth pair between the two; the names of its interfaces."""
        names = [f'{name}r' for name in self.names]
        self.ip('link', 'add', names[0], 'netns', self.names[0], 'type', 'veth', 'peer', 'name', names[1], 'netns', self.names[1])
        for i, name in enumerate(names):
            here = ('-n', self.names[i])
            self.ip(*here, 'addr', 'add', f'{subnet}.{i + 1}/24', 'dev', name)
            self.ip(*here, 'link', 'set', name, 'mtu', '9000', 'up')
        return names

    def set_link(self, host, name, state):
        self.ip('-n', self.names[host], 'link', 'set', name, state)

    def meet(self):
        """Waits until the two find each other's addresses, which takes the kernel up to a second after the links are up."""
        for address in (ADDRESSES[1], 'fd99::2'):
            knock = f'import socket; socket.create_connection(("{address}", 1), 10)'  # refused, once it is reached
            subprocess.run([*self.wrap[0], sys.executable, '-c', knock], capture_output=True, timeout=20)

    @staticmethod
    def ip(*words):
        subprocess.run(['ip', *words], check=True, capture_output=True, timeout=20)

    def close(self):
        for name in self.names:
            subprocess.run(['ip', 'netns', 'del', name], capture_output=True, timeout=20)


def gid_index(tools, two, number, family):
    """The index of a host's own GID of RoCE v2."""
    prefix = {4: '::ffff:10.99', 6: 'fd99'}[family]
    listing = tools.output('ibv_devinfo', '-v', '-d', two.device[number], wrap=two.wrap[number])
    return re.search(rf'GID\[\s*(\d+)\]:\s*{prefix}\S*, RoCE v2', listing)[1]
