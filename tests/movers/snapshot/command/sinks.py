# SPDX-License-Identifier: BSD-2-Clause
"""Sinks of each kind, and the servers that some of them need."""
import os
import signal
import subprocess
import sys

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), '../../../tools'))
import ports  # noqa: E402

VOLUME_BYTES = 64 << 20


class FileSink:
    """A file; there is no server."""

    open_flags = os.O_DIRECT

    def __init__(self, _sidewire, folder, name='run', **_):
        self.path = os.path.join(folder, name + '.snap')
        self.text = 'file:' + self.path

    def end(self):
        pass


class ServedSink:
    """One with a server, which says that it is ready by a line with Ctrl-C in it. `wrap` stands
    before its command, `variables` are added to its environment."""

    def __init__(self, sidewire, folder, name='run', host='127.0.0.1', wrap=(), variables=()):
        self.sidewire, self.folder, self.name = sidewire, folder, name
        self.host, self.wrap, self.variables = host, wrap, dict(variables)
        self.port, self.server = ports.claim(), None
        self.serve()

    def words(self):
        raise NotImplementedError

    def serve(self):
        self.server = subprocess.Popen(
            [*self.wrap, self.sidewire, *self.words()],
            env={**os.environ, **self.variables},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        said = ''
        while 'Ctrl-C' not in said:
            line = self.server.stdout.readline()
            if not line:
                raise RuntimeError(f'{self.words()} said: {said}')
            said += line

    def send(self, how):
        self.server.send_signal(how)

    def end(self, how=signal.SIGKILL):
        if self.server:
            self.send(signal.SIGCONT)
            self.send(how)
            self.server.communicate()
        self.server = None


class PeerSink(ServedSink):
    memory = '256M'

    def words(self):
        control = os.path.join(self.folder, self.name + '.control')
        self.text = f'peer:{self.host}:{self.port}/{self.name}'
        listen = ['-l', f'{self.host}:{self.port}']
        return [
            'snapshot',
            'serve',
            *listen,
            '--memory',
            self.memory,
            '--control',
            control,
        ]


class StrictSink(PeerSink):
    """A peer whose rules let nobody in from here."""

    def words(self):
        return [*super().words(), '--allow', '192.0.2.7:rw']


class FolderSink(PeerSink):
    """A peer that keeps volumes as files: what it has outlives it."""

    def words(self):
        return [
            *super().words(),
            '--folder',
            os.path.join(self.folder, self.name + '.volumes'),
        ]


class PmemSink(ServedSink):
    open_flags = 0

    def words(self):
        self.path = os.path.join(self.folder, self.name)
        self.text = f'pmem:{self.host}:{self.port}/{self.name}'
        listen = ['--listen', f'{self.host}:{self.port}']
        return ['pmem', 'serve', self.path, '--size', str(VOLUME_BYTES), *listen]


class NvmeSink(ServedSink):
    open_flags = os.O_DIRECT

    def words(self):
        self.path = os.path.join(self.folder, self.name + '.disk')
        if not os.path.exists(self.path):
            with open(self.path, 'wb') as file:
                os.posix_fallocate(file.fileno(), 0, VOLUME_BYTES)
        self.text = f'nvme:{self.host}:{self.port}/nqn.2026-01.io.sidewire:default'
        listen = ['-l', f'{self.host}:{self.port}']
        return ['nvme', 'target', *listen, '--namespace', f'file:{self.path},bs=4096']
