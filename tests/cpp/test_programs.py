#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""The C++ header as users meet it: each part compiles alone, and the two examples, built with stock
libraries, move data.

usage: test_programs.py SIDEWIRE headers|examples
"""
import glob
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import unittest
from concurrent.futures import ThreadPoolExecutor

SIDEWIRE, GROUP = sys.argv[1:]
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
INCLUDE = os.path.join(ROOT, 'include')
EXAMPLES = os.path.join(ROOT, 'examples/cpp')
COMPILERS = [name for name in ('g++', 'clang++') if shutil.which(name)]
# Compilers and standards take turns: the examples include the whole header, and meet all of them.
TURNS = [(compiler, standard) for compiler in COMPILERS for standard in ('c++17', 'c++20')]
WARNINGS = ['-Wall', '-Wextra', '-Wpedantic', '-Wconversion', '-Wshadow', '-Werror']
LINES_MAX = 20
RDMA_PS_TCP = 0x106
STOCK = {
    'libibverbs.so.1',
    'librdmacm.so.1',
    'libstdc++.so.6',
    'libgcc_s.so.1',
    'libc.so.6',
    'libm.so.6',
    'ld-linux-x86-64.so.2',
    'ld-linux-aarch64.so.1',
}


def read(path):
    with open(path, encoding='utf-8') as file:
        return file.read()


def code_lines(text):
    """What is neither blank nor only a comment."""
    return [line for line in text.split('\n') if line.strip() and not line.strip().startswith('//')]


def compile_with(compiler, standard, source, *words):
    return subprocess.run(
        [compiler, f'-std={standard}', *WARNINGS, f'-I{INCLUDE}', source, *words],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def await_listening(port, server):
    """Until the server's service has a name: that of an abstract socket (rdmacm/ports.c)."""
    limit = time.monotonic() + 40
    named = f'@sidewire.cm.s{RDMA_PS_TCP << 16 | port:x}.'
    while named not in read('/proc/net/unix'):
        if time.monotonic() > limit or server.poll() is not None:
            raise AssertionError('the server does not listen')
        time.sleep(0.01)


def free_port():
    with socket.socket() as probe:
        probe.bind(('127.0.0.1', 0))
        return probe.getsockname()[1]


class Programs(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if not COMPILERS:
            print('SKIP: neither g++ nor clang++ is installed')
            sys.exit(77)
        cls.folder = tempfile.mkdtemp(prefix='sidewire-cpp-')
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        for side in ('server', 'client') if GROUP == 'examples' else ():
            done = compile_with(
                COMPILERS[0],
                'c++17',
                f'{EXAMPLES}/{side}.cc',
                '-o',
                f'{cls.folder}/{side}',
                '-libverbs',
                '-lrdmacm',
            )
            if done.returncode:
                raise RuntimeError(done.stderr)

    def environment(self, **more):
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(('SIDEWIRE_', 'LD_PRELOAD'))
        }
        return {**kept, **more}

    def expect_compiled(self, jobs):
        """Each job is a compiler, a standard and a source; two at a time, as each
        takes a second."""
        with ThreadPoolExecutor(max_workers=2) as pool:
            for job, done in zip(
                jobs, pool.map(lambda job: compile_with(*job, '-fsyntax-only'), jobs)
            ):
                self.assertEqual(done.returncode, 0, f'{job}\n{done.stderr[:3000]}')

    def headers__compile_alone(self):
        headers = sorted(glob.glob(f'{INCLUDE}/sidewire/verbs/*.hpp')) + [
            f'{INCLUDE}/sidewire/verbs.hpp'
        ]
        self.assertGreater(len(headers), 10)
        jobs = []
        for number, header in enumerate(headers):
            path = f'{self.folder}/alone{number}.cc'
            with open(path, 'w', encoding='utf-8') as source:
                source.write(f'#include "{header}"\n#include "{header}"\n')
            jobs.append((*TURNS[number % len(TURNS)], path))
        self.expect_compiled(jobs)

    def headers__of_c_compile_alone(self):
        """Those of the movers. A function may have the name of its struct there."""
        headers = sorted(glob.glob(f'{INCLUDE}/sidewire/*.h'))
        self.assertGreater(len(headers), 5)
        for number, header in enumerate(headers):
            path = f'{self.folder}/c{number}.cc'
            with open(path, 'w', encoding='utf-8') as source:
                source.write(f'#include "{header}"\n#include "{header}"\n')
            done = compile_with(*TURNS[0], path, '-fsyntax-only', '-Wno-shadow')
            self.assertEqual(done.returncode, 0, f'{header}\n{done.stderr[:3000]}')

    def headers__link_twice(self):
        for name in ('one', 'two'):
            with open(f'{self.folder}/{name}.cc', 'w', encoding='utf-8') as source:
                source.write(
                    '#include <sidewire/verbs.hpp>\n' + ('int main() {}\n' if name == 'one' else '')
                )
        done = compile_with(
            COMPILERS[0],
            'c++17',
            f'{self.folder}/one.cc',
            f'{self.folder}/two.cc',
            '-o',
            f'{self.folder}/both',
            '-libverbs',
            '-lrdmacm',
        )
        self.assertEqual(done.returncode, 0, done.stderr)

    def headers__include_nothing_of_ours(self):
        for header in glob.glob(f'{INCLUDE}/sidewire/verbs/*.hpp'):
            for included in re.findall(r'#include\s+[<"]([^>"]+)', read(header)):
                self.assertTrue(
                    included.startswith('sidewire/verbs/')
                    or '.h' not in included
                    or included
                    in (
                        'infiniband/verbs.h',
                        'rdma/rdma_cma.h',
                        'arpa/inet.h',
                        'fcntl.h',
                        'poll.h',
                        'sys/random.h',
                    ),
                    f'{header} includes {included}',
                )

    def headers__build_as_installed(self):
        if not shutil.which('pkg-config'):
            self.skipTest('pkg-config is not installed')
        build = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(SIDEWIRE))))
        place = f'{self.folder}/installed'
        subprocess.run(
            [os.environ.get('MESON', 'meson'), 'install', '-C', build, '--no-rebuild', '--quiet'],
            check=True,
            timeout=60,
            env=self.environment(DESTDIR=place),
            stdout=subprocess.DEVNULL,
        )
        found = glob.glob(f'{place}/**/pkgconfig/sidewire-cpp.pc', recursive=True)
        self.assertEqual(len(found), 1)
        prefix = place + re.search(r'^prefix=(.*)$', read(found[0]), re.M)[1]
        flags = subprocess.run(
            [
                'pkg-config',
                f'--define-variable=prefix={prefix}',
                '--cflags',
                '--libs',
                'sidewire-cpp',
            ],
            check=True,
            capture_output=True,
            text=True,
            env=self.environment(PKG_CONFIG_PATH=os.path.dirname(found[0])),
        ).stdout
        self.assertIn(f'-I{prefix}/include', flags)
        done = subprocess.run(
            [
                COMPILERS[0],
                '-std=c++17',
                f'{EXAMPLES}/client.cc',
                '-o',
                f'{self.folder}/installed_client',
                *flags.split(),
            ],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        self.assertEqual(done.returncode, 0, done.stderr)

    def examples__have_twenty_lines(self):
        for side in ('server', 'client'):
            lines = code_lines(read(f'{EXAMPLES}/{side}.cc'))
            self.assertLessEqual(len(lines), LINES_MAX, f'{side} has {len(lines)} lines of code')
            self.assertFalse(
                [line for line in lines if line.count(';') > 1], 'one statement a line'
            )

    def examples__compile_everywhere(self):
        self.expect_compiled(
            [
                (*turn, f'{EXAMPLES}/{side}.cc')
                for number, turn in enumerate(TURNS)
                for side in [('server', 'client')[number % 2 ^ number // 2]]
            ]
        )

    def examples__need_stock_libraries_alone(self):
        for side in ('server', 'client'):
            listed = subprocess.run(
                ['readelf', '-d', f'{self.folder}/{side}'],
                capture_output=True,
                text=True,
                check=True,
            ).stdout
            needed = set(re.findall(r'NEEDED.*\[(.*)\]', listed))
            self.assertTrue({'libibverbs.so.1', 'librdmacm.so.1'} <= needed <= STOCK, needed)

    def write_and_read(self, *options):
        port = str(free_port())
        words = [
            [SIDEWIRE, 'run', *options, '--', f'{self.folder}/{side}', '127.0.0.1', port]
            for side in ('server', 'client')
        ]
        server = subprocess.Popen(
            words[0],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=self.environment(),
        )
        try:
            await_listening(int(port), server)
            client = subprocess.run(
                words[1],
                capture_output=True,
                text=True,
                timeout=40,
                check=False,
                env=self.environment(),
            )
            said = server.communicate(timeout=40)[0]
        finally:
            server.kill()
            server.wait()
        self.assertEqual((said, server.returncode), ('serving. asking.. asking..\n', 0), client)
        self.assertEqual(
            (client.stdout, client.stderr, client.returncode),
            ('asking.. serving. serving.\n', '', 0),
            said,
        )

    def examples__write_and_read_directly(self):
        self.write_and_read()

    def examples__write_and_read_by_packets(self):
        self.write_and_read('--link', 'roce')

    def examples__say_what_failed(self):
        """Nobody listens; and a machine without a device, where the stock libraries find none."""
        done = subprocess.run(
            [SIDEWIRE, 'run', '--', f'{self.folder}/client', '127.0.0.1', str(free_port())],
            capture_output=True,
            text=True,
            timeout=40,
            check=False,
            env=self.environment(),
        )
        self.assertEqual(done.returncode, 1, done)
        self.assertRegex(done.stderr, r'^rdma_connect \(status \d+\): RDMA_CM_EVENT_REJECTED\n$')
        if not os.path.exists('/dev/infiniband/rdma_cm'):
            done = subprocess.run(
                [f'{self.folder}/server', '127.0.0.1', '1'],
                capture_output=True,
                text=True,
                timeout=40,
                check=False,
                env=self.environment(),
            )
            self.assertEqual(done.returncode, 1, done)
            self.assertRegex(done.stderr, r'^rdma_create_event_channel: .+\n$')

    def examples__of_the_page_compile(self):
        """Examples that are no whole programs, as the body of a function."""
        blocks = [
            block
            for block in re.findall(r'```cpp\n(.*?)```', read(f'{ROOT}/docs/cpp.md'), re.S)
            if 'main(' not in block
        ]
        self.assertTrue(blocks)
        for number, block in enumerate(blocks):
            path = f'{self.folder}/block{number}.cc'
            with open(path, 'w', encoding='utf-8') as source:
                source.write(
                    '#include <sidewire/verbs.hpp>\nvoid body(sidewire::qp &pair, sidewire::cq '
                    '&queue, '
                    'sidewire::memory<char> &mine, sidewire::remote<char> theirs)\n{\n'
                    + block
                    + '}\n'
                )
            self.expect_compiled([(*TURNS[0], path)])

    def examples__stand_in_the_page(self):
        page = read(f'{ROOT}/docs/cpp.md')
        for side in ('server', 'client'):
            # Without the line of the licence
            source = read(f'{EXAMPLES}/{side}.cc').split('\n', 1)[1]
            self.assertIn(
                f'```cpp\n{source}```\n', page, f'docs/cpp.md does not show {side}.cc as it is'
            )


if __name__ == '__main__':
    suite = unittest.TestSuite(
        Programs(name) for name in dir(Programs) if name.startswith(f'{GROUP}__')
    )
    sys.exit(0 if unittest.TextTestRunner(verbosity=2).run(suite).wasSuccessful() else 1)
