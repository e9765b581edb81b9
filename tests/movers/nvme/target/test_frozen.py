#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""A file system that hangs (fsfreeze) under one namespace, with many writes of a host to it. Hosts
read, write and flush what lies on another disk meanwhile.

usage: test_frozen.py SIDEWIRE
"""
import json
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


def write(sidewire, depth):
    words = f'nvme bench -a 127.0.0.1 -s {PORT} -n {NQN} --namespace 1 --destroy-data --rw write'
    return subprocess.Popen(
        [sidewire, *words.split(), '--bs', '4k', '--iodepth', str(depth), '--runtime', '1'],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def awaits(is_so):
    end = time.monotonic() + 20
    while time.monotonic() < end:
        if is_so():
            return True
        time.sleep(0.1)
    return False


def has_hosts(sidewire, control):
    said = run(sidewire, 'nvme', 'target', 'status', '--control', control, '--output', 'json')
    return said.returncode or any(s['controllers'] for s in json.loads(said.stdout)['subsystems'])


def sleeps(target):
    """Its thread waits in the kernel, whenever it is looked at."""
    for _ in range(10):
        with open(f'/proc/{target.process.pid}/stat', encoding='ascii') as file:
            if file.read().rsplit(')', 1)[1].split()[0] != 'S':
                return False
        time.sleep(0.01)
    return True


def check_killed(sidewire, target, control):
    """A host that is gone has writes in the frozen file system: nobody polls for them."""
    writer = write(sidewire, 4)
    good = say(awaits(lambda: hung_workers(target) >= 4), 'writes of a host hang')
    writer.kill()
    writer.communicate()
    good = say(awaits(lambda: not has_hosts(sidewire, control)), 'the host is gone') and good
    return say(awaits(lambda: sleeps(target)), 'the target sleeps meanwhile') and good


def is_refused(sidewire, control, path):
    """To allocate its holes would stop all hosts, too."""
    spec = f'nvram:{path}'
    words = ['nvme', 'target', 'add', '--control', control, '--namespace', spec]
    try:
        tried = subprocess.run(
            [sidewire, *words], capture_output=True, text=True, timeout=30, check=False
        )
    except subprocess.TimeoutExpired:
        return say(False, 'adding a file there comes to an end')
    good = tried.returncode and 'has not answered' in tried.stderr
    return say(good, 'a file that would have to be allocated there is refused', tried.stderr)


def is_served(sidewire, line):
    try:
        return host(sidewire, line, seconds=30)
    except subprocess.TimeoutExpired:
        return 1, 'it waits for the file system that hangs'


def check(sidewire, folder):
    frozen, other = os.path.join(folder, 'frozen', 'file'), os.path.join(folder, 'other')
    make_file(frozen)
    make_file(other)
    holes = os.path.join(folder, 'frozen', 'holes')
    with open(holes, 'wb') as file:
        file.truncate(MIB)
    block = os.path.join(folder, 'block')
    with open(block, 'wb') as file:
        file.write(bytes(4096))
    control = os.path.join(folder, 'control')
    target = Target(sidewire, f'file:{frozen}', f'file:{other}', options=('--control', control))
    run('fsfreeze', '-f', os.path.dirname(frozen))
    try:
        good = check_killed(sidewire, target, control)
        good = is_refused(sidewire, control, holes) and good
        writer = write(sidewire, 64)
        many = awaits(lambda: hung_workers(target) >= 12)
        good = say(many, 'writes to the frozen file system hang') and good
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
