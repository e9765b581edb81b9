# SPDX-License-Identifier: BSD-2-Clause
"""A Ceph cluster on this machine, for tests: a monitor, a manager and three OSDs on files, all of
it below one folder and at the loopback. It ends with its owner.
"""
import ctypes
import json
import os
import shutil
import signal
import subprocess
import time
import uuid

import ports

PROGRAMS = ('ceph-mon', 'ceph-mgr', 'ceph-osd', 'monmaptool', 'ceph-authtool', 'ceph', 'rbd')
OSDS = 3
PR_SET_PDEATHSIG = 1
libc = ctypes.CDLL(None)

# Pools have two copies of each object, and one is enough to go on. Debian's defaults are for a
# machine of its own, with memory by the GiB. A host that falls silent is known in seconds.
CONF = """
[global]
fsid = {fsid}
mon host = [v2:127.0.0.1:{port}/0]
public addr = 127.0.0.1
cluster addr = 127.0.0.1
ms bind port min = {first}
ms bind port max = {last}
ms bind msgr1 = false
ms bind ipv6 = false
auth cluster required = cephx
auth service required = cephx
auth client required = cephx
auth allow insecure global id reclaim = false
keyring = {folder}/client.admin.keyring
run dir = {folder}
admin socket = {folder}/$name.$pid.asok
log file = {folder}/$name.log
log to stderr = false
err to stderr = false
pid file =
osd pool default size = 2
osd pool default min size = 1
osd pool default pg num = 8
osd pool default pg autoscale mode = off
osd crush chooseleaf type = 0
osd heartbeat grace = 6
osd heartbeat interval = 1
mon osd min down reporters = 1
mon osd down out interval = 600
mon osd reporter subtree level = osd
mon data avail warn = 1
mon data avail crit = 0
mon cluster log to file = false
[mon.a]
mon data = {folder}/mon
[mgr]
mgr data = {folder}/mgr
keyring = {folder}/mgr/keyring
mgr initial modules =
[osd]
osd data = {folder}/osd$id
keyring = {folder}/osd$id/keyring
osd objectstore = bluestore
bluestore block size = 2147483648
bluestore block db create = false
bluestore cache autotune = false
bluestore cache size = 33554432
osd memory target = 939524096
osd max write size = 64
osd scrub begin hour = 0
osd scrub load threshold = 0.01
osd op num threads per shard = 1
osd op num shards = 2
"""


def lacking():
    """Programs that are not installed."""
    return [name for name in PROGRAMS if not shutil.which(name)]


def end_with_owner():
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


class Cluster:
    """Starts it; a RuntimeError says what does not begin."""

    def __init__(self, folder):
        self.folder, self.daemons = folder, {}
        first = ports.claim(2 + 12 * OSDS)
        self.conf = os.path.join(folder, 'ceph.conf')
        self.fsid = str(uuid.uuid4())
        with open(self.conf, 'w', encoding='ascii') as file:
            text = CONF.format(
                fsid=self.fsid,
                port=first,
                first=first + 1,
                last=first + 1 + 12 * OSDS,
                folder=folder,
            )
            file.write(text)
        try:
            self.begin(first)
        except BaseException:
            self.end()
            raise

    def path(self, *parts):
        return os.path.join(self.folder, *parts)

    def tool(self, *words, seconds=60):
        tried = subprocess.run(
            words,
            capture_output=True,
            text=True,
            timeout=seconds,
            stdin=subprocess.DEVNULL,
            check=False,
        )
        if tried.returncode:
            raise RuntimeError(f'{" ".join(words)}: {tried.stderr.strip()}')
        return tried.stdout

    def ceph(self, line, seconds=60):
        return self.tool(
            'ceph', '-c', self.conf, '--connect-timeout', '20', *line.split(), seconds=seconds
        )

    def rbd(self, line, seconds=60):
        return self.tool('rbd', '-c', self.conf, *line.split(), seconds=seconds)

    def json(self, line):
        return json.loads(self.ceph(line + ' -f json'))

    def start(self, name):
        program, number = name.split('.')
        self.daemons[name] = subprocess.Popen(
            [f'ceph-{program}', '-f', '-i', number, '-c', self.conf],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=open(self.path(name + '.err'), 'wb'),
            preexec_fn=end_with_owner,
        )

    def kill(self, name):
        """As by a power cut of it alone."""
        daemon = self.daemons.pop(name)
        daemon.kill()
        daemon.wait()

    def signal(self, name, number):
        self.daemons[name].send_signal(number)

    def begin(self, port):
        admin, mon = self.path('client.admin.keyring'), self.path('mon.keyring')
        new = ['ceph-authtool', '--create-keyring', '--gen-key']
        caps = [word for who in ('mon', 'osd', 'mgr', 'mds') for word in ('--cap', who, 'allow *')]
        self.tool(*new, admin, '-n', 'client.admin', *caps)
        self.tool(*new, mon, '-n', 'mon.', '--cap', 'mon', 'allow *')
        self.tool('ceph-authtool', mon, '--import-keyring', admin)
        monmap = self.path('monmap')
        at = ['--addv', 'a', f'[v2:127.0.0.1:{port}]']
        self.tool('monmaptool', '--create', '--fsid', self.fsid, *at, monmap)
        mkfs = ['ceph-mon', '--mkfs', '-i', 'a', '-c', self.conf]
        self.tool(*mkfs, '--monmap', monmap, '--keyring', mon)
        self.start('mon.a')
        os.mkdir(self.path('mgr'))
        mgr_caps = ['mon', 'allow profile mgr', 'osd', 'allow *']
        mgr = self.tool('ceph', '-c', self.conf, 'auth', 'get-or-create', 'mgr.x', *mgr_caps)
        with open(self.path('mgr', 'keyring'), 'w', encoding='ascii') as file:
            file.write(mgr)
        self.start('mgr.x')
        for number in range(OSDS):
            self.add_osd(number)
        self.wait_for(lambda: self.json('osd stat')['num_up_osds'] == OSDS, 'three OSDs')

    def add_osd(self, number):
        name, data = str(uuid.uuid4()), self.path(f'osd{number}')
        os.mkdir(data)
        keyring = os.path.join(data, 'keyring')
        self.tool('ceph-authtool', '--create-keyring', '--gen-key', keyring, '-n', f'osd.{number}')
        with open(keyring, encoding='ascii') as file:
            secret = file.read().split('key = ')[1].strip()
        with open(self.path('secret'), 'w', encoding='ascii') as file:
            json.dump({'cephx_secret': secret}, file)
        self.ceph(f'osd new {name} {number} -i {self.path("secret")}')
        mkfs = ['ceph-osd', '--mkfs', '-i', str(number), '-c', self.conf]
        self.tool(*mkfs, '--osd-uuid', name)
        self.start(f'osd.{number}')

    def wait_for(self, is_so, what, seconds=60):
        end = time.monotonic() + seconds
        while not is_so():
            if time.monotonic() > end:
                raise RuntimeError(f'the cluster has not got {what} within {seconds} s')
            time.sleep(0.2)

    def pool(self, name):
        self.ceph(f'osd pool create {name} 8')
        self.rbd(f'pool init {name}')

    def end(self):
        for daemon in self.daemons.values():
            daemon.kill()
        for daemon in self.daemons.values():
            daemon.wait()
        self.daemons.clear()
