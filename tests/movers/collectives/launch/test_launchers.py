#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""Ranks that the launchers of others have started find each other with nothing else said, by the
command and by a program in C; all name a rank that was killed; a cancelled job leaves nothing. Or
they save snapshots together.

usage: test_launchers.py SIDEWIRE LAUNCHER SUM|RANKED
"""
import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
for folder in HERE, f'{HERE}/../../../apps', f'{HERE}/../../../tools':
    sys.path.append(folder)
import ports  # noqa: E402
import slurm  # noqa: E402
from hosts import ADDRESSES, Hosts  # noqa: E402
from pair import Skip  # noqa: E402

SIDEWIRE, LAUNCHER, SUM = sys.argv[1:4]
SAVES = os.path.basename(SUM) == 'snapshot_ranked'
PATIENCE_S = 100
RANKS, STEPS = 3, 3
ENDLESS = '-b 64K -e 64K -n 1000000000'.split()
os.environ.update(OMPI_ALLOW_RUN_AS_ROOT='1', OMPI_ALLOW_RUN_AS_ROOT_CONFIRM='1')
os.environ['OMPI_MCA_rmaps_base_oversubscribe'] = '1'


def is_alive(pid):
    with contextlib.suppress(OSError):
        with open(f'/proc/{pid}/stat', encoding='ascii') as file:
            return file.read().rsplit(')', 1)[1].split()[0] not in 'ZX'
    return False


def until(holds, what):
    limit = time.monotonic() + PATIENCE_S
    while not holds():
        if time.monotonic() > limit:
            raise AssertionError(f'waited in vain: {what}')
        time.sleep(0.02)


def begin(words, **variables):
    return subprocess.Popen(
        [*map(str, words)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, **variables},
    )


# What launchers call in place of ssh: options, a host, and what to run there.
AGENT = """#!/bin/sh
while [ "${{1#-}}" != "$1" ]; do shift; done
host=$1
shift
case $host in
{0}) name={2} ;;
{1}) name={3} ;;
*) exit 9 ;;
esac
exec ip netns exec $name sh -c "$*"
"""
# Namespaces of one machine are one host, unless they say that they are not.
ON_HOST = 'SIDEWIRE_COLL_HOST=$(stat -Lc %i /proc/self/ns/net) exec "$0" "$@"'


class Way:
    """A launcher. `survives` are the words by which it lets ranks live when one has died."""

    def __init__(self, name, said, words, survives=()):
        self.name, self.said = name, said
        self.words, self.survives = words.split(), survives

    def start(self, command, survives=False):
        more = self.survives if survives else ()
        return [begin([*self.words, *more, '-n', RANKS, *command])]


class Hydra(Way):
    """Its proxy kills all ranks once one has ended by a signal, whatever it was told; one that a
    shell has started ends by a status."""

    def start(self, command, survives=False):
        shell = ['sh', '-c', '"$0" "$@"; exit $?'] if survives else []
        return super().start([*shell, *command], survives)


class Environment(Way):
    """No launcher: what torchrun sets for its processes."""

    def start(self, command, survives=False):
        port = ports.claim()
        variables = {'MASTER_ADDR': '127.0.0.1', 'MASTER_PORT': str(port), 'WORLD_SIZE': str(RANKS)}
        return [begin(command, RANK=str(rank), **variables) for rank in range(RANKS)]


WAYS = {
    'environment': [Environment('environment', 'the variables of torchrun', '')],
    'mpirun': [
        Way('mpirun', 'PMIx of Open MPI', 'mpirun.openmpi', ('--enable-recovery', '--continuous'))
    ],
    'mpiexec': [Hydra('mpiexec', 'PMI of mpiexec', 'mpiexec.hydra', ('-disable-auto-cleanup',))],
    'slurm': [
        Way('none', 'the variables of Slurm', 'srun --mpi=none'),
        Way('pmi2', 'PMI of Slurm', 'srun --mpi=pmi2', ('--kill-on-bad-exit=0',)),
        Way('pmix_v4', 'PMIx of Slurm', 'srun --mpi=pmix_v4', ('--kill-on-bad-exit=0',)),
    ],
}


def kill_all(processes):
    for process in processes:
        if process.poll() is None:
            process.kill()


class Ways(unittest.TestCase):
    def ways(self):
        for way in WAYS[LAUNCHER]:
            if LAUNCHER != 'slurm' or slurm.has_plugin(way.name):
                yield way

    def finish(self, processes):
        """What all of them have printed, and whether all have ended well."""
        said = []
        for process in processes:
            try:
                said.append(process.communicate(timeout=PATIENCE_S)[0])
            except subprocess.TimeoutExpired:
                kill_all(processes)
                said.append(process.communicate()[0])
                self.fail(f'it does not end: {said}')
        return ''.join(said), all(not process.returncode for process in processes)


class Snapshots(Ways):
    def test_ranks__save_together_and_go_on(self):
        """As often as they are started: all ranks go on from the same snapshot."""
        for way in self.ways():
            with tempfile.TemporaryDirectory() as folder:
                sink = f'file:{folder}/{{rank}}.snap'
                command = [SIDEWIRE, 'run', '--', SUM, 'save', 'launcher', STEPS, 0, sink]
                for begun in 0, STEPS:
                    said, is_well = self.finish(way.start(command))
                    self.assertTrue(is_well, said)
                    for rank in range(RANKS):
                        self.assertIn(f'rank {rank} restored {begun}\n', said)
                        self.assertIn(f'rank {rank} durable {begun + STEPS}\n', said)


class Launchers(Ways):
    def start_endless(self, way, survives=False):
        """The processes of the launcher, and those of the ranks."""
        processes = way.start([SIDEWIRE, 'coll', 'perf', *ENDLESS], survives)
        self.addCleanup(kill_all, processes)
        pids, line = {}, ''
        while len(pids) < RANKS:
            line = processes[0].stdout.readline()
            self.assertTrue(line, f'{way.name}: it ended')
            found = re.match(r'# rank (\d+): process (\d+) on', line)
            if found:
                pids[int(found[1])] = int(found[2])
        return processes, pids

    def test_perf__ranks_find_each_other(self):
        for way in self.ways():
            said, is_well = self.finish(way.start([SIDEWIRE, 'coll', 'perf', '-v', '-e', 64]))
            self.assertTrue(is_well, said)
            self.assertEqual(said.count('# wrong values: 0'), 1, said)
            for rank in range(RANKS):
                self.assertIn(f'rank {rank} of {RANKS}, by {way.said}, meets at ', said)

    def test_program__has_its_options_from_the_launcher(self):
        for way in self.ways():
            said, is_well = self.finish(way.start([SIDEWIRE, 'run', '--', SUM]))
            self.assertTrue(is_well, said)
            for rank in range(RANKS):
                self.assertIn(f'rank {rank}: 3, ..., 3000\n', said)

    def test_death__all_others_name_it(self):
        for way in self.ways():
            processes, pids = self.start_endless(way, survives=True)
            os.kill(pids[1], signal.SIGKILL)
            said, is_well = self.finish(processes)
            self.assertFalse(is_well and LAUNCHER != 'mpirun', said)  # told to recover, it is well
            for rank in 0, 2:
                self.assertRegex(said, rf'rank {rank}: rank 1 died')

    def test_end__leaves_nothing(self):
        """The launcher is interrupted, or the job is cancelled."""
        if LAUNCHER == 'environment':
            self.skipTest('there is no launcher')
        for way in self.ways():
            self.ask_coll('status')  # removes what earlier tests have killed
            processes, pids = self.start_endless(way)
            if LAUNCHER == 'slurm':
                jobs = SLURM.ask('squeue', '-h', '-o', '%i').split()
                self.assertEqual(len(jobs), 1)
                SLURM.ask('scancel', *jobs)
            else:
                processes[0].send_signal(signal.SIGINT)
            self.finish(processes)
            for pid in pids.values():
                until(lambda pid=pid: not is_alive(pid), f'process {pid} goes on')
            if LAUNCHER == 'slurm':
                until(lambda: not SLURM.ask('squeue', '-h'), 'the job goes on')
                until(lambda: not slurm.remains(), f'{way.name} leaves {slurm.remains()}')
                self.check_pages()

    def ask_coll(self, command):
        words = [SIDEWIRE, 'coll', command, '-o', 'json']
        return json.loads(subprocess.run(words, capture_output=True, check=True).stdout)

    def check_pages(self):
        """The only files are those of pages: of one dead job, which go when somebody asks."""
        self.assertEqual(self.ask_coll('diagnose'), {'rows': [], 'dead_jobs': 1})
        self.assertEqual(self.ask_coll('status')['rows'], [])
        self.assertEqual(self.ask_coll('diagnose'), {'rows': [], 'dead_jobs': 0})
        self.assertEqual(os.listdir(f'{os.environ["XDG_RUNTIME_DIR"]}/sidewire-coll'), [])


@unittest.skipUnless(LAUNCHER in ('mpirun', 'mpiexec'), 'it starts ranks on one host here')
class TwoHosts(unittest.TestCase):
    def test_ranks__meet_by_the_network_and_are_placed_by_hosts(self):
        try:
            hosts = Hosts()
        except Skip as reason:
            self.skipTest(str(reason))
        self.addCleanup(hosts.close)
        with tempfile.TemporaryDirectory() as folder:
            agent = os.path.join(folder, 'agent')
            with open(agent, 'w', encoding='ascii') as file:
                file.write(AGENT.format(*ADDRESSES, *hosts.names))
            os.chmod(agent, 0o755)
            words = {
                'mpirun': f'mpirun.openmpi --mca plm_rsh_agent {agent} --map-by node'
                f' -H {ADDRESSES[0]}:2,{ADDRESSES[1]}:2',
                'mpiexec': f'mpiexec.hydra -launcher rsh -launcher-exec {agent} -ppn 1'
                f' -hosts {",".join(ADDRESSES)}',
            }[LAUNCHER].split()
            command = f'{SIDEWIRE} coll perf -v -b 8K -e 8K -n 2 -w 0 --algorithm halving'.split()
            process = begin([*hosts.wrap[0], *words, '-n', 4, 'sh', '-c', ON_HOST, *command])
            self.addCleanup(kill_all, [process])
            said = process.communicate(timeout=PATIENCE_S)[0]
        self.assertEqual(process.returncode, 0, said)
        self.assertEqual(said.count('# wrong values: 0'), 1, said)
        for rank in range(4):
            way = WAYS[LAUNCHER][0].said
            self.assertIn(f'rank {rank} of 4, by {way}, meets at {ADDRESSES[0]}:', said)
        self.assertIn('sums take ranks in the order 0, 2, 1, 3\n', said)


def main():
    program = WAYS[LAUNCHER][0].words
    if program and not shutil.which(program[0]):
        print(f'SKIP: {program[0]} is not installed')
        return 77
    names = ['Snapshots'] if SAVES else ['Launchers', 'TwoHosts']
    if LAUNCHER != 'slurm':
        return not unittest.main(argv=[sys.argv[0], *names], exit=False).result.wasSuccessful()
    reason = slurm.missing()
    if reason:
        print(f'SKIP: {reason}')
        return 77
    slurm.move_in()
    global SLURM
    with tempfile.TemporaryDirectory(
        prefix='sidewire-slurm-', ignore_cleanup_errors=True
    ) as folder:
        os.environ['XDG_RUNTIME_DIR'] = f'{folder}/runtime'
        os.mkdir(f'{folder}/runtime', 0o700)
        SLURM = slurm.Slurm(folder)
        try:
            return not unittest.main(argv=[sys.argv[0], *names], exit=False).result.wasSuccessful()
        finally:
            SLURM.close()


SLURM = None
if __name__ == '__main__':
    sys.exit(main())
