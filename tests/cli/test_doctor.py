# SPDX-License-Identifier: BSD-2-Clause
"""`sidewire doctor`: what it says where parts of the machine are refused, by a filter as a
container would have."""
import json
import os
import re
import socket
import subprocess
import sys

import harness
from harness import CLI, DENY, expect, expect_status, run
from own_network import move_to_own_network

CMA = 'process_vm_readv,process_vm_writev'


def examine(*deny, env=None):
    """The doctor's findings by name, and its status, under a filter that refuses these calls."""
    words = [CLI, 'doctor', '--json']
    if deny:
        words = [DENY, *deny, '--', *words]
    done = run(*words, env=env)
    expect(not done.stderr, done)
    whole = json.loads(done.stdout)
    expect(whole['usable'] == (done.returncode == 0), done)
    return {item['name']: item for item in whole['rungs'] + whole['machine']}, done.returncode


def doctor__text_is_aligned():
    done = run(CLI, 'doctor')
    expect(done.stdout.startswith("Ways to a peer's memory"), done.stdout)
    columns = set()
    for line in done.stdout.splitlines():
        if line.startswith('  ') and 'mend: ' not in line:
            found = re.match(r'  (\S.*?) +(yes|no |-  )  \S', line)
            expect(found, line)
            columns.add(found.start(2))
    expect(len(columns) == 1, columns, done.stdout)


def doctor__text_and_json_agree():
    text = run(CLI, 'doctor').stdout
    found, _ = examine()
    for name, item in found.items():
        expect(name in text and item['detail'] in text, name, item, text)


def doctor__says_yes_where_all_is_allowed():
    found, status = examine()
    expect(
        status == 0 and found['ring']['works'] is True and found['libsidewire.so']['works'] is True,
        found,
    )
    expect(found['mapped, shared memory']['works'] is True, found)


def doctor__cma_refused():
    for code in ('EPERM', 'ENOSYS'):
        found, status = examine('-e', code, CMA)
        expect(status == 0 and found['cma']['works'] is False, found['cma'])
        expect(
            'seccomp' in found['cma']['detail'] and 'seccomp' in found['cma']['mend'], found['cma']
        )
        expect(found['ring']['works'] is True, found['ring'])


def doctor__cma_half_refused():
    for call in CMA.split(','):
        found, _ = examine(call)
        expect(found['cma']['works'] is False, call, found['cma'])


def doctor__userfaultfd_refused():
    for code in ('EPERM', 'ENOSYS'):
        found, status = examine('-e', code, 'userfaultfd')
        plain = found['mapped, plain memory']
        expect(status == 0 and plain['works'] is False, plain)
        expect('userfaultfd' in plain['detail'] and 'seccomp' in plain['mend'], plain)
        expect(found['mapped, shared memory']['works'] is True, found)


def doctor__written_pages():
    """Snapshots ask the kernel for them, of 6.7 or later; else they sum."""
    release = tuple(int(part) for part in re.findall(r'\d+', os.uname().release)[:2])
    found, _ = examine()
    told = found['snapshots, pages written']
    expect(release >= (6, 7) or told['works'] is False, told)
    for call in ('userfaultfd', 'ioctl'):
        found, status = examine('-e', 'EPERM', call)
        told = found['snapshots, pages written']
        expect(status == 0 or call == 'ioctl', call, found)
        expect(told['works'] is False and 'sum the state' in told['detail'], call, told)


def doctor__memfd_refused():
    found, status = examine('memfd_create')
    plain = found['mapped, plain memory']
    expect(status == 0 and found['ring']['works'] is True, found)
    expect(plain['works'] or 'memfd_create' in plain['detail'], plain)


def doctor__all_but_the_ring_refused():
    found, status = examine(f'userfaultfd,memfd_create,{CMA}')
    expect(status == 0 and found['ring']['works'] is True and found['cma']['works'] is False, found)


def doctor__sockets_refused():
    """Where processes cannot meet no rung serves, and the status says so."""
    for deny in (['bind'], ['-e', 'EAFNOSUPPORT', 'socket'], ['sendmsg'], ['eventfd2']):
        found, status = examine(*deny)
        expect(
            status == 1 and not any(found[name]['works'] for name in ('mapped', 'cma', 'ring')),
            deny,
            found,
        )
        expect(found['processes can meet']['works'] is False, found)


def doctor__adoption_switched_off():
    found, status = examine(env={'SIDEWIRE_ADOPT': 'never'})
    plain = found['mapped, plain memory']
    expect(
        status == 0 and plain['works'] is False and plain['mend'] == 'unset SIDEWIRE_ADOPT', plain
    )


def doctor__ports_that_others_hold():
    """UDP's of one address family is enough to be told, by the PID of who has it."""
    found, _ = examine()
    expect(found['UDP port 4791']['works'] and found['TCP port 4791']['works'], found)
    cases = (
        (socket.AF_INET, socket.SOCK_DGRAM, '0.0.0.0', 'UDP port 4791', 'IPv4'),
        (socket.AF_INET, socket.SOCK_DGRAM, '127.0.0.1', 'UDP port 4791', 'IPv4'),
        (socket.AF_INET6, socket.SOCK_DGRAM, '::', 'UDP port 4791', 'IPv6'),
        (socket.AF_INET, socket.SOCK_STREAM, '0.0.0.0', 'TCP port 4791', 'another program'),
    )
    for family, kind, address, name, told in cases:
        with socket.socket(family, kind) as holder:
            if family == socket.AF_INET6:
                holder.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            holder.bind((address, 4791))
            if kind == socket.SOCK_STREAM:
                holder.listen()
            found, status = examine()
        item = found[name]
        expect(status == 0 and item['works'] is False and told in item['detail'], address, item)
        expect(kind == socket.SOCK_STREAM or f'kill {os.getpid()}' == item['mend'], address, item)


def doctor__few_open_files():
    done = run('/bin/sh', '-c', 'ulimit -n 64; exec "$0" doctor --json', CLI)
    found = {item['name']: item for item in json.loads(done.stdout)['machine']}
    expect(
        found['open files']['works'] is False and 'ulimit -n' in found['open files']['mend'], found
    )


def doctor__no_interface():
    found, _ = examine(env={'SIDEWIRE_DEVICES': 'none0'})
    expect(
        found['interfaces up']['works'] is False
        and 'SIDEWIRE_DEVICES' in found['interfaces up']['mend'],
        found,
    )


def doctor__names_what_is_set():
    found, status = examine(env={'SIDEWIRE_FAULTS': 'loss=1%', 'SIDEWIRE_LIVENESS': 'never'})
    expect(status == 0 and 'loss=1%' in found['SIDEWIRE_FAULTS']['detail'], found)
    expect('never' in found['SIDEWIRE_LIVENESS']['detail'], found)


def doctor__missing_library():
    found, _ = examine(env={'SIDEWIRE_LIB': '/no/such.so'})
    expect(found['libsidewire.so']['works'] is False and found['libsidewire.so']['mend'], found)


def doctor__as_nobody():
    with harness.public_copy() as copy:
        done = run(*harness.as_nobody(os.path.join(copy, 'src/cli/sidewire'), 'doctor'))
        expect_status(done, 0)
        expect('ring' in done.stdout and not done.stderr, done)


def doctor__under_run():
    expect_status(run(CLI, 'run', '--', CLI, 'doctor'), 0)


def doctor__output_that_cannot_be_written():
    with open('/dev/full', 'w', encoding='utf-8') as full:
        done = subprocess.run([CLI, 'doctor'], stdout=full, stderr=subprocess.PIPE, text=True)
    expect(done.returncode == 1 and 'cannot write' in done.stderr, done)


if __name__ == '__main__':
    move_to_own_network()  # the doctor would tell of programs that are no part of the test
    sys.exit(harness.main(globals()))
