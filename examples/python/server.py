# SPDX-License-Identifier: BSD-2-Clause
"""python3 server.py ADDRESS CARD: a client writes its memory; then it writes the client's."""
import sys

import numpy as np
import sidewire

with sidewire.Agent(sys.argv[1]) as agent:
    array = np.zeros(16, np.uint8)
    memory = agent.memory(array)
    with open(sys.argv[2], 'wb') as file:
        file.write(agent.card(memory.lease('numbers', write=True)))
    client = agent.connect(agent.notice().data)  # the notice that came behind the data is a card
    print('the client wrote', *array)
    array += 100
    client.write(memory.blocks(), client.blocks('numbers')).post(b'written').wait()
    agent.notice(match=b'bye')
