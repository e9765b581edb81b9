# SPDX-License-Identifier: BSD-2-Clause
"""Programs that save until they are killed, and what is there then (../session/trainer.c)."""
import signal
import subprocess
import time

NO_ROOM, FENCED, LOST = 8, 12, 13  # of sw_snap_status
LIMIT_S = 60


def has(*sinks):
    """Whether a line says that a snapshot is durable, and those sinks have it."""
    return lambda words: words[0] == 'durable' and words[2:] == [str(one) for one in sinks]


def failed(words):
    """Whether a line says that a snapshot has failed: 'failed STEP STATUS TEXT'."""
    return words[0] == 'failed'


class Trainer:
    """One that saves until it is killed. `program` is SIDEWIRE and TRAINER; `wrap` stands before
    them, `how` are options of `sidewire run`."""

    def __init__(
        self,
        program,
        sinks,
        quorum=0,
        steps=100000,
        stall_ms=10000,
        take_over=0,
        wrap=(),
        how=(),
        stderr=None,
    ):
        sidewire, trainer = program
        words = [quorum, steps, stall_ms, take_over, *(sink.text for sink in sinks)]
        self.process = subprocess.Popen(
            [*wrap, sidewire, 'run', *how, '--', trainer, 'save', *map(str, words)],
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
        )
        self.durable, self.lines = 0, []
        self.newest = [0] * len(sinks)  # that each sink was told to have

    def hear(self):
        """The words of the next line; none: it has ended."""
        words = self.process.stdout.readline().split()
        if words and words[0] == 'durable':
            self.durable = int(words[1])
            for i, it_has in enumerate(words[2:]):
                self.newest[i] = self.durable if it_has == '1' else self.newest[i]
        self.lines.append(words)
        return words

    def hear_until(self, wanted):
        limit = time.monotonic() + LIMIT_S
        while time.monotonic() < limit:
            words = self.hear()
            if not words or wanted(words):
                return words
        raise AssertionError(f'it never came: {self.lines[-3:]}')

    def hear_durable(self, count=1):
        for _ in range(count):
            words = self.hear_until(lambda one: one[0] == 'durable')
            assert words, self.lines[-3:]

    def failures(self):
        return [line for line in self.lines if line and failed(line)]

    def end(self, how=signal.SIGKILL):
        self.process.send_signal(signal.SIGCONT)
        self.process.send_signal(how)
        self.hear_all()

    def hear_all(self):
        """Until it ends; its exit status."""
        while self.hear():
            pass
        self.process.stdout.close()
        return self.process.wait()


def check(program, sinks, wrap=(), how=()):
    """The step of what is there, which is compared; None: there is nothing."""
    sidewire, trainer = program
    done = subprocess.run(
        [
            *wrap,
            sidewire,
            'run',
            *how,
            '--',
            trainer,
            'check',
            *(sink.text for sink in sinks),
        ],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    said = done.stdout.split()
    assert done.returncode == 0 and said, done.stdout + done.stderr
    return int(said[1]) if said[0] == 'whole' else None
