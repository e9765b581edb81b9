# SPDX-License-Identifier: BSD-2-Clause
"""What these tests need beside Python, or they are skipped; and what they share."""
import os
import subprocess
import sys

try:
    import numpy
    import torch
except ImportError as error:
    print(f'SKIP: {error}')
    sys.exit(77)

__all__ = ['LIMIT_S', 'ROOT', 'numpy', 'run', 'start', 'torch']

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), '../../..'))
LIMIT_S = 60  # no test waits for longer
PROGRAM_S = 300  # but for a program, which loads torch for each of its ranks
torch.set_num_threads(1)


def start(*words, **options):
    """A process of the same interpreter and environment."""
    pipes = {'stdout': subprocess.PIPE, 'stderr': subprocess.PIPE, 'text': True}
    return subprocess.Popen([sys.executable, *words], **{**pipes, **options})


def run(*words, **options):
    """(status, standard output, standard error) of a process that ends by itself."""
    process = start(*words, **options)
    try:
        out, error = process.communicate(timeout=PROGRAM_S)
    finally:
        process.kill()
    return process.returncode, out, error
