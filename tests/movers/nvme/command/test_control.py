#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""The targets that `target add` and `status` speak to, and the place of a target's socket: in a
folder of its own user. What is in their way is said by name.

usage: test_control.py SIDEWIRE
"""
import os
import socket
import subprocess
import sys
import tempfile

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), '..'))
from programs import PORT, say  # noqa: E402

STRANGER = 12345  # a user ID
LONG = '/tmp/' + 'x' * 120


def run(sidewire, line):
    tried = subprocess.run(
        [sidewire, 'nvme', 'target', *line.split()],
        capture_output=True,
        text=True,
        timeout=30,
        stdin=subprocess.DEVNULL,
        check=False,
    )
    return tried.returncode, tried.stdout + tried.stderr


def refuses(sidewire, what, line, *words):
    status, text = run(sidewire, line)
    return say(status != 0 and all(word in text for word in words), what, text)


def squat(sidewire, folder, target):
    """Somebody else has made the folder, with a socket in it that looks like a target's."""
    os.mkdir(folder, 0o700)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as false_target:
        false_target.bind(os.path.join(folder, '1.sock'))
        false_target.listen(4)
        false_target.settimeout(0)
        os.chown(folder, STRANGER, STRANGER)
        whose = f'belongs to user {STRANGER}'
        good = refuses(
            sidewire, 'a target, where another user was first', target, whose, '--control'
        )
        for line in ('status', 'add -n ram:1M', 'add -n ram:1M --pid 1'):
            good = refuses(sidewire, f'{line}, there', line, whose, '--control') and good
        try:
            false_target.accept()
            good = say(False, 'whom the folder belongs to is told nothing')
        except BlockingIOError:
            say(True, 'whom the folder belongs to is told nothing')
    return good


def main(sidewire):
    if os.geteuid():
        print('SKIP: not root, so no folder of another user can be made')
        return 77
    target = f'-l 127.0.0.1:{PORT} -n ram:1M'
    with tempfile.TemporaryDirectory() as runtime:
        os.environ['XDG_RUNTIME_DIR'] = runtime
        folder = os.path.join(runtime, 'sidewire-nvme')
        good = squat(sidewire, folder, target)
        os.chown(folder, 0, 0)
        os.chmod(folder, 0o755)
        good = refuses(sidewire, 'a folder that is open to others', target, 'chmod 700') and good
        long = 'at most 107'
        good = refuses(sidewire, 'a long path', f'{target} --control {LONG}', long) and good
        good = refuses(sidewire, 'a long path to ask', f'status --control {LONG}', long) and good
        os.environ['XDG_RUNTIME_DIR'] = LONG
        good = refuses(sidewire, 'a long XDG_RUNTIME_DIR', target, 'XDG_RUNTIME_DIR') and good
        good = refuses(sidewire, 'a long one to ask', 'status', 'XDG_RUNTIME_DIR') and good
    return 0 if good else 1


if __name__ == '__main__':
    sys.exit(main(sys.argv[1]))
