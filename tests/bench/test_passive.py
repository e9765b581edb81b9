#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""The promise of one-sided operations: no system call on the data path, and no processor time of
the sleeping target.

Arguments: the build directory. The ladder's lower rungs are the control: there the same counters
must not be zero.
"""

import os
import shutil
import sys
import unittest

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, '../../bench/lib'), os.path.join(HERE, '../tools')]

import measures  # noqa: E402
import own_network  # noqa: E402
import procs  # noqa: E402
from programs import Sidewire  # noqa: E402

BUILD = ''
measures.MILLION = OPS = 50000
ROUNDS = 5


def bench(direct):
    return measures.Bench(Sidewire(BUILD, direct=direct), os.path.join(BUILD, 'bench/src'), False)


@unittest.skipUnless(shutil.which('strace'), 'no strace')
class SystemCalls(unittest.TestCase):
    def test_syscalls__none_when_mapped(self):
        for op in measures.ONE_SIDED:
            with self.subTest(op):
                found = bench('mapped').syscalls(op)
                self.assertEqual((found['initiator'], found['target']), ({}, {}))

    def test_syscalls__one_each_by_cma(self):
        found = bench('cma').syscalls('write')
        self.assertGreaterEqual(found['initiator'].get('process_vm_writev', 0), OPS)
        self.assertEqual(found['target'], {})


class TargetTime(unittest.TestCase):
    def test_target_cpu__none_when_mapped(self):
        for op in measures.ONE_SIDED:
            with self.subTest(op):
                # The target's engine wakes now and then, whatever its peers do. Operations that
                # cost the target nothing leave a round with nothing at all; operations that cost it
                # something leave none.
                rounds = (bench('mapped').target_cpu(op)['cpu_ns'] for _ in range(ROUNDS))
                self.assertIn(0, rounds)

    def test_target_cpu__some_by_ring(self):
        self.assertGreater(
            min(bench('ring').target_cpu('write')['cpu_ns'] for _ in range(ROUNDS)), 0
        )


def mapped_works():
    text = procs.run([os.path.join(BUILD, 'src/cli/sidewire'), 'doctor'], 20, accept=(0, 1))
    return any('plain memory' in line and ' yes ' in line for line in text.splitlines())


if __name__ == '__main__':
    own_network.move_to_own_network()  # others would be met, which takes system calls
    BUILD = sys.argv.pop(1)
    if not mapped_works():
        print('this machine does not let plain memory be mapped')
        sys.exit(77)
    unittest.main(warnings='ignore')
