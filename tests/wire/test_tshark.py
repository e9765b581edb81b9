#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""Wireshark reads packets of every kind that we encode as we meant them. usage: test_tshark.py
MAKE_PACKETS

The ICRC is computed by zlib over the frame, since tshark 4.0 shows it but does not check it;
versions that do are asked.
"""
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import zlib

FIELDS = [
    *'bth.opcode bth.se bth.m bth.padcnt bth.p_key bth.destqp bth.a bth.psn reth.va'.split(),
    *'reth.r_key reth.dmalen atomiceth.swapdt atomiceth.cmpdt aeth.syndrome aeth.msn'.split(),
    *'atomicacketh.origremdt deth.q_key deth.srcqp immdt ieth'.split(),
]
BTH_FIELDS = 8
HEX = {'immdt', 'ieth'}  # shown as bytes
MARKS = ['infiniband.invariant.crc', '_ws.malformed', '_ws.expert.message']
STATUS = 'infiniband.invariant.crc.status'
BAD_STATUS = '0'
# Dissectors that guess by the payload, which is not theirs.
GUESSERS = ['rpcordma', 'nvme-rdma', 'smb_direct']


def is_unknown(opcode):
    """What tshark 4.0 shows the BTH of and no more: FLUSH, ATOMIC WRITE, CNP, XRC, and our own."""
    return opcode in (0x1C, 0x1D, 0x81) or 0xA0 <= opcode


def tshark(capture):
    known = subprocess.run(
        ['tshark', '-G', 'fields'], capture_output=True, text=True, check=True
    ).stdout
    marks = MARKS + ([STATUS] if f'\t{STATUS}\t' in known else [])
    args = [
        'tshark',
        '-r',
        capture,
        *'-T fields -o udp.check_checksum:TRUE -o ip.check_checksum:TRUE'.split(),
    ]
    for name in GUESSERS:
        args += ['--disable-protocol', name]
    for field in ['infiniband.' + field for field in FIELDS] + marks:
        args += ['-e', field]
    done = subprocess.run(args, capture_output=True, text=True, check=True)
    return [line.split('\t') for line in done.stdout.splitlines()]


def frames(capture):
    with open(capture, 'rb') as file:
        data = file.read()
    at = 24
    while at < len(data):
        size = struct.unpack_from('<I', data, at + 8)[0]
        yield data[at + 16 : at + 16 + size]
        at += 16 + size


def icrc(frame):
    """That of a frame, by the words of the specification: (what it has, what it should have)."""
    ip = bytearray(frame[14:])
    if ip[0] >> 4 == 4:
        udp = 20
        ip[1] = ip[8] = ip[10] = ip[11] = 0xFF
    else:
        udp = 40
        ip[0] |= 0x0F
        ip[1:4] = b'\xff' * 3
        ip[7] = 0xFF
    ip[udp + 6] = ip[udp + 7] = ip[udp + 8 + 4] = 0xFF
    return struct.unpack('<I', ip[-4:])[0], zlib.crc32(b'\xff' * 8 + ip[:-4])


def value(field, text):
    """tshark names a header twice, as a whole and as its one field."""
    text = text.split(',')[0]
    return int(text, 16 if field in HEX else 0)


def check(said, meant, frame):
    """The faults of one packet: what tshark said against what was meant."""
    name, meant = meant[0], meant[1:]
    count = BTH_FIELDS if is_unknown(int(meant[0])) else len(FIELDS)
    for field, got, expected in zip(FIELDS[:count], said, meant):
        if (got == '') != (expected == '-') or (got and value(field, got) != int(expected)):
            yield f'{name}: {field} is {got or "absent"}, not {expected}'
    crc, malformed, message, *status = said[len(FIELDS) :]
    if malformed or message:
        yield f'{name}: marked "{message or malformed}"'
    has, should = icrc(frame)
    if has != should:
        yield f'{name}: the ICRC is {has:08x}, not {should:08x}'
    # Read in network byte order, in which it does not lie.
    if count == len(FIELDS) and int(crc or '0', 16) != int.from_bytes(
        has.to_bytes(4, 'little'), 'big'
    ):
        yield f'{name}: tshark finds the ICRC elsewhere: {crc}'
    if status == [BAD_STATUS]:
        yield f'{name}: tshark finds the ICRC wrong'


def main():
    if not shutil.which('tshark'):
        print('SKIP: tshark is not installed')
        return 77
    with tempfile.TemporaryDirectory() as folder:
        capture = os.path.join(folder, 'all.pcap')
        made = subprocess.run(
            [sys.argv[1], capture], capture_output=True, text=True, check=True
        ).stdout
        meant = [line.split('\t') for line in made.splitlines()]
        said, captured = tshark(capture), list(frames(capture))
    faults = [fault for packet in zip(said, meant, captured) for fault in check(*packet)]
    if not len(meant) == len(said) == len(captured):
        faults.append(f'{len(meant)} packets made, {len(captured)} captured, {len(said)} dissected')
    kinds = {packet[0] for packet in meant}
    if len(kinds) < 65:
        faults.append(f'{len(kinds)} kinds of packets only')
    for fault in faults[:30]:
        print(fault)
    print(f'{len(meant)} packets of {len(kinds)} kinds, {len(faults)} faults')
    return 1 if faults else 0


if __name__ == '__main__':
    sys.exit(main())
