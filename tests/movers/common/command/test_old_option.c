/* SPDX-License-Identifier: BSD-2-Clause */
/* Old spellings of options: what they stand for, what is told of them, and that --help has none. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/command/old_option.h"

enum { KEY_COUNT = 256, KEY_BS, KEY_OLD_BLOCK, KEY_FAST, TEXT_MAX = 4096 };

static const struct argp_option options[] = {
    {"count", KEY_COUNT, "N", 0, "How many", 1},
    {NULL, 'c', NULL, MOVER_OLD, NULL, 0},
    {"bs", KEY_BS, "BYTES", 0, "Bytes of a block", 1},
    {"block", KEY_OLD_BLOCK, NULL, MOVER_OLD, NULL, 0},
    {"fast", KEY_FAST, NULL, 0, "Without an argument", 1},
    {NULL, 'F', NULL, MOVER_OLD, NULL, 0},
    {"offset", 'f', "BYTES", 0, "One that has always been so", 1},
    {0},
};

static char seen[TEXT_MAX];

static error_t note_option(int key, char *value, struct argp_state *state)
{
    const size_t used = strlen(seen);
    switch (mover_current_key(state, options, key)) {
    case KEY_COUNT:
        snprintf(seen + used, sizeof(seen) - used, "count=%s ", value);
        return 0;
    case KEY_BS:
        snprintf(seen + used, sizeof(seen) - used, "bs=%s ", value);
        return 0;
    case KEY_FAST:
        snprintf(seen + used, sizeof(seen) - used, "fast ");
        return 0;
    case 'f':
        snprintf(seen + used, sizeof(seen) - used, "offset=%s ", value);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

/* Standard error while the words are parsed. */
static char *parse_words(char *words)
{
    static const struct argp argp = {.options = options, .parser = note_option};
    static char text[TEXT_MAX];
    char *argv[16] = {(char *)"sidewire try"};
    int argc = 1;
    for (char *rest = words; (argv[argc] = strtok_r(rest, " ", &rest)); argc++)
        ;
    FILE *const own = stderr;
    memset(text, 0, sizeof(text));
    seen[0] = '\0';
    stderr = fmemopen(text, sizeof(text) - 1, "w");
    assert_non_null(stderr);
    assert_int_equal(argp_parse(&argp, argc, argv, 0, NULL, NULL), 0);
    fclose(stderr);
    stderr = own;
    return text;
}

static void old_option__new_spellings_say_nothing(void **state)
{
    (void)state;
    char words[] = "--count 3 --bs 4K --fast -f 7";
    assert_string_equal(parse_words(words), "");
    assert_string_equal(seen, "count=3 bs=4K fast offset=7 ");
}

static void old_option__is_taken_and_told_once(void **state)
{
    (void)state;
    char words[] = "-c3 -c 4 --block 4K -Ff 7";
    assert_string_equal(
        parse_words(words),
        "sidewire try: -c is --count now; the letter goes with the next release\n"
        "sidewire try: --block is --bs now; the old name goes with the next release\n"
        "sidewire try: -F is --fast now; the letter goes with the next release\n");
    assert_string_equal(seen, "count=3 count=4 bs=4K fast offset=7 ");
    char again[] = "-c 5";
    assert_string_equal(parse_words(again), "");
    assert_string_equal(seen, "count=5 ");
}

static void old_option__is_not_in_help(void **state)
{
    static const struct argp argp = {.options = options, .parser = note_option};
    char text[TEXT_MAX] = "", name[] = "try";
    (void)state;
    FILE *out = fmemopen(text, sizeof(text) - 1, "w");
    assert_non_null(out);
    argp_help(&argp, out, ARGP_HELP_LONG | ARGP_HELP_USAGE, name);
    fclose(out);
    assert_non_null(strstr(text, "--count=N"));
    assert_non_null(strstr(text, "-f, --offset=BYTES"));
    assert_null(strstr(text, "--block"));
    assert_null(strstr(text, "-c,"));
    assert_null(strstr(text, "-c N"));
    assert_null(strchr(text, 'F'));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(old_option__new_spellings_say_nothing),
        cmocka_unit_test(old_option__is_taken_and_told_once),
        cmocka_unit_test(old_option__is_not_in_help),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
