#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""fio by its engine for NVMe over RDMA, beside the target: what it writes it reads, and what fails
it tells.

usage: test_fio.py GROUP auto|roce SIDEWIRE [ENGINE]
"""
import json
import os
import subprocess
import sys
import tempfile
import time

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), '..'))
from programs import HOST_NQN, MIB, NQN, PORT, SECRETS, Target, say  # noqa: E402

RAM, DISK, NULL, READ_ONLY, FAULTY, TIER = 1, 2, 3, 4, 5, 6
DISK_BYTES = 32 * MIB
NO_PORT = PORT + 1  # where nobody listens


class Fio:
    def __init__(self, sidewire, engine, folder):
        self.sidewire, self.engine, self.folder = sidewire, engine, folder

    def start(self, **options):
        words = {
            'ioengine': f'external:{self.engine}',
            'traddr': '127.0.0.1',
            'trsvcid': PORT,
            'nqn': NQN,
            'thread': 1,
            'bs': '4k',
            'size': '8m',
            'verify_state_save': 0,
            **options,
        }
        path = os.path.join(self.folder, 'job.fio')
        with open(path, 'w', encoding='utf-8') as file:
            file.write(
                '[job]\n'
                + ''.join(f'{name}={value}\n' for name, value in words.items() if value is not None)
            )
        return subprocess.Popen(
            [self.sidewire, 'run', '--', 'fio', '--output-format=json', path],
            cwd=self.folder,
            text=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def finish(self, running):
        """Status, what it said, and what it measured of each job."""
        out, err = running.communicate(timeout=100)
        begins = out.find('{')
        try:
            jobs = json.JSONDecoder().raw_decode(out[begins:])[0]['jobs'] if begins >= 0 else []
        except ValueError:
            jobs = []
        return running.returncode, out[:begins] + err, jobs

    def run(self, **options):
        return self.finish(self.start(**options))

    def works(self, what, **options):
        status, text, jobs = self.run(**options)
        return say(status == 0 and jobs and not any(job['error'] for job in jobs), what, text), jobs


def total(jobs, what):
    return sum(job[what]['total_ios'] for job in jobs)


def target_status(fio):
    """All that the target tells of itself, and its namespaces by number."""
    tried = subprocess.run(
        [fio.sidewire, 'nvme', 'target', 'status', '-o', 'json'],
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    status = json.loads(tried.stdout)
    return status, {one['nsid']: one for one in status['subsystems'][0]['namespaces']}


def wait_for_load(fio, running, what, jobs=1):
    """Until each job has its queue, and the target work. A job that begins later finds no target
    and ends."""
    while running.poll() is None:
        status, namespaces = target_status(fio)
        queues = sum(one['io_queues'] for one in status['subsystems'][0]['controllers'])
        if queues >= jobs and namespaces[1][what] >= 100:
            return
        time.sleep(0.02)


def verified(fio, disk):
    for path, size in ((disk + '.below', DISK_BYTES), (disk + '.log', 6 * MIB)):
        with open(path, 'wb') as file:
            file.truncate(size)
    tier = f'tier:{disk}.below,bs=512,log={disk}.log,ram=4M,nsid={TIER}'
    target = Target(fio.sidewire, 'ram:32M,bs=512', f'file:{disk},bs=4096', tier)
    good = True
    wants = {
        'verify': 'crc32c',
        'verify_fatal': 1,
        'iodepth': 16,
        'numjobs': 2,
        'offset_increment': '8m',
        'group_reporting': 1,
    }
    for thread, kind in ((1, 'threads'), (0, 'processes')):
        for nsid, where, rw in ((RAM, 'ram', 'randwrite'), (DISK, 'file', 'randrw')):
            done, jobs = fio.works(
                f'{where}: {rw} by two {kind}, verified', nsid=nsid, rw=rw, thread=thread, **wants
            )
            good = done and total(jobs, 'read') > 0 and total(jobs, 'write') > 0 and good
    done, _ = fio.works(
        'blocks of 512 bytes to 1 MiB, 128 at a time, in a queue of 8',
        nsid=RAM,
        rw='randrw',
        bs=None,
        bsrange='512-1m',
        bs_unaligned=0,
        iodepth=128,
        queue_size=8,
        size='16m',
        verify='crc32c',
        verify_fatal=1,
    )
    good = done and good
    done, _ = fio.works(
        'the same on a tier whose log is full most of the time',
        nsid=TIER,
        rw='randrw',
        bs=None,
        bsrange='512-1m',
        bs_unaligned=0,
        iodepth=32,
        size='24m',
        verify='crc32c',
        verify_fatal=1,
    )
    good = done and good
    for poll in (0, 1):
        done, _ = fio.works(
            f'write, poll={poll}: in order, by READs alone',
            nsid=RAM,
            rw='write',
            poll=poll,
            in_capsule=0,
            verify='crc32c',
            size='2m',
            verify_fatal=1,
        )
        good = done and good
    return say(target.end() == 0, 'SIGTERM: the target ends by itself') and good


def is_not_the_page_cache(fio, disk):
    """What it reads is the target's: a byte that is changed there is found."""
    good, _ = fio.works(
        'file: written, to be verified later',
        nsid=DISK,
        rw='write',
        verify='crc32c',
        do_verify=0,
        iodepth=4,
        fsync=64,
        end_fsync=1,
    )
    with open(disk, 'r+b') as file:
        file.seek(3 * MIB + 2000)
        was = file.read(1)
        file.seek(3 * MIB + 2000)
        file.write(bytes([was[0] ^ 1]))
        os.fsync(file.fileno())
    status, text, _ = fio.run(nsid=DISK, rw='write', verify='crc32c', verify_only=1, iodepth=4)
    good = (
        say(
            status != 0 and 'verify' in text,
            'file: a bit that is not what was written is found',
            text,
        )
        and good
    )
    done, _ = fio.works('file: written again', nsid=DISK, rw='write', verify='crc32c', iodepth=4)
    return done and good


def depths(fio):
    good = True
    for iodepth in (1, 128):
        for poll in (0, 1):
            done, jobs = fio.works(
                f'null: iodepth={iodepth}, poll={poll}',
                nsid=NULL,
                rw='randread',
                iodepth=iodepth,
                poll=poll,
                numjobs=2,
            )
            good = (
                say(total(jobs, 'read') == 2 * 8 * MIB // 4096, '  every read is counted', jobs)
                and done
                and good
            )
    before = target_status(fio)[1][NULL]['writes']
    done, jobs = fio.works(
        'null: requests that take several commands',
        nsid=NULL,
        rw='write',
        bs='3m',
        size='24m',
        iodepth=4,
    )
    commands = target_status(fio)[1][NULL]['writes'] - before
    return (
        say(
            total(jobs, 'write') == 8 and commands > 8,
            f'  {commands} commands, and 8 requests are counted',
            jobs,
        )
        and done
        and good
    )


def flushed_and_trimmed(fio, disk):
    before = target_status(fio)[0]['commands']
    good, jobs = fio.works(
        'file: fsync=1 and sync=1', nsid=DISK, rw='write', size='1m', fsync=1, sync=1
    )
    commands = target_status(fio)[0]['commands'] - before
    good = (
        say(
            total(jobs, 'sync') >= 255 and commands >= 256 + 255,
            f'  a flush for each write: {commands} commands',
            jobs,
        )
        and good
    )
    done, _ = fio.works('file: filled', nsid=DISK, rw='write', bs='64k', size=DISK_BYTES)
    good = done and good
    done, jobs = fio.works(
        'file: trim', nsid=DISK, rw='randtrim', bs='64k', iodepth=8, size='4m', offset='4m'
    )
    with open(disk, 'rb') as file:
        data = file.read()
    kept, gone = data[: 4 * MIB] + data[8 * MIB :], data[4 * MIB : 8 * MIB]
    good = (
        say(
            total(jobs, 'trim') == 64 and not any(gone) and kept.count(b'\0') < len(kept) // 2,
            '  what was trimmed is zero, and no more',
            jobs,
        )
        and done
        and good
    )
    return good


def refused(fio):
    good = True
    for what, words, options in (
        (
            'a port where nobody listens',
            [f'127.0.0.1:{NO_PORT}', 'is the target running, and is the port right'],
            {'trsvcid': NO_PORT},
        ),
        ('what is no port', ['port -1: a port is a number'], {'trsvcid': -1}),
        ('an address that is none', ['no.such.invalid'], {'traddr': 'no.such.invalid'}),
        ('another subsystem', ['nqn.2026-01.test:none'], {'nqn': 'nqn.2026-01.test:none'}),
        ('a namespace that is not there', ['namespace 77', 'Invalid Namespace'], {'nsid': 77}),
        ('no address', ['traddr= and nqn= are needed', 'sidewire nvme discover'], {'traddr': None}),
        ('half a block', ['namespace 2', '4096'], {'nsid': DISK, 'bs': 512}),
        ('two files', ['one file'], {'nrfiles': 2}),
        ('other threads that submit', ['offload'], {'io_submit_mode': 'offload'}),
        (
            'a write to a read-only namespace',
            ['write of block', 'Namespace is Write Protected', 'Read-only file system'],
            {'nsid': READ_ONLY, 'rw': 'write'},
        ),
        ('a target that fails', ['read of block', 'Input/output error'], {'nsid': FAULTY}),
    ):
        status, text, _ = fio.run(**{'rw': 'read', 'thread': 0, **options})
        good = (
            say(
                status != 0 and all(word in text for word in words),
                f'{what}: it says so',
                status,
                text,
            )
            and good
        )
    return good


def restarted(fio, disk):
    """The target is killed under load and comes again: no request is lost."""
    good = True
    for thread, kind in ((1, 'threads'), (0, 'processes')):
        os.truncate(disk, 0)
        os.truncate(disk, DISK_BYTES)
        target = Target(fio.sidewire, f'file:{disk}')
        running = fio.start(
            rw='randwrite',
            thread=thread,
            iodepth=16,
            numjobs=2,
            offset_increment='16m',
            size='16m',
            rate_iops=1500,
            verify='crc32c',
            verify_fatal=1,
            reconnect_delay=1,
            ctrl_loss_tmo=60,
        )
        wait_for_load(fio, running, 'writes', 2)
        target.process.kill()
        target.process.wait()
        target = Target(fio.sidewire, f'file:{disk}')
        status, text, jobs = fio.finish(running)
        good = (
            say(
                status == 0 and text.count('came back') == 2 and total(jobs, 'write') == 2 * 4096,
                f'a target that was killed and came again: two {kind} go on, verified',
                status,
                text,
            )
            and good
        )
        target.end()
    return good


def failed_over(fio, disk):
    """Two targets serve one file, and one is killed for good: the job goes on by the other path."""
    os.truncate(disk, 0)
    os.truncate(disk, DISK_BYTES)
    spec = f'file:{disk},shared'
    target = Target(fio.sidewire, spec)
    words = [fio.sidewire, 'nvme', 'target', '-l', f'127.0.0.1:{PORT + 1}', '-n', spec]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as second:
        while 'Ctrl-C' not in second.stdout.readline():
            pass
        running = fio.start(
            traddr=f'127.0.0.1,127.0.0.1:{PORT + 1}',
            iopolicy='round-robin',
            quiesce_tmo=0,
            rw='randwrite',
            iodepth=16,
            rate_iops=1500,
            verify='crc32c',
            verify_fatal=1,
        )
        status = {'subsystems': [{'namespaces': [{'writes': 0}]}]}
        while running.poll() is None and status['subsystems'][0]['namespaces'][0]['writes'] < 100:
            tried = subprocess.run(
                [fio.sidewire, *f'nvme target status -o json --pid {second.pid}'.split()],
                capture_output=True,
                text=True,
                timeout=30,
                check=True,
            )
            status = json.loads(tried.stdout)
        second.kill()
    code, text, jobs = fio.finish(running)
    good = say(
        code == 0 and total(jobs, 'write') == 2048,
        'a target of two is killed: the job goes on by the other path, verified',
        code,
        text,
    )
    return say(target.end() == 0, 'SIGTERM: the other target ends by itself') and good


def given_up(fio, _disk):
    """It does not come again: requests end with an error."""
    target = Target(fio.sidewire, 'null:64M')
    running = fio.start(
        rw='randread', time_based=1, runtime=60, iodepth=4, reconnect_delay=1, ctrl_loss_tmo=1
    )
    wait_for_load(fio, running, 'reads')
    target.process.kill()
    target.process.wait()
    status, text, _ = fio.finish(running)
    return say(
        status != 0 and 'read of block' in text,
        'a target that stays away: given up, with an error',
        status,
        text,
    )


def beside_a_target(fio, disk):
    target = Target(
        fio.sidewire,
        'ram:32M,bs=512',
        f'file:{disk},bs=4096',
        'null:64M',
        'null:64M,ro',
        'ram:8M,error=100%',
    )
    good = is_not_the_page_cache(fio, disk)
    good = depths(fio) and good
    good = flushed_and_trimmed(fio, disk) and good
    good = refused(fio) and good
    return say(target.end() == 0, 'SIGTERM: the target ends by itself') and good


def authenticated(fio, _disk):
    """With the secrets of host and target it writes and reads; without, or with wrong ones, it says
    why not."""
    own, its = (os.path.join(fio.folder, name) for name in ('own', 'its'))
    for path, secret in ((own, SECRETS[0]), (its, SECRETS[1])):
        with open(path, 'w', encoding='ascii') as file:
            file.write(secret + '\n')
    target = Target(
        fio.sidewire,
        'ram:32M',
        options=[
            '--dhchap-secret',
            f'{HOST_NQN}=@{own}',
            '--dhchap-ctrl-secret',
            f'{HOST_NQN}=@{its}',
        ],
    )
    load = {
        'hostnqn': HOST_NQN,
        'rw': 'randwrite',
        'iodepth': 4,
        'verify': 'crc32c',
        'verify_fatal': 1,
        'numjobs': 2,
        'offset_increment': '8m',
    }
    good = True
    for what, options in (
        ('its own secret', {'dhchap_secret': SECRETS[0]}),
        (
            'secrets of files, both ways',
            {'dhchap_secret': f'@{own}', 'dhchap_ctrl_secret': f'@{its}', 'thread': 0},
        ),
    ):
        done, jobs = fio.works(f'authentication: {what}', **load, **options)
        good = say(total(jobs, 'write') == 2 * 2048, '  all is written', jobs) and done and good
    for said, options in (
        ('wants authentication', {}),
        ('a response is wrong', {'dhchap_secret': SECRETS[1]}),
        ('does not prove', {'dhchap_secret': SECRETS[0], 'dhchap_ctrl_secret': SECRETS[0]}),
        ('not valid', {'dhchap_secret': 'secret'}),
        ('No such file', {'dhchap_secret': f'@{own}x'}),
        ('goes with a dhchap_secret', {'dhchap_ctrl_secret': f'@{its}'}),
    ):
        status, text, _ = fio.run(**load, **options)
        good = say(status != 0 and said in text, f'authentication: {said}', status, text) and good
    return say(target.end() == 0, 'SIGTERM: the target ends by itself') and good


GROUPS = {
    'authenticated': authenticated,
    'verified': verified,
    'edges': beside_a_target,
    'restarted': restarted,
    'failed_over': failed_over,
    'given_up': given_up,
}


def main(group, sidewire, engine):
    with tempfile.TemporaryDirectory() as folder:
        os.environ['XDG_RUNTIME_DIR'] = folder  # where a target has the socket by which it is asked
        disk = os.path.join(folder, 'disk')
        with open(disk, 'wb') as file:
            file.truncate(DISK_BYTES)
        return 0 if GROUPS[group](Fio(sidewire, engine, folder), disk) else 1


if __name__ == '__main__':
    if len(sys.argv) < 5:
        print(
            'SKIP: the engine is not built: scripts/fio-source had no source of the installed fio '
            '(-Dfio_source)'
        )
        sys.exit(77)
    if sys.argv[2] == 'roce':
        os.environ['SIDEWIRE_LINK'] = 'roce'
    sys.exit(main(sys.argv[1], *map(os.path.abspath, sys.argv[3:])))
