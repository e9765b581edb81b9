#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""Ranks of torch that mpirun, mpiexec or srun have started open a process group with nothing else
said, sum, and name a rank that was killed.

usage: test_launcher.py SIDEWIRE LAUNCHER
       test_launcher.py --rank WAY (as the launcher starts it)
"""
import os
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
}
AROUND = {'mpiexec': ['sh', '-c', '"$0" "$@"; exit $?']}


def be_rank(way):
    import torch
    import torch.distributed as dist

    import sidewire_torch

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


def run_job(sidewire, launcher, way):
    script = [sidewire, 'run', '--', sys.executable, os.path.abspath(__file__), '--rank', way]
    words = [*WORDS[launcher], '-n', str(RANKS), *AROUND.get(launcher, []), *script]
    done = subprocess.run(
        words,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    for rank in range(RANKS):
        assert f'rank {rank} by PMI' in done.stdout, done.stdout
    for rank in set(range(RANKS)) - {DEAD}:
        lines = [line for line in done.stdout.splitlines() if line.startswith(f'rank {rank}: ')]
        assert lines and f'rank {DEAD} ' in lines[0], done.stdout


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
    sidewire, launcher = sys.argv[1:]
    os.environ.update(OMPI_ALLOW_RUN_AS_ROOT='1', OMPI_ALLOW_RUN_AS_ROOT_CONFIRM='1')
    if launcher == 'slurm':
        return run_slurm(sidewire)
    if not shutil.which(WORDS[launcher][0]):
        print(f'SKIP: {WORDS[launcher][0]} is not installed')
        return 77
    run_job(sidewire, launcher, 'export' if launcher == 'mpirun' else 'store')
    return 0


if __name__ == '__main__':
    sys.exit(main())
