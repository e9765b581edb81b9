# SPDX-License-Identifier: BSD-2-Clause
"""Plans of random layouts beside numpy: what the plans move is what transposing, splitting and
joining whole arrays gives."""
import os
import random
import unittest

import numpy as np
import served
import sidewire
from sidewire import plan

SEED = int(os.environ.get('SEED', '5'))
ROUNDS = 120


def divisors(number):
    return [i for i in range(1, number + 1) if number % i == 0]


def draw_order(rng):
    letters = list('LPBTH')
    rng.shuffle(letters)
    outside = 0
    while outside < 2 and letters[outside] in 'LP':
        outside += 1
    outside = rng.randint(0, outside)
    return ''.join(letters[:outside]) + ('/' if outside else '') + ''.join(letters[outside:])


def draw_side(rng, model, tokens):
    block_tokens = rng.randint(1, 6)
    needed = -(-tokens // block_tokens)
    blocks = needed + rng.randint(0, 3)
    table = rng.sample(range(blocks), needed) if rng.random() < 0.7 else None
    ranks = rng.choice(divisors(model.heads) + [model.heads * 2])
    return plan.Side(draw_order(rng), ranks, 0, 0, 0, block_tokens, blocks, table)


def share(model, side, cache, tokens):
    """The memory of a rank as numpy makes it of the whole cache, whose axes are layer, plane,
    token, head, byte; what no token has is 0xee."""
    heads = (
        np.split(cache, side.ranks, 3)[side.rank]
        if side.ranks <= model.heads
        else cache[:, :, :, [side.rank * model.heads // side.ranks]]
    )
    padded = np.full(
        (*heads.shape[:2], side.blocks * side.block_tokens, *heads.shape[3:]), 0xEE, np.uint8
    )
    padded[:, :, :tokens] = heads
    paged = padded.reshape(*heads.shape[:2], side.blocks, side.block_tokens, *heads.shape[3:])
    if side.table:
        rest = [block for block in range(side.blocks) if block not in side.table]
        paged = paged[:, :, np.argsort(side.table + rest)]
    axes = ['LPBTH'.index(letter) for letter in side.order.replace('/', '')]
    return np.ascontiguousarray(paged.transpose(*axes, 5)).reshape(plan.memory(model, side)[0], -1)


def expand(extents):
    return [
        (part, offset + i * stride, size)
        for part, offset, size, stride, count in extents
        for i in range(count)
    ]


class Plans(unittest.TestCase):
    def worlds(self):
        rng = random.Random(SEED)
        for _ in range(ROUNDS):
            model = plan.Model(
                rng.randint(1, 3),
                rng.randint(1, 2),
                rng.choice([1, 2, 3, 4, 6]),
                rng.randint(1, 4),
                rng.randint(1, 2),
            )
            tokens = rng.randint(1, 20)
            cache = np.frombuffer(
                rng.randbytes(
                    model.layers
                    * model.planes
                    * tokens
                    * model.heads
                    * model.head_elements
                    * model.element_bytes
                ),
                np.uint8,
            )
            cache = cache.reshape(model.layers, model.planes, tokens, model.heads, -1)
            yield model, tokens, cache, draw_side(rng, model, tokens), draw_side(rng, model, tokens)

    def test_reshard__is_what_numpy_does(self):
        for model, tokens, cache, one, other in self.worlds():
            sources = [one._replace(rank=rank) for rank in range(one.ranks)]
            for target in (other._replace(rank=rank) for rank in range(other.ranks)):
                want = share(model, target, cache, tokens)
                have = np.full_like(want, 0xEE)
                moved = 0
                for source in sources:
                    from_ = share(model, source, cache, tokens)
                    made = plan.reshard(model, source, target, tokens)
                    pairs = list(zip(expand(made.source), expand(made.target), strict=True))
                    self.assertEqual(len(pairs), made.blocks)
                    for (part, offset, size), (to_part, to_offset, to_size) in pairs:
                        self.assertEqual(size, to_size)
                        have[to_part, to_offset : to_offset + size] = from_[
                            part, offset : offset + size
                        ]
                        moved += size
                np.testing.assert_array_equal(have, want, f'{model} {one} {target}')
                self.assertEqual(
                    moved, (want.size // (target.blocks * target.block_tokens)) * tokens
                )

    def test_reshard__moved_between_agents(self):
        """A memory for each layer; two prefill ranks of NHD become one of HND with
        larger blocks."""
        model = plan.Model(4, 2, 4, 8, 2)
        tokens = 37
        cache = np.random.default_rng(SEED).integers(0, 256, (4, 2, tokens, 4, 16), np.uint8)
        target = plan.Side('L/PBHT', 1, 0, 0, 0, 16, 5, [4, 0, 2])
        want = share(model, target, cache, tokens)
        there = np.full_like(want, 0xEE)
        with served.serving() as server, sidewire.Agent() as agent:
            card = server.card(
                *(server.memory(there[i]).lease(f'layer {i}', write=True) for i in range(4))
            )
            peer = agent.connect(card, timeout=served.LIMIT_S)
            for rank in range(2):
                source = plan.Side('L/PBTH', 2, rank, 0, 0, 4, 12, list(range(11, 1, -1)))
                made = plan.reshard(model, source, target, tokens)
                memories = [agent.memory(part) for part in share(model, source, cache, tokens)]
                local = agent.blocks(memories, made.source)
                remote = peer.blocks_of([f'layer {i}' for i in range(4)], made.target)
                self.assertEqual(len(local), made.blocks)
                peer.write(local, remote).post(deadline=served.LIMIT_S).wait()
            np.testing.assert_array_equal(there, want)
            with self.assertRaises(sidewire.InvalidArgument):
                agent.blocks(memories, [(4, 0, 1, 1, 1)])
            with self.assertRaises(sidewire.InvalidArgument):
                peer.blocks_of(['layer 0'], [(1, 0, 1, 1, 1)])
            with self.assertRaises(sidewire.InvalidArgument):
                peer.blocks_of(['layer 9'], [(0, 0, 1, 1, 1)])
            with self.assertRaises(TypeError):
                agent.blocks(memories, [5])
            for bad in ([], 'zork'):
                with self.assertRaises((sidewire.InvalidArgument, TypeError)):
                    agent.blocks(bad, made.source)
            readonly = agent.memory(bytes(64))
            with self.assertRaises(sidewire.Denied):
                peer.read(
                    agent.blocks([memories[0], readonly], [(0, 0, 8, 8, 1)]),
                    peer.blocks_of([0], [(0, 0, 8, 8, 1)]),
                )

    def test_reshard__says_what_is_wrong(self):
        model = plan.Model(1, 2, 4, 8, 2)
        good = plan.Side('LPBTH', 2, 0, 0, 0, 16, 5)
        for bad, why in (
            (good._replace(order='LPB'), 'an order is'),
            (good._replace(ranks=3), 'neither divides'),
            (good._replace(table=[1, 1]), 'twice'),
            (good._replace(table=[0, 1 << 40]), 'none'),
            (good._replace(blocks=1), 'not so many'),
        ):
            with self.assertRaisesRegex(sidewire.InvalidArgument, why):
                plan.reshard(model, good, bad, 20)


if __name__ == '__main__':
    unittest.main()
