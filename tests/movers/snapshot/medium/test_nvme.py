#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""nvme: as a medium: what each medium does, reservations, and targets that are killed or stopped.

usage: test_nvme.py SIDEWIRE DRIVE LINK [CASE...]
"""
import json
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

SIDEWIRE, DRIVE, LINK, *CASES = sys.argv[1:]
PORT = ports.claim()
NQN = 'nqn.2026-01.io.sidewire:default'
if LINK == 'roce':
    os.environ['SIDEWIRE_DIRECT'] = 'off'


class Target(Conformance, unittest.TestCase):
    block = 4096

    def setUp(self):
        folder = tempfile.TemporaryDirectory(dir='/var/tmp')
        self.addCleanup(folder.cleanup)
        self.path = os.path.join(folder.name, 'disk')
        with open(self.path, 'wb') as file:
            os.posix_fallocate(file.fileno(), 0, self.size)
        self.text = f'nvme:127.0.0.1:{PORT}/{NQN}'
        self.target = None
        self.addCleanup(self.end_target)
        self.serve()

    def serve(self, *more):
        words = ['-l', f'127.0.0.1:{PORT}']
        for namespace in f'file:{self.path},bs={self.block}', *more:
            words += ['--namespace', namespace]
        self.target = subprocess.Popen(
            [SIDEWIRE, 'nvme', 'target', *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        said = ''
        while 'Ctrl-C' not in said:
            line = self.target.stdout.readline()
            self.assertTrue(line, said)
            said += line

    def end_target(self):
        if self.target:
            self.target.send_signal(signal.SIGCONT)
            self.target.kill()
            self.target.wait()
            self.target.stdout.close()
        self.target = None

    def drive(self):
        return driven.Driven([SIDEWIRE, 'run', DRIVE])

    def names_of(self, medium):
        return NQN, 'drive'

    def report(self):
        words = f'nvme resv-report -a 127.0.0.1 -s {PORT} -n {NQN} -o json'
        done = subprocess.run(
            [SIDEWIRE, *words.split()], capture_output=True, text=True, check=True, timeout=60
        )
        return json.loads(done.stdout)

    def test_reservation__is_held_and_given_back(self):
        first = self.another()
        report = self.report()
        self.assertEqual((report['rtype'], report['regctl']), (1, 1), report)
        second = self.another('t')
        report = self.report()
        self.assertEqual((report['rtype'], report['regctl']), (1, 1), report)
        self.assertEqual(first.do('w')[0], driven.ESTALE)
        first.close()
        second.close()
        report = self.report()
        self.assertEqual((report['rtype'], report['regctl']), (0, 0), report)

    def test_reservation__of_another_host_is_respected(self):
        there = f'-a 127.0.0.1 -s {PORT} -n {NQN}'
        for words in (
            f'nvme resv-register {there} --nrkey 0x7b',
            f'nvme resv-acquire {there} --crkey 0x7b --rtype 1',
        ):
            subprocess.run([SIDEWIRE, *words.split()], check=True, timeout=60)
        self.assert_refused(driven.EBUSY, 'reserved', 'resv-report')
        self.assert_fine(self.another('t').do('w'))

    def test_writer_killed__between_its_reservation_and_its_claim(self):
        """A key of a writer of snapshots ("SN") that no claim has: nobody lives by it."""
        self.another().close()
        there = f'-a 127.0.0.1 -s {PORT} -n {NQN}'
        for words in (
            f'nvme resv-register {there} --nrkey 0x534e00000000007b',
            f'nvme resv-acquire {there} --crkey 0x534e00000000007b --rtype 1',
        ):
            subprocess.run([SIDEWIRE, *words.split()], check=True, timeout=60)
        self.assert_fine(self.another().do('w'))
        self.assertEqual(self.report()['regctl'], 1)

    def test_target_killed__and_does_not_come_back(self):
        medium = self.another(timeout_ms=1000)
        self.end_target()
        medium.begin('w', 0, MOST, 1)
        code, _, ended, why = medium.wait()
        self.assertNotEqual((code, ended), (0, 0), why)
        self.assertIn('nvme:', why)
        self.assertEqual(medium.close()[3], 0)

    def test_target_killed__what_was_flushed_goes_on(self):
        medium = self.another()
        self.assert_fine(medium.do('w', 0, MOST, 1))
        self.assert_fine(medium.do('f'))
        self.end_target()
        for i in range(1, 4):
            medium.begin('w', MOST + i * BLOCK, BLOCK, i)
        self.serve()
        self.assert_fine(medium.wait())
        self.assert_fine(medium.do('f'))
        for i in range(1, 4):
            self.assert_fine(medium.do('r', MOST + i * BLOCK, BLOCK, i))
        self.assert_fine(medium.do('r', 0, MOST, 1))

    def test_target_killed__what_was_not_flushed_is_told(self):
        medium = self.another()
        self.assert_fine(medium.do('w', 0, MOST, 1))
        self.end_target()
        self.serve()
        code, _, ended, why = medium.do('f')
        self.assertEqual((code, ended), (5, 5), why)
        self.assertIn('flushed', why)

    def test_target_stopped__and_goes_on(self):
        medium = self.another(timeout_ms=20000)
        self.target.send_signal(signal.SIGSTOP)
        for i in range(3):
            medium.begin('w', i * MOST // 2, MOST // 2, 5)
        time.sleep(0.5)
        self.target.send_signal(signal.SIGCONT)
        self.assert_fine(medium.wait())
        self.assert_fine(medium.do('f'))
        self.assert_fine(medium.do('r', 0, MOST, 5))

    def test_target_stopped__close_ends(self):
        medium = self.another()
        self.target.send_signal(signal.SIGSTOP)
        for i in range(3):
            medium.begin('w', i * MOST // 2, MOST // 2, 5)
        self.assertEqual(medium.close()[3], 0)

    def test_writer_stopped__is_fenced_when_it_goes_on(self):
        first = self.another()
        self.assert_fine(first.do('w', 0, MOST, 1))
        first.begin('w', 0, MOST, 2)
        first.stop()
        second = self.another('t')
        self.assert_fine(second.do('w', 0, MOST, 3))
        first.go_on()
        code, _, ended, why = first.do('w', 0, MOST, 4)
        self.assertEqual((code, ended), (driven.ESTALE, driven.ESTALE), why)
        self.assert_fine(second.do('r', 0, MOST, 3))
        self.assertGreater(second.epoch, first.epoch)
        self.assert_fine(second.do('w', 0, MOST, 5))

    def test_other_data__is_not_overwritten(self):
        self.end_target()
        with open(self.path, 'r+b') as file:
            file.seek(self.size - BLOCK)
            file.write(b'letters')
        self.serve()
        self.assert_refused(driven.EINVAL, 'other data')

    def test_namespaces__are_named(self):
        self.end_target()
        self.serve('ram:64M')
        self.assert_refused(driven.EINVAL, 'several namespaces')
        self.text += '/2'
        self.assertEqual(self.another().bytes, (64 << 20) - BLOCK)
        self.text = self.text[:-1] + '9'
        self.assert_refused(driven.ENOENT, 'no namespace 9')

    def test_place__is_looked_at(self):
        for place, code, word in (
            ('127.0.0.1', driven.EINVAL, 'nvme:ADDR'),
            (f'127.0.0.1:{PORT}/nqn.2026-01.io.sidewire:other', 111, 'other'),
        ):
            self.text = f'nvme:{place}'
            self.assert_refused(code, word)


class Sectors(Target):
    """The same in blocks of 512 bytes"""

    block = 512
    for name in dir(Target):
        if name.startswith(('test_target', 'test_writer', 'test_place', 'test_reserv')):
            locals()[name] = None


if __name__ == '__main__':
    unittest.main(argv=[sys.argv[0], *CASES], verbosity=2)
