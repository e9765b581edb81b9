#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""A tier after a crash: its file is marked, and nothing serves it without its log; a damaged record
costs no other one; a copy that is missing, and a log that another target has taken.

usage: test_tier_owed.py SIDEWIRE
"""
import os
import select
import signal
import subprocess
import sys
import tempfile

from test_tier import LOG, Server, Tier, make

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), '..'))
from programs import PORT, Target, say  # noqa: E402

MARK = 'user.sidewire.tier'
PIECE = 65536


def has_marks(folder):
    try:
        os.setxattr(folder, MARK, b'')
    except OSError:
        return False
    os.removexattr(folder, MARK)
    return True


def is_marked(path):
    return MARK in os.listxattr(path)


def refusal_of(sidewire, spec):
    try:
        target = Target(sidewire, spec)
    except RuntimeError as error:
        return str(error)
    target.end(signal.SIGKILL)
    return ''


def last_words(target):
    """All that it has said, when it has ended by itself."""
    target.end()
    return target.said + target.process.stdout.read()


def marked(sidewire, folder):
    if not has_marks(folder):
        print(f'not tried: {folder} has no user attributes')
        return True
    tier = Tier(sidewire, folder)
    data = os.urandom(PIECE)
    target = tier.serve()
    good = say(is_marked(tier.file), 'the file is marked before anything is written')
    tier.write(data)
    target.end(signal.SIGKILL)
    for spec in (f'file:{tier.file}', f'nvram:{tier.file}', f'file:{tier.file},ro'):
        said = refusal_of(sidewire, spec)
        wanted = 'lacks writes' in said and f'log={tier.logs[0]}' in said and 'new-log' in said
        good = say(wanted, f'{spec}: is refused, and what helps', said) and good
    mine, other = tier.logs, [os.path.join(folder, 'other')]
    make(other[0], LOG)
    tier.logs = other
    said = tier.refusal()
    good = say('this one is new' in said and mine[0] in said, 'a new log is refused', said) and good
    tier.logs = mine
    good = say(tier.serve().end() == 0, 'the right log is taken') and good
    good = say(tier.in_file(PIECE) == data and not is_marked(tier.file), 'whole: no mark') and good
    said = refusal_of(sidewire, f'file:{tier.file}')
    return say(not said, 'and it is served alone', said) and good


def given_up(sidewire, folder):
    """Another log that has something, and new-log, which says what it gives up."""
    tier = Tier(sidewire, folder)
    target = tier.serve()
    tier.write(os.urandom(PIECE))
    target.end(signal.SIGKILL)
    if has_marks(folder):
        mine, second = tier.logs, Tier(sidewire, os.path.join(folder, 'second'))
        second.serve().end()
        tier.logs = second.logs
        said = tier.refusal()
        good = say('not that one' in said, 'the log of another file is refused', said)
        tier.logs = mine
    else:
        good = True
    target = tier.serve(',new-log')
    said = last_words(target)
    good = say('gives up' in said and '1 writes of 65536' in said, 'new-log says it', said) and good
    return say(tier.in_file(PIECE) == bytes(PIECE), 'the file is as it was') and good


def write_pieces(tier, count):
    """In the log alone: less than a quarter of it, and not for five seconds."""
    data = os.urandom(count * PIECE)
    target = tier.serve()
    tier.write(data)
    target.end(signal.SIGKILL)
    return data


def flip_payload(log, data, piece):
    with open(log, 'r+b') as file:
        at = file.read().index(data[piece * PIECE :][:512]) + 1000
        file.seek(at)
        file.write(bytes([data[piece * PIECE + 1000] ^ 1]))


def damaged(sidewire, folder):
    """A byte of a payload: reads that need it fail, all others do not; drop-damaged goes on."""
    tier = Tier(sidewire, folder)
    count, bad = 24, 4
    data = write_pieces(tier, count)
    flip_payload(tier.logs[0], data, bad)
    target = tier.serve()
    said = tier.read(4096, bad * PIECE)
    good = say(isinstance(said, str), 'a read of a damaged record fails', said)
    rest = tier.read((count - bad - 1) * PIECE, (bad + 1) * PIECE)
    good = say(rest == data[(bad + 1) * PIECE :], 'what is behind it is read') and good
    said = last_words(target)
    wanted = f'{PIECE} bytes of FILE from {bad * PIECE} on'
    good = say(wanted in said and 'drop-damaged' in said, 'it is named', said) and good
    target = tier.serve(',drop-damaged')
    said = last_words(target)
    good = say(target.process.returncode == 0, 'drop-damaged: it ends by itself') and good
    data = data[: bad * PIECE] + bytes(PIECE) + data[(bad + 1) * PIECE :]
    good = say(tier.in_file(count * PIECE) == data, 'all others are in the file') and good
    return say('is left out' in said, 'what was left out is named', said) and good


def mended(sidewire, folder):
    """The same record is damaged on one of three copies: another has it."""
    tier = Tier(sidewire, folder, 3)
    data = write_pieces(tier, 20)
    flip_payload(tier.logs[0], data, 0)
    target = tier.serve()
    good = say(tier.read(PIECE) == data[:PIECE], 'a read takes it from another copy')
    good = say(target.end() == 0, 'and so does the file') and good
    return say(tier.in_file(20 * PIECE) == data, 'which has all') and good


def missing(sidewire, folder):
    tier = Tier(sidewire, folder, 3)
    data = write_pieces(tier, 1)
    os.unlink(tier.logs[1])
    target = tier.serve()
    good = say(tier.read(PIECE) == data, 'it begins without a file that is not there')
    told = tier.status()['copies'][1]
    good = say(told == {'log': tier.logs[1], 'copy_state': 'lost'}, 'status', told) and good
    target.end(signal.SIGKILL)
    os.unlink(tier.logs[2])
    said = tier.refusal()
    good = say('1 of 3' in said and tier.logs[1] in said, 'two are too many', said) and good
    with open(tier.logs[0], 'r+b') as file:
        file.truncate(LOG // 2)
    said = tier.refusal()
    wanted = 'cut off' in said and 'new-log' not in said
    return say(wanted, 'a log that was cut off: it may come back', said) and good


def taken(sidewire, folder):
    """Another target makes its own log where the first one has its log: that stops, for good."""
    tier = Tier(sidewire, folder)
    server = Server(sidewire, folder, 0)
    tier.logs = [server.name]
    second = Tier(sidewire, os.path.join(folder, 'second'))
    words = f'nvme target --listen 127.0.0.1:{PORT + 1} --control {folder}/other.sock'.split()
    words += ['--namespace', f'tier:{second.file},log={server.name},new-log']
    other = None
    try:
        target = tier.serve()
        good = say(tier.write(os.urandom(PIECE))[0] == 0, 'it writes')
        other = subprocess.Popen([sidewire, *words])
        readable = select.select([target.process.stdout], [], [], 20)[0]
        said = target.process.stdout.readline() if readable else ''
        good = say('it is another log now' in said, 'the first one stops', said) and good
        good = say(tier.write(bytes(PIECE))[0] != 0, 'and writes no more') and good
        target.end()
        other.send_signal(signal.SIGTERM)
        good = say(other.wait(20) == 0, 'the other one has it') and good
    finally:
        if other and other.poll() is None:
            other.kill()
            other.wait()
        server.end()
    return good


def main():
    sidewire = os.path.abspath(sys.argv[1])
    good = True
    for case in (marked, given_up, damaged, mended, missing, taken):
        with tempfile.TemporaryDirectory() as folder:
            os.environ['XDG_RUNTIME_DIR'] = folder
            os.mkdir(os.path.join(folder, 'second'))
            good = case(sidewire, folder) and good
    with tempfile.TemporaryDirectory() as folder:
        tier = Tier(sidewire, folder)
        said = tier.refusal(',ram=900T')
    good = say('ram= of' in said, 'memory that is not there', said) and good
    return 0 if good else 1


if __name__ == '__main__':
    sys.exit(main())
