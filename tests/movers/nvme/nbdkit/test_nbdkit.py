#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""The nbdkit plugin, by NBD clients: what of trim, zero and flush reaches the target's file, and a
target that dies and comes again.

usage: test_nbdkit.py SIDEWIRE PLUGIN CASE
"""
import errno
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), '..'))
from programs import MIB, NQN, PORT, Target, say  # noqa: E402

try:
    import nbd
except ImportError:
    nbd = None

SIDEWIRE, PLUGIN = sys.argv[1:3]
SIZE = 64 * MIB
# Bits per second: a copy of 32 MiB takes two seconds and more
SLOW = ('--filter=rate', 'rate=100M')
COPY = 32 * MIB


class Served:
    """A file, a target that serves it, nbdkit with the plugin, and a client."""

    def __init__(self, folder, spec='', nbdkit=(), parameters=(), options=()):
        self.path, socket, ready = (
            os.path.join(folder, name) for name in ('disk', 'socket', 'pid')
        )
        self.spec = f'file:{self.path}{spec}'
        with open(self.path, 'wb') as file:
            for _ in range(SIZE // MIB):
                file.write(b'\xa5' * MIB)
        self.target = Target(SIDEWIRE, self.spec, options=options)
        filters, rates = [word for word in nbdkit if word.startswith('-')], [
            word for word in nbdkit if not word.startswith('-')
        ]
        self.nbdkit = subprocess.Popen(
            [
                SIDEWIRE,
                *'run -- nbdkit -f'.split(),
                '-U',
                socket,
                '-P',
                ready,
                *filters,
                PLUGIN,
                'traddr=127.0.0.1',
                f'trsvcid={PORT}',
                f'nqn={NQN}',
                'reconnect-delay=1',
                *parameters,
                *rates,
            ],
            stderr=subprocess.PIPE,
            text=True,
        )
        self.uri = f'nbd+unix:///?socket={socket}'
        self.ready, self.client = ready, nbd.NBD()

    def __enter__(self):
        try:
            while not os.path.exists(self.ready):  # it is written once the socket listens
                if self.nbdkit.poll() is not None:
                    raise RuntimeError('nbdkit does not begin: ' + self.nbdkit.stderr.read())
                time.sleep(0.01)
            self.client.connect_uri(self.uri)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for process in self.nbdkit, self.target.process:
            if process.poll() is None:
                process.kill()
            process.wait()

    def kill_target(self):
        self.target.end(signal.SIGKILL)

    def restart(self):
        self.target = Target(SIDEWIRE, self.spec)

    def content(self, offset, count):
        with open(self.path, 'rb') as file:
            return os.pread(file.fileno(), count, offset)

    def allocated(self):
        return os.stat(self.path).st_blocks * 512


def others_are_kept(served, offset, count):
    return (
        served.content(offset - 4096, 4096)
        == served.content(offset + count, 4096)
        == b'\xa5' * 4096
        and served.client.pread(4096, offset + count) == b'\xa5' * 4096
    )


def trim(folder):
    with Served(folder) as served:
        offset, count, before = 4 * MIB, MIB, served.allocated()
        served.client.trim(count, offset)
        good = say(served.client.pread(count, offset) == bytes(count), 'trim: reads as zeroes')
        good = (
            say(
                before - served.allocated() >= count,
                'the file has a hole there',
                before,
                served.allocated(),
            )
            and good
        )
        return say(others_are_kept(served, offset, count), 'what lies around it is kept') and good


def keeps_blocks(folder):
    """Whether the file system can zero a range without a hole; the target makes one where it
    cannot."""
    path = os.path.join(folder, 'probe')
    with open(path, 'wb') as file:
        file.write(bytes(4096))
    return (
        subprocess.run(
            ['fallocate', '-z', '-l', '4096', path], capture_output=True, check=False
        ).returncode
        == 0
    )


def zero(folder):
    """With blocks of 512 bytes 40 MiB are more than one command can say."""
    with Served(folder, ',bs=512') as served:
        offset, count, before = 4 * MIB, 40 * MIB, served.allocated()
        served.client.zero(count, offset, nbd.CMD_FLAG_NO_HOLE)
        good = say(served.content(offset, count) == bytes(count), 'zero: the file has zeroes')
        kept = served.allocated() >= before
        good = (
            say(
                kept or not keeps_blocks(folder),
                'and its blocks, as no hole was asked for',
                before,
                served.allocated(),
            )
            and good
        )
        served.client.zero(count, offset)
        good = (
            say(
                before - served.allocated() >= count,
                'zero: a hole where that is allowed',
                served.allocated(),
            )
            and good
        )
        good = (
            say(served.client.pread(count // 2, offset) == bytes(count // 2), 'and reads as zeroes')
            and good
        )
        good = say(others_are_kept(served, offset, count), 'what lies around it is kept') and good
        try:
            served.client.zero(4096, offset, nbd.CMD_FLAG_FAST_ZERO)
            return say(False, 'zeroes that must be fast are refused')
        except nbd.Error as error:
            return (
                say(
                    error.errnum in (errno.EOPNOTSUPP, errno.EINVAL),
                    'zeroes that must be fast are refused',
                    error,
                )
                and good
            )


def flush(folder):
    """It ends no sooner than the target has done it: one that is stopped has not."""
    with Served(folder) as served:
        client, target = served.client, served.target.process
        client.pwrite(b'x' * 65536, MIB)
        target.send_signal(signal.SIGSTOP)
        waiting = [
            client.aio_flush(),
            client.aio_pwrite(b'y' * 4096, 2 * MIB, flags=nbd.CMD_FLAG_FUA),
        ]
        end = time.monotonic() + 0.5
        while time.monotonic() < end:
            client.poll(100)
        early = [client.aio_command_completed(cookie) for cookie in waiting]
        target.send_signal(signal.SIGCONT)
        good = say(not any(early), 'a flush and a durable write wait for the target', early)
        for cookie in waiting:
            while not client.aio_command_completed(cookie):
                client.poll(-1)
        return (
            say(
                served.content(2 * MIB, 4096) == b'y' * 4096
                and served.content(MIB, 65536) == b'x' * 65536,
                'and end when it has done them',
            )
            and good
        )


def requests_under_way(folder):
    """The target is stopped, gets requests, and is killed: the next one answers them all."""
    with Served(folder) as served:
        client = served.client
        client.pwrite(b'x' * 65536, 0)
        served.target.process.send_signal(signal.SIGSTOP)
        writes = [client.aio_pwrite(bytes([i + 1]) * 65536, i * 65536) for i in range(12)]
        reads = [(nbd.Buffer(65536), 32 * MIB + i * 65536) for i in range(3)]
        cookies = writes + [client.aio_pread(buffer, offset) for buffer, offset in reads]
        client.poll(100)
        served.kill_target()
        served.restart()
        for cookie in cookies:
            while not client.aio_command_completed(cookie):
                client.poll(-1)
        good = say(
            all(bytes(buffer.to_bytearray()) == b'\xa5' * 65536 for buffer, _ in reads),
            'reads under way are answered',
        )
        same = served.content(0, 12 * 65536) == b''.join(bytes([i + 1]) * 65536 for i in range(12))
        return say(same, 'writes under way are done') and good


def await_begin(copy, has_begun):
    while copy.poll() is None and not has_begun():
        time.sleep(0.01)


def copies(folder):
    data = os.urandom(COPY)
    source, got = os.path.join(folder, 'source'), os.path.join(folder, 'got')
    with open(source, 'wb') as file:
        file.write(data)
    with Served(folder, nbdkit=SLOW) as served:
        copy = subprocess.Popen(['nbdcopy', source, served.uri])
        await_begin(copy, lambda: served.content(0, 4096) == data[:4096])
        served.kill_target()
        ended = copy.poll()
        served.restart()
        good = say(ended is None, 'the target is killed while nbdcopy writes')
        good = (
            say(
                copy.wait(120) == 0 and served.content(0, COPY) == data,
                'nbdcopy writes all to the next target',
            )
            and good
        )
        copy = subprocess.Popen(['nbdcopy', served.uri, got])
        await_begin(copy, lambda: os.path.exists(got) and os.stat(got).st_blocks)
        served.kill_target()
        ended = copy.poll()
        served.restart()
        good = say(ended is None, 'the target is killed while nbdcopy reads') and good
        with open(got, 'rb') as file:
            return (
                say(copy.wait(120) == 0 and file.read(COPY) == data, 'nbdcopy reads all of it')
                and good
            )


def gone(folder):
    """For good: requests fail once the time is over, and nbdkit lives on."""
    with Served(folder, parameters=['ctrl-loss-tmo=2']) as served:
        served.kill_target()
        try:
            served.client.pread(4096, 0)
            good = say(False, 'a read of a target that is gone fails')
        except nbd.Error as error:
            good = say(
                error.errnum in (errno.EIO, errno.ESHUTDOWN),
                'a read of a target that is gone fails',
                error,
            )
        return say(served.nbdkit.poll() is None, 'nbdkit lives on') and good


def paths(folder):
    """Two addresses of one target: both have requests."""
    other = f'127.0.0.1:{PORT + 1}'
    with Served(
        folder,
        options=['--listen', other],
        parameters=[f'traddr={other}', 'iopolicy=round-robin', 'quiesce-tmo=5'],
    ) as served:
        data = os.urandom(MIB)
        for offset in range(0, 8 * MIB, MIB):
            served.client.pwrite(data, offset)
        same = served.client.pread(MIB, 7 * MIB) == data and served.content(0, MIB) == data
        good = say(same, 'what is written by two paths is read')
        tried = subprocess.run(
            [SIDEWIRE, *f'nvme target status -o json --pid {served.target.process.pid}'.split()],
            capture_output=True,
            text=True,
            timeout=30,
            check=True,
        )
        controllers = json.loads(tried.stdout)['subsystems'][0]['controllers']
        queues = [one['io_queues'] for one in controllers]
        return say(queues == [1, 1], 'a controller and a queue for each path', controllers) and good


def wrong(_folder):
    """A line says what is wrong, that or the next one what mends it, and no more."""
    good, there = True, ['traddr=127.0.0.1', f'nqn={NQN}']
    for words, wanted in (
        ([], 'traddr=ADDR and nqn=NQN are needed; .sidewire nvme discover'),
        (there[:1], 'traddr=ADDR and nqn=NQN are needed; .sidewire nvme discover'),
        ([*there, 'zork=1'], "no parameter 'zork'; 'nbdkit --help sidewire-nvme' lists them"),
        ([*there, 'connections=0'], 'connections= is 1 to 64, not 0'),
        ([*there, 'iopolicy=zork'], "iopolicy= is round-robin, queue-depth or numa, not 'zork'"),
        ([*there, 'trsvcid=65536'], 'port 65536: a port is a number up to 65535'),
        ([*there, 'trsvcid=-1'], 'port -1: a port is a number up to 65535'),
        ([*there, 'trsvcid=zork'], 'port zork: a port is a number up to 65535'),
        ([*there, 'trsvcid=0'], 'port 0: nobody listens at port 0'),
        (
            [*there, f'trsvcid={PORT}'],
            'no target listens there\nnbdkit: error: .*is the port right',
        ),
        (['traddr=no.such.invalid', there[1]], 'no.such.invalid'),
    ):
        done = subprocess.run(
            [SIDEWIRE, *'run -- nbdkit -f -U -'.split(), PLUGIN, *words],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        lines = re.fullmatch(rf'nbdkit: error: [^\n]*{wanted}[^\n]*\n', done.stderr)
        good = say(done.returncode == 1 and lines, f'{words[-1:]} is explained', done) and good
    return good


CASES = {
    case.__name__: case
    for case in (trim, zero, flush, requests_under_way, copies, gone, paths, wrong)
}

if __name__ == '__main__':
    has_clients = nbd and shutil.which('nbdcopy')
    if not shutil.which('nbdkit') or not (has_clients or sys.argv[3] == 'wrong'):
        print('SKIP: nbdkit, libnbd-bin and python3-libnbd are wanted')
        sys.exit(77)
    with tempfile.TemporaryDirectory(prefix='sidewire-nbdkit-') as place:
        sys.exit(0 if CASES[sys.argv[3]](place) else 1)
