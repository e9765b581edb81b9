# SPDX-License-Identifier: BSD-2-Clause
"""One side of transfers for own_programs.py: `reach CARD BLOCK` or `serve ADDRESS CARD BYTES
NOTICE`. Prints sums of what is in the memory."""
import hashlib
import os
import sys

import sidewire

LIMIT_S = 40


def digest(data):
    return hashlib.sha256(data).hexdigest()


def reach(card, block):
    """Reads all, then writes other bytes, in blocks whose order is reversed here."""
    with open(card, 'rb') as file, sidewire.Agent() as agent:
        known = sidewire.Card(file.read())
        peer, region = agent.connect(known, LIMIT_S), known.regions[0]
        data, new = bytearray(region.bytes), bytearray(os.urandom(region.bytes))
        peer.read(agent.memory(data).blocks(), peer.blocks(region.name)).post(
            deadline=LIMIT_S
        ).wait()
        count = region.bytes // block
        order = list(range(count))
        peer.write(
            agent.memory(new).blocks(index=order[::-1], bytes=block),
            peer.blocks(region.name, index=order, bytes=block),
        ).post(notice=b'all-is-there', deadline=LIMIT_S).wait()
        expected = bytearray(data)
        for i in order:
            expected[i * block : (i + 1) * block] = new[
                (count - 1 - i) * block : (count - i) * block
            ]
        print(digest(data), digest(expected))


def serve(address, path, size, notice):
    """Until that notice has come."""
    data = bytearray(os.urandom(size))
    before = digest(data)
    with sidewire.Agent(address) as agent:
        with open(path + '.new', 'wb') as file:
            file.write(agent.card(agent.memory(data).lease('data', write=True)))
        os.rename(path + '.new', path)
        agent.notice(LIMIT_S, match=notice.encode())
        agent.run(0.5)  # the client takes its leave
        print(before, digest(data))


if __name__ == '__main__':
    if sys.argv[1] == 'reach':
        reach(sys.argv[2], int(sys.argv[3]))
    else:
        serve(sys.argv[2], sys.argv[3], int(sys.argv[4]), sys.argv[5])
