# SPDX-License-Identifier: BSD-2-Clause
"""What the tests share: an agent that a thread serves, and programs in processes of their own."""
import contextlib
import os
import subprocess
import sys
import textwrap
import threading

import sidewire

HERE = os.path.dirname(os.path.abspath(__file__))
LIMIT_S = 30  # no test waits for longer


@contextlib.contextmanager
def serving(*args, **words):
    """An agent at the loopback address that a thread of this process runs."""
    with sidewire.Agent('127.0.0.1', *args, **words) as agent:
        over = threading.Event()

        def run():
            with contextlib.suppress(sidewire.Error):
                while not over.is_set():
                    agent.run(0.02)

        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield agent
        finally:
            over.set()
            thread.join(LIMIT_S)


PROLOGUE = '''
import asyncio, os, signal, sys, threading, time
import numpy as np
import sidewire
'''


def start(program, *args):
    """A process of the same interpreter and environment; its standard input and
    output are pipes."""
    return subprocess.Popen(
        [sys.executable, '-c', PROLOGUE + textwrap.dedent(program), *args],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run(program, *args):
    """(status, standard output, standard error) of a process that ends by itself."""
    process = start(program, *args)
    out, error = process.communicate(timeout=LIMIT_S)
    return process.returncode, out, error


SERVER = '''
array = np.zeros(int(sys.argv[1]), np.uint8)
agent = sidewire.Agent('127.0.0.1')
print(agent.card(agent.memory(array).lease('all', write=True)).hex(), flush=True)
agent.run(60)
'''


@contextlib.contextmanager
def server(size=1 << 20):
    """A process with memory to read and write, and its card."""
    process = start(SERVER, str(size))
    try:
        yield process, sidewire.Card(bytes.fromhex(process.stdout.readline()))
    finally:
        process.kill()
        process.communicate()
