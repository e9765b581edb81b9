/* SPDX-License-Identifier: BSD-2-Clause */
/* How long the movers sleep until a deadline. */
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/time/deadline.h"

enum { NOW = 5000000, LONGEST = 1000 };

static int sleep_ms(uint64_t left_ns)
{
    return mover_ms_until(NOW + left_ns, NOW, LONGEST);
}

static void deadline__is_never_missed_by_a_part_of_a_millisecond(void **state)
{
    (void)state;
    assert_int_equal(sleep_ms(1), 1);
    assert_int_equal(sleep_ms(NS_PER_MS - 1), 1);
    assert_int_equal(sleep_ms(NS_PER_MS), 1);
    assert_int_equal(sleep_ms(NS_PER_MS + 1), 2);
}

static void deadline__that_has_passed_does_not_sleep(void **state)
{
    (void)state;
    assert_int_equal(sleep_ms(0), 0);
    assert_int_equal(mover_ms_until(NOW - 1, NOW, LONGEST), 0);
    assert_int_equal(mover_ms_until(0, UINT64_MAX, LONGEST), 0);
}

static void deadline__far_away_sleeps_for_the_longest(void **state)
{
    (void)state;
    assert_int_equal(sleep_ms(LONGEST * NS_PER_MS - 1), LONGEST);
    assert_int_equal(sleep_ms(LONGEST * NS_PER_MS), LONGEST);
    assert_int_equal(sleep_ms(LONGEST * NS_PER_MS + 1), LONGEST);
    assert_int_equal(mover_ms_until(UINT64_MAX, NOW, LONGEST), LONGEST);
    assert_int_equal(mover_ms_until(UINT64_MAX, 0, INT_MAX), INT_MAX);
    assert_int_equal(mover_ms_until(UINT64_MAX, NOW, 0), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(deadline__is_never_missed_by_a_part_of_a_millisecond),
        cmocka_unit_test(deadline__that_has_passed_does_not_sleep),
        cmocka_unit_test(deadline__far_away_sleeps_for_the_longest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
