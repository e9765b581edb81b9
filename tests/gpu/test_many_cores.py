#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""bench/many-cores in brief: each row is measured, or says why not; none leaves a process; what
there is no time for is told.

usage: test_many_cores.py BUILD"""

import json
import os
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
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

    def test_rows__without_time_are_told(self):
        lines, errors = measure('--seconds', '1')
        self.assertEqual(list(lines[-1]['not_answered']), ROWS)
        self.assertIn('not answered: mpi: the time of the whole was up', errors)


if __name__ == '__main__':
    unittest.main(verbosity=2)
