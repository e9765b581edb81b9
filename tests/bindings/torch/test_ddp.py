# SPDX-License-Identifier: BSD-2-Clause
"""DistributedDataParallel on sidewire beside gloo: the same weights within rounding, and with other
sizes of buckets the same bits.

usage: test_ddp.py RANKS [CASE...]
"""

import os
import shutil
import sys
import tempfile
import unittest

for name in ('OMP_NUM_THREADS', 'OPENBLAS_NUM_THREADS'):
    os.environ.setdefault(name, '1')

import rank_processes

try:
    import sidewire_torch
    import torch
    import torch.distributed as dist

    import training
    from training import Job
except ImportError as error:
    print(f'SKIP: {error}')
    sys.exit(77)

LIMIT_S = 60
SMALL_BUCKETS_MB = 0.25  # less than a layer
JOBS = {
    'dropout': Job(dropout=0.3, has_norm=True),
    'accumulation': Job(micro=3),
    'unused': Job(has_branch=True),
    'uneven': Job(is_uneven=True),
    'zero': Job(has_zero=True),
    'uneven_zero': Job(is_uneven=True, has_zero=True, dropout=0.2),
}


def replaced(job, **words):
    return training.dataclasses.replace(job, **words)


class Ranks:
    """Runs jobs by the same ranks, one after another, each in a process group of its own."""

    def __init__(self, ranks, plans):
        """plans: name -> (backend, job)"""
        self.folder = tempfile.mkdtemp(prefix='torch-ddp-')
        try:
            done = rank_processes.run_ranks(
                ranks, lambda rank: self.go(rank, ranks, plans), LIMIT_S
            )
            bad = [rank.report() for rank in done if rank.status]
            for rank in done:
                rank.close()
            if bad:
                raise AssertionError('\n'.join(bad))
            self.of = {
                name: [torch.load(self.path(name, rank)) for rank in range(ranks)] for name in plans
            }
        finally:
            shutil.rmtree(self.folder)

    def path(self, name, rank):
        return os.path.join(self.folder, f'{name}.{rank}')

    def go(self, rank, ranks, plans):
        torch.set_num_threads(1)
        for name, (backend, job) in plans.items():
            dist.init_process_group(
                backend, f'file://{self.folder}/{name}.store', rank=rank, world_size=ranks
            )
            torch.save(training.train(job), self.path(name, rank))
            dist.destroy_process_group()

    def weights(self, name, rank=0):
        return self.of[name][rank]['weights']


class Case(unittest.TestCase):
    def assert_same_bits(self, one, other, what):
        for name, value in one.items():
            self.assertTrue(torch.equal(value, other[name]), f'{what}: {name} differs')

    def assert_near(self, one, other, what):
        for name, value in one.items():
            far = (value - other[name]).abs().max().item()
            self.assertTrue(
                torch.allclose(value, other[name], rtol=1e-3, atol=1e-4),
                f'{what}: {name} differs by {far}',
            )


class Training(Case):
    ranks = 2

    def check(self, name):
        job = JOBS[name]
        few, many = job, replaced(job, bucket_mb=SMALL_BUCKETS_MB)
        ran = Ranks(
            self.ranks,
            {'gloo': ('gloo', few), 'few': ('sidewire', few), 'many': ('sidewire', many)},
        )
        for rank in range(1, self.ranks):
            self.assert_same_bits(ran.weights('few'), ran.weights('few', rank), f'rank {rank}')
        self.assert_near(ran.weights('few'), ran.weights('gloo'), 'gloo')
        self.assertGreater(ran.of['many'][0]['buckets'], ran.of['few'][0]['buckets'])
        self.assert_same_bits(ran.weights('few'), ran.weights('many'), 'small buckets')
        losses = ran.of['few'][0]['losses']
        self.assertLess(min(losses), 0.9 * losses[0])  # it learns


class Leaves(Case):
    """Eight batches for each step, however they are shared out."""

    def test_leaves__are_the_same_on_any_number_of_ranks(self):
        job = Job(dropout=0.3, leaves=True)
        weights = {}
        for ranks in (4, 2, 1):
            here = replaced(job, micro=8 // ranks)
            ran = Ranks(
                ranks,
                {'leaves': ('sidewire', here), 'sums': ('sidewire', replaced(here, leaves=False))},
            )
            weights[ranks] = ran.weights('leaves')
            weights[ranks, 'sums'] = ran.weights('sums')
        for ranks in (2, 1):
            self.assert_same_bits(weights[4], weights[ranks], f'4 and {ranks} ranks')
        # The control: where a rank adds up its batches first, the bits are others.
        self.assert_near(weights[4], weights[4, 'sums'], 'sums of a rank')
        with self.assertRaises(AssertionError):
            self.assert_same_bits(weights[4, 'sums'], weights[2, 'sums'], 'sums')


def add_cases():
    for name in JOBS:
        setattr(Training, f'test_training__{name}', lambda self, name=name: self.check(name))


if __name__ == '__main__':
    assert sidewire_torch
    add_cases()
    Training.ranks = int(sys.argv.pop(1))
    unittest.main(verbosity=2)
