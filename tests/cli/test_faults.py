# SPDX-License-Identifier: BSD-2-Clause
"""`sidewire run --faults`: unmodified programs over a link that misbehaves as asked."""
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

import harness
import ports
import test_pair
from harness import CLI, Skip, expect, expect_status, run

SUMMARY = re.compile(r'sidewire\[\d+\]: faults: (.*)')


def told(text):
    """What the line on faults says, by what was done; None where there is no such line."""
    found = SUMMARY.search(text)
    if not found:
        return None
    return {
        words.split(' ', 1)[1]: int(words.split(' ', 1)[0]) for words in found.group(1).split(', ')
    }


def pingpong(faults, *more, kind='rc', link='auto'):
    """Runs a pingpong, both sides with the faults. The client's status, what it printed, and what
    both said of faults."""
    return both(faults, link, f'ibv_{kind}_pingpong', '-d', 'sw_lo', '-g', '1', *more)


def both(faults, link, program, *more):
    if not shutil.which(program):
        raise Skip(f'{program} is not installed')
    port = ports.claim()
    words = [CLI, 'run', '--link', link, '--faults', faults, '--', program, *more, '-p', str(port)]
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
    port = ports.claim()
    words = [
        CLI,
        *f'run --faults loss=100% -- ibv_ud_pingpong -d sw_lo -g 1 -p {port} -n 1'.split(),
    ]
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


LIST = 'loss=1%,dup=0.1%,reorder=2%:50us,corrupt=1e-4,delay=20us,seed=7'


def survives(program, *more, least):
    """Over packets, with all there is in a list. The last ACK may be lost, and whom it was for then
    finds nobody there any more, as on any network: a second and a third try are allowed."""
    for _ in range(3):
        status, output, client, server = both(LIST, 'roce', program, *more)
        expect(client and server, output)
        if status == 0:
            break
        expect('transport retry counter exceeded' in output, output)
    expect(status == 0, output)
    for said in (client, server):
        expect(said['delayed'] + said['dropped'] == said['packets sent'], said)
    expect(client['packets sent'] + server['packets sent'] >= least, client, server)
    expect(
        client['dropped'] + server['dropped'] > 0 and client['reordered'] + server['reordered'] > 0,
        client,
        server,
    )
    return output


def faults__packets_of_a_pingpong():
    # -c: the bytes are looked at
    survives('ibv_rc_pingpong', '-d', 'sw_lo', '-g', '1', '-c', '-e', '-n', '300', least=1200)


def faults__packets_of_long_messages():
    survives(*'ibv_rc_pingpong -d sw_lo -g 1 -c -e -s 100000 -n 20'.split(), least=1000)


def faults__packets_of_perftest():
    for name in ('write', 'send', 'read'):
        survives(
            f'ib_{name}_bw', '-d', 'sw_lo', '-x', '1', '-F', '-s', '65536', '-n', '100', least=1600
        )


def faults__nth_packet_over_packets():
    status, output, client, server = with_script(
        'drop packet 3 of qp 1 opcode send\n', '-n', '20', link='roce'
    )
    expect(status == 0, output)
    expect(client['dropped'] == 1 and server['dropped'] == 1, client, server)
    expect(client['received'] > 20 and server['received'] > 20, client, server)


def counters_asked_for():
    """Those of the loopback, as JSON and as a table."""
    asked = json.loads(run(CLI, 'devices', '--counters', '--json').stdout)['devices']
    return (
        next(item['counters'] for item in asked if item['name'] == 'sw_lo'),
        run(CLI, 'devices', '--counters').stdout,
    )


def faults__counters_of_running_programs():
    """`sidewire devices --counters` asks them while they run; the loopback's are those of all
    programs of the user. The programs run until they are killed: on a busy machine asking may take
    longer than any time they are given."""
    if not shutil.which('ib_write_bw'):
        raise Skip('ib_write_bw is not installed')
    port = ports.claim()
    words = [
        CLI,
        *'run --link roce --faults loss=2%,seed=1 -- ib_write_bw -d sw_lo -x 1 -F -D 600'.split(),
        *f'-p {port}'.split(),
    ]
    wanted = {'retrans_pkts', 'out_of_sequence', 'port_xmit_data'}
    with test_pair.server(*words, port=port) as child, tempfile.TemporaryFile('w+') as said:
        client = subprocess.Popen([*words, '127.0.0.1'], stdout=said, stderr=said)
        try:
            seen, limit = {}, time.monotonic() + harness.PATIENCE_S
            while not wanted <= set(seen) and time.monotonic() < limit:
                if client.poll() is not None or child.poll() is not None:
                    break
                seen, text = counters_asked_for()
            said.seek(0)
            expect(wanted <= set(seen), seen, client.poll(), child.poll(), said.read())
            expect(all(value > 0 for value in seen.values()), seen)
            expect(re.search(r'^  port_xmit_data +\d+$', text, re.M), text)
        finally:
            client.kill()
            client.wait()


def faults__cut_over_packets():
    """Packets of other programs to the port of this host are cut off, too."""
    status, output, client, _ = with_script('cut\n', '-n', '20', link='roce')
    expect(status != 0 and 'transport retry counter exceeded' in output, output)
    strangers = client.get('received', 0)
    expect(client['lost in a cut'] == client['packets sent'] + strangers, client)
    expect(client['packets sent'] > 1, client)


def faults__what_is_held_leaves_at_the_end():
    """Each ACK leaves 20 ms late, the last one when its program ends: nobody waits
    for it in vain."""
    status, output, client, server = pingpong('delay=20ms', '-n', '3', link='roce')
    expect(status == 0, output)
    expect(client['delayed'] == client['packets sent'], client)


def faults__same_fate_for_same_packets():
    """Datagrams are sent once each: the same seed, the same ones late. (Doubled ones count as
    answers, so that one side ends early.)"""
    said = []
    for seed in (5, 5, 6):
        status, output, client, _ = pingpong(
            f'reorder=20%:50us,seed={seed}', '-n', '100', kind='ud', link='roce'
        )
        expect(status == 0, output)
        said.append(client['reordered'])
    expect(said[0] == said[1] != 0, said)
    expect(said[2] != said[0], said)


if __name__ == '__main__':
    sys.exit(harness.main(globals()))
