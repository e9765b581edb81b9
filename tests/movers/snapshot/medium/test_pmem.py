#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""pmem: as a medium: what each medium does, and servers that are killed, stopped or cut off.

usage: test_pmem.py SIDEWIRE DRIVE LINK BAD_DISK [CASE...]
"""
import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), '../../../tools'))
import driven  # noqa: E402
import ports  # noqa: E402
from conformance import Conformance  # noqa: E402
from driven import BLOCK, MOST  # noqa: E402
from own_network import move_to_own_network  # noqa: E402

SIDEWIRE, DRIVE, LINK, BAD_DISK, *CASES = sys.argv[1:]
PORT = ports.claim()
if LINK == 'roce':
    os.environ['SIDEWIRE_DIRECT'] = 'off'
# How long who takes over waits. By the direct link a writer that is stopped amid a store is waited
# for in vain; over packets nothing is, so a disk of a busy machine alone decides.
TAKE_MS = 20000 if LINK == 'roce' else 1500


class Served(Conformance):
    folder_of_all = '/var/tmp'  # a disk's, where a tmpfs would not be persistent

    def setUp(self):
        folder = tempfile.TemporaryDirectory(dir=self.folder_of_all)
        self.addCleanup(folder.cleanup)
        self.path = os.path.join(folder.name, 'run')
        self.text = f'pmem:127.0.0.1:{PORT}/run'
        self.server = None
        self.addCleanup(self.end_server)
        self.serve()

    def serve(self, *more, env=None):
        words = f'pmem serve {self.path} --size {self.size} --listen 127.0.0.1:{PORT}'
        self.server = subprocess.Popen(
            [SIDEWIRE, *words.split(), *more],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, **(env or {})},
        )
        self.assertIn('Ctrl-C', self.server.stdout.readline())

    def end_server(self):
        if self.server:
            self.server.send_signal(signal.SIGCONT)
            self.server.kill()
            self.server.wait()
            self.server.stdout.close()
        self.server = None

    def drive(self):
        return driven.Driven([SIDEWIRE, 'run', DRIVE])

    def names_of(self, medium):
        return '127.0.0.1', 'run', 'drive'

    def test_server_killed__what_was_under_way_goes_on(self):
        medium = self.another()
        self.assert_fine(medium.do('w', 0, MOST, 1))
        for i in range(1, 4):
            medium.begin('w', i * MOST // 2 + MOST, MOST // 2, i)
        self.end_server()
        for i in range(4, 7):
            medium.begin('w', 3 * MOST + i * BLOCK, BLOCK, i)
        self.serve()
        self.assert_fine(medium.wait())
        for i in range(1, 4):
            self.assert_fine(medium.do('r', i * MOST // 2 + MOST, MOST // 4, i))
        self.assert_fine(medium.do('f'))
        self.assert_fine(medium.do('r', 0, MOST, 1))

    def test_server_killed__and_does_not_come_back(self):
        medium = self.another(timeout_ms=1000)
        self.end_server()
        medium.begin('w', 0, MOST, 1)
        code, _, ended, why = medium.wait()
        self.assertNotEqual((code, ended), (0, 0), why)
        self.assertIn('pmem:', why)
        self.assertNotEqual(medium.do('w')[0], 0)
        self.assertEqual(medium.close()[3], 0)

    def test_server_stopped__and_goes_on(self):
        medium = self.another(timeout_ms=20000)
        self.server.send_signal(signal.SIGSTOP)
        for i in range(3):
            medium.begin('w', i * MOST // 2, MOST // 2, 5)
        time.sleep(0.5)
        self.server.send_signal(signal.SIGCONT)
        self.assert_fine(medium.wait())
        self.assert_fine(medium.do('f'))
        self.assert_fine(medium.do('r', 0, MOST, 5))

    def test_server_stopped__close_does_not_wait(self):
        medium = self.another(timeout_ms=20000)
        self.server.send_signal(signal.SIGSTOP)
        for i in range(3):
            medium.begin('w', i * MOST // 2, MOST // 2, 5)
        self.assertEqual(medium.close()[3], 0)

    def take_over_beside_a_stopped_one(self, first):
        """By the direct link a writer stores by itself. One that was stopped amid that goes on with
        it later, so nobody takes over before."""
        try:
            return self.another('t', timeout_ms=TAKE_MS)
        except driven.Refused as why:
            self.assertNotEqual(LINK, 'roce', why)
            self.assertEqual(why.code, driven.EBUSY, why)
            self.assertIn('(drive)', str(why))
            first.go_on()
            return self.another('t')

    def test_writer_stopped__is_fenced_when_it_goes_on(self):
        for i in range(4):
            first = self.another()
            self.assert_fine(first.do('w', 0, MOST, 1))
            first.begin('w', 0, MOST, 2)
            first.stop()
            second = self.take_over_beside_a_stopped_one(first)
            self.assert_fine(second.do('w', 0, MOST, 3))
            first.go_on()
            code, _, ended, why = first.do('w', 0, MOST, 4)
            self.assertEqual((code, ended), (driven.ESTALE, driven.ESTALE), why)
            self.assert_fine(second.do('r', 0, MOST, 3))
            self.assertGreater(second.epoch, first.epoch)
            self.assert_fine(second.do('w', 0, MOST, 5))
            first.close()
            second.close()

    def test_writer_stopped__killed_makes_way(self):
        for i in range(3):
            first = self.another()
            first.begin('w', 0, MOST, 2)
            first.stop()
            try:
                self.another('t', timeout_ms=TAKE_MS).close()
            except driven.Refused as why:
                self.assertNotEqual(LINK, 'roce', why)
                self.assertEqual(why.code, driven.EBUSY, why)
            first.kill()
            second = self.another()
            self.assert_fine(second.do('w', 0, MOST, 3))
            self.assert_fine(second.do('r', 0, MOST, 3))
            second.close()

    def test_writer_stopped__a_restarted_one_does_not_wait_for_ever(self):
        first = self.another()
        first.stop()
        second = self.another()
        self.assert_fine(second.do('w', 0, MOST, 3))
        first.go_on()
        self.assertEqual(first.do('w', 0, MOST, 4)[0], driven.ESTALE)

    def test_other_data__is_not_overwritten(self):
        with open(self.path, 'r+b') as file:
            file.seek(self.size - BLOCK)
            file.write(b'letters')
        self.assert_refused(driven.EINVAL, 'other data')

    def test_claim__torn_by_a_kill_is_taken(self):
        self.another().close()
        with open(self.path, 'r+b') as file:
            file.seek(self.size - 16)
            file.write(b'\xff' * 16)
        self.assert_fine(self.another().do('w'))

    def test_place__is_looked_at(self):
        for place, code, word in (
            ('127.0.0.1', driven.EINVAL, 'pmem:ADDR'),
            ('127.0.0.1:99999/run', driven.EINVAL, 'a port is'),
            ('/run', driven.EINVAL, 'pmem:ADDR'),
            (f'127.0.0.1:{PORT}/other', driven.ENOENT, 'other'),
        ):
            self.text = f'pmem:{place}'
            self.assert_refused(code, word)


class Disk(Served, unittest.TestCase):
    def test_disk__that_failed_ends_the_medium(self):
        self.end_server()
        bad = f'{self.path}.bad'
        self.serve(env={'LD_PRELOAD': BAD_DISK, 'BAD_DISK': bad})
        medium = self.another()
        self.assert_fine(medium.do('w', 0, MOST, 1))
        with open(bad, 'xb'):
            pass
        code, _, ended, why = medium.do('w', 0, MOST, 2)
        self.assertEqual((code, ended), (driven.EIO, driven.EIO), why)
        self.assertIn('disk', why)
        self.assert_refused(driven.EIO, 'disk')

    def test_shared__is_refused(self):
        self.end_server()
        self.serve('--shared')
        self.assert_refused(111, 'pmem:127.0.0.1/run')

    def test_rights__to_all_of_it(self):
        self.end_server()
        self.serve('--allow', '127.0.0.1:0-64K:rw')
        self.assert_refused(13, 'right')


class Memory(Served, unittest.TestCase):
    folder_of_all = '/dev/shm'
    # What waits for servers is the same on a disk
    test_server_killed__and_does_not_come_back = None
    test_server_killed__what_was_under_way_goes_on = None
    test_server_stopped__and_goes_on = test_server_stopped__close_does_not_wait = None
    test_writer_stopped__a_restarted_one_does_not_wait_for_ever = None
    test_claim__torn_by_a_kill_is_taken = test_place__is_looked_at = None

    def test_note__says_so(self):
        medium = self.another()
        self.assertFalse(medium.is_durable)
        self.assertIn('gone with the power', medium.note)


if __name__ == '__main__':
    if LINK == 'roce':  # a stopped process has a share of the port, which others would meet
        move_to_own_network()
    unittest.main(argv=[sys.argv[0], *CASES], verbosity=2)
