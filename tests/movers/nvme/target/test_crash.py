#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""No acknowledged write is lost or torn, whoever is killed: the host, the target, or both, under
writes.

A target that copies to memory may be killed amid a block: there each byte is of the acknowledged
write or of one that was begun after it.

usage: test_crash.py SIDEWIRE CRASH_HOST [ROUNDS]
"""
import os
import random
import subprocess
import sys
import tempfile
import time

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), '..'))
from programs import MIB, NQN, PORT, say  # noqa: E402
from test_live import Target  # noqa: E402

ROUNDS = 12
KINDS = ('host', 'target', 'both', 'target twice')


class Crash:
    def __init__(self, sidewire, program, folder, backend):
        self.command = [sidewire, 'run', '--', program]
        self.verification = 'verify-bytes' if backend == 'nvram' else 'verify'
        self.where = ['127.0.0.1', str(PORT), NQN, os.path.join(folder, 'journal-' + backend)]
        disk = os.path.join(folder, 'disk-' + backend)
        with open(disk, 'wb') as file:
            file.truncate(8 * MIB)
        self.disk = disk
        self.target_words = [
            sidewire,
            '--listen',
            f'127.0.0.1:{PORT}',
            '--namespace',
            f'{backend}:{disk}' + (f',log={disk}.log' if backend == 'tier' else ''),
        ]
        with open(disk + '.log', 'wb') as file:
            file.truncate(8 * MIB)
        self.target = None

    def begin(self):
        """A target, and a host that writes."""
        if not self.target:
            self.target = Target(*self.target_words)
        host = subprocess.Popen(
            [*self.command, 'write', *self.where],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        line = host.stdout.readline()
        if line != 'writing\n':
            raise RuntimeError(f'the host does not write: {line}{host.communicate()[0]}')
        return host

    def kill_target(self):
        self.target.kill()
        self.target = None

    def verify(self):
        if not self.target:
            self.target = Target(*self.target_words)
        done = subprocess.run(
            [*self.command, self.verification, *self.where],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        return done.returncode == 0, (done.stdout + done.stderr).strip()

    def round(self, kind):
        host = self.begin()
        time.sleep(random.uniform(0.05, 0.5))
        if kind == 'target twice':  # the host comes back to it, and says its writes again
            self.kill_target()
            self.target = Target(*self.target_words)
            time.sleep(random.uniform(0.5, 2))
        if kind in ('target', 'both', 'target twice'):
            self.kill_target()
        host.kill()
        said = host.communicate()[0].strip()
        good, text = self.verify()
        return say(good, f'{self.target_words[-1].split(":")[0]}: {kind} killed: {text}', said)

    def sees_a_loss(self):
        """What this test is worth: a block that went back to zeroes is found."""
        with open(self.disk, 'r+b') as file:
            blank = next(
                at for at in range(0, 8 * MIB, 4096) if any(os.pread(file.fileno(), 4096, at))
            )
            os.pwrite(file.fileno(), bytes(4096), blank)
        good, text = self.verify()
        return say(
            not good and f'block {blank // 4096}:' in text, 'a write that is lost is found', text
        )


def main(sidewire, program, rounds):
    good = True
    with tempfile.TemporaryDirectory() as folder:
        os.environ['XDG_RUNTIME_DIR'] = folder
        for backend in ('file', 'nvram', 'tier'):
            crash = Crash(sidewire, program, folder, backend)
            for number in range(rounds // 3):
                good = crash.round(KINDS[number % len(KINDS)]) and good
            if backend != 'tier':  # its file has what is not in the log alone
                good = crash.sees_a_loss() and good
            good = say(crash.target.end() == 0, 'SIGTERM: it ends by itself') and good
    return 0 if good else 1


if __name__ == '__main__':
    sys.exit(main(sys.argv[1], sys.argv[2], int(sys.argv[3]) if len(sys.argv) > 3 else ROUNDS))
