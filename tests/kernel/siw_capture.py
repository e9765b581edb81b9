# SPDX-License-Identifier: BSD-2-Clause
"""What passes between our iWARP device and siw, read by tshark."""
import os
import shutil
import subprocess
import tempfile
import time

import kernel_guest as guest

PACKETS = 20000
LAST_SECONDS = 1.5  # until tcpdump has what the kernel has
FIELDS = [
    *'frame.number tcp.stream ip.src iwarp_mpa.key.req iwarp_mpa.key.rep'.split(),
    *'iwarp_mpa.crc_flag iwarp_mpa.ulpdulength iwarp_rdma.opcode _ws.malformed'.split(),
    *'_ws.expert.message'.split(),
]


def has_tshark():
    return shutil.which('tshark') and shutil.which('tcpdump')


class Capture:
    """The TCP connections on the bridge, from their beginning on."""

    def __enter__(self):
        self.folder = tempfile.TemporaryDirectory()
        self.file = os.path.join(self.folder.name, 'siw.pcap')
        self.process = subprocess.Popen(
            [
                guest.PEER,
                *f'host tcpdump -Z root -q -i br0 -s 0 -U -B 16384 -c {PACKETS}'.split(),
                '-w',
                self.file,
                'tcp',
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        self.process.stderr.readline()  # it listens
        return self

    def __exit__(self, *_):
        self.end()
        self.folder.cleanup()

    def end(self):
        if self.process.poll() is None:
            self.process.terminate()
        self.process.wait()

    def judge(self, askers):
        """What was seen, and what is wrong with it. The connections that these addresses begin have
        CRCs, others have none."""
        time.sleep(LAST_SECONDS)
        self.end()
        command = [
            'tshark',
            '-n',
            '-r',
            self.file,
            *'-Y iwarp_mpa -T fields -E separator=/t'.split(),
        ]
        for field in FIELDS:
            command += ['-e', field]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        return judge_rows(
            [dict(zip(FIELDS, line.split('\t'))) for line in done.stdout.splitlines()], askers
        )


def has_flag(row):
    return row['iwarp_mpa.crc_flag'] in ('1', 'True')


def judge_rows(rows, askers):
    """CRCs are on where either start frame of a connection asks for them."""
    starts = [row for row in rows if row['iwarp_mpa.key.req'] or row['iwarp_mpa.key.rep']]
    streams = sorted({row['tcp.stream'] for row in starts})
    wanted = {
        row['tcp.stream'] for row in starts if row['iwarp_mpa.key.req'] and row['ip.src'] in askers
    }
    asked = {row['tcp.stream'] for row in starts if has_flag(row)}
    fpdus = [row for row in rows if row['iwarp_mpa.ulpdulength']]
    opcodes = sorted(
        {int(word, 0) for row in fpdus for word in row['iwarp_rdma.opcode'].split(',') if word}
    )
    faults = [str(row) for row in rows if row['_ws.malformed']]
    if not {0, 1, 2, 3} <= set(opcodes):
        faults.append('opcodes are missing')
    if not streams or asked != wanted:
        faults += [str(row) for row in starts]
    return (
        f'{len(streams)} connections, {len(fpdus)} segments with FPDUs of opcodes {opcodes}',
        faults,
    )
