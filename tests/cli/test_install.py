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
        expect(os.path.exists(f'{prefix}/share/man/man1/sidewire.1'))
        found = glob.glob(f'{prefix}/**/sidewire.pc', recursive=True)
        expect(len(found) == 1, found)
        done = run('pkg-config', '--define-variable=prefix=' + prefix, '--variable=preload', 'sidewire',
                   env={'PKG_CONFIG_PATH': os.path.dirname(found[0])})
        expect(os.path.exists(done.stdout.strip()), done)


if __name__ == '__main__':
    sys.exit(harness.main(globals()))
