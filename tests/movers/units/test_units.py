#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""The units of systemd, started by the systemd of a Debian 12: what docs/operators.md promises of
them, as the file `check` has it.

mmdebstrap makes the Debian once, in ~/.cache/sidewire-units. What is built here is installed into a
copy of it, whose systemd is the first process of namespaces of its own. Wants root.

usage: test_units.py BUILD
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile

BUILD = os.path.abspath(sys.argv[1])
HERE = os.path.dirname(os.path.abspath(__file__))
CACHE = os.path.join(
    os.environ.get('XDG_CACHE_HOME') or os.path.expanduser('~/.cache'), 'sidewire-units'
)
BASE = f'{CACHE}/debian-1.tar'  # another number, when the packages change
PACKAGES = (
    'systemd systemd-sysv dbus udev iproute2 libibverbs1 ibverbs-providers librdmacm1 libisal2 '
    'libjansson4 libmicrohttpd12 liburing2 libssl3 libnl-route-3-200'
).split()
MAKE_S, RUN_S = 900, 300
GROUP = f'sidewire-units-{os.getpid()}'


def run(*words):
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f'{" ".join(words)}: {done.stdout[-2000:]}{done.stderr[-2000:]}')


def make_base():
    """Returns why there is none, or None."""
    if os.geteuid():
        return 'root alone may start a systemd'
    if not shutil.which('mmdebstrap'):
        return 'no mmdebstrap'
    if os.path.exists(BASE):
        return None
    os.makedirs(CACHE, exist_ok=True)
    words = 'unshare --mount mmdebstrap --variant=minbase --quiet'.split()
    words += [f'--include={",".join(PACKAGES)}', 'bookworm', f'{BASE}.new.tar']
    try:
        made = subprocess.run(
            words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=MAKE_S
        )
    except subprocess.TimeoutExpired:
        return f'no Debian was made in {MAKE_S} s'
    if made.returncode:
        return f'mmdebstrap makes no Debian: {(made.stderr.strip() or "?").splitlines()[-1]}'
    os.rename(f'{BASE}.new.tar', BASE)
    return None


def make_root(root):
    os.mkdir(root)
    run('tar', '-xf', BASE, '-C', root)
    run('meson', 'install', '-C', BUILD, '--no-rebuild', '--quiet', '--destdir', root)
    units = f'{root}/etc/systemd/system'
    os.makedirs(f'{units}/multi-user.target.wants', exist_ok=True)
    shutil.copy(f'{HERE}/check', root)
    shutil.copy(f'{HERE}/check.service', units)
    os.symlink('../check.service', f'{units}/multi-user.target.wants/check.service')


def remove_groups():
    for tree in 'systemd', 'unified', '':
        top = os.path.join('/sys/fs/cgroup', tree, GROUP)
        for folder, _, _ in os.walk(top, topdown=False):
            try:
                os.rmdir(folder)
            except OSError as error:
                print(f'{folder}: {error}')


def boot(root):
    """What the check has said."""
    begun = subprocess.Popen(
        [f'{HERE}/boot', root, GROUP], stdin=subprocess.DEVNULL, start_new_session=True
    )
    try:
        begun.wait(RUN_S)
    except subprocess.TimeoutExpired:
        print(f'it has not ended in {RUN_S} s')
    finally:
        begun.kill()
        begun.wait()
        remove_groups()
    try:
        with open(f'{root}/said', encoding='utf-8', errors='replace') as file:
            return file.read()
    except FileNotFoundError:
        return 'the check was not started'


def main():
    reason = make_base()
    if reason:
        print(f'SKIP: {reason}')
        return 77
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        make_root(f'{folder}/root')
        said = boot(f'{folder}/root')
    print(said)
    return 0 if 'ALL DONE' in said and not re.search('^BAD ', said, re.M) else 1


if __name__ == '__main__':
    sys.exit(main())
