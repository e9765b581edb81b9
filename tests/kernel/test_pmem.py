#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""Our library in a guest, on memory that keeps its contents: what a FLUSH has acknowledged is in
the file behind it when QEMU is killed."""
import os
import re
import struct
import subprocess
import sys
import tempfile
import time

import kernel_guest as guest

MIB = 1 << 20
RECORD_BYTES = 4096
ENOUGH = 8  # records, before the end
SECONDS = 120
KINDS = ('fsdax', 'devdax', 'ivshmem', 'pmr')
SIZE_MIB = {
    'fsdax': 64,
    'devdax': 96,  # which of the two is region0 is not sure: their sizes tell
    'ivshmem': 4,
    'pmr': 4,
}
LINKS = {'direct': 'SIDEWIRE_LINK=direct SIDEWIRE_DIRECT=mapped', 'packets': 'SIDEWIRE_LINK=roce'}
ENVIRONMENT = 'LD_PRELOAD=/lib/libsidewire.so VU_DEVICE=sw_lo VU_GID=1 SIDEWIRE_LOG=info'

SETUP = r'''
rdma link del rxe0 && modprobe -r rdma_rxe  # it has the port of RoCE
modprobe -a nfit nd_pmem dax_pmem device_dax ext4 2>&1
for i in $(seq 300); do [ -e /sys/block/pmem1 ] && break; sleep 0.1; done
mdev -s
cd /sys/bus/nd/devices
# claim NAMESPACE SEED DRIVER: gives it struct pages, which DAX wants
claim()
{
    echo $1 >/sys/bus/nd/drivers/nd_pmem/unbind
    echo ram >$2/mode && echo 2097152 >$2/align &&
        cat /proc/sys/kernel/random/uuid >$2/uuid && echo $1 >$2/namespace &&
        echo $2 >/sys/bus/nd/drivers/$3/bind
}
for n in 0 1; do
    case $(cat region$n/size) in
        67108864) claim namespace$n.0 $(cat region$n/pfn_seed) nd_pmem; disk=/dev/pmem$n ;;
        *) claim namespace$n.0 $(cat region$n/dax_seed) dax_pmem ;;
    esac
done
mdev -s
mkfs.ext4 -q -F -b 4096 -O ^has_journal $disk && mkdir -p /mnt &&
    mount -t ext4 -o dax=always $disk /mnt || exit
dd if=/dev/zero of=/mnt/file bs=1M count=4 2>/dev/null; sync
for device in /sys/bus/pci/devices/*; do
    case $(cat $device/vendor $device/device | tr '\n' ' ') in
        '0x1af4 0x1110 ') echo 1 >$device/enable; echo "ivshmem $device/resource2" ;;
        '0x1b36 0x0010 ')
            echo 1 >$device/enable
            pmem enable $device/resource0
            echo "pmr $device/resource4" ;;
    esac
done
mdev -s
echo "fsdax /mnt/file"
echo "devdax $(ls /dev/dax* | head -n 1)"
'''


def say(good, text, *more):
    print(
        f'{"ok  " if good else "FAIL"} {text}',
        *(more if not good else ()),
        sep='\n     ',
        flush=True,
    )
    return bool(good)


def qemu_words(files):
    """Four memories, each a file here."""
    words = ['-machine nvdimm=on', f'-m {os.environ["KP_MEM"]}M,slots=4,maxmem=2G']
    for kind, path in files.items():
        words.append(
            f'-object memory-backend-file,id={kind},share=on,mem-path={path},size={SIZE_MIB[kind]}M'
        )
    words += [
        '-device nvdimm,id=dimm0,memdev=fsdax',
        '-device nvdimm,id=dimm1,memdev=devdax',
        '-device ivshmem-plain,memdev=ivshmem',
        '-device nvme,serial=pmr,pmrdev=pmr',
    ]
    return ' '.join(words)


def record(seed, number):
    return struct.pack('<II', seed, number) * (RECORD_BYTES // 8)


def push(library, program):
    good = guest.push(program, 'pmem')
    linked = subprocess.run(['ldd', library], capture_output=True, text=True).stdout
    for name, path in [('libsidewire.so', library), *re.findall(r'(libisal\S+) => (/\S+)', linked)]:
        good &= guest.push(path, name) and guest.inside(f'mv /bin/{name} /lib/{name}')[1] == 0
    return say(good, 'the library and the program are in the guest')


def prepare():
    """Where each memory is in the guest."""
    text, _ = guest.inside(SETUP)
    paths = dict(re.findall(r'^(fsdax|devdax|ivshmem|pmr) (/\S+)$', text, re.M))
    say(len(paths) == len(KINDS), f'memory in the guest: {paths}', text)
    return paths


def bar_of(path):
    device, number = re.match(r'.*/([^/]+)/resource(\d)', path).groups()
    return f'{device}/{number}'


def refusals(paths):
    """A card's memory is persistent only if its owner says so, and takes no atomics."""
    good = True
    for kind in ('ivshmem', 'pmr'):
        text, _ = guest.inside(f'{ENVIRONMENT} SIDEWIRE_LOG=warn pmem refuse {paths[kind]}')
        good &= say(
            'persistent: Invalid argument' in text
            and f'SIDEWIRE_PERSISTENT_BARS={bar_of(paths[kind])}' in text
            and 'atomics: Operation not supported' in text,
            f'{kind}: refused where nobody says that it keeps its contents',
            text,
        )
    return good


def start(paths, link, seeds):
    """A writer on each memory."""
    bars = ','.join(bar_of(paths[kind]) for kind in ('ivshmem', 'pmr'))
    for kind in KINDS:
        seed = seeds[link, kind]
        guest.inside(
            f'spawn {link}.{kind} 300 {ENVIRONMENT} {LINKS[link]} SIDEWIRE_PERSISTENT_BARS={bars} '
            f'pmem write {seed} {paths[kind]}'
        )


def acknowledged(link):
    """The numbers of what each writer has told, as it stands now."""
    told = {}
    for kind in KINDS:
        text, _ = guest.inside(f'cat /tmp/{link}.{kind}.log')
        told[kind] = ([int(number) for number in re.findall(r'^acked (\d+)$', text, re.M)], text)
    return told


def wait_for(link):
    limit = time.monotonic() + SECONDS
    while True:
        told = acknowledged(link)
        if all(len(numbers) >= ENOUGH for numbers, _ in told.values()) or time.monotonic() > limit:
            return told
        time.sleep(0.2)


def run(library, program, files):
    paths = prepare() if push(library, program) else {}
    if len(paths) != len(KINDS) or not refusals(paths):
        return False
    seeds = {
        (link, kind): 0x9E3779B1 * (1 + at * len(KINDS) + other) % 2**32
        for at, link in enumerate(LINKS)
        for other, kind in enumerate(KINDS)
    }
    good = True
    for link in LINKS:
        start(paths, link, seeds)
        told = wait_for(link)
        last = link == list(LINKS)[-1]
        if last:  # nothing is told to anybody any more
            kill()
        good &= judge(files, link, seeds, told)
        if not last:
            guest.inside('for file in /tmp/direct.*.pid; do kill -9 -- -$(cat $file); done')
    return good


def kill():
    folder = os.environ.get('KP_DIR') or os.path.join(
        os.environ.get('XDG_CACHE_HOME') or os.path.expanduser('~/.cache'), 'sidewire-kernel'
    )
    with open(os.path.join(folder, 'run', os.environ['KP_NS'], 'b.pid'), encoding='ascii') as file:
        os.kill(int(file.read()), 9)


def judge(files, link, seeds, told):
    good = True
    for kind in KINDS:
        numbers, text = told[kind]
        with open(files[kind], 'rb') as file:
            content = file.read()
        missing = [number for number in numbers if record(seeds[link, kind], number) not in content]
        if link == 'direct':
            good &= say(
                text.count('2097152 mappable by peers') == 1,
                f'{kind}: its peer can map it',
                text[:1500],
            )
        good &= say(
            len(numbers) >= ENOUGH and not missing,
            f'{kind}, {link}: {len(numbers)} records acknowledged, all are in the file',
            f'missing: {missing}',
            text[:1500],
        )
    return good


if __name__ == '__main__':
    os.environ['KP_IMAGE'] = 'pmem'
    os.environ.setdefault('KP_MEM', '320')
    with tempfile.TemporaryDirectory() as folder:
        backing = {kind: os.path.join(folder, kind) for kind in KINDS}
        for each, name in backing.items():
            with open(name, 'wb') as out:
                out.truncate(SIZE_MIB[each] * MIB)
        os.environ['KP_QEMU'] = qemu_words(backing)
        sys.exit(guest.with_guest(run, *sys.argv[1:3], backing))
