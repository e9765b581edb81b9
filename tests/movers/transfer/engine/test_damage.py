#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""A target and an initiator of transfers, either of which is killed or stopped at random instants:
what was given back stays as its owner has it, and whatever was posted ends in time (damage.c says
so).

usage: test_damage.py SIDEWIRE DAMAGE LINK [ROUNDS [SEED]]
"""
import os
import random
import signal
import subprocess
import sys
import tempfile
import time

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), '../../../tools'))
import ports  # noqa: E402

SIDEWIRE, DAMAGE, LINK = sys.argv[1:4]
ROUNDS = int(sys.argv[4]) if len(sys.argv) > 4 else 12
SEED = int(sys.argv[5]) if len(sys.argv) > 5 else random.randrange(1 << 30)
KINDS = ('kill initiator', 'kill target', 'stop initiator', 'stop target')


class Side:
    def __init__(self, role, card):
        self.words = [SIDEWIRE, 'run', '--', DAMAGE, role, card]
        self.process = None

    def start(self):
        self.process = subprocess.Popen(
            [*self.words, str(random.randrange(1 << 30))],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        line = self.process.stdout.readline()
        if line != 'ready\n':
            raise RuntimeError(f'{self.words[4]}: {line}{self.process.stdout.read()}')

    def kill(self):
        if self.process.poll() is not None:
            raise RuntimeError(f'{self.words[4]} has ended: {self.process.stdout.read()}')
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()

    def stop(self):
        """For less than the second that a device waits for a peer that is stopped in the midst of a
        store, mostly."""
        self.process.send_signal(signal.SIGSTOP)
        time.sleep(random.uniform(0.01, 0.6))
        self.process.send_signal(signal.SIGCONT)

    def end(self):
        self.process.terminate()
        said, _ = self.process.communicate(timeout=30)
        if self.process.returncode:
            raise RuntimeError(f'{self.words[4]}: {said}')
        return said


def main():
    random.seed(SEED)
    print(f'seed {SEED}', flush=True)
    if LINK == 'roce':
        os.environ['SIDEWIRE_LINK'] = 'roce'
    os.environ['DAMAGE_PORT'] = str(ports.claim())  # the same for each target that follows
    with tempfile.TemporaryDirectory() as folder:
        sides = {role: Side(role, f'{folder}/card') for role in ('target', 'initiator')}
        try:
            for side in sides.values():
                side.start()
            for number in range(ROUNDS):
                what, role = KINDS[number % len(KINDS)].split()
                time.sleep(random.uniform(0.02, 0.4))
                getattr(sides[role], what)()
                if what == 'kill':
                    sides[role].start()
            time.sleep(0.5)
            print(sides['initiator'].end())
            sides['target'].end()
        finally:
            for side in sides.values():
                if side.process and side.process.poll() is None:
                    side.process.kill()
                    side.process.wait()


if __name__ == '__main__':
    main()
