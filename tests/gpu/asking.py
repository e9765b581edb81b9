# SPDX-License-Identifier: BSD-2-Clause
"""Asks one question: runs its program in a session of its own until it ends or its time is up, and
takes its answers line by line. Nothing that it started is left."""

import ctypes
import json
import os
import select
import signal
import subprocess
import time

SKIPPED = 77
PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
END_S = 3.0  # a killed process of a GPU's needs a while to be gone
TEXT_MAX = 1 << 20
ERRORS_MAX = 8000
PACKAGES = {
    'PATH': ('usr/bin', 'bin'),
    'LD_LIBRARY_PATH': ('usr/lib/x86_64-linux-gnu', 'lib/x86_64-linux-gnu'),
}
LIBC = ctypes.CDLL(None, use_errno=True)

stuck = set()  # processes that did not end: they are waited for once


def adopt_orphans():
    """Processes whose parents die become this one's, so that they are found and ended."""
    LIBC.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def die_with_parent():
    """In the child: SIGKILL of the recorder leaves no question that runs."""
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def with_packages(env, root, libraries=()):
    """The environment in which programs find what a bundle has brought along in `root`."""
    found = dict(env)
    for name, folders in PACKAGES.items():
        more = libraries if name == 'LD_LIBRARY_PATH' else ()
        own = [os.path.join(root, 'packages', folder) for folder in folders]
        found[name] = ':'.join(filter(None, [env.get(name), *more, *own]))
    return found


def parents():
    """{process: its parent} of all processes that can be seen."""
    found = {}
    for name in filter(str.isdigit, os.listdir('/proc')):
        try:
            with open(f'/proc/{name}/stat', 'rb') as file:
                found[int(name)] = int(file.read().rpartition(b')')[2].split()[1])
        except (OSError, IndexError):
            continue
    return found


def descendants():
    """All processes below this one, zombies too."""
    below, found, ahead = {}, [], [os.getpid()]
    for pid, parent in parents().items():
        below.setdefault(parent, []).append(pid)
    while ahead:
        children = below.get(ahead.pop(), [])
        found += children
        ahead += children
    return found


def reap():
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


def end_all():
    """Kills what is below this process; gives what did not end."""
    until = time.monotonic() + END_S
    left = descendants()
    stuck.intersection_update(left)
    while set(left) - stuck and time.monotonic() < until:
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        reap()
        time.sleep(0.01)
        left = descendants()
    stuck.update(left)
    return left


def parsed(line):
    try:
        answer = json.loads(line)
        return answer if isinstance(answer, dict) else {'what': 'text', 'text': line}
    except ValueError:
        return {'what': 'text', 'text': line}


def read_until(process, deadline):
    """What it printed on each stream, and whether it ended by itself before the deadline."""
    texts = {process.stdout: b'', process.stderr: b''}
    open_streams = set(texts)
    while open_streams and time.monotonic() < deadline:
        wait_s = max(0.0, min(0.2, deadline - time.monotonic()))
        for stream in select.select(list(open_streams), [], [], wait_s)[0]:
            data = os.read(stream.fileno(), 65536)
            if data:
                texts[stream] += data
            else:
                open_streams.discard(stream)
        # A process that is left behind may hold the streams of one that has ended.
        if open_streams and process.poll() is not None:
            deadline = min(deadline, time.monotonic() + 0.3)
    while process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.005)
    return texts[process.stdout], texts[process.stderr], process.poll() is not None


def verdict(status, is_ended, skip, errors):
    if not is_ended:
        return 'out of time', 'it was killed when its time was up'
    if status == SKIPPED:
        return 'skipped', skip
    if status < 0:
        return 'crashed', f'ended by signal {-status}'
    if status:
        last = errors.splitlines()[-1:]
        return 'failed', ': '.join([f'ended with status {status}', *last])[:300]
    return 'answered', None


def ask(argv, bound_s, env):
    """The record of one question: its status, the reason where it was not answered, the answers."""
    started, known = time.monotonic(), set(stuck)
    try:
        process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=env,
            start_new_session=True,
            preexec_fn=die_with_parent,
        )
    except OSError as error:
        return {'status': 'skipped', 'reason': f'{argv[0]}: {error.strerror}', 'seconds': 0.0}
    out, errors, is_ended = read_until(process, started + bound_s)
    status = process.poll()
    left = [pid for pid in end_all() if pid not in known]
    process.poll()
    process.stdout.close()
    process.stderr.close()
    answers = [parsed(line) for line in out[:TEXT_MAX].decode(errors='replace').splitlines()]
    skips = [answer['reason'] for answer in answers if answer.get('what') == 'skip']
    words = errors.decode(errors='replace').strip()
    result, reason = verdict(status, is_ended, skips[-1] if skips else words[-300:], words)
    record = {'status': result, 'seconds': round(time.monotonic() - started, 3)}
    if reason:
        record['reason'] = reason
    if words and result != 'skipped':
        record['errors'] = words[-ERRORS_MAX:]
    if left:
        record['left'] = left
    record['answers'] = [answer for answer in answers if answer.get('what') != 'skip']
    return record
