#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""Unmodified programs between this host, over packets, and a stock kernel's rdma_rxe, both ways.
usage: test_programs.py SIDEWIRE

Each case starts a server on one side and its client on the other. The pingpongs compare what
arrives (-c); what perftest moves is judged by its own completions and by rxe's counters.
"""
import subprocess
import sys

sys.dont_write_bytecode = True

import kernel_guest as guest  # noqa: E402

DEVICE = 'sw_br0'
GID, GUEST_GID = '3', '1'  # ::ffff:10.77.0.x, RoCE v2, in the two tables
SECONDS = 120
MANY_SECONDS = 300
MESSAGES = (100000, 100000, 100000, 20000, 20000, 5000, 5000, 1000, 1000)
PATIENT = 18  # waits a second for an ACK
UNCALIBRATED = 'Correlation coefficient r^2'  # perftest's word for it
CLOCK = '/sys/devices/system/clocksource/clocksource0/current_clocksource'

PINGPONGS = [
    ('ibv_rc_pingpong', '-c -n 200 -m 4096'),
    ('ibv_rc_pingpong', '-c -n 200 -m 1024 -s 10000'),
    ('ibv_uc_pingpong', '-c -n 100'),
    ('ibv_ud_pingpong', '-c -n 200'),
    ('ibv_srq_pingpong', '-c -n 200'),
]
# Without -m the path MTU is the largest that both have: 4096. rxe takes 16 READs or atomics at
# once, no more.
PERFTEST = [
    ('ib_send_bw', '-n 1000 -s 65536'),
    ('ib_send_bw', '-n 1000 -s 5000 -m 1024'),
    ('ib_send_lat', '-n 500 -s 64'),
    ('ib_write_bw', '-n 500 -s 65536'),
    ('ib_write_bw', '-n 500 -s 65536 -c UC -m 1024'),
    ('ib_write_lat', '-n 500 -s 64'),
    ('ib_read_bw', '-n 300 -s 65536 -o 16'),
    ('ib_read_lat', '-n 300 -s 64 -o 1'),
    ('ib_atomic_bw', '-n 1000 -o 16'),
    ('ib_atomic_lat', '-n 300 -A CMP_AND_SWAP -o 1'),
]


def options_of(program, here):
    """What names the device: the pingpongs and perftest say it differently."""
    letter = 'g' if program.startswith('ibv_') else 'x'
    return f'-d {DEVICE} -{letter} {GID}' if here else f'-d rxe0 -{letter} {GUEST_GID}'


class Host:
    """Our side."""

    def __init__(self, sidewire):
        self.command = [guest.PEER, 'host', sidewire, 'run', '--link', 'roce', '--']

    def start(self, line):
        return subprocess.Popen(
            self.command + line.split(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    @staticmethod
    def finish(process, seconds=SECONDS):
        """Output and status."""
        try:
            return process.communicate(timeout=seconds)[0], process.returncode
        except subprocess.TimeoutExpired:
            process.kill()
            return process.communicate()[0] + '\n(took too long)', 1


def counters():
    """rxe's, by name."""
    words = guest.inside('rdma statistic show link rxe0')[0].split()[2:]
    return {words[i]: int(words[i + 1]) for i in range(0, len(words) - 1, 2)}


def say(good, title, *texts):
    print(f'{"ok  " if good else "FAIL"} {title}', flush=True)
    if not good:
        for text in texts:
            print('    ' + '\n    '.join(text.strip().splitlines()), flush=True)
    return good


def again_if_uncalibrated(line):
    """Runs a line once more, at another port, if perftest moved all but could not tell the speed of
    its CPU: it compares two clocks for its report, and a CPU that gets no time between their
    readings spoils that. Nothing else is run again.
    """

    def run(host, program, options, port, *seconds):
        good, title, *texts = line(host, program, options, port, *seconds)
        if (
            not good
            and any(UNCALIBRATED in text for text in texts)
            and not any('status' in text for text in texts)
        ):
            print(f'     once more, perftest could not calibrate its clock: {title}', flush=True)
            good, title, *texts = line(host, program, options, port + 1000, *seconds)
        return say(good, title, *texts)

    return run


def serve(line, port, seconds=SECONDS):
    """A server in the guest, once it listens."""
    return guest.spawn('server', line, f'netstat -ltn | grep -q :{port}', seconds)


def failed(text):
    return any(word in text for word in ('rror', 'ailed', "ouldn't", 'invalid'))


@again_if_uncalibrated
def from_host(host, program, options, port, seconds=SECONDS):
    """Our client, the kernel's server."""
    if not serve(f'{program} {options_of(program, False)} -p {port} {options}', port, seconds):
        return False, f'{program} {options}: no server in the guest'
    text, status = host.finish(
        host.start(f'{program} {options_of(program, True)} -p {port} {options} {guest.GUEST}'),
        seconds,
    )
    other = guest.ended('server')
    return (
        status == 0 and not failed(text) and not failed(other),
        f'to the kernel: {program} {options}',
        text,
        other,
    )


@again_if_uncalibrated
def from_guest(host, program, options, port):
    """The kernel's client, our server."""
    server = host.start(f'{program} {options_of(program, True)} -p {port} {options}')
    guest.await_tcp(server, port)
    text, status = guest.inside(
        f'timeout {SECONDS} {program} {options_of(program, False)} -p {port} {options} {guest.OWN}'
    )
    other, other_status = host.finish(server)
    good = status == 0 and other_status == 0 and not failed(text) and not failed(other)
    return good, f'from the kernel: {program} {options}', text, other


def many_messages(host, port):
    """On a clean path nothing is sent twice: rxe would have counted it. WRITEs, as no receive can
    be missing for them. An emulated guest may stand still for longer than any network takes, so the
    path may have to be tried again to be found clean, with fewer where that happens all the time.
    """
    for attempt, messages in enumerate(MESSAGES):
        before = counters()
        good = from_host(
            host,
            'ib_write_bw',
            f'-n {messages} -s 64 -u {PATIENT}',
            port + 100 * attempt,
            MANY_SECONDS,
        )
        after = counters()
        again = {
            name: after[name] - before[name]
            for name in ('duplicate_request', 'out_of_seq_request', 'rcvd_seq_err')
        }
        if not good or not any(again.values()):
            break
        print(f'     sent again: {again}', flush=True)
    return say(
        good and not any(again.values()), f'{messages} messages, none sent again', str(again)
    )


def receiver_not_ready(host, port):
    """Receives that come slower than SENDs: RNR NAKs one way and the other, and all arrives."""
    options, before = '-n 500 -s 64 -r 1 -t 64', counters()
    good = from_host(host, 'ib_send_bw', options, port) & from_guest(
        host, 'ib_send_bw', options, port + 1
    )
    after = counters()
    naks = {name: after[name] - before[name] for name in ('send_rnr_err', 'rcvd_rnr_err')}
    return say(good and all(naks.values()), 'RNR NAKs both ways', str(naks))


def peer_killed(host, port):
    """Without its peer our client fails by its retries. (The kernel's does not: the programs ask
    for 7, which rxe takes as for ever.)"""
    options = '-s 4096 -D 60 -u 12'
    if not serve(f'ib_write_bw {options_of("ib_write_bw", False)} -p {port} {options}', port):
        return say(False, 'no server in the guest')
    client = host.start(
        f'ib_write_bw {options_of("ib_write_bw", True)} -p {port} {options} {guest.GUEST}'
    )
    guest.inside(
        'while pidof ib_write_bw >/dev/null; do '
        'rdma res show qp | grep -q "type RC state RT" && break; sleep 0.1; done; sleep 2; '
        'kill -9 $(pidof ib_write_bw)'
    )
    text, status = host.finish(client)
    return say(
        status != 0 and 'status 12' in text,
        'the kernel\'s process is killed: our client has status 12',
        text,
    )


def run(sidewire):
    host, port, good = Host(sidewire), 18700, True
    print('the guest\'s clock:', guest.inside(f'cat {CLOCK}')[0].strip(), flush=True)
    for program, options in PINGPONGS + PERFTEST:
        good &= from_host(host, program, options, port) & from_guest(
            host, program, options, port + 1
        )
        port += 2
    for case in (many_messages, receiver_not_ready, peer_killed):
        good &= case(host, port)
        port += 2
    print('rxe:', counters(), flush=True)
    if not good:
        print(
            f'the guest\'s kernel says last:\n{guest.inside("dmesg | tail -n 20")[0]}', flush=True
        )
    return good


if __name__ == '__main__':
    sys.exit(guest.with_guest(run, *sys.argv[1:]))
