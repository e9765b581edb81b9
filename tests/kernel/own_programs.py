# SPDX-License-Identifier: BSD-2-Clause
"""Programs of ours on both sides, which know nothing of the NIC beneath them: in the guest stock
rdma-core and rxe, here our library.

The examples of the C++ header, and the transfer engine: its command in the guest, the module for
Python here and there.
"""
import base64
import hashlib
import os
import re
import subprocess
import tempfile
import zipfile

import kernel_guest as guest

BLOCKS = os.path.join(guest.HERE, 'blocks.py')
SECONDS, BYTES, BLOCK = 60, 1 << 20, 4000
INTERPRETER = '/usr/bin/python3'  # Debian's, as the module is built for it
GUEST_PYTHON = 'env PYTHONHOME=/none PYTHONPATH=/lib/python.zip:/lib/python python3 -S'
CLIENT_SAYS, SERVER_SAYS = 'asking.. serving. serving.', 'serving. asking.. asking..'


def copy_in(path, there):
    with open(path, 'rb') as file:
        return (
            subprocess.run(
                [guest.PEER, 'exec', '-i', 'b', f'cat >{there}; chmod +x {there}'],
                stdin=file,
                check=False,
            ).returncode
            == 0
        )


def push_with_libraries(path, name):
    """A program, and what it is linked to and the guest has not."""
    found = subprocess.run(['ldd', path], capture_output=True, text=True, check=True).stdout
    for library, where in re.findall(r'(\S+) => (/\S+)', found):
        if guest.inside(f'[ -e /lib/{library} ]')[1] and not copy_in(where, f'/lib/{library}'):
            return False
    return guest.push(path, name)


def cpp_examples(host, say, server, client, port):
    """20 lines each: they write and read each other's memory."""
    if not push_with_libraries(server, 'cpp_server') or not push_with_libraries(
        client, 'cpp_client'
    ):
        return say(False, 'the C++ examples cannot be copied into the guest')
    guest.spawn(
        'cpp',
        f'cpp_server {guest.GUEST} {port}',
        f'rdma res show cm_id | grep LISTEN | grep -q ":{port} "',
        SECONDS,
    )
    text, status = host.finish(host.start(f'{client} {guest.GUEST} {port}'), SECONDS)
    theirs = guest.ended('cpp')
    good = say(
        status == 0 and CLIENT_SAYS in text and SERVER_SAYS in theirs,
        'to the kernel: the C++ example',
        text,
        theirs,
    )
    process = host.start(f'{server} {guest.OWN} {port + 1}')
    guest.await_service(process, port + 1)
    theirs, status = guest.inside(f'timeout {SECONDS} cpp_client {guest.OWN} {port + 1}')
    text, own_status = host.finish(process, SECONDS)
    return good & say(
        status == own_status == 0 and CLIENT_SAYS in theirs and SERVER_SAYS in text,
        'from the kernel: the C++ example',
        text,
        theirs,
    )


def digest(data):
    return hashlib.sha256(data).hexdigest()


def transfer_to_kernel(host, say, python, folder):
    """The module reads and writes a file that the command serves on rxe."""
    guest.inside(f'head -c {BYTES} /dev/urandom >/tmp/data; rm -f /tmp/card')
    guest.spawn(
        'serve',
        f'sidewire-transfer serve -l {guest.GUEST} -c /tmp/card /tmp/data',
        '[ -s /tmp/card ]',
        SECONDS,
    )
    before = guest.inside('sha256sum /tmp/data')[0].split()[0]
    card = os.path.join(folder, 'card')
    with open(card, 'wb') as file:
        file.write(base64.b64decode(guest.inside('base64 /tmp/card')[0]))
    text, status = host.finish(host.start(f'{python} {BLOCKS} reach {card} {BLOCK}'), SECONDS)
    after = guest.inside('sha256sum /tmp/data; kill $(cat /tmp/serve.pid)')[0].split()[0]
    theirs = guest.ended('serve')
    good = (
        status == 0
        and text.split()[:2] == [before, after]
        and before != after
        and 'all-is-there' in theirs
    )
    return say(
        good,
        'to the kernel: blocks from Python, into the command on rxe',
        text,
        theirs,
        f'{before} {after}',
    )


def transfer_from_kernel(host, say, python, folder):
    """The command on rxe reads an array that the module serves, and writes a file into it. Linux
    6.1 registers no memory that is mapped to be read only and is shared, so of that file it
    registers a private mapping."""
    card = os.path.join(folder, 'own')
    server = host.start(f'{python} {BLOCKS} serve {guest.OWN} {card} {BYTES} from-rxe')
    if not guest.await_sign(server, lambda: os.path.exists(card)) or not copy_in(card, '/tmp/own'):
        server.kill()
        return say(False, 'from the kernel: no card', host.finish(server)[0])
    theirs, status = guest.inside(
        f'timeout {SECONDS} sidewire-transfer read -c /tmp/own --bs {BLOCK} --notice "it was '
        'read" /tmp/copy && '
        f'sha256sum /tmp/copy && head -c {BYTES} /dev/urandom >/tmp/new && sha256sum /tmp/new && '
        f'timeout {SECONDS} sidewire-transfer write -c /tmp/own --bs {BLOCK} --notice from-rxe '
        '/tmp/new'
    )
    text, own_status = host.finish(server, SECONDS)
    sums = re.findall(r'\b[0-9a-f]{64}\b', theirs)
    return say(
        status == own_status == 0 and text.split() == sums,
        'from the kernel: the command on rxe, out of and into an array of Python',
        text,
        theirs,
    )


def pack_library(path):
    """The interpreter's own modules as one archive, from which it imports."""
    home = subprocess.run(
        [INTERPRETER, '-c', 'import os; print(os.path.dirname(os.__file__))'],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    left_out = {
        'test',
        'idlelib',
        'lib2to3',
        'distutils',
        'pydoc_data',
        'ensurepip',
        'tkinter',
        'unittest',
        '__pycache__',
        'lib-dynload',
    }
    with zipfile.ZipFile(path, 'w', zipfile.ZIP_DEFLATED) as archive:
        for folder, folders, files in os.walk(home):
            folders[:] = [
                name for name in folders if name not in left_out and not name.startswith('config-')
            ]
            for name in files:
                if name.endswith('.py'):
                    archive.write(
                        os.path.join(folder, name),
                        os.path.relpath(os.path.join(folder, name), home),
                    )


def push_python(module, folder):
    archive, package = os.path.join(folder, 'python.zip'), os.path.join(module, 'sidewire')
    pack_library(archive)
    guest.inside('mkdir -p /lib/python/sidewire')
    files = [name for name in os.listdir(package) if name.endswith(('.py', '.so'))]
    return (
        push_with_libraries(os.path.realpath(INTERPRETER), 'python3')
        and copy_in(archive, '/lib/python.zip')
        and copy_in(BLOCKS, '/tmp/blocks.py')
        and all(
            copy_in(os.path.join(package, name), f'/lib/python/sidewire/{name}') for name in files
        )
    )


def module_to_kernel(host, say, python, folder):
    """The module here reads and writes an array that the module serves on rxe."""
    guest.inside('rm -f /tmp/theirs')
    guest.spawn(
        'module',
        f'{GUEST_PYTHON} /tmp/blocks.py serve {guest.GUEST} /tmp/theirs {BYTES} all-is-there',
        '[ -s /tmp/theirs ]',
        SECONDS,
    )
    card = os.path.join(folder, 'theirs')
    with open(card, 'wb') as file:
        file.write(base64.b64decode(guest.inside('base64 /tmp/theirs')[0]))
    text, status = host.finish(host.start(f'{python} {BLOCKS} reach {card} {BLOCK}'), SECONDS)
    theirs = guest.ended('module')
    return say(
        status == 0 and len(text.split()) == 2 and text.split() == theirs.split(),
        'to the kernel: the module on rxe, by the module',
        text,
        theirs,
    )


def module_from_kernel(host, say, python, folder):
    """The other way round."""
    card = os.path.join(folder, 'ours')
    server = host.start(f'{python} {BLOCKS} serve {guest.OWN} {card} {BYTES} all-is-there')
    if not guest.await_sign(server, lambda: os.path.exists(card)) or not copy_in(card, '/tmp/ours'):
        server.kill()
        return say(False, 'from the kernel: no card of the module', host.finish(server)[0])
    theirs, status = guest.inside(
        f'timeout {SECONDS} {GUEST_PYTHON} /tmp/blocks.py reach /tmp/ours {BLOCK}'
    )
    text, own_status = host.finish(server, SECONDS)
    return say(
        status == own_status == 0 and len(text.split()) == 2 and text.split() == theirs.split(),
        'from the kernel: the module on rxe, to the module',
        text,
        theirs,
    )


def transfers(host, say, command, module):
    if not push_with_libraries(command, 'sidewire-transfer'):
        return say(False, 'sidewire-transfer cannot be copied into the guest')
    python = f'env PYTHONPATH={module} /usr/bin/python3'
    with tempfile.TemporaryDirectory(prefix='sidewire-kernel-') as folder:
        good = transfer_to_kernel(host, say, python, folder) & transfer_from_kernel(
            host, say, python, folder
        )
        if not push_python(module, folder):
            return say(False, 'Python and the module cannot be copied into the guest')
        return (
            good
            & module_to_kernel(host, say, python, folder)
            & module_from_kernel(host, say, python, folder)
        )
