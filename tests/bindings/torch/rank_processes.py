# SPDX-License-Identifier: BSD-2-Clause
"""Ranks of a test as children of this process, which has imported torch already: an import takes
two seconds, a fork none. A child that fails is told with what it printed last."""

import ctypes
import faulthandler
import os
import signal
import sys
import tempfile
import time
import traceback

PR_SET_PDEATHSIG = 1
TAIL_BYTES = 6000
# What ranks that are left get to say their own error, once one has failed.
GRACE_S = 3
STACKS_BEFORE_END_S = 3


class Rank:
    def __init__(self, number, run, limit_s):
        self.number = number
        self.output = tempfile.TemporaryFile()
        self.status = None
        sys.stdout.flush()
        sys.stderr.flush()
        self.pid = os.fork()
        if not self.pid:
            self._be_child(run, limit_s)

    def _be_child(self, run, limit_s):
        code = 1
        try:
            os.setpgid(0, 0)
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            for descriptor in (1, 2):
                os.dup2(self.output.fileno(), descriptor)
            faulthandler.enable()
            faulthandler.dump_traceback_later(max(limit_s - STACKS_BEFORE_END_S, 1))
            code = run(self.number) or 0
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 1
        except BaseException:  # whatever it is, the child ends here
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)

    def poll(self):
        if self.status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.status = os.waitstatus_to_exitcode(status)
        return self.status

    def kill(self):
        """The rank, and what it has started. Harmless when it has ended."""
        if self.poll() is None:
            for end in (os.killpg, os.kill):  # it may not have its group yet
                try:
                    end(self.pid, signal.SIGKILL)
                    break
                except ProcessLookupError:
                    continue
            self.status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])

    def tail(self):
        end = self.output.seek(0, os.SEEK_END)
        self.output.seek(max(end - TAIL_BYTES, 0))
        return self.output.read().decode(errors='replace')

    def text(self):
        self.output.seek(0)
        return self.output.read().decode(errors='replace')

    def close(self):
        self.output.close()

    def report(self):
        return f'-- rank {self.number}: status {self.status}\n{self.tail()}'


def run_ranks(count, run, limit_s, fails=lambda status: status != 0):
    """Runs run(rank) in so many children; returns them when all have ended. Those that are left
    are killed when the time is up, or a moment after one has failed."""
    ranks = [Rank(number, run, limit_s) for number in range(count)]
    until = time.monotonic() + limit_s
    hurried = False
    try:
        while any(rank.poll() is None for rank in ranks) and time.monotonic() < until:
            if not hurried and any(r.status is not None and fails(r.status) for r in ranks):
                until, hurried = min(until, time.monotonic() + GRACE_S), True
            time.sleep(0.005)
    finally:
        for rank in ranks:
            rank.kill()
    return ranks
