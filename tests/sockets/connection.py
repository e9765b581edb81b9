# SPDX-License-Identifier: BSD-2-Clause
"""A connection of a process with itself, and what the cases about sockets do with it."""
import json
import os
import socket
import subprocess
import sys
import time

SIDEWIRE = os.path.join(os.environ['SIDEWIRE_BUILD'], 'src/cli/sidewire')
SOON_S = 0.15  # long enough for what must not come
LATE_S = 20  # what must come has come by then
WAY = sys.argv[1] if len(sys.argv) > 1 else ''


def ways():
    """The ways of this process's connections, as `sidewire status` has them."""
    said = subprocess.run(
        [SIDEWIRE, 'status', '--json', str(os.getpid())],
        capture_output=True,
        text=True,
        close_fds=True,
    )
    return [row['way'] for row in json.loads(said.stdout)['sockets'] if row['kind'] != 'listen']


class Pair:
    """A connection of this process with itself; `near` has called, `far` was called."""

    def __init__(self, family=socket.AF_INET, address='127.0.0.1', check=False):
        self.listener = socket.socket(family)
        self.listener.bind((address, 0))
        self.listener.listen(8)
        self.near = socket.socket(family)
        self.near.connect(self.listener.getsockname())
        self.far, self.peer = self.listener.accept()
        if check and WAY == 'rdma':
            assert ways() == ['rdma direct'] * 2, ways()
        self.near.settimeout(LATE_S)
        self.far.settimeout(LATE_S)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for one in (self.near, self.far, self.listener):
            one.close()


def fill(sender):
    """Sends until there is no more room; returns how much."""
    sender.setblocking(False)
    total = 0
    while True:
        try:
            total += sender.send(b'x' * 65536)
        except BlockingIOError:
            return total


def drain(receiver, size):
    receiver.setblocking(True)
    receiver.settimeout(LATE_S)
    left = size
    while left:
        got = len(receiver.recv(min(left, 1 << 20)))
        assert got, f'{left} of {size} bytes are missing'
        left -= got


def listens_by_rdma(port):
    with open('/proc/self/net/unix', encoding='ascii', errors='replace') as lines:
        return f'@sidewire.cm.s106{port:04x}.' in lines.read()


def until(condition):
    limit = time.monotonic() + LATE_S
    while not condition():
        assert time.monotonic() < limit, 'it does not come'
        time.sleep(0.002)
