#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""Whole saves through what breaks below them: a network that is cut, bits that turn over on the
wire and where a volume lies, a disk that gets full, a server that is stopped. Each is found, placed
and told; the program goes on saving; the last good snapshot stays, and repairs the others.

usage: test_faults.py SIDEWIRE TRAINER ROUNDS SEED [CASE...]
"""
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.append(os.path.join(HERE, '../../../apps'))
from damage import Bytes, FullDisk, filled, storm_of_flips  # noqa: E402
from hosts import ADDRESSES, Hosts  # noqa: E402
from pair import Skip  # noqa: E402
from sinks import FileSink, NvmeSink, PeerSink, PmemSink  # noqa: E402
from trainers import LOST, NO_ROOM, Trainer, check, failed, has  # noqa: E402

SIDEWIRE, TRAINER, ROUNDS, SEED, *CASES = sys.argv[1:]
PROGRAM = SIDEWIRE, TRAINER
RANGES = 4  # of the program's state
ROUNDS = int(ROUNDS)


class DiskSink(FileSink):
    """The block device of a disk that gets full."""

    def __init__(self, disk):
        self.path, self.text = disk.path, 'file:' + disk.path


class DiskNvmeSink(NvmeSink):
    """The same, served."""

    def __init__(self, disk, *where):
        self.disk = disk
        super().__init__(*where)

    def words(self):
        words = super().words()
        return [*words[:-1], f'block:{self.disk.path},bs=4096']


class Faults(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(dir='/var/tmp')
        self.addCleanup(folder.cleanup)
        self.folder, self.random = folder.name, random.Random(int(SEED))

    def sink(self, kind, name='run', **how):
        made = kind(SIDEWIRE, self.folder, name, **how)
        self.addCleanup(made.end)
        return made

    def trainer(self, sinks, **options):
        made = Trainer(PROGRAM, sinks, **options)
        self.addCleanup(lambda: made.process.poll() is None and made.end())
        return made

    def assert_there(self, sinks, durable, **how):
        found = check(PROGRAM, sinks, **how) or 0
        self.assertGreaterEqual(found, durable, [sink.text for sink in sinks])

    def scan(self, command, sinks):
        """(exit status, what was found)"""
        named = [word for sink in sinks for word in ('--sink', sink.text)]
        done = subprocess.run(
            [SIDEWIRE, 'snapshot', command, *named, '-o', 'json'],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        return done.returncode, json.loads(done.stdout or '{}')

    def assert_repaired(self, good, bad):
        """All copies are equal again, and each alone is enough."""
        code, said = self.scan('scrub', [good, bad])
        self.assertEqual((code, said['damaged']), (0, said['repaired']), said)
        code, said = self.scan('verify', [good, bad])
        self.assertEqual((code, said['damaged']), (0, 0), said)
        self.assertEqual(check(PROGRAM, [good]), check(PROGRAM, [bad]))

    # ---- the network ----

    def cut_beside_a_file(self, kind):
        """Training goes on with the file; the other sink comes back with the network."""
        try:
            hosts = Hosts()
        except Skip as why:
            self.skipTest(str(why))
        self.addCleanup(hosts.close)
        file, far = self.sink(FileSink), self.far_sink(hosts, kind)
        trainer = self.trainer([file, far], quorum=1, stall_ms=1000, wrap=hosts.wrap[1])
        for _ in range(ROUNDS):
            trainer.hear_until(has(1, 1))
            time.sleep(self.random.random() * 0.02)
            hosts.set_link(1, hosts.names[1], 'down')
            trainer.hear_until(has(1, 0))
            trainer.hear_durable(2)
            hosts.set_link(1, hosts.names[1], 'up')
        trainer.hear_until(has(1, 1))
        hosts.set_link(1, hosts.names[1], 'down')
        trainer.end()
        hosts.set_link(1, hosts.names[1], 'up')
        self.assertEqual(trainer.failures(), [])
        # The last one may be durable by the peer alone, which is quicker than a disk.
        self.assert_there([file, far], trainer.durable, wrap=hosts.wrap[0])
        self.assert_there([file], trainer.newest[0])
        self.assert_there([far], trainer.newest[1], wrap=hosts.wrap[0])

    def cut_alone(self, kind):
        """Without another sink each snapshot fails by itself, and says which sink is lost."""
        try:
            hosts = Hosts()
        except Skip as why:
            self.skipTest(str(why))
        self.addCleanup(hosts.close)
        far = self.far_sink(hosts, kind)
        trainer = self.trainer([far], stall_ms=1000, wrap=hosts.wrap[1])
        for _ in range(ROUNDS):
            trainer.hear_durable(2)
            hosts.set_link(1, hosts.names[1], 'down')
            words = trainer.hear_until(failed)
            self.assertEqual(int(words[2]), LOST, words)
            self.assertIn(far.text, ' '.join(words))
            hosts.set_link(1, hosts.names[1], 'up')
            trainer.hear_durable(1)
        trainer.end()
        self.assert_told_once(trainer)
        self.assert_there([far], trainer.durable, wrap=hosts.wrap[0])

    def far_sink(self, hosts, kind):
        return self.sink(kind, 'far', host=ADDRESSES[0], wrap=hosts.wrap[0])

    def assert_told_once(self, trainer):
        steps = [int(words[1]) for words in trainer.failures()]
        self.assertEqual(steps, sorted({*steps}))

    def test_cut__peer_beside_a_file(self):
        self.cut_beside_a_file(PeerSink)

    def test_cut__pmem_beside_a_file(self):
        self.cut_beside_a_file(PmemSink)

    def test_cut__nvme_beside_a_file(self):
        self.cut_beside_a_file(NvmeSink)

    def test_cut__peer_alone(self):
        self.cut_alone(PeerSink)

    def test_cut__pmem_alone(self):
        self.cut_alone(PmemSink)

    def test_cut__nvme_alone(self):
        self.cut_alone(NvmeSink)

    # ---- the wire ----

    def bits_on_the_wire(self, kind):
        """Both ways: nothing of it comes through."""
        faults = f'corrupt=2%,seed={self.random.randrange(1 << 30)}'
        variables = {'SIDEWIRE_LINK': 'roce', 'SIDEWIRE_FAULTS': faults}
        file, far = self.sink(FileSink), self.sink(kind, 'far', variables=variables)
        how = ['--link', 'roce', '--faults', faults]
        with open(os.path.join(self.folder, 'said'), 'w+', encoding='utf-8') as said:
            steps = 2 + ROUNDS
            trainer = self.trainer([file, far], quorum=2, steps=steps, how=how, stderr=said)
            self.assertEqual(trainer.hear_all(), 0)
            said.seek(0)
            turned = re.search(r'(\d+) corrupted', said.read())
        self.assertGreater(int(turned[1]), 10)
        self.assertEqual((trainer.failures(), trainer.durable), ([], steps))
        self.assertEqual(check(PROGRAM, [far], how=how), steps)
        self.assertEqual(check(PROGRAM, [file]), steps)

    def test_wire__bits_turn_over_to_a_peer(self):
        self.bits_on_the_wire(PeerSink)

    def test_wire__bits_turn_over_to_pmem(self):
        self.bits_on_the_wire(PmemSink)

    def test_wire__bits_turn_over_to_nvme(self):
        self.bits_on_the_wire(NvmeSink)

    # ---- where a volume lies ----

    def bits_at_rest(self, kind, other):
        """A bit of the newest snapshot is placed by name, passed by, and repaired."""
        good, bad = self.sink(other, 'good'), self.sink(kind, 'bad')
        trainer = self.trainer([bad, good], quorum=2, steps=3)
        self.assertEqual((trainer.hear_all(), trainer.durable), (0, 3))
        volume = Bytes(bad)
        first = volume.find(filled(3 * RANGES, 64))
        self.assertIsNotNone(first, 'the first range of step 3 is nowhere')
        volume.flip(first, self.random)
        volume.close()
        code, said = self.scan('verify', [bad, good])
        places = [(one['sink'], one['step'], one['block']) for one in said['findings']]
        self.assertEqual((code, places), (1, [(bad.text, 3, first)]))
        self.assertIn('bytes from 0 of layer.0.weight', said['findings'][0]['where'])
        self.assertEqual(check(PROGRAM, [bad, good]), 3)
        self.assert_repaired(good, bad)

    def test_bit_at_rest__in_a_peer(self):
        self.bits_at_rest(PeerSink, FileSink)

    def test_bit_at_rest__in_pmem(self):
        self.bits_at_rest(PmemSink, PeerSink)

    def test_bit_at_rest__in_nvme(self):
        self.bits_at_rest(NvmeSink, PmemSink)

    def test_bit_at_rest__in_a_file(self):
        self.bits_at_rest(FileSink, NvmeSink)

    def bits_amid_saves(self, kind, other):
        """Snapshots that both sinks must have fail, and say where, until the bits stay as they are;
        with one that is enough each snapshot is there."""
        good, bad = self.sink(other, 'good'), self.sink(kind, 'bad')
        trainer = self.trainer([good, bad], quorum=2)
        trainer.hear_durable(2)
        for _ in range(ROUNDS):
            with storm_of_flips(bad, self.random.random()):
                words = trainer.hear_until(failed)
            self.assertTrue(words, trainer.lines[-3:])
            # Most blocks are of data; a leaf or the root, which are few, may be hit first.
            place = rf'{re.escape(bad.text)}.*(block \d+|a leaf does not|the root does not)'
            self.assertRegex(' '.join(words), place)
            trainer.hear_durable(2)
        trainer.end()
        self.assert_told_once(trainer)
        trainer = self.trainer([good, bad], quorum=1, take_over=1)
        trainer.hear_durable(1)
        with storm_of_flips(bad, self.random.random()):
            trainer.hear_until(has(1, 0))
            trainer.hear_durable(3)
        for _ in range(4):  # older ones, which it has alone, are forgotten
            trainer.hear_until(has(1, 1))
        trainer.end()
        self.assertEqual(trainer.failures(), [])
        self.assert_there([good, bad], trainer.durable)
        self.assert_repaired(good, bad)

    def test_bits_amid_saves__in_a_peer(self):
        self.bits_amid_saves(PeerSink, FileSink)

    def test_bits_amid_saves__in_pmem(self):
        self.bits_amid_saves(PmemSink, PeerSink)

    def test_bits_amid_saves__in_nvme(self):
        self.bits_amid_saves(NvmeSink, FileSink)

    # ---- the disk ----

    def full_disk(self, kind):
        """The disk has room for one snapshot and a part of the next."""
        try:
            disk = FullDisk((9 << 20) + self.random.randrange(3 << 20))
        except OSError as why:
            self.skipTest(f'no loop device: {why}')
        self.addCleanup(disk.close)
        where = () if kind is DiskSink else (SIDEWIRE, self.folder, 'disk')
        made = kind(disk, *where)
        self.addCleanup(made.end)
        trainer = self.trainer([made])
        words = trainer.hear_until(failed)
        self.assertEqual(int(words[2]), NO_ROOM, words)
        self.assertIn(made.text, ' '.join(words))
        good = trainer.durable
        self.assertGreaterEqual(good, 1)
        for _ in range(2):
            self.assertEqual(trainer.hear_until(failed)[0], 'failed')
        disk.get_room()
        trainer.hear_durable(3)
        trainer.end()
        self.assert_told_once(trainer)
        self.assert_there([made], trainer.durable)

    def test_full_disk__of_a_file(self):
        self.full_disk(DiskSink)

    def test_full_disk__of_nvme(self):
        self.full_disk(DiskNvmeSink)

    # ---- a server that is stopped ----

    def stopped(self, kind):
        file, other = self.sink(FileSink), self.sink(kind, 'other')
        trainer = self.trainer([file, other], quorum=1, stall_ms=1000)
        for _ in range(ROUNDS):
            trainer.hear_until(has(1, 1))
            time.sleep(self.random.random() * 0.02)
            other.send(signal.SIGSTOP)
            trainer.hear_until(has(1, 0))
            trainer.hear_durable(2)
            other.send(signal.SIGCONT)
        trainer.hear_until(has(1, 1))
        trainer.end()
        self.assertEqual(trainer.failures(), [])
        self.assert_there([file, other], trainer.durable)
        self.assert_there([file], trainer.newest[0])
        self.assert_there([other], trainer.newest[1])

    def test_stopped__pmem(self):
        self.stopped(PmemSink)

    def test_stopped__nvme(self):
        self.stopped(NvmeSink)


if __name__ == '__main__':
    unittest.main(argv=[sys.argv[0], *CASES], verbosity=2)
