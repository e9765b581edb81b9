# SPDX-License-Identifier: BSD-2-Clause
"""Programs of other packages: iSER (tgt and libiscsi), uDAPL's dtest, NetPIPE over Open MPI."""
import os
import re
import shutil
import subprocess
import time

import cm
import hosts
import pair
import ports
from mpi import BY_UCX, OPEN_MPI_BY_UCX, in_own_network
from pair import Failure, Process, Skip

GUARD = os.path.join(os.path.dirname(os.path.abspath(__file__)), 'iser_guard.c')
TARGET = 'iqn.2026-01.sidewire:disk'
INITIATOR = 'iqn.2026-01.sidewire:client'
DISK_SIZE = 16 << 20
TRIES = 4
# The last two read back what they wrote. Tests called Async ask for more at once than libiscsi's
# iSER has room for: it crashes.
DISK_TESTS = [f'SCSI.{test}' for test in ('Read10.Simple', 'WriteSame10.Check', 'CompareAndWrite')]


def need(*programs):
    for program in programs:
        if not shutil.which(program):
            raise Skip(f'{program} is not installed')


def output(words, env=None):
    done = subprocess.run(
        words,
        capture_output=True,
        text=True,
        timeout=pair.PATIENCE_S,
        env=dict(pair.environment(), **(env or {})),
    )
    if done.returncode:
        raise Failure(f'status {done.returncode}: {" ".join(words)}\n{done.stdout}{done.stderr}')
    return done.stdout + done.stderr


GAVE_UP = 'revents is not POLLIN'


def patient_output(words):
    """libiscsi takes a target that has not answered within a second for a broken one, and a busy
    machine may take longer. Some of its programs end well all the same."""
    for tries_left in reversed(range(TRIES)):
        try:
            said = output(words)
        except Failure as failure:
            if not tries_left or GAVE_UP not in str(failure):
                raise
        else:
            if not tries_left or GAVE_UP not in said:
                return said


def on_hosts(case, client):
    def run(tools):
        two = hosts.Hosts()
        try:
            case(tools, two, client)
        finally:
            two.close()

    return run


def start_target(control, disk):
    """Says what there is. tgt's iSER takes nobody whose name it was not told."""
    admin = ('tgtadm', '-C', control, '--lld', 'iser', '--mode')
    limit = time.monotonic() + pair.PATIENCE_S
    while True:
        try:
            return [
                output([*admin, *words])
                for words in (
                    ('target', '--op', 'new', '--tid', '1', '-T', TARGET),
                    ('logicalunit', '--op', 'new', '--tid', '1', '--lun', '1', '-b', disk),
                    ('target', '--op', 'bind', '--tid', '1', '-I', 'ALL'),
                    ('target', '--op', 'bind', '--tid', '1', '--initiator-name', INITIATOR),
                )
            ]
        except Failure:
            if time.monotonic() > limit:
                raise
            time.sleep(0.1)


def iser(tools, two, client):
    need('tgtd', 'tgtadm', 'iscsi-test-cu', 'iscsi-perf')
    control = str(ports.claim() % 32768)  # tgt's own limit
    disk = tools.path(f'disk.{control}')
    with open(disk, 'wb') as file:
        file.write(os.urandom(DISK_SIZE))
    server = Process(tools.run('tgtd', '-f', '-C', control, wrap=two.wrap[0]))
    url = f'iser://{hosts.ADDRESSES[0]}/{TARGET}/1'
    guard = tools.build('iser_guard.so', 'cc', '-shared', '-fPIC', '-D_GNU_SOURCE', GUARD)
    # libiscsi walks a list whose head it has never set: it lives by memory of malloc that happens
    # to be zero.
    initiator = (*two.wrap[client], 'env', '-u', 'MALLOC_PERTURB_', f'LD_PRELOAD={guard}')
    try:
        start_target(control, disk)
        for test in DISK_TESTS:
            text = patient_output(
                tools.run(
                    'iscsi-test-cu', '-i', INITIATOR, '--dataloss', '-t', test, url, wrap=initiator
                )
            )
            if not re.search(r'asserts +[1-9]\d* +[1-9]\d* +[1-9]\d* +0 ', text):
                raise Failure(f'{test}:\n{text}{server.text()}')
        text = patient_output(
            tools.run('iscsi-perf', '-i', INITIATOR, '-t', '1', '-b', '256', url, wrap=initiator)
        )
        if not re.search(r'iops average [1-9]\d* .*finished', text, re.S):
            raise Failure(f'iscsi-perf:\n{text}{server.text()}')
    finally:
        server.end()
        for name in (f'/var/run/tgtd/socket.{control}', f'/var/run/tgtd/socket.{control}.lock'):
            if os.path.exists(name):
                os.unlink(name)


DTEST_PORT = 15828  # by which it tells where it listens


def dtest(tools, two, client):
    """Sends, writes and reads over connections made by rdma_cm, with data compared
    by the program."""
    need('dtest')
    sides = []
    limit = time.monotonic() + pair.PATIENCE_S
    try:
        for host, address in ((0, []), (client, ['-h', hosts.ADDRESSES[0]])):
            config = tools.path(f'dat.{two.names[host]}')
            with open(config, 'w', encoding='ascii') as file:
                file.write(
                    'ofa-v2-cma u2.0 nonthreadsafe default libdaplofa.so.2 dapl.2.0 '
                    f'"{two.names[host]} 0" ""\n'
                )
            wrap = (*two.wrap[host], 'env', f'DAT_OVERRIDE={config}')
            sides.append(
                Process(tools.run('dtest', '-P', 'ofa-v2-cma', '-b', '8192', *address, wrap=wrap))
            )
            while (
                len(sides) == 1
                and not cm.hears(DTEST_PORT, sides[0].child.pid)
                and time.monotonic() < limit
            ):
                time.sleep(0.01)
        hung = [not side.wait(limit) for side in reversed(sides)]
    finally:
        for side in sides:
            side.end()
    texts = [side.text() for side in sides]
    if any(hung) or not all('DAPL Test Complete. PASSED' in text for text in texts):
        raise Failure(f'hung: {hung}\n--- server:\n{texts[0]}--- client:\n{texts[1]}')


def netpipe(tools):
    need('NPopenmpi', 'mpirun.openmpi')
    words = [
        *'mpirun.openmpi --oversubscribe -n 2'.split(),
        *OPEN_MPI_BY_UCX,
        *'NPopenmpi -i -n 20 -u 300000'.split(),
        '-o',
        tools.path('np.out'),
    ]
    text = output(
        tools.run(*words, wrap=in_own_network()),
        {
            **BY_UCX,
            'UCX_NET_DEVICES': 'sw_lo:1',
            'OMPI_ALLOW_RUN_AS_ROOT': '1',
            'OMPI_ALLOW_RUN_AS_ROOT_CONFIRM': '1',
        },
    )
    sizes = re.findall(r'^ *\d+: +\d+ bytes +20 times -->', text, re.M)
    if len(sizes) < 30 or text.count('Integrity check passed') != len(sizes):
        raise Failure(text)


def cases():
    return [
        ('iSER on one host', on_hosts(iser, 0)),
        ('iSER, two hosts', on_hosts(iser, 1)),
        ('dtest on one host', on_hosts(dtest, 0)),
        ('dtest, two hosts', on_hosts(dtest, 1)),
        ('NetPIPE', netpipe),
    ]
