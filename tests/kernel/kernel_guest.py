# SPDX-License-Identifier: BSD-2-Clause
"""A guest with a stock kernel and its rdma_rxe, for tests: `kernel-peer` from Python."""
import os
import re
import signal
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
PEER = os.path.join(HERE, 'kernel-peer')
BUILD_SECONDS = 800  # others may build an image first
LIMIT_SECONDS = 180  # of a command in the guest, and until a server listens: what hangs ends then
OWN, GUEST = '10.77.0.1', '10.77.0.12'
OWN6, GUEST6 = 'fd77::1', 'fd77::12'
ETHERNET_MTU = '4200'  # for a path MTU of 4096


def peer(*args, **kwargs):
    return subprocess.run([PEER, *args], capture_output=True, text=True, **kwargs)


def inside(command, guest='b'):
    """Runs a shell command in the guest; its output and status."""
    done = peer('exec', '-t', str(LIMIT_SECONDS), guest, command)
    return done.stdout + done.stderr, done.returncode


def spawn(name, command, is_there, seconds=300, guest='b'):
    """Starts a server in the guest and waits for what says that it listens."""
    started = peer(
        'exec',
        '-t',
        str(LIMIT_SECONDS),
        guest,
        f'spawn {name} {seconds} {command}; '
        f'while kill -0 $(cat /tmp/{name}.pid) 2>/dev/null; do {is_there} && exit 0; sleep 0.1; '
        f'done; cat /tmp/{name}.log; exit 1',
    )
    print(started.stdout + started.stderr, end='', flush=True)
    return started.returncode == 0


def ended(name, guest='b'):
    """What a spawned program has said, when it has ended."""
    return inside(
        f'while kill -0 $(cat /tmp/{name}.pid) 2>/dev/null; do sleep 0.1; done; '
        f'cat /tmp/{name}.log',
        guest,
    )[0]


def is_end_of_rping(said):
    """Whether rping failed for its own end only, all its data moved: one of its threads asks for
    events when the other has closed their channel. rdma-core has mended that in July 2025 (pull
    request 1622). So ended 2 of 120 clients on a kernel's siw, their servers on the same one."""
    return 'rdma_get_cm_event: Bad file descriptor' in said and 'rdma-ping-9' in said


def table(process, name):
    """One of /proc/net, as a process that `kernel-peer host` becomes has it; empty as long as it is
    not in that namespace."""
    try:
        if os.readlink(f'/proc/{process.pid}/ns/net') == os.readlink('/proc/self/ns/net'):
            return ''
        with open(f'/proc/{process.pid}/net/{name}', errors='replace') as file:
            return file.read()
    except OSError:
        return ''


def await_sign(process, is_there):
    """Whether there is a sign of what a process of ours is to do, before it ends."""
    limit = time.monotonic() + LIMIT_SECONDS
    while process.poll() is None and time.monotonic() < limit:
        if is_there():
            return True
        time.sleep(0.02)
    return False


def await_tcp(process, port):
    """Until a process of ours listens at a port of TCP, or has ended."""
    row = re.compile(rf':{port:04X} [0-9A-F]+:0000 0A ')
    return await_sign(
        process, lambda: row.search(table(process, 'tcp')) or row.search(table(process, 'tcp6'))
    )


def await_service(process, port):
    """Until a program of librdmacm of ours listens over RoCE, or has ended: requests are handed to
    the socket of this name (src/rdmacm/mads/ports.c), and come by UDP."""
    name = re.compile(rf'@sidewire\.cm\.s[0-9a-f]*{port:04x}\.')
    roce = re.compile(r':12B7 ')
    return await_sign(
        process,
        lambda: name.search(table(process, 'unix'))
        and (roce.search(table(process, 'udp')) or roce.search(table(process, 'udp6'))),
    )


def push(path, name, guest='b'):
    """Copies a program into the guest's /bin."""
    with open(path, 'rb') as file:
        return (
            subprocess.run(
                [PEER, 'exec', '-i', guest, f'cat >/bin/{name}; chmod +x /bin/{name}'], stdin=file
            ).returncode
            == 0
        )


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
        reason = (made.stderr.strip() or 'no reason given').splitlines()[-1]
        return f'the image of the guest cannot be made: {reason}'
    return None


def with_guest(run, *args):
    """Boots the guest, runs run(*args), which returns whether all was well, and ends it. The status
    of the test."""
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
