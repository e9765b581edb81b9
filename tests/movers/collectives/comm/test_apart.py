#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""Makes two hosts for test_apart.c, and ends them.

usage: test_apart.py SIDEWIRE TEST_APART LINK
"""
import contextlib
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.append(os.path.join(HERE, '../../../apps'))
import hosts  # noqa: E402
from pair import Skip  # noqa: E402


def main():
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    sidewire, program, link = sys.argv[1:]
    try:
        two = hosts.Hosts(1500)
    except Skip as reason:
        print(f'SKIP: {reason}')
        return 77
    with contextlib.closing(two):
        where = [word for pair in zip(two.names, hosts.ADDRESSES) for word in pair]
        words = [sidewire, 'run', '--link', link, '--', program, link, *where]
        return subprocess.run(words, timeout=100).returncode


if __name__ == '__main__':
    sys.exit(main())
