# SPDX-License-Identifier: BSD-2-Clause
"""The questions in the order that they are asked: the first two say what machine this is, and of
the others the most valuable come first. Each has a bound in seconds."""

import os
import sys
from collections import namedtuple

Question = namedtuple('Question', 'name program bound_s about')
HERE = os.path.dirname(os.path.abspath(__file__))

# fmt: off
QUESTIONS = [Question(*row) for row in (
    ('place.device', 'device', 20, 'driver, device, attributes by number'),
    ('place.nvml', 'nvml_place', 15, 'NVML: memory, PCIe, NVLink, MIG, NUMA, processors'),
    ('memory.context', 'context', 20, 'what a context takes by itself'),
    ('memory.rounding', 'rounding', 30, 'cuMemAlloc: rounding, ranges, refusals'),
    ('memory.views', 'views', 40, 'the same memory by the driver, NVML and nvidia-smi'),
    ('memory.vmm', 'vmm', 20, 'VMM: granularity, sizes, refusals'),
    ('handles.ways', 'handles', 30, 'IPC, VMM and pools given to another process; refusals'),
    ('handles.pidfd', 'pidfd', 15, 'a descriptor taken by pidfd_getfd()'),
    ('handles.dmabuf', 'dmabuf', 20, 'DMA buffers: ranges, and mapped by the processor'),
    ('handles.deaths-ipc', 'deaths ipc', 25, 'owner or user dies or frees: legacy IPC'),
    ('handles.deaths-vmm', 'deaths vmm', 25, 'the same: VMM'),
    ('handles.deaths-pool', 'deaths pool', 25, 'the same: pools'),
    ('copies.sizes', 'copies', 75, '8 B to 1 GiB by path and way: latency and rate'),
    ('copies.seen', 'seen', 30, 'when bytes are seen by kernels and by the processor'),
    ('verbs.regions', 'system.py regions', 20, 'ibv_reg_mr() under Sidewire, and page adoption'),
    ('sharing.slices', 'slices', 30, 'two processes with kernels of 10 us to 100 ms'),
    ('memory.killed', 'killed', 40, 'how long after SIGKILL memory is given back'),
    ('memory.pools', 'pools', 20, 'pools: what they take and keep'),
    ('copies.streams', 'streams', 25, 'how many streams copy side by side'),
    ('copies.events', 'events', 15, 'how finely events and the timer tell time'),
    ('place.smi', 'system.py smi', 40, 'nvidia-smi: memory, topology, links, MIG'),
    ('sharing.ioctls', 'ioctls', 30, 'ioctls of the driver library by class and number'),
    ('sharing.entries', 'entries', 10, 'what cuGetProcAddress gives by version'),
    ('memory.torch', 'system.py torch', 60, "torch's allocator, with expandable segments"),
    ('sharing.priorities', 'priorities', 20, 'stream priorities'),
    ('sharing.graphs', 'graphs', 20, 'CUDA graphs: cost, memory allocated in a capture'),
    ('memory.managed', 'managed', 15, 'managed memory: when it is taken'),
    ('place.pci', 'system.py pci', 10, 'PCIe and NUMA of the device, by the kernel'),
    ('place.hwloc', 'system.py hwloc', 15, "hwloc's picture"),
    ('verbs.doctor', 'system.py doctor', 15, 'what Sidewire can do on this machine'),
    ('sharing.mps', 'system.py mps', 60, 'MPS as an ordinary user'),
)]
# fmt: on
LAST = Question('settings.after', 'nvml_place', 10, 'the settings are as they were before')


def words_of(question, programs):
    """The command of a question: a program that was built, or a script of this folder."""
    name, *words = question.program.split()
    if name.endswith('.py'):
        return [sys.executable, os.path.join(HERE, name), *words]
    return [os.path.join(programs, name), *words]
