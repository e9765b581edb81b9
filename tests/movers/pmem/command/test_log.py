#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""sidewire pmem log on three servers: servers and writers killed under appends, and two writers at
once. Acknowledged records are there.

usage: test_log.py SIDEWIRE LINK [CASE...]
"""
import json
import os
import queue
import random
import select
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
import unittest

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), '../../../tools'))
import ports  # noqa: E402
from own_network import move_to_own_network  # noqa: E402

SIDEWIRE, LINK, *CASES = sys.argv[1:]
COPIES = 3
PORT = ports.claim(COPIES)  # a port for each
PATIENCE_S = 60
if LINK == 'roce':
    os.environ['SIDEWIRE_DIRECT'] = 'off'


def words(command, copies=COPIES):
    where = [word for i in range(copies) for word in ('--copy', f'127.0.0.1:{PORT + i}')]
    return [SIDEWIRE, 'pmem', 'log', command, *where]


def log(command, *more, copies=COPIES):
    done = subprocess.run(
        [*words(command, copies), *more],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    return done.returncode, done.stdout, done.stderr


class Writer:
    """`log append`, given a line each time it has acknowledged one."""

    def __init__(self, first):
        self.process = subprocess.Popen(
            words('append'),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.acknowledged, self.begun = [], first
        self.news = queue.Queue()
        self.thread = threading.Thread(target=self.feed, daemon=True)
        self.thread.start()

    def feed(self):
        try:
            while True:
                text = f'record {self.begun}'
                self.begun += 1
                self.process.stdin.write(text + '\n')
                self.process.stdin.flush()
                number = self.process.stdout.readline()
                if not number:
                    return
                self.acknowledged.append((int(number), text))
                self.news.put(text)
        except (OSError, ValueError):
            pass

    def await_more(self, count):
        for _ in range(count):
            self.news.get(timeout=PATIENCE_S)

    def drain(self):
        while not self.news.empty():
            self.news.get()

    def kill(self):
        self.process.kill()
        self.end()

    def end(self):
        status = self.process.wait(timeout=PATIENCE_S)
        self.thread.join(PATIENCE_S)
        said = self.process.stderr.read()
        for pipe in self.process.stdin, self.process.stdout, self.process.stderr:
            try:
                pipe.close()
            except OSError:
                pass
        return status, said


class Log(unittest.TestCase):
    def setUp(self):
        # A disk's, where a tmpfs would not be persistent
        self.folder = tempfile.TemporaryDirectory(dir='/var/tmp')
        self.addCleanup(self.folder.cleanup)
        self.servers = [None] * COPIES
        self.addCleanup(lambda: [self.kill(i) for i in range(COPIES)])
        self.known = []
        for i in range(COPIES):
            self.serve(i)
        self.assertEqual(log('create', '--ring', '256K', '--record', '128')[0], 0)

    def serve(self, index, size='1M'):
        path = os.path.join(self.folder.name, f'copy{index}')
        server = subprocess.Popen(
            [
                SIDEWIRE,
                'pmem',
                'serve',
                path,
                '--size',
                size,
                '--listen',
                f'127.0.0.1:{PORT + index}',
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.assertIn('Ctrl-C', server.stdout.readline())
        self.servers[index] = server

    def kill(self, index):
        if self.servers[index]:
            self.servers[index].kill()
            self.servers[index].wait()
            self.servers[index].stdout.close()
        self.servers[index] = None

    def check(self, *writers):
        """All that was acknowledged, in its order, and of each writer at most one record more."""
        status, text, said = log('recover')  # where a writer died in its recovery, none reads
        self.assertEqual(status, 0, said)
        status, text, said = log('read')
        self.assertEqual(status, 0, said)
        found = [(int(line.split(' ', 1)[0]), line.split(' ', 1)[1]) for line in text.splitlines()]
        self.assertEqual([number for number, _ in found], list(range(len(found))))
        known = self.known + [one for writer in writers for one in writer.acknowledged]
        missing = set(known) - set(found)
        self.assertFalse(missing, f'acknowledged and lost: {sorted(missing)[:3]}')
        self.assertLessEqual(len(found) - len(known), len(writers))
        self.known = found

    def test_servers__killed_and_back(self):
        writer = Writer(0)
        writer.await_more(20)
        self.kill(0)
        writer.drain()
        writer.await_more(20)
        self.kill(1)
        time.sleep(0.3)
        writer.drain()
        time.sleep(0.5)
        self.assertTrue(writer.news.empty(), 'acknowledged by one copy of three')
        self.serve(0)
        writer.await_more(20)
        self.serve(1)
        self.kill(2)
        writer.drain()
        writer.await_more(20)
        writer.kill()
        self.serve(2)
        self.check(writer)

    def test_writers__killed(self):
        for turn in range(4):
            writer = Writer(1000 * turn)
            writer.await_more(1)
            time.sleep(random.uniform(0, 0.1))
            writer.kill()
            self.check(writer)

    def test_all__killed(self):
        for turn in range(3):
            writer = Writer(1000 * turn)
            writer.await_more(1)
            time.sleep(random.uniform(0, 0.1))
            for index in random.sample(range(COPIES), COPIES):
                self.kill(index)
            writer.kill()
            for index in range(COPIES):
                self.serve(index)
            self.check(writer)

    def test_two_writers__the_second_has_it(self):
        first = Writer(0)
        first.await_more(10)
        second = Writer(1000)
        second.await_more(10)
        status, said = first.end()
        self.assertEqual(status, 1)
        self.assertIn('another writer', said)
        second.await_more(5)
        second.kill()
        self.check(first, second)

    def test_writer_stopped__changes_nothing_once_it_goes_on(self):
        """Also where it was stopped amid a store, which it finishes itself on the server's host, so
        that the second may wait for it there. Over packets the second never does: it repeats what
        the kernel gave to the stopped one, which has its share of the port, until it is heard."""
        self.kill(0)
        os.unlink(os.path.join(self.folder.name, 'copy0'))
        self.serve(0, '64M')
        self.assertEqual(log('create', '--ring', '32M', '--record', '1M', copies=1)[0], 0)
        by_packets, known = LINK == 'roce', []
        wait_s = PATIENCE_S if by_packets else 1.5
        for i in range(4):
            old, new = (''.join(random.choices('0123456789', k=1000)) * 900 for _ in range(2))
            first = self.append_lines(old, 12)
            first.stdout.readline()
            time.sleep(random.random() / 500)
            first.send_signal(signal.SIGSTOP)
            second = self.append_lines(new, 1)
            has_news = select.select([second.stdout], [], [], wait_s)[0]
            first.send_signal(signal.SIGCONT)
            self.assertTrue(has_news or not by_packets, f'round {i}: it waits for the stopped one')
            known.append((second.stdout.readline().strip(), new))
            status = second.wait(timeout=PATIENCE_S)
            self.assertEqual(status, 0, f'round {i}, {has_news}: {second.stderr.read()}')
            first.kill()
            first.wait()
            found = dict(line.split(' ', 1) for line in log('read', copies=1)[1].splitlines())
            for number, text in known:
                self.assertTrue(found.get(number) == text, f'record {number}, round {i}')
            self.assertEqual(log('trim', '--before', known[-1][0], copies=1)[0], 0)
            known = known[-1:]

    def append_lines(self, text, count):
        process = subprocess.Popen(
            words('append', 1),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

        def feed():
            try:
                with process.stdin:
                    for _ in range(count):
                        process.stdin.write(text + '\n')
            except OSError:
                pass

        feeder = threading.Thread(target=feed)
        feeder.start()
        for end in (
            process.stdout.close,
            process.stderr.close,
            feeder.join,
            process.wait,
            process.kill,
        ):
            self.addCleanup(end)
        return process

    def test_readers__fence_nobody(self):
        writer = Writer(0)
        writer.await_more(5)
        epoch = json.loads(log('status', '-o', 'json')[1])['epoch']
        for _ in range(3):
            had = len(writer.acknowledged)
            status, text, said = log('read')
            self.assertEqual(status, 0, said)
            self.assertGreaterEqual(len(text.splitlines()), had)
            seen = json.loads(log('status', '-o', 'json')[1])
            self.assertEqual(seen['epoch'], epoch)
            self.assertGreaterEqual(seen['next_record'], had)
            writer.drain()
            writer.await_more(5)
        writer.kill()
        self.check(writer)

    def test_readers__outlive_a_server(self):
        """One that is killed while a reader waits for its own reader: more than a pipe holds."""
        lines = [f'{i:0100}' for i in range(1000)]
        done = subprocess.run(
            words('append'),
            input='\n'.join(lines),
            stdout=subprocess.DEVNULL,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        self.assertEqual(done.returncode, 0)
        for index in reversed(range(COPIES)):
            with subprocess.Popen(words('read'), stdout=subprocess.PIPE, text=True) as reader:
                found = [reader.stdout.readline()]
                self.kill(index)
                found += reader.stdout.readlines()
                self.assertEqual(reader.wait(timeout=PATIENCE_S), 0)
            self.assertEqual(found, [f'{i} {line}\n' for i, line in enumerate(lines)])
            self.serve(index)

    def test_readers__say_what_helps(self):
        """Where a writer died in its recovery: a quorum has its epoch, and not its log yet."""
        for i in range(2):
            with open(os.path.join(self.folder.name, f'copy{i}'), 'r+b') as file:
                file.seek(768)
                file.write(struct.pack('<Q', 99))
        for command in 'read', 'status':
            status, _, said = log(command, '--wait', '2000')
            self.assertEqual(status, 1)
            self.assertIn('log recover', said)
        self.assertIn('epoch     100', log('recover')[1])
        self.assertEqual(log('read')[0], 0)

    def test_ring__that_nobody_could_open(self):
        status, _, said = log('create', '--ring', str(64 * 16411), '--record', '128', '--replace')
        self.assertEqual(status, 1)
        self.assertIn('1114112', said)

    def test_tail__follows_beside_writers(self):
        path = os.path.join(self.folder.name, 'followed')
        with open(path, 'w', encoding='ascii') as out, subprocess.Popen(
            words('tail'), stdout=out
        ) as reader:
            try:
                first = Writer(0)
                first.await_more(20)
                self.kill(0)
                first.await_more(20)
                self.serve(0)
                first.await_more(20)
                second = Writer(1000)
                second.await_more(20)
                first.end()
                second.kill()
                self.check(first, second)  # a third writer: after it nothing is open
                self.await_lines(path, len(self.known))
            finally:
                reader.kill()
        with open(path, encoding='ascii') as file:
            self.assertEqual(file.read(), log('read')[1])
        self.assertEqual(log('tail', '--no-follow')[1], log('read')[1])

    def test_copy__away_at_first(self):
        self.kill(2)
        writer = Writer(0)
        writer.await_more(5)
        self.serve(2)
        self.kill(0)
        writer.drain()
        writer.await_more(5)
        writer.kill()
        self.serve(0)
        self.check(writer)

    def await_lines(self, path, count):
        deadline_s = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline_s:
            with open(path, encoding='ascii') as file:
                if len(file.read().splitlines()) >= count:
                    return
            time.sleep(0.05)
        self.fail(f'fewer than {count} lines came')

    def test_read__of_one_damaged_copy_has_what_is_whole(self):
        self.assertEqual(log('create', '--ring', '256K', '--replace', copies=1)[0], 0)
        done = subprocess.run(
            words('append', 1), input=b'one\ntwo\nlost\nfour\n', capture_output=True, check=False
        )
        self.assertEqual(done.stdout, b'0\n1\n2\n3\n')
        self.kill(0)
        with open(os.path.join(self.folder.name, 'copy0'), 'r+b') as file:
            file.seek(file.read().index(b'lost'))
            file.write(b'LOST')
        self.serve(0)
        code, said, why = log('read', copies=1)
        self.assertEqual((code, said), (1, '0 one\n1 two\n'))
        self.assertIn('Records before 2 are whole', why)

    def trim_all(self, before):
        """A writer ends when a quorum has it. The last copy may be behind then, and stays so until
        another writer comes."""
        limit = time.monotonic() + PATIENCE_S
        while True:
            self.assertEqual(log('trim', '--before', str(before))[0], 0)
            status = json.loads(log('status', '-o', 'json')[1])
            if status['copies'] == ['live'] * COPIES or time.monotonic() > limit:
                return status

    def test_trim__makes_room(self):
        writer = Writer(0)
        writer.await_more(30)
        writer.kill()
        status = self.trim_all(20)
        self.assertEqual(status['first_record'], 20)
        with open(os.path.join(self.folder.name, 'copy1'), 'r+b') as file:
            file.seek(768)
            file.write(struct.pack('<Q', 2**63 - 1))
        said = log('status')[1]
        self.assertIn(f'live     127.0.0.1:{PORT}\n', said)
        self.assertIn(f'damaged  127.0.0.1:{PORT + 1}\n', said)
        self.assertIn('create --replace', said)
        self.assertGreaterEqual(status['next_record'], 30)
        self.assertTrue(log('read')[1].startswith('20 record 20\n'))

    def test_bench__ends_after_its_time(self):
        done = log('bench', '--runtime', '0', '-o', 'json')
        self.assertEqual(done[0], 0, done)
        self.assertEqual(json.loads(done[1])['requests'], 1)

    def test_wrong__is_said(self):
        status, _, said = log('create', '--ring', '256K')
        self.assertEqual(status, 1)
        self.assertIn('--replace', said)
        status, _, said = log('create', '--ring', '16M', '--replace')
        self.assertEqual(status, 1)
        self.assertRegex(
            said, rf'copy 1 \(127\.0\.0\.1 port {PORT}\) has \d+ bytes, and the log takes 16\d+:'
        )
        status, _, said = log('read', '--wait', '2000', copies=2)
        self.assertEqual(status, 1)
        self.assertEqual(said.count('another number of copies'), 1)
        self.assertIn("'sidewire pmem log create'", said)
        status, shown, _ = log('status', '--wait', '2000', copies=2)
        self.assertEqual(status, 1)
        self.assertNotIn('No writer mends', shown)
        self.assertEqual(log('trim')[0], 2)

    def test_status__tells_of_each_copy(self):
        """Also where they are too few to know the log: one lost, one that does not answer. Over
        packets nobody need say that the first is gone."""
        lost = 'lost' if LINK == 'auto' else '(lost|silent)'
        # A stopped process has its share of RoCE's port, so whoever comes asks more than once.
        wait_ms = '1500' if LINK == 'auto' else '5000'
        self.kill(0)
        os.kill(self.servers[1].pid, signal.SIGSTOP)
        status, shown, said = log('status', '--wait', wait_ms)
        self.assertEqual(status, 1)
        self.assertIn('deadline', said)
        self.assertRegex(shown, rf'(?m)^copy 1 +{lost} +127\.0\.0\.1:{PORT}  .+$')
        self.assertRegex(
            shown,
            rf'(?m)^copy 2 +silent +127\.0\.0\.1:{PORT + 1}  no answer within [\d.]+ s$',
        )
        self.assertRegex(shown, rf'(?m)^copy 3 +answers +127\.0\.0\.1:{PORT + 2}$')
        status, shown, _ = log('status', '--wait', wait_ms, '-o', 'json')
        self.assertEqual(status, 1)
        seen = json.loads(shown)
        self.assertRegex(' '.join(seen['copies']), f'^{lost} silent answers$')
        self.assertEqual([bool(why) for why in seen['reasons']], [True, True, False])
        self.assertNotIn('epoch', seen)


if __name__ == '__main__':
    if LINK == 'roce':  # a stopped process has a share of the port, which others would meet
        move_to_own_network()
    unittest.main(argv=[sys.argv[0], *CASES])
