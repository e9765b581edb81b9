#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""What several programs that run as one test amount to."""
import os
import subprocess
import sys
import unittest

TOGETHER = os.path.join(sys.path[0], 'together.py')


def run(*words):
    done = subprocess.run(
        [sys.executable, '-B', TOGETHER, *words], stdout=subprocess.PIPE, text=True, check=False
    )
    return done.returncode, done.stdout


def ends(code):
    return 'sh', '-c', f'echo $WORD; exit {code}'


class Together(unittest.TestCase):
    def test_together__all_are_good(self):
        code, said = run('WORD=one', *ends(0), '--', 'WORD=two', *ends(0))
        self.assertEqual(code, 0)
        self.assertIn('\none\n', said)
        self.assertIn('\ntwo\n', said)

    def test_together__one_fails(self):
        self.assertEqual(run(*ends(0), '--', *ends(3))[0], 1)
        self.assertEqual(run(*ends(3), '--', *ends(77))[0], 1)
        self.assertEqual(run('sh', '-c', 'kill -9 $$', '--', *ends(0))[0], 1)

    def test_together__one_is_skipped(self):
        self.assertEqual(run(*ends(77), '--', *ends(0))[0], 77)

    def test_together__at_the_same_time(self):
        read_end, write_end = os.pipe()
        os.set_inheritable(read_end, True)
        os.set_inheritable(write_end, True)
        done = subprocess.run(
            [sys.executable, '-B', TOGETHER, 'sh', '-c', f'read word <&{read_end}', '--']
            + ['sh', '-c', f'echo word >&{write_end}'],
            pass_fds=(read_end, write_end),
            stdout=subprocess.PIPE,
            timeout=30,
            check=False,
        )
        self.assertEqual(done.returncode, 0)
        os.close(read_end)
        os.close(write_end)


if __name__ == '__main__':
    unittest.main()
