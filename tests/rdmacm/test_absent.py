# SPDX-License-Identifier: BSD-2-Clause
"""Addresses where nobody is, and hosts where no process is: a program hears of both in the time
that it gives, as from a kernel.

usage: test_absent.py SIDEWIRE auto | iwarp
"""
import concurrent.futures
import contextlib
import os
import re
import subprocess
import sys
import threading
import time
import unittest
from itertools import repeat

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), '..')
for folder in 'apps', 'tools':
    sys.path.append(os.path.join(ROOT, folder))
from hosts import ADDRESSES, Hosts  # noqa: E402
from pair import Skip  # noqa: E402

SIDEWIRE, LINK = sys.argv[1:3]
LIMIT_S = 40  # of 77 s, which both took before
CROWD = 100
ABSENT = '10.99.0.77', 'fd99::77', '10.50.0.1', '10.51.0.1'  # the last two behind such a gateway
# An adapter on which nobody answers yet. It takes the packets of RoCE. Other datagrams to their
# port it leaves to its kernel, which says by ICMP that the port is closed.
ADAPTER = '''
import socket, struct, sys

def checksum(data):
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    total = (total & 0xffff) + (total >> 16)
    return ~(total + (total >> 16)) & 0xffff

peer, own = sys.argv[1:]
ears = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
ears.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
ears.bind(("", 4791))
icmp = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
print("ready")
while True:
    packet, (_, port) = ears.recvfrom(9000)
    if len(packet) >= 12 + 4:
        print("taken")
        continue
    ends = socket.inet_aton(peer) + socket.inet_aton(own)
    text = struct.pack("!BBHHHBBH8s", 0x45, 0, 28, 0, 0x4000, 64, 17, 0, ends)
    text += struct.pack("!HHHH", port, 4791, 8, 0)
    head = struct.pack("!BBHI", 3, 3, checksum(struct.pack("!BBHI", 3, 3, 0, 0) + text), 0)
    icmp.sendto(head + text, (peer, 0))
'''


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

    @contextlib.contextmanager
    def running(self, host, program, *words):
        """A program of a host, for the block or LIMIT_S."""
        argv = [*self.hosts.wrap[host], SIDEWIRE, 'run', '--', 'stdbuf', '-oL', program, *words]
        with subprocess.Popen(
            argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        ) as process:
            timer = threading.Timer(LIMIT_S, process.kill)
            timer.start()
            try:
                yield process
            finally:
                process.kill()
                timer.cancel()

    def said(self, pattern, address):
        said = ''
        with self.running(0, *f'rping -c -d -a {address} -p 7471 -C 1'.split()) as process:
            for line in process.stdout:
                said += line
                if re.search(pattern, line):
                    break
        return said

    def forget(self):
        Hosts.ip('-n', self.hosts.names[0], 'neigh', 'flush', 'all')

    def test_resolve__an_absent_neighbour(self):
        self.until('RDMA_CM_EVENT_ADDR_ERROR, error -110', *ABSENT)

    def test_resolve__a_neighbour_that_nobody_has_asked_for_yet(self):
        for address in (*ADDRESSES[1:], 'fd99::2', '10.60.0.1', '10.61.0.1'):
            self.forget()
            self.until('RDMA_CM_EVENT_ADDR_RESOLVED', address)

    def test_resolve__where_a_filter_lets_nobody_be_asked(self):
        rule = 'ipproto udp dport 4791 prohibit'.split()
        Hosts.ip('-n', self.hosts.names[0], 'rule', 'add', *rule)
        try:
            self.until('RDMA_CM_EVENT_ADDR_RESOLVED', ABSENT[0])
        finally:
            Hosts.ip('-n', self.hosts.names[0], 'rule', 'del', *rule)

    def test_connect__to_a_host_without_a_process(self):
        self.until('RDMA_CM_EVENT_REJECTED, error (8|-111)', ADDRESSES[1], 'fd99::2')

    def test_connect__many_to_a_host_without_a_process(self):
        """By packets all requests have one socket. By TCP each has its own, until it is refused."""
        refused = fds = 0
        with self.running(0, 'cmtime', '-s', ADDRESSES[1], '-c', f'{CROWD}') as process:
            for line in process.stdout:
                if re.search('REJECTED', line):
                    now = len(os.listdir(f'/proc/{process.pid}/fd'))
                    fds = now if LINK == 'iwarp' else max(fds, now)
                    refused += 1
                    if refused == CROWD:
                        break
        self.assertEqual(refused, CROWD)
        self.assertLess(fds, CROWD, 'each request has a socket still')

    @unittest.skipIf(LINK == 'iwarp', 'it calls by TCP')
    def test_connect__to_an_adapter_that_takes_packets_past_its_kernel(self):
        client = f'rping -c -d -a {ADDRESSES[1]} -p 7471 -C 1'.split()
        server = f'rping -s -a {ADDRESSES[1]} -p 7471 -C 1'.split()
        with self.adapter() as adapter, self.running(0, *client) as process:
            for _ in range(5):
                self.assertEqual(adapter.stdout.readline(), 'taken\n')
            with self.running(1, *server) as other:
                while other.poll() is None and self.ears(1) < 2:
                    time.sleep(0.02)
                adapter.kill()
                self.assertRegex(process.stdout.read(), 'ESTABLISHED')

    @contextlib.contextmanager
    def adapter(self):
        argv = [*self.hosts.wrap[1], sys.executable, '-uc', ADAPTER, *ADDRESSES]
        with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
            timer = threading.Timer(LIMIT_S, process.kill)
            timer.start()
            try:
                self.assertEqual(process.stdout.readline(), 'ready\n')
                yield process
            finally:
                process.kill()
                timer.cancel()

    def ears(self, host):
        """How many sockets of IPv4 hear packets there."""
        argv = [*self.hosts.wrap[host], *'ss -H4nul sport = 4791'.split()]
        found = subprocess.run(argv, capture_output=True, check=True, timeout=20, text=True)
        return len(found.stdout.splitlines())


if __name__ == '__main__':
    unittest.main(argv=sys.argv[:1], verbosity=2)
