#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""The commands of `sidewire snapshot` on each kind of sink: what is saved comes back, what is
damaged is found, placed and repaired, and what makes no sense is refused with its place.

usage: test_commands.py SIDEWIRE [CASE...]
"""
import hashlib
import json
import os
import struct
import subprocess
import sys
import threading
import unittest

from commands import Commands, tensors_of, write_tensors
from sinks import FileSink, FolderSink, NvmeSink, PeerSink, PmemSink, StrictSink, ports

SIDEWIRE, *CASES = sys.argv[1:]
MIB = 1 << 20


class EachSink(Commands):
    def round_trip(self, kind):
        sink = self.sink(kind)
        tensors = {
            'layer.weight': ('F32', [512, 1025], os.urandom(512 * 1025 * 4)),
            'layer.bias': ('BF16', [7], os.urandom(14)),
            'step': ('I64', [], os.urandom(8)),
        }
        write_tensors(self.at('in.safetensors'), tensors)
        data = self.make_file('raw', 3 * MIB + 17)
        small = b'{"tied": {"head": "layer.weight"}}'
        with open(self.at('small'), 'wb') as file:
            file.write(small)
        words = [self.at('in.safetensors'), '--raw', 'bytes=' + self.at('raw')]
        first = self.json_of('save', [sink], *words, '--small', self.at('small'), '--step', 7)
        self.assertEqual((first['step'], first['sinks'][0]['has_it']), (7, True))
        again = self.json_of('save', [sink], *words, '--small', self.at('small'))
        self.assertEqual(again['step'], 8)
        self.assertEqual(again['changed_bytes'], 0)
        listed = self.json_of('ls', [sink])['snapshots']
        self.assertEqual([one['step'] for one in listed], [8, 7])
        self.assertTrue(all(one['is_whole'] and one['copies'] == 1 for one in listed))
        for step in [], ['--step', 7]:
            self.run_command(
                'restore',
                [sink],
                self.at('out.safetensors'),
                *('--raw', 'bytes=' + self.at('back')),
                *('--small', self.at('small.back')),
                *step,
            )
            found, metadata = tensors_of(self.at('out.safetensors'))
            self.assertEqual(found.pop('bytes'), ('U8', [len(data)], data))
            self.assertEqual(found, tensors)
            self.assertEqual(metadata['head'], 'layer.weight')
            for name, want in ('back', data), ('small.back', small):
                with open(self.at(name), 'rb') as file:
                    self.assertEqual(file.read(), want)
        return sink

    def test_file__round_trip(self):
        self.round_trip(FileSink)

    def test_peer__round_trip(self):
        self.round_trip(PeerSink)

    def test_peer_with_a_folder__outlives_its_server(self):
        sink = self.round_trip(FolderSink)
        sink.end()
        sink.serve()
        self.run_command('restore', [sink], self.at('again.safetensors'))

    def test_pmem__round_trip(self):
        self.round_trip(PmemSink)

    def test_nvme__round_trip(self):
        self.round_trip(NvmeSink)


class Several(Commands):
    def test_quorum__a_sink_that_is_not_there(self):
        file, peer = self.sink(FileSink), self.sink(PeerSink)
        data = self.make_file('raw', MIB)
        words = ['--raw', 'bytes=' + self.at('raw')]
        peer.end()
        said = self.run_command('save', [file, peer], *words, '--connect-timeout', 500, code=1)
        self.assertIn(peer.text, said)
        saved = self.json_of('save', [file, peer], *words, '--quorum', 1)
        self.assertEqual([one['has_it'] for one in saved['sinks']], [True, False])
        self.assertIn(peer.text, saved['sinks'][1]['error'])
        self.run_command('restore', [file, peer], '--raw', 'bytes=' + self.at('back'))
        with open(self.at('back'), 'rb') as back:
            self.assertEqual(back.read(), data)

    def test_ranks__parts_of_tensors_are_restored_by_rank(self):
        sinks = [f'file:{self.folder}/{{rank}}.snap']
        meet = f'127.0.0.1:{ports.claim()}'
        ranks = []
        for rank in range(3):
            self.make_file(f'in{rank}', 100000, b'%d' % rank)
            words = ['--raw', f'own{rank}={self.at("in%d" % rank)}', '--rank', rank, '--ranks', 3]
            named = ['--sink', sinks[0], '--meet', meet, '--step', '5', *map(str, words)]
            ranks.append(subprocess.Popen([SIDEWIRE, 'snapshot', 'save', *named]))
        self.assertEqual([one.wait(timeout=60) for one in ranks], [0, 0, 0])
        (entry,) = self.json_of('ls', sinks)['snapshots']
        self.assertEqual((entry['ranks'], entry['bytes'], entry['is_whole']), (3, 300000, True))
        self.run_command('restore', sinks, '--rank', 2, '--raw', 'own2=' + self.at('back'))
        with open(self.at('back'), 'rb') as back:
            self.assertEqual(back.read(), b'2' * 100000)
        self.run_command('export', sinks, self.at('all.safetensors'))
        found, _ = tensors_of(self.at('all.safetensors'))
        self.assertEqual(sorted(found), ['own0', 'own1', 'own2'])
        self.assertEqual(found['own1'][2], b'1' * 100000)
        os.unlink(self.at('1.snap'))
        self.assertIn('whole', self.run_command('restore', sinks, self.at('x'), code=1))

    def test_prune__by_step_and_by_number(self):
        sinks = [self.sink(FileSink), self.sink(PeerSink)]
        self.make_file('raw', MIB)
        for step in range(5):
            self.run_command(
                *('save', sinks, '--raw', 'bytes=' + self.at('raw')), *('--keep', 5, '--step', step)
            )
        self.assertEqual(self.json_of('prune', sinks, '--step', 3)['forgotten'], [3])
        self.assertEqual(self.json_of('prune', sinks, '--keep', 2)['forgotten'], [1, 0])
        for one in sinks:
            left = self.json_of('ls', [one])['snapshots']
            self.assertEqual([entry['step'] for entry in left], [4, 2])
        self.assertIn('step 9', self.run_command('prune', sinks, '--step', 9, code=1))

    def test_prune__two_of_the_step_that_stays(self):
        file = self.sink(FileSink)
        self.make_file('raw', 100)
        for step in 4, 5, 5:
            self.run_command(
                *('save', [file], '--raw', 'bytes=' + self.at('raw'), '--step', step, '--keep', 3)
            )
        self.assertEqual(self.json_of('prune', [file], '--keep', 1)['forgotten'], [4])
        left = self.json_of('ls', [file])['snapshots']
        self.assertEqual([entry['step'] for entry in left], [5, 5])

    def test_prune__a_rank_whose_volume_is_away(self):
        sinks = [f'file:{self.folder}/{{rank}}.snap']
        self.make_file('in', 100)
        meet = f'127.0.0.1:{ports.claim()}'
        words = ['--raw', 'bytes=' + self.at('in'), '--meet', meet, '--ranks', '2', '--step', '5']
        command = [SIDEWIRE, 'snapshot', 'save', '--sink', sinks[0], *words, '--rank']
        with subprocess.Popen([*command, '0']), subprocess.Popen([*command, '1']) as second:
            self.assertEqual(second.wait(timeout=60), 0)
        os.rename(self.at('1.snap'), self.at('away'))
        self.assertIn('left out', self.run_command('prune', sinks, '--keep', 1, code=1))
        os.rename(self.at('away'), self.at('1.snap'))
        (entry,) = self.json_of('ls', sinks)['snapshots']
        self.assertTrue(entry['is_whole'])
        os.unlink(self.at('1.snap'))
        self.assertEqual(self.json_of('prune', sinks, '--step', 5)['forgotten'], [5])


class Damage(Commands):
    """Bits are turned over on a disk, with a good copy in the memory of a peer, or without."""

    def save_twice(self, sinks):
        self.data = self.make_file('raw', 6 * MIB)
        for step in 1, 2:
            self.run_command('save', sinks, '--raw', 'bytes=' + self.at('raw'), '--step', step)

    def block_of(self, index):
        return self.data[index * 4096 : (index + 1) * 4096]

    def flip_block(self, path, index):
        with open(path, 'r+b') as file:
            at = file.read().index(self.block_of(index))
            file.seek(at + 7)
            byte = file.read(1)[0]
            file.seek(at + 7)
            file.write(bytes([byte ^ 4]))
        return at // 4096

    def restore(self, sinks, *words, code=0):
        said = self.run_command(
            'restore', sinks, '--raw', 'bytes=' + self.at('back'), *words, code=code
        )
        if not code:
            with open(self.at('back'), 'rb') as back:
                self.assertEqual(back.read(), self.data)
        return said

    def test_only_copy__refused_with_its_place(self):
        file = self.sink(FileSink)
        self.save_twice([file])
        self.flip_block(file.path, 1000)
        said = self.restore([file], code=1)
        self.assertIn(f'bytes from {1000 * 4096} of bytes', said)
        self.assertFalse(os.path.exists(self.at('back')))

    def test_stranger__names_and_years_do_no_harm(self):
        name = 'a\n\x1b[31mred\x9b'
        write_tensors(self.at('in.safetensors'), {name: ('U8', [8], b'12345678')})
        self.run_command('save', ['file:' + self.at('run')], self.at('in.safetensors'))
        with open(self.at('run'), 'rb') as file:
            whole = file.read()
        damaged = bytearray(whole)
        damaged[whole.index(b'12345678')] ^= 1
        with open(self.at('run'), 'wb') as file:
            file.write(damaged)
        for command in ['verify'], ['restore', self.at('out.safetensors')]:
            said = subprocess.run(
                [SIDEWIRE, 'snapshot', *command, '--sink', 'file:' + self.at('run')],
                capture_output=True,
                check=False,
            )
            self.assertEqual(said.returncode, 1)
            text = (said.stdout + said.stderr).decode()
            self.assertIn('a??[31mred??', text)
            self.assertNotIn('\x1b', text)
        for block in 0, 4096:  # taken in a year that no calendar has
            one = bytearray(whole[block : block + 4064])
            struct.pack_into('<Q', one, 128 + 48, 1 << 62)
            damaged[block : block + 4096] = one + hashlib.sha256(one).digest()
        with open(self.at('run'), 'wb') as file:
            file.write(damaged)
        self.assertIn(' ? ', self.run_command('ls', ['file:' + self.at('run')]))

    def test_another_version__is_refused_and_not_touched(self):
        self.make_file('raw', 100)
        words = '--raw', 'w=' + self.at('raw')
        self.run_command('save', ['file:' + self.at('run')], *words)
        with open(self.at('run'), 'rb') as file:
            volume = bytearray(file.read())
        for block in 0, 4096:  # in one of the two superblocks, whichever is newer
            other = bytearray(volume)
            struct.pack_into('<I', other, block + 8, 2)
            digest = hashlib.sha256(other[block : block + 4064]).digest()
            other[block + 4064 : block + 4096] = digest
            with open(self.at('run'), 'wb') as file:
                file.write(other)
            sinks = ['file:' + self.at('run')]
            for command in ['ls'], ['save', *words], ['restore', '--raw', 'w=' + self.at('x')]:
                said = self.run_command(command[0], sinks, *command[1:], code=1)
                self.assertIn('another version', said)
            with open(self.at('run'), 'rb') as file:
                self.assertEqual(file.read(), other)

    def test_truncated__says_what_is_missing(self):
        file = self.sink(FileSink)
        self.save_twice([file])
        with open(file.path, 'rb') as volume:
            whole = volume.read()
        words = '--raw', 'bytes=' + self.at('raw')
        for size in len(whole) - 4096, 5 << 20, 32768, 8192, 5000:
            os.truncate(file.path, size)
            there = size - size % 4096
            wanted = f'{there} bytes are there, and the volume has {len(whole)}'
            for command in ['ls'], ['save', *words], ['restore', '--raw', 'bytes=' + self.at('x')]:
                said = self.run_command(command[0], [file], *command[1:], code=1)
                self.assertIn(wanted if size >= 8192 else f'{there} bytes are too short', said)
                self.assertNotIn('delete', said)
            self.assertEqual(os.path.getsize(file.path), size)
            with open(file.path, 'r+b') as volume:  # the rest is put back
                volume.seek(size)
                volume.write(whole[size:])
        self.restore([file])

    def test_other_copy__is_read(self):
        file, peer = self.sink(FileSink), self.sink(PeerSink)
        self.save_twice([file, peer])
        for index in 3, 700, 1535:
            self.flip_block(file.path, index)
        self.restore([file, peer])

    def test_restore__repairs_when_asked_to(self):
        file, peer = self.sink(FileSink), self.sink(PeerSink)
        self.save_twice([file, peer])
        self.flip_block(file.path, 3)
        self.restore([file, peer])
        self.run_command('verify', [file], code=1)
        self.restore([file, peer], '--repair')
        self.run_command('verify', [file])

    def test_verify__of_one_step(self):
        file = self.sink(FileSink)
        self.save_twice([file])
        self.make_file('raw', 6 * MIB)
        self.run_command('save', [file], '--raw', 'bytes=' + self.at('raw'), '--step', 3)
        self.flip_block(file.path, 700)  # of steps 1 and 2 alone
        self.assertEqual(self.json_of('verify', [file], '--step', 3)['damaged'], 0)
        self.run_command('verify', [file], '--step', 2, code=1)
        self.assertIn('step 4', self.run_command('verify', [file], '--step', 4, code=1))

    def test_verify_and_scrub__find_place_and_repair(self):
        file, peer = self.sink(FileSink), self.sink(PeerSink)
        self.save_twice([file, peer])
        blocks = sorted(self.flip_block(file.path, index) for index in (3, 700, 1535))
        self.assertIn('3 of 3', self.run_command('verify', [file, peer], code=1))
        done = subprocess.run(
            [SIDEWIRE, *f'snapshot verify -o json --sink {file.text} --sink {peer.text}'.split()],
            capture_output=True,
            check=False,
        )
        found = json.loads(done.stdout)
        self.assertEqual(done.returncode, 1)
        self.assertEqual(sorted({one['block'] for one in found['findings']}), blocks)
        self.assertEqual({one['sink'] for one in found['findings']}, {file.text})
        scrubbed = self.json_of('scrub', [file, peer])
        self.assertEqual(scrubbed['repaired'], scrubbed['damaged'])
        self.assertTrue(all(one['is_repaired'] for one in scrubbed['findings']))
        self.assertEqual(self.json_of('verify', [file, peer])['damaged'], 0)
        self.restore([file])


class Refusals(Commands):
    def test_save__files_that_are_none(self):
        file = self.sink(FileSink)
        bad = {
            'short': b'1234',
            'long': struct.pack('<Q', 1 << 40) + b'{}',
            'json': struct.pack('<Q', 2) + b'{]',
            'list': struct.pack('<Q', 2) + b'[]',
            'hole': self.header({'a': ('U8', [2], 1, 3)}, 3),
            'overlap': self.header({'a': ('U8', [2], 0, 2), 'b': ('U8', [2], 1, 3)}, 3),
            'outside': self.header({'a': ('U8', [9], 0, 9)}, 3),
            'shape': self.header({'a': ('F32', [2], 0, 4)}, 4),
            'dtype': self.header({'a': ('F31', [1], 0, 4)}, 4),
            'tail': self.header({'a': ('U8', [2], 0, 2)}, 3),
            'huge': self.header({'a': ('F32', [1 << 62, 1 << 62], 0, 4)}, 4),
            'twice': struct.pack('<Q', 15) + b'{"a":{},"a":{}}',
        }
        for name, data in bad.items():
            with open(self.at(name), 'wb') as out:
                out.write(data)
            with self.subTest(name):
                self.assertIn(name, self.run_command('save', [file], self.at(name), code=1))
        os.mkfifo(self.at('pipe'))  # nobody writes to it
        for words in [self.at('pipe')], ['--raw', 'bytes=' + self.at('pipe')]:
            self.assertIn('no regular file', self.run_command('save', [file], *words, code=1))
        self.assertFalse(os.path.exists(file.path))

    def test_save__where_one_was_killed_that_made_the_volume(self):
        file = self.sink(FileSink)
        data = self.make_file('raw', 100)
        with open(file.path, 'xb'):
            pass  # what it leaves between the creation of the file and its first block
        for command, words in ('ls', []), ('restore', ['--raw', 'bytes=' + self.at('back')]):
            said = self.run_command(command, [file], *words, code=1)
            self.assertIn('no such volume', said)
        self.run_command('save', [file], '--raw', 'bytes=' + self.at('raw'))
        self.run_command('restore', [file], '--raw', 'bytes=' + self.at('back'))
        with open(self.at('back'), 'rb') as back:
            self.assertEqual(back.read(), data)

    def test_save__a_file_that_gets_shorter(self):
        code = 0
        while code == 0:  # it was done before
            with open(self.at('raw'), 'wb') as out:
                out.truncate(128 * MIB)
            words = ['--sink', 'file:' + self.at('run'), '--raw', 'w=' + self.at('raw')]
            with subprocess.Popen(
                [SIDEWIRE, 'snapshot', 'save', *words], stderr=subprocess.PIPE, text=True
            ) as save:
                maps = ''
                while save.poll() is None and self.at('raw') not in maps:
                    with open(f'/proc/{save.pid}/maps', encoding='ascii') as file:
                        maps = file.read()
                os.truncate(self.at('raw'), 0)
                said = save.communicate(timeout=60)[1]
            code = save.returncode
        self.assertEqual(code, 1, said)
        self.assertIn('got shorter', said)

    @staticmethod
    def header(tensors, data_bytes):
        text = json.dumps(
            {
                name: {'dtype': dtype, 'shape': shape, 'data_offsets': [begin, end]}
                for name, (dtype, shape, begin, end) in tensors.items()
            }
        ).encode()
        return struct.pack('<Q', len(text)) + text + bytes(data_bytes)

    def test_sinks__that_are_none(self):
        self.make_file('raw', 100)
        self.make_file('other.snap', MIB)
        words = '--raw', 'bytes=' + self.at('raw')
        for sink, code in ('nonsense', 1), ('file:', 1), ('file:' + self.at('other.snap'), 1):
            with self.subTest(sink):
                said = self.run_command('save', [sink], *words, code=code)
                self.assertIn(sink, said)
        self.assertIn('delete it', said)
        self.assertEqual(os.path.getsize(self.at('other.snap')), MIB)
        self.run_command('ls', [], code=2)
        self.run_command('save', ['file:x'], code=2)
        self.assertIn('no such volume', self.run_command('ls', ['file:' + self.at('none')], code=1))

    def test_serve__a_folder_that_is_none(self):
        self.make_file('raw', 100)
        words = '-l', '127.0.0.1', '-s', '1', '-m', '1M', '--folder', self.at('raw')
        done = subprocess.run(
            [SIDEWIRE, 'snapshot', 'serve', *words],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        self.assertEqual(done.returncode, 1)
        self.assertIn(self.at('raw') + ': Not a directory', done.stderr)

    def test_serve__a_port_that_is_found(self):
        control = self.at('control')
        words = ['-l', '127.0.0.1:0', '-m', '1M', '--control', control]
        with subprocess.Popen(
            [SIDEWIRE, 'snapshot', 'serve', *words], stdout=subprocess.PIPE, text=True
        ) as server:
            said = server.stdout.readline()
            server.terminate()
        self.assertRegex(said, r'on port [1-9]\d+\.')

    def test_rules__a_stranger_hears_of_permission(self):
        peer = self.sink(StrictSink)
        self.make_file('raw', 100)
        words = '--raw', 'bytes=' + self.at('raw')
        self.assertIn('no permission', self.run_command('save', [peer], *words, code=1))
        self.assertIn('no permission', self.run_command('ls', [peer], code=1))
        where = ['-a', peer.host, '-s', peer.port, 'run']
        self.assertIn('no permission', self.run_command('remove', [], *where, code=1))

    def test_steps__up_to_the_largest(self):
        file = self.sink(FileSink)
        self.make_file('raw', 100)
        words = '--raw', 'bytes=' + self.at('raw'), '--step'
        for step in 2**63 - 1, 2**64 - 2:
            self.run_command('save', [file], *words, step)
        saved = self.json_of('save', [file], *words[:2])
        self.assertEqual(saved['step'], str(2**64 - 1))
        listed = [one['step'] for one in self.json_of('ls', [file])['snapshots']]
        self.assertEqual(listed, [str(2**64 - 1), str(2**64 - 2)])
        self.assertIn(str(2**64 - 1), self.run_command('ls', [file]))
        self.assertIn('give --step', self.run_command('save', [file], *words[:2], code=1))

    def test_steps__of_programs_one_behind_the_other(self):
        file = self.sink(FileSink)
        self.make_file('raw', 100)
        words = ['--raw', 'bytes=' + self.at('raw'), '--keep', '12', '-o', 'json']
        steps = []

        def save_some():
            left = 4
            while left:
                done = subprocess.run(
                    [SIDEWIRE, 'snapshot', 'save', '--sink', file.text, *words],
                    capture_output=True,
                    check=False,
                )
                if not done.returncode:  # else another one is writing
                    steps.append(json.loads(done.stdout)['step'])
                    left -= 1

        threads = [threading.Thread(target=save_some) for _ in range(3)]
        for one in threads:
            one.start()
        for one in threads:
            one.join()
        self.assertEqual(sorted(steps), [*range(12)])

    def test_export__ranks_with_the_same_names(self):
        sinks = ['file:' + self.at('run{rank}')]
        meet, datas = f'127.0.0.1:{ports.claim()}', [os.urandom(100), os.urandom(100)]
        ranks = []
        for rank, data in enumerate(datas):
            write_tensors(self.at(f'in{rank}'), {'w': ('U8', [100], data)})
            words = ['--meet', meet, '--rank', str(rank), '--ranks', '2', self.at(f'in{rank}')]
            ranks.append(
                subprocess.Popen(
                    [SIDEWIRE, 'snapshot', 'save', '--sink', sinks[0], '--step', '1', *words]
                )
            )
        self.assertEqual([one.wait(60) for one in ranks], [0, 0])
        self.run_command('export', sinks, self.at('all'))
        found = tensors_of(self.at('all'))[0]
        self.assertEqual([found[f'rank{i}.w'][2] for i in range(2)], datas)

    def test_room__is_told_before(self):
        file = self.sink(FileSink)
        self.make_file('raw', 8 * MIB)
        words = '--raw', 'bytes=' + self.at('raw')
        said = self.run_command('save', [file], *words, '--size', '2M', code=1)
        self.assertIn(file.path, said)

    def test_export__a_name_that_safetensors_has_taken(self):
        file = self.sink(FileSink)
        data = self.make_file('raw', 100)
        name = '__metadata__='
        self.run_command('save', [file], '--raw', name + self.at('raw'))
        for command in 'restore', 'export':
            self.assertIn(name, self.run_command(command, [file], self.at('x'), code=1))
            self.assertFalse(os.path.exists(self.at('x')))
        self.run_command('restore', [file], '--raw', name + self.at('x'))
        with open(self.at('x'), 'rb') as back:
            self.assertEqual(back.read(), data)

    def test_restore__what_is_not_there(self):
        file = self.sink(FileSink)
        self.make_file('raw', 100)
        self.run_command('save', [file], '--raw', 'bytes=' + self.at('raw'))
        said = self.run_command('restore', [file], '--raw', 'other=' + self.at('x'), code=1)
        self.assertIn('other', said)
        self.run_command('restore', [file], self.at('x'), '--step', 9, code=1)
        self.run_command('restore', [file], self.at('x'), '--rank', 1, code=1)
        self.assertFalse(os.path.exists(self.at('x')))

    def test_restore__into_links_and_long_names(self):
        file = self.sink(FileSink)
        data = self.make_file('raw', 100)
        self.run_command('save', [file], '--raw', 'bytes=' + self.at('raw'))

        def restore(name, code=0):
            return self.run_command('restore', [file], '--raw', 'bytes=' + self.at(name), code=code)

        os.symlink('real', self.at('link'))
        self.assertIn('leads nowhere', restore('link', code=1))
        self.make_file('real', 1)
        restore('link')
        self.assertTrue(os.path.islink(self.at('link')))
        longest = 'x' * 255
        restore(longest)
        for name in 'real', longest:
            with open(self.at(name), 'rb') as back:
                self.assertEqual(back.read(), data)
        self.assertIn('too long', restore(longest + 'x', code=1))
        self.assertEqual([name for name in os.listdir(self.folder) if name[0] == 'x'], [longest])

    def test_restore__takes_the_place_of_no_volume_or_device(self):
        file = self.sink(FileSink)
        self.make_file('raw', 100)
        self.run_command('save', [file], '--raw', 'bytes=' + self.at('raw'))
        volume = file.text.removeprefix('file:')
        os.mkfifo(self.at('pipe'))
        os.symlink(volume, self.at('link'))
        for place, why in (volume, 'a volume'), (self.at('link'), 'a volume'), ('pipe', 'no file'):
            said = self.run_command('restore', [file], '--raw', 'bytes=' + self.at(place), code=1)
            self.assertIn(why, said)
            self.assertIn(why, self.run_command('export', [file], self.at(place), code=1))
        self.run_command('verify', [file])


if __name__ == '__main__':
    unittest.main(argv=[sys.argv[0], *CASES])
