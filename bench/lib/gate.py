# SPDX-License-Identifier: BSD-2-Clause
"""The other end of bench/src/gate.h: watches a measured phase from outside without a system call in
the program."""

import mmap
import os
import re
import signal
import struct
import tempfile
import time

import procs

SETUP, READY, GO, DONE, LEAVE = range(5)


class Gate:
    """A phase of `argv`, which must understand --gate FILE. Use it in a `with`; then begin(),
    end(), finish()."""

    def __init__(self, argv, timeout_s=60):
        self.argv = argv
        self.timeout_s = timeout_s

    def __enter__(self):
        self.file = tempfile.NamedTemporaryFile(prefix='bench-gate-')
        self.file.write(bytes(4096))
        self.file.flush()
        self.words = mmap.mmap(self.file.fileno(), 4096)
        self.child = procs.Child(self.argv + ['--gate', self.file.name])
        try:
            self._await(READY)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        self.child.end()
        self.words.close()
        self.file.close()

    def _await(self, phase):
        deadline = time.monotonic() + self.timeout_s
        while struct.unpack_from('<I', self.words, 0)[0] < phase:
            if not self.child.running():
                raise procs.RunFailed(
                    self.child.report(
                        procs.describe_status(self.child.wait(1)) + ' before its phase'
                    )
                )
            if time.monotonic() > deadline:
                raise procs.RunFailed(self.child.report('does not get on with its phase'))
            time.sleep(0.002)

    def pids(self):
        return struct.unpack_from('<II', self.words, 4)

    def begin(self):
        struct.pack_into('<I', self.words, 0, GO)

    def end(self):
        self._await(DONE)

    def finish(self):
        """Lets the program leave; returns what it printed."""
        struct.pack_into('<I', self.words, 0, LEAVE)
        status = self.child.wait(self.timeout_s)
        if status != 0:
            raise procs.RunFailed(self.child.report(procs.describe_status(status)))
        return self.child.text()


def cpu_time_ns(pid):
    """Processor time of all threads of a process, from the scheduler's own account."""
    total = 0
    for task in os.listdir(f'/proc/{pid}/task'):
        with open(f'/proc/{pid}/task/{task}/schedstat') as fields:
            total += int(fields.read().split()[0])
    return total


class SyscallCount:
    """strace -c -f on a running process."""

    def __init__(self, pid):
        self.report = tempfile.NamedTemporaryFile(prefix='bench-strace-', mode='r')
        self.child = procs.Child(['strace', '-c', '-f', '-o', self.report.name, '-p', str(pid)])
        threads = len(os.listdir(f'/proc/{pid}/task'))
        deadline = time.monotonic() + 10
        while len(re.findall(r'attached', self.child.error_text())) < min(
            threads, 1
        ) or not self._traced(pid):
            if not self.child.running() or time.monotonic() > deadline:
                raise procs.RunFailed(self.child.report('did not attach'))
            time.sleep(0.01)

    def _traced(self, pid):
        for task in os.listdir(f'/proc/{pid}/task'):
            with open(f'/proc/{pid}/task/{task}/status') as status:
                if f'TracerPid:\t{self.child.pid}\n' not in status.read():
                    return False
        return True

    def stop(self):
        """Detaches; returns calls by name."""
        os.kill(self.child.pid, signal.SIGINT)
        if self.child.wait(10) is None:
            self.child.end()
            raise procs.RunFailed(self.child.report('did not detach'))
        calls = {}
        for line in self.report.read().splitlines():
            fields = line.split()
            if len(fields) >= 5 and fields[0].replace('.', '').isdigit() and fields[-1] != 'total':
                calls[fields[-1]] = int(fields[3])
        self.report.close()
        return calls
