# SPDX-License-Identifier: BSD-2-Clause
"""Runs a line of perftest or of ibverbs' examples, and judges what it says by what it was asked
for."""
import shlex

import pair
from pair import Pair

ALL_SIZES = [1 << power for power in range(1, 24)]


def value(words, option, otherwise=None):
    return words[words.index(option) + 1] if option in words else otherwise


def expected_iterations(words):
    if '-D' in words:
        return None
    count = int(value(words, '-n'))
    return count * int(value(words, '-q', '1')) if words[0].endswith('_bw') else count


def judge(one, texts, words):
    if words[0] == 'ibv_xsrq_pingpong':
        pair.check_said(one, texts, 'success')
        return
    if words[0].startswith('ibv_'):
        size = 1024 if words[0] == 'ibv_ud_pingpong' else 4096
        pair.check_pingpong(
            one, texts, int(value(words, '-s', size)), int(value(words, '-n', 1000))
        )
        return
    atomic = words[0].startswith('ib_atomic')
    every = [size for size in ALL_SIZES if size <= 4096 or 'UD' not in words]
    sizes = every if '-a' in words else [8 if atomic else int(value(words, '-s'))]
    pair.check_perftest(one, texts, sizes, expected_iterations(words), words[0].endswith('_lat'))


def run_case(tools, line, device='sw_lo', **options):
    words = shlex.split(line)
    words += ['-d', device] + (['-F'] if words[0].startswith('ib_') else [])
    one = Pair(tools, words, **options)
    judge(one, one.run(), words)
