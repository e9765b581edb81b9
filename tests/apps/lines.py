# SPDX-License-Identifier: BSD-2-Clause
"""The lines of perftest and of the examples of libibverbs that apps runs: a
program with options. A pair takes a second, and half of one of a processor: so each line in each
way is what `make check` runs, and `make test` some of them."""


def dealt(ways, lines, each=1):
    """The (way, line) of `make test`: each line goes by so many ways, and each way has some."""
    return [
        (way, line)
        for i, way in enumerate(ways)
        for j, line in enumerate(lines)
        if (i - j) % len(ways) < each
    ]


def left(ways, lines, each=1):
    """The others, of `make check`."""
    chosen = dealt(ways, lines, each)
    return [(way, line) for way in ways for line in lines if (way, line) not in chosen]


# Each of the eight with the options that touch RC: words, and what the rows must show. Both sides
# of a latency spin, and those of other cases beside them: a round trip takes milliseconds then. So
# one of a kind wraps its queues, and others make fewer.
LATENCY = [
    'ib_{op}_lat -c RC -s 8 -n 1000',
    'ib_{op}_lat -s 1 -n 200',
    'ib_{op}_lat -s 4096 -n 200 -m 1024',
    'ib_{op}_lat -s 65536 -n 100',
    'ib_{op}_lat -s 1048576 -n 20',
    'ib_{op}_lat -s 8 -n 200 --use_old_post_send',
    'ib_{op}_lat -s 64 -D 1',
]
# With several QPs, -n is a multiple of the CQ moderation (the least of 100 and -t): perftest counts
# a shorter last group as a whole one, and with other QPs behind then stops polling too early, on
# any device.
BANDWIDTH = [
    'ib_{op}_bw -c RC -s 65536 -n 1000',
    'ib_{op}_bw -s 2 -n 2000 -t 16',
    'ib_{op}_bw -s 4096 -n 1000 -t 1',
    'ib_{op}_bw -s 4096 -n 2000 -q 4',
    'ib_{op}_bw -s 64 -n 4992 -q 16 -t 32',
    'ib_{op}_bw -s 64 -n 3200 -l 32 -t 128',
    'ib_{op}_bw -s 4096 -n 1000 -Q 1',
    'ib_{op}_bw -s 4096 -n 1000 -Q 50 -t 100',
    'ib_{op}_bw -s 4096 -n 1000 -b',
    'ib_{op}_bw -s 512 -n 1000 -b -q 3',
    'ib_{op}_bw -s 4096 -D 1',
    'ib_{op}_bw -s 4096 -D 1 -b -q 2',
    'ib_{op}_bw -s 8388608 -n 10',
    'ib_{op}_bw -s 4096 -n 1000 --use_old_post_send',
    'ib_{op}_bw -s 4096 -n 1000 --mr_per_qp -q 2',
]
OPERATIONS = ('write', 'read', 'send')
EACH = [*LATENCY, *BANDWIDTH]


def of(op, chosen):
    return [line.format(op=op) for one, line in chosen if one == op]


FEW, MORE = dealt(OPERATIONS, EACH), left(OPERATIONS, EACH)
TABLES = {
    **{f'{op}_more': of(op, MORE) for op in OPERATIONS},
    'write': [
        *of('write', FEW),
        'ib_write_lat -s 8 -n 200 -I 64',
        'ib_write_bw -s 64 -n 2000 -I 64',
    ],
    'read': [
        *of('read', FEW),
        'ib_read_lat -s 8 -n 200 -o 1',
        'ib_read_bw -s 4096 -n 1000 -o 4',
        'ib_read_lat -s 8 -n 1000 -e',
        'ib_read_bw -s 4096 -n 1000 -e',
        'ib_read_bw -s 512 -n 1000 -b -q 3 -e',
    ],
    'send': [
        *of('send', FEW),
        'ib_send_lat -s 8 -n 1000 -e',
        'ib_send_lat -s 8 -n 200 -r 16',
        'ib_send_bw -s 64 -n 2000 -I 64',
        'ib_send_bw -s 4096 -n 1000 -e',
        'ib_send_bw -s 512 -n 1000 -b -q 3 -e',
        'ib_send_bw -s 4096 -n 2000 -r 8 -t 64',
        'ib_send_bw -s 64 -n 3200 -l 16 --recv_post_list=16 -t 64 -r 64',
        'ib_send_lat -s 64 -n 200 --use-srq',
        'ib_send_bw -s 4096 -n 1000 --use-srq',
        'ib_send_bw -s 64 -n 1000 --use-srq -q 4',
        'ib_send_bw -s 8192 -n 1000 --use-srq -q 4 -e',
    ],
    'uc': [
        'ib_write_lat -c UC -s 8 -n 1000',
        'ib_write_lat -c UC -s 65536 -n 100',
        'ib_write_lat -c UC -s 8 -n 200 --use_old_post_send',
        'ib_write_bw -c UC -s 65536 -n 1000',
        'ib_write_bw -c UC -s 64 -n 4992 -q 16 -t 32',
        'ib_write_bw -c UC -s 64 -n 3200 -l 32 -t 128',
        'ib_write_bw -c UC -s 512 -n 1000 -b -q 3',
        'ib_write_bw -c UC -s 64 -n 2000 -I 64',
        'ib_write_bw -c UC -s 4096 -D 1',
        'ib_send_lat -c UC -s 8 -n 1000',
        'ib_send_lat -c UC -s 4096 -n 500 -e',
        'ib_send_lat -c UC -s 65536 -n 100',
        'ib_send_lat -c UC -s 8 -n 200 --use_old_post_send',
        'ibv_uc_pingpong -g 0',
        'ibv_uc_pingpong -g 1 -e',
        'ibv_uc_pingpong -g 1 -s 1',
        'ibv_uc_pingpong -g 1 -s 1048576 -n 100',
        'ibv_uc_pingpong -g 1 -m 256 -n 2000',
        # Nothing holds a sender back, so a receive must be there for each message, or some are
        # lost, as on any device.
        'ib_send_bw -c UC -s 4096 -n 500 -r 512',
        'ib_send_bw -c UC -s 512 -n 500 -r 512 -b -q 3',
        'ib_send_bw -c UC -s 4096 -n 500 -r 512 -e',
    ],
    # As for UC: a receive for each message. perftest takes no multicast group with an IPv4 GID.
    'ud': [
        'ibv_ud_pingpong -g 0 -s 2048',
        'ibv_ud_pingpong -g 1 -s 2048 -e',
        'ibv_ud_pingpong -g 1 -s 1',
        'ibv_ud_pingpong -g 1 -s 4096 -n 2000',
        'ibv_ud_pingpong -g 3 -s 512',
        'ib_send_lat -c UD -s 8 -n 1000',
        'ib_send_lat -c UD -s 4096 -n 200',
        'ib_send_lat -c UD -s 64 -n 500 -e',
        'ib_send_lat -c UD -s 8 -n 200 --use_old_post_send',
        'ib_send_lat -c UD -s 64 -n 200 --use-srq',
        'ib_send_lat -c UD -s 64 -n 200 -I 64',
        'ib_send_lat -c UD -s 64 -n 200 -x 3',
        'ib_send_lat -c UD -s 64 -n 200 -x 0',
        'ib_send_bw -c UD -s 64 -n 500 -r 512',
        'ib_send_bw -c UD -s 4096 -n 500 -r 512 -b',
        'ib_send_bw -c UD -s 4096 -n 500 -r 512 -e',
        'ib_send_bw -c UD -s 64 -n 500 -r 512 -q 4',
        'ib_send_bw -c UD -s 64 -n 500 -r 512 --use-srq',
        'ib_send_bw -c UD -s 64 -n 500 -r 512 -g -x 3',
        'ib_send_lat -c UD -s 64 -n 200 -g -x 3',
    ],
    'xrc': [
        'ibv_xsrq_pingpong -g 0 -n 1000',
        'ibv_xsrq_pingpong -g 1 -e -n 500',
        'ibv_xsrq_pingpong -g 1 -s 65536',
        'ib_write_lat -c XRC -s 8 -n 1000',
        'ib_write_lat -c XRC -s 65536 -n 100',
        'ib_write_bw -c XRC -s 65536 -n 1000',
        'ib_write_bw -c XRC -s 1024 -n 1600 -b -q 4 -l 4',
        'ib_read_lat -c XRC -s 8 -n 200',
        'ib_read_bw -c XRC -s 65536 -n 1000',
        'ib_read_bw -c XRC -s 4096 -n 1000 -e',
        'ib_atomic_lat -c XRC -n 200',
        'ib_atomic_bw -c XRC -n 2000',
        'ib_send_lat -c XRC -s 8 -n 1000',
        'ib_send_lat -c XRC -s 8 -n 500 -e',
        'ib_send_lat -c XRC -s 65536 -n 100',
        'ib_send_bw -c XRC -s 4096 -n 1000',
        'ib_send_bw -c XRC -s 4096 -n 1000 -e',
        'ib_send_bw -c XRC -s 512 -n 1000 -b -q 3',
        'ib_send_bw -c XRC -s 64 -n 3200 -l 16 --use_old_post_send',
        'ib_send_bw -c XRC -s 4096 -D 1',
    ],
    # For each size perftest measures the processor's clock, which takes it a quarter of a second,
    # and the other side spins.
    'sizes': ['ib_write_bw -a -n 5'],
    'sizes_more': [
        'ib_send_bw -c UD -a -n 500 -r 512',
        'ib_send_lat -c UD -a -n 50',
        'ib_send_lat -a -n 5',
        'ib_write_lat -a -n 5',
        'ib_send_bw -a -n 5',
        'ib_read_lat -a -n 5',
        'ib_read_bw -a -n 5',
    ],
    'atomic': [
        'ib_atomic_lat -n 1000',
        'ib_atomic_lat -n 200 -A CMP_AND_SWAP',
        'ib_atomic_lat -n 500 -e',
        'ib_atomic_lat -D 1',
        'ib_atomic_bw -n 2000',
        'ib_atomic_bw -n 2000 -A CMP_AND_SWAP',
        'ib_atomic_bw -n 2000 -A FETCH_AND_ADD -q 4',
        'ib_atomic_bw -n 1000 -e',
        'ib_atomic_bw -n 1000 -b',
        'ib_atomic_bw -n 3200 -l 8',
        'ib_atomic_bw -n 1000 -o 1',
        'ib_atomic_bw -n 1000 -Q 1 -t 8',
        'ib_atomic_bw -D 1',
    ],
    'pingpong': [
        'ibv_rc_pingpong -g 0',
        'ibv_rc_pingpong -g 1 -c',
        'ibv_rc_pingpong -g 1 -e -c',
        'ibv_rc_pingpong -g 1 -s 1 -c',
        'ibv_rc_pingpong -g 1 -s 0',
        'ibv_rc_pingpong -g 1 -s 1048576 -n 100 -c',
        'ibv_rc_pingpong -g 1 -m 256',
        'ibv_rc_pingpong -g 1 -m 4096 -n 5000',
        'ibv_rc_pingpong -g 1 -r 1 -n 200',
        'ibv_rc_pingpong -g 1 -n 1 -c',
        'ibv_rc_pingpong -g 1 -N -c',
        'ibv_rc_pingpong -g 1 -N -e',
        'ibv_rc_pingpong -g 1 -o -c',
        'ibv_rc_pingpong -g 1 -O -c',
        'ibv_rc_pingpong -g 1 -o -P -c',
        'ibv_rc_pingpong -g 1 -l 3',
        'ibv_srq_pingpong -g 0',
        'ibv_srq_pingpong -g 1 -c -q 4',
        'ibv_srq_pingpong -g 1 -e -c',
        'ibv_srq_pingpong -g 1 -q 1 -s 64',
        'ibv_srq_pingpong -g 1 -s 65536 -n 200 -q 8',
        'ibv_srq_pingpong -g 1 -m 256 -r 100',
    ],
}
# One of each kind, where a case is about who and where rather than about options.
# Few round trips: where a peer's engine has to copy, each waits for a processor that both programs
# spin on.
SAMPLE = [
    'ib_write_lat -s 8 -n 100',
    'ib_write_bw -s 65536 -n 500',
    'ib_read_bw -s 65536 -n 500',
    'ib_send_lat -s 256 -n 100',
    'ib_send_bw -s 4096 -n 500 -e',
    'ib_send_bw -s 4096 -n 500 --use-srq',
    'ib_atomic_bw -n 500',
    'ibv_rc_pingpong -g 1 -c -n 200',
    'ibv_srq_pingpong -g 1 -c -q 2 -n 200',
]
# Over packets: as SAMPLE, and datagrams; a path MTU each.
PACKETS = [
    *SAMPLE,
    'ib_read_lat -s 64 -n 100 -m 256',
    'ib_write_bw -s 1000003 -n 30 -b -q 3',
    'ib_send_bw -s 65537 -n 200 -m 2048',
    'ib_atomic_bw -n 200 -A CMP_AND_SWAP',
    'ibv_uc_pingpong -g 1 -n 500',
    'ibv_ud_pingpong -g 1 -n 500',
    'ibv_ud_pingpong -g 1 -e -n 200',
    'ibv_rc_pingpong -g 1 -e -n 500',
    'ibv_rc_pingpong -g 1 -s 1048576 -n 50 -c',
]
# Reliable ones, over a network that loses, copies and reorders in both directions.
LOSSY = [
    'ib_write_bw -s 65536 -n 300',
    'ib_read_bw -s 65536 -n 300 -e',
    'ib_send_bw -s 4096 -n 500 -e',
    'ib_send_bw -s 4096 -n 500 -e --use-srq',
    'ib_atomic_bw -n 500 -e',
    'ibv_rc_pingpong -g 1 -e -c -n 300',
    'ibv_srq_pingpong -g 1 -e -c -q 2 -n 300',
    'ibv_rc_pingpong -g 1 -e -c -s 1048576 -n 20',
]
