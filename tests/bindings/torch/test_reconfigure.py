# SPDX-License-Identifier: BSD-2-Clause
"""Process groups that change their ranks by reconfigure(), which torch has since 2.14.

usage: test_reconfigure.py [CASE...]
"""
import contextlib
import datetime
import os
import signal
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
WORLD = 3


def expect(condition, *words):
    if not condition:
        raise AssertionError(words)


def error_of(function, *args, **kwargs):
    try:
        function(*args, **kwargs)
    except RuntimeError as error:
        return str(error)
    raise AssertionError('no error')


def write(path, text=''):
    with open(f'{path}.new', 'w') as file:
        file.write(text)
    os.rename(f'{path}.new', path)


def read(path):
    while not os.path.exists(path):
        time.sleep(0.005)
    with open(path) as file:
        return file.read()


def in_ranks(count, run, dead=()):
    """run(rank, handles) in processes that have a group which is not open yet. Each has a store of
    its own, as one would that comes later; `handles` is where they tell each other theirs."""
    with tempfile.TemporaryDirectory() as folder:

        def be_rank(rank):
            dist.init_process_group(
                'sidewire',
                store=dist.HashStore(),
                rank=rank,
                world_size=WORLD,
                timeout=datetime.timedelta(seconds=LIMIT_S),
                enable_reconfigure=True,
            )
            write(f'{folder}/handle{rank}', dist._get_reconfigure_handle())
            return run(rank, [read(f'{folder}/handle{i}') for i in range(count)], folder)

        fails = lambda status: status not in (0, -signal.SIGKILL)
        ranks = rank_processes.run_ranks(count, be_rank, LIMIT_S, fails)
        reports = [one.report() for one in ranks if one.status and one.number not in dead]
        expect(not reports, *reports)
        return [one.text() for one in ranks]


def sum_of(value, group=None):
    tensor = torch.tensor([float(value)])
    dist.all_reduce(tensor, group=group)
    return tensor.item()


def meet(uuid, handles, **words):
    dist._reconfigure(uuid, handles, **words).wait()
    return dist.get_rank(), dist.get_world_size()


def list__gives_the_ranks_by_position():
    def run(rank, handles, _):
        expect(dist._supports_reconfigure())
        words = error_of(sum_of, 1)
        expect('not open before reconfigure()' in words, words)
        expect(meet(1, [handles[2], handles[0], handles[1]]) == ((rank + 1) % 3, 3))
        expect(sum_of(rank) == 3)
        # Again, in other places, while all live.
        expect(meet(2, handles) == (rank, 3))
        expect(sum_of(rank) == 3)
        expect(sidewire_torch.failure() is None and sidewire_torch.gone() == [])

    in_ranks(3, run)


def set__keeps_the_order_of_the_ranks():
    def run(rank, handles, _):
        expect(meet(1, {*handles}) == (rank, 3))
        expect(sum_of(rank) == 3)

    in_ranks(3, run)


def death__others_go_on_without_the_first_rank():
    """Its store was that of the others."""

    def run(rank, handles, _):
        meet(1, handles)
        expect(sum_of(1) == 3)
        if rank == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        words = error_of(sum_of, 1)
        expect('rank 0 died' in words, words)
        expect(meet(2, handles[1:]) == (rank - 1, 2))
        expect(sum_of(1) == 2)
        # DDP, and a group of its own, meet where the ranks have met.
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
        model(torch.ones(2, 4) * rank).sum().backward()
        gradient = model.module.weight.grad
        expect(gradient.eq(3).all(), gradient)
        expect(sum_of(1, dist.new_group([0, 1])) == 2)

    in_ranks(3, run, dead=(0,))


def newcomer__joins_those_that_run():
    """It has made fewer groups than they have, and another store."""

    def run(rank, handles, folder):
        if rank < 2:
            expect(meet(1, handles[:2]) == (rank, 2))
            expect(sum_of(1, dist.new_group([0, 1])) == 2)
            write(f'{folder}/met{rank}')
        read(f'{folder}/met0'), read(f'{folder}/met1')
        expect(meet(2, handles) == (rank, 3))
        expect(sum_of(1) == 3 and sum_of(1, dist.new_group([0, 1, 2])) == 3)
        dist.monitored_barrier(timeout=datetime.timedelta(seconds=LIMIT_S))

    in_ranks(3, run)


def size_1__is_a_group():
    def run(rank, handles, _):
        expect(meet(1, [handles[rank]]) == (0, 1))
        expect(sum_of(7) == 7)

    in_ranks(2, run)


def absent__is_named_and_the_group_may_meet_again():
    def run(rank, handles, folder):
        if rank < 2:
            second = datetime.timedelta(seconds=1)
            words = error_of(meet, 1, handles, timeout=second)
            expect('these ranks have not come: 2' in words, words)
            write(f'{folder}/failed{rank}')
        read(f'{folder}/failed0'), read(f'{folder}/failed1')
        expect(meet(2, handles) == (rank, 3))
        expect(sum_of(1) == 3)

    in_ranks(3, run)


def wrong__arguments_are_told():
    def run(rank, handles, _):
        if rank:
            return
        for words, uuid, wrong, named in (
            ('is no handle', 1, ['gloo:0:-1:0:'], {}),
            ('is no handle', 1, ['sidewire:1:00000000:ab:99999:127.0.0.1'], {}),
            ('is no handle', 1, ['sidewire:1:::1:'], {}),
            ('is no handle', 1, [handles[0], 'x' * 100000], {}),
            ('twice', 1, [handles[0], handles[0]], {}),
            ('is not among', 1, [handles[1]], {}),
            ('is not among', 1, [], {}),
            ('too many', 1, [handles[0]] * 1025, {}),
            ('no hint "speed"', 1, [handles[0]], {'hints': {'speed': 'high'}}),
        ):
            said = error_of(meet, uuid, wrong, **named)
            expect(words in said and len(said) < 2000, words, said)
        expect(meet(1, handles[:1]) == (0, 1))
        words = error_of(meet, 1, handles[:1])
        expect('uuid 1 before' in words, words)
        expect(sum_of(7) == 7)  # an error of arguments ends nothing

    in_ranks(2, run)


def interrupted__a_meeting():
    def run(rank, handles, folder):
        if rank == 0:
            threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
            with contextlib.suppress(KeyboardInterrupt):
                meet(1, handles)
                expect(False, 'no interrupt')
            write(f'{folder}/interrupted')
        read(f'{folder}/interrupted')
        expect(meet(2, handles) == (rank, 2) and sum_of(1) == 2)

    in_ranks(2, run)


def abort__of_torch_ends_what_is_under_way():
    def run(rank, handles, folder):
        meet(1, handles)
        backend = dist.group.WORLD._get_backend(torch.device('cpu'))
        if rank == 0:
            threading.Timer(0.3, backend.abort).start()
        if rank < 2:
            words = error_of(sum_of, 1)
            expect('abort' in words or 'revoke' in words, words)
            write(f'{folder}/aborted{rank}')
        read(f'{folder}/aborted0'), read(f'{folder}/aborted1')
        expect(meet(2, handles) == (rank, 3) and sum_of(1) == 3)

    in_ranks(3, run)


def shrink__of_torch_after_a_death():
    def run(rank, handles, _):
        meet(1, handles)
        if rank == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        error_of(sum_of, 1)
        dist.shrink_group([2])
        expect((dist.get_rank(), dist.get_world_size()) == (rank, 2))
        expect(sum_of(1) == 2)

    in_ranks(3, run, dead=(2,))


CASES = {name: one for name, one in list(globals().items()) if '__' in name.strip('_')}

if __name__ == '__main__':
    # A shell's job in the background ignores it, and Python leaves that so.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if not hasattr(dist, '_reconfigure'):
        print('SKIP: this torch has no reconfigure()')
        sys.exit(77)
    for name in sys.argv[1:] or CASES:
        print(name, flush=True)
        CASES[name]()
