#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""A target whose I/O queues share fewer receives than their hosts have commands: all get there, and
hosts that are killed leave none behind.

usage: test_shared_receives.py SIDEWIRE [roce]
"""
import os
import subprocess
import sys
import time

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), '..'))
from programs import NQN, PORT, Target, host, say  # noqa: E402

RECEIVES = 32
KILLS = 10


def verifies(sidewire, what):
    status, text = host(
        sidewire,
        (
            f'bench -n {NQN} --verify --destroy-data --size 8m --bs 4k,64k --iodepth 32 -i 5 '
            '--numjobs '
            '4'
        ),
    )
    return say(status == 0, what, text)


def kill_hosts(sidewire):
    """Each with more commands on their way than there are receives, and a slow namespace keeps
    those that have come."""
    for number in range(KILLS):
        words = [
            sidewire,
            *f'nvme bench -a 127.0.0.1 -s {PORT}'.split(),
            '-n',
            NQN,
            *'-N 2 --rw randwrite --destroy-data --iodepth 64 -i 3 --numjobs 2'.split(),
            *'--runtime 30'.split(),
        ]
        with subprocess.Popen(
            words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ) as killed:
            time.sleep(0.2 + 0.03 * number)
            killed.kill()


def goes_on_beside(sidewire):
    """A host whose commands, with their data, wait at a namespace: more than there are receives."""
    words = f'nvme bench -a 127.0.0.1 -s {PORT} -n {NQN} -N 3 --rw randwrite --destroy-data'
    with subprocess.Popen(
        [sidewire, *words.split(), *'--iodepth 64 -i 1 --runtime 30'.split()],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as holder:
        time.sleep(1.5)
        good = verifies(sidewire, 'the same beside a host whose commands hold receives')
        holder.kill()
    return good


def main(sidewire):
    target = Target(
        sidewire,
        *('ram:64M', 'null:64M,delay=50ms', 'null:64M,delay=20s'),
        options=['--srq', str(RECEIVES)],
    )
    good = verifies(sidewire, f'four queues of 32 with {RECEIVES} receives, verified')
    kill_hosts(sidewire)
    good = verifies(sidewire, f'the same after {KILLS} hosts were killed') and good
    good = goes_on_beside(sidewire) and good
    status = target.end()
    return (
        0
        if say(status == 0, 'SIGTERM: it ends by itself', target.process.stdout.read()) and good
        else 1
    )


if __name__ == '__main__':
    if sys.argv[2:] == ['roce']:
        os.environ['SIDEWIRE_LINK'] = 'roce'
    sys.exit(main(sys.argv[1]))
