# SPDX-License-Identifier: BSD-2-Clause
"""The time of a step of DDP on gloo and on sidewire, as a picture."""

import os

import machine
import plot
from pmem_pictures import bars_of, milliseconds

OURS, GLOO, ALONE = '#0a9396', '#c8453b', '#9aa7b4'
WAYS = (('sidewire', 'sidewire', OURS), ('gloo', 'gloo', GLOO))


def draw(experiments, out):
    """Writes the picture if that was measured; returns its files."""
    by_key = {experiment.key: experiment for experiment in experiments}
    ddp = by_key.get('torch_ddp')
    if not ddp:
        return []
    alone = bars_of(ddp, 'plain_s', (('sidewire', 'without any exchange', ALONE),), milliseconds)
    return plot.draw_groups(
        os.path.join(out, 'torch_step.svg'),
        'A training step of DistributedDataParallel',
        'two ranks on one host, 101 MB of gradients, a batch of four',
        [
            (
                'forward and backward, less is better',
                bars_of(ddp, 'step_s', WAYS, milliseconds) + alone,
            ),
            (
                'of which the ranks wait for each other\'s gradients',
                bars_of(ddp, 'exposed_s', WAYS, milliseconds),
            ),
        ],
        [machine.describe()],
    )
