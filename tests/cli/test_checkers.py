# SPDX-License-Identifier: BSD-2-Clause
"""`sidewire run` with programs that a sanitizer or valgrind looks at: they start, nothing is said
of the library, and what is wrong in the program is found as without us."""
import os
import shutil
import sys

import harness
from harness import CLI, Skip, expect, expect_status, run

SOURCE = os.path.join(os.path.dirname(os.path.abspath(__file__)), 'watched.c')


def built(folder, *flags):
    """The program, built as its author would. Skips the case where this compiler cannot."""
    program = os.path.join(folder, 'watched')
    done = run('cc', '-g', *flags, '-o', program, SOURCE, '-libverbs', '-pthread')
    if done.returncode:
        raise Skip(f'cc {" ".join(flags)}: {done.stderr.splitlines()[-1]}')
    return program


def looked_at(*words, env=None):
    """What becomes of the program as it is, and of the one with a fault."""
    return [run(CLI, 'run', *words, *fault, env=env) for fault in ([], ['fault'])]


def check_sanitizer(kind, env=None):
    with harness.public_folder() as folder:
        right, wrong = looked_at('--', built(folder, f'-fsanitize={kind}'), env=env)
    expect_status(right, 0)
    expect(right.stdout == 'sum 2\n', right.stdout, right.stderr)
    expect('Sanitizer' not in right.stderr, right.stderr)
    return wrong


def asan__a_program_starts_and_its_faults_are_found():
    wrong = check_sanitizer('address')
    expect('heap-use-after-free' in wrong.stderr, wrong.stderr)
    expect(wrong.returncode != 0, wrong.returncode)


def asan__the_user_has_the_last_word():
    wanted = 'verify_asan_link_order=1'
    with harness.public_folder() as folder:
        done = run(
            CLI, 'run', '--', built(folder, '-fsanitize=address'), env={'ASAN_OPTIONS': wanted}
        )
    expect('ASan runtime does not come first' in done.stderr, done.stderr)
    shown = run(CLI, 'run', 'sh', '-c', 'echo $ASAN_OPTIONS', env={'ASAN_OPTIONS': 'debug=1'})
    expect(shown.stdout == 'verify_asan_link_order=0:debug=1\n', shown.stdout)
    show = ('sh', '-c', 'echo $ASAN_OPTIONS')
    nested = run(CLI, 'run', CLI, 'run', *show, env={'ASAN_OPTIONS': None})
    expect(nested.stdout == 'verify_asan_link_order=0\n', nested.stdout)


def ubsan__a_program_starts():
    check_sanitizer('undefined')


def valgrind__says_nothing_of_the_library():
    if not shutil.which('valgrind'):
        raise Skip('valgrind is not installed')
    env = {'VALGRIND_OPTS': '--leak-check=full --errors-for-leak-kinds=definite,possible'}
    with harness.public_folder() as folder:
        right, wrong = looked_at('--valgrind', '--', built(folder), env=env)
    expect_status(right, 0)
    expect('sum 2\n' in right.stdout, right.stdout)
    expect('ERROR SUMMARY: 0 errors' in right.stderr, right.stderr)
    expect('ERROR SUMMARY: 1 errors' in wrong.stderr, wrong.stderr)
    expect('Invalid read of size 1' in wrong.stderr, wrong.stderr)


def valgrind__is_not_installed():
    done = run(CLI, 'run', '--valgrind', '/bin/true', env={'PATH': '/nowhere'})
    expect_status(done, 127)
    expect('apt-get install valgrind' in done.stderr, done.stderr)


if __name__ == '__main__':
    sys.exit(harness.main(globals()))
