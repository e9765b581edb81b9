#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""sidewire-transfer(1), as manual.py holds it to the program.

usage: test_manual.py SIDEWIRE_TRANSFER PAGE
"""
import os
import sys
import unittest

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), '../..'))
import manual  # noqa: E402


class Transfer(manual.Manual):
    mover = 'transfer'
    program, page = sys.argv[1:]
    options_more_than = 15
    commands_at_least = 5
    wrong = (
        [],
        ['zork'],
        ['serve'],
        ['serve', '-l', '127.0.0.1', '-c', 'x'],
        ['ls'],
        ['read', '-c', 'x'],
        ['plan', '--from', 'LPBTH:1:1'],
        ['plan', '--from', 'x', '--to', 'LPBTH:1:1'],
        ['bench', '-c', 'x', '--bs', 'k'],
    )


if __name__ == '__main__':
    unittest.main(argv=sys.argv[:1])
