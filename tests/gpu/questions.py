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
    ('memory.vmm', 'vmm', 20, 'VMM: granularity, sizes, refusals'),
    ('memory.managed', 'managed', 15, 'managed memory: when it is taken'),
)]
# fmt: on
LAST = Question('settings.after', 'nvml_place', 10, 'the settings are as they were before')


def words_of(question, programs):
    """The command of a question: a program that was built, or a script of this folder."""
    if question.program.endswith('.py'):
        return [sys.executable, os.path.join(HERE, question.program)]
    return [os.path.join(programs, question.program)]
