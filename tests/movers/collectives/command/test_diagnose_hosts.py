#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""sidewire coll diagnose of a job on two hosts, while it runs: a rank that is stopped, and one that
is killed. Each host is asked for itself, and both together.

usage: test_diagnose_hosts.py SIDEWIRE
"""
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.append(os.path.join(HERE, '../../../apps'))
import hosts  # noqa: E402
from pair import Skip  # noqa: E402

SIDEWIRE = sys.argv[1]
PATIENCE_S = 60
RANKS = 4  # by turns on both hosts: 0 and 2 on the first
STOPPED, KILLED = 3, 1
ENDLESS = '-b 64 -e 64 -n 1000000000 -c 0 --deadline 600000'.split()


def host_of(rank):
    return rank % 2


class TwoHosts(unittest.TestCase):
    def setUp(self):
        try:
            self.two = hosts.Hosts(1500)
        except Skip as reason:
            self.skipTest(str(reason))
        self.addCleanup(self.two.close)
        folder = tempfile.TemporaryDirectory(prefix='coll_hosts.')
        self.addCleanup(folder.cleanup)
        self.folders = [os.path.join(folder.name, name) for name in 'ab']
        for name in self.folders:
            os.mkdir(name, 0o700)
        self.ranks = [self.start(rank) for rank in range(RANKS)]

    def begin(self, host, *words, **how):
        """A command on a host, which has its own files of pages, and a number of its own."""
        variables = {
            **os.environ,
            'XDG_RUNTIME_DIR': self.folders[host],
            'SIDEWIRE_COLL_HOST': str(1 + host),
            'SIDEWIRE_COLL_DUMP': f'{self.folders[host]}/failed',
        }
        command = [*self.two.wrap[host], SIDEWIRE, 'coll', *map(str, words)]
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=variables, **how)

    def start(self, rank):
        host = host_of(rank)
        where = f'--ranks {RANKS} --rank {rank} --meet {hosts.ADDRESSES[0]}:4450'.split()
        process = self.begin(
            host,
            *('perf', *where, '--local', hosts.ADDRESSES[host], *ENDLESS),
            stderr=subprocess.STDOUT,
        )
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        return process

    def ask(self, host, *words):
        said = self.begin(host, *words).communicate(timeout=PATIENCE_S)[0]
        return json.loads(said)

    def until(self, found, what):
        limit = time.monotonic() + PATIENCE_S
        while time.monotonic() < limit:
            value = found()
            if value:
                return value
            self.assertFalse([one for one in self.ranks if one.poll() not in (None, -9)])
            time.sleep(0.05)
        raise AssertionError(f'waited in vain: {what}')

    def pids(self):
        """The processes of the ranks, once all of them are at work."""
        rows = [row for host in (0, 1) for row in self.ask(host, *'status -o json'.split())['rows']]
        is_there = len(rows) == RANKS and all(row['number'] > 10 for row in rows)
        return is_there and {row['rank']: row['pid'] for row in rows}

    def of_both(self, name):
        """What the dumps of both hosts say, which somebody has brought together."""
        for host, folder in enumerate(self.folders):
            self.ask(host, 'dump', '-o', 'json', f'{folder}/{name}')
        places = [f'{folder}/{name}' for folder in self.folders]
        return self.ask(0, 'diagnose', '-o', 'json', *places)['rows']

    def of_one(self, host, verdict):
        rows = self.ask(host, *'diagnose -o json'.split())['rows']
        return [row for row in rows if row['verdict'] == verdict]

    def test_stopped__is_named_on_both_hosts_and_by_both_together(self):
        pids = self.until(self.pids, 'four ranks at work')
        os.kill(pids[STOPPED], signal.SIGSTOP)
        self.addCleanup(os.kill, pids[STOPPED], signal.SIGCONT)
        others = [rank for rank in range(RANKS) if rank != STOPPED]

        def is_told():
            rows = [row for row in self.of_both('late') if row['verdict'] == 'awaited']
            return rows and rows[0]['rank'] == STOPPED and rows[0]['waits_ms'] > 100 and rows[0]

        told = self.until(is_told, 'the dumps of both hosts name the stopped rank')
        self.assertIn('its process is stopped', told['text'])
        self.assertEqual(told['collective'], 'all_reduce')
        self.assertTrue(told['waiting'] and set(told['waiting']) <= set(others), told)
        # The host where it is knows that it is stopped. The other one has ranks that wait for it,
        # or for its neighbour that does, and no page of either.
        (own,) = self.of_one(host_of(STOPPED), 'awaited')
        self.assertEqual(own['rank'], STOPPED)
        self.assertIn('its process is stopped', own['text'])
        far = 1 - host_of(STOPPED)
        (apart,) = self.of_one(far, 'awaited')
        self.assertEqual(host_of(apart['rank']), host_of(STOPPED), apart)
        self.assertIn('has no dump', apart['text'])
        (absent,) = self.of_one(far, 'no dump')
        self.assertIn('there is no dump of ranks 1 and 3', absent['text'])

    def test_killed__is_named_on_both_hosts(self):
        pids = self.until(self.pids, 'four ranks at work')
        os.kill(pids[KILLED], signal.SIGKILL)
        for rank, process in enumerate(self.ranks):
            said = process.communicate(timeout=PATIENCE_S)[0]
            if rank != KILLED:
                self.assertRegex(said, rf'rank {rank}: rank {KILLED} died')
        # Each rank that is left has written its dump; the killed one's record is on its host.
        for host in (0, 1):
            left = [rank for rank in range(RANKS) if host_of(rank) == host and rank != KILLED]
            names = os.listdir(f'{self.folders[host]}/failed')
            found = sorted(int(re.search(r'-(\d+)\.json', name)[1]) for name in names)
            self.assertEqual(found, left)
            words = ['diagnose', '-o', 'json', f'{self.folders[host]}/failed']
            rows = self.ask(host, *words)['rows']
            self.assertEqual([one['rank'] for one in rows if one['verdict'] == 'gone'], [KILLED])
        rows = self.of_both('failed')
        (gone,) = [row for row in rows if row['verdict'] == 'gone']
        self.assertEqual(gone['rank'], KILLED)
        self.assertIn('its last one', gone['text'])
        self.assertNotIn('no dump', [row['verdict'] for row in rows])
        self.assertNotIn('differs', [row['verdict'] for row in rows])


if __name__ == '__main__':
    unittest.main(argv=sys.argv[:1])
