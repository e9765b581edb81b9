# SPDX-License-Identifier: BSD-2-Clause
"""python3 client.py ADDRESS CARD: writes the server's memory, is written to, reads the server's."""
import sys

import numpy as np
import sidewire

with sidewire.Agent(sys.argv[1]) as agent, open(sys.argv[2], 'rb') as card:
    array = np.arange(16, dtype=np.uint8)
    memory = agent.memory(array)
    server = agent.connect(card.read())
    mine = agent.card(memory.lease('numbers', write=True))
    server.write(memory.blocks(), server.blocks('numbers')).post(mine).wait()
    agent.notice(match=b'written')
    print('the server wrote', *array)
    last = server.blocks('numbers', bytes=4, offset=12, count=1)
    server.read(memory.blocks(bytes=4, count=1), last).post().wait()
    print('its last four are', *array[:4])
    server.notify(b'bye').wait()
