# SPDX-License-Identifier: BSD-2-Clause
"""A medium in a process of its own (drive.c), told what to do by lines."""
import signal
import subprocess

BLOCK, MOST = 4096, 4 << 20
EINVAL, ERANGE, EFAULT, EROFS, ESTALE, EBUSY, ENOSPC, ENOENT, EIO = (
    22,
    34,
    14,
    30,
    116,
    16,
    28,
    2,
    5,
)


class Refused(Exception):
    def __init__(self, code, text):
        super().__init__(text)
        self.code = code


class Driven:
    """`words`: the program, perhaps behind a command that runs it."""

    def __init__(self, words):
        self.process = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )
        self.bytes = 0

    def tell(self, line):
        self.process.stdin.write(line + '\n')

    def hear(self):
        line = self.process.stdout.readline()
        if not line:
            raise EOFError('the program has ended')
        return line.strip()

    def ask(self, line):
        self.tell(line)
        return self.hear()

    def open(self, text, mode='w', size=0, timeout_ms=5000):
        kind, _, rest = self.ask(f'open {text} {mode} {size} {timeout_ms}').partition(' ')
        if kind == 'refused':
            code, _, why = rest.partition(' ')
            raise Refused(-int(code), why)
        size, age, lasts, name, epoch, used, note = rest.split(' ', 6)
        assert used == '0', used
        self.bytes, self.is_new, self.is_durable = int(size), age == 'new', lasts == 'durable'
        self.epoch, self.note = int(epoch), note
        return self

    def outcome(self, answer):
        """(errno of the first that failed, reads that differ, errno of the medium, why)"""
        kind, code, differing, ended, why = answer.split(' ', 4)
        assert kind == 'done', answer
        return -int(code), int(differing), -int(ended), why

    def do(self, kind, offset=0, size=BLOCK, seed=1):
        size = 0 if kind == 'f' else size
        return self.outcome(self.ask(f'do {kind} {offset} {size} {seed}'))

    def begin(self, kind, offset=0, size=BLOCK, seed=1):
        assert self.ask(f'begin {kind} {offset} {size} {seed}') == 'begun'

    def wait(self):
        return self.outcome(self.ask('wait'))

    def odd(self, kind, offset, size, shift=0):
        return self.outcome(self.ask(f'odd {kind} {offset} {size} {shift}'))

    def storm(self, kind, size, io_bytes=1 << 20, depth=8, seed=1, first=0):
        """Nanoseconds, and the outcome"""
        answer = self.ask(f'storm {kind} {first} {size} {io_bytes} {depth} {seed}')
        kind, took, rest = answer.split(' ', 2)
        assert kind == 'stormed', answer
        return int(took), self.outcome(rest)

    def close(self):
        """(under way, done() called, with -ECANCELED, still under way)"""
        kind, *counts = self.ask('close').split()
        assert kind == 'closed', kind
        return tuple(map(int, counts))

    def stop(self):
        self.process.send_signal(signal.SIGSTOP)

    def go_on(self):
        self.process.send_signal(signal.SIGCONT)

    def kill(self):
        self.process.kill()
        self.end()

    def end(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
        try:
            self.process.stdin.close()
        except OSError:
            pass
        try:
            self.process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()
        # A sanitizer has another one
        assert self.process.returncode in (0, -signal.SIGKILL), self.process.returncode
