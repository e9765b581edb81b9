#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""Our host with a path to each of two members of a group: the owner is killed and stopped amid
verified writes. What was under way waits for the fence, goes to the next owner, and nothing is
lost.

usage: test_group_host.py SIDEWIRE
"""
import json
import os
import signal
import subprocess
import sys
import tempfile

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), '..'))
from group_members import NQN, Group, await_that  # noqa: E402
from programs import MIB, ports, say  # noqa: E402

MOVER = 'nqn.mover'  # a host
WRONG = ['-n 1 --to c', '-n 9 --to a', f'--hostnqn {MOVER} --to a']


def host(sidewire, group, words):
    there = ' '.join(f'-a {member.address}:{member.port}' for member in group.members)
    command, *rest = words.split()
    return subprocess.Popen(
        [sidewire, 'nvme', command, *there.split(), '-n', group.nqn, '-o', 'json', *rest],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def result_of(process):
    out, said = process.communicate(timeout=100)
    try:
        return process.returncode, json.loads(out), said
    except ValueError:
        return process.returncode, {}, out + said


def states(sidewire, group):
    """The ANA state of each path, where all are used."""
    code, result, _ = result_of(host(sidewire, group, 'list'))
    paths = result.get('paths', [])
    if code or [path['state'] for path in paths] != ['used'] * len(group.members):
        return None
    return sorted(path['ana'] for path in paths)


def failed_over(sidewire, group, number, what):
    owner = await_that(group.owner)
    before = owner.status()['commands']
    load = host(
        sidewire,
        group,
        'bench --verify --destroy-data --size 4m --iodepth 16 --runtime 4 --reconnect-delay 1',
    )
    await_that(lambda: load.poll() is not None or owner.status()['commands'] > before + 500)
    owner.signal(number)
    code, result, said = result_of(load)
    heir = await_that(group.owner)
    moved = sum(path['moved'] for path in result.get('paths', []))
    maybe = sum(path['maybe_done'] for path in result.get('paths', []))
    good = say(
        code == 0 and heir is not owner and moved and not maybe,
        f'the owner is {what}: {moved} requests go to the next one, all is verified',
        said,
        result.get('paths'),
    )
    owner.kill()
    owner.start()
    return (
        say(
            await_that(lambda: states(sidewire, group)) == ['inaccessible', 'optimized'],
            'it comes back, as a path that is not used',
            result_of(host(sidewire, group, 'list')),
        )
        and good
    )


def moved(sidewire, group, what, wrong):
    """To each member in turn, amid verified writes: no host sees an error. `what` names it as the
    command does, and `wrong` are words of moves that are refused."""
    load = host(
        sidewire,
        group,
        'bench --verify --destroy-data --size 4m --iodepth 16 --runtime 3 --reconnect-delay 1 '
        f'--hostnqn {MOVER}',
    )
    said, good = '', True
    for _ in range(3):
        owner = await_that(group.owner)
        heir = next(member for member in group.members if member is not owner)
        await_that(lambda heir=heir: MOVER in connected(heir))
        said = owner.ask('move', *what, '--to', heir.name)
        good = said.endswith(f': {heir.name} has it\n') and heir.serves() and good
    refused = [owner.ask('move', *words.split()) for words in wrong]
    code, result, bench_said = result_of(load)
    maybe = sum(path['maybe_done'] for path in result.get('paths', []))
    return say(
        good and not any(refused) and code == 0 and not maybe,
        f'{" ".join(what)} moves there and back amid verified writes',
        said,
        refused,
        bench_said,
        result.get('paths'),
    )


def connected(member):
    subsystems = member.status().get('subsystems', [{}])
    return [one['hostnqn'] for one in subsystems[0].get('controllers', [])]


def all_active(sidewire, group):
    """A host moves, and no namespace does."""
    for member in group.members:
        member.kill()
    group.server.kill()
    group.server.wait()
    os.unlink(os.path.join(group.folder, 'group.log'))
    group.options = ['--active', 'all']
    group.start_log()
    for member in group.members:
        member.start()
    good = all(member.is_ready() for member in group.members)
    wrong = [f'--hostnqn {MOVER} --to c', '--hostnqn nqn.none --to a', '-n 1 --to a']
    return moved(sidewire, group, ['--hostnqn', MOVER], wrong) and good


def main(sidewire):
    with tempfile.TemporaryDirectory() as folder:
        disk = os.path.join(folder, 'disk')
        with open(disk, 'wb') as file:
            file.truncate(16 * MIB)
        port = ports.claim(5)
        group = Group([sidewire], folder, f'file:{disk},bs=4096', port, NQN)
        group.start_log()
        try:
            for i, name in enumerate('ab'):
                group.add(name, '127.0.0.1', port + 1 + 2 * i, port + 2 + 2 * i).start()
            good = say(
                await_that(lambda: states(sidewire, group)) == ['inaccessible', 'optimized'],
                'one of two members has the namespace',
            )
            good = moved(sidewire, group, ['--namespace', '1'], WRONG) and good
            good = failed_over(sidewire, group, signal.SIGKILL, 'killed') and good
            good = failed_over(sidewire, group, signal.SIGSTOP, 'stopped') and good
            good = all_active(sidewire, group) and good
            if not good:
                for member in group.members:
                    print(f'{member.name} says:\n{member.said()}')
        finally:
            group.close()
        return 0 if good else 1


if __name__ == '__main__':
    sys.exit(main(sys.argv[1]))
