# SPDX-License-Identifier: BSD-2-Clause
"""The Debian packages, as far as it can be told without building them: what is in them, and of
which version they are."""
import fnmatch
import glob
import os
import re
import shutil
import subprocess
import sys

import harness
from harness import BUILD, CLI, SOURCE, expect, expect_status, run

DEB = os.path.join(SOURCE, 'scripts/deb')
LISTS = os.path.join(SOURCE, 'packaging/debian')


def read(path):
    with open(path, encoding='utf-8') as file:
        return file.read()


def installed():
    """The files of an installation, from the prefix on, as debian/*.install names
    them below usr/."""
    with harness.public_folder() as folder:
        expect_status(
            run(
                'meson', 'install', '-C', BUILD, '--no-rebuild', '--quiet', env={'DESTDIR': folder}
            ),
            0,
        )
        prefix = os.path.dirname(
            os.path.dirname(glob.glob(f'{folder}/**/bin/sidewire', recursive=True)[0])
        )
        files = [os.path.join(where, name) for where, _, names in os.walk(folder) for name in names]
        paths = ['usr/' + os.path.relpath(path, prefix) for path in files]
        # Where debian/rules has units of systemd.
        return [re.sub('^usr/(?=lib/systemd/)', '', path) for path in paths]


def packages__need_what_setup_installs():
    """`make deb` on an empty Debian has what dpkg-buildpackage asks for, and the build itself."""
    needed = re.search(r'^Build-Depends:(.*?)^\S', read(f'{LISTS}/control'), re.M | re.S).group(1)
    needed = {re.sub(r'-compat.*', '', word.strip().split(' (')[0]) for word in needed.split(',')}
    listed = [
        line.split()[:2]
        for line in read(os.path.join(SOURCE, 'scripts/packages')).split('\n')
        if line and not line.startswith('#')
    ]
    of_deb = {name for name, group in listed if group in ('build', 'deb')}
    expect(len(needed) > 15 and needed <= of_deb, needed - of_deb)
    expect('build-essential' in of_deb, of_deb)
    of_build = {name for name, group in listed if group == 'build' and name.endswith('-dev')}
    expect(of_build <= needed | NOT_OF_PACKAGES, of_build - needed)


# For tests alone, or of the compiler's own packages.
NOT_OF_PACKAGES = {'libc6-dev', 'linux-libc-dev', 'libcmocka-dev', 'libseccomp-dev'}

# Built where the source of fio is, which a build of packages does not have.
IN_NO_PACKAGE = {'libsidewire-fio.so'}


def packages__have_each_installed_file_once():
    patterns = [
        (os.path.basename(path), line)
        for path in glob.glob(f'{LISTS}/*.install')
        for line in read(path).split('\n')
        if line
    ]
    expect(len(patterns) >= 5, patterns)
    used = set()
    for path in installed():
        if os.path.basename(path) in IN_NO_PACKAGE:
            continue
        holders = [pattern for pattern in patterns if fnmatch.fnmatch(path, pattern[1])]
        expect(len(holders) == 1, f'{path} is in {holders or "no package"}')
        used.update(holders)
    unused = set(patterns) - used
    expect(not unused, f'nothing is installed as {unused}')


def packages__are_those_of_control():
    names = re.findall(r'^Package: (.*)$', read(f'{LISTS}/control'), re.M)
    expected = 'sidewire sidewire-dev sidewire-mpi python3-sidewire python3-sidewire-torch'
    expect(names == expected.split(), names)
    expect(
        {f'{name}.install' for name in names}
        == {os.path.basename(path) for path in glob.glob(f'{LISTS}/*.install')}
    )


def packages__licence_is_that_of_the_project():
    def words(text):
        return [word for line in text.split('\n') if line.strip() != '.' for word in line.split()]

    licence = words(read(f'{SOURCE}/LICENSE').split('\n\n', 2)[2])
    expect(words(read(f'{LISTS}/copyright'))[-len(licence) :] == licence)


def version_of(done):
    expect_status(done, 0)
    return re.match(r'sidewire \(([^)]+)\) ', done.stdout).group(1)


def packages__one_version_everywhere():
    version = re.search(r"version: '([^']+)'", read(f'{SOURCE}/meson.build')).group(1)
    expect(run(CLI, '--version').stdout == f'sidewire {version}\n')
    release = re.search(r'^## (\d\S+) - (\S+)$', read(f'{SOURCE}/CHANGELOG.md'), re.M)
    expect(release.group(1) == version, release)
    for name in '', '-coll', '-nvme', '-pmem', '-snapshot', '-transfer':
        page = f'sidewire{name}'
        title = re.search(
            rf'^\.TH {page.upper()} 1 (\S+) "Sidewire (\S+)"',
            read(f'{SOURCE}/docs/man/{page}.1'),
            re.M,
        )
        expect(title.group(2) == version and title.group(1) >= release.group(2), title)
    module = read(f'{SOURCE}/bindings/python/sidewire/__init__.py')
    expect(f"__version__ = '{version}'\n" in module)
    package = version_of(run(DEB, '--changelog'))
    expect(package == version or package.startswith(f'{version}+git'), package)


def made_up_tree(folder, changelog):
    os.makedirs(f'{folder}/packaging/debian')
    shutil.copy(f'{LISTS}/control', f'{folder}/packaging/debian')
    for name, text in (
        ('meson.build', "project('a', version: '1.2.0')\n"),
        ('CHANGELOG.md', changelog),
    ):
        with open(f'{folder}/{name}', 'w', encoding='utf-8') as out:
            out.write(text)
    return run(DEB, '--changelog', '--root', folder)


RELEASED = (
    '## 1.2.0 - 2026-01-31\n\n### Tools\n\n- A [page](docs/a.md) with\n  `words`.\n'
    '- **Loud** ([docs](docs/b.md)).\n\n'
    '## 1.1.0 - 2026-01-02\n\n- Old.\n'
)


def changelog__of_releases():
    with harness.public_folder() as folder:
        done = made_up_tree(folder, f'# Changelog\n\n## Unreleased\n\n{RELEASED}')
        expect(version_of(done) == '1.2.0', done)
        for line in (
            '  [ Tools ]',
            '  * A page with words.',
            '  * Loud (docs/b.md).',
            'sidewire (1.1.0) unstable; urgency=medium',
            '  * Old.',
        ):
            expect(f'\n{line}\n' in done.stdout, line, done)
        expect('>  Sat, 31 Jan 2026 00:00:00 +0000\n' in done.stdout, done)


def changelog__what_is_unreleased_comes_after_the_release():
    with harness.public_folder() as folder:
        done = made_up_tree(folder, f'## Unreleased\n\n- New.\n\n{RELEASED}')
        version = version_of(done)
        expect(version.startswith('1.2.0+git') and '  * New.\n' in done.stdout, done)
        if shutil.which('dpkg'):
            for older, newer in (('1.2.0', version), (version, '1.2.1')):
                expect(
                    subprocess.run(['dpkg', '--compare-versions', older, 'lt', newer]).returncode
                    == 0,
                    older,
                    newer,
                )


def changelog__another_version_than_that_of_the_build():
    with harness.public_folder() as folder:
        done = made_up_tree(folder, RELEASED.replace('1.2.0', '1.3.0'))
        expect(done.returncode == 1 and '1.2.0' in done.stderr and '1.3.0' in done.stderr, done)


if __name__ == '__main__':
    sys.exit(harness.main(globals()))
