# SPDX-License-Identifier: BSD-2-Clause
"""What is measured of TCP programs over RDMA: `sidewire run --sockets` beside the kernel's TCP."""

import csv
import re
import tempfile
import time

import procs
from experiment import Experiment
from programs import CLIENT_CPU, SERVER_CPU, pin

VALUE = 1024
CLIENTS = 50  # as redis-benchmark has it by default
TESTS = ('SET', 'GET')

# title, ours, peer, at least, aim
PLAN = tuple(
    (f'redis-benchmark -P 1 -d 1024 {test}, and TCP', f'RDMA {test}', f'TCP {test}', 1.3, 2.5)
    for test in TESTS
) + tuple(
    (f'  {test}, one client', f'RDMA {test}, one', f'TCP {test}, one', None, None) for test in TESTS
)
ROWS = [
    (title, 'redis', ours, peer, 'rate', 'op/s', False, at_least, aim)
    for title, ours, peer, at_least, aim in PLAN
]


def redis(sidewire, over, test, clients, count):
    """Requests per second of redis-server and redis-benchmark, each on its core."""
    port = procs.free_port()
    words = [*sidewire.command[:-1], '--sockets', '--'] if over else []
    with tempfile.TemporaryDirectory(prefix='sidewire-redis-') as folder:
        server = procs.Child(
            [
                *pin(SERVER_CPU),
                *words,
                *f'redis-server --port {port} --bind 127.0.0.1'.split(),
                '--save',
                '',
                '--appendonly',
                'no',
                '--dir',
                folder,
            ]
        )
        client = None
        try:
            await_server(server, port, over)
            client = procs.Child(
                [
                    *pin(CLIENT_CPU),
                    *words,
                    *f'redis-benchmark -p {port}'.split(),
                    '-t',
                    test.lower(),
                    *f'-d {VALUE} -P 1 -c {clients} -n {count} --csv'.split(),
                ]
            )
            status = client.wait(60)
            if status != 0:
                raise procs.RunFailed(client.report(procs.describe_status(status)))
            if 'by tcp' in client.error_text():
                raise procs.RunFailed(client.report('went by TCP'))
            return {'rate': parse_csv(client.text(), test)}
        finally:
            if client:
                client.end()
            server.end()


def await_server(server, port, over):
    """By RDMA it listens an instant after it does by TCP."""
    procs.await_port(server, port)
    limit = time.monotonic() + 5
    while over and time.monotonic() < limit:
        with open('/proc/net/unix', encoding='ascii', errors='replace') as lines:
            if f'{port:04x}' in re.findall(procs.RDMA_LISTENER, lines.read()):
                return
        time.sleep(0.01)


def parse_csv(text, test):
    """Requests per second of that test."""
    for row in csv.reader(text.splitlines()):
        if row and row[0].startswith(test):
            try:
                return float(row[1])
            except (IndexError, ValueError):
                break
    raise procs.RunFailed(f'redis-benchmark printed no result:\n{text[-800:]}')


def experiments(bench):
    count = 200000 // bench.divide

    def run(over, test, clients=CLIENTS, share=1):
        return lambda: redis(bench.sidewire, over, test, clients, count // share)

    contenders = {}
    for test in TESTS:
        contenders.update(
            {
                f'RDMA {test}': run(True, test),
                f'TCP {test}': run(False, test),
                f'RDMA {test}, one': run(True, test, 1, 4),
                f'TCP {test}, one': run(False, test, 1, 4),
            }
        )
    return [Experiment('redis', 'redis, 1 KiB', contenders)]
