# SPDX-License-Identifier: BSD-2-Clause
"""Other work on the processors, made on purpose: what measures beside it competes as on a busy
machine."""

import contextlib
import os
import subprocess
import sys

from programs import pin

# It ends with the process that started it, however that ended.
SPIN = 'import os\nwhile os.getppid() == {parent}:\n    for _ in range(1000000):\n        pass'
GROUPS = '/proc/sys/kernel/sched_autogroup_enabled'


@contextlib.contextmanager
def busy_processors():
    """One process for each of both processors, with the least claim on it (nice 19)."""
    spinning = []
    try:
        for cpu in (0, 1):
            spinning.append(
                subprocess.Popen(
                    [
                        *'nice -n 19'.split(),
                        *pin(cpu),
                        sys.executable,
                        '-c',
                        SPIN.format(parent=os.getpid()),
                    ]
                )
            )
        yield
    finally:
        for process in spinning:
            process.kill()
            process.wait()


def beside_load(measure):
    def run():
        with busy_processors():
            return measure()

    return run


def counts_nice_by_session(path=GROUPS):
    """Whether the kernel shares processors among sessions first: then nice counts within one alone,
    and so not here."""
    try:
        with open(path) as setting:
            return setting.read().strip() == '1'
    except OSError:
        return False


def describe():
    text = 'beside two processes of nice 19 that spin'
    if counts_nice_by_session():
        text += ', which the kernel gives as much as any other session (sched_autogroup_enabled)'
    return text
