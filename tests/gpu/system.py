#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Questions that programs of the machine answer: nvidia-smi, hwloc, PyTorch, MPS. One that is not
there is told. Only commands that read are called.

usage: system.py NAME"""

import contextlib
import glob
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

PROGRAMS = os.environ.get('RECORD_PROGRAMS', '')
SKIPPED = 77
MIB = 1 << 20
COMMAND_S = 10
NOBODY = 65534


def answer(what, **fields):
    print(json.dumps({'what': what, **fields}), flush=True)


def skip(reason):
    answer('skip', reason=reason)
    sys.exit(SKIPPED)


def command(*argv, **options):
    """Its whole output as an answer."""
    try:
        done = subprocess.run(
            argv, capture_output=True, text=True, errors='replace', timeout=COMMAND_S, **options
        )
    except subprocess.TimeoutExpired:
        answer('command', argv=argv, status=None)
        return None
    except OSError as error:
        answer('command', argv=argv, status=None, errors=error.strerror)
        return None
    answer(
        'command',
        argv=argv,
        status=done.returncode,
        text=done.stdout[-20000:],
        errors=done.stderr[-1000:],
    )
    return done


def ask_smi():
    if not shutil.which('nvidia-smi'):
        skip('there is no nvidia-smi')
    for words in ('-L', '-q', 'topo -m', 'nvlink -s', 'mig -lgip', '-q -d MEMORY'):
        command('nvidia-smi', *words.split())
    fields = 'pid,used_memory,name'
    command('nvidia-smi', f'--query-compute-apps={fields}', '--format=csv,noheader')


def read(path):
    try:
        with open(path, errors='replace') as file:
            return file.read().strip()
    except OSError as error:
        return f'({error.strerror})'


def ask_pci():
    """The device as the kernel has it, and what the driver tells by files."""
    found = [
        folder
        for folder in glob.glob('/sys/bus/pci/devices/*')
        if read(folder + '/vendor') == '0x10de'
    ]
    names = ('device', 'numa_node', 'local_cpulist', 'current_link_speed', 'current_link_width')
    for folder in found:
        files = {name: read(f'{folder}/{name}') for name in (*names, 'resource')}
        answer(
            'pci',
            address=os.path.basename(folder),
            driver=os.path.basename(os.path.realpath(folder + '/driver')),
            **files,
        )
    for path in (
        glob.glob('/dev/nvidia*') + glob.glob('/dev/dri/*') + glob.glob('/dev/nvidia-caps/*')
    ):
        answer('file', path=path, mode=oct(os.stat(path).st_mode), owner=os.stat(path).st_uid)
    for path in ('/proc/driver/nvidia/version', '/proc/driver/nvidia/params', '/proc/cpuinfo'):
        answer('text_of', path=path, text=read(path)[:3000])
    for path in glob.glob('/sys/module/nvidia*'):
        answer('module', name=os.path.basename(path), version=read(path + '/version'))
    for path in glob.glob('/sys/devices/system/node/node*/cpulist'):
        answer('node', path=path, text=read(path))
    for path in ('/proc/sys/vm/unprivileged_userfaultfd', '/proc/sys/kernel/yama/ptrace_scope'):
        answer('text_of', path=path, text=read(path))


def ask_hwloc():
    name = shutil.which('lstopo-no-graphics') or shutil.which('lstopo')
    if not name:
        skip('there is no lstopo (the package hwloc-nox)')
    command(name, '--of', 'console', '--whole-io')
    command(name, '--of', 'xml', '--whole-io')


def torch_child(setting):
    """What torch takes from the device for pieces of several sizes."""
    os.environ['PYTORCH_CUDA_ALLOC_CONF'] = setting
    os.environ['PYTORCH_ALLOC_CONF'] = setting
    import torch

    if not torch.cuda.is_available():
        skip('torch sees no device')
    torch.cuda.init()
    answer('torch', version=torch.__version__, cuda=torch.version.cuda, setting=setting)
    for size in (1, 512, 4096, MIB - 1, MIB, 2 * MIB + 1, 10 * MIB, 21 * MIB, 64 * MIB + 1):
        torch.cuda.empty_cache()
        before = torch.cuda.mem_get_info()[0]
        piece = torch.empty(size, dtype=torch.uint8, device='cuda')
        answer(
            'torch_alloc',
            bytes=size,
            allocated=torch.cuda.memory_allocated(),
            reserved=torch.cuda.memory_reserved(),
            mem_info_took=before - torch.cuda.mem_get_info()[0],
            alignment=piece.data_ptr() & -piece.data_ptr(),
        )
        del piece
    pieces = [torch.empty(30 * MIB, dtype=torch.uint8, device='cuda') for _ in range(4)]
    answer(
        'torch_segments',
        segments=[
            {key: segment.get(key) for key in ('total_size', 'segment_type', 'is_expandable')}
            for segment in torch.cuda.memory_snapshot()
        ],
    )
    distances = [b.data_ptr() - a.data_ptr() for a, b in zip(pieces, pieces[1:])]
    answer('torch_distances', distances=distances)
    try:
        handle = pieces[0].untyped_storage()._share_cuda_()
        answer('torch_share', handle=repr(handle[1])[:300], bytes=len(handle[1]))
    except Exception as error:  # noqa: BLE001 - what it refuses is the answer
        answer('torch_share', error=str(error)[:500])


def ask_torch():
    try:
        import torch  # noqa: F401
    except ImportError:
        skip('there is no torch for this Python')
    for setting in ('expandable_segments:False', 'expandable_segments:True'):
        child = subprocess.run([sys.executable, __file__, 'torch-child', setting], check=False)
        answer('torch_child', setting=setting, status=child.returncode)


def as_nobody():
    """Words that make what follows an ordinary user's, where this is root."""
    if os.geteuid() or not shutil.which('setpriv'):
        return []
    return ['setpriv', f'--reuid={NOBODY}', f'--regid={NOBODY}', '--clear-groups']


@contextlib.contextmanager
def mps_server(folder):
    """A control daemon in the foreground, so that it ends with this question."""
    env = dict(os.environ, CUDA_MPS_PIPE_DIRECTORY=folder, CUDA_MPS_LOG_DIRECTORY=folder)
    daemon = subprocess.Popen(
        [*as_nobody(), 'nvidia-cuda-mps-control', '-f'],
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        time.sleep(1)
        answer('mps_daemon', status=daemon.poll())
        yield env
    finally:
        try:
            subprocess.run(
                [*as_nobody(), 'nvidia-cuda-mps-control'],
                input='quit -t 2\n',
                text=True,
                env=env,
                capture_output=True,
                timeout=6,
            )
        except subprocess.TimeoutExpired:
            answer('mps_quit', status=None)
        with contextlib.suppress(ProcessLookupError):
            daemon.send_signal(signal.SIGKILL)
        daemon.wait()
        for name in ('control.log', 'server.log'):
            answer('text_of', path=name, text=read(os.path.join(folder, name))[-3000:])


def ask_mps():
    if 'RECORD_BRIEF' in os.environ:
        skip('the stub has no MPS, and that of the machine is not for a dry run')
    if not shutil.which('nvidia-cuda-mps-control'):
        skip('there is no nvidia-cuda-mps-control')
    with tempfile.TemporaryDirectory(prefix='record-mps-') as folder:
        if not os.geteuid():
            os.chown(folder, NOBODY, NOBODY)
        with mps_server(folder) as env:
            limited = dict(
                env,
                CUDA_MPS_ACTIVE_THREAD_PERCENTAGE='30',
                CUDA_MPS_PINNED_DEVICE_MEM_LIMIT='0=1G',
            )
            for name, each in (('mps', env), ('mps with limits', limited)):
                answer('mps_client', name=name)
                for program in ('context', 'slices'):
                    command(*as_nobody(), os.path.join(PROGRAMS, program), env=each)


def sidewire():
    path = os.path.join(PROGRAMS, '../../src/cli/sidewire')
    return path if os.access(path, os.X_OK) else skip(f'there is no {path}')


def ask_regions():
    """Runs as the question itself, so that its answers are taken as they come."""
    os.environ['SIDEWIRE_LOG'] = 'info'
    program = os.path.join(PROGRAMS, 'regions')
    os.execv(sidewire(), ['sidewire', 'run', '--', program])


def ask_doctor():
    command(sidewire(), 'doctor')


CHILDREN = {'torch-child': torch_child}
NAMES = {
    'smi': ask_smi,
    'pci': ask_pci,
    'hwloc': ask_hwloc,
    'torch': ask_torch,
    'mps': ask_mps,
    'regions': ask_regions,
    'doctor': ask_doctor,
}


def main():
    name, *words = sys.argv[1:]
    return CHILDREN[name](*words) if name in CHILDREN else NAMES[name]()


if __name__ == '__main__':
    sys.exit(main())
