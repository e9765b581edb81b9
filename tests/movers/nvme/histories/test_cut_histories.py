#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""What several hosts see of a block is linearizable, whichever wire is cut. usage:
test_cut_histories.py SIDEWIRE HISTORY_HOST FIRST_SEED SEEDS [one|all [file|tier]]

Members, hosts and the server with the group's log are in network namespaces. Hosts reach members by
one network; members reach each other and the log by another one. So a member may lose its hosts,
the group, or both, and a host one member or all. An interface at a wire that is cut says so, or is
gone, or nothing comes by it any more. Trouble of test_histories.py comes, too. Where the fence is
left out on purpose, an owner that is cut off writes over newer data, and the checker finds it.
A `tier` has its log at a pmem server, beside that of the group's log.
"""
import os
import random
import signal
import subprocess
import sys
import time

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), '..'))
import test_histories as plain  # noqa: E402
from group_members import Group, await_that  # noqa: E402
from wires import Skip, Wires  # noqa: E402

MEMBERS, PORT, LOG_PORT, TIER_PORT = 3, 4420, 4439, 4441
DATA, GROUP = '10.99.0', '10.98.0'  # networks
CUT_S = 3  # the longest cut; keep-alive time and group timeout are one
HOLDS_MS = 10000  # an owner that is not fenced: until the next one has newer data
HEARS_S = 1  # a host hears where it is served, and sends what waits


class CutWorld(plain.World):
    """test_histories.World in namespaces. Wires of `data`: members, then hosts; of `group_net`:
    members, then the log."""

    def __init__(self, sidewire, program, folder, active, options='', members=MEMBERS, kind='file'):
        self.folder, self.hosts, self.rounds, self.kind = folder, [], 0, kind
        self.all_dead, self.came = 0, []
        self.data = Wires(members + plain.HOSTS, net=DATA)
        self.group_net = self.tier_server = None
        try:
            spaces = self.data.names[:members]
            self.group_net = Wires(members + 1, net=GROUP, spaces=spaces)
            self.make_group(sidewire, active, options, members)
        except BaseException:
            self.close_wires()
            raise
        self.words = [sidewire, 'run', '--', program]

    def make_group(self, sidewire, active, options, members):
        self.disk = os.path.join(self.folder, 'disk')
        with open(self.disk, 'wb') as file:
            file.truncate(64 << 20)
        log_space, log_address = self.group_net.names[members], self.group_net.addresses[members]
        command = self.group_net.inside(log_space) + [sidewire]
        log = self.serve_tier_log(command, log_address) if self.kind == 'tier' else ''
        space = f'{self.kind}:{self.disk}{log},bs=4096{options}'
        self.group = Group(command, self.folder, space, LOG_PORT)
        self.group.timeout_s, self.group.log_address = plain.TIMEOUT_S, log_address
        self.group.options = ['--active', active]
        self.group.start_log()
        for i in range(members):
            member = self.group.add('abc'[i], self.data.addresses[i], PORT, LOG_PORT)
            member.command = self.data.inside(self.data.names[i]) + [sidewire]
            member.group_address = self.group_net.addresses[i]

    def serve_tier_log(self, command, address):
        """The option of a tier."""
        path = os.path.join(self.folder, 'tier.log')
        words = [*command, 'pmem', 'serve', path, '--size', str(plain.TIER_LOG_BYTES)]
        words += ['--listen', f'{address}:{TIER_PORT}', '--control', f'{path}.control']
        none = subprocess.DEVNULL
        self.tier_server = subprocess.Popen(words, stdin=none, stdout=none, stderr=none)
        return f',log={address}:{TIER_PORT}/tier.log,ram=1M'

    def start(self):
        """The first one is the owner, where there is one before hosts come."""
        for member in self.group.members:
            member.start().is_ready()
            if 'one' in self.group.options:
                self.owner()
        return self

    def host_words(self, number):
        return self.data.inside(self.data.names[self.wire_of_host(number)]) + self.words

    def wire_of_host(self, number):
        return len(self.group.members) + number - 1

    def close_wires(self):
        for wires in self.group_net, self.data:
            if wires:
                wires.close()

    def close(self):
        super().close()
        if self.tier_server:
            self.tier_server.kill()
            self.tier_server.wait()
        self.close_wires()


class Cut:
    """Wires, pairs of a network and a number, that are cut in one of three ways, until mend()."""

    def __init__(self, draw, *wires):
        self.wires, self.how = wires, draw.choice(('silent', 'down', 'gone'))
        for net, number in wires:
            if self.how == 'silent':
                net.silence(number)
            else:
                net.cut(number, self.how == 'gone')

    def mend(self):
        for net, number in self.wires:
            if self.how == 'silent':
                net.silence(number, False)
            else:
                net.mend(number, self.how == 'gone')


def number_of(world, member):
    return world.group.members.index(member)


def one_besides(world, owner, draw):
    return draw.choice([one for one in world.group.members if one is not owner])


# ---- trouble ----


def pass_some(draw):
    time.sleep(draw.uniform(0.1, CUT_S))


def host_cut(world, draw):
    cut = Cut(draw, (world.data, world.wire_of_host(draw.randrange(plain.HOSTS) + 1)))
    pass_some(draw)
    cut.mend()


def host_and_owner_parted(world, draw):
    host, owner = draw.randrange(plain.HOSTS) + 1, number_of(world, world.owner())
    world.data.part(owner, world.wire_of_host(host))
    pass_some(draw)
    world.data.part(owner, world.wire_of_host(host), False)


def owner_cut_from_hosts(world, draw):
    """It lives on for the group."""
    cut = Cut(draw, (world.data, number_of(world, world.owner())))
    pass_some(draw)
    cut.mend()


def owner_cut_from_group(world, draw):
    """Hosts reach it all the time, until it is killed. Another one serves then."""
    owner = world.owner()
    cut = Cut(draw, (world.group_net, number_of(world, owner)))
    await_that(lambda: world.group.owner(*[m for m in world.group.members if m is not owner]))
    cut.mend()


def owner_cut_off(world, draw):
    owner = world.owner()
    number = number_of(world, owner)
    cut = Cut(draw, (world.data, number), (world.group_net, number))
    await_that(lambda: world.group.owner(*[m for m in world.group.members if m is not owner]))
    cut.mend()


def owner_cut_briefly(world, draw):
    """For about as long as the group waits for it."""
    number = number_of(world, world.owner())
    cut = Cut(draw, (world.data, number), (world.group_net, number))
    pass_some(draw)
    cut.mend()


def standby_cut(world, draw):
    number = number_of(world, one_besides(world, world.owner(), draw))
    cut = Cut(draw, (world.data, number), (world.group_net, number))
    pass_some(draw)
    cut.mend()


def log_cut(world, draw):
    cut = Cut(draw, (world.group_net, len(world.group.members)))
    pass_some(draw)
    cut.mend()


def log_cut_owner_killed(world, draw):
    """Nobody takes over before the log is back."""
    owner = world.owner()
    cut = Cut(draw, (world.group_net, len(world.group.members)))
    time.sleep(draw.uniform(0, 2 * plain.TIMEOUT_S))
    owner.signal(signal.SIGKILL)
    pass_some(draw)
    cut.mend()


def heir_cut(world, draw):
    """The owner is killed, and a wire of the next one is cut while it takes over, or just after."""
    owner = world.owner()
    heir = one_besides(world, owner, draw)
    owner.signal(signal.SIGKILL)
    time.sleep(draw.uniform(0, 0.6))
    cut = Cut(draw, (draw.choice((world.data, world.group_net)), number_of(world, heir)))
    pass_some(draw)
    cut.mend()


CUTS = [
    host_cut,
    host_and_owner_parted,
    owner_cut_from_hosts,
    owner_cut_from_group,
    owner_cut_off,
    owner_cut_briefly,
    standby_cut,
    log_cut,
    log_cut_owner_killed,
    heir_cut,
]


def cut_holder(world, draw):
    """The owner, which is not fenced, holds writes while it is cut off; they come at last. The
    first member holds them: it is the owner again if it was not."""
    owner, heir = world.group.members
    is_all = 'all' in world.group.options
    if not is_all and not owner.serves():
        owner.ask('move', '--namespace', '1', '--to', owner.name)
    time.sleep(HEARS_S)
    began = time.monotonic()
    cut = Cut(draw, (world.data, 0), (world.group_net, 0))
    await_that(lambda: len(heir.hosts()) == plain.HOSTS if is_all else heir.serves())
    before = plain.writes_of(heir)
    await_that(lambda: plain.writes_of(heir) > before + plain.NEWER)
    time.sleep(max(0, began + HOLDS_MS / 1000 - time.monotonic()) + HEARS_S)
    cut.mend()
    owner.kill()


def planted_world(sidewire, program, folder, active):
    world = CutWorld(sidewire, program, folder, active, ',unfenced', members=2)
    world.group.members[0].namespace += f',delay={HOLDS_MS}ms'
    return world.start()


def main(sidewire, program, first, count, active='one', kind='file'):
    first, count = int(first), int(count)
    try:
        good = plain.linearizable(
            lambda folder: CutWorld(sidewire, program, folder, active, kind=kind).start(),
            CUTS + [plain.owner_killed, plain.owner_stopped, plain.host_stopped],
            range(first, first + count),
            f'{active} active, {kind}, wires cut',
        )
        return (
            plain.planted(
                lambda folder: planted_world(sidewire, program, folder, active), cut_holder
            )
            and good
        )
    except Skip as reason:
        print(f'SKIP: {reason}')
        sys.exit(77)


if __name__ == '__main__':
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # the processes end, too
    sys.exit(not main(*sys.argv[1:]))
