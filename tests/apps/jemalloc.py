# SPDX-License-Identifier: BSD-2-Clause
"""Programs under another allocator, jemalloc."""
import ctypes.util
import re
import shlex

from judge import judge
from lines import dealt, left
from pair import Pair, Skip

# jemalloc gives memory back to the kernel at once (MADV_DONTNEED), registered or not, and tells at
# its end that it was there.
JEMALLOC = ctypes.util.find_library('jemalloc')
JEMALLOC_SAID = re.compile(
    r'___ Begin jemalloc statistics ___.*?--- End jemalloc statistics ---\n', re.S
)
UNDER_JEMALLOC = (
    'env',
    f'LD_PRELOAD={JEMALLOC}',
    'MALLOC_CONF=dirty_decay_ms:0,muzzy_decay_ms:0,stats_print:true,stats_print_opts:gmdablxeh',
)
PERFTEST = [
    f'ib_{op}_{kind} {size} -n {count}'
    for op, size in (
        ('send', '-s 65536'),
        ('write', '-s 65537'),
        ('read', '-s 65536'),
        ('atomic', ''),
    )
    for kind, count in (('lat', 50), ('bw', 200))
]


def run_under_jemalloc(tools, line, **options):
    if not JEMALLOC:
        raise Skip('libjemalloc is not installed')
    words = shlex.split(line) + ['-d', 'sw_lo'] + (['-F'] if line.startswith('ib_') else [])
    one = Pair(tools, words, wrap=UNDER_JEMALLOC, **options)
    texts = one.run()
    for text in texts:
        if not JEMALLOC_SAID.search(text):
            one.fail('jemalloc was not there')
    judge(one, [JEMALLOC_SAID.sub('', text) for text in texts], words)


WAYS = {
    'mapped': {'direct': 'mapped'},
    'cma': {'direct': 'cma'},
    'ring': {'direct': 'ring'},
    'packets': {'link': 'roce'},
}
LINES = [*PERFTEST, 'ibv_rc_pingpong -g 1 -s 1048576 -n 20 -c']


def cases(chosen):
    return [
        (
            f'{way}: {line}',
            lambda tools, line=line, way=way: run_under_jemalloc(tools, line, **WAYS[way]),
        )
        for way, line in chosen
    ]


def groups():
    return {
        'jemalloc': cases(dealt(list(WAYS), LINES)),
        'jemalloc_more': cases(left(list(WAYS), LINES)),
    }
