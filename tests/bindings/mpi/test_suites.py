# SPDX-License-Identifier: BSD-2-Clause
"""`sidewire run --collectives` with tests that others have written for MPI: nothing fails that MPI
alone does not fail, and nearly all calls that can be ours are."""
import os
import re
import shutil
import subprocess

import mpich_tests
from programs import COUNTS, HERE, launch, need

import harness
from harness import BUILD, SOURCE, Skip, expect, expect_status, run

# SIDEWIRE_MPICH_TESTS_ALL: each line of the list. Else each program once, and of those that make no
# call of ours one in eight.
WANTS_ALL = bool(os.environ.get('SIDEWIRE_MPICH_TESTS_ALL'))
# Two processors bear so many ranks: where the list says more, this many run.
RANKS_MAX = 5
# Between groups, with other operators, persistent, of neighbours.
PASSED_BY = re.compile(
    r'(nb)?ic|nbredscatinter|redscat\w*inter|op|uop|p_|neighb|ring|nonblock|scan'
)
# Takes minutes by MPICH alone where ranks share processors.
TOO_SLOW = {'nonblocking3'}


class Share:
    """Counts whose calls those of many programs were."""

    def __init__(self):
        self.ours = self.eligible = self.all = 0

    def add(self, text):
        """Calls that cannot be ours are those of other types and operators, of one rank, between
        groups, without waiting before one that waits, and with sizes that one rank knows."""
        for words in COUNTS.findall(text):
            _, ours, all_calls, _, _, unopened, *_ = map(int, words)
            self.ours += ours
            self.eligible += ours + unopened
            self.all += all_calls

    def check(self, least):
        print(f'{self.ours} of {self.eligible} eligible calls by Sidewire, of {self.all} in all')
        expect(self.ours >= 0.9 * self.eligible and self.ours >= least, vars(self))


def chosen_lines():
    passed_by = 0
    chosen = {}
    for line in mpich_tests.lines():
        line = line._replace(ranks=min(line.ranks, RANKS_MAX))
        known = chosen.get(line.name)
        if line.name in TOO_SLOW or (known and not WANTS_ALL):
            continue
        if PASSED_BY.match(line.name) and not known and not WANTS_ALL:
            passed_by += 1
            if passed_by % 8:
                continue
        chosen[line if WANTS_ALL else line.name] = line
    return list(chosen.values())


def run_line(kind, folder, line, options):
    """What it said, or None: it did not end in time."""
    try:
        return launch(
            kind, line.ranks, os.path.join(folder, line.name), *line.words, options=options
        )
    except subprocess.TimeoutExpired:
        return None


def check_mpich_tests(kind):
    need(kind)
    lines, share, failures = chosen_lines(), Share(), []
    with harness.public_folder() as folder:
        built = mpich_tests.build(kind, folder, sorted({line.name for line in lines}))
        expect(len(built) > 60, built)
        runs = [line for line in lines if line.name in built]
        for line in runs:
            done = run_line(kind, folder, line, ('--collectives=tell',))
            share.add(done.stderr if done else '')
            if not mpich_tests.has_passed(done):
                alone = run_line(kind, folder, line, ())
                print(f'{line} fails, by {kind} alone {mpich_tests.has_passed(alone)}', done)
                if mpich_tests.has_passed(alone):
                    failures.append(line)
    print(f'{len(runs)} runs of {len(built)} programs')
    expect(not failures, failures)
    share.check(500)


def mpich__its_own_tests():
    check_mpich_tests('mpich')


def openmpi__tests_of_mpich():
    check_mpich_tests('openmpi')


def hpcc_settings():
    """The example of its package, for a small problem on three ranks."""
    path = '/usr/share/doc/hpcc/examples/_hpccinf.txt'
    if not os.path.exists(path):
        raise Skip(f'there is no {path}')
    with open(path, encoding='ascii') as example:
        lines = example.read().splitlines()
    for number, value in ((5, '300 Ns'), (7, '32 NBs'), (10, '1 Ps'), (11, '3 Qs')):
        expect(lines[number].split()[1] == value.split()[1], lines[number])
        lines[number] = value
    return '\n'.join(lines) + '\n'


def openmpi__hpcc():
    need('openmpi')
    if not shutil.which('hpcc'):
        raise Skip('hpcc is not installed')
    share = Share()
    with harness.public_folder() as folder:
        with open(os.path.join(folder, 'hpccinf.txt'), 'w', encoding='ascii') as out:
            out.write(hpcc_settings())
        done = launch('openmpi', 3, 'hpcc', cwd=folder)
        expect_status(done, 0)
        with open(os.path.join(folder, 'hpccoutf.txt'), encoding='ascii') as results:
            text = results.read()
    share.add(done.stderr)
    expect('Success=1' in text and 'FAILED' not in text and text.count('PASSED') > 5, text)
    expect(not re.search(r'^(MPI|Single|Star)\w*_Errors=[1-9]', text, re.M), text)
    expect(not re.search(r'Found [1-9]\d* errors|[1-9]\d* tests completed and failed', text), text)
    share.check(1000)


def openmpi__integers_of_mpi4py():
    """The C API and MPI alone give the same."""
    need('openmpi')
    library = os.path.join(BUILD, 'movers/collectives/libsidewire-coll.so')
    if run('/usr/bin/python3', '-c', 'import mpi4py, numpy').returncode:
        raise Skip('python3-mpi4py and python3-numpy are not installed')
    with harness.public_folder() as folder:
        path = os.path.join(folder, 'integers.so')
        words = ['cc', '-shared', '-fPIC', '-O1', '-Wall', '-Werror', f'-I{SOURCE}/include']
        words += [os.path.join(HERE, 'integers.c'), '-o', path, library]
        expect_status(run(*words, f'-Wl,-rpath,{os.path.dirname(os.path.abspath(library))}'), 0)
        words = ['--mca', 'op', '^avx', '/usr/bin/python3', os.path.join(HERE, 'integers.py'), path]
        done = launch('openmpi', 3, *words, options=())
    expect_status(done, 0)
    expect('3 ranks, 192 checks' in done.stdout, done)


if __name__ == '__main__':
    harness.main(globals())
