#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""Snapshots on a stock kernel 6.1, which has no PAGEMAP_SCAN, and on its rxe.
usage: test_snapshot.py SIDEWIRE LIBRARY SIDEWIRE-SNAPSHOT TRAINER TEST-OF-CAPTURES

In the guest: captures beside writers; snapshots saved through the gate into a file and to a peer
here, restored from each; a server there, to which the command here saves; what the doctor says.
"""
import os
import re
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True

import kernel_guest as guest  # noqa: E402
import own_programs as own  # noqa: E402
from test_programs import Host, say  # noqa: E402

PORT, SECONDS, STEPS = 4460, 120, 4
FILE = 'file:/tmp/run.snap'


def asks_the_doctor():
    """It is run without its device: what the machine allows is asked of the kernel."""
    said, _ = guest.inside(f'timeout {SECONDS} sidewire doctor')
    line = next((one for one in said.splitlines() if 'pages written' in one), '')
    return say('6.7' in said and 'sum the state twice' in said and line != '', 'doctor', said)


def captures():
    """The cases of captures and gates. Asked for the pages that were written, they get sums."""
    said, status = guest.inside(f'timeout {SECONDS} test_snapshot_capture')
    return say(status == 0, 'captures and gates', said)


def saves(server):
    peer = f'peer:{guest.OWN}:{PORT}/run'
    said, status = guest.inside(
        f'timeout {SECONDS} snapshot_trainer save 0 {STEPS} 60000 0 {FILE} {peer}'
    )
    durable = re.findall(r'^durable (\d+) 1 1$', said, re.M)
    good = say(
        status == 0 and durable == [str(step + 1) for step in range(STEPS)],
        f'{STEPS} steps through the gate, into a file and to a peer here',
        said,
        '' if server.poll() is None else host_said(server),
    )
    for sink in FILE, peer:
        said, status = guest.inside(f'timeout {SECONDS} snapshot_trainer check {sink}')
        good &= say(said.strip() == f'whole {STEPS}', f'all bytes are back from {sink}', said)
    return good


def host_said(server):
    return server.stdout.read()


def command_of(sidewire, *words):
    done = subprocess.run(
        [guest.PEER, 'host', sidewire, 'snapshot', *words],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    return done.stdout + done.stderr, done.returncode


def serves(sidewire, folder):
    """A server on rxe holds what the command here saves."""
    if not guest.spawn(
        'serve',
        f'sidewire-snapshot serve -l {guest.GUEST} -m 32M --control /tmp/serve.control',
        f'rdma res show cm_id | grep LISTEN | grep -q ":{PORT} "',
        2 * SECONDS,
    ):
        return say(False, 'a server in the guest', guest.ended('serve'))
    saved, back = os.path.join(folder, 'in'), os.path.join(folder, 'back')
    with open(saved, 'wb') as file:
        file.write(os.urandom(3000001))
    sink, texts, good = ['--sink', f'peer:{guest.GUEST}:{PORT}/here'], [], True
    for words in (['save', '--raw', f'w={saved}'], ['verify'], ['restore', '--raw', f'w={back}']):
        said, status = command_of(sidewire, *words[:1], *sink, *words[1:])
        texts.append(said)
        good &= status == 0
    guest.inside('kill $(cat /tmp/serve.pid)')
    texts.append(guest.ended('serve'))
    if good:
        with open(saved, 'rb') as one, open(back, 'rb') as other:
            good = one.read() == other.read()
    return say(good, 'saved from here to a server on rxe, verified and restored', *texts)


def run(sidewire, library, snapshot, trainer, captured):
    pushed = [(snapshot, 'sidewire-snapshot'), (trainer, 'snapshot_trainer')]
    pushed += [(captured, 'test_snapshot_capture'), (sidewire, 'sidewire')]
    guest.inside('mkdir -p /var/tmp /dev/shm')
    if not all(own.push_with_libraries(path, name) for path, name in pushed):
        return say(False, 'the programs cannot be copied into the guest')
    if not own.copy_in(library, f'/lib/{os.path.basename(library)}'):
        return say(False, 'the library cannot be copied into the guest')
    server = subprocess.Popen(
        [guest.PEER, 'host', sidewire, *'snapshot serve -m 256M -l'.split(), guest.OWN],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        good = say(guest.await_service(server, PORT), 'a server here')
        with tempfile.TemporaryDirectory() as folder:
            good &= asks_the_doctor() & captures() & saves(server) & serves(sidewire, folder)
    finally:
        server.terminate()
        Host.finish(server)
    return good


if __name__ == '__main__':
    sys.exit(guest.with_guest(run, *(os.path.abspath(word) for word in sys.argv[1:])))
