#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""sidewire pmem as users run it: a server and its clients, rights, restarts under a running client,
strangers.

usage: test_pmem.py SIDEWIRE STRANGER BAD_DISK LINK
"""
import json
import os
import struct
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), '../../../tools'))
import ports  # noqa: E402

SIDEWIRE, STRANGER, BAD_DISK, LINK = sys.argv[1:]
PORT = ports.claim(2)  # the second one for another server
MIB = 1 << 20
MAGIC = 0x314D5053
HELLO = struct.pack('<IHH48s', MAGIC, 1, 0, b'stranger')
HAS_FLUSH = LINK != 'iwarp'  # and ATOMIC WRITE
if LINK == 'roce':
    os.environ['SIDEWIRE_DIRECT'] = 'off'
if LINK == 'iwarp':
    os.environ['SIDEWIRE_LINK'] = 'iwarp'


def client(*words, data=None):
    command, *rest = words
    return subprocess.run(
        [SIDEWIRE, 'pmem', command, '-a', '127.0.0.1', '-s', str(PORT), *rest],
        input=data,
        capture_output=True,
        timeout=30,
        check=False,
    )


def here(command, *words):
    """A command that asks the server of this host."""
    return subprocess.run(
        [SIDEWIRE, 'pmem', command, *words], capture_output=True, timeout=30, check=False
    )


def refused_at(control, folder):
    """What a second server says whose socket is another one's."""
    other = os.path.join(folder, 'second')
    line = f'-l 127.0.0.1:{PORT + 1} --size 64K --control {control}'
    done = here('serve', other, *line.split())
    return done.stderr if done.returncode == 1 else b''


def client_of_log(command, *words):
    return subprocess.run(
        [SIDEWIRE, 'pmem', 'log', command, '--copy', f'127.0.0.1:{PORT}', *words],
        capture_output=True,
        timeout=30,
        check=False,
    )


def stranger(hello, message=b''):
    done = subprocess.run(
        [
            SIDEWIRE,
            'run',
            '--',
            STRANGER,
            str(PORT),
            hello.hex(),
            *([message.hex()] if message else []),
        ],
        capture_output=True,
        text=True,
        timeout=20,
        check=True,
    )
    return done.stdout.split('\n')[:-1]


def header(kind, length, magic=MAGIC, status=0):
    return struct.pack('<IBBHII', magic, kind, status, length, 7, 0)


class Server:
    def __init__(self, path, *words, env=None):
        self.process = subprocess.Popen(
            [SIDEWIRE, 'pmem', 'serve', path, '--listen', '127.0.0.1', '--port', str(PORT), *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, **(env or {})},
        )
        said = self.process.stdout.readline()
        while 'Ctrl-C' not in said:
            line = self.process.stdout.readline()
            if not line:
                raise RuntimeError('the server said: ' + said)
            said += line

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()

    def end(self):
        self.process.terminate()
        try:
            return self.process.wait(timeout=10)
        finally:
            self.process.stdout.close()


def refused(path, *words):
    """What a server says that does not start."""
    done = subprocess.run(
        [SIDEWIRE, 'pmem', 'serve', path, '--listen', '127.0.0.1', *words],
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )
    assert done.returncode == 1, done
    return done.stderr


class Pmem(unittest.TestCase):
    def setUp(self):
        # A disk's, where a tmpfs would not be persistent
        self.folder = tempfile.TemporaryDirectory(dir='/var/tmp')
        self.addCleanup(self.folder.cleanup)
        self.path = os.path.join(self.folder.name, 'region')

    def serve(self, *words):
        server = Server(self.path, '--size', '8M', *words)
        self.addCleanup(lambda: server.process.poll() is not None or server.kill())
        return server

    def test_copies__what_is_put_is_there(self):
        server = self.serve()
        data = os.urandom(3 * MIB + 123)
        done = client('put', '--offset', '100', '-', data=data)
        self.assertEqual(done.returncode, 0, done.stderr)
        with open(self.path, 'rb') as file:
            file.seek(100)
            self.assertEqual(file.read(len(data)), data)
        done = client('get', '--offset', '100', '--bytes', str(len(data)), '-')
        self.assertEqual((done.returncode, done.stdout), (0, data))
        for way in ('--no-flush', '--no-atomic-write'):
            self.assertEqual(
                client('get', '--offset', '100', '--bytes', str(len(data)), way, '-').stdout, data
            )
        self.assertEqual(client('get', '--bytes', '9M', '-').returncode, 1)
        self.assertEqual(server.end(), 0)

    def test_info__says_what_is_so(self):
        self.serve('--name', 'ledger')
        info = json.loads(client('info', '-o', 'json').stdout)
        self.assertEqual(
            (info['name'], info['bytes'], info['flush'], info['atomic_publish']),
            ('ledger', 8 * MIB, 'flush' if HAS_FLUSH else 'read', HAS_FLUSH),
        )
        self.assertEqual(info['ranges'], [{'offset': 0, 'bytes': 8 * MIB, 'rights': 'rw'}])
        self.assertEqual(info['persistent'], HAS_FLUSH and info['kind'] == 'file')
        read = json.loads(client('info', '-o', 'json', '--no-flush').stdout)
        self.assertEqual(
            (read['flush'], read['persistent'], read['visible']), ('read', False, True)
        )
        self.assertEqual(read['promise'] != info['promise'], HAS_FLUSH)
        regions = json.loads(client('ls', '-o', 'json').stdout)['regions']
        self.assertEqual(
            [(one['name'], one['bytes'], one['identity']) for one in regions],
            [('ledger', 8 * MIB, info['identity'])],
        )
        at_port = here('ls', '-a', f'127.0.0.1:{PORT}', '-o', 'json')
        self.assertEqual(json.loads(at_port.stdout)['regions'], regions)
        other = client('info', '--region', 'zork')
        self.assertEqual(other.returncode, 1)
        self.assertIn(b'has no region "zork"', other.stderr)

    def test_rights__no_more_than_was_given(self):
        self.serve(
            '--allow', '127.0.0.1:0-1M:rw', '--allow', '*:1M-2M:r', '--allow', '192.0.2.1:*:rw'
        )
        self.assertEqual(client('put', '-', data=bytes(MIB)).returncode, 0)
        self.assertEqual(client('get', '--offset', '1M', '--bytes', '1M', '-').returncode, 0)
        for words in (
            ['put', '--offset', '1M', '-'],
            ['put', '--offset', str(MIB - 1), '-'],
            ['get', '--offset', '2M', '--bytes', '1', '-'],
        ):
            done = client(*words, data=b'xx')
            self.assertEqual(done.returncode, 1, words)
            self.assertIn(b'not that right', done.stderr)

    def test_rights__a_client_without_any_is_refused(self):
        self.serve('--allow', '192.0.2.1:*:rw')
        done = client('info')
        self.assertEqual(done.returncode, 1)
        self.assertIn(b'no rights', done.stderr)

    def test_regions__several_of_one_server(self):
        other = os.path.join(self.folder.name, 'other')
        self.serve(
            other,
            *'--name first --name second --allow 127.0.0.1:*:rw@first --allow *:*:r@second'.split(),
        )
        regions = json.loads(client('ls', '-o', 'json').stdout)['regions']
        self.assertEqual(
            [(one['name'], one['rights']) for one in regions], [('first', 'rw'), ('second', 'r')]
        )
        self.assertEqual(client('put', '--region', 'first', '-', data=b'one').returncode, 0)
        done = client('put', '--region', 'second', '-', data=b'two')
        self.assertEqual(done.returncode, 1)
        self.assertIn(b'not that right', done.stderr)
        self.assertEqual(client('get', '--region', 'second', '--bytes', '3', '-').stdout, bytes(3))
        with open(self.path, 'rb') as file:
            self.assertEqual(file.read(3), b'one')
        done = client('info')
        self.assertEqual(done.returncode, 1)
        self.assertIn(b'several regions', done.stderr)

    def test_address__wrong_ones_are_said(self):
        for text, status, said in (
            ('127.0.0.1:99999', 1, b'port 99999: a port is a number up to 65535\n'),
            ('[::1', 2, b'"[::1" is no address; write '),
        ):
            with self.subTest(text=text):
                done = here('ls', '-a', text)
                self.assertEqual((done.returncode, done.stdout), (status, b''))
                self.assertIn(said, done.stderr)

    def test_regions__wrong_ones_are_said(self):
        def refused(*words):
            done = subprocess.run(
                [
                    SIDEWIRE,
                    'pmem',
                    'serve',
                    self.path,
                    *words,
                    *f'--size 1M --listen 127.0.0.1 --port {PORT}'.split(),
                ],
                capture_output=True,
                timeout=60,
                check=False,
            )
            self.assertNotEqual(done.returncode, 0)
            return done.stderr

        self.assertIn(b'same name', refused(self.path))
        self.assertIn(b'not served', refused('--allow', '*:*:r@zork'))
        self.assertIn(b'more names', refused('--name', 'a', '--name', 'b'))
        self.assertIn(b'does not lie within', refused('--allow', '*:0-2M:r'))

    def test_served__once(self):
        server = self.serve('--size', '1M')
        other = refused(self.path, '--port', str(PORT + 1))
        for word in self.path, 'sidewire-pmem (PID ', '--shared':
            self.assertIn(word, other)
        self.assertIn('--shared', refused(self.path, '--port', str(PORT + 1), '--shared'))
        server.kill()
        self.serve()

    def test_served__shared_by_those_who_mean_to(self):
        self.serve('--size', '1M', '--shared')
        self.assertIn('shared', refused(self.path, '--port', str(PORT + 1)))
        other = Server(self.path, '--port', str(PORT + 1), '--shared')
        self.addCleanup(other.kill)
        self.assertEqual(client('put', '-', data=b'for both').returncode, 0)
        got = client('get', '-s', str(PORT + 1), '--bytes', '8', '-')
        self.assertEqual(got.stdout, b'for both')
        # A log would have two writers, each of whom believes to be alone.
        done = client_of_log('create', '--ring', '64K', '--visible-only')
        self.assertEqual(done.returncode, 1)
        self.assertIn(b'without --shared', done.stderr)

    def test_holes__are_filled_or_refused(self):
        with open(self.path, 'wb') as file:
            file.truncate(MIB)
        self.serve()
        self.assertGreaterEqual(os.stat(self.path).st_blocks * 512, MIB)
        large = os.path.join(self.folder.name, 'large')
        stat = os.statvfs(self.folder.name)
        with open(large, 'wb') as file:
            try:
                file.truncate(stat.f_bavail * stat.f_frsize + (1 << 30))
            except OSError:
                self.skipTest('no file may be as large')
        said = refused(large, '--port', str(PORT + 1))
        self.assertIn('No space left', said)
        self.assertIn('make room', said)
        self.assertEqual(os.stat(large).st_blocks, 0)
        size = str(os.stat(large).st_size)
        os.unlink(large)
        said = refused(large, '--port', str(PORT + 1), '--size', size)
        self.assertIn('no room', said)
        self.assertFalse(os.path.exists(large))

    def test_fault__of_one_writer_hurts_no_other(self):
        """The file becomes shorter under the server: whoever writes there has an error, alone."""
        self.serve()
        self.assertEqual(client('put', '-', data=b'at the start').returncode, 0)
        os.truncate(self.path, 4 * MIB)
        with subprocess.Popen(
            [SIDEWIRE, 'pmem', 'put', '-a', '127.0.0.1', '-s', str(PORT), '-f', '6M', '-'],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        ) as writer:
            writer.stdin.write(b'into nothing')
            writer.stdin.close()
            try:
                self.assertNotEqual(writer.wait(timeout=20), 0)
            except subprocess.TimeoutExpired:
                writer.kill()
                raise
        self.assertEqual(client('get', '--bytes', '12', '-').stdout, b'at the start')
        self.assertEqual(client('put', '-f', '1M', '-', data=b'later').returncode, 0)
        with open(self.path, 'rb') as file:
            file.seek(MIB)
            self.assertEqual(file.read(5), b'later')

    @unittest.skipUnless(HAS_FLUSH, 'no FLUSH')
    def test_disk__that_failed_a_flush_is_not_trusted_again(self):
        """The kernel tells one flush of a disk's error, the next one finds clean pages."""
        bad = os.path.join(self.folder.name, 'bad')
        env = {'LD_PRELOAD': BAD_DISK, 'BAD_DISK': bad}
        server = Server(self.path, '--size', '8M', env=env)
        self.addCleanup(lambda: server.process.poll() is not None or server.kill())
        self.assertEqual(client('put', '-', data=b'fine').returncode, 0)
        with open(bad, 'xb'):
            pass
        done = client('put', '-', data=b'lost')
        self.assertEqual(done.returncode, 1)
        self.assertIn(b'could not flush: its disk failed', done.stderr)
        for words in (('put', '-f', '1M', '-'), ('get', '--bytes', '4', '-')):
            done = client(*words, data=b'more')
            self.assertEqual(done.returncode, 1, done)
            self.assertIn(b'check that disk, then restart the server', done.stderr)
        server.process.terminate()
        said = server.process.communicate(timeout=10)[0]
        self.assertEqual(said.count('the disk of region "region" has failed a write: Input/'), 1)
        self.serve()
        self.assertEqual(client('put', '-', data=b'fine').returncode, 0)

    def test_names__are_text(self):
        odd = os.path.join(self.folder.name, 'r\udcff')
        self.assertIn('UTF-8', refused(odd, '--size', '1M'))
        self.serve('--name', 'r\u00e9gion')
        self.assertEqual(
            json.loads(client('ls', '-o', 'json').stdout)['regions'][0]['name'], 'r\u00e9gion'
        )

    def test_status__counts(self):
        other = os.path.join(self.folder.name, 'other')
        self.serve(other, '--allow', '127.0.0.1:*:rw@region', '--allow', '127.0.0.1:*:r@other')
        writer = subprocess.Popen(
            [
                SIDEWIRE,
                *f'pmem bench -a 127.0.0.1 -s {PORT} --region region --count 10000000'.split(),
                *'--rate 1M -D'.split(),
                '--rw',
                'persistent' if HAS_FLUSH else 'visible',
            ],
            stdout=subprocess.DEVNULL,
        )
        try:
            client('info', '--region', 'other')
            deadline_s = time.monotonic() + 30
            status = {'regions': [{'clients': 0}]}
            while not status['regions'][0]['clients'] and time.monotonic() < deadline_s:
                status = json.loads(client('status', '-o', 'json').stdout)
        finally:
            writer.kill()
            writer.wait()
        self.assertEqual(
            [(one['name'], one['opens'], one['writers']) for one in status['regions']],
            [('region', 1, 1), ('other', 1, 0)],
        )
        self.assertEqual((status['refused'], status['malformed'], status['ended']), (0, 0, 0))
        self.assertGreaterEqual(status['connected'], 3)
        self.assertEqual(status['connections'], status['connected'])  # the old key
        self.assertGreaterEqual(status['clients'], 2)
        self.assertIn(b'REGION', client('status').stdout)

    def test_status__of_the_server_here(self):
        control = os.path.join(self.folder.name, 'control')
        server = self.serve('--control', control)
        self.assertEqual(client('info').returncode, 0)
        status = json.loads(here('status', '-o', 'json', '--control', control).stdout)
        self.assertEqual(status['regions'][0]['opens'], 1)
        pid = str(server.process.pid)
        self.assertIn(b'REGION', here('status', '--control', control).stdout)
        self.assertIn(
            b'sidewire_pmem_region_opens_total{name="region"} 1\n',
            here('metrics', '--control', control).stdout,
        )
        self.assertIn(b'another server has it', refused_at(control, self.folder.name))
        self.assertEqual(server.end(), 0)
        self.assertIn(b'is the server running', here('status', '--control', control).stderr)
        self.assertIn(b'is the server running', here('status', '--pid', pid).stderr)

    def test_status__is_served_without_a_folder_for_its_socket(self):
        """Clients do not need it."""
        os.environ['XDG_RUNTIME_DIR'] = '/' + 'x' * 100
        self.addCleanup(os.environ.pop, 'XDG_RUNTIME_DIR')
        self.serve()
        self.assertEqual(client('info').returncode, 0)
        self.assertIn(b'XDG_RUNTIME_DIR', here('status').stderr)

    def test_persistence__is_promised_where_it_is(self):
        """iWARP has neither FLUSH nor ATOMIC WRITE: bytes are moved, and nothing is claimed of
        them."""
        self.serve()
        done = client('put', '-', data=b'ledger')
        self.assertEqual(
            (done.returncode, b'would not outlive the power' in done.stderr), (0, not HAS_FLUSH)
        )
        done = client('bench', '--count', '10', '-D', '--rw', 'persistent')
        self.assertEqual(
            (done.returncode, b'cannot promise' in done.stderr),
            (0, False) if HAS_FLUSH else (1, True),
            done.stderr,
        )
        self.assertEqual(client('bench', '--count', '10', '-D', '--rw', 'visible').returncode, 0)

    def test_bench__json_has_units(self):
        self.serve()
        words = '--count 10 --bs 8K --rw read -o json'.split()
        told = json.loads(client('bench', *words).stdout)
        self.assertEqual((told['rw'], told['request_bytes'], told['requests']), ('read', 8192, 10))
        self.assertGreater(told['p50_us'], 0)
        self.assertEqual((told['bs'], told['count']), (8192, 10))  # the old keys
        words = '--runtime 0 --rw read -o json'.split()
        self.assertEqual(json.loads(client('bench', *words).stdout)['requests'], 1)
        done = client_of_log('create', '--ring', '256K', '--record', '128')
        self.assertEqual(
            (done.returncode, b'persistent FLUSH' in done.stderr),
            (0, False) if HAS_FLUSH else (1, True),
            done.stderr,
        )

    def start_put(self, data):
        """A put of whose data a part is on its way already."""
        put = subprocess.Popen(
            [SIDEWIRE, 'pmem', 'put', '-a', '127.0.0.1', '-s', str(PORT), '-'],
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self.addCleanup(lambda: put.poll() is not None or (put.kill(), put.communicate()))
        put.stdin.write(data)
        put.stdin.flush()
        return put

    def await_written(self, byte, offset):
        with open(self.path, 'rb', buffering=0) as file:
            for _ in range(1000):
                file.seek(offset)
                if file.read(1) == byte:
                    return
                subprocess.run(['sleep', '0.01'], check=True)
        self.fail('the first piece was never written')

    def test_restart__the_same_region_goes_on(self):
        first = self.serve()
        before = json.loads(client('info', '-o', 'json').stdout)
        data = b'a' * MIB + os.urandom(3 * MIB)
        put = self.start_put(data[:MIB])
        self.await_written(b'a', MIB - 1)
        first.kill()
        self.serve()
        _, said = put.communicate(data[MIB:], timeout=30)
        self.assertEqual(put.returncode, 0, said)
        with open(self.path, 'rb') as file:
            self.assertEqual(file.read(len(data)), data)
        after = json.loads(client('info', '-o', 'json').stdout)
        self.assertEqual(after['identity'], before['identity'])
        self.assertNotEqual(after['instance'], before['instance'])

    def test_restart__another_region_is_not_taken_for_it(self):
        first = self.serve()
        put = self.start_put(b'a' * MIB)
        self.await_written(b'a', MIB - 1)
        os.rename(self.path, self.path + '.old')
        first.kill()
        self.serve()
        _, said = put.communicate(b'b' * MIB, timeout=30)
        self.assertEqual(put.returncode, 1, said)
        self.assertIn(b'another region', said)
        with open(self.path, 'rb') as file:
            self.assertEqual(file.read(2 * MIB), bytes(2 * MIB))

    def test_strangers__each_gets_a_clear_answer(self):
        server = self.serve()
        self.assertEqual(stranger(b'\0' * 56), ['rejected 2'])
        self.assertEqual(stranger(struct.pack('<IHH48s', MAGIC, 9, 0, b'')), ['rejected 1'])
        self.assertEqual(stranger(struct.pack('<IHH48s', MAGIC, 1, 0, b'x' * 48)), ['rejected 2'])
        for label in b'\xff', b'\xc0\x80', b'\xe2\x82', b'\xed\xa0\x80', b'a\nb':
            said = stranger(struct.pack('<IHH48s', MAGIC, 1, 0, label))
            self.assertEqual(said, ['rejected 2'], label)
        name = b'region'.ljust(48, b'\0')
        for message, status in (
            (header(1, 64, magic=1) + name, 1),
            (header(1, 63) + name, 1),
            (header(1, 64) + b'x' * 48, 1),
            (b'\1\2\3', 1),
            (header(99, 16), 2),
            (header(1, 64, status=1) + name, 1),
        ):
            said = stranger(HELLO, message)
            self.assertTrue(said[0].startswith('answer '), said)
            self.assertEqual(bytes.fromhex(said[0].split()[1])[5], status, message)
            self.assertEqual(said[1:], ['ended'], message)
        self.assertEqual(stranger(HELLO, bytes(4096)), ['ended'])
        said = stranger(HELLO, header(1, 64) + name)
        self.assertEqual(bytes.fromhex(said[0].split()[1])[16:22], b'region')
        self.assertEqual(client('info').returncode, 0)
        self.assertEqual(server.end(), 0)


if __name__ == '__main__':
    unittest.main(argv=sys.argv[:1])
