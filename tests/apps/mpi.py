# SPDX-License-Identifier: BSD-2-Clause
"""Open MPI and MPICH: mpi_all.c, built with the compiler of each, on ranks of
one host and of two."""
import os
import re
import shutil
import subprocess
import tempfile

import hosts
import pair
from pair import Failure, Skip

HERE = os.path.dirname(os.path.abspath(__file__))
PARTS = [
    os.path.join(HERE, f'mpi_{part}.c') for part in ('all', 'sends', 'one_sided', 'collectives')
]
BY_UCX = {'UCX_TLS': 'rc_v,ud_v,self', 'UCX_WARN_UNUSED_ENV_VARS': 'n'}
# Debian's MPICH cannot take up what it gathers when a fragment of UCX ends within a number: it says
# "Message truncated", by shared memory as well (UCX_TLS=posix,self UCX_POSIX_SEG_SIZE=8193). This
# length is one that ends behind numbers.
WHOLE_NUMBERS = {'UCX_RC_VERBS_SEG_SIZE': '8257'}
OPEN_MPI_BY_UCX = ('--mca', 'pml', 'ucx', '--mca', 'osc', 'ucx')
RESULT = re.compile(
    r'^(\d+) ranks, ([1-9]\d*) checks, (\d+) bytes to others, (\d+) by the device$', re.M
)

# mpirun calls this in the place of ssh: it goes to the host of that address and runs the words
# there, under a name of its own.
AGENT = '''#!/bin/sh
[ "$1" = -x ] && shift
host=$1
shift
case $host in
{cases}
*) echo "no host $host"; exit 1 ;;
esac
exec ip netns exec "$name" unshare --uts env UCX_NET_DEVICES="sw_$name:1" \\
    {run} sh -c 'hostname "$0"; exec sh -c "$*"' "$name" "$@"
'''


def is_there(kind):
    if not shutil.which(f'mpicc.{kind}') or not shutil.which(LAUNCHERS[kind]):
        raise Skip(f'{kind} is not installed')


def build(tools, kind):
    """The program, made by that MPI's compiler; once."""
    is_there(kind)
    return tools.build(
        f'mpi_all.{kind}',
        f'mpicc.{kind}',
        *'-O2 -Wall -Wextra -Werror -D_GNU_SOURCE'.split(),
        *PARTS,
    )


LAUNCHERS = {'openmpi': 'mpirun.openmpi', 'mpich': 'mpiexec.mpich'}


def judge(words, env, ranks, share):
    """Runs it; the result must be there, and of the payload at least this share must have left by
    our device."""
    env = dict(
        pair.environment(), OMPI_ALLOW_RUN_AS_ROOT='1', OMPI_ALLOW_RUN_AS_ROOT_CONFIRM='1', **env
    )
    with tempfile.TemporaryFile(mode='w+') as log:
        child = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, env=env
        )
        try:
            child.wait(pair.PATIENCE_S)
        except subprocess.TimeoutExpired:
            child.terminate()  # the launcher ends its ranks
            try:
                child.wait(5)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
        log.seek(0)
        text = log.read()
    found = RESULT.search(text)
    if child.returncode or not found or int(found[1]) != ranks or 'sidewire[' in text:
        raise Failure(f'status {child.returncode}\n{" ".join(words)}\n{text}')
    if int(found[4]) < share * int(found[3]):
        raise Failure(f'the data took another way: {found[0]}\n{" ".join(words)}')


def in_own_network():
    """A network namespace of our own: nobody else's traffic is counted on its loopback."""
    user = [] if os.geteuid() == 0 else ['--user', '--map-root-user']
    words = ['unshare', *user, '--net', 'sh', '-c', 'ip link set lo up && exec "$@"', 'sh']
    if subprocess.run([*words, 'true'], capture_output=True).returncode:
        raise Skip('network namespaces are not allowed here')
    return words


def one_host(tools, kind, ranks, settings, options=(), **run):
    program = build(tools, kind)
    words = [
        LAUNCHERS[kind],
        '-n',
        str(ranks),
        *(['--oversubscribe', *options] if kind == 'openmpi' else []),
        program,
        'sw_lo',
    ]
    judge(tools.run(*words, wrap=in_own_network(), **run), settings, ranks, 1)


def by_libfabric(tools, ranks):
    """libfabric leaves the loopback out, so the ranks share another device."""
    program = build(tools, 'openmpi')
    two = hosts.Hosts()
    try:
        words = [
            LAUNCHERS['openmpi'],
            *f'-n {ranks} --oversubscribe --mca pml cm --mca mtl ofi'.split(),
            *'--mca mtl_ofi_provider_include verbs;ofi_rxm'.split(),
            program,
            two.device[0],
        ]
        judge(tools.run(*words, wrap=two.wrap[0]), {'FI_PROVIDER': 'verbs;ofi_rxm'}, ranks, 1)
    finally:
        two.close()


def two_hosts(tools, kind, ranks):
    """Half of the ranks on each; the counters of rank 0's host see what leaves there."""
    program = build(tools, kind)
    two = hosts.Hosts()
    try:
        agent = os.path.join(tools.folder, f'agent.{two.names[0]}')
        with open(agent, 'w', encoding='ascii') as script:
            cases = '\n'.join(
                f'{address}) name={name} ;;' for address, name in zip(hosts.ADDRESSES, two.names)
            )
            script.write(AGENT.format(cases=cases, run=' '.join(tools.run())))
        os.chmod(agent, 0o755)
        each = ranks // 2
        if kind == 'openmpi':
            where = [
                '--mca',
                'plm_rsh_agent',
                agent,
                '--host',
                ','.join(f'{address}:{each}' for address in hosts.ADDRESSES),
                *'--oversubscribe --mca oob_tcp_if_include'.split(),
                hosts.SUBNET,
                *OPEN_MPI_BY_UCX,
            ]
            where += [word for name in BY_UCX for word in ('-x', name)]
        else:
            where = [
                '-launcher',
                'ssh',
                '-launcher-exec',
                agent,
                '-hosts',
                ','.join(f'{address}:{each}' for address in hosts.ADDRESSES),
                '-genvlist',
                ','.join([*BY_UCX, *WHOLE_NUMBERS]),
            ]
        words = tools.run(
            LAUNCHERS[kind], *where, '-n', str(ranks), program, two.device[0], wrap=two.wrap[0]
        )
        judge(
            words, {**BY_UCX, **WHOLE_NUMBERS, 'UCX_NET_DEVICES': f'{two.device[0]}:1'}, ranks, 0.25
        )
    finally:
        two.close()


def on_one_host(kind, name, ranks, settings, **run):
    """By UCX."""
    if kind == 'openmpi':
        return (
            f'Open MPI by UCX, {name}',
            lambda tools: one_host(tools, kind, ranks, settings, OPEN_MPI_BY_UCX, **run),
        )
    return (
        f'MPICH by UCX, {name}',
        lambda tools: one_host(tools, kind, ranks, {**settings, **WHOLE_NUMBERS}, **run),
    )


def groups():
    """Each way by one of the two, and `more` by the other."""
    ucx = {**BY_UCX, 'UCX_NET_DEVICES': 'sw_lo:1'}
    ways = [
        ('2 ranks', 2, ucx, {}),
        ('4 ranks', 4, ucx, {}),
        ('datagrams alone', 2, {**ucx, 'UCX_TLS': 'ud_v,self'}, {}),
        ('over packets', 2, ucx, {'link': 'roce'}),
        ('by the ring', 2, ucx, {'direct': 'ring'}),
    ]
    found, more = [], []
    for i, (name, ranks, settings, run) in enumerate(ways):
        two = [on_one_host(kind, name, ranks, settings, **run) for kind in ('openmpi', 'mpich')]
        found.append(two[i % 2])
        more.append(two[1 - i % 2])
    for ranks, group in ((4, found), (2, more)):
        group.append(
            (
                f'Open MPI by libfabric, {ranks} ranks',
                lambda tools, ranks=ranks: by_libfabric(tools, ranks),
            )
        )
    found.append(('Open MPI on two hosts', lambda tools: two_hosts(tools, 'openmpi', 4)))
    more.append(('MPICH on two hosts', lambda tools: two_hosts(tools, 'mpich', 4)))
    return {'mpi': found, 'mpi_more': more}
