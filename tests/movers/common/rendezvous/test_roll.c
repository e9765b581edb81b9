/* SPDX-License-Identifier: BSD-2-Clause */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "common/rendezvous/roll.h"

enum { SIZE = 16 };

static struct mover_roll roll;
static uint32_t cards[SIZE];
static char text[300];

static bool take(uint32_t rank, uint32_t size, uint32_t card_bytes)
{
    const struct mover_meet_join join = {.rank = rank, .size = size, .card_bytes = card_bytes};
    const uint32_t card[2] = {100 + rank, 0};
    return mover_roll_take(&roll, &join, card, "host:1", text, sizeof(text));
}

static int open_roll(void **state)
{
    const uint32_t card = 100;
    (void)state;
    mover_roll_open(&roll, SIZE, &card, sizeof(card), cards);
    return 0;
}

static void roll__is_full_with_each_card_in_its_place(void **state)
{
    (void)state;
    for (uint32_t rank = SIZE - 1; rank; rank--) {
        assert_false(mover_roll_is_full(&roll));
        assert_true(take(rank, SIZE, 4));
    }
    assert_true(mover_roll_is_full(&roll));
    for (uint32_t rank = 0; rank < SIZE; rank++)
        assert_int_equal(cards[rank], 100 + rank);
}

static void roll__names_what_does_not_fit(void **state)
{
    (void)state;
    assert_true(take(3, SIZE, 4));
    assert_false(take(3, SIZE, 4));
    assert_string_equal(text, "two processes claim to be rank 3: at host:1 and host:1");
    assert_false(take(0, SIZE, 4));
    assert_string_equal(text, "host:1 claims to be rank 0, too");
    assert_false(take(4, 8, 4));
    assert_string_equal(text, "rank 4 at host:1 says that there are 8 ranks, and rank 0 16");
    /* Out of the bounds of this job's, if it were believed. */
    assert_false(take(900, 1000, 4));
    assert_false(take(5, SIZE, 8));
    assert_string_equal(text, "rank 5 at host:1 has a card of 8 bytes, and rank 0 one of 4");
    assert_int_equal(roll.present, 2);
}

static void roll__names_the_absent(void **state)
{
    (void)state;
    mover_roll_absent(&roll, text, sizeof(text));
    assert_string_equal(text, "ranks 1 to 15");
    const uint32_t present[] = {1, 2, 4, 8, 9, 10, 11, 13};
    for (size_t i = 0; i < sizeof(present) / sizeof(present[0]); i++)
        assert_true(take(present[i], SIZE, 4));
    mover_roll_absent(&roll, text, sizeof(text));
    assert_string_equal(text, "ranks 3, 5 to 7, 12 and 14 to 15");
    for (uint32_t rank = 1; rank < SIZE - 1; rank++)
        take(rank, SIZE, 4);
    mover_roll_absent(&roll, text, sizeof(text));
    assert_string_equal(text, "rank 15");
}

static void roll__of_many_absent_names_the_first(void **state)
{
    static uint8_t all[1024];
    (void)state;
    mover_roll_open(&roll, 1024, "", 1, all);
    for (uint32_t rank = 2; rank < 1024; rank += 2)
        assert_true(take(rank, 1024, 1));
    char narrow[60];
    mover_roll_absent(&roll, narrow, sizeof(narrow)); /* is cut, and ends */
    mover_roll_absent(&roll, text, sizeof(text));
    assert_string_equal(text, "ranks 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23 and 500 more");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(roll__is_full_with_each_card_in_its_place, open_roll),
        cmocka_unit_test_setup(roll__names_what_does_not_fit, open_roll),
        cmocka_unit_test_setup(roll__names_the_absent, open_roll),
        cmocka_unit_test_setup(roll__of_many_absent_names_the_first, open_roll),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
