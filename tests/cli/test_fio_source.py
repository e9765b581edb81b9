# SPDX-License-Identifier: BSD-2-Clause
"""scripts/fio-source, on machines made up for it: what it fetches, what it leaves alone, and what
it says when it cannot."""
import os
import sys

import harness
from harness import SOURCE, expect, expect_status, run
from test_setup import calls, made_up

SCRIPT = os.path.join(SOURCE, 'scripts/fio-source')
LIST = 'deb http://a.invalid/debian stable main\n# deb http://b.invalid/debian stable main\n'
DEB822 = 'Types: deb\nURIs: http://c.invalid/debian\nSuites: stable\nComponents: main\n'


def machine(folder, *, fio='fio-9.5', package='1:9.5-2', working=True, configures=True):
    """A PATH with this fio, of this package, and an apt-get that has its source or does not."""
    os.makedirs(f'{folder}/etc/sources.list.d')
    for name, text in (('sources.list', LIST), ('sources.list.d/more.sources', DEB822)):
        with open(f'{folder}/etc/{name}', 'w', encoding='utf-8') as out:
            out.write(text)
    made_up(folder, 'fio', f'echo {fio}')
    made_up(folder, 'dpkg-query', f'echo "{package}"' if package else 'exit 1')
    made_up(folder, 'dpkg-source', 'exit 0')
    made_up(
        folder,
        'configure',
        'echo "#define A" >config-host.h' if configures else 'echo "no compiler"; exit 1',
    )
    made_up(
        folder,
        'apt-get',
        f'''echo "$@" >>{folder}/calls
        for word; do
            case $word in Dir::Etc::sourceparts=*) cat "${{word#*=}}"/* >>{folder}/asked;; esac
        done
        {'true' if working else 'echo "E: Unable to fetch"; exit 100'}
        [[ "$*" == *" source "* ]] && mkdir fio-9.5 && cp {folder}/configure fio-9.5; exit 0''',
    )
    return {'PATH': f'{folder}:/usr/bin:/bin', 'SIDEWIRE_APT_ETC': f'{folder}/etc'}


def fetched(folder):
    return os.path.exists(f'{folder}/source/config-host.h')


def source__of_the_version_that_is_installed():
    with harness.public_folder() as folder:
        env = machine(folder)
        before = set(os.listdir(folder))
        done = run(SCRIPT, f'{folder}/source', env=env)
        expect_status(done, 0)
        expect(
            fetched(folder) and 'source --only-source fio=1:9.5-2' in calls(folder),
            done,
            calls(folder),
        )
        with open(f'{folder}/asked', encoding='utf-8') as asked:
            text = asked.read()
        expect(
            'deb-src http://a.invalid/debian' in text
            and 'b.invalid' not in text
            and 'Types: deb-src\nURIs: http://c.invalid' in text,
            text,
        )
        expect(set(os.listdir(folder)) == before | {'source', 'calls', 'asked'}, os.listdir(folder))


def source__goes_to_a_folder_named_from_here():
    with harness.public_folder() as folder:
        env = machine(folder)
        expect_status(run('sh', '-c', f'cd {folder} && {SCRIPT} source', env=env), 0)
        expect(fetched(folder), os.listdir(folder))


def source__that_is_there_is_left_alone():
    with harness.public_folder() as folder:
        env = machine(folder)
        expect_status(run(SCRIPT, f'{folder}/source', env=env), 0)
        before = calls(folder)
        done = run(SCRIPT, f'{folder}/source', env=env)
        expect(done.returncode == 0 and not done.stdout and calls(folder) == before, done)


def source__of_another_version_is_fetched_anew():
    with harness.public_folder() as folder:
        env = machine(folder)
        expect_status(run(SCRIPT, f'{folder}/source', env=env), 0)
        made_up(folder, 'dpkg-query', 'echo "1:9.5-3"')
        expect_status(run(SCRIPT, f'{folder}/source', env=env), 0)
        expect('fio=1:9.5-3' in calls(folder) and fetched(folder), calls(folder))


def source__that_cannot_be_had():
    for words, made in (
        ('no network', {'working': False}),
        ('configure failed', {'configures': False}),
        ('is of no Debian package', {'package': ''}),
        ('cannot be told', {'fio': 'fio-9.6'}),
    ):
        with harness.public_folder() as folder:
            env = machine(folder, **made)
            before = set(os.listdir(folder))
            done = run(SCRIPT, f'{folder}/source', env=env)
            expect_status(done, 1)
            expect(words in done.stderr, words, done)
            expect(set(os.listdir(folder)) <= before | {'calls', 'asked'}, os.listdir(folder))


def source__never_takes_the_place_of_other_files():
    with harness.public_folder() as folder:
        env = machine(folder)
        os.makedirs(f'{folder}/source/mine')
        done = run(SCRIPT, f'{folder}/source', env=env)
        expect_status(done, 1)
        expect(os.path.isdir(f'{folder}/source/mine') and 'is no source' in done.stderr, done)


if __name__ == '__main__':
    sys.exit(harness.main(globals()))
