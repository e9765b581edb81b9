# SPDX-License-Identifier: BSD-2-Clause
"""What is known of torch's own tests: how many there are, and which do not pass, each with its
reason. A test that is in here and passes is a fault, too: it has to be taken out."""

# A few of each kind that take half a second each.
SAMPLE = (
    'test_DistributedDataParallelCPU',
    'test_all_gather_complex',
    'test_all_reduce_sum_async',
    'test_all_to_all_single_unequal_split_full_group',
    'test_batch_isend_irecv_gloo_tags',
    'test_reduce_group_product',
    'test_scatter_object_list',
    'test_send_recv_any_source',
)
# By the minor version of torch: at least so many are for processors.
REACHED = {
    'gloo': {'1.13': 108},
    'sidewire': {'1.13': 120, '2.6': 120, '2.14': 121},
}
# Backend -> (test, numbers of ranks, reason)
FAILURES = {
    'gloo': (),
    'sidewire': (),
}


# The same of torch 2.6 under Python 3.13 in Debian 13 (scripts/weekly), and of torch 2.14 in sid.
FAILURES_2 = (
    ('test_ddp_logging_data_cpu', 'torch calls each backend that is not its own "custom" there'),
    ('test_gather_object', 'Python 3.13 has another text where it cannot pickle'),
    ('test_gather_object_subgroup', 'the same'),
)


def failures(backend, world, version):
    if backend == 'sidewire' and version.startswith('2.'):
        return dict(FAILURES_2)
    return {name: reason for name, worlds, reason in FAILURES.get(backend, ()) if world in worlds}


def reached(backend, version):
    return REACHED.get(backend, {}).get('.'.join(version.split('.')[:2]), 1)
