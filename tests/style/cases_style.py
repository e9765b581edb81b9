# SPDX-License-Identifier: BSD-2-Clause
"""What `style` and `black` have to find."""
import shutil

from kit import HEAD, LICENCE, check

GUARDED = f'{HEAD}#ifndef A_H\n#define A_H\n'
FIRST = {'src/base/a.c': f'{HEAD}/* A sum. */\n#include "a.h"\n#include <stdint.h>\n'}
MAKE_IT = 'static int make_it(void)\n{\n    return 0;\n}\n'
STANDS_ALONE = (
    f'{HEAD}#ifndef A_H\n#define A_H\n'
    'static inline int make_it(void)\n{\n    return 0;\n}\n#endif\n'
)


def function(lines):
    return HEAD + 'void f(void)\n{\n' + '    ;\n' * (lines - 2) + '}\n'


def subject(comment):
    return check('style', {'src/base/a.c': HEAD + comment})


def cases():
    long_one = {'src/base/a.c': function(80)}
    found = [
        ('style__clean', check('style', {'src/base/a.c': function(60)}), None),
        ('style__function', check('style', long_one), 'function-lines'),
        ('style__file', check('style', {'src/base/a.c': HEAD + '\n' * 601}), 'file-lines'),
        (
            'style__static_recurs',
            check(
                'style',
                {
                    'src/base/a.c': HEAD + MAKE_IT,
                    'movers/b/a.c': HEAD + MAKE_IT,
                },
            ),
            'src/base/a.c: recurring: the static function make_it is in movers/b/a.c, too',
        ),
        (
            'style__static_is_declared',
            check(
                'style',
                {'src/base/a.c': HEAD + 'static int make_it(void);\n' + MAKE_IT},
            ),
            None,
        ),
        (
            'style__static_behind_an_attribute',
            check(
                'style',
                {
                    'src/base/a.c': f'{HEAD}__attribute__((format(printf, 1, 2))) {MAKE_IT}',
                    'bindings/b/a.c': f'{HEAD}UNSEEN {MAKE_IT}',
                },
            ),
            'bindings/b/a.c: recurring: the static function make_it is in src/base/a.c, too',
        ),
        (
            'style__static_behind_a_type',
            check(
                'style',
                {
                    'src/base/a.c': HEAD + MAKE_IT,
                    'src/base/b.c': HEAD + 'static struct a *\nmake_it(int b)\n{\n}\n',
                },
            ),
            'recurring',
        ),
        (
            'style__static_of_a_header',
            check('style', {'src/base/a.h': STANDS_ALONE, 'movers/b/a.c': HEAD + MAKE_IT}),
            'recurring',
        ),
        (
            'style__static_of_two_headers',
            check('style', {'src/base/a.h': STANDS_ALONE, 'movers/b/a.h': STANDS_ALONE}),
            None,
        ),
        (
            'style__static_within',
            check(
                'style',
                {'src/base/a.c': HEAD + 'void f(void)\n{\n    static int a[2] = {g(1)};\n}\n'},
            ),
            None,
        ),
        (
            'style__static_of_bench',
            check('style', {'bench/src/a.c': HEAD + MAKE_IT, 'movers/b/a.c': HEAD + MAKE_IT}),
            'bench/src/a.c: recurring',
        ),
        (
            'style__static_of_tests',
            check(
                'style',
                {
                    'src/base/a.c': HEAD + MAKE_IT,
                    'tests/b/a.c': HEAD + MAKE_IT,
                },
            ),
            None,
        ),
        ('style__file_of_cases', check('style', {'tests/base/test_a.c': HEAD + '\n' * 590}), None),
        (
            'style__file_of_cases_too_long',
            check('style', {'tests/base/test_a.c': HEAD + '\n' * 601}),
            'file-lines',
        ),
        (
            'style__two_words',
            check(
                'style', {'src/base/a.c': HEAD + 'static int find_it(void)\n{\n    return 0;\n}\n'}
            ),
            None,
        ),
        (
            'style__one_word',
            check('style', {'movers/a.c': HEAD + 'static int find(void)\n{\n    return 0;\n}\n'}),
            'one-word',
        ),
        (
            'style__one_word_of_a_test',
            check('style', {'tests/a.c': HEAD + 'static int find(void)\n{\n    return 0;\n}\n'}),
            None,
        ),
        ('style__spdx', check('style', {'src/base/a.c': 'int a;\n'}), 'spdx'),
        ('style__tab', check('style', {'src/base/a.c': HEAD + '\tint a;\n'}), 'tabs'),
        ('style__trailing', check('style', {'src/base/a.c': HEAD + 'int a; \n'}), 'trailing'),
        (
            'style__no_subject',
            subject('/* Sent. Who polls\n * receives. */\n'),
            '"Who polls receives"',
        ),
        ('style__no_subject_line', subject('// Of a lane.\n'), 'subject'),
        ('style__subject', subject('/* Who polls? Of course a poller. */\n'), None),
        (
            'style__no_subject_prose',
            check('style', {'docs/a.md': '# Who\n\nWho calls waits.\n'}),
            'subject',
        ),
        (
            'style__columns',
            check('style', {'src/base/a.c': HEAD + '/*' + 'x' * 100 + '*/\n'}),
            'columns',
        ),
        (
            'style__columns_of_a_script',
            check('style', {'a': f'#!/bin/sh\n# {LICENCE}\n: {"x" * 100}\n'}),
            'columns',
        ),
        (
            'style__columns_of_the_build',
            check('style', {'src/meson.build': f"a = '{'x' * 100}'\n"}),
            'columns',
        ),
        (
            'style__merge',
            check('style', {'docs/a.md': '<' * 7 + ' HEAD\none\n' + '>' * 7 + ' other\n'}),
            'merge',
        ),
        ('style__wide_prose', check('style', {'docs/a.md': 'word ' * 21 + '\n'}), 'columns'),
        ('style__wide_table', check('style', {'docs/a.md': '|' + 'word ' * 21 + '|\n'}), None),
        (
            'style__wide_code',
            check('style', {'docs/a.md': '```\n' + 'word ' * 21 + '\n```\n'}),
            None,
        ),
        (
            'style__header',
            check('style', {'src/base/a.h': HEAD + 'uint32_t f(void);\n'}),
            'does not compile alone',
        ),
        (
            'style__header_twice',
            check('style', {'src/base/a.h': HEAD + 'struct a {\n    int b;\n};\n'}),
            'alone',
        ),
        (
            'style__header_that_a_source_shows',
            check('style', {'src/base/a.h': f'{GUARDED}uint32_t f(void);\n#endif\n', **FIRST}),
            None,
        ),
        (
            'style__header_that_a_source_includes_later',
            check(
                'style',
                {
                    'src/base/a.h': f'{GUARDED}uint32_t f(void);\n#endif\n',
                    'src/base/a.c': f'{HEAD}#include <stdint.h>\n#include "a.h"\n',
                },
            ),
            'does not compile alone',
        ),
        (
            'style__header_without_a_guard',
            check('style', {'src/base/a.h': f'{HEAD}struct a {{\n    int b;\n}};\n', **FIRST}),
            'alone',
        ),
        (
            'style__ratchet_holds',
            check('style', {**long_one, 'tests/style/ratchet': 'src/base/a.c function-lines 80\n'}),
            None,
        ),
        (
            'style__ratchet_is_low',
            check('style', {**long_one, 'tests/style/ratchet': 'src/base/a.c function-lines 75\n'}),
            '80 lines',
        ),
        (
            'style__ratchet_shrinks',
            check('style', {**long_one, 'tests/style/ratchet': 'src/base/a.c function-lines 90\n'}),
            'lower it',
        ),
    ]
    if shutil.which('black'):
        found += [
            ('black__as_it_lays_out', check('black', {'a.py': "a = 'b'\n"}), None),
            ('black__other_layout', check('black', {'a.py': "a='b'\n"}), 'a.py: not laid out'),
            ('black__script', check('black', {'a': "#!/usr/bin/python3\na='b'\n"}), 'a: not'),
            ('black__no_python', check('black', {'a.py': "a = 'b\n"}), 'a.py'),
        ]
    return found
