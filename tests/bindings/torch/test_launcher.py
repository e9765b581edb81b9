#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""Ranks of torch that mpirun, mpiexec, srun or torchrun have started open a process group with
nothing else said, sum, and name a rank that was killed.

usage: test_launcher.py SIDEWIRE LAUNCHER
       test_launcher.py --rank WAY (as the launcher starts it)
       test_launcher.py --torchrun WORD... (torchrun of torch 2)
"""
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.append(f'{HERE}/../../movers/collectives/launch')
PATIENCE_S = 100
RANKS = 3
DEAD = 1
# Words by which others live on when a rank has died; and what is around each rank for that.
WORDS = {
    'mpirun': 'mpirun.openmpi --oversubscribe --enable-recovery --continuous'.split(),
    'mpiexec': 'mpiexec.hydra -disable-auto-cleanup'.split(),
    'slurm': 'srun --mpi=pmix --kill-on-bad-exit=0'.split(),
    # That of torch 2: Debian 12's does not start under its Python. It looks at ranks so seldom.
    'torchrun': [
        sys.executable,
        os.path.abspath(__file__),
        *'--torchrun --monitor-interval 10'.split(),
    ],
}
AROUND = {'mpiexec': ['sh', '-c', '"$0" "$@"; exit $?']}


def be_rank(way):
    import torch
    import torch.distributed as dist

    import sidewire_torch

    if 'TORCHELASTIC_RUN_ID' in os.environ:
        do_without_libuv('torch.distributed.rendezvous')
    launch = sidewire_torch.from_launcher()
    assert sidewire_torch.from_launcher() is launch
    if way == 'store':
        dist.init_process_group(
            'sidewire', store=launch.store(), rank=launch.rank, world_size=launch.size
        )
    else:
        launch.export()
        dist.init_process_group('sidewire')
    rank = dist.get_rank()
    assert (rank, dist.get_world_size()) == (launch.rank, launch.size)
    assert launch.local_size in (0, RANKS), launch.local_size
    tensor = torch.full([1000], 1.0 + rank)
    dist.all_reduce(tensor)
    assert tensor.tolist() == [RANKS * (RANKS + 1) / 2] * 1000
    print(f'rank {rank} by {launch.launcher} has its sum', flush=True)
    dist.barrier()
    if rank == DEAD:
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        dist.all_reduce(tensor)
        print(f'rank {rank} has summed with the dead', flush=True)
    except RuntimeError as error:
        print(f'rank {rank}: {error}', flush=True)


def do_without_libuv(name):
    """Debian's torch 2.6 is built without libuv, and torchrun, and ranks below it, open their
    stores as if it were there: gloo does not start so, either."""
    import functools
    import importlib

    module = importlib.import_module(name)
    module.TCPStore = functools.partial(module.TCPStore, use_libuv=False)


def be_torchrun(words):
    from torch.distributed import run

    do_without_libuv('torch.distributed.elastic.rendezvous.static_tcp_rendezvous')
    return run.main(words)


def run_job(sidewire, launcher, way):
    script = [sidewire, 'run', '--', sys.executable, os.path.abspath(__file__), '--rank', way]
    words = [*WORDS[launcher], '-n', str(RANKS), *AROUND.get(launcher, []), *script]
    if launcher == 'torchrun':
        words = [*WORDS[launcher], f'--nproc-per-node={RANKS}', '--no-python', *script]
        os.environ['USE_LIBUV'] = '0'
    done = subprocess.run(
        words,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    for rank in range(RANKS):
        by = 'the variables of torchrun' if launcher == 'torchrun' else 'PMI'
        assert f'rank {rank} by {by}' in done.stdout, done.stdout
    for rank in set(range(RANKS)) - {DEAD}:
        # A launcher may put the words of two ranks into one line.
        assert re.search(f'rank {rank}: .*rank {DEAD} ', done.stdout), done.stdout


def run_slurm(sidewire):
    import slurm

    reason = slurm.missing() or (not slurm.has_plugin('pmix') and 'Slurm has no PMIx here')
    if reason:
        print(f'SKIP: {reason}')
        return 77
    slurm.move_in()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        server = slurm.Slurm(folder)
        try:
            run_job(sidewire, 'slurm', 'store')
        finally:
            server.close()
    return 0


def main():
    if sys.argv[1] == '--rank':
        return be_rank(sys.argv[2])
    if sys.argv[1] == '--torchrun':
        return be_torchrun(sys.argv[2:])
    sidewire, launcher = sys.argv[1:]
    os.environ.update(OMPI_ALLOW_RUN_AS_ROOT='1', OMPI_ALLOW_RUN_AS_ROOT_CONFIRM='1')
    if launcher == 'slurm':
        return run_slurm(sidewire)
    if not shutil.which(WORDS[launcher][0]):
        print(f'SKIP: {WORDS[launcher][0]} is not installed')
        return 77
    run_job(sidewire, launcher, 'store' if launcher == 'mpiexec' else 'export')
    return 0


if __name__ == '__main__':
    sys.exit(main())
