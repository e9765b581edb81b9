#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""The commands of the pages, pasted into a shell as a reader does it: those below one heading
behind each other, in a fresh folder. No line may fail, and what it prints has to be there. A block
of any page that is neither pasted nor named with its reason fails, too.

usage: test_pages.py SIDEWIRE PYTHON_MODULES [more]; `more` has those that take long, and no other
"""
import glob
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
SOURCE = os.path.abspath(os.path.join(HERE, '../..'))
sys.path.append(os.path.join(HERE, '../tools'))
from own_network import move_to_own_network  # noqa: E402

SIDEWIRE, MODULES = (os.path.abspath(path) for path in sys.argv[1:3])
HAS_MORE = sys.argv[3:] == ['more']
BUILD = os.path.abspath(os.path.join(os.path.dirname(SIDEWIRE), '../..'))
LIMIT_S = 400 if HAS_MORE else 100
TRAP = '''trap 'echo "FAILED: $BASH_COMMAND"' ERR\n'''
NVME_CLI = shutil.which('nvme') or shutil.which('nvme', path='/usr/sbin')

# What is pasted: a page and headings of it, in one shell, and what they print, in this order.
PASTED = [
    (
        'nvme',
        ['Five minutes', 'Reservations'],
        ['^ready', r'traddr: +127\.0\.0\.1', r'1\.07 +GB', '^read +4096 +32 ', 'rkey +: 7b'],
    ),
    ('pmem', ['Five minutes'], ['^region.img', '^promise', '6 bytes', '^hello$', '^persistent']),
    ('pmem-log', ['Five minutes'], ['^copy3.img', '^0 hello$', '^copy 3 ', '^hello again$']),
    (
        'transfer',
        ['Commands'],
        ['weights.bin +67108864', '67108864 bytes', '1048576 bytes', 'GB/s'],
    ),
    (
        'snapshot',
        ['Five minutes'],
        [
            '^1073741824 bytes',
            '^step 0: 8388608 bytes',
            '^step 1: .* 8192 moved',
            ' yes$',
            ' 1 damaged, 1 repaired',
        ],
    ),
    (
        'shared-storage',
        ['Five minutes'],
        ['127[.]0[.]0[.]1', '127[.]0[.]0[.]2', 'target1', 'target2'],
    ),
    (
        'shared-storage',
        ['All members active'],
        ['127[.]0[.]0[.]3:4420 .*used', 'target3 .*leads', 'at all members'],
    ),
    ('shared-storage', ['A tier in five minutes'], ['^ready', 'tier']),
    ('transfer', ['Caches that are split in another way'], ['^ +1 +3 ']),
    ('python', ['RDMA in Python'], ['the server wrote 100', 'its last four are 112 113 114 115']),
]
NEEDS_NVME_CLI = [
    (
        'nvme',
        ['Five minutes', 'Changes while it serves'],
        ['ready', 'namespace +2', 'removed +namespace 2', 'second'],
    ),
    ('nvme', ['Authentication'], ['ready', 'Sidewire']),
]
MORE = [
    (
        'collectives',
        ['Five minutes'],
        ['^rank [01]: 1, ..., 1999$', *['wrong values: 0'] * 3],
    ),
    ('cpp', ['RDMA in C++'], ['asking.. serving. serving.']),
]
# Whole programs of these pages, in the order in which they stand there, and what a reader calls
# them.
PROGRAMS = {'collectives': ['sum.c'], 'cpp': ['server.cc', 'client.cc']}
# The blocks of a heading that are left out, by how they begin, and why.
LEFT_OUT = {
    'nvme connect -t': "a kernel's host",
    'nvme resv-register': "a kernel's host",
    'nvmetcli save': "a kernel's target",
    'sidewire nvme list -a 127.0.0.1:4420 -a': 'two addresses; tests/movers/nvme/command has it',
    'sidewire run -- nbdkit': 'nbdkit; tests/movers/nvme/nbdkit has it',
    '[global]': 'a file of fio; tests/movers/nvme/fio has it',
    'sidewire run -- fio': 'fio; tests/movers/nvme/fio has it',
    'sidewire nvme -v': 'RDMA hardware',
    'scrape_configs': 'a file of Prometheus',
    'sidewire transfer serve -l 192.0.2.1 --rail': 'two devices',
    'ndctl': 'DAX',
    'rbd create': 'a cluster of Ceph; tests/movers/nvme/target/test_ceph.py has it',
    'ceph auth': 'the same',
    'sidewire nvme target --listen 192.0.2.2': 'the same',
    'sidewire nvme target --group 192.0.2.9': 'hosts that share a disk; '
    'tests/movers/nvme/target/test_active_device.py has it',
    'sidewire nvme target move': 'tests/movers/nvme/target/test_group_host.py has it',
    'sidewire nvme target clear': 'tests/movers/nvme/target/test_failed_disk.py has it',
    'python3 -m venv env': 'packages of pip; tests/bindings/python/test_wheel.py has it',
    'make demo': 'it installs packages; tests/cli/test_setup.py has what it builds',
    'build/src/cli/sidewire run -- ib_write_bw': 'two terminals; tests/apps has it',
    'make install': 'it changes the system; tests/cli/test_install.py has it',
    'make deb': 'the same; scripts/deb --try has it',
    'cc -o can_flush': 'packaging/debian/tests/smoke has it',
    'meson setup build -Dtests=false': 'it builds all; debian/rules has it',
    'podman build': 'an image of Debian, by the network',
    'gcc -g -fsanitize': 'tests/cli/test_checkers.py has it',
    'sidewire run --sockets': 'redis; tests/apps/sockets.py has it',
    'sidewire run --link iwarp': 'two hosts; tests/apps/iwarp.py has it',
    'sidewire run --link tcp': 'two hosts; tests/apps/tcp_datagrams.py has it',
    'sidewire run --collectives': 'MPI; tests/bindings/mpi/test_mpi.py has it',
    'mpirun -n 4 sidewire': 'MPI; tests/movers/collectives/launch has it',
    'sidewire coll perf --ranks 2 --rank 0': 'two hosts',
    'SIDEWIRE_COLL_DUMP=': 'MPI; tests/movers/collectives/dump has it',
    'sidewire coll diagnose': 'ranks that hang; the same',
    'sidewire coll trace --dump': 'the same',
    'sidewire coll status': 'ranks that hang; tests/bindings/torch/test_hangs.py has it',
    'sidewire run -- python3': 'torch; tests/bindings/torch/test_examples.py has it',
    'sidewire snapshot serve -l 127.0.0.1 --memory 64M': 'torch; tests/bindings/snapshot has it',
}


def text_of(page):
    path = 'README.md' if page == 'README' else f'docs/{page}.md'
    with open(os.path.join(SOURCE, path), encoding='utf-8') as file:
        return file.read()


def pages():
    found = glob.glob('*.md', root_dir=os.path.join(SOURCE, 'docs'))
    return ['README', *sorted(name.removesuffix('.md') for name in found)]


def commands_of(page):
    """A block that names no language has commands on the pages that were written so. Elsewhere it
    is a picture, or what a command prints."""
    has_plain = page in {row[0] for row in PASTED} | {'persistence', 'pipe'}
    return blocks_of(page, ('', 'sh') if has_plain else ('sh',))


def blocks_of(page, languages):
    """(the heading that is above it, the text) of each block."""
    text = text_of(page)
    found, heading = [], ''
    for line in re.finditer(r'^(?:#+ ([^\n]*)|```(\w*)\n(.*?)^```)$', text, re.M | re.S):
        heading = line[1] or heading
        if line[3] and line[2] in languages:
            found.append((heading, line[3]))
    return found


def left_out(block):
    return next((why for start, why in LEFT_OUT.items() if block.startswith(start)), None)


class Pages(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = os.path.join(folder.name, 'fresh')
        tools = os.path.join(folder.name, 'bin')
        os.mkdir(self.folder)
        os.mkdir(tools)
        os.mkdir(os.path.join(folder.name, 'run'), 0o700)
        os.symlink(SIDEWIRE, os.path.join(tools, 'sidewire'))
        os.symlink('/usr/bin/python3', os.path.join(tools, 'python3'))
        os.symlink(os.path.join(SOURCE, 'examples'), os.path.join(self.folder, 'examples'))
        self.environment = dict(
            os.environ,
            PATH=f'{tools}:{os.environ["PATH"]}:/usr/sbin:/sbin',
            PYTHONPATH=MODULES,
            PKG_CONFIG_PATH=os.path.join(BUILD, 'meson-uninstalled'),  # where nothing is installed
            LD_LIBRARY_PATH=f'{BUILD}/movers/pmem/client:{BUILD}/movers/collectives',
            CPLUS_INCLUDE_PATH=os.path.join(SOURCE, 'include'),
            XDG_RUNTIME_DIR=os.path.join(folder.name, 'run'),  # servers of other tests are not seen
            PYTHONDONTWRITEBYTECODE='1',
        )

    def end_servers(self, said):
        for pid in re.findall(r'\bkill (\d+)', said):
            os.kill(int(pid), signal.SIGKILL)

    def paste(self, text):
        """All that the shell and its programs print."""
        with tempfile.TemporaryFile('w+', encoding='utf-8') as said:
            shell = subprocess.Popen(
                ['bash'],
                stdin=subprocess.PIPE,
                stdout=said,
                stderr=said,
                text=True,
                cwd=self.folder,
                env=self.environment,
            )
            try:
                shell.communicate(TRAP + text + 'wait\n', timeout=LIMIT_S)
            finally:
                shell.kill()
                said.seek(0)
                printed = said.read()
                self.end_servers(printed)
        return printed

    def save_programs(self, page):
        """Those with a main function, as a reader saves them."""
        blocks = [block for _, block in blocks_of(page, ('c', 'cpp')) if ' main(' in block]
        for name, block in zip(PROGRAMS.get(page, ()), blocks, strict=False):
            with open(os.path.join(self.folder, name), 'w', encoding='utf-8') as file:
                file.write(block)

    def try_pages(self, rows):
        for page, headings, wanted in rows:
            with self.subTest(page=page, headings=headings):
                self.save_programs(page)
                text = ''.join(
                    block
                    for heading, block in commands_of(page)
                    if heading in headings and not left_out(block)
                )
                self.assertTrue(text)
                printed = self.paste(text)
                self.assertNotIn('FAILED: ', printed)
                self.assertNotIn('trying again', printed)
                self.assertRegex(printed, re.compile('.*?'.join(wanted), re.M | re.S), text)

    @unittest.skipIf(HAS_MORE, 'only those that take long')
    def test_pages__work_as_pasted(self):
        self.try_pages(PASTED)

    @unittest.skipUnless(HAS_MORE, 'they take long')
    def test_pages__that_take_long(self):
        self.try_pages(MORE)

    @unittest.skipIf(HAS_MORE, 'only those that take long')
    @unittest.skipUnless(NVME_CLI, 'nvme-cli is not installed')
    def test_pages__work_as_pasted_with_nvme_cli(self):
        self.try_pages(NEEDS_NVME_CLI)

    def test_pages__have_no_block_that_nobody_tries(self):
        for page in pages():
            rows = [row for row in PASTED + NEEDS_NVME_CLI + MORE if row[0] == page]
            tried = {heading for row in rows for heading in row[1]}
            for heading, block in commands_of(page):
                with self.subTest(page=page, heading=heading):
                    self.assertTrue(heading in tried or left_out(block), block)


if __name__ == '__main__':
    move_to_own_network()  # the servers have the ports that the pages say
    unittest.main(argv=sys.argv[:1])
