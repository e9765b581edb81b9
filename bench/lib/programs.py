# SPDX-License-Identifier: BSD-2-Clause
"""The programs that measure: how each is started and how its output is read.

Units inside: seconds for latency, bytes per second for bandwidth, operations per second for rates.
"""

import os
import re
import shutil

import procs

MIB = 1 << 20


def pin(cpu):
    """Words that keep what follows on one core; none when this machine has only one."""
    cpus = sorted(os.sched_getaffinity(0))
    if len(cpus) < 2 or not shutil.which('taskset'):
        return []
    return ['taskset', '-c', str(cpus[cpu % len(cpus)])]


def connect_rate_words(command, source, kind, port, count, in_flight, held=0):
    """Words of bench/src/connect_rate; `command` runs it on Sidewire, which TCP does without."""
    words = [] if kind == 'tcp' else command
    numbers = [str(number) for number in (port, count, in_flight, held)]
    return [*words, os.path.join(source, 'connect_rate'), kind, *numbers]


CLIENT_CPU, SERVER_CPU = 0, 1


class Sidewire:
    """Our device: the command that runs programs with it."""

    def __init__(self, build, device='sw_lo', direct=None):
        self.build = build
        self.device = device
        command = os.path.join(build, 'src/cli/sidewire')
        if not os.access(command, os.X_OK):
            raise procs.RunFailed(f'{command} is not there; `make build` makes it')
        self.command = [command, 'run']
        if direct:
            self.command += ['--direct', direct]
        self.command += ['--']

    def wrap(self, cpu, argv):
        return pin(cpu) + self.command + argv

    def pair(self, program, options, timeout_s, gid_option=(), by_line=True):
        port = procs.free_port()
        base = [program, '-d', self.device, '-p', str(port), *gid_option, *options]
        return procs.run_pair(
            self.wrap(SERVER_CPU, base),
            self.wrap(CLIENT_CPU, base + ['127.0.0.1']),
            port,
            timeout_s,
            by_line=by_line,
        )

    def perftest(self, program, options, timeout_s=30):
        """Rows of perftest's table by message size."""
        return self._retried(
            program, ['-F', *options], timeout_s, True, lambda text: parse_perftest(text, program)
        )

    def latency_samples(self, program, options, timeout_s=30):
        """Every sample of a latency program, in seconds, sorted."""
        return self._retried(program, ['-F', '-H', *options], timeout_s, False, parse_samples)

    def _retried(self, program, options, timeout_s, by_line, parse):
        """perftest measures the clock's frequency at its start; on a busy machine it may fail to
        and prints `inf` for figures."""
        for _ in range(3):
            text = self.pair(program, options, timeout_s, by_line=by_line)
            result = parse(text)
            if result:
                return result
        raise procs.RunFailed(f'{program} printed no result:\n{text[-800:]}')

    def pingpong(self, size, iterations, timeout_s=30):
        """Latency of one direction and bandwidth of both."""
        text = self.pair(
            'ibv_rc_pingpong',
            ['-s', str(size), '-n', str(iterations)],
            timeout_s,
            gid_option=('-g', '1'),
        )
        bandwidth = re.search(r'= ([0-9.]+) Mbit/sec', text)
        latency = re.search(r'= ([0-9.]+) usec/iter', text)
        if not bandwidth or not latency:
            raise procs.RunFailed(f'ibv_rc_pingpong printed no result:\n{text}')
        return {
            'latency_s': float(latency.group(1)) * 1e-6 / 2,
            'bandwidth': float(bandwidth.group(1)) * 1e6 / 8,
        }


def parse_samples(text):
    return sorted(
        float(match.group(1)) * 1e-6 for match in re.finditer(r'^\d+, ([0-9.e+-]+)$', text, re.M)
    )


def parse_perftest(text, program):
    rows = {}
    for line in text.splitlines():
        if not re.fullmatch(r'\s*\d+\s+\d+(\s+[0-9.]+)+\s*', line):
            continue
        fields = line.split()
        size = int(fields[0])
        if program.endswith('_lat'):
            rows[size] = {'latency_s': float(fields[4]) * 1e-6, 'mean_s': float(fields[5]) * 1e-6}
        else:
            rows[size] = {'bandwidth': float(fields[3]) * MIB, 'rate': float(fields[4]) * 1e6}
    return rows


class Qperf:
    """TCP over the loopback. One server for many clients; use it in a `with`."""

    def __enter__(self):
        self.port = procs.free_port()
        self.server = procs.Child(pin(SERVER_CPU) + ['qperf', '-lp', str(self.port)])
        procs.await_port(self.server, self.port)
        return self

    def __exit__(self, *_):
        self.server.end()

    def measure(self, size, tests=('tcp_lat', 'tcp_bw'), seconds=1):
        """Latency and bandwidth at one size. qperf now and then loses its connection at the start:
        tried again."""
        found = {}
        for test in tests:
            # qperf takes whole seconds only.
            argv = pin(CLIENT_CPU) + [
                *f'qperf 127.0.0.1 -lp {self.port} -t {seconds} -m {size}'.split(),
                '-uu',
                test,
            ]
            for attempt in range(4):
                try:
                    text = procs.run(argv, seconds + 10)
                    break
                except procs.RunFailed:
                    if attempt == 3:
                        raise
            latency = re.search(r'latency\s+=\s+([0-9.]+) ns', text)
            bandwidth = re.search(r'bw\s+=\s+([0-9.]+) bytes/sec', text)
            if latency:
                found['latency_s'] = float(latency.group(1)) * 1e-9
            elif bandwidth:
                found['bandwidth'] = float(bandwidth.group(1))
            else:
                raise procs.RunFailed(f'{" ".join(argv)} printed no result:\n{text}')
        return found


def ucx(test, size, iterations, settings, timeout_s=60, options=(), wrap=()):
    """One run of ucx_perftest between two processes, under the given UCX_* settings; `wrap`: words
    in front of both."""
    port = procs.free_port()
    argv = [
        *f'ucx_perftest -p {port}'.split(),
        '-t',
        test,
        *f'-s {size} -n {iterations}'.split(),
        *options,
        '-f',
    ]
    text = procs.run_pair(
        [*pin(SERVER_CPU), *wrap, 'ucx_perftest', '-p', str(port)],
        [*pin(CLIENT_CPU), *wrap, *argv, '127.0.0.1'],
        port,
        timeout_s,
        settings,
    )
    return parse_ucx(text, argv)


def parse_ucx(text, argv):
    """The last line of figures; `argv` is named where there is none."""
    for line in reversed(text.splitlines()):
        fields = line.split()
        if len(fields) == 8 and all(re.fullmatch(r'[0-9.]+', field) for field in fields):
            numbers = [float(field) for field in fields]
            return {
                'median_s': numbers[1] * 1e-6,
                'mean_s': numbers[3] * 1e-6,
                'bandwidth': numbers[5] * MIB,
                'rate': numbers[7],
            }
    raise procs.RunFailed(f'{" ".join(argv)} printed no result:\n{text}')
