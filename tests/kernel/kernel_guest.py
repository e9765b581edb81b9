# SPDX-License-Identifier: BSD-2-Clause
"""A guest with a stock kernel and its rdma_rxe, for tests: `kernel-peer` from Python."""
import os
import signal
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
PEER = os.path.join(HERE, 'kernel-peer')
BUILD_SECONDS = 400
OWN, GUEST = '10.77.0.1', '10.77.0.12'
OWN6, GUEST6 = 'fd77::1', 'fd77::12'
ETHERNET_MTU = '4200'  # for a path MTU of 4096


def peer(*args, **kwargs):
    return subprocess.run([PEER, *args], capture_output=True, text=True, **kwargs)


def inside(command, guest='b'):
    """Runs a shell command in the guest; its output and status."""
    done = peer('exec', guest, command)
    return done.stdout + done.stderr, done.returncode


def spawn(name, command, is_there, seconds=300, guest='b'):
    """Starts a server in the guest and waits for what says that it listens."""
    started = peer('exec', guest, f'spawn {name} {seconds} {command}; '
                                f'for i in 1 2 3 4 5 6 7 8 9 10; do {is_there} && exit 0; sleep 0.5; done; '
                                f'cat /tmp/{name}.log; exit 1')
    print(started.stdout + started.stderr, end='', flush=True)
    return started.returncode == 0


def push(path, name, guest='b'):
    """Copies a program into the guest's /bin."""
    with open(path, 'rb') as file:
        return subprocess.run([PEER, 'exec', '-i', guest, f'cat >/bin/{name}; chmod +x /bin/{name}'], stdin=file).returncode == 0


def prepare():
    """Returns why there can be no guest, or None."""
    here = peer('check')
    if here.returncode:
        return here.stdout.strip() or here.stderr.strip()
    try:
        made = peer('build', timeout=BUILD_SECONDS)
    except subprocess.TimeoutExpired:
        return f'the image of the guest was not made in {BUILD_SECONDS} s'
    if made.returncode:
        return f'the image of the guest cannot be made: {(made.stderr.strip() or "no reason given").splitlines()[-1]}'
    return None


def with_guest(run, *args):
    """Boots the guest, runs run(*args), which returns whether all was well, and ends it. The status of the test."""
    os.environ['KP_NS'] = f'kp{os.getpid()}'
    os.environ['KP_MTU'] = ETHERNET_MTU
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    reason = prepare()
    if reason:
        print(f'SKIP: {reason}')
        return 77
    try:
        started = peer('start', 'b', '12')
        print(started.stdout + started.stderr, end='', flush=True)
        return 0 if started.returncode == 0 and run(*args) else 1
    finally:
        peer('stop-all')
