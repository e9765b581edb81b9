#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""Reservations by the commands of the host, of two hosts at one target: each command, who is let
in, and what the report says.

usage: test_reservations.py SIDEWIRE
"""
import json
import os
import sys
import tempfile

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), '..'))
from programs import NQN, Target, host, say  # noqa: E402

HOSTS = [
    f'nqn.2014-08.org.nvmexpress:uuid:{digit * 8}-0000-4000-8000-00000000000{digit}'
    for digit in '12'
]
IDS = [name.rsplit(':', 1)[1].replace('-', '') for name in HOSTS]
CONFLICT = 'Reservation Conflict'
KEYS = 0xFEDCBA9876543210, 0x2222  # the first is more than a signed number has room for


class Session:
    def __init__(self, sidewire, data):
        self.sidewire, self.data, self.good = sidewire, data, True

    def run(self, number, words, refused=''):
        """A command of a host; `refused`: what is said where it fails."""
        program, *rest = words.split()
        status, text = host(
            self.sidewire, f'{program} -n {NQN} -N 1 -q {HOSTS[number]} {" ".join(rest)}'
        )
        right = refused in text and status == 1 if refused else status == 0
        self.good = (
            say(right, f'host {number}: {words}{", which is refused" if refused else ""}', text)
            and self.good
        )
        return text

    def report(self, number, holder, rtype, hosts):
        """Checks who is registered, and who of them holds the reservation."""
        told = json.loads(self.run(number, 'resv-report -o json'))
        found = {one['hostid']: (int(one['rkey'], 0), one['rcsts']) for one in told['regctlext']}
        right = (
            found == {IDS[each]: (KEYS[each], int(each == holder)) for each in hosts}
            and told['rtype'] == rtype
            and told['regctl'] == len(hosts)
        )
        self.good = (
            say(right, f'host {number}: the report has {len(hosts)} hosts and type {rtype}', told)
            and self.good
        )
        return told

    def write(self, number, refused=''):
        self.run(number, f'write -z 4096 -d {self.data}', refused)

    def read(self, number, refused=''):
        self.run(number, f'read -z 4096 -d {self.data}', refused)


def exclude(session):
    """A reservation keeps others out, and each command does what it says."""
    own, other = KEYS
    session.report(0, None, 0, [])
    session.run(0, f'resv-acquire --crkey {own} --rtype 1', CONFLICT)
    session.run(0, f'resv-register --nrkey {own}')
    session.run(0, f'resv-register --crkey 7 --nrkey 8', CONFLICT)
    session.run(0, f'resv-acquire --crkey {own} --rtype 1')
    session.report(1, 0, 1, [0])
    session.write(0)
    session.write(1, CONFLICT)
    session.read(1)
    session.run(1, f'resv-register --nrkey {other:#x}')
    session.run(1, f'resv-acquire --crkey {other:#x} --rtype 2', CONFLICT)
    session.run(1, f'resv-release --crkey {other:#x} --rtype 1')  # not its own: nothing happens
    session.report(0, 0, 1, [0, 1])
    session.run(1, f'resv-acquire --crkey {other:#x} --prkey {own} --rtype 2 --racqa 1')
    session.report(1, 1, 2, [1])
    session.read(0, CONFLICT)
    session.read(1)
    session.run(1, f'resv-release --crkey {other:#x} --rtype 2')
    session.report(1, None, 0, [1])
    session.read(0)


def clear(session):
    """A key is replaced and ignored, a host unregisters, and all that is there is cleared."""
    own, other = KEYS
    session.run(0, 'resv-register --nrkey 99')
    session.run(0, f'resv-register --crkey 1 --nrkey {own} --rrega 2', CONFLICT)
    session.run(0, f'resv-register --iekey --nrkey {own} --rrega 2')
    session.run(0, f'resv-acquire --crkey {own} --rtype 3')
    session.write(1)  # registrants only, and it is one
    session.run(1, f'resv-register --crkey {other} --rrega 1')
    session.report(0, 0, 3, [0])
    session.write(1, CONFLICT)
    session.run(0, f'resv-release --crkey {own} --rrela 1')
    session.report(0, None, 0, [])
    session.write(1)


def outputs(session):
    """What is printed for who reads it."""
    session.run(1, f'resv-register --nrkey {KEYS[1]}')
    text = session.run(1, 'resv-report')
    said = (
        'regctl    : 1\nptpls     : 0\nregctlext[0] :\n  cntlid     : ffff\n'
        f'  rcsts      : 0\n  rkey       : 2222\n  hostid     : {IDS[1]}\n'
    )
    session.good = say(said in text, 'the report as nvme-cli prints it', text) and session.good
    for words in ('resv-acquire --crkey x', 'resv-register --zork', 'resv-report --rtype 1'):
        program, *rest = words.split()
        status, text = host(session.sidewire, f'{program} -n {NQN} {" ".join(rest)}')
        session.good = say(status == 2, f'{words} is wrong use', text) and session.good
    session.run(1, 'resv-acquire --crkey 1', 'an argument')


def main(sidewire):
    with tempfile.TemporaryDirectory() as folder:
        data = os.path.join(folder, 'data')
        with open(data, 'wb') as file:
            file.write(os.urandom(4096))
        target = Target(sidewire, 'ram:64M')
        session = Session(sidewire, data)
        for part in exclude, clear, outputs:
            part(session)
        good = say(target.end() == 0, 'SIGTERM: it ends by itself') and session.good
    return 0 if good else 1


if __name__ == '__main__':
    sys.exit(main(sys.argv[1]))
