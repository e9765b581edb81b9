# SPDX-License-Identifier: BSD-2-Clause
"""Network namespaces for members of a group, each at a wire of its own that may be cut; hosts and
the group's log are in another one, where all wires end at a bridge."""
import os
import subprocess

NET, MTU = '10.99.0', 4200


class Skip(Exception):
    """There can be no network namespaces here."""


def ip_run(*words):
    subprocess.run(['ip', *words], check=True, capture_output=True, timeout=30)


class Wires:
    """`hub`: a namespace that is there, with its bridge br0 in the network `net`; the members get
    the addresses from `first` on. `spaces`: the first of the members are there, too, and get a
    second wire, in another network than that of their first one."""

    def __init__(self, count, hub=None, net=NET, first=2, spaces=()):
        own = f'sww{os.getpid()}{"b" if spaces else ""}'
        self.is_own, self.hub = hub is None, hub or own
        self.hub_address, self.shared = f'{net}.1', len(spaces)
        self.names = [*spaces, *(f'{self.hub}m{i}' for i in range(self.shared, count))]
        self.addresses = [f'{net}.{first + i}' for i in range(count)]
        try:
            if self.is_own:
                self.add_hub()
            for number, name in enumerate(self.names):
                if number >= self.shared:
                    self.add_space(name)
                self.plug(number)
        except (OSError, subprocess.CalledProcessError) as error:
            self.close()
            raise Skip(f'no network namespaces: {error}') from error

    def add_hub(self):
        self.add_space(self.hub)
        ip_run(*f'-n {self.hub} link add br0 mtu {MTU} type bridge forward_delay 0'.split())
        ip_run(*f'-n {self.hub} addr add {self.hub_address}/24 dev br0'.split())
        ip_run(*f'-n {self.hub} link set br0 up'.split())

    @staticmethod
    def add_space(name):
        ip_run('netns', 'add', name)
        ip_run(*f'-n {name} link set lo up'.split())

    def plug(self, number):
        """A wire from the bridge to a member."""
        name, end = self.names[number], f'm{number}'
        eth = 'eth1' if number < self.shared else 'eth0'
        peer = f'type veth peer name {eth} mtu {MTU} netns {name}'
        ip_run(*f'-n {self.hub} link add {end} mtu {MTU} {peer}'.split())
        ip_run(*f'-n {self.hub} link set {end} master br0 up'.split())
        ip_run(*f'-n {name} addr add {self.addresses[number]}/24 dev {eth}'.split())
        ip_run(*f'-n {name} link set {eth} up'.split())

    def cut(self, number, removes):
        """The interfaces stay, or they are gone, too."""
        how = f'link del m{number}' if removes else f'link set m{number} down'
        ip_run('-n', self.hub, *how.split())

    def mend(self, number, removed):
        if removed:
            self.plug(number)
        else:
            ip_run('-n', self.hub, *f'link set m{number} up'.split())

    def silence(self, number, is_silent=True):
        """Nothing passes any more, and no interface tells of it."""
        plug = 'nomaster' if is_silent else 'master br0'
        ip_run('-n', self.hub, *f'link set m{number} {plug}'.split())

    def part(self, one, other, is_parted=True):
        """Nothing passes between these two; all others reach both."""
        how = f'type bridge_slave isolated {"on" if is_parted else "off"}'
        for number in one, other:
            ip_run('-n', self.hub, *f'link set m{number} {how}'.split())

    def inside(self, name):
        """The words that lead there."""
        return ['ip', 'netns', 'exec', name]

    def close(self):
        for name in [self.hub] * self.is_own + self.names[self.shared :]:
            subprocess.run(['ip', 'netns', 'del', name], capture_output=True, timeout=30)
