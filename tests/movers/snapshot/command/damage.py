# SPDX-License-Identifier: BSD-2-Clause
"""What breaks sinks from below: bits of a volume that turn over where it lies, and disks that get
full while they are written to."""
import contextlib
import ctypes
import fcntl
import mmap
import os
import random
import struct
import subprocess
import tempfile
import threading
import time

from sinks import VOLUME_BYTES

BLOCK = 4096
MASK = (1 << 64) - 1
# <linux/loop.h>
LOOP_CONFIGURE, LOOP_GET_FREE, LOOP_SET_CAPACITY, LOOP_AUTOCLEAR = (
    0x4C0A,
    0x4C82,
    0x4C07,
    4,
)
LOOP_CONFIG_BYTES, LOOP_FLAGS_AT = 304, 8 + 52
CLONE_NEWNS, MS_REC_PRIVATE = 0x20000, 1 << 18 | 1 << 14


def filled(seed, count):
    """The first bytes of a range that program_fill() has filled (../session/program.c)."""
    state, words = (seed * 0x9E3779B97F4A7C15 + 1) & MASK, []
    for _ in range(count // 8):
        state ^= state << 13 & MASK
        state ^= state >> 7
        state ^= state << 17 & MASK
        words.append(state)
    return struct.pack(f'<{len(words)}Q', *words)


class Bytes:
    """The bytes of a sink's volume, from outside: of its file, or of its server's memory. Files are
    read and written past the system's cache, as by those whose files they are: else the kernel
    finds that the two differ, and fails flushes."""

    def __init__(self, sink):
        self.block = mmap.mmap(-1, BLOCK)
        if hasattr(sink, 'path'):
            self.fd, self.base = os.open(sink.path, os.O_RDWR | sink.open_flags), 0
            self.size = os.lseek(self.fd, 0, os.SEEK_END)
            return
        self.fd = os.open(f'/proc/{sink.server.pid}/mem', os.O_RDWR)
        # A volume that a writer has left is moved to other memory: then there are two for a while.
        for _ in range(500):
            volumes = self.volumes_of(sink.server.pid)
            if len(volumes) == 1:
                break
            time.sleep(0.01)
        ((self.base, end),) = volumes.values()
        self.size = end - self.base

    @staticmethod
    def volumes_of(pid):
        """Where each is, by the inode of its pages: a device maps them once more."""
        with open(f'/proc/{pid}/maps', encoding='ascii') as maps:
            lines = [line.split() for line in maps if '/memfd:volume' in line]
        return {line[4]: tuple(int(part, 16) for part in line[0].split('-')) for line in lines}

    def read(self, number):
        """A block, until the next one is read."""
        os.preadv(self.fd, [self.block], self.base + number * BLOCK)
        return self.block

    def find(self, pattern):
        """The number of the block that begins with these bytes."""
        for number in range(self.size // BLOCK):
            if self.read(number)[: len(pattern)] == pattern:
                return number
        return None

    def flip(self, number, draw):
        """A bit of a block; what is written meanwhile may be lost."""
        self.read(number)
        at = draw.randrange(BLOCK)
        self.block[at] ^= 1 << draw.randrange(8)
        os.pwritev(self.fd, [self.block], self.base + number * BLOCK)

    def close(self):
        os.close(self.fd)


@contextlib.contextmanager
def storm_of_flips(sink, seed, pause_s=0.0005):
    """Bits of blocks that are in use turn over, one after another, until the end of the `with`."""
    draw, is_over, volume = random.Random(seed), threading.Event(), Bytes(sink)

    def flip_bits():
        while not is_over.wait(pause_s):
            number = draw.randrange(volume.size // BLOCK)
            if any(volume.read(number)[:64]):
                volume.flip(number, draw)

    thread = threading.Thread(target=flip_bits)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()
        volume.close()


def own_mounts():
    """What this process mounts from now on is its own, and gone with it."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNS) or libc.mount(None, b'/', None, MS_REC_PRIVATE, None):
        raise OSError(ctypes.get_errno(), 'no namespace of mounts')


class FullDisk:
    """A block device of `VOLUME_BYTES` with room for `room` of them: writes beyond it fail, as on
    a volume that is provisioned thin. Both are gone with the process that made them."""

    def __init__(self, room):
        own_mounts()
        self.folder = tempfile.mkdtemp(dir='/var/tmp')
        try:
            self.mount(f'size={room}')
            self.attach()
        except OSError:
            self.close()
            raise

    def mount(self, *options):
        words = ['mount', '-t', 'tmpfs', '-o', ','.join(options), 'tmpfs', self.folder]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        if done.returncode:
            raise OSError(done.stderr)

    def attach(self):
        with open(os.path.join(self.folder, 'backing'), 'wb') as backing:
            backing.truncate(VOLUME_BYTES)
            config = bytearray(LOOP_CONFIG_BYTES)
            struct.pack_into('<II', config, 0, backing.fileno(), BLOCK)
            struct.pack_into('<I', config, LOOP_FLAGS_AT, LOOP_AUTOCLEAR)
            with open('/dev/loop-control', 'rb') as control:
                number = fcntl.ioctl(control, LOOP_GET_FREE)
            self.path = f'/dev/loop{number}'
            # Open until close(): the last one to close it detaches it.
            self.fd = os.open(self.path, os.O_RDWR)
            fcntl.ioctl(self.fd, LOOP_CONFIGURE, bytes(config))

    def get_room(self):
        self.mount('remount', f'size={2 * VOLUME_BYTES}')

    def close(self):
        if hasattr(self, 'fd'):
            os.close(self.fd)
        subprocess.run(['umount', '-l', self.folder], capture_output=True, check=False)
        os.rmdir(self.folder)
