#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""The target and the host together, as their users run them: data through each backend, and what is
left when one of them dies.

usage: test_nvme.py SIDEWIRE [roce | iwarp]
"""
import json
import os
import subprocess
import sys
import tempfile

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), '..'))
from programs import HOST_NQN, MIB, NQN, PORT, SECRETS, Target, host, say  # noqa: E402


def copies(sidewire, folder, nsid, what):
    data, got = os.path.join(folder, 'data'), os.path.join(folder, 'got')
    with open(data, 'wb') as file:
        file.write(os.urandom(4 * MIB))
    wrote = host(sidewire, f'write -n {NQN} -N {nsid} -z {4 * MIB} -d {data}')
    read = host(sidewire, f'read -n {NQN} -N {nsid} -z {4 * MIB} -d {got}')
    with open(data, 'rb') as one, open(got, 'rb') as two:
        same = one.read() == two.read()
    return say(
        wrote[0] == 0 and read[0] == 0 and same,
        f'{what}: what is written is read',
        wrote[1],
        read[1],
    )


def verifies(sidewire, nsid, what):
    status, text = host(
        sidewire,
        (
            f'bench -n {NQN} -N {nsid} --verify --destroy-data --size 16m --bs 4k,128k --iodepth 8 '
            '-i '
            '2 --numjobs 2'
        ),
    )
    return say(status == 0, f'{what}: two queues, verified', text)


def keys_have_units(sidewire, folder):
    """What is printed as JSON, and the keys of before beside it."""
    path, good = os.path.join(folder, 'got'), True
    for line, wanted in (
        (
            'bench --bs 4k --runtime 0.1 --ramp_time 0',
            lambda told: told['rows'][0]['request_bytes'] == told['rows'][0]['bs'] == 4096,
        ),
        ('connect-test -i 2', lambda told: told['io_queues'] == told['nr_io_queues'] == 2),
        (
            f'read -N 1 -z 4096 -d {path}',
            lambda told: 0 < told['seconds'] < 60
            and abs(told['us'] / told['seconds'] / 1e6 - 1) < 0.1,
        ),
    ):
        status, text = host(sidewire, f'{line} -n {NQN} -o json')
        good = (
            say(status == 0 and wanted(json.loads(text)), f'{line.split()[0]}: JSON', text) and good
        )
    return good


def tells_of_holes(sidewire, folder):
    """Figures of a file's holes are of no disk."""
    path = os.path.join(folder, 'holes')
    with open(path, 'wb') as file:
        file.truncate(1 << 20)
    target = Target(sidewire, f'file:{path}')
    quick, good = f'bench -n {NQN} --runtime 0.1 --ramp_time 0', True
    for line, is_blank in (
        (quick, True),
        (f'{quick} --rw write --bs 64k --destroy-data', False),
        (quick, False),
    ):
        status, text = host(sidewire, line)
        told = 'all zeroes' in text
        good = say(status == 0 and told == is_blank, f'{line}: holes are told', text) and good
        if '--rw' not in line:
            told = json.loads(host(sidewire, f'{line} -o json')[1])['is_blank']
            good = say(told == is_blank, 'the same in JSON', told) and good
    return say(target.end() == 0, 'SIGTERM: it ends by itself') and good


def fills_its_queues(sidewire):
    """More answers in a turn than the target posts in one list, of writes in the capsule and of
    requests that wait for memory."""
    target = Target(
        sidewire, 'ram:64M', 'null:64M', options=['--in-capsule', '8192', '--pool', '1']
    )
    good = True
    for nsid, sizes in ((1, '4k,8k,16k'), (2, '16k')):
        words = f'-n {NQN} -N {nsid} --destroy-data --iodepth 127 -i 3 --numjobs 3 --bs {sizes}'
        for what in (
            ('--verify --size 24m',)
            if nsid == 1
            else ('--rw randread --runtime 1', '--rw randwrite --runtime 1')
        ):
            status, text = host(sidewire, f'bench {words} {what}')
            good = say(status == 0, f'three queues of 127 requests, {sizes}, {what}', text) and good
    return say(target.end() == 0, 'SIGTERM: it ends by itself') and good


def authenticates(sidewire, folder):
    """The host's secret on the command lines, the target's in a file."""
    path = os.path.join(folder, 'secret')
    with open(path, 'w', encoding='ascii') as file:
        file.write(SECRETS[1] + '\n')
    target = Target(
        sidewire,
        'ram:64M',
        options=[
            '--dhchap-secret',
            f'{HOST_NQN}={SECRETS[0]}',
            '--dhchap-ctrl-secret',
            f'{HOST_NQN}=@{path}',
        ],
    )
    own = f'-n {NQN} -q {HOST_NQN}'
    good = True
    for options, said in (
        (f'{own} -S {SECRETS[0]}', ''),
        (f'{own} -S {SECRETS[0]} -C @{path}', ''),
        (own, 'wants authentication'),
        (f'{own} -S {SECRETS[1]}', 'a response is wrong'),
        (f'{own} -S {SECRETS[0]} -C {SECRETS[0]}', 'does not prove'),
        (f'{own}x -S {SECRETS[0]}', 'does not allow this host'),
        (f'-n {NQN}x -q {HOST_NQN} -S {SECRETS[0]}', 'Are the names of the subsystem and of'),
        (f'{own} -S secret', 'not valid'),
        (f'{own} -S @{path}x', f'in {path}x cannot be read: No such file'),
    ):
        status, text = host(sidewire, f'list {options}')
        good = (
            say(
                (status == 0) == (said == '') and said in text,
                f'authentication: {said or "they prove themselves"}',
                options,
                text,
            )
            and good
        )
    status, text = host(
        sidewire,
        (
            f'bench {own} -S {SECRETS[0]} -C @{path} --verify --destroy-data --size 16m --iodepth '
            '8 -i '
            '2 --numjobs 2'
        ),
    )
    good = say(status == 0, 'authentication: two queues, verified', text) and good
    good = say(target.end() == 0, 'SIGTERM: it ends by itself') and good
    said = target.process.stdout.read()
    return (
        say(
            said.count(f'of {HOST_NQN} at 127.0.0.1 is refused') == 2,
            'the target names those that it refused',
            said,
        )
        and good
    )


def main(sidewire):
    good = True
    with tempfile.TemporaryDirectory() as folder:
        disk, nvram = os.path.join(folder, 'disk'), os.path.join(folder, 'nvram')
        for path in disk, nvram:
            with open(path, 'wb') as file:
                file.truncate(64 * MIB)
        target = Target(sidewire, 'ram:64M', f'file:{disk}', f'nvram:{nvram}', 'null:64M,ro')
        for nsid, what in ((1, 'ram'), (2, 'file'), (3, 'nvram')):
            good = copies(sidewire, folder, nsid, what) and verifies(sidewire, nsid, what) and good
        status, text = host(
            sidewire, f'write -n {NQN} -N 4 -z 4096 -d {os.path.join(folder, "data")}'
        )
        good = say(status != 0 and 'rite' in text, 'read-only: a write is refused', text) and good
        for program in ('discover', f'id-ctrl -n {NQN}', f'id-ns -n {NQN} -N 2', f'list -n {NQN}'):
            status, text = host(sidewire, program)
            good = say(status == 0, program.split()[0], text) and good
        good = keys_have_units(sidewire, folder) and good
        status, text = host(sidewire, 'id-ctrl -n nqn.2026-01.test:none')
        good = say(status != 0, 'a subsystem that is not there is refused', text) and good
        good = say(target.end() == 0, 'SIGTERM: it ends by itself') and good
        target = Target(sidewire, 'ram:64M')
        killed = subprocess.Popen(
            [sidewire, *f'nvme bench -a 127.0.0.1 -s {PORT}'.split(), '-n', NQN, '--runtime', '20'],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            killed.wait(timeout=1.5)
        except subprocess.TimeoutExpired:
            pass
        killed.kill()
        killed.wait()
        good = verifies(sidewire, 1, 'after a host was killed') and good
        good = say(target.end() == 0, 'SIGTERM: it ends by itself') and good
        good = tells_of_holes(sidewire, folder) and good
        good = fills_its_queues(sidewire) and good
        good = authenticates(sidewire, folder) and good
    return 0 if good else 1


if __name__ == '__main__':
    if sys.argv[2:] in (['roce'], ['iwarp']):
        os.environ['SIDEWIRE_LINK'] = sys.argv[2]
    sys.exit(main(sys.argv[1]))
