/* SPDX-License-Identifier: BSD-2-Clause */
/* Old spellings of options: what they stand for, and what is told of them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "common/command/old_option.h"

enum { TEXT_MAX = 4096 };

static char seen[TEXT_MAX];

/* Says what it is told by its place, the name, and the text. */
static void note_option(struct argp_state *state, void *place, char *text)
{
    const size_t used = strlen(seen);
    (void)state;
    snprintf(seen + used, sizeof(seen) - used, "%s=%s ", (char *)place, text ? text : "");
}

static char names[] = "count\0bs\0fast\0offset";
enum { COUNT = 0, BS = 6, FAST = 9, OFFSET = 14 };

static const struct mover_option options[] = {
    {"count", 0, "N", 0, "How many", 1, note_option, COUNT},
    {.letter = 'c', .flags = MOVER_OLD},
    {"bs", 0, "BYTES", 0, "Bytes of a block", 1, note_option, BS},
    {.name = "block", .flags = MOVER_OLD},
    {"fast", 0, NULL, 0, "Without an argument", 1, note_option, FAST},
    {.letter = 'F', .flags = MOVER_OLD},
    {"offset", 'f', "BYTES", 0, "One that has always been so", 1, note_option, OFFSET},
    {0},
};

static const struct mover_usage usage = {.own = {.rows = options}};

/* Standard error while the words are parsed. */
static char *parse_words(char *words)
{
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
    mover_parse(&usage, argc, argv, names);
    fclose(stderr);
    stderr = own;
    return text;
}

static void old_option__new_spellings_say_nothing(void **state)
{
    (void)state;
    char words[] = "--count 3 --bs 4K --fast -f 7";
    assert_string_equal(parse_words(words), "");
    assert_string_equal(seen, "count=3 bs=4K fast= offset=7 ");
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
    assert_string_equal(seen, "count=3 count=4 bs=4K fast= offset=7 ");
    char again[] = "-c 5";
    assert_string_equal(parse_words(again), "");
    assert_string_equal(seen, "count=5 ");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(old_option__new_spellings_say_nothing),
        cmocka_unit_test(old_option__is_taken_and_told_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
