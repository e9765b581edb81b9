# SPDX-License-Identifier: BSD-2-Clause
"""Installing below a DESTDIR, and running what was installed."""
import glob
import os
import shutil
import sys

import harness
from harness import BUILD, Skip, expect, expect_status, run


def install_to(folder):
    """Installs the build as it is configured; returns the prefix below the folder."""
    done = run('meson', 'install', '-C', BUILD, '--no-rebuild', '--quiet', env={'DESTDIR': folder})
    expect_status(done, 0)
    found = glob.glob(f'{folder}/**/bin/sidewire', recursive=True)
    expect(len(found) == 1, found)
    return os.path.dirname(os.path.dirname(found[0]))


def install__runs_from_a_destdir():
    with harness.public_folder() as folder:
        prefix = install_to(folder)
        library = glob.glob(f'{prefix}/**/libsidewire.so', recursive=True)
        expect(len(library) == 1, library)
        done = run(f'{prefix}/bin/sidewire', 'run', '--', 'cat', '/proc/self/maps')
        expect_status(done, 0)
        expect(library[0] in done.stdout, done)
        if os.geteuid() == 0:
            expect_status(run(*harness.as_nobody(f'{prefix}/bin/sidewire', 'run', '--', 'true')), 0)


def install__can_be_moved():
    with harness.public_folder() as folder:
        prefix = install_to(folder)
        moved = os.path.join(folder, 'elsewhere')
        shutil.move(prefix, moved)
        done = run(f'{moved}/bin/sidewire', 'run', '--', 'cat', '/proc/self/maps')
        expect(f'{moved}/' in done.stdout and 'libsidewire.so' in done.stdout, done)


def install__runs_no_programs_of_others():
    """Above the prefix there may be a folder of anybody, as in /tmp or /home."""
    with harness.public_folder() as folder:
        prefix = install_to(folder)
        for path in (
            'movers/pmem/sidewire-pmem',
            'movers/other/sidewire-other',
            'examples/sidewire-x',
        ):
            planted = os.path.join(os.path.dirname(prefix), path)
            os.makedirs(os.path.dirname(planted), exist_ok=True)
            with open(planted, 'w', encoding='utf-8') as program:
                program.write('#!/bin/sh\necho planted\n')
            os.chmod(planted, 0o755)
        done = run(f'{prefix}/bin/sidewire', 'pmem', '--help')
        expect(done.stdout.startswith('Usage: sidewire pmem'), done)
        for mover in 'other', 'x':
            done = run(f'{prefix}/bin/sidewire', mover)
            expect_status(done, 2)
            expect('there is no command' in done.stderr, done)


def install__without_the_library():
    with harness.public_folder() as folder:
        prefix = install_to(folder)
        for path in glob.glob(f'{prefix}/**/libsidewire.so', recursive=True):
            os.unlink(path)
        done = run(f'{prefix}/bin/sidewire', 'run', '--', 'true')
        if done.returncode == 0:
            raise Skip('another Sidewire is installed on this machine')
        expect_status(done, 125)
        expect('libsidewire.so' in done.stderr and 'mend:' in done.stderr, done)


def install__manual_and_pkg_config():
    with harness.public_folder() as folder:
        prefix = install_to(folder)
        for name in '', '-coll', '-nvme', '-pmem', '-transfer':
            page = f'sidewire{name}.1'
            expect(os.path.exists(f'{prefix}/share/man/man1/{page}'), page)
        found = glob.glob(f'{prefix}/**/sidewire.pc', recursive=True)
        expect(len(found) == 1, found)
        done = run(
            'pkg-config',
            '--define-variable=prefix=' + prefix,
            '--variable=preload',
            'sidewire',
            env={'PKG_CONFIG_PATH': os.path.dirname(found[0])},
        )
        expect(os.path.exists(done.stdout.strip()), done)


# What a header that knows FLUSH has more than ours.
NEWER_VERBS = '''
#include_next <infiniband/verbs.h>
#ifndef NEWER_VERBS
#define NEWER_VERBS
enum newer { IBV_WR_FLUSH = 14, IBV_WC_FLUSH = 8, IBV_QP_EX_WITH_FLUSH = 1 << 11 };
enum newer_access { IBV_ACCESS_FLUSH_GLOBAL = 1 << 8 };
enum ibv_placement_type { IBV_FLUSH_GLOBAL = 1, IBV_FLUSH_PERSISTENT = 2 };
enum ibv_selectivity_level { IBV_FLUSH_RANGE, IBV_FLUSH_MR };
static inline void ibv_wr_flush(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t remote_addr,
                                size_t len, uint8_t type, uint8_t level)
{
    (void)qp; (void)rkey; (void)remote_addr; (void)len; (void)type; (void)level;
}
#endif
'''
FLUSHING = '''
#include <sidewire/flush.h>
#include <infiniband/verbs.h>
void flush(struct ibv_qp_ex *qp);
void flush(struct ibv_qp_ex *qp)
{
    enum ibv_wr_opcode opcode = IBV_WR_FLUSH;
    if (opcode == 14)
        ibv_wr_flush(qp, 1, 2, 3, IBV_FLUSH_PERSISTENT, IBV_FLUSH_MR);
}
'''


def install__header_serves_old_and_new_verbs_in_c_and_cpp():
    with harness.public_folder() as folder:
        prefix = install_to(folder)
        newer = os.path.join(folder, 'newer/infiniband')
        os.makedirs(newer)
        with open(f'{newer}/verbs.h', 'w', encoding='utf-8') as header:
            header.write(NEWER_VERBS)
        for compiler, name in (('cc', 'flush.c'), ('c++', 'flush.cpp')):
            if not shutil.which(compiler):
                raise Skip(f'no {compiler}')
            source = os.path.join(folder, name)
            with open(source, 'w', encoding='utf-8') as text:
                text.write(FLUSHING)
            for more in ([], [f'-I{folder}/newer']):
                expect_status(
                    run(
                        compiler,
                        *'-Wall -Wextra -Werror -fsyntax-only'.split(),
                        *more,
                        f'-I{prefix}/include',
                        source,
                    ),
                    0,
                )


if __name__ == '__main__':
    sys.exit(harness.main(globals()))
