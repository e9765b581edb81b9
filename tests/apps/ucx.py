# SPDX-License-Identifier: BSD-2-Clause
"""UCX on our device: its transports are verbs programs of another make than perftest, and ucx_perftest drives each of their operations."""
import pair

# Operation, layout of the data (-D), message sizes.
RC_VERBS = [
    ('put_lat', 'short', (8,)), ('put_lat', 'bcopy', (2000,)), ('put_lat', 'zcopy', (100, 65536)),
    ('put_bw', 'short', (8,)), ('put_bw', 'zcopy', (65536,)), ('get', 'bcopy', (64,)), ('get', 'zcopy', (4096, 262144)),
    ('am_lat', 'short', (8,)), ('am_lat', 'bcopy', (2000,)), ('am_bw', 'zcopy', (4096,)),
    ('add_mr', None, (8,)), ('add_lat', None, (8,)), ('fadd', None, (8,)), ('cswap', None, (8,)),
]
ITERATIONS = 500


def run(tools, words, **options):
    words = ['ucx_perftest', '-n', str(ITERATIONS), '-w', '10', *words]
    one = pair.Pair(tools, words, wrap=('env', 'UCX_WARN_UNUSED_ENV_VARS=n', *options.pop('settings', ())), **options)
    for name, text in zip(('server', 'client'), one.run()):
        if ' ERROR ' in text or ' WARN ' in text or 'sidewire[' in text:
            one.fail(f'{name} says something')
        final = [line.split() for line in text.splitlines() if line.startswith('Final:')]
        if name == 'client' and (len(final) != 1 or int(final[0][1]) != ITERATIONS):
            one.fail('no result')


def transport_case(operation, layout, size):
    words = ['-d', 'sw_lo:1', '-x', 'rc_verbs', '-t', operation, '-s', str(size)]
    return lambda tools: run(tools, [*words, '-D', layout] if layout else words)


# The whole of UCX, which then finds its peer by UD. By UD alone a put or an atomic is a message that waits for the other's timers.
PROTOCOL = {
    'rc_verbs,ud_verbs': ['tag_lat', 'tag_bw', 'ucp_put_lat', 'ucp_put_bw', 'ucp_get', 'ucp_fadd', 'ucp_cswap', 'stream_bw'],
    'ud_verbs': ['tag_lat', 'tag_bw', 'ucp_put_bw', 'stream_bw'],
}


def protocol_case(transports, operation, gid):
    words = ['-t', operation, '-s', '8' if operation in ('ucp_fadd', 'ucp_cswap') else '20000']
    settings = [f'UCX_TLS={transports}', 'UCX_NET_DEVICES=sw_lo:1', f'UCX_IB_GID_INDEX={gid}']
    return lambda tools: run(tools, words, settings=settings)


def cases():
    found = [(f'{transports} {operation} GID {gid}', protocol_case(transports, operation, gid))
             for transports, operations in PROTOCOL.items() for operation in operations
             for gid in ((1, 3) if operation == 'tag_lat' else (1,))]
    return found + [(f'rc_verbs {operation} {layout or ""} {size}', transport_case(operation, layout, size))
            for operation, layout, sizes in RC_VERBS for size in sizes]
