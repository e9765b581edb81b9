# SPDX-License-Identifier: BSD-2-Clause
"""Unmodified programs in pairs under `sidewire run`: as other users, in namespaces, and with rungs
of the ladder refused."""
import concurrent.futures
import contextlib
import os
import shutil
import subprocess
import sys
import time

import harness
import ports
from harness import CLI, DENY, Skip, expect, run

CMA = 'process_vm_readv,process_vm_writev'
PROGRAM = ['ib_write_bw', '-d', 'sw_lo', '-s', '65536', '-n', '500', '-F']
CONNECT_S = 20


def is_listening(port):
    """Whether someone listens on the TCP port, without connecting: the server takes one client
    only."""
    for table in ('/proc/net/tcp', '/proc/net/tcp6'):
        with open(table, encoding='ascii') as lines:
            for fields in map(str.split, lines):
                if fields[1].endswith(f':{port:04X}') and fields[3] == '0A':
                    return True
    return False


@contextlib.contextmanager
def server(*words, port):
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith('SIDEWIRE_')
    }
    child = subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
    )
    try:
        limit = time.monotonic() + CONNECT_S
        while not is_listening(port) and child.poll() is None and time.monotonic() < limit:
            time.sleep(0.02)
        yield child
    finally:
        if child.poll() is None:
            child.kill()
        child.communicate()


def pair(before=(), command=CLI, program=None, options=()):
    """Runs server and client of a program with the words `before` in front of each; both must
    succeed and warn of nothing."""
    program = program or PROGRAM
    if not shutil.which(program[0]):
        raise Skip(f'{program[0]} is not installed')
    port = ports.claim()
    words = [*before, command, 'run', *options, '--', *program, '-p', str(port)]
    with server(*words, port=port) as child:
        client = run(*words, '127.0.0.1')
        expect(client.returncode == 0, 'client:', client.stdout, client.stderr)
        output, _ = child.communicate(timeout=harness.PATIENCE_S)
        expect(child.returncode == 0, 'server:', output)
        expect('sidewire' not in client.stderr, client.stderr)


def at_once(*each):
    """Several pairs beside each other, as perftest sleeps for most of its time."""
    with concurrent.futures.ThreadPoolExecutor(len(each)) as pool:
        for _ in pool.map(lambda options: pair(**options), each):
            pass


def pair__runs():
    pair()


def pair__pingpong():
    pair(program=['ibv_rc_pingpong', '-d', 'sw_lo', '-g', '1', '-n', '200'])


def pair__each_rung():
    at_once(
        *({'options': ['--direct', rung]} for rung in ('mapped', 'cma', 'ring', 'auto')),
        {'options': ['--adopt', 'never']},
    )


def pair__userfaultfd_refused():
    pair(before=[DENY, 'userfaultfd', '--'])


def pair__memfd_refused():
    pair(before=[DENY, 'memfd_create', '--'])


def pair__cma_refused():
    at_once(*({'before': [DENY, '-e', code, CMA, '--']} for code in ('EPERM', 'ENOSYS')))


def pair__all_but_the_ring_refused():
    pair(before=[DENY, f'userfaultfd,memfd_create,{CMA}', '--'])


def pair__as_nobody():
    with harness.public_copy() as copy:
        pair(before=harness.as_nobody(), command=os.path.join(copy, 'src/cli/sidewire'))


def pair__two_users_side_by_side():
    with harness.public_copy() as copy:
        command = os.path.join(copy, 'src/cli/sidewire')
        port = ports.claim()
        words = [command, 'run', '--', *PROGRAM, '-p', str(port)]
        with server(*harness.as_nobody(*words), port=port) as child:
            pair(command=command)  # root's, while nobody's server waits
            client = run(*harness.as_nobody(*words, '127.0.0.1'))
            expect(client.returncode == 0, client.stdout, client.stderr)
            child.communicate(timeout=harness.PATIENCE_S)
            expect(child.returncode == 0)


def both_in(words, command, set_up='true'):
    """Server and client in one namespace that `words` make."""
    port = ports.claim()
    text = f'{command} run -- {" ".join(PROGRAM)} -p {port}'
    done = run(
        *words,
        '/bin/sh',
        '-c',
        f'{set_up}; {text} >/dev/null & for i in 1 2 3 4 5 6 7 8 9 10; do sleep 0.5; '
        f'grep -qi ":$(printf %04X {port}) .* 0A " /proc/net/tcp /proc/net/tcp6 && break; done; '
        f'{text} 127.0.0.1 && wait $!',
    )
    expect(done.returncode == 0, done.stdout, done.stderr)
    expect('sidewire' not in done.stderr, done.stderr)


def pair__in_user_namespaces():
    if run('unshare', '--user', 'true').returncode:
        raise Skip('user namespaces are not allowed here')
    with harness.public_copy() as copy:
        for words in (['unshare', '--user'], ['unshare', '--user', '--map-root-user']):
            both_in(words, os.path.join(copy, 'src/cli/sidewire'))


def pair__containers_do_not_trust_each_other():
    """Processes of one user ID which may not look into each other, as the kernel has it."""
    if os.geteuid() or run('unshare', '--user', '--map-root-user', 'true').returncode:
        raise Skip('other containers are made by root, with user namespaces')
    if not shutil.which('rping'):
        raise Skip('rping is not installed')
    capless = ['setpriv', '--inh-caps=-all', '--bounding-set=-all']
    with harness.public_copy() as copy:
        for words in (
            ['unshare', '--user', '--map-root-user'],
            ['unshare', '--pid', '--fork', '--mount-proc'],
            ['unshare', '--pid', '--fork', '--mount-proc', *capless],
            capless,
        ):
            port = ports.claim()
            program = [
                os.path.join(copy, 'src/cli/sidewire'),
                *'run --link direct --'.split(),
                *PROGRAM,
                '-p',
                str(port),
            ]
            with server(*program, port=port):
                client = run(*words, *program, '127.0.0.1')
            expect(client.returncode != 0, words, client.stdout)
            expect(
                'no direct connection with' in client.stderr, words, client.stdout, client.stderr
            )
            expect(
                'Failed status 12' in client.stdout + client.stderr,
                words,
                client.stdout,
                client.stderr,
            )
        port = ports.claim()
        managed = [
            os.path.join(copy, 'src/cli/sidewire'),
            *f'run --link direct -- rping -C 3 -p {port}'.split(),
        ]
        server_side = subprocess.Popen(
            [*managed, '-s', '-a', '127.0.0.1'],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            time.sleep(0.5)
            refused = run(*capless, *managed, '-c', '-a', '127.0.0.1')
            expect(refused.returncode != 0, refused.stdout, refused.stderr)
            expect('no direct connection with' in refused.stderr, refused.stdout, refused.stderr)
            trusted = run(*managed, '-c', '-a', '127.0.0.1')
            expect(trusted.returncode == 0, trusted.stdout, trusted.stderr)
        finally:
            server_side.kill()
            server_side.wait()


SQUATTER = """
import resource, socket, sys, time
resource.setrlimit(resource.RLIMIT_NOFILE, resource.getrlimit(resource.RLIMIT_NOFILE)[1:] * 2)
held = []
def bind(name, kind=socket.SOCK_DGRAM):
    sock = socket.socket(socket.AF_UNIX, kind)
    try:
        sock.bind(b'\\0sidewire.' + name.encode())
    except OSError:
        return
    if kind == socket.SOCK_SEQPACKET:
        sock.listen(4)
    held.append(sock)
for slot in range(1, 2047):
    bind(f'{slot}', socket.SOCK_SEQPACKET)
    bind(f'{slot}.roce')
    bind(f'{slot}.cm', socket.SOCK_SEQPACKET)
for space in ('106', '111', '13f', '2'):
    for block in range(882):
        bind(f'cm.b{space}.{block}')
    bind(f'cm.s{int(space, 16) << 16 | int(sys.argv[1]):x}.any', socket.SOCK_SEQPACKET)
    bind(f'cm.p{space}.{sys.argv[1]}.' + '0' * 32 + '.0.1.0')
bind('cm.lock', socket.SOCK_SEQPACKET)
print(len(held), flush=True)
time.sleep(1000)
"""


def pair__beside_a_squatter():
    """Another user has bound every name that can be guessed."""
    if os.geteuid() or not shutil.which('rping'):
        raise Skip('another user is made by root, and rping is needed')
    with ports.Only('every-name'):  # a second one would find them taken
        pair_beside_a_squatter(ports.claim())


def pair_beside_a_squatter(port):
    child = subprocess.Popen(
        (
            'prlimit',
            '--nofile=16384:16384',
            *harness.as_nobody('/usr/bin/python3', '-c', SQUATTER, str(port)),
        ),
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        expect(int(child.stdout.readline()) > 6000)
        pair()
        pair(options=['--link', 'roce'])
        words = [CLI, 'run', '--', 'rping', '-C', '3', '-a', '127.0.0.1', '-p', str(port)]
        began = time.monotonic()
        with subprocess.Popen(
            [*words, '-s'], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        ) as listener:
            time.sleep(0.5)
            client = run(*words, '-c')
            expect(client.returncode == 0, client.stdout, client.stderr)
            expect(listener.wait(timeout=harness.PATIENCE_S) == 0, listener.stdout.read())
        expect('keeps the names' not in client.stderr, client.stderr)
        expect(time.monotonic() - began < 20)
    finally:
        child.kill()
        child.wait()


def pair__a_client_is_told_of_another_users_server():
    """Its connection is refused as if nobody served."""
    if os.geteuid() or not shutil.which('rping'):
        raise Skip('another user is made by root, and rping is needed')
    words = [CLI, 'run', '--', 'rping', '-C', '1', '-a', '127.0.0.1', '-p', str(ports.claim())]
    with subprocess.Popen([*words, '-s'], stderr=subprocess.DEVNULL) as listener:
        limit = time.monotonic() + harness.PATIENCE_S
        try:
            told = ''
            while 'listened to by user 0' not in told:  # the server may not have begun
                expect(time.monotonic() < limit, told)
                told = run(*harness.as_nobody(*words, '-c')).stderr
            expect(told.count('listened to by user') == 1, told)
        finally:
            listener.kill()


def pair__in_a_network_namespace():
    if run('unshare', '--user', '--map-root-user', '--net', 'true').returncode:
        raise Skip('user or network namespaces are not allowed here')
    both_in(['unshare', '--user', '--map-root-user', '--net'], CLI, set_up='ip link set lo up')


HOLDER = """
import os, socket, subprocess, sys

with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as held:
    held.bind(('0.0.0.0', 4791))
    program = subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL, stderr=subprocess.PIPE)
    print(os.getpid(), program.stderr.readline().decode())
    program.kill()
"""


def pair__a_server_is_told_who_holds_the_port():
    """That of IPv4 alone: the port of IPv6 is there, so that of packets opens."""
    own = ['unshare', '--net'] if not os.geteuid() else ['unshare', '-Urn']
    if run(*own, 'true').returncode:
        raise Skip('no network of its own')
    script = 'ip link set lo up && ip address add 10.77.0.1/32 dev lo && exec "$0" "$@"'
    serve = [CLI, 'run', '--', 'rping', '-s', '-a', '10.77.0.1']
    done = run(*own, 'sh', '-c', script, sys.executable, '-c', HOLDER, *serve)
    pid, _, told = done.stdout.partition(' ')
    expect('UDP port 4791 of IPv4' in told and f'process {pid} ' in told, done)


if __name__ == '__main__':
    sys.exit(harness.main(globals()))
