#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""bench/many-cores in brief: each row is measured, or says why not; none leaves a process; what
there is no time for is told.

usage: test_many_cores.py BUILD"""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
sys.dont_write_bytecode = True

import asking  # noqa: E402

BUILD = os.path.abspath(sys.argv.pop(1))
ROWS = ['pairs', 'threads', 'nvme', 'incast', 'processes', 'rails', 'mpi']


def measure(*words):
    """Its lines, and what it said in the end."""
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, 'rows')
        argv = [os.path.join(ROOT, 'bench/many-cores'), '--build', BUILD, '--out', out, *words]
        env = {**os.environ, 'RECORD_BRIEF': '1'}
        done = subprocess.run(argv, capture_output=True, text=True, timeout=280, env=env)
        with open(out) as file:
            return [json.loads(line) for line in file], done.stderr


class ManyCores(unittest.TestCase):
    def test_rows__are_measured_or_say_why_not(self):
        lines, _ = measure()
        asked = [line for line in lines if 'question' in line]
        self.assertEqual([line['question'] for line in asked], [f'many-cores.{r}' for r in ROWS])
        for line in asked:
            self.assertIn(line['status'], ('answered', 'skipped'), line)
            self.assertTrue(line['answers'] or line['reason'], line)
        self.assertEqual(lines[-1]['left'], [])

    def test_rows__that_are_cut_off_leave_nothing(self):
        asking.adopt_orphans()
        # What `env` finds as python3 may be a wrapper with children of its own.
        program = [sys.executable, os.path.join(ROOT, 'bench/many-cores')]
        words = [*program, '--build', BUILD, '--only', 'pairs']
        with subprocess.Popen(words, stdout=subprocess.DEVNULL) as child:
            while len(asking.descendants()) < 2:  # it, and the row
                self.assertIsNone(child.poll())
                time.sleep(0.01)
            child.send_signal(signal.SIGTERM)
            self.assertEqual(child.wait(60), 143)
        self.assertEqual(asking.descendants(), [])

    def test_rails__leave_a_network_that_is_not_their_own_alone(self):
        if os.geteuid() or not shutil.which('unshare'):
            self.skipTest('a network to try it in needs root and unshare')
        words = [os.path.join(ROOT, 'bench/many-cores'), '--build', BUILD, '--row', 'rails']
        done = subprocess.run(
            [
                'unshare',
                '--net',
                'sh',
                '-c',
                '"$@"; status=$?; ip link; exit $status',
                'sh',
                *words,
            ],
            env={**os.environ, 'RECORD_BRIEF': '1'},
            capture_output=True,
            text=True,
        )
        self.assertEqual(done.returncode, asking.SKIPPED, done)
        self.assertNotIn('rail0', done.stdout)

    def test_rows__without_a_build_say_how_it_is_made(self):
        argv = [os.path.join(ROOT, 'bench/many-cores'), '--build', '/nowhere']
        done = subprocess.run(argv, capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stdout), (1, ''))
        self.assertIn('`make build` makes it', done.stderr)

    def test_rows__without_time_are_told(self):
        lines, errors = measure('--seconds', '1')
        self.assertEqual(list(lines[-1]['not_answered']), ROWS)
        self.assertIn('not answered: mpi: the time of the whole was up', errors)


if __name__ == '__main__':
    unittest.main(verbosity=2)
