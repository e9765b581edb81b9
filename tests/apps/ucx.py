# SPDX-License-Identifier: BSD-2-Clause
"""UCX on our device: its transports are verbs programs of another make than perftest, and
ucx_perftest drives each of their operations."""
import re
import shutil

import pair

# Operation, layout of the data (-D), message sizes.
RC_VERBS = [
    ('put_lat', 'short', (8,)),
    ('put_lat', 'bcopy', (2000,)),
    ('put_lat', 'zcopy', (100, 65536)),
    ('put_bw', 'short', (8,)),
    ('put_bw', 'zcopy', (65536,)),
    ('get', 'bcopy', (64,)),
    ('get', 'zcopy', (4096, 262144)),
    ('am_lat', 'short', (8,)),
    ('am_lat', 'bcopy', (2000,)),
    ('am_bw', 'zcopy', (4096,)),
    ('add_mr', None, (8,)),
    ('add_lat', None, (8,)),
    ('fadd', None, (8,)),
    ('cswap', None, (8,)),
]
# The same by datagrams, which have neither one-sided operations nor atomics.
UD_VERBS = [
    ('am_lat', 'short', (8, 100)),
    ('am_lat', 'bcopy', (2000, 4000)),
    ('am_lat', 'zcopy', (4000,)),
    ('am_bw', 'bcopy', (2000,)),
    ('am_bw', 'zcopy', (2000,)),
]
ITERATIONS = 500


def run(tools, words, **options):
    words = ['ucx_perftest', '-n', str(ITERATIONS), '-w', '10', *words]
    one = pair.Pair(
        tools,
        words,
        wrap=('env', 'UCX_WARN_UNUSED_ENV_VARS=n', *options.pop('settings', ())),
        **options,
    )
    for name, text in zip(('server', 'client'), one.run()):
        if ' ERROR ' in text or ' WARN ' in text or 'sidewire[' in text:
            one.fail(f'{name} says something')
        final = [line.split() for line in text.splitlines() if line.startswith('Final:')]
        if name == 'client' and (len(final) != 1 or int(final[0][1]) != ITERATIONS):
            one.fail('no result')


def transport_case(transport, operation, layout, size):
    words = ['-d', 'sw_lo:1', '-x', transport, '-t', operation, '-s', str(size)]
    return lambda tools: run(tools, [*words, '-D', layout] if layout else words)


# The whole of UCX, which then finds its peer by UD. By UD alone a put or an atomic is a message
# that waits for the other's timers.
PROTOCOL = {
    'rc_verbs,ud_verbs': [
        *'tag_lat tag_bw ucp_put_lat ucp_put_bw ucp_get ucp_fadd ucp_cswap stream_bw'.split()
    ],
    'ud_verbs': ['tag_lat', 'tag_bw', 'ucp_put_bw', 'stream_bw'],
}


def protocol_case(transports, operation, gid):
    words = ['-t', operation, '-s', '8' if operation in ('ucp_fadd', 'ucp_cswap') else '20000']
    settings = [f'UCX_TLS={transports}', 'UCX_NET_DEVICES=sw_lo:1', f'UCX_IB_GID_INDEX={gid}']
    return lambda tools: run(tools, words, settings=settings)


def listing(tools):
    """`ucx_info -d` finds both transports on our device, and what rc_verbs must be able to do."""
    if not shutil.which('ucx_info'):
        raise pair.Skip('ucx_info is not installed')
    text = tools.output('ucx_info', '-d')
    for transport, able in (
        ('rc_verbs', r'put_zcopy: +.*get_zcopy: +.*atomic_fadd: +64 bit'),
        ('ud_verbs', r'am_zcopy: +'),
    ):
        part = re.search(
            rf'Transport: {transport}\n#\s+Device: sw_lo:1\n(.*?)(?=Transport:|Memory domain:|\Z)',
            text,
            re.S,
        )
        if not part or not re.search(able, part[1], re.S):
            raise pair.Failure(f'{transport}: {able} is missing in\n{text}')


def cases():
    found = [('ucx_info -d', listing)]
    found += [
        (f'{transports} {operation} GID {gid}', protocol_case(transports, operation, gid))
        for transports, operations in PROTOCOL.items()
        for operation in operations
        for gid in ((1, 3) if operation == 'tag_lat' else (1,))
    ]
    return found + [
        (
            f'{transport} {operation} {layout or ""} {size}',
            transport_case(transport, operation, layout, size),
        )
        for transport, table in (('rc_verbs', RC_VERBS), ('ud_verbs', UD_VERBS))
        for operation, layout, sizes in table
        for size in sizes
    ]
