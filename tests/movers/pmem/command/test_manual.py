#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""sidewire-pmem(1), as manual.py holds it to the program.

usage: test_manual.py SIDEWIRE_PMEM PAGE
"""
import os
import sys
import unittest

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), '../..'))
import manual  # noqa: E402


class Pmem(manual.Manual):
    mover = 'pmem'
    program, page = sys.argv[1:]
    options_more_than = 15
    wrong = (
        [],
        ['zork'],
        ['serve'],
        ['serve', 'x', '--allow', 'zork'],
        ['ls'],
        ['get', '-a', '127.0.0.1'],
        ['bench', '-a', '127.0.0.1'],
    )


if __name__ == '__main__':
    unittest.main(argv=sys.argv[:1])
