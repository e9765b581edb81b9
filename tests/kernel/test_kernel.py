#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""Packets of src/wire and the machines of src/transport and src/cm, judged by rdma_rxe and rdma_cm
of a stock kernel.
usage: test_kernel.py FRAMES CONNECTIONS MACHINES TARGET

Boots a guest (the first time its image is made, which downloads Debian packages). FRAMES sends
single packets to it over IPv4 and IPv6, with rping there; CONNECTIONS connects to rping and udaddy,
and is connected to; MACHINES works with TARGET, which is pushed into it. KP_KERNEL=6.12 also tries
FLUSH and ATOMIC WRITE.
"""
import os
import subprocess
import sys

sys.dont_write_bytecode = True

import kernel_guest as guest  # noqa: E402

GOLDEN = os.path.join(os.path.dirname(guest.HERE), 'golden')
FRAMES_RUNS = [
    (guest.OWN, guest.GUEST, 'rc-rping.pcap'),
    (guest.OWN6, guest.GUEST6, 'rc-rping-v6.pcap'),
]


def judge(name, *command):
    """Runs a program in our end of the network; shows what the server and its kernel said if it
    failed or hung."""
    print(' '.join(os.path.basename(word) for word in command), flush=True)
    try:
        good = subprocess.run([guest.PEER, 'host', *command], timeout=400).returncode == 0
    except subprocess.TimeoutExpired as expired:
        print(expired, flush=True)
        good = False
    if not good:
        print(
            guest.peer(
                'exec',
                'b',
                f'tail -n 5 /tmp/{name}.log; dmesg | tail -n 20; top -b -n 1 | head -n 8',
            ).stdout,
            flush=True,
        )
    return good


def run_frames(frames):
    kind = ['new'] if os.environ.get('KP_KERNEL', '6.1') != '6.1' else []
    good = True
    for own, other, capture in FRAMES_RUNS:
        # One for each family: rping may end with any of its connections.
        good &= guest.spawn(
            'rping', f'rping -s -P -a {other} -v', 'rdma res show cm_id | grep -q LISTEN'
        ) and judge('rping', frames, own, other, os.path.join(GOLDEN, capture), *kind)
        guest.peer('exec', 'b', 'kill -9 $(pidof rping); sleep 0.5')
    return good


def run_connections(connections):
    good = True
    for own, other, _ in FRAMES_RUNS:
        good &= guest.spawn(
            'rping', f'rping -s -P -a {other}', 'rdma res show cm_id | grep LISTEN | grep -q rping'
        ) and judge('rping', connections, own, other, guest.PEER)
        guest.peer('exec', 'b', 'kill -9 $(pidof rping) $(pidof udaddy); sleep 0.5')
    return good


def run_machines(machines, target):
    return (
        guest.push(target, 'target')
        and guest.spawn('target', 'target rxe0 1', 'netstat -ltn | grep -q :18600')
        and judge('target', machines, guest.OWN, guest.GUEST)
    )


def run(frames, connections, machines, target):
    good = run_frames(frames)
    good &= run_connections(connections)
    return run_machines(machines, target) and good


if __name__ == '__main__':
    sys.exit(guest.with_guest(run, *sys.argv[1:]))
