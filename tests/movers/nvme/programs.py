# SPDX-License-Identifier: BSD-2-Clause
"""The target and the commands of the host as processes, for the tests of whole programs."""
import os
import signal
import subprocess
import sys

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), '../../tools'))
import ports  # noqa: E402

NQN = 'nqn.2026-01.io.sidewire:default'
HOST_NQN = 'nqn.2026-01.test:host'
SECRETS = [
    'DHHC-1:01:AgkQFx4lLDM6QUhPVl1ka3J5gIeOlZyjqrG4v8bN1Nuz7TWq:',
    'DHHC-1:00:AQgPFh0kKzI5QEdOVVxjanF4f4aNlJuiqbC3vsXM09pl1OOC:',
]
PORT = ports.claim(2)  # and the next one
MIB = 1 << 20


def say(good, what, *more):
    print('ok  ' if good else 'FAIL', what)
    if not good:
        for text in more:
            print('    ' + str(text).strip().replace('\n', '\n    '))
    return good


class Target:
    def __init__(self, sidewire, *specs, options=()):
        words = [sidewire, 'nvme', 'target', '--listen', f'127.0.0.1:{PORT}', *options]
        for spec in specs:
            words += ['--namespace', spec]
        self.process = subprocess.Popen(
            words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        self.said = ''
        while not self.said.endswith('Ctrl-C\n'):
            line = self.process.stdout.readline()
            if not line:
                raise RuntimeError('the target does not begin: ' + self.said)
            self.said += line

    def end(self, number=signal.SIGTERM):
        self.process.send_signal(number)
        return self.process.wait(timeout=20)


def host(sidewire, line, seconds=60):
    program, *words = line.split()
    tried = subprocess.run(
        [sidewire, 'nvme', program, '-a', '127.0.0.1', '-s', str(PORT), *words],
        capture_output=True,
        text=True,
        timeout=seconds,
        stdin=subprocess.DEVNULL,
        check=False,
    )
    return tried.returncode, tried.stdout + tried.stderr
