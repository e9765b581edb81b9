# SPDX-License-Identifier: BSD-2-Clause
"""What `unused`, `references`, `parameters` and `lists` have to find."""
import os
import runpy

from kit import HERE, check

# A function that `unused` lets pass: any of its list, which shrinks.
EXCEPTIONS = runpy.run_path(os.path.join(HERE, 'unused'))['FOR_TESTS']
EXCEPTION = next(name for name in EXCEPTIONS if name.startswith('sw_'))  # as src/ has them


def counted(name, row, page):
    """A tree with one counter: as it is named, as a file, and on its page."""
    return {
        'src/device/queue/counters.c': f'[SW_A] = {name},\n',
        'src/preload/tree.c': f'{row}\n',
        'docs/counters.md': f'{page}\n',
    }


def used(files):
    """Runs tests/style/unused over sources of which src/base/a.c calls sw_main_run() and so is used
    itself."""
    return check(
        'unused',
        {
            'src/base/main.c': 'void sw_main_run(void)\n{\n    sw_main_run();\n    sw_a();\n}\n',
            'tests/t.c': 'int main(void)\n{\n    sw_main_run();\n    sw_b();\n}\n',
            **files,
        },
    )


def linked(first, other):
    """Runs tests/style/references over README.md and another document."""
    return check('references', {'README.md': first, 'docs/a.md': other})


def named(comment, parameters):
    """A header of one function with its comment."""
    return check('parameters', {'src/a.h': f'{comment}\nint a({parameters});\n'})


def cases():
    of_struct = {'src/b.h': '/* Sets `b`. */\nvoid a(struct s *c);\n'}
    found = [
        (
            'references__there',
            check(
                'references',
                {
                    'docs/a.md': 'see `base/b.c`, `sw_b_run`, `b__runs`\n',
                    'src/base/b.c': 'void sw_b_run(void);\nint b__runs;\n',
                },
            ),
            None,
        ),
        (
            'references__no_file',
            check('references', {'docs/a.md': 'see `base/b.c`\n'}),
            'no file base/b.c',
        ),
        (
            'references__no_function',
            check('references', {'src/base/a.c': '/* sw_b_run */\n'}),
            'no sw_b_run',
        ),
        (
            'references__no_test',
            check('references', {'docs/a.md': '`b__runs`\n'}),
            'no test b__runs',
        ),
        (
            'references__links',
            linked('[a](docs/a.md#two-words) [b](#top)\n# Top\n', '# Two `words`\n'),
            None,
        ),
        ('references__no_link', linked('[a](docs/b.md) [b](docs/a.md)\n', ''), 'no file docs/b.md'),
        (
            'references__no_anchor',
            linked('[a](docs/a.md#one)\n', '```\n# One\n```\n'),
            'no heading #one in docs/a.md',
        ),
        ('references__anchor_of_its_own', linked('[a](docs/a.md)\n', '[b](#c)\n'), 'docs/a.md:1'),
        ('references__second_heading', linked('[a](docs/a.md#b-1)\n', '# B\n## B\n'), None),
        ('references__others_pages', linked('[a](https://b/c) [b](docs/a.md)\n', ''), None),
        ('references__unreached', linked('docs/a.md\n', ''), 'docs/a.md: no links lead'),
        ('parameters__has', named('/* At most `room` bytes. */', 'int room'), None),
        (
            'parameters__has_not',
            named('/* At most `room` bytes. */', 'int size'),
            'a has no `room`',
        ),
        ('parameters__pointer', named('/* `*room` is set. */', 'int *size'), 'a has no `room`'),
        ('parameters__several', named('/* To `b`. */', 'void);\nint c(int b'), None),
        (
            'parameters__not_the_next',
            named('/* To `b`. */', 'void);\n\nint c(int b'),
            'a has no `b`',
        ),
        (
            'parameters__member',
            check('parameters', {'src/a.c': 'struct s {\n    int b;\n};\n', **of_struct}),
            None,
        ),
        (
            'parameters__no_member',
            check('parameters', {'src/a.c': 'struct s {\n    int c;\n};\n', **of_struct}),
            'has no `b`',
        ),
        (
            'parameters__body',
            check('parameters', {'src/a.c': '/* `b` */\nint a(void)\n{\n    int b;\n}\n'}),
            None,
        ),
        (
            'parameters__another_body',
            check(
                'parameters',
                {'src/a.c': '/* `b` */\nint a(void)\n{\n}\n\nint c(void)\n{\n    int b;\n}\n'},
            ),
            'has no `b`',
        ),
        ('parameters__part_of_a_name', named('/* Each `a` */', 'void'), None),
        ('parameters__no_function', check('parameters', {'src/a.h': '/* `b` */\nint a;\n'}), None),
        (
            'unused__used',
            used({'src/base/a.c': 'void sw_a(void)\n{\n}\n', 'src/base/a.h': 'void sw_a(void);\n'}),
            None,
        ),
        (
            'unused__by_nobody',
            used({'src/base/a.c': 'void sw_c(void)\n{\n}\n/* sw_c() */\n'}),
            'sw_c: nobody uses it',
        ),
        (
            'unused__inline_by_nobody',
            used({'src/base/a.h': 'static inline void sw_c(void)\n{\n}\n'}),
            'sw_c: nobody uses it',
        ),
        (
            'unused__by_tests',
            used({'src/base/a.c': 'void sw_b(void)\n{\n}\n'}),
            'sw_b: only tests use it',
        ),
        ('unused__simulator', used({'src/link/sim/a.c': 'void sw_b(void)\n{\n}\n'}), None),
        (
            'unused__by_one_file',
            used({'src/base/a.c': 'void sw_c(void)\n{\n    sw_c();\n}\n'}),
            'make it static',
        ),
        (
            'unused__by_address',
            used({'src/base/a.c': 'void *a = sw_c;\n', 'src/base/b.c': 'void sw_c(void)\n{\n}\n'}),
            None,
        ),
        (
            'unused__by_macro',
            used(
                {
                    'src/base/a.c': '#define CALL(x) sw_c_##x()\nint d = CALL(run);\n',
                    'src/base/b.c': 'void sw_c_run(void)\n{\n}\n',
                }
            ),
            None,
        ),
        (
            'unused__public',
            used(
                {
                    'src/base/a.c': 'void sw_c(void)\n{\n}\n',
                    'include/sidewire/a.h': 'void sw_c(void);\n',
                }
            ),
            None,
        ),
        (
            'unused__exception',
            used(
                {
                    'src/wire/a.c': f'void {EXCEPTION}(void)\n{{\n}}\n',
                    'tests/u.c': f'void *a = {EXCEPTION};\n',
                }
            ),
            None,
        ),
        (
            'unused__exception_of_nobody',
            used({'src/wire/a.c': f'void {EXCEPTION}(void)\n{{\n}}\n'}),
            f'{EXCEPTION}: nobody uses it',
        ),
        (
            'unused__exception_shrinks',
            used(
                {
                    'src/wire/a.c': f'void {EXCEPTION}(void)\n{{\n}}\n',
                    'src/wire/b.c': f'void *a = {EXCEPTION};\n',
                }
            ),
            'take it out',
        ),
        (
            'unused__of_movers',
            used({'movers/a.c': 'void nvt_a(void)\n{\n}\n', 'movers/b.c': 'void *b = nvt_a;\n'}),
            None,
        ),
        (
            'unused__of_movers_by_bindings',
            used({'movers/a.c': 'void nvt_a(void)\n{\n}\n', 'bindings/b.c': 'void *b = nvt_a;\n'}),
            None,
        ),
        (
            'unused__of_movers_by_tests',
            used({'movers/a.c': 'void nvt_a(void)\n{\n}\n', 'tests/b.c': 'void *b = nvt_a;\n'}),
            'nvt_a: only tests use it',
        ),
        (
            'unused__of_movers_by_bench',
            used({'movers/a.c': 'void nvt_a(void)\n{\n}\n', 'bench/b.c': 'void *b = nvt_a;\n'}),
            'nvt_a: only tests use it',
        ),
        (
            'unused__of_bindings_by_nobody',
            used({'bindings/a.c': 'void py_a(void)\n{\n}\n'}),
            'py_a: nobody uses it',
        ),
        (
            'unused__of_bench_by_one_file',
            used({'bench/a.c': 'void gate_a(void)\n{\n    gate_a();\n}\n'}),
            'gate_a: only its own file',
        ),
        (
            'unused__static_inline',
            used({'movers/a.c': 'static inline void nap_a(void)\n{\n    nap_a();\n}\n'}),
            None,
        ),
        (
            'unused__not_defined_by_movers',
            used({'movers/a.h': 'void nvt_a(void);\n'}),
            'declares nvt_a, which nobody defines',
        ),
        (
            'unused__names_of_others',
            used({'src/preload/a.c': 'int clock_gettime(int a)\n{\n    return a;\n}\n'}),
            None,
        ),
        (
            'unused__not_defined',
            used({'src/base/a.h': 'void sw_c(void);\n'}),
            'declares sw_c, which nobody defines',
        ),
        (
            'unused__included_twice',
            used({'src/base/c.c': '#include <errno.h>\n#include <errno.h>\n'}),
            'c.c:2: includes <errno.h> again',
        ),
        ('lists__everywhere', check('lists', counted('"a_b"', 'HW_COUNTER("a_b")', '`a_b`')), None),
        (
            'lists__not_in_the_page',
            check('lists', counted('"a_b"', 'HW_COUNTER("a_b")', '`a_b_c`')),
            'docs/counters.md: has no `a_b`',
        ),
        (
            'lists__not_in_the_tree',
            check('lists', counted('"a_b"', '', '`a_b`')),
            'has no HW_COUNTER("a_b")',
        ),
        (
            'lists__counted_by_nobody',
            check('lists', counted('"a_b"', 'HW_COUNTER("a_b")\nHW_COUNTER("c")', '`a_b`')),
            'has no "c"',
        ),
        (
            'lists__empty',
            check('lists', {**counted('', '', ''), 'meson.build': ''}),
            'has no counter any more',
        ),
    ]
    return found
