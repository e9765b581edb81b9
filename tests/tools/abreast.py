# SPDX-License-Identifier: BSD-2-Clause
"""unittest.main() for tests that wait most of their time: several run at a time, each in a thread.

Tests of classes with setUpClass() need another runner.
"""
import sys
import unittest
from concurrent.futures import ThreadPoolExecutor


def flatten(suite):
    for one in suite:
        if isinstance(one, unittest.TestSuite):
            yield from flatten(one)
        else:
            yield one


def run_one(test):
    result = unittest.TestResult()
    test.run(result)
    return result


def main(jobs):
    """Runs the tests of the main module, or those named; the status to exit with."""
    loader, module = unittest.TestLoader(), sys.modules['__main__']
    names = sys.argv[1:]
    suite = (
        loader.loadTestsFromNames(names, module) if names else loader.loadTestsFromModule(module)
    )
    failed, passed, skips = 0, 0, []
    with ThreadPoolExecutor(jobs) as pool:
        tests = list(flatten(suite))
        for test, result in zip(tests, pool.map(run_one, tests)):
            faults = result.failures + result.errors
            skips += [why for _, why in result.skipped]
            word = 'FAIL' if faults else 'skip' if result.skipped else 'ok'
            print(f'{word:4} {test.id()}', flush=True)
            for _, text in faults:
                print(text, flush=True)
            failed += bool(faults)
            passed += word == 'ok'
    print(f'{passed} passed, {failed} failed, {len(skips)} skipped')
    if skips:
        print(f'SKIP: {skips[0]}')
    return 1 if failed or not tests else 77 if skips else 0
