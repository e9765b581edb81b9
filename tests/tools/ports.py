# SPDX-License-Identifier: BSD-2-Clause
"""Ports for tests that run beside each other in one network: no two have the same at a time.

The owner of a port has an abstract socket with its number in the name. It is gone with the process,
so nothing is left of a test that was killed. Another network has names of its own, as it has ports
of its own.
"""
import random
import socket
import time

# Below those that the kernel gives to who asks for any (ip_local_port_range)
LOWEST, HIGHEST = (10000, 30000)
PATIENCE_S = 120

holds = {}  # from a port to the socket that shows that it is ours


def take(port):
    """Whether the port is this process's from now on."""
    shown = socket.socket(socket.AF_UNIX)
    try:
        shown.bind(f'\0sidewire-test.port.{port}')
    except OSError:
        shown.close()
        return False
    holds[port] = shown
    return True


def release(port):
    holds.pop(port).close()


def is_bound(port):
    """Whether somebody has it who knows nothing of this."""
    for kind in socket.SOCK_STREAM, socket.SOCK_DGRAM:
        with socket.socket(socket.AF_INET, kind) as probe:
            try:
                probe.bind(('', port))
            except OSError:
                return True
    return False


def claim(count=1):
    """The first of so many ports in a row. They are this process's until it ends, so no call
    returns one twice."""
    while True:
        first = random.randrange(LOWEST, HIGHEST - count)
        taken = []
        for port in range(first, first + count):
            if not take(port):
                break
            taken.append(port)
        if len(taken) == count and not any(map(is_bound, taken)):
            return first
        for port in taken:
            release(port)


class Only:
    """Around a program whose port cannot be chosen: waits until no other test has it."""

    def __init__(self, port):
        self.port = port

    def __enter__(self):
        limit = time.monotonic() + PATIENCE_S
        while not take(self.port):
            if time.monotonic() > limit:
                raise TimeoutError(f'another test has port {self.port}')
            time.sleep(0.02)

    def __exit__(self, *_):
        release(self.port)
