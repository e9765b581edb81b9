# SPDX-License-Identifier: BSD-2-Clause
"""A KV cache goes from prefill to decode, by a connector like vLLM's (KVConnectorBase_V1).

    kv_connector.py decode ADDRESS CARD     writes its card into the file CARD, decodes what comes
    kv_connector.py prefill ADDRESS CARD    computes the cache of some requests, and sends it

Each side has paged blocks of its own numbers, one array a layer. Which blocks of decode a request
gets is told with the request, here by requests() on both sides. The blocks of a layer go while the
next layer is computed; a notice behind the last says that the request is there.
"""
import os
import sys

import numpy as np
import sidewire

LAYERS, BLOCKS, TOKENS, HEADS, HEAD = 4, 256, 16, 8, 64
LAYOUT = f'{LAYERS} layers, {TOKENS} tokens a block, {HEADS} heads of {HEAD}, float16'
BLOCK_BYTES = TOKENS * HEADS * HEAD * 2
REQUESTS = 5


class Connector:
    """What both roles share: the caches are registered once, where they are."""

    def __init__(self, address):
        self.agent = sidewire.Agent(address, layout=LAYOUT)

    def register_kv_caches(self, kv_caches):
        self.memories = {layer: self.agent.memory(cache) for layer, cache in kv_caches.items()}


class Decode(Connector):
    def card(self):
        return self.agent.card(
            *(memory.lease(layer, write=True) for layer, memory in self.memories.items())
        )

    def get_finished(self, timeout=None):
        """The name of the next request whose blocks are all in place."""
        return self.agent.notice(timeout).data.decode()


class Prefill(Connector):
    def connect(self, card):
        self.peer, self.saves = self.agent.connect(card, timeout=10), []

    def save_kv_layer(self, layer, block_ids, remote_block_ids, notice=None):
        local = self.memories[layer].blocks(block_ids, BLOCK_BYTES)
        remote = self.peer.blocks(layer, remote_block_ids, BLOCK_BYTES)
        self.saves.append(self.peer.write(local, remote).post(notice, deadline=10))

    def wait_for_save(self):
        """Afterwards the blocks may be given to another request."""
        for save in self.saves:
            save.wait()
        self.saves.clear()


def requests():
    """(name, blocks of prefill, blocks of decode, what the model computes) of each."""
    random = np.random.default_rng(3)
    pages = random.permutation(BLOCKS)
    for i in range(REQUESTS):
        mine, theirs = random.permutation(BLOCKS)[:40], pages[i * 40 : i * 40 + 40]
        values = random.integers(0, 1 << 14, (LAYERS, 40, TOKENS, HEADS, HEAD))
        yield f'request {i}', mine, theirs, values.astype(np.float16)


def main(role, address, path):
    caches = {
        f'layer {i}': np.zeros((BLOCKS, TOKENS, HEADS, HEAD), np.float16) for i in range(LAYERS)
    }
    connector = (Prefill if role == 'prefill' else Decode)(address)
    connector.register_kv_caches(caches)
    if role == 'decode':
        with open(path + '.new', 'wb') as file:
            file.write(connector.card())
        os.rename(path + '.new', path)
        for name, _, blocks, values in requests():
            assert connector.get_finished(timeout=20) == name
            is_right = all(
                (cache[blocks] == values[i]).all() for i, cache in enumerate(caches.values())
            )
            print(name, 'is right' if is_right else 'is wrong', flush=True)
        return
    with open(path, 'rb') as file:
        connector.connect(file.read())
    for name, mine, theirs, values in requests():
        for i, (layer, cache) in enumerate(caches.items()):
            cache[mine] = values[i]  # the model computes this layer
            connector.save_kv_layer(layer, mine, theirs, name.encode() if i == LAYERS - 1 else None)
        connector.wait_for_save()


if __name__ == '__main__':
    main(*sys.argv[1:])
