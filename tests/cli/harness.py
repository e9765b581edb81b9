# SPDX-License-Identifier: BSD-2-Clause
"""Runs the cases of a test file: functions with a double underscore in their names. The cases named
on the command line run, or all; --list names them."""
import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import traceback

# For the tests that import this.
sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), '../tools'))

BUILD = os.environ.get('SIDEWIRE_BUILD') or os.path.join(os.path.dirname(__file__), '../../build')
SOURCE = os.path.abspath(os.path.join(os.path.dirname(__file__), '../..'))
CLI = os.path.join(BUILD, 'src/cli/sidewire')
LIBRARY = os.path.join(BUILD, 'src/preload/libsidewire.so')
DENY = os.path.join(BUILD, 'tests/tools/deny')
STATUS_SKIP = 77
PATIENCE_S = 60


class Skip(Exception):
    """The case cannot run here; the text says why."""


def run(*args, env=None, **kwargs):
    """Runs a command with this environment and the changes of `env` (None unsets); returns what
    subprocess.run does."""
    whole = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(('SIDEWIRE_', 'LD_PRELOAD'))
    }
    for name, value in (env or {}).items():
        if value is None:
            whole.pop(name, None)
        else:
            whole[name] = value
    return subprocess.run(
        args, env=whole, capture_output=True, text=True, timeout=PATIENCE_S, **kwargs
    )


def expect(condition, *shown):
    """Fails the case with what is shown unless the condition holds."""
    if not condition:
        raise AssertionError('\n'.join(str(item) for item in shown) or 'expectation failed')


def expect_status(done, status):
    expect(
        done.returncode == status,
        f'status {done.returncode}, not {status}, of {done.args}',
        done.stdout,
        done.stderr,
    )


@contextlib.contextmanager
def public_folder():
    """A folder that every user may look into, gone afterwards."""
    folder = tempfile.mkdtemp(prefix='sidewire-test-')
    os.chmod(folder, 0o755)
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


@contextlib.contextmanager
def public_copy():
    """The command and the library as in a build tree, in a folder that every user may look into."""
    with public_folder() as folder:
        for path in (CLI, LIBRARY, DENY):
            target = os.path.join(folder, os.path.relpath(path, BUILD))
            os.makedirs(os.path.dirname(target), exist_ok=True)
            shutil.copy(path, target)
            os.chmod(target, 0o755)
        yield folder


def as_nobody(*args):
    """The words that run `args` as an ordinary user."""
    if os.geteuid() != 0:
        raise Skip('becoming another user needs root')
    return (
        *'setpriv --reuid=nobody --regid=nogroup --clear-groups --no-new-privs --'.split(),
        *args,
    )


def compile_program(folder, name, text, *flags):
    """Compiles a C program into the folder; returns its path."""
    path = os.path.join(folder, name)
    done = subprocess.run(
        ['cc', '-x', 'c', '-o', path, '-', *flags], input=text, capture_output=True, text=True
    )
    if done.returncode:
        raise Skip(f'cannot compile {name}: {done.stderr.strip().splitlines()[-1]}')
    os.chmod(path, 0o755)
    return path


def main(namespace):
    cases = {
        name: item
        for name, item in namespace.items()
        if '__' in name and callable(item) and not name.startswith('_')
    }
    if sys.argv[1:] == ['--list']:
        print('\n'.join(cases))
        return
    wanted = sys.argv[1:] or list(cases)
    skips, failed = [], 0
    for name in wanted:
        try:
            cases[name]()
            print(f'ok       {name}')
        except Skip as reason:
            print(f'skipped  {name}: {reason}')
            skips.append(reason)
        except Exception:  # any other exception is a failure of the case
            print(f'FAILED   {name}')
            traceback.print_exc(file=sys.stdout)
            failed += 1
    if failed:
        sys.exit(1)
    if len(skips) == len(wanted):
        print(f'SKIP: {skips[0]}')
        sys.exit(STATUS_SKIP)
