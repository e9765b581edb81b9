#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""sidewire-snapshot(1), as manual.py holds it to the program.

usage: test_manual.py PROGRAM PAGE
"""
import os
import sys
import unittest

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), '../..'))
import manual  # noqa: E402


class Snapshot(manual.Manual):
    mover = 'snapshot'
    program, page = sys.argv[1:]
    options_more_than = 20
    commands_at_least = 10
    wrong = (
        [],
        ['zork'],
        ['serve'],
        ['ls'],
        ['save', '--sink', 'file:x'],
        ['save', '--sink', 'file:x', '--raw', 'nothing'],
        ['restore', '--sink', 'file:x'],
        ['export', '--sink', 'file:x'],
        ['prune', '--sink', 'file:x'],
        ['prune', '--sink', 'file:x', '--step', '1', '--keep', '1'],
        ['ls', '--sink', 'a', '--sink', 'b', '--sink', 'c', '--sink', 'd'],
    )


if __name__ == '__main__':
    unittest.main(argv=sys.argv[:1])
