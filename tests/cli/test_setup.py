# SPDX-License-Identifier: BSD-2-Clause
"""scripts/setup, on machines made up for it: what it installs, what it says, when it stops; and how
scripts/test counts."""
import contextlib
import importlib.machinery
import importlib.util
import io
import json
import os
import shlex
import signal
import sys
import time

import harness
from harness import BUILD, SOURCE, expect, expect_status, run

SETUP = os.path.join(SOURCE, 'scripts/setup')


def made_up(folder, name, text):
    """A command that stands in for the system's."""
    path = os.path.join(folder, name)
    with open(path, 'w', encoding='utf-8') as out:
        out.write(f'#!/bin/bash\n{text}\n')
    os.chmod(path, 0o755)


def setup_machine(folder, *, root, installed, working=True):
    """A PATH whose dpkg-query knows the packages in a file and whose apt-get adds to it."""
    os.makedirs(f'{folder}/lists')
    with open(f'{folder}/packages', 'w', encoding='utf-8') as out:
        out.write(
            '# a comment\none    build  the first\ntwo    test   the second\n'
            'three  demo   the third\n'
        )
    with open(f'{folder}/installed', 'w', encoding='utf-8') as out:
        out.write(''.join(f'{name}\n' for name in installed))
    made_up(folder, 'id', f'echo {0 if root else 1000}')
    made_up(
        folder,
        'dpkg-query',
        f'grep -qx "${{@: -1}}" {folder}/installed && echo installed || echo not-installed',
    )
    made_up(
        folder,
        'apt-get',
        f'''echo "$@" >>{folder}/calls
        [ "$1" = update ] && {{ touch {folder}/lists/x_Packages; exit 0; }}
        cat {folder}/policy-rc.d >>{folder}/policies 2>/dev/null
        {'true' if working else 'exit 100'}
        for word; do
            grep -q "^$word " {folder}/packages && echo "$word" >>{folder}/installed
        done
        exit 0''',
    )
    return {
        'PATH': f'{folder}:/usr/bin:/bin',
        'SIDEWIRE_PACKAGES': f'{folder}/packages',
        'SIDEWIRE_APT_LISTS': f'{folder}/lists',
        'SIDEWIRE_POLICY': f'{folder}/policy-rc.d',
    }


def calls(folder):
    path = f'{folder}/calls'
    return open(path, encoding='utf-8').read() if os.path.exists(path) else ''


def setup__nothing_missing():
    with harness.public_folder() as folder:
        env = setup_machine(folder, root=False, installed=['one', 'two', 'three'])
        done = run(SETUP, 'test', env=env)
        expect(done.returncode == 0 and not done.stdout and not calls(folder), done)


def setup__names_the_command_without_root():
    with harness.public_folder() as folder:
        env = setup_machine(folder, root=False, installed=['one'])
        done = run(SETUP, 'test', env=env)
        expect_status(done, 1)
        expect(
            'sudo apt-get install --no-install-recommends two three' in done.stderr
            and not calls(folder),
            done,
        )


def setup__installs_as_root():
    with harness.public_folder() as folder:
        env = setup_machine(folder, root=True, installed=['one'])
        done = run(SETUP, 'test', env=env)
        expect_status(done, 0)
        expect('two three' in done.stdout, done)
        expect(calls(folder).startswith('update') and 'install' in calls(folder), calls(folder))
        before = calls(folder)
        expect_status(run(SETUP, 'test', env=env), 0)
        expect(calls(folder) == before, calls(folder))


def setup__fresh_lists_are_used():
    with harness.public_folder() as folder:
        env = setup_machine(folder, root=True, installed=[])
        open(f'{folder}/lists/x_Packages', 'w', encoding='utf-8').close()
        expect_status(run(SETUP, 'test', env=env), 0)
        expect('update' not in calls(folder), calls(folder))


def setup__groups():
    with harness.public_folder() as folder:
        env = setup_machine(folder, root=False, installed=['one', 'three'])
        expect_status(run(SETUP, 'build', env=env), 0)
        expect_status(run(SETUP, 'demo', env=env), 0)
        expect_status(run(SETUP, 'test', env=env), 1)
        expect_status(run(SETUP, 'zork', env=env), 1)
        expect(run(SETUP, '--list', 'test', env=env).stdout == 'two\n')


def demo__builds_only_what_it_shows():
    """A newcomer's first command does not compile the tests."""
    products = run('ninja', '-C', BUILD, '-t', 'query', 'demo').stdout.split()
    for product in ('src/cli/sidewire', 'src/preload/libsidewire.so', 'movers/nvme/sidewire-nvme'):
        expect(product in products, products)
    parts = run('ninja', '-C', BUILD, '-t', 'inputs', 'demo').stdout.split()
    rest = [path for path in parts if path.startswith(('tests/', 'bench/', 'bindings/'))]
    expect('src/link/liblink.a' in parts and not rest, rest)
    words = run('make', '-n', '-C', SOURCE, 'demo').stdout
    expect('ninja -C build demo' in words and 'ninja -C build\n' not in words, words)


def installed__names_what_is_installed_and_no_test():
    named = run(os.path.join(SOURCE, 'scripts/installed'), BUILD).stdout.split()
    for product in 'src/cli/sidewire', 'src/preload/libsidewire.so', 'movers/pmem/sidewire-pmem':
        expect(product in named, named)
    expect(len(named) > 12 and not [path for path in named if path.startswith('tests/')], named)
    words = run('make', '-n', '-C', SOURCE, 'install').stdout
    expect('scripts/installed build' in words and 'ninja -C build\n' not in words, words)


def setup__installation_that_fails():
    with harness.public_folder() as folder:
        env = setup_machine(folder, root=True, installed=['one'], working=False)
        done = run(SETUP, 'test', env=env)
        expect_status(done, 1)
        expect('apt-get install --no-install-recommends two three' in done.stderr, done)


def setup__starts_no_servers():
    for working in (True, False):
        with harness.public_folder() as folder:
            env = setup_machine(folder, root=True, installed=['one'], working=working)
            run(SETUP, 'test', env=env)
            with open(f'{folder}/policies', encoding='utf-8') as seen:
                expect('exit 101' in seen.read())
            expect(not os.path.exists(f'{folder}/policy-rc.d'))


def setup__keeps_the_policy_of_the_machine():
    with harness.public_folder() as folder:
        env = setup_machine(folder, root=True, installed=['one'])
        made_up(folder, 'policy-rc.d', 'exit 104')
        expect_status(run(SETUP, 'test', env=env), 0)
        with open(f'{folder}/policy-rc.d', encoding='utf-8') as left:
            expect('exit 104' in left.read())


def counter():
    """scripts/test as a module."""
    path = os.path.join(SOURCE, 'scripts/test')
    spec = importlib.util.spec_from_loader(
        'scripts_test', importlib.machinery.SourceFileLoader('scripts_test', path)
    )
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def collected(*records, name='build', status=0):
    """What scripts/test makes of a run of meson that logged these results."""
    module = counter()
    tally = module.Tally()
    with harness.public_folder() as folder:
        log = f'{folder}/testlog.json'
        with open(log, 'w', encoding='utf-8') as out:
            out.writelines(json.dumps(record) + '\n' for record in records)
        module.collect(name, log, status, tally)
    return tally


def record(name, result, stdout='', stderr=''):
    return {'name': f'sidewire:{name}', 'result': result, 'stdout': stdout, 'stderr': stderr}


def testrun__counts_each_result():
    tally = collected(
        record('a', 'OK'),
        record('b', 'EXPECTEDFAIL'),
        record('c', 'FAIL'),
        record('d', 'TIMEOUT'),
        record('e', 'ERROR'),
        record('f', 'UNEXPECTEDPASS'),
        record('g', 'SKIP'),
        status=1,
    )
    expect(tally.passed == 2 and len(tally.failures) == 4 and len(tally.skips) == 1, vars(tally))


def testrun__finds_the_reason_of_a_skip():
    tally = collected(
        record('a', 'SKIP', 'words\nSKIP: the reason\n'),
        record('b', 'SKIP', '', 'SKIP: another'),
        record('c', 'SKIP'),
    )
    expect(
        [reason for _, reason in tally.skips] == ['the reason', 'another', 'no reason given'],
        tally.skips,
    )


def testrun__a_status_without_a_failed_test_is_a_failure():
    expect(len(collected(record('a', 'OK'), status=1).failures) == 1)
    expect(not collected(record('a', 'OK')).failures)


def looked_again(first, *second):
    """What two runs of a build come to, of which the second has the tests that failed."""
    tally, module = collected(*first, status=1), counter()

    def another_run(name, _log, _status, again):
        vars(again).update(vars(collected(*second, name=name, status=1)))

    module.run = lambda *_args, **_env: 1
    module.collect = another_run
    with contextlib.redirect_stdout(io.StringIO()):
        module.look_again('build', 'nowhere', tally)
    return tally


def testrun__what_passes_alone_is_unsteady():
    first = [record('s / a', 'OK'), record('s / b', 'FAIL', 'late'), record('s / c', 'TIMEOUT')]
    tally = looked_again(first, record('s / b', 'OK'), record('s / c', 'FAIL'))
    expect(tally.passed == 2, vars(tally))
    expect(tally.unsteady == [('build: s / b', 'fail', ['late'])], tally.unsteady)
    expect(tally.failures == [('build: s / c', 'timeout, twice', [])], tally.failures)


def testrun__what_is_skipped_alone_has_failed():
    tally = looked_again([record('s / b', 'FAIL')], record('s / b', 'SKIP'))
    expect(len(tally.failures) == 1 and not tally.unsteady and not tally.passed, vars(tally))


def testrun__a_crash_is_not_looked_at_again():
    for words in (
        'WARNING: ThreadSanitizer: data race',
        'a.c:1:2: runtime error: shift exponent',
        'killed by signal 11 SIGSEGV',
    ):
        tally = looked_again([record('s / b', 'FAIL', words)], record('s / b', 'OK'))
        expect(len(tally.failures) == 1 and not tally.unsteady, vars(tally))
    killed = {**record('s / b', 'FAIL'), 'returncode': -6}
    expect(len(looked_again([killed], record('s / b', 'OK')).failures) == 1)


def testrun__what_took_too_long_or_left_memory_is_looked_at_again():
    late = {**record('s / b', 'TIMEOUT'), 'returncode': -15}
    left = (
        'ERROR: LeakSanitizer: detected memory leaks\nSUMMARY: AddressSanitizer: 8 byte(s) leaked'
    )
    leaks = {**record('s / b', 'FAIL', left), 'returncode': -6}
    for first in (late, leaks):
        expect(not looked_again([first], record('s / b', 'OK')).failures)
        expect(len(looked_again([first], record('s / b', 'FAIL')).failures) == 1)


def testrun__many_failures_are_not_looked_at_again():
    many = [record(f's / t{i}', 'FAIL') for i in range(5)]
    tally = looked_again(many, *[record(f's / t{i}', 'OK') for i in range(5)])
    expect(len(tally.failures) == 5 and not tally.unsteady, vars(tally))


def summed(*builds, ci=False):
    """The status and the lines of `scripts/test --sum` after builds that came to (name, records,
    status)."""
    module = counter()
    module.CI = ci
    shown = io.StringIO()
    with harness.public_folder() as folder:
        module.TALLIES = f'{folder}/tallies'
        for name, records, status in builds:
            tally = collected(*records, name=name, status=status)
            tally.builds.append((name, 90, 600, 170, 500, 80))
            module.keep(name, tally)
        with contextlib.redirect_stdout(shown):
            status = module.show_sum()
    return status, shown.getvalue().splitlines()


def testsum__repeats_what_failed_and_what_was_skipped():
    noise = ''.join(f'line {i}\n' for i in range(60)) + 'the fault\n'
    status, lines = summed(
        ('release', [record('a', 'OK'), record('b', 'FAIL', noise)], 1),
        ('tsan', [record('c', 'SKIP', 'SKIP: no wire\n')], 0),
    )
    expect(status == 1 and lines[-1] == '1 passed, 1 failed, 1 skipped', lines)
    failed = lines.index('output   release: b: fail')
    last = lines.index('FAILED   release: b: fail')
    words, brief = lines[failed + 1 : last], lines[last + 1 : -1]
    expect(brief[0] == '  line 49' and brief[-1] == '  the fault' and len(brief) == 12, brief)
    expect(
        words[-1] == '         | the fault'
        and words[0] == '         | line 21'
        and len(words) == 40,
        words,
    )
    expect('skipped  tsan: c: no wire' in lines, lines)
    for name in ('release', 'tsan'):
        at = lines.index(f'took     {name}: 1.5 minutes to build, 10.0 to test')
        told = '  processor time 170 s to build, 500 s to test, 80 s for later builds'
        expect(lines[at + 1] == told, lines)


def testsum__shows_a_failure_after_which_much_went_well():
    noise = 'ok\n' * 100
    _, lines = summed(
        ('release', [record('a', 'FAIL', f'{noise}side b: the fault\nFAIL case\n{noise}')], 1)
    )
    expect(
        '         | side b: the fault' in lines
        and '         | FAIL case' in lines
        and '  side b: the fault' in lines
        and '  FAIL case' in lines
        and len(lines) < 62,
        lines,
    )


def testsum__names_all_of_many_that_failed():
    many = [record(f't{i}', 'FAIL', 'words\n' * 50) for i in range(100)]
    _, lines = summed(('release', many, 1))
    expect(
        len([line for line in lines if line.startswith('FAILED')]) == 100 and len(lines) < 650,
        len(lines),
    )


def testsum__tells_of_what_is_unsteady_as_of_a_failure():
    module = counter()
    tally = module.Tally()
    tally.passed, tally.unsteady = 3, [('asan: s / b', 'fail', ['FAIL case'])]
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown):
        status = module.report(tally)
    lines = shown.getvalue().splitlines()
    told = ['UNSTEADY asan: s / b: fail; passed when run again', '  FAIL case']
    expect(status == 0 and lines[-3:] == [*told, '3 passed, 0 failed, 0 skipped'], lines)


def testsum__takes_the_last_run_of_each_build():
    status, lines = summed(('asan', [record('a', 'FAIL')], 1), ('asan', [record('a', 'OK')], 0))
    expect(status == 0 and lines[-1] == '1 passed, 0 failed, 0 skipped', lines)


def testsum__a_build_without_a_result_has_failed_where_all_must_run():
    whole = [(build[0], [record('a', 'OK')], 0) for build in counter().BUILDS]
    expect(summed(*whole, ci=True)[0] == 0)
    status, lines = summed(*whole[1:], ci=True)
    expect(
        status == 1 and 'FAILED   release: the whole build: did not come to an end' in lines, lines
    )
    expect(summed(*whole[1:])[0] == 0)


def testrun__builds_ahead_until_the_tests_end():
    module = counter()
    with harness.public_folder() as folder:
        os.makedirs(f'{folder}/build-asan')
        os.makedirs(f'{folder}/build-clang/meson-info')
        with open(f'{folder}/build-clang/meson-info/meson-info.json', 'w', encoding='utf-8'):
            pass
        made_up(folder, 'ahead', f'cd {folder}; echo $$ "$@" >begun; mv begun words; sleep 100')
        module.ROOT, module.COMMAND = folder, [f'{folder}/ahead']
        with contextlib.suppress(KeyboardInterrupt):
            with module.building_ahead(['asan', 'clang']):
                while not os.path.exists(f'{folder}/words'):
                    time.sleep(0.01)
                raise KeyboardInterrupt
        with open(f'{folder}/words', encoding='utf-8') as file:
            pid, *words = file.read().split()
        expect(words == ['--ahead', 'asan,clang'], words)
        expect(not os.path.exists(f'/proc/{pid}'), pid)
        left = os.path.exists(f'{folder}/build-asan'), os.path.exists(f'{folder}/build-clang')
        expect(left == (False, True), left)


def testrun__builds_ahead_end_with_their_parent():
    module = counter()
    theirs, ours = os.pipe()
    child = os.fork()
    if not child:
        os.close(ours)
        os.setsid()
        os.dup2(theirs, 0)
        module.end_with_parent()
        time.sleep(100)
    os.close(theirs)
    time.sleep(0.2)
    expect(os.waitpid(child, os.WNOHANG) == (0, 0), 'it did not wait')
    os.close(ours)
    expect(os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGTERM)


def testrun__builds_ahead_what_can_run_here():
    module, built = counter(), []
    module.step_back = lambda: None
    module.sanitizer_fault = lambda name: 'none here' if name == 'tsan' else None
    module.compile_build = lambda build, jobs: built.append((build[1], jobs))
    module.build_slowly(['asan', 'tsan', 'clang'])
    expect(built == [('build-asan', 1), ('build-clang', 1)], built)


def testrun__steps_back():
    folder = os.path.dirname(os.path.abspath(__file__))
    code = (
        f'import os, sys; sys.path.insert(0, {folder!r}); import test_setup; '
        'test_setup.counter().step_back(); print(os.sched_getscheduler(0))'
    )
    said = harness.subprocess.run(
        [sys.executable, '-Bc', code],
        capture_output=True,
        text=True,
        start_new_session=True,  # else the caller's shell would step back, too
    ).stdout
    expect(said == f'{os.SCHED_IDLE}\n', said)


def testrun__shows_why_a_build_failed():
    module = counter()
    with harness.public_folder() as folder:
        made_up(folder, 'step', 'echo "a.c:1: the fault"; exit 3')
        fault = module.fault_of([f'{folder}/step'], dict(os.environ))
        made_up(folder, 'step', 'exit 0')
        expect(
            fault == ['a.c:1: the fault']
            and module.fault_of([f'{folder}/step'], dict(os.environ)) is None,
            fault,
        )


def testrun__builds_what_the_tests_of_a_sanitizer_run():
    module = counter()
    with harness.public_folder() as folder:
        module.ROOT = folder
        os.makedirs(f'{folder}/build/meson-info')
        targets = [
            {'id': name, 'filename': [f'{folder}/build/a/{name}', f'{folder}/build/a/{name}.h']}
            for name in ('run', 'preloaded', 'plain', 'unused')
        ]
        tests = [
            {'suite': ['p:link'], 'depends': ['run', 'preloaded']},
            {'suite': ['p:link', 'p:plain-only'], 'depends': ['plain', 'preloaded']},
        ]
        for name, value in (('targets', targets), ('tests', tests)):
            with open(f'{folder}/build/meson-info/intro-{name}.json', 'w', encoding='utf-8') as out:
                json.dump(value, out)
        wanted = module.wanted_files('build', ['--no-suite', 'plain-only'])
    expect(wanted == ['a/preloaded', 'a/preloaded.h', 'a/run', 'a/run.h'], wanted)


def testrun__only_weekly_runs_what_is_weekly():
    counter()
    builds = importlib.import_module('builds')
    for name, *_, lanes in builds.BUILDS + builds.WEEKLY:
        if lanes:
            chosen = builds.is_chosen(['weekly'], lanes.whole)
            expect(chosen == name.startswith('weekly'), name)
    asan = builds.WEEKLY[1][-1].whole
    expect(not builds.is_chosen(['weekly', 'plain-only'], asan), asan)
    expect(not builds.is_chosen(['link'], asan), asan)


def testrun__lanes_run_abreast():
    """Each lane of the first two ends when both have begun; the last one begins then."""
    module, tally = counter(), counter().Tally()
    with harness.public_folder() as folder:
        module.ROOT = folder
        os.makedirs(f'{folder}/build/meson-logs')
        made_up(
            folder,
            'meson',
            f'''words=" $* "; log=${{words#* --logbase }}; log=${{log%% *}}
            case $words in *" --wrapper "*) log=$log-sh ;; esac
            case $log in
            last) [ -e {folder}/a.ended ] && [ -e {folder}/b-sh.ended ] || exit 3 ;;
            *) touch {folder}/$log.begun
               until [ -e {folder}/a.begun ] && [ -e {folder}/b-sh.begun ]; do sleep 0.01; done ;;
            esac
            touch {folder}/$log.ended
            echo '{{"name": "p:'$log'", "result": "OK"}}' >{folder}/build/meson-logs/$log.json''',
        )
        lanes = importlib.import_module('builds').Lanes(
            [],
            [module.Lane('a', [], 1), module.Lane('b', [], 1, is_patient=True)],
            [module.Lane('last', [], 1)],
        )
        os.environ['MESON'] = f'{folder}/meson'
        with contextlib.redirect_stdout(io.StringIO()):
            module.run_tests('build', 'build', lanes, [], tally)
    expect(tally.passed == 3 and not tally.failures, vars(tally))


def testrun__patient_tests_step_back():
    code = (
        'import os; print(os.nice(0), open("/proc/self/autogroup").read().split()[-1])'
        if os.path.exists('/proc/self/autogroup')
        else 'import os; print(os.nice(0), 10)'
    )
    said = harness.subprocess.run(
        [*shlex.split(counter().PATIENTLY), sys.executable, '-c', code],
        capture_output=True,
        text=True,
        start_new_session=True,
    )
    expect(said.stdout == f'{min(19, os.nice(0) + 10)} 10\n', said.stdout + said.stderr)


if __name__ == '__main__':
    sys.exit(harness.main(globals()))
