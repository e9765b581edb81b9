# SPDX-License-Identifier: BSD-2-Clause
"""`sidewire run`: what passes through it, what it sets, what it refuses."""
import os
import signal
import subprocess
import sys
import time

import harness
from harness import CLI, LIBRARY, Skip, expect, expect_status, run

SHOW_PRELOAD = ('/bin/sh', '-c', 'echo "$LD_PRELOAD"')


def library():
    return os.path.realpath(LIBRARY)


def run__passes_exit_code():
    for code in (0, 1, 42, 125, 255):
        expect_status(run(CLI, 'run', '--', '/bin/sh', '-c', f'exit {code}'), code)


def run__dies_of_the_signal_of_its_command():
    for number in (signal.SIGTERM, signal.SIGKILL, signal.SIGSEGV):
        done = run(CLI, 'run', '--', '/bin/sh', '-c', f'kill -{int(number)} $$')
        expect_status(done, -number)


def run__is_its_command():
    """A signal sent to the process reaches the command, as they are one process."""
    child = subprocess.Popen(
        [
            CLI,
            'run',
            '--',
            '/bin/sh',
            '-c',
            'trap "exit 33" USR1; echo ready; while :; do sleep 0.05; done',
        ],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        expect(child.stdout.readline() == 'ready\n')
        child.send_signal(signal.SIGUSR1)
        expect(child.wait(harness.PATIENCE_S) == 33, child.returncode)
    finally:
        child.kill()
        child.wait()


def run__passes_arguments_and_streams():
    words = ['a b', '', '--help', '-x', '--', '$HOME', '*']
    done = run(CLI, 'run', '--', '/usr/bin/printf', '<%s>', *words)
    expect(done.stdout == ''.join(f'<{word}>' for word in words), done.stdout)
    done = run(CLI, 'run', 'cat', input='text')
    expect(done.stdout == 'text' and done.stderr == '', done)


def run__stops_at_the_first_word_that_is_no_option():
    done = run(CLI, 'run', '/usr/bin/printf', '%s', '--direct')
    expect(done.stdout == '--direct', done)


def run__keeps_the_name_of_its_command():
    done = run(CLI, 'run', '--', 'sh', '-c', 'tr "\\0" " " </proc/$$/cmdline')
    expect(done.stdout.startswith('sh -c '), done.stdout)


def run__preloads_the_library():
    done = run(CLI, 'run', '--', 'cat', '/proc/self/maps')
    expect(library() in done.stdout, done)


def run__puts_the_library_first_and_keeps_others():
    with harness.public_folder() as folder:
        other = harness.compile_program(folder, 'other.so', 'int other;', '-shared', '-fPIC')
        done = run(CLI, 'run', '--', *SHOW_PRELOAD, env={'LD_PRELOAD': other})
        expect(done.stdout.strip() == f'{library()}:{other}', done)
        done = run(CLI, 'run', '--', 'cat', '/proc/self/maps', env={'LD_PRELOAD': other})
        expect(other in done.stdout and library() in done.stdout, done)


def run__names_the_library_once_when_nested():
    done = run(CLI, 'run', '--', CLI, 'run', '--', *SHOW_PRELOAD)
    expect(done.stdout.strip() == library(), done)


def run__sets_the_environment():
    done = run(
        CLI,
        *'run --direct cma --adopt=never --liveness=never --tcp-fallback=never'.split(),
        *'--devices lo,eth0 --log info -- env'.split(),
    )
    for line in (
        'SIDEWIRE_DIRECT=cma',
        'SIDEWIRE_ADOPT=never',
        'SIDEWIRE_LIVENESS=never',
        'SIDEWIRE_TCP_FALLBACK=never',
        'SIDEWIRE_DEVICES=lo,eth0',
        'SIDEWIRE_LOG=info',
    ):
        expect(line in done.stdout.splitlines(), line, done)


def run__leaves_the_environment_alone_otherwise():
    done = run(CLI, 'run', '--', 'env', env={'SIDEWIRE_DIRECT': 'ring', 'SIDEWIRE_LOG': None})
    lines = [line for line in done.stdout.splitlines() if line.startswith('SIDEWIRE_')]
    expect(lines == ['SIDEWIRE_DIRECT=ring'], lines)


def run__a_program_that_sees_no_device_is_told_why():
    done = run(CLI, 'run', '--devices', 'none0', '--', 'ibv_devinfo')
    expect('no device: none of the interfaces in SIDEWIRE_DEVICES=none0' in done.stderr, done)
    done = run('unshare', '-rn', CLI, 'run', '--', 'ibv_devinfo')
    if 'unshare' in done.stderr:
        print(f'no namespace: {done.stderr}')
        return
    expect('no device: no network interface is up; mend: ip link set lo up' in done.stderr, done)
    expect('no device' not in run(CLI, 'run', '--', 'ibv_devinfo').stderr)


def run__refuses_wrong_options():
    for words in (
        ['--direct', 'fast'],
        ['--direct'],
        ['--adopt', 'always'],
        ['--liveness', '1'],
        ['--tcp-fallback', 'on'],
        ['--log', '9'],
        ['--devices', ''],
        ['--collectives=fast'],
        ['--zork'],
        [],
    ):
        done = run(CLI, 'run', *words)
        expect_status(done, 125)
        expect('sidewire run: ' in done.stderr and not done.stdout, done)
    expect(
        "auto, mapped, cma, ring or off, not 'fast'"
        in run(CLI, 'run', '--direct', 'fast', 'true').stderr
    )


def run__collectives_are_for_both_mpis():
    """A library that is preloaded and a folder of components, each once and before others."""
    if not os.path.exists(os.path.join(harness.BUILD, 'bindings/mpi/mpich/libsidewire-mpich.so')):
        raise Skip('libmpich-dev was not installed when this was built')
    words = [CLI, 'run', '--collectives', '--']
    done = run(*words, *words, 'env', env={'OMPI_MCA_mca_base_component_path': '/own'})
    lines = dict(line.split('=', 1) for line in done.stdout.splitlines() if '=' in line)
    preloads = [os.path.basename(path) for path in lines['LD_PRELOAD'].split(':')]
    expect(preloads == ['libsidewire-mpich.so', 'libsidewire.so'], preloads)
    expect(lines['SIDEWIRE_COLLECTIVES'] == 'auto' and lines['UCX_TLS'] == '^ib', lines)
    folders = lines['OMPI_MCA_mca_base_component_path'].split(':')
    expect(os.path.exists(os.path.join(folders[0], 'mca_coll_sidewire.so')), folders)
    expect(folders[1:] == ['/own'], folders)


def run__collectives_that_are_not_installed():
    with harness.public_copy() as folder:
        done = run(os.path.join(folder, 'src/cli/sidewire'), 'run', '--collectives', '--', 'true')
        expect_status(done, 125)
        expect('apt-get install sidewire-mpi' in done.stderr, done)


def run__missing_command():
    for name in ('no-such-command-here', '/no/such/file', ''):
        done = run(CLI, 'run', '--', name)
        expect_status(done, 127)
        expect('there is no such' in done.stderr, done)


def run__not_executable():
    with harness.public_folder() as folder:
        path = os.path.join(folder, 'plain')
        with open(path, 'w', encoding='utf-8') as out:
            out.write('#!/bin/sh\n')
        done = run(CLI, 'run', '--', path)
        expect_status(done, 126)
        expect(f'chmod a+x {path}' in done.stderr, done)
        done = run(CLI, 'run', '--', folder)
        expect_status(done, 126)
        expect('it is a folder' in done.stderr, done)


def run__script():
    with harness.public_folder() as folder:
        for head, status in (('#!/bin/sh\n', 7), ('', 7), ('#!/no/interpreter\n', 126)):
            path = os.path.join(folder, 'script')
            with open(path, 'w', encoding='utf-8') as out:
                out.write(head + 'exit 7\n')
            os.chmod(path, 0o755)
            expect_status(run(CLI, 'run', '--', path, 'argument'), status)


def run__searches_path_as_the_shell_does():
    with harness.public_folder() as folder:
        for name, mode in (('first', 0o644), ('second', 0o755)):
            os.mkdir(os.path.join(folder, name))
            path = os.path.join(folder, name, 'tool')
            with open(path, 'w', encoding='utf-8') as out:
                out.write(f'#!/bin/sh\necho {name}\n')
            os.chmod(path, mode)
        done = run(
            CLI,
            'run',
            'tool',
            env={'PATH': f'{folder}/first:/nowhere:{folder}/second:/bin:/usr/bin'},
        )
        expect(done.stdout == 'second\n', done)


def run__static_program():
    for flag in ('-static', '-static-pie'):
        with harness.public_folder() as folder:
            path = harness.compile_program(folder, 'fixed', 'int main(void) { return 9; }', flag)
            done = run(CLI, 'run', '--', path)
            expect_status(done, 126)
            expect('statically linked' in done.stderr and 'mend:' in done.stderr, done)
            forced = run(CLI, 'run', '--force', '--', path)
            expect_status(forced, 9)
            expect('statically linked' in forced.stderr, forced)


def run__static_interpreter_of_a_script():
    with harness.public_folder() as folder:
        fixed = harness.compile_program(folder, 'fixed', 'int main(void) { return 9; }', '-static')
        path = os.path.join(folder, 'script')
        with open(path, 'w', encoding='utf-8') as out:
            out.write(f'#! {fixed} argument\n')
        os.chmod(path, 0o755)
        done = run(CLI, 'run', '--', path)
        expect_status(done, 126)
        expect(fixed in done.stderr, done)


def run__loader_as_a_command():
    """The dynamic loader has no interpreter either, and does preload."""
    loader = next(
        (
            path
            for path in ('/lib64/ld-linux-x86-64.so.2', '/lib/ld-linux-aarch64.so.1')
            if os.path.exists(path)
        ),
        None,
    )
    if not loader:
        raise Skip('the dynamic loader is at no place known to this test')
    done = run(CLI, 'run', '--', loader, '/bin/cat', '/proc/self/maps')
    expect(library() in done.stdout, done)


def run__foreign_machine():
    with harness.public_folder() as folder:
        path = harness.compile_program(folder, 'program', 'int main(void) { return 0; }')
        with open(path, 'r+b') as file:
            file.seek(18)  # e_machine
            file.write(b'\x08\x00')  # EM_MIPS
        done = run(CLI, 'run', '--', path)
        expect_status(done, 126)
        expect('another processor' in done.stderr, done)


def run__set_user_id_program():
    if os.geteuid() != 0:
        raise Skip('making a set-user-ID program needs root')
    with harness.public_copy() as copy:
        path = harness.compile_program(copy, 'program', 'int main(void) { return 9; }')
        os.chmod(path, 0o4755)
        cli = os.path.join(copy, 'src/cli/sidewire')
        user = ('setpriv', '--reuid=nobody', '--regid=nogroup', '--clear-groups', '--')
        done = run(*user, cli, 'run', '--', path)
        expect_status(done, 126)
        expect('gains privileges' in done.stderr and 'sudo sidewire run' in done.stderr, done)
        expect_status(run(*user, cli, 'run', '--force', '--', path), 9)
        # Root gains nothing by it, so the library is preloaded; the same where the bits are
        # ignored.
        expect_status(run(cli, 'run', '--', path), 9)
        expect_status(run(*harness.as_nobody(cli, 'run', '--', path)), 9)


def run__as_nobody():
    with harness.public_copy() as copy:
        words = harness.as_nobody(
            os.path.join(copy, 'src/cli/sidewire'), 'run', '--', 'cat', '/proc/self/maps'
        )
        done = run(*words)
        expect_status(done, 0)
        expect(
            os.path.join(copy, 'src/preload/libsidewire.so') in done.stdout and not done.stderr,
            done,
        )


def run__in_a_user_namespace():
    if run('unshare', '--user', 'true').returncode:
        raise Skip('user namespaces are not allowed here')
    with harness.public_copy() as copy:
        cli = os.path.join(copy, 'src/cli/sidewire')
        for words in (['--user'], ['--user', '--map-root-user']):
            done = run('unshare', *words, cli, 'run', '--', 'cat', '/proc/self/maps')
            expect_status(done, 0)
            expect('libsidewire.so' in done.stdout and not done.stderr, done)


def run__library_closed_to_the_user():
    with harness.public_copy() as copy:
        cli = os.path.join(copy, 'src/cli/sidewire')
        folder, path = os.path.join(copy, 'src/preload'), os.path.join(
            copy, 'src/preload/libsidewire.so'
        )
        os.chmod(path, 0o600)
        done = run(*harness.as_nobody(cli, 'run', '--', 'true'))
        expect_status(done, 125)
        expect(f'chmod a+r {path}' in done.stderr, done)
        os.chmod(path, 0o644)
        os.chmod(folder, 0o700)
        done = run(*harness.as_nobody(cli, 'run', '--', 'true'))
        expect_status(done, 125)
        expect(f'chmod a+x {os.path.dirname(path)}' in done.stderr.replace('/cli/../', '/'), done)


def run__library_named_by_the_environment():
    with harness.public_folder() as folder:
        other = harness.compile_program(folder, 'other.so', 'int other;', '-shared', '-fPIC')
        expect(
            run(CLI, 'run', '--', *SHOW_PRELOAD, env={'SIDEWIRE_LIB': other}).stdout.strip()
            == other
        )
        spaced = harness.compile_program(folder, 'a b.so', 'int other;', '-shared', '-fPIC')
        for value, text in (
            ('/no/such.so', 'No such file'),
            ('/etc/passwd', 'not a shared library'),
            (spaced, 'splits LD_PRELOAD'),
        ):
            done = run(CLI, 'run', '--', 'true', env={'SIDEWIRE_LIB': value})
            expect_status(done, 125)
            expect(text in done.stderr, done)


def run__survives_many_at_once():
    """The command shares nothing between its runs."""
    children = [
        subprocess.Popen([CLI, 'run', '--', 'sh', '-c', f'exit {code}']) for code in range(20)
    ]
    started = time.monotonic()
    for code, child in enumerate(children):
        expect(child.wait(harness.PATIENCE_S) == code, child.args, child.returncode)
    expect(time.monotonic() - started < harness.PATIENCE_S)


if __name__ == '__main__':
    sys.exit(harness.main(globals()))
