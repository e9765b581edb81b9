#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""Runs programs that wait more than they work at the same time, as one test.

usage: together.py [NAME=VALUE]... COMMAND... [-- [NAME=VALUE]... COMMAND...]...
The output of each is printed when all have ended. One that fails fails all; a skip is one of all
only if nobody fails.
"""
import os
import re
import subprocess
import sys

SKIPPED = 77
VARIABLE = re.compile(r'\w+=')


def split(words):
    """The commands, with their variables."""
    commands = [[]]
    for word in words:
        if word == '--':
            commands.append([])
        else:
            commands[-1].append(word)
    return commands


def start(words):
    count = next(n for n, word in enumerate(words) if not VARIABLE.match(word))
    settings = dict(word.split('=', 1) for word in words[:count])
    return subprocess.Popen(
        words[count:],
        env={**os.environ, **settings},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors='replace',
        close_fds=False,
    )


def main():
    commands = split(sys.argv[1:])
    running = [start(words) for words in commands]
    codes = []
    for words, process in zip(commands, running):
        said, _ = process.communicate()
        codes.append(process.returncode)
        print(f'--- {" ".join(words)}: {process.returncode}\n{said}', end='', flush=True)
    failed = [code for code in codes if code not in (0, SKIPPED)]
    return 1 if failed else max(codes)


if __name__ == '__main__':
    sys.exit(main())
