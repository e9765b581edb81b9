#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""A host without a keep-alive time that is idle, and whose cable is pulled: the target finds out.

usage: vanished.py SIDEWIRE CONNECTS
"""
import json
import subprocess
import sys
import tempfile
import time

from world import ADDRESSES, NQN, SERVING, VISITING, Hosts, Server, Skip, run

PORT = '4420'
FOUND_S = 150  # a probe each 30 s, and its retries


def controllers(wrap, sidewire, control):
    status, said = run(
        [*wrap, sidewire, 'nvme', 'target', 'status', '--control', control, '-o', 'json']
    )
    if status:
        raise RuntimeError(said)
    return sum(len(each['controllers']) for each in json.loads(said)['subsystems'])


def main(sidewire, connects):
    try:
        hosts = Hosts()
    except Skip as skip:
        print(f'SKIP: {skip}')
        return 77
    with tempfile.TemporaryDirectory() as folder:
        control = folder + '/control'
        words = f'nvme target --listen {ADDRESSES[SERVING]} --namespace ram:1M --control {control}'
        serving, visiting = hosts.wrap[SERVING], hosts.wrap[VISITING]
        target = Server('nvme', [*serving, sidewire, *words.split()], folder + '/log')
        host = subprocess.Popen(
            [*visiting, sidewire, 'run', '--', connects, ADDRESSES[SERVING], PORT, NQN, '0'],
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            assert host.stdout.readline() == 'idle\n'
            assert controllers(serving, sidewire, control) == 1, 'an idle host has its controller'
            hosts.set_link(VISITING, hosts.names[VISITING], 'down')
            limit = time.monotonic() + FOUND_S
            while controllers(serving, sidewire, control):
                assert time.monotonic() < limit, 'the controller of a host that is gone stays'
                time.sleep(1)
        finally:
            host.kill()
            host.wait()
            target.end()
            hosts.close()
    print('ok  an idle host that vanished is found out')
    return 0


if __name__ == '__main__':
    sys.exit(main(*sys.argv[1:]))
