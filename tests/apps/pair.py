# SPDX-License-Identifier: BSD-2-Clause
"""Runs server and client of an unmodified program under `sidewire run` and
judges what they print."""
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), '../tools'))
import ports  # noqa: E402

BUILD = os.environ.get('SIDEWIRE_BUILD') or os.path.join(
    os.path.dirname(os.path.abspath(__file__)), '../../build'
)
PATIENCE_S = 150  # perftest -a computes for 20 s, and may share a processor with ten others
UNCALIBRATED = 'Correlation coefficient r^2'  # perftest's word for it
TROUBLE = re.compile(
    r"\b(error|failed|failure|fail|couldn't|unable|cannot|timed out|mismatch|invalid|bad)\b", re.I
)


class Skip(Exception):
    """The case cannot run here; the text says why."""


class Failure(Exception):
    """The case failed; the text shows both sides."""


class Tools:
    """The command and its library, where every user can reach them."""

    def __init__(self):
        self.folder = tempfile.mkdtemp(prefix='sidewire-apps-')
        self.building = threading.Lock()
        os.chmod(self.folder, 0o755)
        for path in (
            'src/cli/sidewire',
            'src/preload/libsidewire.so',
            'src/sockets/libsidewire-sockets.so',
            'tests/tools/deny',
        ):
            target = os.path.join(self.folder, path)
            os.makedirs(os.path.dirname(target), exist_ok=True)
            if not os.path.exists(os.path.join(BUILD, path)):
                raise Skip(f'{path} is not built')
            shutil.copy(os.path.join(BUILD, path), target)
            os.chmod(target, 0o755)

    def path(self, name):
        return os.path.join(self.folder, name)

    def close(self):
        shutil.rmtree(self.folder)

    def build(self, name, *words):
        """The path of a program that is built when it is first asked for; `words` is the compiler
        and all but the output."""
        path = self.path(name)
        with self.building:
            if not os.path.exists(path):
                done = subprocess.run(
                    [*words, '-o', path], capture_output=True, text=True, timeout=PATIENCE_S
                )
                if done.returncode:
                    raise Failure(f'{" ".join(words)}\n{done.stdout}{done.stderr}')
        return path

    def run(self, *words, direct=None, link=None, faults=None, sockets=None, log=None, wrap=()):
        """The words of a command under the device; `wrap` goes in front of everything."""
        options = [
            *(['--direct', direct] if direct else []),
            *(['--link', link] if link else []),
            *(['--faults', faults] if faults else []),
            *([f'--sockets={sockets}'] if sockets else []),
            *(['--log', log] if log else []),
        ]
        return [*wrap, self.path('src/cli/sidewire'), 'run', *options, '--', *words]

    def output(self, *words, wrap=()):
        """What a command prints under the device; it must succeed."""
        done = subprocess.run(
            self.run(*words, wrap=wrap),
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            env=environment(),
        )
        if done.returncode:
            raise Failure(f'{words}: status {done.returncode}\n{done.stdout}{done.stderr}')
        return done.stdout


def environment():
    """Ours without settings of the library, so that a case alone decides."""
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(('SIDEWIRE_', 'LD_PRELOAD'))
    }


def is_listening(port, pid):
    """Whether the server is ready; asked of the kernel, since it takes one client only. In the
    network of that process."""
    for table in ('tcp', 'tcp6'):
        with open(f'/proc/{pid}/net/{table}', encoding='ascii') as lines:
            for fields in map(str.split, lines):
                if fields[1].endswith(f':{port:04X}') and fields[3] == '0A':
                    return True
    return False


class Process:
    """One side. Its output goes to a file: a full pipe would stop it. Its own writes append: it
    shares the file's position with text(), which moves it."""

    def __init__(self, words):
        self.words = words
        self.log = tempfile.TemporaryFile(mode='a+')
        self.child = subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=self.log,
            stderr=subprocess.STDOUT,
            env=environment(),
        )

    def wait(self, limit):
        try:
            self.child.wait(max(0.1, limit - time.monotonic()))
        except subprocess.TimeoutExpired:
            return False
        return True

    def end(self):
        if self.child.poll() is None:
            self.child.kill()
            self.child.wait()

    def text(self):
        self.log.seek(0)
        return self.log.read()


class Pair:
    """A server and a client of one program; start() then finish(), so that several pairs can run at
    once."""

    def __init__(
        self,
        tools,
        words,
        server_extra=(),
        client_extra=(),
        direct=None,
        wrap=(),
        client_direct=None,
        link=None,
        client_wrap=None,
        address='127.0.0.1',
        faults=None,
    ):
        if not shutil.which(words[0]):
            raise Skip(f'{words[0]} is not installed')
        self.port = ports.claim()
        base = [*words, '-p', str(self.port)]
        self.server_words = tools.run(
            *base, *server_extra, direct=direct, link=link, faults=faults, wrap=wrap
        )
        self.client_words = tools.run(
            *base,
            *client_extra,
            address,
            direct=client_direct or direct,
            link=link,
            faults=faults,
            wrap=wrap if client_wrap is None else client_wrap,
        )
        self.server = self.client = None

    def start(self):
        self.limit = time.monotonic() + PATIENCE_S
        self.server = Process(self.server_words)
        while (
            self.server.child.poll() is None
            and not self.is_ready()
            and time.monotonic() < self.limit
        ):
            time.sleep(0.01)
        self.client = Process(self.client_words)
        return self

    def is_ready(self):
        try:
            return is_listening(self.port, self.server.child.pid)
        except OSError:
            return True  # it has just ended

    def finish(self, statuses=(0, 0)):
        """Waits for both and checks their statuses; returns what (server, client) printed."""
        try:
            hung = [
                name for name in ('client', 'server') if not getattr(self, name).wait(self.limit)
            ]
        finally:
            for side in (self.server, self.client):
                if side:
                    side.end()
        ends = (self.server.child.returncode, self.client.child.returncode)
        if hung:
            self.fail(f'no end after {PATIENCE_S} s: {", ".join(hung)}')
        if ends != tuple(statuses):
            self.fail(f'statuses {ends}, not {tuple(statuses)}')
        return self.server.text(), self.client.text()

    def run(self, statuses=(0, 0)):
        return self.start().finish(statuses)

    def fail(self, why):
        raise Failure(
            f'{why}\n--- server: {" ".join(self.server_words)}\n{self.server.text()}'
            f'--- client: {" ".join(self.client_words)}\n{self.client.text()}'
        )


def find_trouble(text):
    """The first line that speaks of trouble, or None. Faults that were asked for are none."""
    for line in text.splitlines():
        if TROUBLE.search(line) or re.match(r'sidewire\[(?!\d+\]: faults: \d)', line):
            return line
    return None


def rows(text):
    """The numeric rows below perftest's headings, as lists of floats."""
    found, below = [], False
    for line in text.splitlines():
        fields = line.split()
        if fields and fields[0] == '#bytes':
            below = True
        elif below and fields and re.fullmatch(r'\d+', fields[0]):
            # perftest may print a remark right behind the last
            numbers = [re.match(r'[\d.]+', field) for field in fields]
            found.append([float(number[0]) for number in numbers if number])
    return found


def check_perftest(pair, texts, sizes, iterations, latency):
    """The client, and the server if it reports, has a row for each size with that many iterations
    (None: some) and rates above zero. Rates are zero where perftest could not compare the TSC with
    gettimeofday(), as it got no processor between their readings (tests/kernel/README.md)."""
    has_clock = not any(UNCALIBRATED in text for text in texts)
    for name, text in zip(('server', 'client'), texts):
        trouble = find_trouble(text)
        if trouble:
            pair.fail(f'{name} says: {trouble}')
        table = rows(text)
        if name == 'server' and [row[0] for row in table] in ([], [sizes[-1]]):
            continue  # a passive side says nothing, or only how it ended
        if [row[0] for row in table] != list(sizes):
            pair.fail(f'{name}: sizes {[int(row[0]) for row in table]}, not {list(sizes)}')
        for row in table:
            if row[1] != iterations if iterations else row[1] < 1:
                pair.fail(f'{name}: {int(row[1])} iterations, not {iterations}')
            if has_clock and row[2:] and not makes_sense(row[2:], latency):
                pair.fail(f'{name}: figures make no sense: {row}')


def makes_sense(figures, latency):
    """The figures behind size and iterations, as far as perftest's remarks about the processor's
    clock left them on the line."""
    if latency:
        return 0 < figures[0] <= figures[1] if len(figures) > 4 else figures[0] > 0
    return len(figures) < 3 or figures[2] > 0


def check_said(pair, texts, word):
    """For programs that give no figures: both sides end with a line of this word."""
    for name, text in zip(('server', 'client'), texts):
        if not re.search(f'^{word}$', text, re.M):
            pair.fail(f'{name} does not say {word}')


def check_pingpong(pair, texts, size, iterations):
    """Both sides report the bytes and the exchanges asked for."""
    for name, text in zip(('server', 'client'), texts):
        trouble = find_trouble(text)
        if trouble:
            pair.fail(f'{name} says: {trouble}')
        moved = re.search(r'^(\d+) bytes in', text, re.M)
        count = re.search(r'^(\d+) iters in', text, re.M)
        if not moved or not count:
            pair.fail(f'{name}: no result')
        if int(count[1]) != iterations or int(moved[1]) != 2 * size * iterations:
            pair.fail(
                f'{name}: {moved[1]} bytes in {count[1]} iterations, not {2 * size * iterations} '
                f'in {iterations}'
            )
