# SPDX-License-Identifier: BSD-2-Clause
"""Block lists made of how two sides have split and laid out one KV cache:
<sidewire/transfer_plan.h>, docs/transfer.md."""
import collections

from . import _engine

Model = collections.namedtuple('Model', 'layers planes heads head_elements element_bytes')
Model.__doc__ = 'What is the same on both sides; planes is 2 for keys and values, 1 for one latent.'
Side = collections.namedtuple(
    'Side', 'order ranks rank layer_first layers block_tokens blocks table', defaults=(None,)
)
Side.__doc__ = """How one rank has it. order is the letters L (layer), P (plane), B (block),
T (token), H (head), the outermost first; those before a slash choose the memory. layers 0: all from
layer_first on. table: which block has the request's first tokens, which the next; None: 0, 1,
2..."""
Plan = collections.namedtuple('Plan', 'source target blocks bytes')
Plan.__doc__ = """Extents (part, offset, bytes, stride, count) for Agent.blocks() of the one side
and Peer.blocks_of() of the other; empty where the target needs nothing of this source."""


def memory(model, side):
    """(parts, bytes of each): how much memory that side has."""
    return _engine.plan_memory(tuple(model), tuple(side))


def reshard(model, source, target, tokens, first_token=0):
    """The plan of what source has of these tokens and target is to have."""
    return Plan(*_engine.reshard(tuple(model), tuple(source), tuple(target), first_token, tokens))
