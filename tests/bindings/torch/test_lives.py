# SPDX-License-Identifier: BSD-2-Clause
"""How process groups of sidewire end: dropped, in a forked child, with the interpreter, by an abort
or by a death after which the others go on; and the module in another version of torch.

usage: test_lives.py [CASE...]
"""
import datetime
import gc
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

for name in ('OMP_NUM_THREADS', 'OPENBLAS_NUM_THREADS'):
    os.environ.setdefault(name, '1')

import rank_processes
import torch
import torch.distributed as dist

import sidewire_torch

LIMIT_S = 40


def expect(condition, *words):
    if not condition:
        raise AssertionError(words)


def error_of(function, *args, **kwargs):
    try:
        function(*args, **kwargs)
    except RuntimeError as error:
        return str(error)
    raise AssertionError('no error')


def in_ranks(world, run, ends_well=lambda rank: not rank.status):
    """Runs run(rank) in ranks that have opened the default group."""
    with tempfile.TemporaryDirectory() as folder:

        def be_rank(rank):
            torch.set_num_threads(1)
            dist.init_process_group(
                'sidewire', init_method=f'file://{folder}/store', rank=rank, world_size=world
            )
            return run(rank)

        ranks = rank_processes.run_ranks(world, be_rank, LIMIT_S)
        for rank in ranks:
            expect(ends_well(rank), rank.report())
        return ranks


def ones(count=4):
    return torch.ones(count)


# ---- groups that are dropped ----


def dropped__while_operations_are_under_way():
    def run(rank):
        for count in (1, 200000):
            group = dist.new_group([0, 1])
            if rank == 0:
                work = dist.all_reduce(ones(count), group=group, async_op=True)
            dist.destroy_process_group(group)
            del group
            gc.collect()
            if rank == 0:
                expect('sidewire' in error_of(work.wait))
        dist.all_reduce(ones())

    in_ranks(2, run)


def dropped__by_the_last_callback():
    def run(rank):
        group = dist.new_group([0, 1])
        kept = [group]
        work = dist.all_reduce(ones(), group=group, async_op=True)
        future = work.get_future().then(lambda future: kept.clear())
        dist.destroy_process_group(group)
        del group, work
        future.wait()
        dist.barrier()

    in_ranks(2, run)


def closed__and_opened_again_by_the_same_store():
    def run(rank):
        store = dist.distributed_c10d._get_default_store()
        settings = sidewire_torch.Options()._settings(20000)
        for _ in range(3):
            group = sidewire_torch._native.Group(store, rank, 2, settings)
            group.barrier(dist.BarrierOptions()).wait()
            group.close()
            expect('was ended' in error_of(group.barrier, dist.BarrierOptions()))

    in_ranks(2, run)


# ---- children ----


def forked__workers_of_a_data_loader():
    def run(rank):
        data = torch.utils.data.TensorDataset(torch.arange(32.0))
        total = torch.zeros(())
        for (batch,) in torch.utils.data.DataLoader(data, batch_size=8, num_workers=2):
            total += batch.sum()
            dist.all_reduce(ones())
        dist.all_reduce(total)
        expect(total.item() == 2 * sum(range(32)), total)

    in_ranks(2, run)


def forked__a_child_that_uses_the_group():
    def run(rank):
        work = dist.irecv(torch.empty(4), 1 - rank, tag=7)
        child = os.fork()
        if not child:
            try:
                expect('parent' in error_of(work.wait))
                expect('parent' in error_of(dist.all_reduce, ones()))
                dist.destroy_process_group()
                gc.collect()
                os._exit(0)
            finally:
                os._exit(1)
        _, status = os.waitpid(child, 0)
        expect(status == 0, status)
        dist.send(ones(), 1 - rank, tag=7)
        work.wait()

    in_ranks(2, run)


# ---- the interpreter ends ----

ENDING = '''
import os, sys, tempfile, torch, torch.distributed as dist, sidewire_torch
rank, folder, way = int(sys.argv[1]), sys.argv[2], sys.argv[3]
dist.init_process_group('sidewire', init_method='file://' + folder + '/store', rank=rank,
                        world_size=2)
dist.barrier()
kept = torch.ones(300000)
if rank == 0:
    work = dist.all_reduce(kept, async_op=True)
    future = work.get_future().then(lambda future: print('called'))
    work = dist.irecv(kept, 1)
if way == 'raise':
    raise SystemExit(3)
'''


def interpreter__ends_amid_an_operation():
    for way, expected in (('fall', 0), ('raise', 3)):
        with tempfile.TemporaryDirectory() as folder:
            ranks = [
                subprocess.Popen(
                    [sys.executable, '-X', 'faulthandler', '-c', ENDING, str(rank), folder, way],
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    text=True,
                )
                for rank in range(2)
            ]
            try:
                said = [rank.communicate(timeout=LIMIT_S)[0] for rank in ranks]
            finally:
                for rank in ranks:
                    rank.kill()
            for rank, words in zip(ranks, said):
                expect(rank.returncode == expected, way, rank.returncode, words)


# ---- failures ----


def aborted__by_one_rank():
    def run(rank):
        work = dist.irecv(torch.empty(4), 1 - rank)
        if rank == 0:
            sidewire_torch.abort()
        error_of(work.wait)
        error_of(dist.all_reduce, ones())
        expect(sidewire_torch.failure(), rank)

    in_ranks(2, run)


def timeout__names_the_rank_that_is_late():
    def run(rank):
        group = dist.new_group([0, 1], timeout=datetime.timedelta(seconds=1))
        if rank == 0:
            words = error_of(dist.all_reduce, ones(), group=group)
            expect('rank 1' in words and ' Timed out ' in words, words)
        dist.barrier()

    in_ranks(2, run)


def interrupted__a_wait_for_another_rank():
    with tempfile.TemporaryDirectory() as folder:

        def run(rank):
            if rank == 0:
                threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
                try:
                    dist.all_reduce(ones())
                except KeyboardInterrupt:
                    os.mkdir(f'{folder}/interrupted')
            while not os.path.exists(f'{folder}/interrupted'):
                time.sleep(0.01)
            dist.destroy_process_group()

        in_ranks(2, run)


def interrupted__together_with_a_rank_that_ends_by_it():
    """Ctrl-C reaches all ranks: none tells of the end of another one in its place."""
    with tempfile.TemporaryDirectory() as folder:

        def interrupt():
            os.kill(os.getpid(), signal.SIGINT)
            os.mkdir(f'{folder}/interrupted')

        def run(rank):
            dist.all_reduce(ones())
            if rank == 1:
                while not os.path.exists(f'{folder}/interrupted'):
                    time.sleep(0.001)
                os._exit(0)
            threading.Timer(0.2, interrupt).start()
            try:
                dist.all_reduce(ones())
            except KeyboardInterrupt:
                return 0
            raise AssertionError('no interrupt')

        in_ranks(2, run)


def interrupted__an_opening():
    with tempfile.TemporaryDirectory() as folder:

        def run(rank):
            if rank == 0:
                threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
                try:
                    dist.new_group([0, 1])
                except KeyboardInterrupt:
                    os.mkdir(f'{folder}/interrupted')
                    return
                raise AssertionError('no interrupt')
            while not os.path.exists(f'{folder}/interrupted'):
                time.sleep(0.01)
            words = error_of(dist.new_group, [0, 1])
            expect('rank 0: it was interrupted' in words, words)

        in_ranks(2, run)


def unlike_calls__are_told_apart():
    def run(rank):
        words = error_of(dist.all_reduce, ones(4 + rank))
        expect('count 5' in words and 'rank 1' in words, words)

    in_ranks(2, run)


def death__others_shrink_and_go_on():
    def run(rank):
        dist.all_reduce(ones())
        if rank == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        words = error_of(lambda: [dist.all_reduce(ones()) for _ in range(1000)])
        expect('rank 0' in words, words)
        group = sidewire_torch.shrink(timeout=datetime.timedelta(seconds=20))
        expect(group is dist.group.WORLD)
        expect((dist.get_rank(), dist.get_world_size()) == (rank - 1, 2), dist.get_rank())
        sums = torch.tensor([float(rank)])
        dist.all_reduce(sums)
        expect(sums.item() == 3, sums)
        pair = dist.new_group([0, 1])
        dist.barrier(pair)
        dist.destroy_process_group()

    in_ranks(3, run, lambda rank: rank.status == (-signal.SIGKILL if rank.number == 0 else 0))


def new_group__ends_where_a_rank_dies():
    """Members wait for its card, or all for it to say that it has come."""

    def run(rank, members):
        dist.all_reduce(ones())
        if rank == 2:
            time.sleep(0.3)  # the others are in new_group() by then
            os.kill(os.getpid(), signal.SIGKILL)
        words = error_of(dist.new_group, members)
        expect('rank 2 of the default group died' in words, words)
        sidewire_torch.shrink(timeout=datetime.timedelta(seconds=20))
        group = dist.new_group([0, 1])
        if dist.get_rank() < 2:
            dist.all_reduce(ones(), group=group)
        dist.barrier()  # the store is that of the new rank 0

    for members in ([0, 1, 2], [0, 1]):
        in_ranks(
            4,
            lambda rank: run(rank, members),
            lambda rank: rank.status == (-signal.SIGKILL if rank.number == 2 else 0),
        )


def shrink__of_another_group_is_refused():
    def run(rank):
        group = dist.new_group([0, 1])
        try:
            sidewire_torch.shrink(group)
        except ValueError as error:
            expect('make the other anew by new_group()' in str(error), error)
        else:
            expect(False, 'it was shrunk')
        dist.barrier(group)

    in_ranks(2, run)


def dump__amid_operations_and_after_a_failure():
    with tempfile.TemporaryDirectory() as folder:

        def operations(name, group=None):
            sidewire_torch.dump(f'{folder}/{name}', group)
            with open(f'{folder}/{name}', encoding='ascii') as file:
                dump = json.load(file)
            expect((dump['why'], dump['ranks']) == ('call', 2), dump)
            return [(one['collective'], one['status']) for one in dump['operations']]

        def run(rank):
            group = dist.new_group([0, 1])
            dist.all_reduce(ones(), group=group)
            own = f'{rank}.json'
            expect(('all_reduce', 'ok') in operations(own, group))
            if rank == 0:
                work = dist.broadcast(ones(200000), 1, group=group, async_op=True)
                while operations(own, group)[-1] != ('broadcast', 'under way'):
                    time.sleep(0.01)  # the engine's thread begins it
                dist.barrier()
                work.wait()
            else:
                dist.barrier()
                dist.broadcast(ones(200000), 1, group=group)
            error_of(dist.all_reduce, ones(4 + rank))
            expect(operations(own)[-1] == ('all_reduce', 'mismatch'), operations(own))
            expect('No such' in error_of(sidewire_torch.dump, f'{folder}/none/0.json'))

        in_ranks(2, run)


def opening__fails_on_all_where_one_cannot():
    def run(rank):
        wrong = sidewire_torch.Options(address='192.0.2.77' if rank == 1 else None)
        words = error_of(dist.new_group, [0, 1], pg_options=wrong)
        expect('rank 1' in words and '192.0.2.77' in words, words)
        other = sidewire_torch.Options(order='any' if rank == 1 else 'tree')
        words = error_of(dist.new_group, [0, 1], pg_options=other)
        expect('rank 1 wants order any of sums, and rank 0 tree' in words, words)
        dist.barrier()

    in_ranks(2, run)


# ---- leaves ----


def train(rank, world, leaves, folder):
    torch.manual_seed(7)
    model = torch.nn.Sequential(torch.nn.Linear(6, 40), torch.nn.Tanh(), torch.nn.Linear(40, 3))
    model = torch.nn.parallel.DistributedDataParallel(model, bucket_cap_mb=0.0005)
    hook = sidewire_torch.leaves(leaves)
    model.register_comm_hook(hook, hook.hook)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for step in range(6):
        optimizer.zero_grad()
        for leaf in range(leaves):
            generator = torch.Generator().manual_seed(1000 * step + rank * leaves + leaf)
            batch = torch.randn(5, 6, generator=generator)
            model(batch).square().mean().backward()
        optimizer.step()
    weights = torch.cat([parameter.detach().reshape(-1) for parameter in model.parameters()])
    if rank == 0:
        torch.save(weights, f'{folder}/weights-{world}')


def opening__tells_why_it_fails_before_the_store_ends():
    """Which it does with rank 0, that has it."""
    with socket.socket() as free:
        free.bind(('127.0.0.1', 0))
        port = free.getsockname()[1]

    def run(rank):
        words = error_of(
            dist.init_process_group,
            'sidewire',
            init_method=f'tcp://127.0.0.1:{port}',
            rank=rank,
            world_size=3,
            pg_options=sidewire_torch.Options(eager_bytes=8192 if rank == 1 else None),
        )
        expect('8192 eager bytes' in words, words)

    for rank in rank_processes.run_ranks(3, run, LIMIT_S):
        expect(rank.status == 0, rank.report())


def leaves__give_the_same_bits_for_any_division():
    with tempfile.TemporaryDirectory() as folder:
        for world in (1, 2, 4):
            in_ranks(world, lambda rank: train(rank, world, 8 // world, folder))
        one, two, four = (torch.load(f'{folder}/weights-{world}') for world in (1, 2, 4))
        expect(torch.equal(one, two) and torch.equal(two, four), one - two, two - four)
        expect(not torch.equal(one, torch.zeros_like(one)))


# ---- other versions of torch ----


def another_version__is_told():
    with tempfile.TemporaryDirectory() as folder:
        os.makedirs(f'{folder}/torch/distributed')
        with open(f'{folder}/torch/__init__.py', 'w') as file:
            file.write('__version__ = "7.3.1+made"\n')
        with open(f'{folder}/torch/distributed/__init__.py', 'w') as file:
            file.write('')
        path = folder + ':' + os.environ.get('PYTHONPATH', '')
        done = subprocess.run(
            [sys.executable, '-c', 'import sidewire_torch'],
            env={**os.environ, 'PYTHONPATH': path},
            capture_output=True,
            text=True,
        )
        ours = '.'.join(torch.__version__.split('.')[:2])
        expect(f'ImportError: sidewire_torch was built for torch {ours}' in done.stderr, done)
        expect('this is torch 7.3.1+made' in done.stderr, done)


CASES = {name: one for name, one in list(globals().items()) if '__' in name.strip('_')}

if __name__ == '__main__':
    # A shell's job in the background ignores it, and Python leaves that so.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for name in sys.argv[1:] or CASES:
        print(name, flush=True)
        CASES[name]()
