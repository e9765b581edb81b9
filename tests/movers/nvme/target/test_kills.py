#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""Hosts are killed with more data under way than the target has memory for, so that what they leave
is freed while others of their requests wait for it. The target goes on, and so does a host beside
them, each byte of which is verified.

usage: test_kills.py SIDEWIRE [roce]
"""
import os
import subprocess
import sys
import time

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), '..'))
from programs import NQN, PORT, Target, host, say  # noqa: E402

KILLS = 8
SMALL_POOL = ['--pool', '2']


def bench(sidewire, words):
    words = f'nvme bench -a 127.0.0.1 -s {PORT} -n {NQN} --destroy-data {words}'
    return subprocess.Popen(
        [sidewire, *words.split()], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def kill_hosts(sidewire, target):
    """Writes, reads and both in turn. How many were killed before the target ended."""
    for number in range(KILLS):
        what = ('randwrite', 'randread', 'randrw')[number % 3]
        with bench(sidewire, f'-N 2 --rw {what} --bs 1m --iodepth 32 --runtime 30') as killed:
            time.sleep(0.25 + 0.03 * number)
            killed.kill()
        if target.process.poll() is not None:
            return number + 1
    return KILLS


def main(sidewire):
    target = Target(sidewire, 'ram:16M', 'null:64M', options=SMALL_POOL)
    beside = bench(sidewire, '--verify --size 8m --bs 4k --iodepth 4 -i 1')
    killed = kill_hosts(sidewire, target)
    beside_said = beside.communicate(timeout=60)[0]
    good = say(
        target.process.poll() is None,
        f'the target lives when {killed} hosts were killed',
        target.process.returncode,
    )
    good = say(beside.returncode == 0, 'a host beside them goes on', beside_said) and good
    if target.process.poll() is None:
        status, text = host(
            sidewire,
            f'bench -n {NQN} -N 2 --destroy-data --rw randwrite --bs 1m --iodepth 8 ' '--runtime 1',
        )
        good = say(status == 0, 'all of the memory is there for the next', text) and good
        good = say(target.end() == 0, 'SIGTERM: it ends by itself') and good
    return 0 if good else 1


if __name__ == '__main__':
    if sys.argv[2:] == ['roce']:
        os.environ['SIDEWIRE_LINK'] = 'roce'
    sys.exit(main(sys.argv[1]))
