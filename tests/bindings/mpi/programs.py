# SPDX-License-Identifier: BSD-2-Clause
"""Programs of MPICH and Open MPI, under `sidewire run --collectives` or without it."""
import os
import re
import shutil
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.append(os.path.join(HERE, '../../cli'))
from harness import BUILD, CLI, Skip, expect, expect_status, run  # noqa: E402

BUILT = {
    'mpich': os.path.join(BUILD, 'bindings/mpi/mpich/libsidewire-mpich.so'),
    'openmpi': os.path.join(BUILD, 'bindings/mpi/openmpi/mca_coll_sidewire.so'),
}
LAUNCHERS = {'mpich': ['mpiexec.mpich'], 'openmpi': ['mpirun.openmpi', '--oversubscribe']}
PACKAGES = {'mpich': 'mpich and libmpich-dev', 'openmpi': 'openmpi-bin and libopenmpi-dev'}
AS_ROOT = {'OMPI_ALLOW_RUN_AS_ROOT': '1', 'OMPI_ALLOW_RUN_AS_ROOT_CONFIRM': '1'}
COUNTS = re.compile(
    r'^sidewire: rank (\d+): (\d+) of (\d+) collective calls by Sidewire; left to MPI: '
    r'(\d+) for their type or operator, (\d+) of one rank or between groups, '
    r'(\d+) where not all ranks could open, (\d+) without waiting before one that waits, '
    r'(\d+) of a kind',
    re.M,
)


def need(kind):
    if not shutil.which(LAUNCHERS[kind][0]) or not shutil.which(f'mpicc.{kind}'):
        raise Skip(f'{PACKAGES[kind]} are not installed')
    if not os.path.exists(BUILT[kind]):
        raise Skip(f'the build has no {os.path.basename(BUILT[kind])}: its headers were missing')


def compile_for(kind, folder, name, *sources, flags=(), compiler='mpicc'):
    if not shutil.which(f'{compiler}.{kind}'):
        raise Skip(f'there is no {compiler}.{kind}')
    path = os.path.join(folder, name)
    paths = [os.path.join(HERE, source) for source in sources]
    expect_status(run(f'{compiler}.{kind}', '-O1', *flags, *paths, '-o', path, '-lm'), 0)
    return path


def launch(kind, ranks, *words, env=None, options=('--collectives=tell',), cwd=None):
    return run(
        os.path.abspath(CLI),
        'run',
        *options,
        '--',
        *LAUNCHERS[kind],
        '-n',
        str(ranks),
        *words,
        env={**AS_ROOT, **(env or {})},
        cwd=cwd,
    )


def counts_of(done, ranks):
    """What each rank told: calls that were ours, and all."""
    found = {int(one[1]): (int(one[2]), int(one[3])) for one in COUNTS.finditer(done.stderr)}
    expect(sorted(found) == list(range(ranks)), found, done.stdout, done.stderr)
    return list(found.values())


def check_share(done, ranks):
    for ours, all_calls in counts_of(done, ranks):
        expect(ours >= 0.9 * all_calls > 0, done.stderr)
