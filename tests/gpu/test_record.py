#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""The recorder without a GPU: on the stub of the driver it goes through all of its questions; one
that hangs, crashes or leaves a process costs its own time alone; without a driver each is skipped
with its reason; a run that is cut off has written what it knew.

usage: test_record.py FOLDER_OF_PROGRAMS"""

import json
import os
import subprocess
import sys
import tempfile
import time
import unittest
from unittest import mock

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
sys.dont_write_bytecode = True

import asking  # noqa: E402
from questions import LAST, QUESTIONS  # noqa: E402

OF_THE_MACHINE = ('place.pci', 'place.hwloc', 'verbs.doctor')  # need no driver
PROGRAMS = os.path.abspath(sys.argv.pop(1))


def record(*words, env=None):
    """Its lines, and what it said in the end."""
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, 'recording')
        argv = [os.path.join(HERE, 'record'), '--programs', PROGRAMS, '--out', out, *words]
        done = subprocess.run(
            argv, capture_output=True, text=True, timeout=300, env={**os.environ, **(env or {})}
        )
        with open(out) as file:
            return [json.loads(line) for line in file], done.stderr


class Dry(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.lines, cls.errors = record('--dry')
        cls.asked = {line['question']: line for line in cls.lines if 'question' in line}

    def test_dry__asks_everything(self):
        names = [line['question'] for line in self.lines if 'question' in line]
        self.assertEqual(names, [question.name for question in (*QUESTIONS, LAST)])

    def test_dry__gets_answers(self):
        for name, line in self.asked.items():
            if line['status'] == 'skipped':
                self.assertNotIn('CUDA', line['reason'], name)
                print(f'{name}: skipped: {line["reason"]}')
                continue
            self.assertEqual(line['status'], 'answered', line)
            self.assertTrue(line['answers'], name)
            self.assertNotIn('failed', [answer.get('what') for answer in line['answers']])

    def test_dry__says_what_it_is_of(self):
        head = self.lines[0]
        self.assertTrue(head['dry'])
        for key in ('date', 'driver', 'device', 'kernel'):
            self.assertTrue(head[key], key)

    def test_dry__traces_ioctls_by_class(self):
        if self.asked['sharing.ioctls']['status'] == 'skipped':
            self.skipTest(self.asked['sharing.ioctls']['reason'])
        found = [
            (answer['type'], answer['number'], answer['bytes'], answer['object'], answer['failed'])
            for answer in self.asked['sharing.ioctls']['answers']
            if answer['what'] == 'ioctl' and answer['file'] == '/dev/null'
        ]
        self.assertEqual(found, [(ord('F'), 0x2B, 48, 0x41, 1)])

    def test_dry__another_process_sees_what_it_was_given(self):
        for name in ('handles.ways', 'handles.pidfd', 'handles.dmabuf'):
            answers = self.asked[name]['answers']
            if any(a['what'] == 'pidfd_getfd' and a['errno'] for a in answers):
                continue  # the kernel, or a filter of system calls, refuses it here
            same = [a['is_same'] for a in answers if 'is_same' in a]
            self.assertTrue(same and all(same), name)

    def test_dry__leaves_nothing_and_changes_nothing(self):
        end = self.lines[-1]
        self.assertEqual((end['left'], end['settings_changed']), ([], False))
        self.assertFalse([line for line in self.lines if line.get('left') and 'question' in line])


class Without(unittest.TestCase):
    def test_without_driver__each_is_skipped_with_its_reason(self):
        lines, _ = record('--only', QUESTIONS[0].name)
        if lines[1]['status'] == 'answered':
            self.skipTest('there is a driver here')
        lines, errors = record()
        asked = [line for line in lines if 'question' in line]
        for line in asked:
            if line['question'] in OF_THE_MACHINE and line['status'] == 'answered':
                continue
            self.assertEqual(line['status'], 'skipped', line)
            self.assertTrue(line['reason'], line)
            self.assertIn(f'not answered: {line["question"]}: {line["reason"]}', errors)

    def test_without_programs__it_says_how_they_are_made(self):
        argv = [os.path.join(HERE, 'record'), '--dry', '--programs', '/nowhere']
        done = subprocess.run(argv, capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stdout), (1, ''))
        self.assertIn('`make build` makes them', done.stderr)

    def test_without_time__what_is_not_asked_is_told(self):
        lines, errors = record('--dry', '--seconds', '3')
        not_asked = [line['question'] for line in lines if line.get('status') == 'not asked']
        self.assertIn(QUESTIONS[-1].name, not_asked)
        self.assertIn(f'not answered: {QUESTIONS[-1].name}: the time of the whole was up', errors)
        self.assertIsNone(lines[-1]['settings_changed'])  # they were read once at most


class Bundle(unittest.TestCase):
    def test_bundle__asks_from_another_folder(self):
        build = os.path.dirname(os.path.dirname(PROGRAMS))
        with tempfile.TemporaryDirectory() as folder:
            words = ['--build', build, '--without-packages', folder]
            argv = [os.path.join(HERE, 'bundle'), *words]
            made = subprocess.run(argv, check=True, capture_output=True, text=True)
            self.assertRegex(made.stdout, 'the other machine has to have: .*libibverbs.so.1')
            out = os.path.join(folder, 'recording')
            words = ['--dry', '--only', 'handles.ways', 'verbs.regions', '--out', out]
            argv = [os.path.join(folder, 'tests/gpu/record'), *words]
            subprocess.run(argv, check=True, capture_output=True, timeout=120)
            with open(out) as file:
                asked = [json.loads(line) for line in file if '"question"' in line]
        self.assertEqual({line['status'] for line in asked}, {'answered'}, asked)

    def test_bundle__of_what_is_not_built_leaves_nothing(self):
        with tempfile.TemporaryDirectory() as folder:
            argv = [os.path.join(HERE, 'bundle'), '--build', '/nowhere', f'{folder}/out']
            done = subprocess.run(argv, capture_output=True, text=True)
            self.assertIn('`make build` makes it', done.stderr)
            self.assertEqual(os.listdir(folder), [])

    def test_packages__are_found_where_debian_puts_libraries(self):
        env = asking.with_packages({'PATH': '/bin'}, '/root', ['/first'])
        folders = '/first:/root/packages/usr/lib/x86_64-linux-gnu:/root/packages/lib'
        self.assertEqual(env['LD_LIBRARY_PATH'], folders + '/x86_64-linux-gnu')
        self.assertEqual(env['PATH'], '/bin:/root/packages/usr/bin:/root/packages/bin')


class Ask(unittest.TestCase):
    def setUp(self):
        asking.adopt_orphans()

    def ask(self, script, bound_s=10):
        return asking.ask(['sh', '-c', script], bound_s, dict(os.environ))

    def test_ask__one_that_hangs_keeps_what_it_said(self):
        started = time.monotonic()
        line = self.ask('''echo '{"what": "known"}'; exec sleep 100''', 0.5)
        self.assertLess(time.monotonic() - started, 50)
        self.assertEqual((line['status'], line['answers']), ('out of time', [{'what': 'known'}]))

    def test_ask__one_that_crashes_keeps_what_it_said(self):
        line = self.ask('''echo '{"what": "known"}'; kill -SEGV $$''')
        self.assertEqual((line['status'], line['answers']), ('crashed', [{'what': 'known'}]))
        self.assertEqual(line['reason'], 'ended by signal 11')

    def test_ask__what_it_leaves_is_ended(self):
        line = self.ask('setsid sleep 100 & echo $!')
        self.assertEqual(line['status'], 'answered')
        self.assertFalse(os.path.exists(f'/proc/{line["answers"][0]["text"]}'))
        self.assertEqual(asking.descendants(), [])

    def test_ask__one_that_does_not_end_is_waited_for_once(self):
        child = subprocess.Popen(['sleep', '100'])
        try:
            with mock.patch('os.kill'):  # as a process that hangs in a driver
                self.assertEqual(self.ask('true')['left'], [child.pid])
                self.assertNotIn('left', self.ask('true'))
        finally:
            asking.stuck.clear()
            child.kill()
            child.wait()

    def test_ask__nothing_outlives_the_one_that_asks(self):
        script = (
            'import asking, os; print(os.getpid(), flush=True);'
            'asking.ask(["sleep", "100"], 60, dict(os.environ))'
        )
        words = [sys.executable, '-c', script]
        with subprocess.Popen(words, cwd=HERE, stdout=subprocess.PIPE) as asker:
            asker.stdout.readline()
            while not (asked := [p for p, its in asking.parents().items() if its == asker.pid]):
                time.sleep(0.01)
            time.sleep(0.2)
            asker.kill()
        until = time.monotonic() + 30
        while os.path.exists(f'/proc/{asked[0]}') and time.monotonic() < until:
            asking.reap()
            time.sleep(0.01)
        self.assertFalse(os.path.exists(f'/proc/{asked[0]}'))

    def test_ask__a_failure_and_a_missing_program_say_so(self):
        line = self.ask('echo no >&2; exit 3')
        self.assertEqual((line['status'], line['errors']), ('failed', 'no'))
        self.assertEqual(line['reason'], 'ended with status 3: no')
        line = asking.ask(['/nowhere/program'], 1, dict(os.environ))
        self.assertEqual(line['status'], 'skipped')
        self.assertIn('No such file', line['reason'])


if __name__ == '__main__':
    unittest.main(verbosity=2)
