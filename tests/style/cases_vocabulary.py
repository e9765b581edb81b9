# SPDX-License-Identifier: BSD-2-Clause
"""What `vocabulary` has to find."""
from kit import check

HEAD = '| option | argument | meaning | commands |\n|---|---|---|---|\n'


def words(options, rows, hosts='', old='', file='pmem/command/get.c', more='', colls=''):
    """A tree with one command's options, and with rows of the page's tables."""
    lines = ''.join(f'    {option},\n' for option in options)
    return check(
        'vocabulary',
        {
            f'movers/{file}': f'static const struct argp_option options[] = {{\n{lines}}};\n',
            'docs/vocabulary.md': f'## Options\n\n{HEAD}{rows}\n## Options of NVMe hosts\n\n{HEAD}'
            f'{hosts}\n## Options of collectives\n\n{HEAD}{colls}\n## Old spellings\n\n'
            f'| old | now | commands |\n|---|---|---|\n{old}{more}',
        },
    )


COUNT = '{"count", KEY_COUNT, "N", 0, "How many", 1}'
COUNT_ROW = '| `--count` | `N` | how many | pmem get |\n'
CARD = '{"card", \'c\', "PATH", 0, "The card", 1}'
CARD_ROW = '| `-c`, `--card` | `PATH` | the card | pmem get |\n'
WAS = '{NULL, \'c\', NULL, MOVER_OLD, NULL, 0}'
WAS_ROW = '| `-c` | `--count` | pmem get |\n'
FLAG = '{"new", KEY_NEW, NULL, 0, "New ones", 1}'
FLAG_ROW = '| `--new` | | new ones | pmem get |\n'
DELAY = '{"delay", \'c\', "S", 0, "Seconds", 1}'
DELAY_ROW = '| `-c`, `--delay` | `S` | seconds | nvme |\n'


def host(options, rows, hosts):
    return words(options, rows, hosts, file='nvme/command/bench.c')


def coll(options, rows, colls):
    return words(options, rows, colls=colls, file='collectives/command/perf.c')


def keys(packed, rows, old=''):
    """A command that prints these keys, and what the page has of them."""
    head = '| key | meaning | commands |\n|---|---|---|\n'
    return words(
        [f'}}; json_t *a = json_pack({packed}); int b[] = {{{{0}}'],
        '',
        more=f'\n## Keys of JSON\n\n{head}{rows}\n## Old keys\n\n{head}{old}',
    )


SIZE = '"{s:s, sI}", "name", text_of("a, b)", 1), "bytes", (json_int_t)size'
SIZE_ROWS = '| `name` | its name | pmem get |\n| `bytes` | how many | pmem get |\n'
BOTH = '"{sI sI}", "bytes", size, "size", size'
BOTH_ROW = '| `bytes` | how many | pmem get |\n'
OLD_ROW = '| `size` | `bytes` | pmem get |\n'


COMMON_PACK = (
    'json_t *mover_figures(int many)\n{\n    return json_pack("{sI}", "bytes", many);\n}\n'
    'int mover_print(int many)\n{\n    return print(mover_figures(many));\n}\n'
)


def common(text, files=None, rows=BOTH_ROW, options=COUNT_ROW):
    """A command that uses the floor's rows and keys."""
    head = '|---|---|---|\n'
    return check(
        'vocabulary',
        {
            'movers/common/command/remote.h': '#define MOVER_OPTION_COUNT(at) \\\n'
            '    {"count", 0, "N", 0, "How many", 1, take_count, at}\n'
            '#define MOVER_OPTIONS_BOTH(at) \\\n    MOVER_OPTION_COUNT(at), \\\n'
            '    {"new", 0, NULL, 0, "Only new ones", 1, take_flag, at}\n',
            'movers/common/command/figures.c': COMMON_PACK,
            'movers/pmem/command/get.c': text,
            'docs/vocabulary.md': f'## Options\n\n{HEAD}{options}\n## Keys of JSON\n\n{head}{rows}',
            **(files or {}),
        },
    )


# A function of the floor that parses options of its own.
PARSES = {
    'movers/common/command/show.c': 'static const struct mover_option rows[] = '
    '{MOVER_OPTION_COUNT(8), {0}};\n'
    'int mover_show(int argc)\n{\n    mover_parse(&usage, argc);\n    return mover_print(5);\n}\n'
}
CALLS_SHOW = 'int show(void)\n{\n    return mover_show(5);\n}\n'

USES_BOTH = (
    'struct mover_option rows[] = {MOVER_OPTION_COUNT(8), {0}};\n'
    'int show(void)\n{\n    return mover_print(5);\n}\n'
)


def cases():
    return [
        ('vocabulary__same', words([COUNT, CARD, FLAG], COUNT_ROW + CARD_ROW + FLAG_ROW), None),
        ('vocabulary__not_in_the_page', words([COUNT, FLAG], COUNT_ROW), '--new is not in'),
        ('vocabulary__of_nobody', words([COUNT], COUNT_ROW + CARD_ROW), '--card is of'),
        (
            'vocabulary__of_another',
            words([COUNT], COUNT_ROW.replace('pmem get', 'transfer')),
            "--count is of ['transfer'], and ['pmem'] has it",
        ),
        (
            'vocabulary__unit',
            words([COUNT.replace('"N"', '"BYTES"')], COUNT_ROW),
            '--count takes "BYTES"',
        ),
        (
            'vocabulary__letter_that_is_not_said',
            words([COUNT.replace('KEY_COUNT', "'c'")], COUNT_ROW),
            '--count has -c',
        ),
        (
            'vocabulary__letter_with_two_meanings',
            words(
                [CARD, COUNT.replace('KEY_COUNT', "'c'")],
                CARD_ROW + COUNT_ROW.replace('`--count`', '`-c`, `--count`'),
            ),
            '-c has two meanings',
        ),
        (
            'vocabulary__name_with_two_meanings',
            words([COUNT], COUNT_ROW + COUNT_ROW),
            '--count has two meanings',
        ),
        ('vocabulary__host_has_letters', host([DELAY], '', DELAY_ROW), None),
        (
            'vocabulary__collectives_have_letters',
            coll([DELAY], '', DELAY_ROW.replace('nvme', 'coll')),
            None,
        ),
        (
            'vocabulary__collectives_have_our_names_without_letters',
            coll(
                ['{"card", 0, "PATH", 0, "The card", 1}'],
                CARD_ROW.replace('pmem get', 'coll perf'),
                '',
            ),
            None,
        ),
        (
            'vocabulary__collectives_and_we',
            coll([COUNT], COUNT_ROW, COUNT_ROW.replace('pmem get', 'coll')),
            '--count has two meanings',
        ),
        (
            'vocabulary__host_has_our_names',
            host([COUNT], COUNT_ROW.replace('pmem get', 'nvme bench'), ''),
            None,
        ),
        (
            'vocabulary__host_and_we',
            host([COUNT], '', COUNT_ROW.replace('pmem', 'nvme') + COUNT_ROW.replace('N', 'S')),
            '--count has two meanings',
        ),
        (
            'vocabulary__target_has_ours',
            words([DELAY], '', DELAY_ROW, file='nvme/command/target.c'),
            '--delay is not in',
        ),
        ('vocabulary__old', words([COUNT, WAS], COUNT_ROW, old=WAS_ROW), None),
        (
            'vocabulary__old_by_its_letter',
            words([COUNT, "{.letter = 'c', .flags = MOVER_OLD}"], COUNT_ROW, old=WAS_ROW),
            None,
        ),
        (
            'vocabulary__old_by_its_name',
            words([COUNT, '{.name = "block", .flags = MOVER_OLD}'], COUNT_ROW),
            'does not say that --block was',
        ),
        ('vocabulary__rows_and_keys_of_the_floor', common(USES_BOTH), None),
        (
            'vocabulary__several_rows_at_once',
            common(USES_BOTH.replace('OPTION_COUNT', 'OPTIONS_BOTH'), options=COUNT_ROW + FLAG_ROW),
            None,
        ),
        (
            'vocabulary__several_rows_at_once_and_no_word',
            common(USES_BOTH.replace('OPTION_COUNT', 'OPTIONS_BOTH')),
            '--new is not in',
        ),
        ('vocabulary__rows_of_a_function_of_the_floor', common(CALLS_SHOW, PARSES), None),
        (
            'vocabulary__row_of_a_function_of_the_floor',
            common(CALLS_SHOW, PARSES, options=CARD_ROW),
            'get.c: --count is not in',
        ),
        (
            'vocabulary__row_of_the_floor',
            common(USES_BOTH, options=CARD_ROW),
            'get.c: --count is not in',
        ),
        (
            'vocabulary__key_of_the_floor',
            common(USES_BOTH, rows=SIZE_ROWS.splitlines(True)[0]),
            'get.c: "bytes" is not in',
        ),
        (
            'vocabulary__floor_that_nobody_uses',
            common('int show(void);\n'),
            "--count is of ['pmem'], and [] has it",
        ),
        ('vocabulary__old_is_not_said', words([COUNT, WAS], COUNT_ROW), 'does not say that -c was'),
        ('vocabulary__old_has_gone', words([COUNT], COUNT_ROW, old=WAS_ROW), 'is taken no more'),
        ('vocabulary__keys', keys(SIZE, SIZE_ROWS), None),
        ('vocabulary__key_not_in_the_page', keys(SIZE, BOTH_ROW), '"name" is not in'),
        ('vocabulary__key_of_nobody', keys(SIZE, SIZE_ROWS + OLD_ROW), '"size" is of'),
        (
            'vocabulary__key_of_another',
            keys(SIZE, SIZE_ROWS.replace('many | pmem', 'many | transfer')),
            '"bytes" is of [\'transfer\'], and [\'pmem\'] has it',
        ),
        (
            'vocabulary__key_with_two_meanings',
            keys(SIZE, SIZE_ROWS + BOTH_ROW),
            '"bytes" has two meanings',
        ),
        ('vocabulary__old_key', keys(BOTH, BOTH_ROW, OLD_ROW), None),
        (
            'vocabulary__old_key_alone',
            keys('"{sI}", "size", size', BOTH_ROW, OLD_ROW),
            '"size" has no "bytes" beside it',
        ),
        (
            'vocabulary__old_key_has_gone',
            keys('"{sI}", "bytes", size', BOTH_ROW, OLD_ROW),
            'is there no more',
        ),
        ('vocabulary__no_page', check('vocabulary', {'movers/a.c': ''}), 'is not there'),
    ]
