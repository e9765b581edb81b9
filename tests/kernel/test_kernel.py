#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""Packets of src/wire and the machines of src/transport, judged by rdma_rxe of a stock kernel. usage: test_kernel.py FRAMES MACHINES TARGET

Boots a guest (the first time its image is made, which downloads Debian packages). FRAMES sends single packets to it over IPv4 and IPv6, with
rping there; MACHINES works with TARGET, which is pushed into it. KP_KERNEL=6.12 also tries FLUSH and ATOMIC WRITE.
"""
import os
import signal
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
PEER = os.path.join(HERE, 'kernel-peer')
GOLDEN = os.path.join(os.path.dirname(HERE), 'golden')
BUILD_SECONDS = 400
OWN, GUEST = '10.77.0.1', '10.77.0.12'
FRAMES_RUNS = [(OWN, GUEST, 'rc-rping.pcap'), ('fd77::1', 'fd77::12', 'rc-rping-v6.pcap')]
ETHERNET_MTU = '4200'  # for a path MTU of 4096


def peer(*args, **kwargs):
    return subprocess.run([PEER, *args], capture_output=True, text=True, **kwargs)


def skip(reason):
    print(f'SKIP: {reason}')
    return 77


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


def spawn(name, command, is_there):
    """Starts a server in the guest and waits for what says that it listens."""
    started = peer('exec', 'b', f'spawn {name} 300 {command}; for i in 1 2 3 4 5 6 7 8 9 10; do {is_there} && exit 0; sleep 0.5; done; '
                                f'cat /tmp/{name}.log; exit 1')
    print(started.stdout + started.stderr, end='', flush=True)
    return started.returncode == 0


def judge(name, *command):
    """Runs a program in our end of the network; shows what the server said if it failed."""
    print(' '.join(os.path.basename(word) for word in command), flush=True)
    done = subprocess.run([PEER, 'host', *command], timeout=300)
    if done.returncode:
        print(peer('exec', 'b', f'tail -n 5 /tmp/{name}.log').stdout, flush=True)
    return done.returncode == 0


def run_frames(frames):
    kind = ['new'] if os.environ.get('KP_KERNEL', '6.1') != '6.1' else []
    good = True
    for own, guest, capture in FRAMES_RUNS:
        # One for each family: rping may end with any of its connections.
        good &= spawn('rping', f'rping -s -P -a {guest} -v', 'rdma res show cm_id | grep -q LISTEN') and \
            judge('rping', frames, own, guest, os.path.join(GOLDEN, capture), *kind)
        peer('exec', 'b', 'kill -9 $(pidof rping); sleep 0.5')
    return good


def run_machines(machines, target):
    with open(target, 'rb') as file:
        pushed = subprocess.run([PEER, 'exec', '-i', 'b', 'cat >/bin/target; chmod +x /bin/target'], stdin=file)
    return pushed.returncode == 0 and spawn('target', 'target rxe0 1', 'netstat -ltn | grep -q :18600') and \
        judge('target', machines, OWN, GUEST)


def run(frames, machines, target):
    started = peer('start', 'b', '12')
    print(started.stdout + started.stderr, end='', flush=True)
    if started.returncode:
        return 1
    good = run_frames(frames)
    return 0 if run_machines(machines, target) and good else 1


def main():
    os.environ['KP_NS'] = f'kp{os.getpid()}'
    os.environ['KP_MTU'] = ETHERNET_MTU
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    reason = prepare()
    if reason:
        return skip(reason)
    try:
        return run(*sys.argv[1:])
    finally:
        peer('stop-all')


if __name__ == '__main__':
    sys.exit(main())
