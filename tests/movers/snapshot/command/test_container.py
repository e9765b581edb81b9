#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""Saving and restoring as user nobody, with those system calls alone that a container has by
default: to a file, and to the memory of a server that is confined likewise.

usage: test_container.py SIDEWIRE TRAINER [PROFILE]
"""
import errno
import os
import sys
import tempfile
import unittest

from sinks import FileSink, PeerSink
from trainers import Trainer, check

SIDEWIRE, TRAINER, *PROFILE = sys.argv[1:]
PROFILE = PROFILE[0] if PROFILE else '/usr/share/containers/seccomp.json'
HERE = os.path.dirname(os.path.abspath(__file__))
CONFINE = os.path.join(HERE, '../../../tools/confine.py')
STEPS = 3


class Podman(unittest.TestCase):
    confined = ['/usr/bin/python3', CONFINE, PROFILE, 'nobody', '--']

    def test_nobody__saves_and_restores(self):
        folder = tempfile.TemporaryDirectory(dir='/var/tmp')
        self.addCleanup(folder.cleanup)
        os.chmod(folder.name, 0o777)
        sinks = [FileSink(SIDEWIRE, folder.name)]
        sinks.append(PeerSink(SIDEWIRE, folder.name, 'peer', wrap=self.confined))
        self.addCleanup(sinks[1].end)
        program = SIDEWIRE, TRAINER
        trainer = Trainer(program, sinks, quorum=2, steps=STEPS, wrap=self.confined)
        self.assertEqual((trainer.hear_all(), trainer.failures()), (0, []))
        for some in sinks[:1], sinks[1:]:
            self.assertEqual(check(program, some, wrap=self.confined), STEPS)

    def test_profile__refuses_what_containers_have_not(self):
        calls = 'import ctypes, os; l = ctypes.CDLL(None, use_errno=True)'
        for number in 323, 425:  # userfaultfd for one's own stores; io_uring_setup, else EFAULT
            code = f'{calls}; l.syscall({number}, 1, 0); os._exit(ctypes.get_errno())'
            words = [*self.confined, '/usr/bin/python3', '-c', code]
            ended = os.spawnv(os.P_WAIT, words[0], words)
            self.assertIn(ended, (errno.EPERM, errno.ENOSYS), number)


class Docker(Podman):
    confined = ['/usr/bin/python3', CONFINE, f'docker:{PROFILE}', 'nobody', '--']


def main():
    if os.geteuid() or not os.path.exists(PROFILE):
        print(f'SKIP: root begins it, by {PROFILE} (golang-github-containers-common)')
        return 77
    return not unittest.main(argv=sys.argv[:1], exit=False).result.wasSuccessful()


if __name__ == '__main__':
    sys.exit(main())
