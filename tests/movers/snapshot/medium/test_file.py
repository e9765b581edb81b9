#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""file: as a medium: what each medium does, its locks, and a disk that is full.

usage: test_file.py DRIVE DENY BAD_DISK [CASE...]
"""
import os
import sys
import tempfile
import unittest

import driven
from conformance import Conformance
from driven import BLOCK

DRIVE, DENY, BAD_DISK, *CASES = sys.argv[1:]


class File(Conformance, unittest.TestCase):
    folder_of_all = '/var/tmp'  # a disk's, where a tmpfs would take no O_DIRECT

    def setUp(self):
        folder = tempfile.TemporaryDirectory(dir=self.folder_of_all)
        self.addCleanup(folder.cleanup)
        self.path = os.path.join(folder.name, 'run.snap')
        self.text = f'file:{self.path}'

    def drive(self):
        return driven.Driven([DRIVE])

    def names_of(self, medium):
        return self.path, f'PID {medium.process.pid}'

    def test_stopped__is_not_overtaken(self):
        first = self.another()
        first.stop()
        said = self.assert_refused(
            driven.EBUSY, *self.names_of(first), 'stopped', mode='t', timeout_ms=300
        )
        self.assertIn('continue it', said)
        first.go_on()
        self.assert_fine(first.do('w', 0, BLOCK, 1))

    def test_place__is_looked_at(self):
        for path, code, word in (
            ('/no/such/folder/v', driven.ENOENT, 'No such file'),
            (os.path.dirname(self.path), 21, 'neither'),
            ('/dev/null', driven.EINVAL, 'neither'),
        ):
            self.text = f'file:{path}'
            self.assert_refused(code, path, word)
        self.text = f'file:{self.path}'
        self.assert_refused(driven.ENOENT, 'no such volume', mode='r')
        with open(self.path, 'wb') as file:
            file.write(b'x' * 5000)
        self.assert_refused(driven.EINVAL, 'too short')
        self.text = 'tape:0'
        self.assert_refused(driven.EINVAL, 'tape:0', 'file:PATH')

    def test_left_by_one_that_was_killed__is_as_good_as_new(self):
        with open(self.path, 'wb'):
            pass
        self.assertTrue(self.another().is_new)
        self.assertEqual(os.path.getsize(self.path), self.size)
        self.assertGreaterEqual(os.stat(self.path).st_blocks * 512, self.size)

    def test_holes__are_filled(self):
        with open(self.path, 'wb') as file:
            file.truncate(self.size)
        self.another()
        self.assertGreaterEqual(os.stat(self.path).st_blocks * 512, self.size)

    def test_deleted__counts_for_nothing(self):
        medium = self.another()
        self.assert_fine(medium.do('w'))
        self.assert_fine(medium.do('f'))
        os.unlink(self.path)
        code, _, ended, why = medium.do('f')
        self.assertEqual((code, ended), (driven.EIO, driven.EIO))
        self.assertIn('was deleted', why)
        self.assertTrue(self.another().is_new)

    def test_full_disk__is_told_at_once(self):
        self.size = 1 << 50
        self.assert_refused(driven.ENOSPC, f'{1 << 30} MiB', 'left')
        self.assertFalse(os.path.exists(self.path))


class ByThreads(File):
    """Where io_uring is refused, as in containers"""

    def drive(self):
        refused = 'io_uring_setup,io_uring_enter,io_uring_register'
        preloaded = ['env', f'LD_PRELOAD={BAD_DISK}', f'BAD_DISK={self.path}.bad']
        return driven.Driven([DENY, refused, '--', *preloaded, DRIVE])

    def test_note__says_so(self):
        self.assertIn('threads', self.another().note)

    def test_new_file__is_synced_and_then_its_folder(self):
        self.another()
        with open(f'{self.path}.bad.synced', encoding='ascii') as file:
            synced = file.read().split()
        self.assertEqual(synced[-2:], [self.path, os.path.dirname(self.path)])

    def test_flush__that_failed_is_final(self):
        medium = self.another()
        self.assert_fine(medium.do('w'))
        self.assert_fine(medium.do('f'))
        with open(f'{self.path}.bad', 'xb'):
            pass
        code, _, ended, why = medium.do('f')
        self.assertEqual((code, ended), (driven.EIO, driven.EIO))
        self.assertIn('may be lost', why)
        self.assertEqual(medium.do('f')[0], driven.EIO)
        self.assertEqual(medium.do('w')[0], driven.EIO)
        medium.close()
        self.assert_fine(self.another().do('f'))  # who opens it anew looks at all of it


class InMemory(File):
    folder_of_all = '/dev/shm'

    def test_note__says_so(self):
        medium = self.another()
        self.assertFalse(medium.is_durable)
        self.assertIn('memory', medium.note)


if __name__ == '__main__':
    unittest.main(argv=[sys.argv[0], *CASES], verbosity=2)
