# SPDX-License-Identifier: BSD-2-Clause
"""Programs of librdmacm whose clients end in any way: the server is our own, cm_server.c."""
import contextlib
import os
import shlex
import signal
import time

import cm
import hosts
import pair
import ports
from pair import Failure, Process

TOLD_S = 20  # until the end of a process is known on the other host
SERVER = os.path.join(os.path.dirname(os.path.abspath(__file__)), 'cm_server.c')


def await_text(process, text, patience_s):
    limit = time.monotonic() + patience_s
    while text not in process.text():
        if process.child.poll() is not None or time.monotonic() > limit:
            raise Failure(f'no {text} of {process.words}\n{process.text()}')
        time.sleep(0.01)


@contextlib.contextmanager
def serving(tools, address, wrap=(), **options):
    """Our own server, which outlives whatever its clients do, and its port."""
    program = tools.build(
        *'cm_server cc -O2 -Wall -Wextra -Werror -D_GNU_SOURCE'.split(),
        SERVER,
        *'-lrdmacm -libverbs'.split(),
    )
    port = ports.claim()
    server = Process(tools.run(program, address, str(port), wrap=wrap, **options))
    try:
        limit = time.monotonic() + pair.PATIENCE_S
        while not cm.is_ready('tcp', port, server.child.pid):
            if server.child.poll() is not None or time.monotonic() > limit:
                raise Failure('the server does not listen')
            time.sleep(0.01)
        yield server, port
        if server.child.poll() is not None:
            raise Failure('the server has ended')
    except (Failure, OSError) as failure:
        raise Failure(f'{failure}\n--- server\n{server.text()}') from failure
    finally:
        server.end()


def kill_client(tools, two, server, port):
    """One that says nothing more."""
    words = shlex.split(f'rping -c -a {hosts.ADDRESSES[1]} -p {port} -d')
    client = Process(tools.run(*words, wrap=two.wrap[0]))
    try:
        await_text(client, 'ESTABLISHED', pair.PATIENCE_S)
        time.sleep(cm.SETTLE_S)
        client.child.send_signal(signal.SIGSTOP)
        time.sleep(cm.SETTLE_S)
        if 'DISCONNECTED' in server.text():
            raise Failure('the client is taken for dead while it is stopped')
    finally:
        client.end()


def killed_client(tools):
    """A client that says nothing more is killed; another process of its host, with no connection of
    its own, tells the server on the other."""
    two = hosts.Hosts()
    try:
        with serving(tools, hosts.ADDRESSES[0], two.wrap[0]):
            with serving(tools, hosts.ADDRESSES[1], two.wrap[1]) as (server, port):
                kill_client(tools, two, server, port)
                await_text(server, 'DISCONNECTED', TOLD_S)
    finally:
        two.close()


def host_cases():
    return [('a client is killed', cm.needs('rping', killed_client))]
