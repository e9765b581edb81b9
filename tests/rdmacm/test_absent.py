# SPDX-License-Identifier: BSD-2-Clause
"""Addresses where nobody is, and hosts where no process is: a program hears of both in the time
that it gives, as from a kernel.

usage: test_absent.py SIDEWIRE auto | iwarp
"""
import concurrent.futures
import os
import re
import subprocess
import sys
import threading
import unittest
from itertools import repeat

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), '..')
for folder in 'apps', 'tools':
    sys.path.append(os.path.join(ROOT, folder))
from hosts import ADDRESSES, Hosts  # noqa: E402
from pair import Skip  # noqa: E402

SIDEWIRE, LINK = sys.argv[1:3]
LIMIT_S = 40  # of 77 s, which both took before
ABSENT = '10.99.0.77', 'fd99::77', '10.50.0.1', '10.51.0.1'  # the last two behind absent gateways


class Absent(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        try:
            cls.hosts = Hosts()
        except Skip as skip:
            print(f'SKIP: {skip}')
            sys.exit(77)
        cls.addClassCleanup(cls.hosts.close)
        here = cls.hosts.names[0]
        Hosts.ip('-n', here, 'route', 'add', '10.50.0.0/24', 'via', '10.99.0.78')
        Hosts.ip('-n', here, 'route', 'add', '10.51.0.0/24', 'via', 'inet6', 'fd99::78')
        Hosts.ip('-n', here, 'route', 'add', '10.60.0.0/24', 'via', ADDRESSES[1])
        Hosts.ip('-n', here, 'route', 'add', '10.61.0.0/24', 'via', 'inet6', 'fd99::2')
        if LINK == 'iwarp':
            os.environ['SIDEWIRE_LINK'] = 'iwarp'

    def until(self, pattern, *addresses):
        """Clients that connect there say that, before they end or the time is over."""
        with concurrent.futures.ThreadPoolExecutor() as pool:
            for address, said in zip(addresses, pool.map(self.said, repeat(pattern), addresses)):
                self.assertRegex(said, pattern, address)

    def said(self, pattern, address):
        argv = [*self.hosts.wrap[0], SIDEWIRE, 'run', '--']
        argv += ['stdbuf', '-oL', 'rping', '-c', '-d', '-a', address, '-p', '7471', '-C', '1']
        with subprocess.Popen(
            argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        ) as process:
            timer = threading.Timer(LIMIT_S, process.kill)
            timer.start()
            said = ''
            for line in process.stdout:
                said += line
                if re.search(pattern, line):
                    break
            process.kill()
            timer.cancel()
        return said

    def forget(self):
        Hosts.ip('-n', self.hosts.names[0], 'neigh', 'flush', 'all')

    def test_resolve__an_absent_neighbour(self):
        self.until('RDMA_CM_EVENT_ADDR_ERROR, error -110', *ABSENT)

    def test_resolve__a_neighbour_that_nobody_has_asked_for_yet(self):
        for address in (*ADDRESSES[1:], 'fd99::2', '10.60.0.1', '10.61.0.1'):
            self.forget()
            self.until('RDMA_CM_EVENT_ADDR_RESOLVED', address)

    def test_connect__to_a_host_without_a_process(self):
        self.until('RDMA_CM_EVENT_REJECTED, error (8|-111)', ADDRESSES[1], 'fd99::2')


if __name__ == '__main__':
    unittest.main(argv=sys.argv[:1], verbosity=2)
