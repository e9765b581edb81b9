# SPDX-License-Identifier: BSD-2-Clause
"""torch.distributed.monitored_barrier() for groups of ours: torch's own refuses all but gloo's."""
import functools

import torch.distributed as dist
from torch.distributed import distributed_c10d


def install():
    theirs = distributed_c10d.monitored_barrier

    @functools.wraps(theirs)
    def monitored_barrier(group=dist.group.WORLD, timeout=None, wait_all_ranks=False):
        if (
            group is dist.GroupMember.NON_GROUP_MEMBER
            or dist.get_rank(group) < 0
            or dist.get_backend(group) != 'sidewire'
        ):
            return theirs(group, timeout, wait_all_ranks)
        import sidewire_torch

        chosen = sidewire_torch._native_group(None if group is dist.group.WORLD else group)
        words = {} if timeout is None else {'timeout': timeout}
        return chosen.monitored_barrier(wait_all_ranks=wait_all_ranks, **words)

    for module in (dist, distributed_c10d):
        module.monitored_barrier = monitored_barrier
