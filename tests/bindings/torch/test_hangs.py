# SPDX-License-Identifier: BSD-2-Clause
"""Ranks of a program that hangs, and what the commands of docs/torch.md say of them.

usage: test_hangs.py SIDEWIRE [CASE...]
"""
import datetime
import json
import os
import re
import signal
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

from sidewire_torch import watched

SIDEWIRE = sys.argv[1]
LIMIT_S = 60
MUCH = 1 << 18  # numbers: more than is sent before it is received


def expect(condition, *words):
    if not condition:
        raise AssertionError(words)


def ask(command, part=None):
    """The rows of `sidewire coll diagnose`, or the awaited ones of `status`, or another part. On a
    busy machine any rank may come late, too."""
    variables = {name: value for name, value in os.environ.items() if name != 'LD_PRELOAD'}
    said = subprocess.run(
        [SIDEWIRE, 'coll', command, '-o', 'json'],
        capture_output=True,
        text=True,
        check=True,
        env=variables,
    )
    rows = json.loads(said.stdout)[part or ('rows' if command == 'diagnose' else 'awaited')]
    return [row for row in rows if row.get('verdict') != 'late']


def until(holds, command, part=None):
    """Until they say so; the last words where they never do."""
    limit = time.monotonic() + LIMIT_S / 2
    while True:
        said = ask(command, part)
        if holds(said):
            return said
        expect(time.monotonic() < limit, said)
        time.sleep(0.05)


def in_ranks(world, run):
    """Runs run(rank) in ranks that have opened the default group, and have pages of their own."""
    with tempfile.TemporaryDirectory() as folder:

        def be_rank(rank):
            os.environ['XDG_RUNTIME_DIR'] = folder
            dist.init_process_group(
                'sidewire', init_method=f'file://{folder}/store', rank=rank, world_size=world
            )
            dist.barrier()
            return run(rank, folder)

        ranks = rank_processes.run_ranks(world, be_rank, LIMIT_S)
        reports = [rank.report() for rank in ranks if rank.status]
        expect(not reports, *reports)
        return [rank.text() for rank in ranks]


def recv__blames_the_rank_that_has_not_sent():
    """Rank 0 waits for a message, others for rank 0, and rank 1 computes."""

    def run(rank, _):
        numbers = torch.zeros(4)
        if rank == 0:
            dist.recv(numbers, 1)
        elif rank == 1:

            def is_blamed(said):
                waiting = {one for row in said for one in row.get('waiting', ())}
                others = set(range(dist.get_world_size())) - {1}
                return waiting == others and [row['rank'] for row in said] == [1]

            (said,) = until(is_blamed, 'diagnose')
            # In the words of the rank that waits longest.
            place = 'has not begun it' if said['collective'] == 'barrier' else 'has not sent it'
            expect(said['verdict'] == 'awaited' and place in said['text'], said)
            (said,) = ask('status')
            expect(said['rank'] == 1 and 'has not begun operation 2' in said['text'], said)
            dist.send(numbers, 0)
        dist.barrier()

    in_ranks(2, run)
    in_ranks(3, run)


def irecv__of_a_rank_that_computes_is_no_wait():
    def run(rank, folder):
        numbers = torch.zeros(4)
        if rank == 0:
            work = dist.irecv(numbers, 1)
            with open(f'{folder}/posted', 'w'):
                pass
            time.sleep(0.1)  # the engine's thread drives by now
            rows = json.loads(
                subprocess.run(
                    [SIDEWIRE, 'coll', 'status', '-o', 'json'], capture_output=True, check=True
                ).stdout
            )['rows']
            (own,) = [row for row in rows if row['rank'] == 0]
            expect(own['collective'] is None and own['waits_for'] == [], own)
            # Rank 1 waits in the barrier, and rank 0 computes: it has the blame.
            until(lambda said: [row['rank'] for row in said] == [0], 'diagnose')
        dist.barrier()
        if rank == 0:
            work.wait()
        elif rank == 1:
            dist.send(numbers, 0)

    in_ranks(2, run)


def send_first(world):
    """To the next rank; this process looks, and ends them."""
    words = ', '.join(f'rank {i} sends to rank {(i + 1) % world}' for i in range(world))
    with tempfile.TemporaryDirectory() as folder:
        os.environ['XDG_RUNTIME_DIR'] = folder

        def be_rank(rank):
            dist.init_process_group(
                'sidewire', init_method=f'file://{folder}/store', rank=rank, world_size=world
            )
            dist.send(torch.zeros(MUCH), (rank + 1) % world)

        ranks = [rank_processes.Rank(number, be_rank, LIMIT_S) for number in range(world)]
        try:
            for command in ('diagnose', 'status'):
                is_told = lambda said: any('in a cycle' in row['text'] for row in said)
                (said,) = until(is_told, command)
                expect(said['rank'] is None and words in said['text'], said)
        finally:
            for rank in ranks:
                rank.kill()


def send__by_all_first_is_told_as_a_cycle():
    send_first(2)
    send_first(3)


def new_group__names_the_rank_that_hangs():
    """Rank 2 does not come: ranks 0 and 1 have made the group, and meet all ranks in the store.
    Torch 2 waits for members alone, unless TORCH_DIST_INIT_BARRIER says otherwise."""
    if not torch.__version__.startswith('1.'):
        return

    def run(rank, folder):
        told = f'{folder}/told'
        watched.FIRST_LINE_S = 0.5
        if rank == 2:
            while not (os.path.exists(f'{told}0') and os.path.exists(f'{told}1')):
                time.sleep(0.01)
            return
        try:
            dist.new_group([0, 1], timeout=datetime.timedelta(seconds=2))
            expect(False, 'no error')
        except RuntimeError as error:
            expect('these ranks have not come: 2' in str(error), error)
        open(f'{told}{rank}', 'w').close()

    ranks = in_ranks(3, run)
    words = r'new_group\(\) waits for 0.\d s; these ranks have not come: 2'
    expect(re.search(words, ranks[0]), ranks[0])


def new_group__is_shown_by_status_and_diagnose():
    """Rank 1 computes, and comes when it has seen that the others wait for it."""

    def run(rank, _):
        if rank == 1:
            blames = lambda said: [row['rank'] for row in said] == [1]
            (said,) = until(blames, 'status')
            expect('has not come to open another communicator' in said['text'], said)
            are_all_there = lambda said: any(row.get('waiting') == [0, 2] for row in said)
            (said,) = until(are_all_there, 'diagnose')
            expect(said['verdict'] == 'awaited' and said['rank'] == 1, said)
            expect(said['waits_ms'] >= 1000, said)
            expect('by ranks 0 and 2 for ' in said['text'] and 'has not come' in said['text'], said)
            rows = ask('status', 'rows')
            kinds = {row['rank']: (row['collective'], row['waits_for']) for row in rows}
            expect(kinds == {0: ('open', [1]), 1: (None, []), 2: ('open', [1])}, rows)
        group = dist.new_group([0, 1, 2])
        dist.barrier(group=group)
        dist.barrier()
        if rank == 0:
            # Nobody waits for them any more.
            until(lambda rows: all(row['collective'] != 'open' for row in rows), 'status', 'rows')
        dist.barrier()

    in_ranks(3, run)


def new_group__shows_a_rank_that_is_no_member():
    """All ranks meet in torch 1, also those that are not of the new group."""
    if not torch.__version__.startswith('1.'):
        return

    def run(rank, _):
        if rank == 2:
            (said,) = until(lambda said: [row['rank'] for row in said] == [2], 'status')
            expect('has not come to open another communicator' in said['text'], said)
        dist.new_group([0, 1])
        dist.barrier()

    in_ranks(3, run)


def new_group__of_some_and_an_operation_of_others_is_a_cycle():
    with tempfile.TemporaryDirectory() as folder:
        os.environ['XDG_RUNTIME_DIR'] = folder

        def be_rank(rank):
            dist.init_process_group(
                'sidewire', init_method=f'file://{folder}/store', rank=rank, world_size=2
            )
            if rank:
                dist.all_reduce(torch.zeros(MUCH))
            else:
                dist.new_group([0, 1])

        ranks = [rank_processes.Rank(number, be_rank, LIMIT_S) for number in range(2)]
        words = 'rank 0 opens a communicator with rank 1, rank 1 waits for rank 0 in operation 1'
        try:
            for command in ('status', 'diagnose'):
                is_told = lambda said: any('in a cycle' in row['text'] for row in said)
                (said,) = until(is_told, command)
                expect(said['rank'] is None and words in said['text'], said)
        finally:
            for rank in ranks:
                rank.kill()


# ---- Ctrl-C in a wait of torch's own ----


def interrupted__backward_of_ddp():
    def run(rank, folder):
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
        loss = model(torch.ones(2, 4)).sum()
        told, words = f'{folder}/told', ''
        while rank and not os.path.exists(told):
            time.sleep(0.01)
        if rank:
            return
        threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
        try:
            try:
                loss.backward()
            except RuntimeError as error:
                words = str(error)
                time.sleep(LIMIT_S)  # the interrupt comes as soon as Python runs
        except KeyboardInterrupt as error:
            words = words or str(error.__context__)
        open(told, 'w').close()
        expect('sidewire:all_reduce: its wait was ended by SIGINT' in words, words)

    in_ranks(2, run)


def interrupted__a_handler_that_does_not_raise_ends_no_wait():
    def run(rank, folder):
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
        loss = model(torch.ones(2, 4)).sum()
        told, seen = f'{folder}/told', []
        if rank == 0:
            signal.signal(signal.SIGINT, lambda *_: seen.append(1))
            threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
            threading.Timer(1.5, lambda: open(told, 'w').close()).start()
        while rank and not os.path.exists(told):
            time.sleep(0.01)
        loss.backward()
        expect(seen == ([] if rank else [1]), seen)

    in_ranks(2, run)


def interrupted__a_program_that_goes_on_by_itself():
    """The main thread runs its handler at once, and nothing under way is ended."""

    def run(rank, folder):
        numbers, told = torch.ones(4), f'{folder}/told'
        if rank == 0:
            future = dist.all_reduce(numbers, async_op=True).get_future()
            threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
            try:
                time.sleep(LIMIT_S)
            except KeyboardInterrupt:
                for _ in range(60):
                    time.sleep(0.01)
            open(told, 'w').close()
            future.wait()
        else:
            while not os.path.exists(told):
                time.sleep(0.01)
            dist.all_reduce(numbers)
        expect(numbers[0] == 2, numbers)

    in_ranks(2, run)


CASES = {name: one for name, one in list(globals().items()) if '__' in name.strip('_')}

if __name__ == '__main__':
    # A shell's job in the background ignores it, and Python leaves that so.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for name in sys.argv[2:] or CASES:
        print(name, flush=True)
        CASES[name]()
