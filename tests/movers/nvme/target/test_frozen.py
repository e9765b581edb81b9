#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""A file system that hangs (fsfreeze) under one namespace, with many writes of a host to it. Hosts
read, write and flush what lies on another disk meanwhile.

usage: test_frozen.py SIDEWIRE
"""
import os
import shutil
import subprocess
import sys
import tempfile
import time

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), '..'))
from programs import MIB, NQN, PORT, Target, host, say  # noqa: E402

SKIPPED = 77


def run(*words):
    return subprocess.run(words, capture_output=True, text=True, check=False)


def make_file(path):
    with open(path, 'wb') as file:
        file.write(b'x' * 16 * MIB)
        os.fsync(file.fileno())


def mount(folder):
    """A file system of its own at folder/frozen; what went wrong, else."""
    if os.geteuid():
        return 'root may mount and freeze file systems'
    if not shutil.which('mkfs.ext4') or not shutil.which('fsfreeze'):
        return 'there is no mkfs.ext4 or fsfreeze'
    image, at = os.path.join(folder, 'image'), os.path.join(folder, 'frozen')
    os.mkdir(at)
    with open(image, 'wb') as file:
        file.truncate(64 * MIB)
    tried = run('mkfs.ext4', '-q', '-F', image)
    if not tried.returncode:
        tried = run('mount', '-o', 'loop', image, at)
    return tried.stderr if tried.returncode else ''


def hung_workers(target):
    """Workers of io_uring that sleep in the frozen file system."""
    count = 0
    tasks = f'/proc/{target.process.pid}/task'
    for task in os.listdir(tasks):
        with open(f'{tasks}/{task}/stat', encoding='ascii') as file:
            words = file.read().replace('(', ')').split(')')
        count += words[1].startswith('iou-wrk') and words[2].split()[0] == 'D'
    return count


def is_served(sidewire, line):
    try:
        return host(sidewire, line, seconds=30)
    except subprocess.TimeoutExpired:
        return 1, 'it waits for the file system that hangs'


def check(sidewire, folder):
    frozen, other = os.path.join(folder, 'frozen', 'file'), os.path.join(folder, 'other')
    make_file(frozen)
    make_file(other)
    block = os.path.join(folder, 'block')
    with open(block, 'wb') as file:
        file.write(bytes(4096))
    target = Target(sidewire, f'file:{frozen}', f'file:{other}')
    words = f'nvme bench -a 127.0.0.1 -s {PORT} -n {NQN} --namespace 1 --destroy-data --rw write'
    run('fsfreeze', '-f', os.path.dirname(frozen))
    writer = subprocess.Popen(
        [sidewire, *words.split(), '--bs', '4k', '--iodepth', '64', '--runtime', '1'],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        end = time.monotonic() + 20
        while hung_workers(target) < 8 and time.monotonic() < end:
            time.sleep(0.1)
        good = say(hung_workers(target) >= 8, 'writes to the frozen file system hang')
        work = f'write -n {NQN} -N 2 --start-block 0 --data {block}'
        status, text = is_served(sidewire, work)
        good = say(status == 0, 'another disk is written to and flushed', text) and good
        status, text = is_served(sidewire, work + ' -f')
        good = say(status == 0, 'another disk is written to with FUA', text) and good
    finally:
        run('fsfreeze', '-u', os.path.dirname(frozen))
    said = writer.communicate(timeout=60)[0]
    good = say(writer.returncode == 0, 'the writes end with the frost', said) and good
    return say(target.end() == 0, 'SIGTERM: it ends by itself') and good


def main(sidewire):
    with tempfile.TemporaryDirectory() as folder:
        why = mount(folder)
        if why:
            print('SKIP:', why)
            return SKIPPED
        try:
            return 0 if check(sidewire, folder) else 1
        finally:
            run('umount', os.path.join(folder, 'frozen'))


if __name__ == '__main__':
    sys.exit(main(sys.argv[1]))
