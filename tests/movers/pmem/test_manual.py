#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""sidewire-pmem(1) names every command and option that the program has, and no other; groff finds no fault with it.

usage: test_manual.py SIDEWIRE_PMEM PAGE
"""
import re
import subprocess
import sys
import unittest

PROGRAM, PAGE = sys.argv[1:]
EVERYWHERE = {'--help', '--usage', '--version'}
FRONT_DOOR = {'--device'}  # of `sidewire pmem` itself


def say(*words):
    return subprocess.run([PROGRAM, *words], capture_output=True, text=True, timeout=20, check=False)


def commands():
    return re.findall(r'^  ([a-z-]+) +\S', say('help').stdout.split('Commands:')[1].split('Examples:')[0], re.M)


def options_of(command):
    return set(re.findall(r'^ +(?:-., )?(--[a-z][a-z_-]*)', say(command, '--help').stdout, re.M)) - EVERYWHERE


class Manual(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        with open(PAGE, encoding='utf-8') as file:
            cls.page = file.read().replace('\\-', '-')

    def test_commands__each_has_its_part(self):
        self.assertGreater(len(commands()), 5)
        for command in commands():
            self.assertIn(f'.SS "sidewire pmem {command}"', self.page)

    def test_options__all_and_no_other(self):
        there = set().union(*(options_of(command) for command in commands()))
        self.assertGreater(len(there), 15)
        told = set(re.findall(r'^\.(?:BI|BR|B) (?:-. ", " )?(--[a-z][a-z_-]*)', self.page, re.M))
        self.assertEqual(told - EVERYWHERE - FRONT_DOOR, there)

    def test_status__wrong_use_is_2(self):
        for words in ([], ['zork'], ['serve'], ['serve', 'x', '--allow', 'zork'], ['ls'], ['get', '-a', '127.0.0.1'],
                      ['bench', '-a', '127.0.0.1']):
            self.assertEqual(say(*words).returncode, 2, words)

    def test_layout__groff_has_nothing_to_say(self):
        try:
            done = subprocess.run(['groff', '-man', '-Tutf8', '-ww', '-z', PAGE], capture_output=True, text=True, timeout=20, check=False)
        except FileNotFoundError:
            self.skipTest('there is no groff')
        self.assertEqual(done.stderr, '')


if __name__ == '__main__':
    unittest.main(argv=sys.argv[:1])
