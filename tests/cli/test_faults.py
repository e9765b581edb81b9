# SPDX-License-Identifier: BSD-2-Clause
"""`sidewire run --faults`: unmodified programs over a link that misbehaves as asked."""
import os
import re
import shutil
import sys
import tempfile
import time

import harness
import test_pair
from harness import CLI, Skip, expect, expect_status, run

SUMMARY = re.compile(r'sidewire\[\d+\]: faults: (.*)')


def told(text):
    """What the line on faults says, by what was done; None where there is no such line."""
    found = SUMMARY.search(text)
    if not found:
        return None
    return {words.split(' ', 1)[1]: int(words.split(' ', 1)[0]) for words in found.group(1).split(', ')}


def pingpong(faults, *more, kind='rc'):
    """Runs a pingpong, both sides with the faults. The client's status, what it printed, and what both said of faults."""
    program = f'ibv_{kind}_pingpong'
    if not shutil.which(program):
        raise Skip(f'{program} is not installed')
    port = test_pair.free_port()
    words = [CLI, 'run', '--faults', faults, '--', program, '-d', 'sw_lo', '-g', '1', '-p', str(port), *more]
    with test_pair.server(*words, port=port) as child:
        client = run(*words, '127.0.0.1')
        if client.returncode:
            child.kill()
        output, _ = child.communicate(timeout=harness.PATIENCE_S)
    return client.returncode, client.stdout + client.stderr, told(client.stderr), told(output)


def script(text):
    path = tempfile.mkstemp(prefix='sidewire-faults.')[1]
    with open(path, 'w', encoding='ascii') as out:
        out.write(text)
    return path


def with_script(text, *more, **kind):
    path = script(text)
    try:
        return pingpong('@' + path, *more, **kind)
    finally:
        os.unlink(path)


def faults__mistakes_are_told_before_the_program_runs():
    done = run(CLI, 'run', '--faults', 'los=1%', '--', 'echo', 'ran')
    expect_status(done, 125)
    expect("'los'" in done.stderr and 'ran' not in done.stdout, done)
    path = script('drop once\nloose 1%\n')
    done = run(CLI, 'run', '--faults', '@' + path, '--', 'echo', 'ran')
    os.unlink(path)
    expect_status(done, 125)
    expect("line 2: 'loose'" in done.stderr and 'ran' not in done.stdout, done)


def faults__nothing_is_said_without_them():
    done = run(CLI, 'run', '--', 'ibv_devices')
    expect('faults' not in done.stderr, done)


def faults__a_reliable_connection_survives_loss():
    status, output, client, server = pingpong('loss=5%,seed=3', '-n', '200')
    expect(status == 0, output)
    expect(client['dropped'] > 0 and server['dropped'] > 0, client, server)
    expect(client['packets sent'] >= 200, client)


def faults__the_seed_decides():
    first, again = (pingpong('loss=20%,seed=5', '-n', '100')[2] for _ in range(2))
    other = pingpong('loss=20%,seed=6', '-n', '100')[2]
    expect(first == again, first, again)
    expect(first != other, first, other)


def faults__the_third_packet_of_the_first_queue_pair():
    status, output, client, server = with_script('drop packet 3 of qp 1\n', '-n', '20')
    expect(status == 0, output)
    expect(client['dropped'] == 1 and server['dropped'] == 1, client, server)


def faults__a_cut_ends_in_retries_exhausted():
    status, output, _, _ = with_script('cut\n', '-n', '20')
    expect(status != 0 and 'transport retry counter exceeded' in output, output)


def faults__a_short_cut_is_survived():
    before = time.monotonic()
    status, output, client, _ = with_script('cut at 0s for 300ms\n', '-n', '20')
    expect(status == 0, output)
    expect(client['lost in a cut'] <= 1 and time.monotonic() - before >= 0.25, client)


def faults__receives_are_withheld():
    status, output, client, server = with_script('rnr for 500ms\n', '-n', '20')
    expect(status == 0, output)  # it retries for ever
    expect(client['receives withheld'] + server['receives withheld'] > 0, client, server)


def faults__datagrams_are_lost():
    port = test_pair.free_port()
    words = [CLI, 'run', '--faults', 'loss=100%', '--', 'ibv_ud_pingpong', '-d', 'sw_lo', '-g', '1', '-p', str(port), '-n', '1']
    if not shutil.which('ibv_ud_pingpong'):
        raise Skip('ibv_ud_pingpong is not installed')
    with test_pair.server(*words, port=port) as child:
        client = run('timeout', '-s', 'INT', '2', *words, '127.0.0.1')
        expect(client.returncode != 0, 'nothing was lost', client.stdout)
        expect(child.poll() is None, 'the server got something')


def faults__delay_is_felt():
    before = time.monotonic()
    status, output, client, _ = pingpong('delay=5ms', '-n', '20')
    expect(status == 0, output)
    expect(time.monotonic() - before >= 0.2, output)  # 20 times there and back
    expect(client['delayed'] >= 20, client)


if __name__ == '__main__':
    sys.exit(harness.main(globals()))
