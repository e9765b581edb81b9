# SPDX-License-Identifier: BSD-2-Clause
"""A Slurm of one node for a test: controller and node in a folder, in namespaces of network and
processes of their own, so that all of it ends with the test."""
import contextlib
import os
import shutil
import subprocess
import sys
import time

MOVED = 'SIDEWIRE_TEST_IN_SLURM'
PATIENCE_S = 60
PROGRAMS = ('slurmctld', 'slurmd', 'srun', 'sinfo', 'scancel', 'squeue')
PLUGINS = '/usr/lib/x86_64-linux-gnu/slurm-wlm'
NETWORK = (
    # What is left in memory is of this test.
    'mount -t tmpfs none /dev/shm &&'
    ' ip link set lo up && ip link add sw0 type veth peer name sw1 &&'
    # Slurm looks for addresses as glibc does for hosts that have one beside the loopback.
    ' ip addr add 10.77.0.1/24 dev sw0 && ip link set sw0 up && ip link set sw1 up &&'
    ' exec "$0" "$@"'
)
# No munge: everybody here is this test. Its port is nobody else's in this network.
CONFIGURATION = '''ClusterName=test
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort=26817
SlurmdPort=26818
AuthType=auth/none
CredType=cred/none
SlurmUser=root
SlurmdUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/controller.pid
SlurmdPidFile={folder}/node.pid
SlurmctldLogFile={folder}/controller.log
SlurmdLogFile={folder}/node.log
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SchedulerType=sched/builtin
KillWait=1
NodeName=node1 NodeAddr=127.0.0.1 NodeHostname=localhost CPUs=8 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
'''


def missing():
    """Why there can be none here; None: it can be tried."""
    for name in PROGRAMS:
        if not shutil.which(name):
            return f'{name} is not installed (slurm-wlm)'
    if os.geteuid():
        return 'Slurm of a test needs root, for namespaces'
    if (
        MOVED not in os.environ
        and subprocess.run(
            'unshare --net --pid --fork --mount-proc true'.split(), check=False
        ).returncode
    ):
        return 'no namespaces of networks and processes can be made here'
    return None


def has_plugin(name):
    return os.path.exists(f'{PLUGINS}/mpi_{name}.so')


def move_in():
    """Begins this program anew in namespaces of its own."""
    if MOVED in os.environ:
        return
    os.environ[MOVED] = '1'
    words = 'unshare --net --pid --fork --kill-child --mount-proc sh -c'.split()
    os.execvp(words[0], [*words, NETWORK, sys.executable, *sys.argv])


def remains():
    """What there is of a job in the namespaces of this test: processes, shared memory, sockets."""
    found = [f'/dev/shm/{name}' for name in os.listdir('/dev/shm')]
    for pid in filter(str.isdigit, os.listdir('/proc')):
        with contextlib.suppress(OSError):
            with open(f'/proc/{pid}/cmdline', encoding='utf-8', errors='replace') as file:
                words = file.read().split('\0')
            if int(pid) != os.getpid() and 'sidewire' in os.path.basename(words[0]):
                found.append(f'process {pid}: {" ".join(words)}')
    with open('/proc/net/unix', encoding='utf-8', errors='replace') as file:
        found += [line.split()[-1] for line in file if 'sidewire' in line.split()[-1]]
    return found


class Slurm:
    def __init__(self, folder):
        self.folder = folder
        for name in 'state', 'spool', 'pmix':
            os.mkdir(f'{folder}/{name}')
        # The plugin's own choice is /tmp, by the number of the job, which other tests have, too: a
        # directory of one that runs, or of one that was killed, is in the way.
        with open(f'{folder}/mpi.conf', 'w', encoding='ascii') as file:
            file.write(f'PMIxCliTmpDirBase={folder}/pmix\n')
        with open(f'{folder}/slurm.conf', 'w', encoding='ascii') as file:
            file.write(CONFIGURATION.format(folder=folder))
        os.environ['SLURM_CONF'] = f'{folder}/slurm.conf'
        self.daemons = [
            self.begin('controller', 'slurmctld', '-D'),
            self.begin('node', 'slurmd', '-D', '-N', 'node1'),
        ]
        limit = time.monotonic() + PATIENCE_S
        while self.ask('sinfo', '-h', '-o', '%T') != 'idle':
            if time.monotonic() > limit or any(one.poll() is not None for one in self.daemons):
                raise AssertionError(f'Slurm does not start: {self.tell()}')
            time.sleep(0.1)

    def begin(self, name, *words):
        with open(f'{self.folder}/{name}.out', 'wb') as out:
            return subprocess.Popen(words, stdout=out, stderr=out)

    def ask(self, *words):
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        return done.stdout.strip()

    def tell(self):
        said = []
        for name in 'controller', 'node':
            with open(f'{self.folder}/{name}.out', encoding='utf-8', errors='replace') as file:
                said += [f'{name}:', *file.read().splitlines()[-10:]]
        return '\n'.join(said)

    def close(self):
        for one in reversed(self.daemons):
            one.terminate()
        for one in self.daemons:
            try:
                one.wait(timeout=10)
            except subprocess.TimeoutExpired:
                one.kill()
                one.wait()
