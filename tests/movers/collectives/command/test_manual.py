#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""sidewire-coll(1), as manual.py holds it to the program.

usage: test_manual.py SIDEWIRE_COLL PAGE
"""
import os
import sys
import unittest

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), '../..'))
import manual  # noqa: E402


class Coll(manual.Manual):
    mover = 'coll'
    program, page = sys.argv[1:]
    options_more_than = 15
    commands_at_least = 1
    wrong = (
        [],
        ['zork'],
        ['perf', 'zork'],
        ['perf', '--ranks', '0'],
        ['perf', '--ranks', '1025'],
        ['perf', '--ranks', '2', '-b', '9', '-e', '8'],
        ['perf', '--ranks', '2', '-f', '1'],
        ['perf', '--ranks', '2', '-n', '0'],
        ['perf', '--ranks', '2', '-c', '2'],
        ['perf', '--ranks', '2', '--algorithm', 'tree'],
        ['perf', '--ranks', '2', '--algorithm', 'ring'],
        ['perf', '--ranks', '2', '--deadline', '0'],
        ['perf', '--ranks', '2', 'gather', 'scatter'],
        ['trace', '--algorithm', 'tree'],
        ['trace', '--size', '0'],
        ['trace', 'gather', 'scatter'],
        ['perf', '--ranks', '2', '-o', 'plus'],
        ['perf', '--ranks', '2', '-d', 'f33'],
        ['perf', '--ranks', '2', '-r', '2', 'reduce'],
        ['perf', '--ranks', '2', '--rank', '0'],
        ['perf', '--ranks', '2', '--rank', '2', '--meet', '127.0.0.1:1'],
        ['perf', '--rank', '0', '--meet', '127.0.0.1:1'],
    )


if __name__ == '__main__':
    unittest.main(argv=sys.argv[:1])
