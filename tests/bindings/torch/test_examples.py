# SPDX-License-Identifier: BSD-2-Clause
"""examples/python/ddp.py as a user runs it: by either backend, and with a rank that is killed. The
program of docs/torch.md, too.
"""

import os
import re
import subprocess
import sys
import unittest

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), '../../..')
EXAMPLE = os.path.join(ROOT, 'examples/python/ddp.py')
LIMIT_S = 300  # patience: they run behind the guests' emulators, too
ENV = {**os.environ, 'OMP_NUM_THREADS': '1', 'OPENBLAS_NUM_THREADS': '1'}


def run(*words):
    done = subprocess.run(
        [sys.executable, EXAMPLE, *words],
        env=ENV,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


class Example(unittest.TestCase):
    def check_learns(self, backend, ranks):
        status, out, error = run(*f'--ranks {ranks} --steps 40 --backend {backend}'.split())
        self.assertEqual(status, 0, out + error)
        losses = [float(loss) for loss in re.findall(r'loss ([0-9.]+)', out)]
        self.assertEqual(len(losses), 4)
        self.assertLess(losses[-1], losses[0])
        return losses

    def test_gloo__learns(self):
        self.check_learns('gloo', 2)

    def test_sidewire__learns_as_gloo_does(self):
        for one, other in zip(self.check_learns('sidewire', 2), self.check_learns('gloo', 2)):
            self.assertAlmostEqual(one, other, delta=0.002)

    def check_goes_on(self, victim):
        status, out, error = run(*f'--ranks 3 --steps 40 --die {victim}@15'.split())
        statuses = ', '.join('-9' if rank == victim else '0' for rank in range(3))
        self.assertIn(f'ranks ended with [{statuses}]', out, error)
        self.assertIn('step 10: loss', out)
        for step in (20, 30, 40):
            self.assertRegex(out, rf'step {step}: loss [0-9.]+, 2 ranks')
        for rank in {0, 1, 2} - {victim}:
            self.assertRegex(error, rf'rank {rank}: .*\b{victim}\b')
        self.assertEqual(status, 0)

    def test_sidewire__goes_on_without_a_rank(self):
        self.check_goes_on(1)

    def test_sidewire__goes_on_without_rank_0(self):
        self.check_goes_on(0)

    def test_document__before_and_after(self):
        """Its first program, as the only rank of a job."""
        with open(os.path.join(ROOT, 'docs/torch.md'), encoding='utf-8') as file:
            program = re.search(r'^```python\n(.*?)^```', file.read(), re.M | re.S)[1]
        first = 'import torch\nbatches = [(torch.ones(4, 1000), torch.arange(4))] * 3\n'
        last = '\nprint(dist.get_backend(), dist.get_world_size())\n'
        place = {'RANK': '0', 'WORLD_SIZE': '1', 'MASTER_ADDR': '127.0.0.1', 'MASTER_PORT': '0'}
        done = subprocess.run(
            [sys.executable, '-c', first + program + last],
            env={**ENV, **place},
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
        self.assertEqual((done.returncode, done.stdout), (0, 'sidewire 1\n'), done.stderr)


if __name__ == '__main__':
    unittest.main(verbosity=2)
