#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""The parts of bench/ that can be wrong without anybody seeing it: reading programs' output, ending
children, laying out."""

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import unittest
from unittest import mock

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '../../bench/lib'))

import between  # noqa: E402
import coll_gloo  # noqa: E402
import connections  # noqa: E402
import experiment as experiments  # noqa: E402
import libraries  # noqa: E402
import load  # noqa: E402
import machine  # noqa: E402
import measures  # noqa: E402
import nvme  # noqa: E402
import nvme_demo  # noqa: E402
import nvme_sweep  # noqa: E402
import plot  # noqa: E402
import pmem_pictures  # noqa: E402
import procs  # noqa: E402
import programs  # noqa: E402
import snapshot_pictures  # noqa: E402
import sweeps  # noqa: E402
import table  # noqa: E402
import tcp_programs  # noqa: E402
import torch_pictures  # noqa: E402
import torch_rows  # noqa: E402


RUN = os.path.join(os.path.dirname(os.path.abspath(__file__)), '../../bench/run')


class Programs(unittest.TestCase):
    def test_perftest_latency__typical_and_mean(self):
        text = (
            ' local address: LID 0000 QPN 0x2001 PSN 0xb6b9e5\n'
            ' #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]\n'
            ' 8       1000          0.20           9.81         0.31     \t       0.33  '
            '\t0.1\t1.2\t3.4\n'
        )
        rows = programs.parse_perftest(text, 'ib_write_lat')
        self.assertEqual(list(rows), [8])
        self.assertAlmostEqual(rows[8]['latency_s'], 0.31e-6)
        self.assertAlmostEqual(rows[8]['mean_s'], 0.33e-6)

    def test_perftest_bandwidth__mebibytes_of_each_size(self):
        text = (
            ' #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]\n'
            ' 2          5000             0.00               14.71\t\t   7.710000\n'
            ' 4          5000             0.00               29.00\t\t   7.600000\n'
        )
        rows = programs.parse_perftest(text, 'ib_write_bw')
        self.assertEqual(sorted(rows), [2, 4])
        self.assertAlmostEqual(rows[4]['bandwidth'], 29.0 * 1048576)
        self.assertAlmostEqual(rows[2]['rate'], 7.71e6)

    def test_iperf3__what_the_receiver_got(self):
        text = (
            '{"end": {"sum_sent": {"bits_per_second": 9e9}, '
            '"sum_received": {"bits_per_second": 8e9}}}'
        )
        self.assertEqual(between.parse_iperf3(text), 1e9)
        for text in ('', '{"error": "unable to connect"}', '[]'):
            with self.assertRaises(procs.RunFailed):
                between.parse_iperf3(text)

    def test_rstream__last_column(self):
        text = (
            'name      bytes   xfers   iters   total       time     Gb/sec    usec/xfer\n'
            'custom    64      1       20k     2.4m        0.06s      0.34       1.50\n'
        )
        self.assertAlmostEqual(connections.parse_rstream(text), 1.5e-6)
        with self.assertRaises(procs.RunFailed):
            connections.parse_rstream('name      bytes\nrconnect: Connection refused\n')

    def test_fio__bytes_written_behind_a_note(self):
        text = (
            'note: depth is capped\n'
            '{"jobs": [{"error": 0, "write": {"bw_bytes": 5, "lat_ns": {"mean": 9000.0}}}]}'
        )
        self.assertEqual(connections.parse_fio(text), {'bandwidth': 5, 'mean_s': 9e-6})
        for text in (
            '',
            '{"jobs": []}',
            text.replace('"error": 0', '"error": 5'),
            text.replace('"bw_bytes": 5', '"bw_bytes": 0'),
        ):
            with self.assertRaises(procs.RunFailed):
                connections.parse_fio(text)

    def test_nvme__the_side_that_was_measured(self):
        found = {'requests': 5, 'iops': 1000.0, 'mean_us': 7.0}
        row = {
            'request_bytes': 4096,
            'iodepth': 8,
            'seconds': 0.3,
            'errors': 0,
            'read': found,
            'write': {**found, 'requests': 0},
        }
        text = json.dumps({'rows': [row]})
        self.assertEqual(
            nvme.parse_rows(text, 'randread'),
            {(4096, 8): {'mean_s': 7e-6, 'rate': 1000.0, 'bandwidth': 4096000.0}},
        )
        with self.assertRaisesRegex(procs.RunFailed, '^NVMe: no request ended in 0.3 s'):
            nvme.parse_rows(text, 'randwrite')
        wrong = json.dumps({'rows': [{**row, 'errors': 1}]})
        for text, rw in (
            (wrong, 'read'),
            ('', 'read'),
            ('{"rows": []}', 'read'),
        ):
            with self.assertRaises(procs.RunFailed):
                nvme.parse_rows(text, rw)

    def test_fio_of_a_disk__the_side_that_was_measured(self):
        side = {'total_ios': 5, 'iops': 100.0, 'bw_bytes': 7, 'lat_ns': {'mean': 9000.0}}
        text = 'note\n' + json.dumps(
            {'jobs': [{'error': 0, 'read': side, 'write': {**side, 'total_ios': 0}}]}
        )
        self.assertEqual(
            nvme.parse_fio(text, 'randread'), {'mean_s': 9e-6, 'rate': 100.0, 'bandwidth': 7.0}
        )
        for text, rw in (
            (text, 'write'),
            (text.replace('"error": 0', '"error": 5'), 'read'),
            ('', 'read'),
        ):
            with self.assertRaises(procs.RunFailed):
                nvme.parse_fio(text, rw)

    def test_pictures__what_was_measured(self):
        latency = experiments.Experiment(
            'pmem_latency', 'latency', {'direct': None, 'staged': None, 'fio': None}
        )
        latency.samples = {
            'direct': [{'mean_s': 1e-6}, {'mean_s': 3e-6}],
            'staged': [{'mean_s': 4e-6}],
            'fio': [],
        }
        with tempfile.TemporaryDirectory() as folder:
            self.assertEqual(pmem_pictures.draw([], folder), [])
            files = pmem_pictures.draw([latency], folder)
            self.assertEqual(os.path.basename(files[0]), 'pmem_latency.svg')
            with open(files[0], encoding='utf-8') as file:
                drawn = file.read()
        for text in ('2.00 us', '4.00 us', 'WRITE and FLUSH'):
            self.assertIn(text, drawn)
        self.assertNotIn('fio', drawn)

    def test_pictures__steps_of_both_backends(self):
        ddp = experiments.Experiment('torch_ddp', 'steps', {'sidewire': None, 'gloo': None})
        for name, step in (('sidewire', 0.25), ('gloo', 0.5)):
            ddp.samples[name] = [{'step_s': step, 'plain_s': 0.125, 'exposed_s': step - 0.125}]
        with tempfile.TemporaryDirectory() as folder:
            self.assertEqual(torch_pictures.draw([], folder), [])
            path = torch_pictures.draw([ddp], folder)[0]
            with open(path, encoding='utf-8') as file:
                drawn = file.read()
        for text in ('250.0 ms', '500.0 ms', '125.0 ms', '375.0 ms'):
            self.assertIn(text, drawn)

    def test_pictures__each_step_is_a_dot(self):
        steps = experiments.Experiment('snapshot_steps', 'steps', {'steps': None})
        sample = {'alone_steps': [0.125, 0.25, 0.375], 'snapshots_steps': [0.5, 0.5]}
        steps.samples['steps'] = [sample] * 2
        with tempfile.TemporaryDirectory() as folder:
            self.assertEqual(snapshot_pictures.draw([], folder), [])
            path = snapshot_pictures.draw([steps], folder)[0]
            with open(path, encoding='utf-8') as file:
                drawn = file.read()
        self.assertEqual(drawn.count('<circle'), 2 * (3 + 2))
        for text in ('>without: 250.0 ms', '>with snapshots: 500.0 ms', '100 ms'):
            self.assertIn(text, drawn)

    def test_torch__the_slowest_rank_counts(self):
        ranks = ['{"step_s": 2.0, "exposed_s": 0.5}', '{"step_s": 1.5, "exposed_s": 0.75}']
        self.assertEqual(torch_rows.slowest(ranks), {'step_s': 2.0, 'exposed_s': 0.75})

    def test_redis__rate_of_the_test_asked_for(self):
        text = '"test","rps","avg_latency_ms"\n"SET","7.5","0.1"\n"GET","12345.67","0.1"\n'
        self.assertEqual(tcp_programs.parse_csv(text, 'GET'), 12345.67)
        for text in ('', '"test","rps"\n', '"GET"\n'):
            with self.assertRaises(procs.RunFailed):
                tcp_programs.parse_csv(text, 'GET')

    def test_listening_ports__also_by_rdma(self):
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as service:
            service.bind('\0sidewire.cm.s1065566.bench-test')
            self.assertIn(0x5566, procs.listening_ports())
        self.assertNotIn(0x5566, procs.listening_ports())

    def test_ucx__last_line_of_figures(self):
        text = (
            '+----+\n[thread 0]  20000  8.100  9.200  9.300  0.82  0.83  107000  107500\n'
            '10000  8.1 9.2 9.3 0.82 0.5 107000 107500\n'
        )
        found = programs.parse_ucx(text, ['ucx_perftest'])
        self.assertAlmostEqual(found['median_s'], 8.1e-6)
        self.assertAlmostEqual(found['bandwidth'], 0.5 * 1048576)
        with self.assertRaises(procs.RunFailed):
            programs.parse_ucx('', ['ucx_perftest'])

    def test_fi_pingpong__microseconds_of_its_row(self):
        head = 'bytes   #sent   #ack     total       time     MB/sec    usec/xfer   Mxfers/sec\n'
        text = head + '64      2k      =2k      250k        0.01s     17.67       3.62       0.28\n'
        self.assertAlmostEqual(libraries.parse_pingpong(text), 3.62e-6)
        for text in (head, text.replace('64 ', '128 ')):
            with self.assertRaises(procs.RunFailed):
                libraries.parse_pingpong(text)

    def test_libraries__what_is_missing_is_said(self):
        with mock.patch.object(libraries.shutil, 'which', return_value=None):
            with self.assertRaisesRegex(procs.Skipped, 'fi_pingpong is not installed'):
                libraries.fi_pingpong(mock.Mock(), 'verbs', 1)
            with self.assertRaisesRegex(procs.Skipped, 'g\\+\\+ or libgloo-dev is not installed'):
                libraries.gloo_program(mock.Mock(), 'gloo_broadcast')
        with mock.patch.object(libraries, 'GLOO', '/nowhere'), self.assertRaises(procs.Skipped):
            libraries.gloo_program(mock.Mock(), 'gloo_broadcast')


class Load(unittest.TestCase):
    def spinning(self):
        """Processor time of our children that have the least claim on it."""
        found = {}
        for pid in filter(str.isdigit, os.listdir('/proc')):
            try:
                with open(f'/proc/{pid}/stat') as stat:
                    fields = stat.read().rsplit(')', 1)[1].split()
            except OSError:  # it has just ended
                continue
            if fields[1] == str(os.getpid()) and fields[16] == '19' and fields[0] != 'Z':
                found[pid] = int(fields[11])
        return found

    def test_busy_processors__two_spin_and_are_gone_after(self):
        limit = time.monotonic() + 20
        with load.busy_processors():
            while len([ticks for ticks in self.spinning().values() if ticks > 1]) < 2:
                self.assertLess(time.monotonic(), limit)
                time.sleep(0.02)
        self.assertEqual(self.spinning(), {})

    def test_spin__ends_with_who_started_it(self):
        # No process has that number
        argv = [sys.executable, '-c', load.SPIN.format(parent=1 << 22)]
        self.assertEqual(procs.run(argv, 20), '')

    def test_nice__counts_by_session_if_the_kernel_says_so(self):
        with tempfile.NamedTemporaryFile('w') as setting:
            for text, counts in (('0', False), ('1', True)):
                setting.seek(0)
                setting.write(text)
                setting.flush()
                self.assertIs(load.counts_nice_by_session(setting.name), counts)
        self.assertFalse(load.counts_nice_by_session('/nonexistent/setting'))

    def test_machine__tells_of_the_load(self):
        self.assertNotIn('spin', machine.describe())
        with mock.patch.object(machine, 'made_load', None):
            machine.note_load(load.describe())
            self.assertIn('two processes of nice 19 that spin', machine.describe())
            self.assertEqual(machine.facts()['made_load'], load.describe())
        self.assertIsNone(machine.facts()['made_load'])

    def test_busy_option__leaves_out_what_makes_its_own(self):
        with tempfile.TemporaryDirectory() as build:
            os.makedirs(os.path.join(build, 'src/cli'))
            os.symlink('/bin/true', os.path.join(build, 'src/cli/sidewire'))
            os.makedirs(os.path.join(build, 'bench/src'))
            os.symlink('/bin/true', os.path.join(build, 'bench/src/write_rate'))
            text = procs.run([RUN, '--build', build, '--busy', '--only', 'busy'], 20)
            self.assertIn('skipped: busy: ', text)
            self.assertTrue(os.path.isdir(os.path.join(build, 'bench/busy')))

    def test_run__says_once_that_nothing_is_built(self):
        """As after `make demo`, which builds what it shows."""
        with tempfile.TemporaryDirectory() as build:
            words = [RUN, '--build', build, '--only', 'small_write']
            done = subprocess.run(words, capture_output=True, text=True, timeout=20, check=False)
            self.assertEqual((done.returncode, done.stdout), (1, ''))
            self.assertRegex(done.stderr, r'\AFAILED: no program [^\n]*; mend: make build\n\Z')
            self.assertEqual(os.listdir(build), [])


FIGURES = '''median_s mean_s p99_s p999_s rate cpu_rate bandwidth jain requests_per_s bytes_per_s
read write deep_read long_read long_write pss rss cpu_s move_s setup_s kill_s cancel_s memory
time_s exposed_s snapshots_s floor_s alone_s snapshots_slow_s alone_slow_s gate_s parts_s moved
changed cost_s commit_s whole_s'''


class Rows(unittest.TestCase):
    def test_rows__contenders_are_measured(self):
        every = measures.Bench(None, '', False).experiments()
        for experiment in every:
            for name in experiment.contenders:
                experiment.samples[name] = [dict.fromkeys(FIGURES.split(), 1.0)]
        rows = measures.Bench.rows(every)
        self.assertEqual(
            {row.experiment.key for row in rows}, {experiment.key for experiment in every}
        )
        for row in rows:
            result = row.result()
            if isinstance(row, experiments.Added):
                self.assertEqual(result['added'], 0.0 if row.peer else 1.0, row.title)
            else:
                self.assertEqual(result['ratio'], 1.0, row.title)

    def test_only__names_every_experiment(self):
        text = ' '.join(procs.run([RUN, '--help'], 20, env={'COLUMNS': '1000'}).split())
        for experiment in measures.Bench(None, '', False).experiments():
            self.assertRegex(text, rf'\b{experiment.key}\b')

    def test_experiment__place_is_left_and_may_be_missing(self):
        told = []

        class Place:
            def __enter__(self):
                told.append('in')

            def __exit__(self, *_):
                told.append('out')

        class Nowhere(Place):
            def __enter__(self):
                raise procs.Skipped('no root')

        def fails():
            raise procs.RunFailed('x')

        progress = table.Progress(1)
        progress.step = told.append
        with self.assertRaises(procs.RunFailed):
            experiments.Experiment('e', 'E', {'a': fails}, place=Place()).run(1, progress)
        self.assertEqual(told, ['in', 'E, round 1: a', 'out'])
        with self.assertRaises(procs.Skipped):
            experiments.Experiment('e', 'E', {'a': fails}, place=Nowhere()).run(1, progress)


class Children(unittest.TestCase):
    def test_run__failure_names_command_and_last_lines(self):
        with self.assertRaises(procs.RunFailed) as caught:
            procs.run(['sh', '-c', 'echo out; echo why >&2; exit 3'], 5)
        for part in ('sh -c', 'status 3', '| out', '| why'):
            self.assertIn(part, str(caught.exception))

    def test_run__time_limit_ends_the_whole_session(self):
        started = time.monotonic()
        with self.assertRaises(procs.RunFailed) as caught:
            procs.run(['sh', '-c', 'sleep 100 & echo $!; wait'], 0.5)
        self.assertLess(time.monotonic() - started, 5)
        grandchild = int(str(caught.exception).split('| ')[1])
        for _ in range(50):
            if not running(grandchild):
                break
            time.sleep(0.02)
        self.assertFalse(running(grandchild))
        self.assertEqual(procs.Child.live, {})

    def test_run_pair__server_that_fails_is_reported(self):
        with self.assertRaises(procs.RunFailed) as caught:
            procs.run_pair(['sh', '-c', 'echo no device; exit 1'], ['true'], 1, 5)
        self.assertIn('no device', str(caught.exception))

    def test_run_all__one_that_fails_is_reported_and_ends_all(self):
        self.assertEqual(procs.run_all([['echo', '1'], ['echo', '2']], 20), ['1\n', '2\n'])
        before = time.monotonic()
        with self.assertRaisesRegex(procs.RunFailed, 'no device'):
            procs.run_all([['sh', '-c', 'echo no device; exit 1'], ['sleep', '100']], 200)
        self.assertLess(time.monotonic() - before, 90)
        self.assertEqual(procs.Child.live, {})

    def test_ranks__begin_when_all_are_ready(self):
        """None sees `go` before the last one is ready, and one that fails is told."""
        line = (
            'sleep 0.$0; : >$1/ready.$0; until [ -e $1/go ]; do sleep 0.01; done; '
            'set -- $1/ready.*; echo "{\\"begun_s\\": $#, \\"first_s\\": 3$0}"'
        )
        found = coll_gloo.run_together(
            lambda rank, folder: ['sh', '-c', line, str(rank), folder], 3
        )
        self.assertEqual([rank['begun_s'] for rank in found], [3, 3, 3])
        self.assertEqual(coll_gloo.until_all_have_it(found), {'time_s': 32 - 3})
        with self.assertRaisesRegex(procs.RunFailed, 'did not become ready'):
            coll_gloo.run_together(lambda rank, folder: ['false'], 2)

    def test_run__missing_program(self):
        with self.assertRaises(procs.RunFailed):
            procs.run(['/nonexistent/program'], 5)


class LastStep(unittest.TestCase):
    """The last step of the demo. `read`: the command that stands for the host's, given the file and
    its copy."""

    def run_with(self, read):
        figures = {'mean_s': 1e-6}
        with tempfile.TemporaryDirectory() as folder:
            disk = mock.MagicMock(path=os.path.join(folder, 'disk'))
            disk.fio.return_value = figures
            target = mock.MagicMock()
            target.one.return_value = {'mean_s': 3e-6}
            target.host_argv = lambda words, command, option, copy: read(disk.path, copy)
            with open(disk.path, 'wb') as file:
                file.write(b'abc')
            disk.__enter__.return_value, target.__enter__.return_value = disk, target
            with mock.patch.object(nvme, 'Disk', return_value=disk), mock.patch.object(
                nvme, 'Target', return_value=target
            ):
                return nvme_demo.run(mock.Mock(command=[], build=''), folder)

    def test_digest__same_bytes_and_a_table(self):
        found = self.run_with(lambda path, copy: ['cp', path, copy])
        self.assertEqual(found['sha256'][:8], 'ba7816bf')
        text = '\n'.join(nvme_demo.lines_of(found))
        self.assertEqual(text.count('+2.0 us'), 4)
        self.assertEqual(text.count(' nobody  '), 2)
        found['rows'][0]['remote_s'] = 0.5e-6
        self.assertIn('none seen', '\n'.join(nvme_demo.lines_of(found)))

    def test_digest__other_bytes_fail(self):
        with self.assertRaises(procs.RunFailed):
            self.run_with(lambda path, copy: ['sh', '-c', f'echo abd > {copy}'])


class Verdicts(unittest.TestCase):
    def test_verdict__times(self):
        self.assertEqual(experiments.verdict(0.99, 1.5, 1.0, True), 'aim')
        self.assertEqual(experiments.verdict(1.5, 1.5, 1.0, True), 'yes')
        self.assertEqual(experiments.verdict(1.51, 1.5, 1.0, True), 'NO')

    def test_verdict__rates(self):
        self.assertEqual(experiments.verdict(3.0, 1.3, 3.0, False), 'aim')
        self.assertEqual(experiments.verdict(1.29, 1.3, 3.0, False), 'NO')

    def test_row__best_setting_of_the_peer(self):
        experiment = experiments.Experiment(
            'e', 'E', {'a': None, 'UCX put [x]': None, 'UCX put [y]': None}
        )
        experiment.samples = {
            'a': [{'t': 2.0}] * 3,
            'UCX put [x]': [{'t': 4.0}] * 3,
            'UCX put [y]': [{'t': 1.0}] * 3,
        }
        row = experiments.Row('r', experiment, 'a', 'UCX put', 't', 's', True, 1.5, 1.0)
        self.assertEqual(row.result()['peer_name'], 'UCX put [y]')
        self.assertEqual((row.result()['ratio'], row.result()['met']), (2.0, 'NO'))
        rate = experiments.Row('r', experiment, 'a', 'UCX put', 't', 's', False, 0.5, 0.6)
        self.assertEqual(rate.result()['peer_name'], 'UCX put [x]')

    def test_added__above_the_best_peer_or_alone(self):
        experiment = experiments.Experiment('e', 'E', {'a': None, 'local': None})
        experiment.samples = {'a': [{'t': 15.0}] * 3, 'local': [{'t': 9.0}] * 3}
        row = experiments.Added('r', experiment, 'a', 'local', 't', 'us', 10.0, 4.0).result()
        self.assertEqual((row['added'], row['met'], row['ratio']), (6.0, 'yes', None))
        alone = experiments.Added('r', experiment, 'a', None, 't', 'us', 10.0, 4.0).result()
        self.assertEqual((alone['added'], alone['met'], alone['peer']), (15.0, 'NO', None))


class Layout(unittest.TestCase):
    def test_spread_labels__apart_and_within(self):
        moved = plot.spread_labels([(100, 'a'), (101, 'b'), (102, 'c')], 0, 110)
        ys = [y for y, _ in moved]
        self.assertTrue(all(b - a >= plot.LABEL_STEP for a, b in zip(ys, ys[1:])))
        self.assertLessEqual(ys[-1], 110)
        self.assertEqual([label for _, label in moved], ['a', 'b', 'c'])

    def test_aligned__columns(self):
        lines = table.aligned(['a', 'b'], [['x', '1'], ['long', '22']])
        self.assertEqual(lines[0], 'a      b')
        self.assertEqual(lines[2:], ['x      1', 'long  22'])

    def test_figures__three_digits_and_units(self):
        self.assertEqual(table.latency_text(0.31e-6), '0.31 us')
        self.assertEqual(table.latency_text(2.5e-3), '2.50 ms')
        self.assertEqual(table.bandwidth_text(28.7e9), '28.7 GB/s')
        self.assertEqual(table.bandwidth_text(16.3e6), '16.3 MB/s')
        self.assertEqual(table.size_text(65536), '64 KiB')


def running(pid):
    try:
        with open(f'/proc/{pid}/stat') as stat:
            return stat.read().rsplit(')', 1)[1].split()[0] != 'Z'
    except OSError:
        return False


class Sweeps(unittest.TestCase):
    LATENCY = {size: {'latency_s': 3e-6 * size, 'median_s': 4e-6 * size} for size in (2, 8, 64)}
    BANDWIDTH = {size: {'bandwidth': 1e8 * size} for size in (2, 8, 64)}

    def draw(self, data):
        with tempfile.TemporaryDirectory() as out:
            files = sweeps.TwoHosts(None).draw(data, out)
            if not files:
                return ''
            with open(files[0]) as file:
                return file.read()

    def test_two_hosts__both_sides_in_both_panels(self):
        text = self.draw(
            {
                'ours': {'ib_write_bw': self.BANDWIDTH, 'ib_write_lat': self.LATENCY},
                'ucx': {'ucp_put_bw': self.BANDWIDTH, 'ucp_put_lat': self.LATENCY},
            }
        )
        self.assertEqual(text.count('>Sidewire<'), 2)
        self.assertEqual(text.count('>UCX, TCP<'), 2)

    def test_two_hosts__what_failed_is_left_out(self):
        text = self.draw({'ours': {'ib_write_lat': self.LATENCY}, 'ucx': {}})
        self.assertEqual(text.count('>Sidewire<'), 1)
        self.assertNotIn('WRITE bandwidth', text)
        self.assertEqual(self.draw({'ours': {}, 'ucx': {}}), '')

    def test_nvme__four_lines_in_each_panel_of_both_pictures(self):
        rows = [
            {
                'line': f'{where} {what}',
                'size_bytes': size,
                'depth': depth,
                'mean_s': 1e-6 * depth,
                'bandwidth': 1.0 * size * depth,
            }
            for where in ('local', 'remote')
            for what in ('read', 'write')
            for size, depth in nvme_sweep.Disk.POINTS
        ]
        with tempfile.TemporaryDirectory() as out:
            files = [
                name
                for name in nvme_sweep.Disk(None).draw({'rows': rows}, out)
                if name.endswith('.svg')
            ]
            self.assertEqual(len(files), 2)
            for name in files:
                with open(name) as file:
                    text = file.read()
                self.assertEqual(text.count('<polyline'), 8)
                self.assertEqual(text.count('>remote write<'), 2)

    def test_peer__each_size_by_both_tests_and_failures_apart(self):
        def run(test, size, count):
            if size == 2:
                raise procs.RunFailed('no')
            return {'count': count}

        failed = []

        def attempt(action):
            try:
                return action()
            except procs.RunFailed as failure:
                failed.append(failure)
                return None

        rows = sweeps.ucx_rows(mock.Mock(), attempt, run, '')
        self.assertEqual(len(failed), 2)
        self.assertEqual(sorted(rows), ['ucp_put_bw', 'ucp_put_lat'])
        self.assertEqual(sorted(rows['ucp_put_bw']), sweeps.PEER_SIZES[1:])
        self.assertEqual(rows['ucp_put_bw'][8 << 20]['count'], 128)


if __name__ == '__main__':
    unittest.main(warnings='ignore')
