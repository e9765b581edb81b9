#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""peer: as a medium, and the server behind it: what each medium does, the server's death, stops,
cuts of the network, room, rules, several ranks.

usage: test_peer.py SIDEWIRE DRIVE LINK [CASE...]
"""
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest

for folder in '../../../apps', '../../../tools':
    sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), folder))
import driven  # noqa: E402
import ports  # noqa: E402
from conformance import Conformance  # noqa: E402
from driven import BLOCK, MOST  # noqa: E402
from hosts import ADDRESSES, Hosts  # noqa: E402
from pair import Skip  # noqa: E402

SIDEWIRE, DRIVE, LINK, *CASES = sys.argv[1:]
PORT = ports.claim()
ETIMEDOUT, ECONNRESET, EACCES = 110, 104, 13
MIB = 1 << 20
if LINK in ('roce', 'iwarp'):
    os.environ['SIDEWIRE_LINK'] = LINK


class Server:
    def __init__(self, port, control, *words, wrap=(), listen='127.0.0.1', memory='128M'):
        self.control, self.wrap = control, wrap
        words = ['-l', f'{listen}:{port}', '--memory', memory, '--control', control, *words]
        self.process = subprocess.Popen(
            [*wrap, SIDEWIRE, 'snapshot', 'serve', *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        first = self.process.stdout.readline()
        if 'Ctrl-C' not in first:
            raise RuntimeError('the server said: ' + first + self.end())

    def send(self, how):
        self.process.send_signal(how)

    def end(self, how=signal.SIGTERM):
        if self.process.poll() is None:
            self.send(signal.SIGCONT)
            self.send(how)
        _, said = self.process.communicate(timeout=30)
        return said

    def status(self):
        words = [SIDEWIRE, 'snapshot', 'status', '-o', 'json', '--control', self.control]
        return json.loads(subprocess.run(words, capture_output=True, check=True).stdout)

    def volume(self, name):
        return next(one for one in self.status()['volumes'] if one['name'] == name)


class Base(unittest.TestCase):
    """A server, and media of it by NAME."""

    words = ()
    listen = '127.0.0.1'
    wraps = ((), ())  # of the server, of its clients
    name = 'run'

    def setUp(self):
        folder = tempfile.TemporaryDirectory(dir='/var/tmp')
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.server = self.serve()
        self.text = f'peer:{self.listen}:{PORT}/{self.name}'

    def own_words(self):
        return self.words

    def serve(self, *words, **how):
        control = os.path.join(self.folder, 'control')
        server = Server(
            PORT,
            control,
            *self.own_words(),
            *words,
            wrap=self.wraps[0],
            listen=self.listen,
            **how,
        )
        self.addCleanup(lambda: server.process.poll() is not None or server.end(signal.SIGKILL))
        return server

    def again(self, *words, **how):
        """Another server in the place of the one that runs."""
        self.server.end()
        self.server = self.serve(*words, **how)

    def drive(self):
        return driven.Driven([*self.wraps[1], SIDEWIRE, 'run', '--', DRIVE])

    def names_of(self, medium):
        return 'drive has the volume', f'port {PORT}'


class Memory(Base, Conformance):
    def test_note__says_that_it_is_memory(self):
        medium = self.another()
        self.assertFalse(medium.is_durable)
        self.assertIn('memory of', medium.note)

    def test_epoch__grows_with_each_writer(self):
        epochs = []
        for mode in 'w', 't', 't':
            epochs.append(self.another(mode).epoch)
        self.assertEqual(epochs, [1, 2, 3])
        self.assertEqual(self.server.volume('run')['epoch'], 3)
        self.assertEqual(self.server.status()['take_overs'], 2)

    def test_reader__is_not_made_anew(self):
        self.assert_refused(driven.ENOENT, 'no such volume', mode='r')

    def test_trainer_dies__its_volume_stays(self):
        first = self.another()
        self.assert_fine(first.do('w', 8 * BLOCK, MOST, 7))
        first.kill()
        second = self.another()
        self.assertEqual(second.epoch, 2)
        self.assert_fine(second.do('r', 8 * BLOCK, MOST, 7))

    def test_ranks__have_volumes_of_their_own(self):
        ranks = []
        for rank in range(4):
            self.text = f'peer:{self.listen}:{PORT}/run.{rank}'
            ranks.append(self.another())
        for turn in range(8):
            for rank, medium in enumerate(ranks):
                medium.begin('w', turn * MIB, MIB, rank + 10)
        for rank, medium in enumerate(ranks):
            self.assert_fine(medium.wait())
            self.assert_fine(medium.do('f'))
            self.assert_fine(medium.do('r', 0, MOST, rank + 10))
        status = self.server.status()
        self.assertEqual([one['name'] for one in status['volumes']], [f'run.{i}' for i in range(4)])
        self.assertEqual(status['used_bytes'], 4 * self.size)

    def test_room__is_told_before(self):
        self.size = 100 << 20
        self.another()
        self.text += '2'
        self.assert_refused(driven.ENOSPC, 'bytes left')
        self.size = 28 << 20
        self.another()

    def test_memory__that_the_host_has_not(self):
        with self.assertRaisesRegex(RuntimeError, 'this host has'):
            Server(PORT, os.path.join(self.folder, 'c'), memory='1000T')

    def test_names__that_are_none(self):
        for name in '.', '..', '.run', 'a/b', 'n' * 96, '/', 'a\x01b':
            self.text = f'peer:{self.listen}:{PORT}/{name}'
            self.assert_refused(driven.EINVAL, 'name')
        for name in 'ü', 'n' * 95, 'a..b':
            self.text = f'peer:{self.listen}:{PORT}/{name}'
            self.another().close()

    def test_nobody_serves__is_told(self):
        self.server.end()
        # Over packets ICMP says so, and Linux sends few of its messages a second.
        said = self.assert_refused(ETIMEDOUT, 'nobody serves', timeout_ms=3000)
        self.assertIn('snapshot serve', said)

    def test_server_killed__its_memory_is_lost(self):
        medium = self.another(timeout_ms=4000)
        self.assert_fine(medium.do('w', 0, MOST, 7))
        self.server.end(signal.SIGKILL)
        self.server = self.serve()
        code, _, ended, why = medium.do('w', 0, BLOCK, 8)
        self.assertEqual((code, ended), (ECONNRESET, ECONNRESET), why)
        self.assertIn('started anew', why)
        self.assertTrue(self.another().is_new)

    def test_server_gone__is_told_in_time(self):
        medium = self.another(timeout_ms=700)
        self.server.end(signal.SIGKILL)
        self.assertEqual(medium.do('f')[0], ETIMEDOUT)

    def test_server_stopped__is_waited_for(self):
        medium = self.another(timeout_ms=8000)
        self.server.send(signal.SIGSTOP)
        medium.begin('f')
        time.sleep(0.3)
        self.server.send(signal.SIGCONT)
        self.assert_fine(medium.wait())

    def test_server_stopped__for_too_long(self):
        medium = self.another(timeout_ms=500)
        self.server.send(signal.SIGSTOP)
        code, _, _, why = medium.do('f')
        self.assertEqual(code, ETIMEDOUT, why)
        self.assertIn('confirmed nothing', why)
        self.server.send(signal.SIGCONT)
        self.assert_fine(self.another('t').do('w', 0, BLOCK, 1))

    def test_stopped_writer__changes_nothing_once_it_goes_on(self):
        """Stopped amid its stores, taken over, continued: what the new one wrote stays."""
        for turn in range(4):
            first = self.another('t', timeout_ms=20000)
            for i in range(8):
                first.begin('w', (i % 4) * MOST, MOST, 100 + i)
            first.stop()
            second = self.another('t', timeout_ms=20000)
            for i in range(4):
                self.assert_fine(second.do('w', i * MOST, MOST, 50 + turn))
            first.go_on()
            code, _, _, why = first.do('w', 0, BLOCK, 3)
            self.assertEqual(code, driven.ESTALE, why)
            for i in range(4):
                self.assert_fine(second.do('r', i * MOST, MOST, 50 + turn))
            second.close()

    def test_killed_amid_open__nothing_is_left_of_it(self):
        for _ in range(12):
            medium = self.drive()
            medium.tell(f'open {self.text}x t {64 * MIB} 5000')
            time.sleep(0.01)
            medium.process.kill()
            medium.end()
        self.text += 'x'
        self.size = 64 * MIB
        self.assert_fine(self.another('t').do('w', 0, BLOCK, 1))
        self.assertEqual(self.server.status()['used_bytes'], 64 * MIB)


class Rules(Base):
    another = Conformance.another
    assert_refused = Conformance.assert_refused
    assert_fine = Conformance.assert_fine
    size = 16 << 20

    def test_allow__readers_and_writers(self):
        self.again('--allow', '127.0.0.1:r', '--allow', '127.0.0.1:rw@mine')
        self.assert_refused(EACCES, 'does not allow')
        self.text = self.text.replace('run', 'mine')
        self.assert_fine(self.another().do('w'))
        self.assertEqual(self.server.status()['denied'], 1)

    def test_allow__nobody_else_comes_in(self):
        self.again('--allow', '192.0.2.1:rw')
        self.assert_refused(EACCES, 'let nobody in')

    def test_rule__that_is_none(self):
        for rule in 'rw', '127.0.0.1', '127.0.0.1:w', 'x:rw', '127.0.0.1:rw@a/b', '[::1:rw':
            with self.assertRaisesRegex(RuntimeError, 'is no rule'):
                Server(PORT, os.path.join(self.folder, 'c'), '--allow', rule)


class Remove(Base):
    """Volumes of programs that are gone."""

    another = Conformance.another
    assert_fine = Conformance.assert_fine
    size = 16 << 20

    def remove(self, *words):
        done = subprocess.run(
            [SIDEWIRE, 'snapshot', 'remove', *words], capture_output=True, text=True, check=False
        )
        return done.returncode, done.stdout + done.stderr

    def there(self):
        return '-a', self.listen, '-s', str(PORT)

    def wait_gone(self):
        """The status says so, though no client asks for anything."""
        until = time.monotonic() + 20
        while self.server.status()['used_bytes']:
            self.assertLess(time.monotonic(), until, self.server.status())
            time.sleep(0.01)

    def test_remove__by_the_servers_user(self):
        here = '--control', self.server.control
        medium = self.another()
        code, said = self.remove(*here, 'run')
        self.assertEqual(code, 1)
        self.assertIn('is writing to it', said)
        medium.close()
        self.assertEqual(self.remove(*here, 'run'), (0, 'run: removed\n'))
        self.assertEqual(self.remove(*here, 'none')[0], 1)
        self.wait_gone()
        self.assertTrue(self.another().is_new)
        self.assertEqual(self.server.status()['removed'], 1)

    def test_remove__by_others_where_it_is_allowed(self):
        self.another().close()
        code, said = self.remove(*self.there(), 'run')
        self.assertEqual(code, 1)
        self.assertIn('without --allow-remove', said)
        held = os.path.join(self.folder, 'held')
        self.again('--allow-remove', '--folder', held)
        self.another().close()
        self.assertEqual(os.listdir(held), ['run.snap'])
        self.assertEqual(self.remove(*self.there(), 'run'), (0, 'run: removed\n'))
        self.assertEqual(os.listdir(held), [])
        self.assertEqual(self.remove(*self.there(), 'run')[0], 1)
        self.assertEqual(self.remove('../run')[0], 2)
        self.assertEqual(self.remove()[0], 2)

    def test_reader__of_one_that_is_removed(self):
        self.another().close()
        reader = self.another('r', timeout_ms=3000)
        self.assertEqual(self.remove('--control', self.server.control, 'run')[0], 0)
        self.assertEqual(reader.do('r')[0], ECONNRESET)


class Files(Base, Conformance):
    def own_words(self):
        return '--folder', os.path.join(self.folder, 'held')

    def test_restart__finds_what_was_written(self):
        medium = self.another(timeout_ms=4000)
        self.assertTrue(medium.is_durable)
        self.assert_fine(medium.do('w', 0, MOST, 7))
        self.assert_fine(medium.do('f'))
        self.server.end(signal.SIGKILL)
        self.server = self.serve()
        self.assertEqual(medium.do('w', 0, BLOCK, 8)[0], ECONNRESET)
        second = self.another(timeout_ms=4000)
        self.assertFalse(second.is_new)
        self.assert_fine(second.do('r', 0, MOST, 7))
        path = os.path.join(self.folder, 'held', 'run.snap')
        self.assertEqual(os.path.getsize(path), self.size)
        self.assertGreaterEqual(os.stat(path).st_blocks * 512, self.size)

    def test_deleted_file__counts_for_nothing(self):
        medium = self.another()
        self.assert_fine(medium.do('f'))
        os.unlink(os.path.join(self.folder, 'held', 'run.snap'))
        code, *_, why = medium.do('f')
        self.assertNotEqual(code, 0)
        self.assertIn('was deleted', why)
        medium.close()
        again = self.another(timeout_ms=30000)
        self.assertTrue(again.is_new)
        self.assert_fine(again.do('f'))
        self.assertTrue(os.path.exists(os.path.join(self.folder, 'held', 'run.snap')))

    def test_folder__other_files_are_left_alone(self):
        held = os.path.join(self.folder, 'held')
        for name, size in ('odd.snap', 5000), ('notes.txt', BLOCK), ('.x.snap', BLOCK):
            with open(os.path.join(held, name), 'wb') as file:
                file.truncate(size)
        with open(os.path.join(held, 'good.snap'), 'wb') as file:
            file.truncate(MIB)
        self.again()
        self.assertEqual([one['name'] for one in self.server.status()['volumes']], ['good'])
        self.assertIn('is no volume', self.server.end())

    def test_folder__holds_more_than_the_memory(self):
        with open(os.path.join(self.folder, 'held', 'large.snap'), 'wb') as file:
            file.truncate(256 << 20)
        self.server.end()
        with self.assertRaisesRegex(RuntimeError, 'more than --memory'):
            self.serve()


class Cut(Base):
    """Two hosts with a network between them that is cut."""

    another = Conformance.another
    assert_fine = Conformance.assert_fine
    size = 16 << 20

    def setUp(self):
        try:
            self.hosts = Hosts()
        except Skip as why:
            self.skipTest(str(why))
        self.addCleanup(self.hosts.close)
        self.wraps, self.listen = self.hosts.wrap, ADDRESSES[0]
        super().setUp()

    def cut(self, state):
        self.hosts.set_link(1, self.hosts.names[1], state)

    def lose(self, all_packets):
        """Those from the clients' host: they go to a station that is not there. The server's link
        stays up."""
        name = self.hosts.names[1]
        station = f'{ADDRESSES[0]} lladdr 02:00:00:00:00:01 nud permanent dev {name}'.split()
        words = ['replace', *station] if all_packets else ['del', ADDRESSES[0], 'dev', name]
        self.hosts.ip('-n', name, 'neigh', *words)

    def test_cut__for_a_while(self):
        medium = self.another(timeout_ms=30000)
        self.assert_fine(medium.do('w', 0, MOST, 7))
        self.cut('down')
        medium.begin('w', 0, MOST, 8)
        medium.begin('f')
        time.sleep(0.5)
        self.cut('up')
        self.assert_fine(medium.wait())
        self.assertEqual(medium.do('r', 0, MOST, 8)[:2], (0, 0))

    def test_room__one_other_host_does_not_have_all(self):
        self.size = 113 << 20  # of 128
        with self.assertRaisesRegex(driven.Refused, 'another host may have'):
            self.another()
        self.size = 112 << 20
        self.another().close()
        self.wraps = self.wraps[0], self.wraps[0]
        self.text += '2'
        self.size = 16 << 20
        self.another()

    def test_cut__taken_over_meanwhile(self):
        """What the network held back changes nothing once it is there again."""
        first = self.another(timeout_ms=60000)
        self.assert_fine(first.do('w', 0, MOST, 7))
        self.lose(True)
        for i in range(4):
            first.begin('w', i * MOST // 4, MOST // 4, 8)
        self.wraps = self.wraps[0], self.wraps[0]
        second = self.another('t')
        self.assert_fine(second.do('w', 0, MOST, 9))
        self.lose(False)
        code, _, _, why = first.wait()
        self.assertEqual(code, driven.ESTALE, why)
        self.assert_fine(second.do('r', 0, MOST, 9))

    def test_cut__for_ever(self):
        medium = self.another(timeout_ms=1500)
        self.cut('down')
        code, _, _, why = medium.do('w', 0, BLOCK, 8)
        self.assertEqual(code, ETIMEDOUT, why)


if __name__ == '__main__':
    unittest.main(argv=[sys.argv[0], *CASES], verbosity=2)
