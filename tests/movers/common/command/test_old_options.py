#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""Commands take the old spellings that docs/vocabulary.md lists, and say what to write.

usage: test_old_options.py SIDEWIRE_PMEM SIDEWIRE_TRANSFER PAGE
"""
import re
import subprocess
import sys
import unittest

PMEM, TRANSFER, PAGE = sys.argv[1:]
PROGRAMS = {'pmem': PMEM, 'transfer': TRANSFER}
VALUES = {'KIND': 'read', 'SIDE': 'L/PBTH:2:16', 'ADDR[:PORT][/REGION]': '127.0.0.1'}


def old_spellings():
    """(mover, words of the command, old spelling, new one) of each."""
    with open(PAGE, encoding='utf-8') as file:
        section = file.read().split('## Old spellings')[1]
    for old, now, commands in re.findall(
        r'^\| `(-\S+)` \| `(--\S+)` \| ([^|]+) \|$', section, re.M
    ):
        mover, rest = commands.split(' ', 1)
        for command in rest.split(', '):
            yield mover, command.split(), old, now


def say(mover, *words):
    done = subprocess.run(
        [PROGRAMS[mover], *words, '--help'], capture_output=True, text=True, timeout=20, check=False
    )
    return done.returncode, done.stdout, done.stderr


class OldOptions(unittest.TestCase):
    def test_old_options__are_taken_and_told(self):
        count = 0
        for mover, command, old, now in old_spellings():
            with self.subTest(command=[mover, *command], old=old):
                argument = re.search(rf'{now}(?:=(\S+))?', say(mover, *command)[1]).group(1)
                value = [VALUES.get(argument, '2')] if argument else []
                code, shown, told = say(mover, *command, old, *value, old, *value)
                self.assertEqual(code, 0)
                self.assertEqual(told.count(f'{old} is {now} now; the '), 1, told)
                self.assertEqual(told.count('\n'), 1, told)
                self.assertNotRegex(shown, rf'^ +{old}\b')
                code, _, told = say(mover, *command, now, *value)
                self.assertEqual((code, told), (0, ''))
            count += 1
        self.assertGreater(count, 15)


if __name__ == '__main__':
    unittest.main(argv=sys.argv[:1])
