/* SPDX-License-Identifier: BSD-2-Clause */
#include "wire/psn.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static void sw_psn_add__wraps_at_24_bits(void **state)
{
    (void)state;
    assert_int_equal(sw_psn_add(5, 3), 8);
    assert_int_equal(sw_psn_add(0xffffff, 1), 0);
    assert_int_equal(sw_psn_add(0xfffff0, 0x20), 0x10);
    assert_int_equal(sw_psn_add(0, -1u), 0xffffff);
}

static void sw_psn_distance__truth_table(void **state)
{
    (void)state;
    static const struct {
        uint32_t from, to;
        int32_t distance;
    } table[] = {
        {0, 0, 0},
        {0, 1, 1},
        {1, 0, -1},
        {0xffffff, 0, 1},
        {0, 0xffffff, -1},
        {0, 0x7fffff, 0x7fffff},
        {0, 0x800000, -0x800000},
        {0x800000, 0, -0x800000},
        {0xc00000, 0x3fffff, 0x7fffff},
        {0x123456, 0x123456, 0},
        {0xfffffe, 0x000002, 4},
        {0x01000005, 6, 1}, /* what is above 24 bits does not count */
    };
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        int32_t distance = sw_psn_distance(table[i].from, table[i].to);
        assert_int_equal(distance, table[i].distance);
        assert_int_equal(sw_psn_is_before(table[i].from, table[i].to), table[i].distance > 0);
        assert_int_equal(sw_psn_add(table[i].from, (uint32_t)distance), table[i].to);
    }
}

static void sw_psn_is_within__the_wrap(void **state)
{
    (void)state;
    assert_true(sw_psn_is_within(0xfffffe, 0xfffffe, 4));
    assert_true(sw_psn_is_within(1, 0xfffffe, 4));
    assert_false(sw_psn_is_within(2, 0xfffffe, 4));
    assert_false(sw_psn_is_within(0xfffffd, 0xfffffe, 4));
    assert_false(sw_psn_is_within(7, 7, 0));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sw_psn_add__wraps_at_24_bits),
        cmocka_unit_test(sw_psn_distance__truth_table),
        cmocka_unit_test(sw_psn_is_within__the_wrap),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
