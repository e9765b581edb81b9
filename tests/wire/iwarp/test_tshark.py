#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""Wireshark reads start frames and FPDUs of every opcode that we encode as we meant them. usage:
test_tshark.py MAKE_SEGMENTS"""
import os
import shutil
import struct
import subprocess
import sys
import tempfile

ENDS = [
    (b'\x02\x77\0\0\0\x0b', bytes([10, 77, 0, 11]), 40000),
    (b'\x02\x77\0\0\0\x0c', bytes([10, 77, 0, 12]), 7174),
]
MARKS = ['_ws.malformed', '_ws.expert.message']
OPCODES = 12


def checksum(data):
    total = sum(struct.unpack(f'>{len(data) // 2}H', data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def frame(sender, seq, ack, payload):
    """Ethernet, IPv4 and TCP around the bytes of a stream."""
    (from_mac, from_ip, from_port), (to_mac, to_ip, to_port) = ENDS[sender], ENDS[1 - sender]
    tcp = struct.pack('>HHIIBBHHH', from_port, to_port, seq, ack, 5 << 4, 0x18, 65535, 0, 0)
    ip = struct.pack(
        '>BBHHHBBH4s4s', 0x45, 0, 40 + len(payload), 0, 0x4000, 64, 6, 0, from_ip, to_ip
    )
    ip = ip[:10] + struct.pack('>H', checksum(ip)) + ip[12:]
    return to_mac + from_mac + b'\x08\x00' + ip + tcp + payload


def write_capture(path, lines):
    sent = [1, 1]
    with open(path, 'wb') as out:
        out.write(struct.pack('<IHHiIII', 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1))
        for number, (sender, payload, _) in enumerate(lines):
            data = frame(sender, sent[sender], sent[1 - sender], payload)
            sent[sender] += len(payload)
            out.write(struct.pack('<IIII', 1, number, len(data), len(data)) + data)


def dissect(path, fields):
    args = ['tshark', '-r', path, '-T', 'fields']
    for field in fields:
        args += ['-e', field]
    done = subprocess.run(args, capture_output=True, text=True, check=True)
    return [dict(zip(fields, line.split('\t'))) for line in done.stdout.splitlines()]


def value(text):
    first = text.split(',')[0]
    return {'True': 1, 'False': 0}.get(first) if first in ('True', 'False') else int(first, 0)


def check(said, meant):
    """The faults of one frame."""
    for field, expected in meant.items():
        if not said[field] or value(said[field]) != expected:
            yield f'{field} is {said[field] or "absent"}, not {expected}'
    for mark in MARKS:
        if said[mark] and 'Bogus' not in said[mark]:
            yield f'marked "{said[mark]}"'


def main():
    if not shutil.which('tshark'):
        print('SKIP: tshark is not installed')
        return 77
    made = subprocess.run([sys.argv[1]], capture_output=True, text=True, check=True).stdout
    lines = []
    for line in made.splitlines():
        sender, payload, meaning = line.split('\t')
        meant = {
            field: int(number) for field, number in (pair.split('=') for pair in meaning.split())
        }
        lines.append((int(sender), bytes.fromhex(payload), meant))
    fields = sorted(set().union(*(meant for _, _, meant in lines))) + MARKS
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, 'iwarp.pcap')
        write_capture(path, lines)
        said = dissect(path, fields)
    faults = [
        f'frame {number}: {fault}'
        for number, (one, line) in enumerate(zip(said, lines), 1)
        for fault in check(one, line[2])
    ]
    if len(said) != len(lines):
        faults.append(f'{len(lines)} frames made, {len(said)} dissected')
    opcodes = {meant['iwarp_rdma.opcode'] for _, _, meant in lines if 'iwarp_rdma.opcode' in meant}
    if len(opcodes) != OPCODES:
        faults.append(f'{len(opcodes)} opcodes only')
    for fault in faults[:30]:
        print(fault)
    print(f'{len(lines)} frames, {len(faults)} faults')
    return 1 if faults else 0


if __name__ == '__main__':
    sys.exit(main())
