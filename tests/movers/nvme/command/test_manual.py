#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""sidewire-nvme(1), as manual.py holds it to the program.

usage: test_manual.py SIDEWIRE_NVME PAGE
"""
import os
import sys
import unittest

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), '../..'))
import manual  # noqa: E402


class Nvme(manual.Manual):
    mover = 'nvme'
    program, page = sys.argv[1:]
    more = (
        'target add',
        'target clear',
        'target move',
        'target remove',
        'target status',
        'target metrics',
    )
    options_more_than = 30
    wrong = ([], ['zork'], ['target', '--zork'], ['target'], ['read', '-a', '127.0.0.1'], ['bench'])


if __name__ == '__main__':
    unittest.main(argv=sys.argv[:1])
