# SPDX-License-Identifier: BSD-2-Clause
"""What a mover's manual page is held to: it names every command and option that the program has,
and no other; groff finds no fault with it."""
import re
import subprocess
import unittest

EVERYWHERE = {'--help', '--usage', '--version'}
FRONT_DOOR = {'--device'}  # of `sidewire MOVER` itself


class Manual(unittest.TestCase):
    """A mover's own has `mover`, `program`, `page`; `more`: commands of two words; how many options
    there are more than; `wrong` uses."""

    more = ()
    options_more_than = 0
    commands_at_least = 6
    wrong = ()

    @classmethod
    def setUpClass(cls):
        with open(cls.page, encoding='utf-8') as file:
            cls.text = file.read().replace('\\-', '-')
        listed = cls.say('help').stdout.split('Commands:')[1].split('Examples:')[0]
        cls.commands = re.findall(r'^  ([a-z-]+) +\S', listed, re.M)

    @classmethod
    def say(cls, *words):
        return subprocess.run(
            [cls.program, *words], capture_output=True, text=True, timeout=20, check=False
        )

    def options_of(self, command):
        return (
            set(
                re.findall(
                    r'^ +(?:-., )?(?:-., )?(--[a-z][a-z_-]*)',
                    self.say(*command.split(), '--help').stdout,
                    re.M,
                )
            )
            - EVERYWHERE
        )

    def test_commands__each_has_its_part(self):
        self.assertGreaterEqual(len(self.commands), self.commands_at_least)
        for command in [*self.commands, *self.more]:
            self.assertIn(f'.SS "sidewire {self.mover} {command}"', self.text)

    def test_options__all_and_no_other(self):
        there = set().union(*(self.options_of(command) for command in [*self.commands, *self.more]))
        self.assertGreater(len(there), self.options_more_than)
        told = set(re.findall(r'^\.(?:BI|BR|B) (?:-. ", " )?(--[a-z][a-z_-]*)', self.text, re.M))
        self.assertEqual(told - EVERYWHERE - FRONT_DOOR, there)

    def test_options__letters_as_in_the_help(self):
        there = set()
        for command in [*self.commands, *self.more]:
            said = self.say(*command.split(), '--help').stdout
            there.update(re.findall(r'^ +(-[A-Za-z]), (--[a-z][a-z_-]*)', said, re.M))
        told = set(
            re.findall(r'^\.(?:BI|BR|B) (-[A-Za-z]) ", " (--[a-z][a-z_-]*)', self.text, re.M)
        )
        self.assertEqual(told, {pair for pair in there if pair[1] not in EVERYWHERE})

    def test_status__wrong_use_is_2(self):
        self.assertTrue(self.wrong)
        for words in self.wrong:
            self.assertEqual(self.say(*words).returncode, 2, words)

    def groff(self, *words):
        try:
            return subprocess.run(
                ['groff', '-man', '-Tutf8', *words, self.page],
                capture_output=True,
                text=True,
                timeout=20,
                check=False,
            )
        except FileNotFoundError:
            self.skipTest('there is no groff')

    def test_layout__groff_has_nothing_to_say(self):
        self.assertEqual(self.groff('-ww', '-z').stderr, '')

    def test_layout__fits_a_terminal(self):
        shown = self.groff('-P-cbou', '-rLL=80n').stdout.splitlines()
        self.assertGreater(len(shown), 50)
        self.assertEqual([line for line in shown if len(line) > 80], [])
