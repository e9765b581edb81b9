# SPDX-License-Identifier: BSD-2-Clause
"""A network of its own for a test that counts, or shows, what other programs of this user add to:
they meet by abstract sockets, which belong to a network namespace."""
import os
import subprocess
import sys

MOVED = 'SIDEWIRE_TEST_OWN_NETWORK'


def move_to_own_network():
    """Begins this program anew there, with the loopback up. Without root it stays where it is."""
    if os.geteuid() or MOVED in os.environ:
        return
    if subprocess.run(['unshare', '--net', 'true'], check=False).returncode:
        return
    os.environ[MOVED] = '1'
    script = 'ip link set lo up && exec "$0" "$@"'
    os.execvp('unshare', ['unshare', '--net', 'sh', '-c', script, sys.executable, *sys.argv])
