#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""Hosts without a keep-alive time that are stopped (SIGSTOP), with more data under way than the
target has memory for. Others connect and are served meanwhile; those that were stopped go on.

usage: test_paused.py SIDEWIRE
"""
import os
import signal
import subprocess
import sys
import time

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), '..'))
sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), '../../../tools'))
from own_network import move_to_own_network  # noqa: E402
from programs import NQN, PORT, Target, host, say  # noqa: E402

SMALL_POOL = ['--pool', '4']
WORK = f'-n {NQN} --destroy-data -i 1'


def start(sidewire, what):
    words = f'nvme bench -a 127.0.0.1 -s {PORT} {WORK} -k 0 --rw {what} --bs 1m --iodepth 32'
    return subprocess.Popen(
        [sidewire, *words.split(), '--runtime', '3'],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def is_served(sidewire, line):
    try:
        return host(sidewire, line, seconds=15)
    except subprocess.TimeoutExpired:
        return 1, 'it waits for others'


def main(sidewire):
    os.environ['SIDEWIRE_LINK'] = 'roce'  # on one host a stopped process gets its answers
    target = Target(sidewire, 'null:64M', options=SMALL_POOL)
    stopped = [start(sidewire, what) for what in ('randwrite', 'randread')]
    time.sleep(1.5)
    for one in stopped:
        one.send_signal(signal.SIGSTOP)
    status, text = is_served(sidewire, f'list -n {NQN}')
    good = say(status == 0, 'another host connects and asks', text)
    status, text = is_served(
        sidewire, f'bench {WORK} --rw randrw --bs 64k --iodepth 8 --runtime 0.5'
    )
    good = say(status == 0, 'another host reads and writes', text) and good
    for one in stopped:
        one.send_signal(signal.SIGCONT)
    for one in stopped:
        said = one.communicate(timeout=60)[0]
        good = say(one.returncode == 0, 'one that was stopped goes on', said) and good
    good = say(target.end() == 0, 'SIGTERM: it ends by itself') and good
    return 0 if good else 1


if __name__ == '__main__':
    move_to_own_network()  # a stopped host has a share of RoCE's port, which others meet
    sys.exit(main(sys.argv[1]))
