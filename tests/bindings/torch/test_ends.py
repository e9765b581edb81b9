# SPDX-License-Identifier: BSD-2-Clause
"""Ends of process groups that programs come to: an interpreter that exits amid an operation, groups
that are dropped, children of fork(). Each program is two ranks, in processes of their own."""

import os
import socket
import subprocess
import sys
import textwrap
import unittest

LIMIT_S = 300  # of the processes: where others have the processors, torch loads for a minute
PROLOGUE = '''
import datetime, os, signal, sys, threading
import torch
import torch.distributed as dist
import sidewire_torch

torch.set_num_threads(1)
dist.init_process_group('sidewire', timeout=datetime.timedelta(seconds=int(os.environ['LIMIT_S'])))
rank = dist.get_rank()
'''


def free_port():
    with socket.socket() as free:
        free.bind(('127.0.0.1', 0))
        return free.getsockname()[1]


def run(program, ranks=2, limit_s=30):
    """(status, output, errors) of each rank."""
    place = {
        'MASTER_ADDR': '127.0.0.1',
        'MASTER_PORT': str(free_port()),
        'WORLD_SIZE': str(ranks),
        'OMP_NUM_THREADS': '1',
        'OPENBLAS_NUM_THREADS': '1',
        'LIMIT_S': str(limit_s),
    }
    started = [
        subprocess.Popen(
            [sys.executable, '-X', 'faulthandler', '-c', PROLOGUE + textwrap.dedent(program)],
            env={**os.environ, **place, 'RANK': str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(ranks)
    ]
    try:
        texts = [process.communicate(timeout=LIMIT_S) for process in started]
        return [(process.returncode, *text) for process, text in zip(started, texts)]
    finally:
        for process in started:
            process.kill()


class Ends(unittest.TestCase):
    def assert_all_end_well(self, found):
        for status, _, error in found:
            self.assertEqual(status, 0, error)

    def test_exit__amid_an_operation(self):
        """Rank 0 leaves without a wait; the other is told who has gone."""
        found = run(
            '''
            values = torch.ones(1 << 20)
            if rank == 0:
                dist.barrier()
                work = dist.irecv(values, 1)
                sys.exit(0)
            dist.barrier()
            try:
                dist.all_reduce(values)
            except RuntimeError as error:
                print(error)
            '''
        )
        self.assert_all_end_well(found)
        self.assertRegex(found[1][1], r'rank 0 ')

    def test_stopped__is_named_in_the_log_and_then_in_the_error(self):
        """Both know that the process is stopped."""
        found = run(
            '''
            pids = [torch.zeros(1, dtype=torch.int64) for _ in range(3)]
            dist.all_gather(pids, torch.tensor([os.getpid()]))
            dist.barrier()
            if rank == 1:
                os.kill(os.getpid(), signal.SIGSTOP)
            try:
                dist.all_reduce(torch.ones(1000))
            except RuntimeError as error:
                print(error)
            if rank == 0:
                os.kill(pids[1].item(), signal.SIGKILL)
            os._exit(0)
            ''',
            ranks=3,
            limit_s=4,
        )
        for rank in 0, 2:
            status, said, log = found[rank]
            self.assertEqual(status, 0, log)
            self.assertRegex(said, r'Timed out waiting: rank 1 has not begun operation \d+')
            self.assertRegex(said, r'its process \d+ is stopped')
            # It is written while there is time left.
            self.assertRegex(log, r'rank 1 has not begun .* more; its process \d+ is stopped')

    def test_group__dropped_amid_an_operation(self):
        """The default group, and one that is made after it, go on."""
        self.assert_all_end_well(
            run(
                '''
                other = dist.new_group()
                work = dist.irecv(torch.ones(4), 1 - rank, group=other)
                dist.destroy_process_group(other)
                del other, work
                another = dist.new_group()
                for group in (None, another):
                    values = torch.ones(4)
                    dist.all_reduce(values, group=group)
                    assert values.tolist() == [2.0] * 4, values
                '''
            )
        )

    def test_fork__workers_of_a_loader(self):
        """Children do without the group, and the parents' goes on beside them."""
        self.assert_all_end_well(
            run(
                '''
                class Numbers(torch.utils.data.Dataset):
                    def __len__(self):
                        return 32

                    def __getitem__(self, index):
                        return torch.full((1000,), float(index))

                loader = torch.utils.data.DataLoader(Numbers(), batch_size=4, num_workers=2)
                for number, batch in enumerate(loader):
                    values = batch.sum(0)
                    dist.all_reduce(values)
                    right = 2.0 * sum(range(4 * number, 4 * number + 4))
                    assert values.tolist() == [right] * 1000, values
                '''
            )
        )

    def test_threads__each_with_a_group(self):
        self.assert_all_end_well(
            run(
                '''
                groups = [dist.new_group() for _ in range(3)]
                bad = []

                def sum_often(group, number):
                    for turn in range(50):
                        values = torch.full((100,), float(number + turn))
                        dist.all_reduce(values, group=group)
                        if values.tolist() != [2.0 * (number + turn)] * 100:
                            bad.append((number, turn))

                threads = [
                    threading.Thread(target=sum_often, args=pair)
                    for pair in zip(groups, range(3))
                ]
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join()
                assert not bad, bad
                '''
            )
        )


if __name__ == '__main__':
    unittest.main(verbosity=2)
