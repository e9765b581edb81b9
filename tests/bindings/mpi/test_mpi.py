# SPDX-License-Identifier: BSD-2-Clause
"""`sidewire run --collectives`: programs of MPICH and Open MPI that know nothing of it. They look
at each result; the counters say whose calls these were."""
import os
import re
import sys

from programs import AS_ROOT, HERE, LAUNCHERS, check_share, compile_for, counts_of, launch, need

sys.path.append(os.path.join(HERE, '../../apps'))
import harness  # noqa: E402
import hosts  # noqa: E402
import pair  # noqa: E402
from harness import CLI, Skip, expect, expect_status, run  # noqa: E402


def check_runs(kind, program, runs):
    """Each is ranks, a seed, and how much is drawn from it."""
    for ranks, seed, length in runs:
        done = launch(kind, ranks, program, str(seed), str(length))
        expect_status(done, 0)
        expect(re.search(rf'^{ranks} ranks, [1-9]\d+ checks$', done.stdout, re.M), done.stdout)
        check_share(done, ranks)


def check_drawn(kind, runs):
    need(kind)
    with harness.public_folder() as folder:
        program = compile_for(
            kind, folder, 'drawn', 'drawn.c', 'draws.c', flags='-std=gnu17 -Wall -Werror'.split()
        )
        check_runs(kind, program, runs)


def mpich__drawn():
    check_drawn('mpich', [(2, 1, 150), (3, 2, 150)])


def openmpi__drawn():
    check_drawn('openmpi', [(2, 3, 150), (3, 4, 150)])


def check_pending(kind, runs):
    """Calls that do not block: each way of completing them, messages and others meanwhile."""
    need(kind)
    with harness.public_folder() as folder:
        program = compile_for(kind, folder, 'pending', 'pending.c', 'draws.c', flags=['-Wall'])
        check_runs(kind, program, runs)


def mpich__pending():
    check_pending('mpich', [(2, 1, 60), (3, 2, 60)])


def openmpi__pending():
    check_pending('openmpi', [(2, 3, 60), (3, 4, 60)])


def check_threads(kind, *arguments):
    need(kind)
    with harness.public_folder() as folder:
        program = compile_for(kind, folder, 'threads', 'threads.c', flags=['-Wall', '-pthread'])
        done = launch(kind, 2, program, *arguments)
        expect_status(done, 0)
        expect('2 ranks, 3 threads' in done.stdout, done)
        check_share(done, 2)


def mpich__threads():
    check_threads('mpich', 'free')


def openmpi__threads():
    check_threads('openmpi')


def check_unlike(kind):
    """Calls that do not match: MPI's error handler decides what becomes of it."""
    need(kind)
    with harness.public_folder() as folder:
        program = compile_for(kind, folder, 'failing', 'failing.c')
        for mode in ('returns', 'later'):
            done = launch(kind, 3, program, mode)
            expect_status(done, 0)
            told = [f'rank {i}: told' for i in range(3)]
            expect(sorted(done.stdout.split('\n'))[-3:] == told, done)
            expect('root' in done.stderr, done.stderr)
        if kind == 'mpich':  # Open MPI takes some of them itself
            done = launch(kind, 3, program, 'counts')
            expect_status(done, 0)
            expect(sorted(done.stdout.split('\n'))[-3:] == told, done)
        done = launch(kind, 3, program, 'fatal')
        expect(done.returncode != 0 and 'told' not in done.stdout, done)


def mpich__unlike_calls():
    check_unlike('mpich')


def openmpi__unlike_calls():
    check_unlike('openmpi')


def check_one_cannot(kind):
    """A rank that has no device: all leave the calls to MPI, and its name is told."""
    need(kind)
    with harness.public_folder() as folder:
        program = compile_for(kind, folder, 'drawn', 'drawn.c', 'draws.c')
        words = ['-n', '2', program, '9', '0', ':', '-n', '1']
        done = run(
            CLI,
            *'run --collectives=tell --'.split(),
            *LAUNCHERS[kind],
            *words,
            *'env SIDEWIRE_DEVICES=none'.split(),
            *[program, '9', '0'],
            env=AS_ROOT,
        )
        expect_status(done, 0)
        expect('collectives are left to MPI: ' in done.stderr, done)
        expect({ours for ours, all_calls in counts_of(done, 3)} == {0}, done.stderr)


def mpich__one_rank_cannot():
    check_one_cannot('mpich')


def openmpi__one_rank_cannot():
    check_one_cannot('openmpi')


def check_half(kind):
    """Ranks that never had a communicator of ours end with those that have one."""
    need(kind)
    with harness.public_folder() as folder:
        program = compile_for(kind, folder, 'half', 'half.c')
        done = launch(kind, 4, program, options=('--collectives',))
        expect_status(done, 0)
        expect(sorted(done.stdout.split('\n'))[-2:] == ['rank 0: 2', 'rank 2: 2'], done)


def mpich__half_of_the_ranks():
    check_half('mpich')


def openmpi__half_of_the_ranks():
    check_half('openmpi')


# Launchers call this in the place of ssh: it goes to the host of that address, under a name of its
# own, and runs the words there.
AGENT = """#!/bin/sh
[ "$1" = -x ] && shift
host=$1
shift
case $host in
{cases}
*) echo "no host $host"; exit 1 ;;
esac
exec ip netns exec "$name" unshare --uts {run} sh -c 'hostname "$0"; exec sh -c "$*"' "$name" "$@"
"""


def words_between_hosts(kind, agent):
    places = ','.join(f'{address}:2' for address in hosts.ADDRESSES)
    if kind == 'mpich':
        return [*LAUNCHERS[kind], '-launcher', 'ssh', '-launcher-exec', agent, '-hosts', places]
    nets = [
        '--mca',
        'oob_tcp_if_include',
        hosts.SUBNET,
        '--mca',
        'btl_tcp_if_include',
        hosts.SUBNET,
    ]
    return [*LAUNCHERS[kind], '--mca', 'plm_rsh_agent', agent, '--host', places, *nets]


def check_hosts(kind):
    """Two ranks on each of two hosts: connections go over packets, MPI's own by TCP."""
    need(kind)
    try:
        two = hosts.Hosts()
    except pair.Skip as reason:
        raise Skip(str(reason)) from None
    under = [os.path.abspath(CLI), 'run', '--collectives=tell', '--']
    try:
        with harness.public_folder() as folder:
            program = compile_for(kind, folder, 'drawn', 'drawn.c', 'draws.c')
            agent = os.path.join(folder, 'agent')
            with open(agent, 'w', encoding='ascii') as script:
                cases = [f'{at}) name={name} ;;' for at, name in zip(hosts.ADDRESSES, two.names)]
                script.write(AGENT.format(cases='\n'.join(cases), run=' '.join(under)))
            os.chmod(agent, 0o755)
            words = words_between_hosts(kind, agent)
            done = run(*two.wrap[0], *under, *words, '-n', '4', program, '21', '60', env=AS_ROOT)
        expect_status(done, 0)
        expect(re.search(r'^4 ranks, [1-9]\d+ checks$', done.stdout, re.M), done.stdout)
        check_share(done, 4)
    finally:
        two.close()


def mpich__two_hosts():
    check_hosts('mpich')


def openmpi__two_hosts():
    check_hosts('openmpi')


def check_fortran(kind):
    need(kind)
    with harness.public_folder() as folder:
        program = compile_for(kind, folder, 'sums', 'sums.f90', compiler='mpif90')
        done = launch(kind, 3, program)
        expect_status(done, 0)
        expect('3 ranks, done' in done.stdout, done)
        check_share(done, 3)


def mpich__fortran():
    check_fortran('mpich')


def openmpi__fortran():
    check_fortran('openmpi')


def openmpi__python():
    need('openmpi')
    if run('/usr/bin/python3', '-c', 'import mpi4py, numpy').returncode:
        raise Skip('python3-mpi4py and python3-numpy are not installed')
    done = launch('openmpi', 3, '/usr/bin/python3', os.path.join(HERE, 'arrays.py'))
    expect_status(done, 0)
    expect('3 ranks, 40 calls' in done.stdout, done)
    check_share(done, 3)


def mpi__untouched_without_the_option():
    need('openmpi')
    with harness.public_folder() as folder:
        program = compile_for('openmpi', folder, 'failing', 'failing.c')
        done = run(CLI, 'run', '--', 'env', env=AS_ROOT)
        expect('OMPI_MCA_' not in done.stdout and 'libsidewire-mpich' not in done.stdout, done)
        done = launch('openmpi', 1, program, 'returns', options=())
        expect_status(done, 0)


if __name__ == '__main__':
    harness.main(globals())
