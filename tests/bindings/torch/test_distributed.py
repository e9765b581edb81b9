# SPDX-License-Identifier: BSD-2-Clause
"""torch's own tests of process groups with a backend: each has to end as known.py says.

usage: test_distributed.py WORLD [--backend NAME] [--sample] [TEST...]
"""

import argparse
import os
import shutil
import sys
import tempfile
import time

for name in ('OMP_NUM_THREADS', 'OPENBLAS_NUM_THREADS'):
    os.environ.setdefault(name, '1')  # more ranks than processors

import known
import rank_processes
import torch_suite

LIMIT_S = 90
SKIPS = {73: 'torch: too few ranks', 87: 'torch: an odd number of ranks'}


def run_one(tests, name, world):
    """('passed' or 'failed' or why it was skipped, its ranks)"""
    folder = tempfile.mkdtemp(prefix='torch-test-')
    for part in ('barrier', 'test_dir', 'init_dir'):
        os.mkdir(os.path.join(folder, part))
    os.environ['TEMP_DIR'] = folder
    os.environ['INIT_METHOD'] = f'file://{folder}/init_dir/shared_init_file'

    def run(rank):
        import torch

        torch.set_num_threads(1)
        ours, theirs = torch.multiprocessing.Pipe()
        tests._run(rank, name, os.path.join(folder, 'store'), theirs)
        ours.close()

    try:
        ranks = rank_processes.run_ranks(
            world, run, LIMIT_S, lambda status: status != 0 and status not in SKIPS
        )
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    statuses = {rank.status for rank in ranks}
    if len(statuses) == 1 and statuses <= set(SKIPS):
        return SKIPS[statuses.pop()], ranks
    return 'passed' if statuses == {0} else 'failed', ranks


def run_all(found, names, options):
    """The faults of all tests, one a line, and how many passed."""
    version = sys.modules['torch'].__version__
    reasons = known.failures(options.backend, options.world, version)
    faults, passed = [], 0
    for name in names:
        begun = time.monotonic()
        result, ranks = run_one(found[name], name, options.world)
        print(f'{name}: {result}, {time.monotonic() - begun:.1f} s', flush=True)
        passed += result == 'passed'
        if result == 'failed' and name not in reasons:
            faults.append(f'{name}: failed')
            print(*(rank.report() for rank in ranks), sep='', flush=True)
        elif result != 'failed' and name in reasons:
            faults.append(f'{name}: {result}, but known.py has it as failing: {reasons[name]}')
        for rank in ranks:
            rank.close()
    if not options.sample and not options.tests:
        faults += [f'{name}: is in known.py, but not run' for name in sorted({*reasons} - {*names})]
    return faults, passed


def main():
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('world', type=int)
    parser.add_argument('--backend', default='sidewire')
    parser.add_argument('--sample', action='store_true', help='a few that are quick')
    parser.add_argument('--list', action='store_true')
    parser.add_argument('tests', nargs='*')
    options = parser.parse_intermixed_args()
    try:
        import torch.distributed
    except ImportError as error:
        print(f'SKIP: {error}')
        return 77
    if options.backend not in torch_suite.GATES:
        __import__(f'{options.backend}_torch')
    found = torch_suite.load(options.backend, options.world)
    if options.list:
        print('\n'.join(sorted(found)))
        return 0
    names = options.tests or sorted({*known.SAMPLE} & {*found} if options.sample else found)
    faults, passed = run_all(found, names, options)
    print(f'{passed} of {len(names)} passed; torch has {len(found)} for {options.backend}')
    least = known.reached(options.backend, torch.__version__)
    if len(found) < least:
        faults.append(f'torch gives {len(found)} tests, not the {least} that known.py has')
    print('\n'.join(faults))
    return 1 if faults else 0


if __name__ == '__main__':
    sys.exit(main())
