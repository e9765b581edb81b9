# SPDX-License-Identifier: BSD-2-Clause
"""Child processes: started, waited for with a time limit, ended by process id, and explained when
they fail.

Each child leads a session of its own, so that ending it also ends what it started, and nothing
else.
"""

import os
import pty
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
import time

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), '../../tests/tools'))
import ports  # noqa: E402

TAIL_LINES = 12
RDMA_LISTENER = r'@sidewire\.cm\.s106([0-9a-f]{4})\.'  # the name of a service of port space TCP


class RunFailed(Exception):
    """A command that failed; the text says which, how, and what it printed last. `output`: all of
    it, if its time was up."""

    def __init__(self, message, output=''):
        super().__init__(message)
        self.output = output


class Skipped(Exception):
    """What cannot be measured here; the text says why."""


class Child:
    """`by_line`: its output goes through a terminal, so that what it printed before it hung is
    there to be read."""

    live = {}

    def __init__(self, argv, env=None, by_line=False):
        self.argv = argv
        self.env = env or {}
        self.output = tempfile.TemporaryFile()
        self.errors = tempfile.TemporaryFile()
        self.reader = None
        terminal, output = None, self.output
        if by_line:
            try:
                terminal, output = pty.openpty()
            except OSError:
                # No /dev/pts in here: then what a program that hangs has printed is lost.
                by_line = False
        try:
            self.process = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=self.errors,
                env={**os.environ, **self.env},
                start_new_session=True,
            )
        except OSError as error:
            if by_line:
                os.close(terminal)
            raise RunFailed(f'{self.command()}\n  cannot be started: {error}') from None
        finally:
            if by_line:
                os.close(output)
        Child.live[self.process.pid] = self
        if by_line:
            self.reader = threading.Thread(target=self._drain, args=(terminal,), daemon=True)
            self.reader.start()

    def _drain(self, terminal):
        while True:
            try:
                data = os.read(terminal, 65536)
            except OSError:  # EIO: nobody has the other end any more
                data = b''
            if not data:
                os.close(terminal)
                return
            os.write(self.output.fileno(), data.replace(b'\r\n', b'\n'))

    @property
    def pid(self):
        return self.process.pid

    def command(self):
        words = [f'{name}={shlex.quote(value)}' for name, value in self.env.items()]
        return ' '.join(words + [shlex.join(self.argv)])

    def running(self):
        return self.process.poll() is None

    def wait(self, timeout_s):
        """The exit status, or None when the time is up."""
        try:
            status = self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return None
        Child.live.pop(self.pid, None)
        return status

    def end(self):
        """Ends the child and its session, by id. Harmless when it has ended already."""
        for number, patience_s in ((signal.SIGTERM, 1), (signal.SIGKILL, 5)):
            if not self.running():
                break
            try:
                os.killpg(self.pid, number)
            except ProcessLookupError:
                break
            if self.wait(patience_s) is not None:
                break
        Child.live.pop(self.pid, None)

    def text(self):
        if self.reader and not self.running():
            self.reader.join(2)
        return self._read(self.output)

    def error_text(self):
        return self._read(self.errors)

    @staticmethod
    def _read(stream):
        size = os.fstat(stream.fileno()).st_size
        return os.pread(stream.fileno(), size, 0).decode(errors='replace')

    def report(self, what):
        """What a reader needs to know when it went wrong."""
        lines = [f'{self.command()}', f'  {what}']
        tail = (self.text() + self.error_text()).rstrip().splitlines()[-TAIL_LINES:]
        lines += [f'  | {line}' for line in tail] or ['  | (it printed nothing)']
        return '\n'.join(lines)


def end_all():
    for child in list(Child.live.values()):
        child.end()


def describe_status(status):
    if status is None:
        return 'did not end in time and was ended'
    if status < 0:
        return f'was killed by {signal.Signals(-status).name}'
    return f'ended with status {status}'


def run(argv, timeout_s, env=None, accept=(0,)):
    """Runs one command to its end; returns what it printed."""
    child = Child(argv, env)
    try:
        status = child.wait(timeout_s)
        if status not in accept:
            child.end()
            raise RunFailed(child.report(describe_status(status)))
        return child.text()
    finally:
        child.end()


def run_all(commands, timeout_s, begin=None):
    """Runs commands beside each other to their ends; returns what each printed. begin() is called
    once they have started, with the children."""
    children = []
    try:
        for argv in commands:
            children.append(Child(argv))
        if begin:
            begin(children)
        limit = time.monotonic() + timeout_s
        for child in children:
            status = child.wait(max(0.1, limit - time.monotonic()))
            if status != 0:
                raise RunFailed(
                    '\n'.join(
                        each.report(describe_status(status) if each is child else 'was beside it')
                        for each in children
                    )
                )
        return [child.text() for child in children]
    finally:
        for child in children:
            child.end()


def listening_ports(pid='self'):
    """By TCP, and by RDMA's connection manager; of the network that this process is in."""
    ports = set()
    try:
        with open(f'/proc/{pid}/net/unix', errors='replace') as lines:
            ports.update(int(port, 16) for port in re.findall(RDMA_LISTENER, lines.read()))
    except OSError:
        pass
    for table in (f'/proc/{pid}/net/tcp', f'/proc/{pid}/net/tcp6'):
        try:
            with open(table) as lines:
                next(lines)
                for line in lines:
                    fields = line.split()
                    if fields[3] == '0A':
                        ports.add(int(fields[1].rsplit(':', 1)[1], 16))
        except (OSError, StopIteration):  # it has just ended
            continue
    return ports


def free_port():
    """A port nobody listens on, nor is it a test's that runs beside."""
    taken = listening_ports()
    while True:
        port = ports.claim()
        if port not in taken:
            return port


def await_port(child, port, timeout_s=15):
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        if port in listening_ports(child.pid):
            return
        if not child.running():
            raise RunFailed(
                child.report(f'{describe_status(child.wait(1))} before it listened on port {port}')
            )
        time.sleep(0.01)
    raise RunFailed(child.report(f'does not listen on port {port} after {timeout_s} s'))


def await_text(child, text, timeout_s=15):
    """Until it has printed that, which says that it serves."""
    deadline = time.monotonic() + timeout_s
    while text not in child.text():
        if not child.running() or time.monotonic() > deadline:
            raise RunFailed(child.report('did not begin to serve'))
        time.sleep(0.01)


def run_pair(server_argv, client_argv, port, timeout_s, env=None, by_line=False):
    """Runs a server and its client as two processes; returns what the client printed."""
    server = Child(server_argv, env, by_line)
    client = None
    try:
        await_port(server, port)
        client = Child(client_argv, env, by_line)
        status = client.wait(timeout_s)
        if status != 0:
            client.end()
            server_status = server.wait(0.5)
            how = 'was still running' if server_status is None else describe_status(server_status)
            raise RunFailed(
                client.report(describe_status(status))
                + '\n'
                + server.report(f'was its server and {how}'),
                client.text() if status is None else '',
            )
        status = server.wait(10)
        if status != 0:
            server.end()
            raise RunFailed(
                server.report(
                    f'was the server; its client ended well, but it {describe_status(status)}'
                )
            )
        return client.text()
    finally:
        if client:
            client.end()
        server.end()
