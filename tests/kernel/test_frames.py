#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""Single packets made by src/wire, judged by rdma_rxe of a stock kernel. usage: test_frames.py FRAMES

Boots a guest (the first time its image is made, which downloads Debian packages), starts rping there, and runs FRAMES over IPv4 and
IPv6. KP_KERNEL=6.12 also tries FLUSH and ATOMIC WRITE.
"""
import os
import signal
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
PEER = os.path.join(HERE, 'kernel-peer')
GOLDEN = os.path.join(os.path.dirname(HERE), 'golden')
BUILD_SECONDS = 400
RUNS = [('10.77.0.1', '10.77.0.12', 'rc-rping.pcap'), ('fd77::1', 'fd77::12', 'rc-rping-v6.pcap')]


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


def run(frames):
    started = peer('start', 'b', '12')
    print(started.stdout + started.stderr, end='', flush=True)
    if started.returncode:
        return 1
    kind = ['new'] if os.environ.get('KP_KERNEL', '6.1') != '6.1' else []
    status = 0
    for own, guest, capture in RUNS:
        # One for each family: rping serves one connection after the other and may end with any of them.
        server = peer('exec', 'b', f'spawn rping 120 rping -s -P -a {guest} -v; '
                                   'for i in 1 2 3 4 5 6 7 8 9 10; do rdma res show cm_id | grep -q LISTEN && break; sleep 0.5; done')
        if server.returncode:
            print(server.stdout + server.stderr)
            return 1
        print(f'{own} to {guest}', flush=True)
        done = subprocess.run([PEER, 'host', frames, own, guest, os.path.join(GOLDEN, capture), *kind], timeout=120)
        if done.returncode:
            status = 1
            print(peer('exec', 'b', 'tail -n 5 /tmp/rping.log').stdout, flush=True)
        peer('exec', 'b', 'kill -9 $(pidof rping); sleep 0.5')
    return status


def main():
    os.environ['KP_NS'] = f'kp{os.getpid()}'
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    reason = prepare()
    if reason:
        return skip(reason)
    try:
        return run(sys.argv[1])
    finally:
        peer('stop-all')


if __name__ == '__main__':
    sys.exit(main())
