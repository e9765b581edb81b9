# SPDX-License-Identifier: BSD-2-Clause
"""torch's own tests of its process groups, which are a part of torch, for any backend.

torch decides by the name of the backend, while it imports them, which tests a backend is given.
Those of gloo and those of MPI together are all that run on processors. So the module is imported
twice, by the names of these two, and the backend under test is named only afterwards.
"""

import functools
import importlib.util
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
SOURCE = 'torch.testing._internal.distributed.distributed_test'
GATES = ('gloo', 'mpi')
# The decorators of tests that want a GPU: they skip only when the test runs.
FOR_GPUS = ('skip_if_no_gpu', 'skip_if_lt_x_gpu', 'nccl_skip_if_lt_x_gpu')


def leave_out_replicated_tensors():
    """The tests switch on an experiment of torch 1.13 whose module Python 3.11 cannot import (a
    dataclass with a default that may change), so that DDP fails with any backend."""
    try:
        from torch.nn.parallel import _replicated_tensor_ddp_utils as experiment
    except ImportError:
        return  # a later torch, which has dropped it
    experiment._set_ddp_with_replicated_tensor = lambda value: None


def let_three_ranks_have_groups():
    """torch 2 skips tests of groups where there are fewer than 8 ranks: its machines have 8 GPUs.
    torch 1.13 wants 3 for the same tests, whose groups have ranks 1 and 2."""
    from torch.testing._internal import common_distributed

    def skip_if_small_worldsize(function):
        @functools.wraps(function)
        def wrapper(*words, **named):
            if int(os.environ['WORLD_SIZE']) < 3:
                sys.exit(common_distributed.TEST_SKIPS['small_worldsize'].exit_code)
            return function(*words, **named)

        return wrapper

    common_distributed.skip_if_small_worldsize = skip_if_small_worldsize


def import_gated(gate, world):
    """The module of tests as torch gates it for a backend and a number of ranks."""
    os.environ.update(BACKEND=gate, WORLD_SIZE=str(world), TEMP_DIR='/nonexistent')
    name = f'distributed_test_{gate}'
    spec = importlib.util.spec_from_file_location(name, importlib.util.find_spec(SOURCE).origin)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # tests send objects of its classes, which are found by this name
    spec.loader.exec_module(module)
    return module


def wants_gpu(function):
    while function:
        if function.__code__.co_qualname.split('.')[0] in FOR_GPUS:
            return True
        function = getattr(function, '__wrapped__', None)
    return False


def runnable(tests):
    """The names of the tests of a class that neither the gates nor the lack of a GPU leave out."""
    for name in dir(tests):
        function = getattr(tests, name)
        if (
            name.startswith('test_')
            and not getattr(function, '__unittest_skip__', False)
            and not wants_gpu(function)
        ):
            yield name


def load(backend, world):
    """Name -> class of each test for processors. The backends gloo and mpi get their own tests
    alone."""
    sys.path.insert(0, os.path.join(HERE, 'stand_in'))
    sys.argv = sys.argv[:1]  # torch parses the words of the command in its import
    leave_out_replicated_tensors()
    let_three_ranks_have_groups()
    found = {}
    for gate in (backend,) if backend in GATES else GATES:
        module = import_gated(gate, world)
        tests = type('Tests', (module.TestDistBackend, module.DistributedTest._DistTestBase), {})
        for name in runnable(tests):
            found.setdefault(name, tests)
        module.BACKEND = backend
    os.environ['BACKEND'] = backend
    return found
