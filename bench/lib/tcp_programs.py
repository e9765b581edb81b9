# SPDX-License-Identifier: BSD-2-Clause
"""What is measured of TCP programs over RDMA: `sidewire run --sockets` beside the kernel's TCP."""

import csv
import json
import os
import re
import shutil
import tempfile
import time

import between
import procs
from experiment import Experiment
from programs import CLIENT_CPU, SERVER_CPU, connect_rate_words, pin

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
PAGE = 64 << 10
IN_FLIGHT = 8

# title, experiment, ours, peer, unit, at least, aim
# fmt: off
OTHERS = (
    ('connections per second, --sockets, and TCP', 'sockets_connections', '--sockets', 'TCP',
     'conn/s', 0.5, 1.0),
    ('  one at a time', 'sockets_connections', '--sockets, one', 'TCP, one', 'conn/s', 0.5, 1.0),
    ('hosts: connections per second, --sockets', 'hosts_sockets', '--sockets', 'TCP', 'conn/s',
     0.5, 1.0),
    ('  --sockets=hosts', 'hosts_sockets', '--sockets=hosts', 'TCP', 'conn/s', None, None),
    ('nginx, pages of 64 KiB, --sockets, and TCP', 'pages', '--sockets', 'TCP', '1/s', None, None),
    ('hosts: nginx, pages of 64 KiB, --sockets', 'hosts_pages', '--sockets', 'TCP', '1/s', 0.8,
     1.0),
    ('  --sockets=hosts', 'hosts_pages', '--sockets=hosts', 'TCP', '1/s', None, None),
)
# fmt: on
ROWS = [
    (title, 'redis', ours, peer, 'rate', 'op/s', False, at_least, aim)
    for title, ours, peer, at_least, aim in PLAN
] + [
    (title, key, ours, peer, 'rate', unit, False, at_least, aim)
    for title, key, ours, peer, unit, at_least, aim in OTHERS
]

NGINX = """daemon off; master_process off; pid {folder}/pid; error_log {folder}/errors;
events {{ worker_connections 64; }}
http {{ access_log off; sendfile on; keepalive_requests 1000000;
  client_body_temp_path {folder}/1; proxy_temp_path {folder}/2; fastcgi_temp_path {folder}/3;
  uwsgi_temp_path {folder}/4; scgi_temp_path {folder}/5;
  server {{ listen {port}; root {folder}; }} }}
"""


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
        names = f'/proc/{server.pid}/net/unix'  # of its host
        with open(names, encoding='ascii', errors='replace') as lines:
            if f'{port:04x}' in re.findall(procs.RDMA_LISTENER, lines.read()):
                return
        time.sleep(0.01)


class Here:
    """Client and server on this host, each on its core; `Between` is two hosts."""

    addresses = ('127.0.0.1', '127.0.0.1')

    def on(self, side, words):
        return [*pin(CLIENT_CPU if side == between.CLIENT else SERVER_CPU), *words]


def under(sidewire, way):
    """The words in front of a program; no way: the kernel's TCP."""
    return [*sidewire.command[:-1], f'--sockets={way}', '--'] if way else []


def connect_rate(place, bench, way, count, in_flight):
    """Connections that carry nothing, per second."""
    port = procs.free_port()
    program = connect_rate_words([], bench.source, 'tcp', port, count, in_flight)
    words = [*under(bench.sidewire, way), *program]
    text = procs.run_pair(
        place.on(between.SERVER, words),
        place.on(between.CLIENT, [*words, place.addresses[between.SERVER]]),
        port,
        120,
    )
    return {'rate': json.loads(text)['connections_per_s']}


def pages(place, sidewire, way, count):
    """Pages that curl gets from nginx over one connection, per second."""
    for program in ('nginx', 'curl'):
        if not shutil.which(program):
            raise procs.Skipped(f'{program} is not installed')
    port = procs.free_port()
    url = f'http://{place.addresses[between.SERVER]}:{port}/page?[1-{count}]'
    with tempfile.TemporaryDirectory(prefix='sidewire-pages-') as folder:
        os.chmod(folder, 0o755)
        with open(os.path.join(folder, 'page'), 'wb') as page:
            page.write(os.urandom(PAGE))
        with open(os.path.join(folder, 'conf'), 'w', encoding='ascii') as conf:
            conf.write('user root; ' if os.geteuid() == 0 else '')
            conf.write(NGINX.format(folder=folder, port=port))
        words = ['nginx', '-e', f'{folder}/errors', '-c', f'{folder}/conf']
        server = procs.Child(place.on(between.SERVER, [*under(sidewire, way), *words]))
        try:
            await_server(server, port, way)
            options = ['-sS', '--fail', '--noproxy', '*', '-o', '/dev/null', '-w', '%{time_total} ']
            words = [*under(sidewire, way), 'curl', *options, url]
            times = procs.run(place.on(between.CLIENT, words), 120).split()
        finally:
            server.end()
    return {'rate': len(times) / sum(float(each) for each in times)}


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
    redis_experiment = Experiment('redis', 'redis, 1 KiB', contenders)
    return [redis_experiment, *connections(bench), *all_pages(bench)]


def connections(bench):
    here, two, count = Here(), between.Between(bench.sidewire, 9000), 10000 // bench.divide

    def rate(place, way, in_flight=IN_FLIGHT, connections=count):
        return lambda: connect_rate(place, bench, way, connections, in_flight)

    return [
        Experiment(
            'sockets_connections',
            'connections by sockets',
            {
                '--sockets': rate(here, 'auto'),
                'TCP': rate(here, None),
                '--sockets, one': rate(here, 'auto', 1),
                'TCP, one': rate(here, None, 1),
            },
        ),
        Experiment(
            'hosts_sockets',
            'connections between hosts by sockets',
            {
                '--sockets': rate(two, 'auto'),
                'TCP': rate(two, None),
                '--sockets=hosts': rate(two, 'hosts'),
            },
            place=two,
        ),
    ]


def all_pages(bench):
    here, two, count = Here(), between.Between(bench.sidewire, 9000), 4000 // bench.divide

    def rate(place, way):
        return lambda: pages(place, bench.sidewire, way, count)

    return [
        Experiment('pages', 'pages', {'--sockets': rate(here, 'auto'), 'TCP': rate(here, None)}),
        Experiment(
            'hosts_pages',
            'pages between hosts',
            {
                '--sockets': rate(two, 'auto'),
                'TCP': rate(two, None),
                '--sockets=hosts': rate(two, 'hosts'),
            },
            place=two,
        ),
    ]
