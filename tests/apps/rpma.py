# SPDX-License-Identifier: BSD-2-Clause
"""librpma: its examples, and fio with its engines, both as scripts/librpma builds them, on memory
and on files that are looked at."""
import os

import cm
import hosts
import ports
from pair import Failure, Skip

FOLDER = os.environ.get('SIDEWIRE_LIBRPMA') or os.path.join(
    os.path.dirname(os.path.abspath(__file__)), '../../build-librpma'
)
AS_PMEM = ('PMEM_IS_PMEM_FORCE=1',)  # libpmem takes a plain file for persistent memory
SIGNATURE = b'RPMA_EXAMPLE_SIG\0'
FILE_BYTES = 1 << 20
WAYS = {
    'mapped': {'direct': 'mapped'},
    'ring': {'direct': 'ring'},
    'packets': {'link': 'roce'},
    'two hosts': {},
}
# Arguments of the client after address and port; of several lists each is a client of its own, of a
# server that does not end. What server and client must print.
EXAMPLES = {
    '01-connection': ([''], '', r'Received a message: Hello client!'),
    '02-read-to-volatile': ([''], '', r'^Read a message: Hello'),
    '03-read-to-persistent': ([''], r'^New value: Hello world!', ''),
    '04-write-to-persistent': ([''], '', r'^Translation: .Hola Mundo!'),
    '05-flush-to-persistent': ([''], '', r'^Translation: .Hola Mundo!'),
    '06-multiple-connections': (['8', '9', '11', '12'], None, ''),
    '06scch-multiple-connections': (['8', '9', '11', '12'], None, ''),
    '07-atomic-write': (['1st_word 2nd_word 3rd_word'], r'^3rd_word', ''),
    '08-messages-ping-pong': (['7 3'], r'Value received: 8', r'Value received: '),
    '08srq-simple-messages-ping-pong-with-srq': (
        ['7 3'],
        r'Value received: 8',
        r'Value received: ',
    ),
    '09-flush-to-persistent-GPSPM': ([''], '', r'^Translation: .Hola Mundo!'),
    '09scch-flush-to-persistent-GPSPM': ([''], '', r'^Translation: .Hola Mundo!'),
    '10-send-with-imm': (
        ['1234 1st_word'],
        r"^Received value '1st_word' with immediate data '1234'",
        '',
    ),
    '11-write-with-imm': (['1234'], r"^The value '1234' was written together", ''),
    '12-receive-completion-queue': (['7 3'], r'Value received: 8', ''),
    '12scch-receive-completion-queue': (['7 3'], r'Value received: 8', ''),
}
# Written to a file of the server, by clients with a file of their own.
ON_FILES = (
    '04-write-to-persistent',
    '05-flush-to-persistent',
    '09-flush-to-persistent-GPSPM',
    '09scch-flush-to-persistent-GPSPM',
)
GREETINGS = ('Hello world!', '¡Hola Mundo!')  # the client translates its own after each run


def built(*names):
    path = os.path.join(FOLDER, *names)
    if not os.path.exists(path):
        raise Skip(f'scripts/librpma build-librpma has not made {os.path.join(*names)}')
    return path


def run_pair(tools, way, server, client, says, **options):
    """One server and its client, on one host or two."""
    two = hosts.Hosts()
    try:
        wraps = [
            (*two.wrap[side], 'env', '-C', tools.folder, *AS_PMEM)
            for side in (0, int(way == 'two hosts'))
        ]
        return cm.run_once(
            tools,
            server,
            client,
            'tcp',
            *says,
            host=hosts.ADDRESSES[0],
            wraps=wraps,
            **WAYS[way],
            **options,
        )
    finally:
        two.close()


def example(tools, way, name):
    arguments, server_says, client_says = EXAMPLES[name]
    server, client = (built('examples', name, side) for side in ('server', 'client'))
    clients = ' && '.join(f'{client} {{host}} {{port}} {one}' for one in arguments)
    run_pair(
        tools, way, f'{server} {{host}} {{port}}', f"sh -c '{clients}'", (server_says, client_says)
    )


def make_file(tools, name):
    path = tools.path(name)
    with open(path, 'wb') as file:
        file.truncate(FILE_BYTES)
    return path


def content(path):
    with open(path, 'rb') as file:
        return file.read()


def example_on_files(tools, way, name):
    server, client = (built('examples', name, side) for side in ('server', 'client'))
    there, here = (make_file(tools, f'{name}.{way[:3]}.{side}') for side in ('server', 'client'))
    for greeting in GREETINGS:
        run_pair(
            tools,
            way,
            f'{server} {{host}} {{port}} {there}',
            f'{client} {{host}} {{port}} {here} 0',
            ('', ''),
        )
        data = content(there)
        if not data.startswith(SIGNATURE) or greeting.encode() + b'\0' not in data[:4096]:
            raise Failure(f'{there} has not got {greeting!r}: {data[:80]!r}')


# Engine, where the server's memory is, jobs, options of the client.
FIO = [
    ('apm', 'malloc', 2, 'rw=randrw\nverify=crc32c'),
    ('apm', 'file', 1, 'rw=randwrite\nverify=crc32c'),
    (
        'apm',
        'file',
        1,
        'rw=write\nsync=0\niodepth=16\niodepth_batch_submit=4\nbuffer_pattern=0x5157',
    ),
    ('gpspm', 'malloc', 2, 'rw=randwrite'),
    ('gpspm', 'file', 1, 'rw=randwrite\nbuffer_pattern=0x5157'),
    (
        'gpspm',
        'file',
        1,
        'rw=write\nsync=0\niodepth=16\niodepth_batch_submit=4\nbuffer_pattern=0x5157',
    ),
]
HEAD = (
    'create_serialize=0\nkb_base=1000\nserverip={host}\nport={port}\n'
    'thread\nnumjobs={jobs}\nsize={size}\n'
)
SERVER = {'apm': '', 'gpspm': 'iodepth=16\nbusy_wait_polling=1\ntime_based\nruntime=1d\n'}
PATTERN, VERIFIED = b'\x51\x57', b'\xca\xac'  # each block begins with this


def write_job(tools, name, text):
    path = tools.path(name)
    with open(path, 'w', encoding='ascii') as file:
        file.write(f'[{name}]\n{text}')
    return path


def fio(tools, way, engine, memory, jobs, options):
    program = built('fio', 'fio')
    port = ports.claim(2)  # each job has one
    path = make_file(tools, f'fio.{port}') if memory == 'file' else 'malloc'
    head = HEAD.format(host=hosts.ADDRESSES[0], port=port, jobs=jobs, size=FILE_BYTES)
    server = write_job(
        tools,
        f'server.{port}',
        f'ioengine=librpma_{engine}_server\n{head}filename={path}\n{SERVER[engine]}'
        f'direct_write_to_pmem={int(engine == "apm" and memory == "file")}\n',
    )
    defaults = '' if 'sync=0' in options else 'sync=1\niodepth=2\n'
    client = write_job(
        tools,
        f'client.{port}',
        f'ioengine=librpma_{engine}_client\n{head}blocksize=4096\n{defaults}{options}\n',
    )
    texts = run_pair(
        tools,
        way,
        f'{program} {server}',
        f'{program} {client}',
        ('', r'err= *0'),
        port=port + jobs - 1,
    )
    if 'verify:' in texts[1]:
        raise Failure(texts[1])
    if memory == 'file':
        data, start = content(path), VERIFIED if 'verify' in options else PATTERN
        wrong = [at for at in range(0, FILE_BYTES, 4096) if not data.startswith(start, at)]
        if len(data) != FILE_BYTES or wrong:
            raise Failure(
                f'{len(data)} bytes, blocks that were not written: {wrong[:8]}\n{texts[1]}'
            )


def cases():
    return (
        [
            (f'{way}: {name}', lambda tools, way=way, name=name: example(tools, way, name))
            for way in WAYS
            for name in EXAMPLES
        ]
        + [
            (
                f'{way}: {name} on files',
                lambda tools, way=way, name=name: example_on_files(tools, way, name),
            )
            for way in WAYS
            for name in ON_FILES
        ]
        + [
            (
                (
                    f'{way}: fio librpma_{job[0]}, {job[1]}, '
                    f'{job[3].splitlines()[0]}{", async" if "sync=0" in job[3] else ""}'
                ),
                lambda tools, way=way, job=job: fio(tools, way, *job),
            )
            for way in WAYS
            for job in FIO
        ]
    )
