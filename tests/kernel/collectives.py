# SPDX-License-Identifier: BSD-2-Clause
"""Collectives on stock rdma-core and rxe: their bits against numpy's, between ranks in the guest;
and between the guest's and ours over RoCE, where `sidewire coll perf` compares each bit."""
import os
import sys
import tempfile

import kernel_guest as guest
import own_programs as own

sys.path.append(os.path.join(guest.HERE, '../movers/collectives/comm'))
SECONDS, CASES, RANKS = 60, 20, 3
# Each with another type and operator; the rank that is here, of those of both sides.
# fmt: off
MIXED = (
    ('all_reduce', 2, 'bf16', 'sum', 0),
    ('all_gather', 2, 'i8', 'sum', 1),
    ('reduce_scatter', 3, 'f32', 'avg', 1),
    ('broadcast', 3, 'f64', 'sum', 2),
)
# fmt: on


def bits_of_kernel(say):
    """All kinds between ranks in the guest, by the definition in numpy."""
    import test_bits

    with tempfile.NamedTemporaryFile() as file:
        file.write(test_bits.cases_of(RANKS, CASES))
        file.flush()
        if not own.copy_in(file.name, '/tmp/cases'):
            return say(False, 'cases of collectives cannot be copied into the guest')
    good = True
    for words in f'{test_bits.EAGER} ""', '64 owners':
        text, status = guest.inside(
            f'timeout {SECONDS} test_coll_bits {RANKS} {words} "" {guest.GUEST} </tmp/cases'
        )
        good &= say(
            status == 0 and f'{CASES} cases' in text,
            f'in the kernel: collectives, {words}: the bits of numpy',
            text,
        )
    return good


def mixed(host, say, program, port):
    """Ranks here and there. The others are the guest's; rank 0 may be on either side."""
    good = True
    for kind, ranks, datatype, op, here in MIXED:
        meet = f'{guest.OWN if here == 0 else guest.GUEST}:{port}'
        words = (
            f'perf --ranks {ranks} --meet {meet} -b 8 -e 100000 -f 50 -n 2 -w 1 -d {datatype} '
            f'-o {op} --deadline {SECONDS * 1000} {kind} --rank'
        )
        process = host.start(f'{program} {words} {here}')
        theirs = [rank for rank in range(ranks) if rank != here]
        line = ''.join(
            f'(timeout {SECONDS} sidewire-coll {words} {rank} || echo FAILED) '
            f'>/tmp/rank.{rank} 2>&1 & '
            for rank in theirs
        )
        files = ' '.join(f'/tmp/rank.{rank}' for rank in theirs)
        said = guest.inside(f'{line}wait; cat {files}')[0]
        text, status = host.finish(process, SECONDS)
        good &= say(
            status == 0 and 'FAILED' not in said and '# wrong values: 0' in text + said,
            f'with the kernel: {kind} of {ranks} ranks, rank {here} is ours',
            text,
            said,
        )
        port += 1
    return good


def run(host, say, program, bits, port):
    """`program`: sidewire-coll; `bits`: tests/movers/collectives/comm/test_bits.c."""
    for path, name in ((program, 'sidewire-coll'), (bits, 'test_coll_bits')):
        if not own.push_with_libraries(path, name):
            return say(False, f'{name} cannot be copied into the guest')
    return bits_of_kernel(say) & mixed(host, say, program, port)
