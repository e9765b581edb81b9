# SPDX-License-Identifier: BSD-2-Clause
"""TCP programs under `sidewire run --sockets`: docs/sockets.md and docs/programs.md list them."""
import contextlib
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time

import hosts
import pair
import ports
from pair import Failure, Process, Skip

SIZE = 5000003  # of the file that a web server gives
LATE_S = 1  # longer than a host is asked that may not know of RDMA
PROMPT_S = 20  # by then a peer's death must have been seen


class Bench:
    """A folder, servers that end with it, and where things run: on one host, or (server, client) of
    two."""

    def __init__(self, tools, wraps=((), ()), address='127.0.0.1', reach='auto'):
        self.tools, self.wraps, self.address, self.reach = tools, wraps, address, reach
        self.folder = tempfile.mkdtemp(prefix='sidewire-sockets-')
        self.started = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for one in self.started:
            if one.child.poll() is None:
                one.child.terminate()  # nginx takes its worker along
                one.wait(time.monotonic() + 3)
            one.end()
        shutil.rmtree(self.folder, ignore_errors=True)

    def words(self, words, over, side, log=None):
        """`over`: under --sockets; a word of its own instead of that of all."""
        if not (shutil.which(words[0]) or os.path.exists(words[0])):
            raise Skip(f'{words[0]} is not installed')
        return (
            self.tools.run(
                *words,
                sockets=over if isinstance(over, str) else self.reach,
                log=log,
                wrap=self.wraps[side],
            )
            if over
            else [*self.wraps[side], *words]
        )

    def start(self, words, port=None, over=True, side=0, log=None):
        process = Process(self.words(words, over, side, log))
        self.started.append(process)
        limit = time.monotonic() + pair.PATIENCE_S
        while port and not pair.is_listening(port, process.child.pid):
            if process.child.poll() is not None or time.monotonic() > limit:
                raise Failure(f'{words} does not listen\n{process.text()}')
            time.sleep(0.01)
        if port and over:
            until(
                lambda: listens_by_rdma(process, port),
                f'{words} does not listen by RDMA\n{process.text()}',
            )
        return process

    def run(self, words, over=True, log=None, given=None):
        """What a client prints (as bytes), and its warnings."""
        done = subprocess.run(
            self.words(words, over, 1, log),
            capture_output=True,
            timeout=pair.PATIENCE_S,
            env=pair.environment(),
            input=given or b'',
        )
        if done.returncode:
            raise Failure(
                f'{words}: status {done.returncode}\n{done.stdout[-2000:]}{done.stderr[-2000:]}'
            )
        return done.stdout, done.stderr.decode()

    def path(self, name):
        return os.path.join(self.folder, name)

    def rows(self, pid):
        """The sockets of a process, as `sidewire status` has them."""
        done = subprocess.run(
            [self.tools.path('src/cli/sidewire'), 'status', '--json', str(pid)],
            capture_output=True,
            text=True,
        )
        return json.loads(done.stdout)['sockets'] if done.stdout else []

    def ways(self, process):
        """Its connections."""
        return [row for row in self.rows(process.child.pid) if row['kind'] != 'listen']

    def listens(self, pid):
        """Whether it listens by RDMA."""
        return any(row['kind'] == 'listen' and 'rdma' in row['way'] for row in self.rows(pid))


def listens_by_rdma(process, port):
    with open(f'/proc/{process.child.pid}/net/unix', encoding='ascii', errors='replace') as lines:
        return f'@sidewire.cm.s106{port:04x}.' in lines.read()


def children(pid):
    with open(f'/proc/{pid}/task/{pid}/children', encoding='ascii') as numbers:
        return numbers.read().split()


def check(condition, text):
    if not condition:
        raise Failure(text)


def until(condition, text, seconds=pair.PATIENCE_S):
    limit = time.monotonic() + seconds
    while not condition():
        check(time.monotonic() < limit, text)
        time.sleep(0.01)


@contextlib.contextmanager
def redis(bench, over=True, bind='127.0.0.1', log=None):
    port = ports.claim()
    server = bench.start(
        [
            *f'redis-server --port {port}'.split(),
            '--bind',
            bind,
            '--save',
            '',
            '--dir',
            bench.folder,
            '--protected-mode',
            'no',
        ],
        port,
        over,
        log=log,
    )
    yield server, ['redis-cli', '-h', bench.address, '-p', str(port)], port


def redis_values(bench, way):
    with redis(bench, bind='0.0.0.0') as (server, cli, port):
        value = os.urandom(2000003)
        bench.run([*cli, '-x', 'set', 'large'], given=value)
        # redis-cli ends what it prints with a line feed
        got = bench.run([*cli, '--raw', 'get', 'large'])[0]
        check(got == value + b'\n', f'another value: {len(got)} bytes')
        text = bench.run(
            [
                'redis-benchmark',
                '-h',
                bench.address,
                *f'-p {port} -c 10 -n 2000 -d 1024 -t get,set -q'.split(),
            ]
        )[0]
        check(
            len(re.findall(rb'(?:GET|SET): \d', text)) >= 2 and b'rror' not in text, text.decode()
        )
        watcher = bench.start([*cli, 'subscribe', 'news'], side=1)
        until(lambda: b'news' in watcher.text().encode(), 'no answer to subscribe')
        for process in (server, watcher):
            rows = bench.ways(process)
            check(rows and all(row['way'] == way for row in rows), f'{rows}')


def redis_case(tools):
    with Bench(tools) as bench:
        redis_values(bench, 'rdma direct')


def iperf(tools):
    with Bench(tools) as bench:
        for more in ([], ['-R'], ['-P', '3']):
            port = ports.claim()
            server = bench.start(['iperf3', '-s', '-1', '-p', str(port)], port, log='info')
            text = bench.run(
                ['iperf3', '-c', '127.0.0.1', '-p', str(port), '-t', '1', '-J', *more]
            )[0]
            end = json.loads(text)['end']
            check(end['sum_received']['bytes'] > 1000000, f'{end}')
            check(
                server.wait(time.monotonic() + PROMPT_S) and server.child.returncode == 0,
                server.text(),
            )
            came = re.findall(r' from 127\.0\.0\.1:\d+ .* by (\w+ \w+)', server.text())
            check(
                len(came) == (4 if '-P' in more else 2) and set(came) == {'rdma direct'}, f'{came}'
            )


NGINX = """{mode}
daemon off; pid {folder}/pid; error_log {folder}/errors; {user}
events {{ worker_connections 64; }}
http {{ access_log off; sendfile {sendfile};
  client_body_temp_path {folder}/1; proxy_temp_path {folder}/2; fastcgi_temp_path {folder}/3;
  uwsgi_temp_path {folder}/4; scgi_temp_path {folder}/5;
  server {{ listen {port}; root {folder}; }} }}
"""
LIGHTTPD = (
    'server.document-root = "{folder}"\nserver.port = {port}\nserver.errorlog = "{folder}/errors"\n'
)
SERVERS = {
    'nginx': (
        ['nginx', '-e', '{folder}/errors', '-c', '{folder}/conf'],
        NGINX.replace('{mode}', 'master_process off;').replace('{sendfile}', 'on'),
    ),
    'nginx, without sendfile': (
        ['nginx', '-e', '{folder}/errors', '-c', '{folder}/conf'],
        NGINX.replace('{mode}', 'master_process off;').replace('{sendfile}', 'off'),
    ),
    'nginx, master and a worker': (
        ['nginx', '-e', '{folder}/errors', '-c', '{folder}/conf'],
        NGINX.replace('{mode}', 'worker_processes 1;').replace('{sendfile}', 'on'),
    ),
    'lighttpd': (['lighttpd', '-D', '-f', '{folder}/conf'], LIGHTTPD),
}


@contextlib.contextmanager
def web(bench, name, over=True, log=None):
    """A web server with a file of random bytes; gives its URL and the digest."""
    words, text = SERVERS[name]
    port = ports.claim()
    os.chmod(bench.folder, 0o755)
    blob = os.urandom(SIZE)
    with open(bench.path('file'), 'wb') as out:
        out.write(blob)
    with open(bench.path('conf'), 'w', encoding='ascii') as out:
        out.write(
            text.format(
                folder=bench.folder, port=port, user='user root;' if os.geteuid() == 0 else ''
            )
        )
    server = bench.start([word.format(folder=bench.folder) for word in words], port, over, log=log)
    if over and 'worker' in name:
        # A master gives the RDMA side up when it forks, and its worker takes it.
        until(
            lambda: any(bench.listens(child) for child in children(server.child.pid)),
            'the worker does not listen by RDMA',
        )
    yield server, f'http://{bench.address}:{port}/file', hashlib.sha256(blob).digest()


def fetch(bench, url, digest, over=True):
    """Downloads the file twice over one connection; returns what the client's log said."""
    body, log = bench.run(
        ['curl', '-sS', '--noproxy', '*', url, url], over, log='info' if over else None
    )
    for half in (body[:SIZE], body[SIZE:]):
        check(hashlib.sha256(half).digest() == digest, f'another file: {len(body)} bytes')
    return log


def web_case(tools, name):
    with Bench(tools) as bench, web(bench, name) as (server, url, digest):
        log = fetch(bench, url, digest)
        check(' by rdma direct: the peer is on this host' in log, log)
        fetch(bench, url, digest, over=False)  # and by TCP
        check(server.child.poll() is None, server.text())


def fall_back_server(tools):
    """The server has no RDMA: the client says so and takes TCP."""
    with Bench(tools) as bench, web(bench, 'nginx', over=False) as (_, url, digest):
        body, log = bench.run(['curl', '-sS', '--noproxy', '*', url])
        check(hashlib.sha256(body).digest() == digest, 'another file')
        check(re.search(r'by tcp: nobody listens there by RDMA', log), log)  # at the default level


def fall_back_client(tools):
    """The client has none: the server takes it by TCP, and says so."""
    with Bench(tools) as bench, redis(bench) as (server, cli, _):
        check(bench.run([*cli, 'ping'], over=False)[0] == b'PONG\n', 'no answer')
        check(re.search(r'by tcp: the client came by TCP', server.text()), server.text())
        plain = bench.start([*cli, 'subscribe', 'news'], over=False)
        over = bench.start([*cli, 'subscribe', 'news'])
        until(lambda: 'news' in plain.text() and 'news' in over.text(), 'no answer')
        check(
            sorted(row['way'] for row in bench.ways(server)) == ['rdma direct', 'tcp'],
            f'{bench.ways(server)}',
        )
        check(
            [row['reason'] for row in bench.ways(over)] == ['the peer is on this host'],
            f'{bench.ways(over)}',
        )


def asked_for_tcp(tools):
    with Bench(tools) as bench, web(bench, 'nginx') as (_, url, digest):
        words = tools.run('curl', '-sS', '--noproxy', '*', url, sockets='tcp')
        done = subprocess.run(
            words, capture_output=True, timeout=pair.PATIENCE_S, env=pair.environment()
        )
        check(hashlib.sha256(done.stdout).digest() == digest, 'another file')
        check(b'by tcp: SIDEWIRE_SOCKETS=tcp' in done.stderr, done.stderr.decode())


def killed(tools):
    """Either side is killed: the other sees the end at once, and nothing is left."""
    with Bench(tools) as bench, redis(bench) as (server, cli, _):
        bench.run([*cli, 'ping'])
        fds = f'/proc/{server.child.pid}/fd'
        count = len(os.listdir(fds))
        client = bench.start([*cli, 'subscribe', 'news'])
        until(lambda: 'news' in client.text() and bench.ways(server), 'no answer')
        client.end()
        until(lambda: not bench.ways(server), 'the server keeps a dead client', PROMPT_S)
        until(
            lambda: len(os.listdir(fds)) <= count + 3,
            f'{len(os.listdir(fds))} descriptors, there were {count}',
            PROMPT_S,
        )
        check(bench.run([*cli, 'ping'])[0] == b'PONG\n', 'the server does not go on')
        client = bench.start([*cli, 'blpop', 'nothing', '30'])
        until(lambda: bench.ways(server), 'no connection')
        server.end()
        check(
            client.wait(time.monotonic() + PROMPT_S),
            f'the client waits for a dead server\n{client.text()}',
        )


def late_server(tools):
    """A server of this host that gets no processor for a while is not one without RDMA."""
    with Bench(tools) as bench, redis(bench) as (server, cli, _):
        server.child.send_signal(signal.SIGSTOP)
        client = bench.start([*cli, 'subscribe', 'news'])
        client.wait(time.monotonic() + LATE_S)
        server.child.send_signal(signal.SIGCONT)
        until(lambda: 'news' in client.text(), f'no answer\n{client.text()}')
        check(
            [row['way'] for row in bench.ways(client)] == ['rdma direct'], f'{bench.ways(client)}'
        )


def on_hosts(tools, case, reach='hosts'):
    two = hosts.Hosts()
    try:
        wraps = (two.wrap[1], two.wrap[0])
        with Bench(tools, wraps, address=hosts.ADDRESSES[1], reach=reach) as bench:
            case(bench)
    finally:
        two.close()


def web_on_hosts(bench):
    with web(bench, 'nginx') as (_, url, digest):
        log = fetch(bench, url, digest)
        check(' by rdma roce: the peer is on another host' in log, log)


def left_to_tcp(bench):
    """Without being asked to, nobody takes RDMA to another host, though both sides could: nor where
    a program may bind to the other's address."""
    for family in ('ipv4', 'ipv6'):
        setting = f'echo 1 > /proc/sys/net/{family}/ip_nonlocal_bind'
        subprocess.run([*bench.wraps[1], 'sh', '-c', setting], check=True)
    with redis(bench, bind='0.0.0.0') as (server, cli, _):
        value = os.urandom(200003)
        bench.run([*cli, '-x', 'set', 'large'], given=value)
        got, log = bench.run([*cli, '--raw', 'get', 'large'])
        check(got == value + b'\n', f'another value: {len(got)} bytes')
        check('by tcp: the peer is on another host' in log, log)  # at the default level
        watcher = bench.start([*cli, 'subscribe', 'news'], side=1)
        until(lambda: 'news' in watcher.text(), 'no answer to subscribe')
        for process in (server, watcher):
            rows = bench.ways(process)
            check(rows and all(row['way'] == 'tcp' for row in rows), f'{rows}')
        # On its own host the same server is met by RDMA.
        near = bench.start([*cli, 'subscribe', 'news'], side=0)
        until(lambda: 'news' in near.text(), 'no answer to subscribe')
        check([row['way'] for row in bench.ways(near)] == ['rdma direct'], f'{bench.ways(near)}')


def both_at_one_listener(bench):
    """The side that connects decides: a listener serves each client the way it comes."""
    with redis(bench, bind='0.0.0.0') as (server, cli, _):
        clients = [
            (bench.start([*cli, 'subscribe', 'news'], side=1, over=over), over)
            for over in ('hosts', 'auto', False)
        ]
        for client, _ in clients:
            until(lambda client=client: 'news' in client.text(), 'no answer to subscribe')
        ways = [[row['way'] for row in bench.ways(client)] for client, over in clients if over]
        check(ways == [['rdma roce'], ['tcp']], f'{ways}')
        came = sorted(row['way'] for row in bench.ways(server))
        check(came == ['rdma roce', 'tcp', 'tcp'], f'{came}')


def fetch_two(bench, reasons):
    """Over a connection each, from a server without; `reasons` are those of both."""
    with web(bench, 'nginx', over=False) as (_, url, digest):
        body, log = bench.run(
            ['curl', '-sS', '--noproxy', '*', '-H', 'Connection: close', url, url], log='info'
        )
        check(hashlib.sha256(body[:SIZE]).digest() == digest, 'another file')
        said = re.findall(r' by tcp: ([^(\n]*?)(?: \(later|\n)', log)
        check(said == reasons, f'{said}\n{log}')


def host_without(bench):
    """A host that knows nothing of RDMA refuses at once, each time."""
    fetch_two(bench, 2 * ['nobody listens there by RDMA'])


# A caller is heard and gets no answer, as behind a firewall.
SILENCE = """
import socket, time
door = socket.create_server(("", 4791))
port = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
port.bind(("", 4791))
print("silent", flush=True)
time.sleep(600)
"""


def silent_host(bench):
    """A host that drops what comes: TCP after a moment, the second time at once."""
    wall = bench.start(['python3', '-c', SILENCE], over=False)
    until(lambda: 'silent' in wall.text(), 'it does not listen')
    fetch_two(bench, ['no answer by RDMA', 'no answer by RDMA a moment ago'])


def cases():
    found = [('redis-server', redis_case), ('iperf3', iperf)]
    found += [(name, lambda tools, name=name: web_case(tools, name)) for name in SERVERS]
    found += [
        ('a server without', fall_back_server),
        ('a client without', fall_back_client),
        ('--sockets=tcp', asked_for_tcp),
        ('one side is killed', killed),
        ('the server is late', late_server),
    ]
    return found


def host_cases():
    return [
        (
            'IPv4: redis-server',
            lambda tools: on_hosts(tools, lambda bench: redis_values(bench, 'rdma roce')),
        ),
        ('IPv4: nginx', lambda tools: on_hosts(tools, web_on_hosts)),
        ('IPv4: a host without', lambda tools: on_hosts(tools, host_without)),
        ('IPv4: a silent host', lambda tools: on_hosts(tools, silent_host)),
        ('IPv4: not asked for', lambda tools: on_hosts(tools, left_to_tcp, 'auto')),
        ('IPv4: both at a listener', lambda tools: on_hosts(tools, both_at_one_listener, 'auto')),
    ]
