#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""The measuring programs of the link between hosts and of connections: what they print follows from
what they do. test_links.py BUILD"""

import json
import os
import sys
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '../../bench/lib'))

import between  # noqa: E402
import connections  # noqa: E402
import iwarp  # noqa: E402
import procs  # noqa: E402
from programs import Sidewire  # noqa: E402

BUILD = ''
ONE_WAY_NS = 2000  # a host's link and the receiver's


def incast(*options):
    return procs.run([os.path.join(BUILD, 'bench/src/incast'), '--us', '15000', *options], 60)


class Incast(unittest.TestCase):
    def test_incast__same_seed_same_run(self):
        self.assertEqual(incast('--seed', '5'), incast('--seed', '5'))
        self.assertNotEqual(incast('--seed', '5'), incast('--seed', '6'))

    def test_incast__idle_network_takes_its_way_there_and_back(self):
        idle = json.loads(incast('--senders', '0'))
        self.assertGreaterEqual(idle['p50_ns'], 2 * ONE_WAY_NS)
        self.assertLess(idle['p99_ns'], 3 * ONE_WAY_NS)
        self.assertEqual(idle['marked'], 0)

    def test_incast__senders_fill_the_link_and_are_marked(self):
        full = json.loads(incast('--senders', '16'))
        self.assertGreater(full['gbits_per_s'], 80)
        self.assertLessEqual(full['gbits_per_s'], 100)
        self.assertGreater(full['marked'], 0)
        self.assertGreater(full['p99_ns'], 2 * ONE_WAY_NS)
        self.assertGreater(full['jain'], 1 / 16)
        self.assertLessEqual(full['jain'], 1)


@unittest.skipIf('--sanitized' in sys.argv, 'a sanitized library cannot be preloaded')
class ManyQps(unittest.TestCase):
    def test_qp_rate__one_and_many(self):
        here = between.Local(Sidewire(BUILD))
        for qps in (1, 300):
            with self.subTest(qps=qps):
                self.assertGreater(
                    here.qp_rate(os.path.join(BUILD, 'bench/src'), qps, 3000)['rate'], 0
                )

    def test_qp_rate__hosts(self):
        try:
            with between.Between(Sidewire(BUILD), 9000) as two:
                rate = two.qp_rate(os.path.join(BUILD, 'bench/src'), 8, 1000)['rate']
        except procs.Skipped as reason:
            self.skipTest(str(reason))
        self.assertGreater(rate, 0)


@unittest.skipIf('--sanitized' in sys.argv, 'a sanitized library cannot be preloaded')
class Connections(unittest.TestCase):
    def test_connect_rate__each_kind(self):
        here = connections.Here(Sidewire(BUILD))
        for kind in ('rdma', 'rdma-cq', 'tcp'):
            for in_flight, held in ((1, 0), (8, 20)):
                with self.subTest(kind=kind, in_flight=in_flight):
                    found = here.connect_rate(
                        os.path.join(BUILD, 'bench/src'), kind, 100, in_flight, held
                    )
                    self.assertGreater(found['rate'], 0)

    def test_pingpong__by_tcp_and_rsockets(self):
        here = connections.Here(Sidewire(BUILD))
        self.assertGreater(
            here.tcp_pingpong(os.path.join(BUILD, 'bench/src'), 64, 100)['median_s'], 0
        )
        self.assertGreater(here.rstream(64, 1000)['median_s'], 0)


@unittest.skipIf('--sanitized' in sys.argv, 'a sanitized library cannot be preloaded')
class Iwarp(unittest.TestCase):
    def test_idle_connections__memory_and_a_message(self):
        found = iwarp.Local(Sidewire(BUILD)).ours(
            os.path.join(BUILD, 'bench/src'), 'idle_connections', '{port}', '200', '200'
        )
        self.assertGreater(found['bytes_per_connection'], 0)
        self.assertLess(found['bytes_per_connection'], 64 << 10)
        self.assertGreater(found['round_trip_ns'], 0)

    def test_lossy_link__loses_some_and_iwarp_passes(self):
        try:
            with iwarp.Lossy(
                Sidewire(BUILD), 1500, os.path.join(BUILD, 'bench/src'), per_mille=50
            ) as two:
                row = two.perftest('ib_write_bw', ['-s', '65536', '-n', '200', '-N'])[65536]
                lost = procs.run(two.on(between.CLIENT, ['nstat', '-az', 'TcpRetransSegs']), 20)
        except procs.Skipped as reason:
            self.skipTest(str(reason))
        self.assertGreater(row['bandwidth'], 0)
        self.assertGreater(int(lost.split('TcpRetransSegs')[1].split()[0]), 0, lost)


if __name__ == '__main__':
    BUILD = sys.argv[1]
    unittest.main(argv=sys.argv[:1], warnings='ignore')
