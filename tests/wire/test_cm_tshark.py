#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""Wireshark reads CM messages that we encode as we meant them. usage: test_cm_tshark.py
MAKE_CM_MADS"""
import os
import shutil
import subprocess
import sys
import tempfile

TITLES = {
    'REQ': 'ConnectRequest',
    'MRA': 'MsgRcptAck',
    'REJ': 'ConnectReject',
    'REP': 'ConnectReply',
    'RTU': 'ReadyToUse',
    'DREQ': 'DisconnectRequest',
    'DREP': 'DisconnectReply',
    'SIDR_REQ': 'ServiceIDResReq',
    'SIDR_REP': 'ServiceIDResReqResp',
    'LAP': 'LoadAlternatePath',
    'APR': 'AlternatePathResponse',
}


def column(field):
    return f'infiniband.{field}' if field.startswith('mad.') else f'infiniband.cm.{field}'


def number(text):
    """Reads a number of tshark's: 0x10, 17, True, or a GUID 01:02:.."""
    text = text.split(',')[0]
    if text in ('True', 'False'):
        return int(text == 'True')
    return int(text.replace(':', ''), 16) if ':' in text else int(text, 0)


def tshark(capture, fields):
    """A list of [info, malformed, *fields] for each packet."""
    args = ['tshark', '-r', capture, '-T', 'fields', '-e', '_ws.col.Info', '-e', '_ws.malformed']
    for field in fields:
        args += ['-e', column(field)]
    done = subprocess.run(args, capture_output=True, text=True, check=True)
    return [line.split('\t') for line in done.stdout.splitlines()]


def main():
    if not shutil.which('tshark'):
        print('SKIP: tshark is not installed')
        return 77
    with tempfile.TemporaryDirectory() as folder:
        capture = os.path.join(folder, 'all.pcap')
        made = subprocess.run(
            [sys.argv[1], capture], capture_output=True, text=True, check=True
        ).stdout
        meant = [
            (line.split('\t')[0], dict(pair.split('=') for pair in line.split('\t')[1:]))
            for line in made.splitlines()
        ]
        fields = sorted({field for _, values in meant for field in values})
        said = tshark(capture, fields)
    faults, compared = [], 0
    if len(said) != len(meant):
        faults.append(f'{len(meant)} packets made, {len(said)} dissected')
    for (name, values), (info, malformed, *shown) in zip(meant, said):
        if info != f'CM: {TITLES[name]}':
            faults.append(f'{name}: shown as "{info}"')
        if malformed:
            faults.append(f'{name}: malformed')
        for field, text in zip(fields, shown):
            if field in values and (not text or number(text) != int(values[field])):
                faults.append(f'{name}: {field} is {text or "absent"}, not {int(values[field]):#x}')
            compared += field in values
    for fault in faults[:30]:
        print(fault)
    print(f'{len(meant)} messages, {compared} numbers, {len(faults)} faults')
    return 1 if faults or compared < 3000 else 0


if __name__ == '__main__':
    sys.exit(main())
