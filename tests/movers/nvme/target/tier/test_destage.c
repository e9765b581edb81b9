/* SPDX-License-Identifier: BSD-2-Clause */
/* How fast FILE gets what the log has. What comes next is tried by test_cuts.c. */
#include "nvme/target/tier/destage.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

enum { RUNS = 32, RING = 1 << 20 };

/* Few while there is room; never fewer when there is less room; all before the log is full. */
static void destage__is_gentle_while_the_log_has_room(void **state)
{
    uint32_t before = 1;
    (void)state;
    for (uint64_t used = 0; used <= RING; used += RING / 64) {
        const uint32_t depth = nvt_tier_destage_depth(RING, used, RUNS);
        assert_in_range(depth, before, RUNS);
        before = depth;
    }
    assert_true(nvt_tier_destage_depth(RING, RING / 4, RUNS) <= 2);
    assert_true(nvt_tier_destage_depth(RING, RING / 2, RUNS) < RUNS);
    assert_int_equal(nvt_tier_destage_depth(RING, RING / 8 * 7, RUNS), RUNS);
}

static void destage__never_stands_still(void **state)
{
    (void)state;
    for (uint32_t runs = 1; runs < 4; runs++)
        for (uint64_t used = 0; used <= RING; used += RING / 64)
            assert_in_range(nvt_tier_destage_depth(RING, used, runs), 1, runs);
}

/* Hosts write less and less for each write to FILE, and nothing before the log is full. */
static void destage__hurries_as_the_log_fills(void **state)
{
    uint64_t before = nvt_tier_destage_pace(RING, 0);
    (void)state;
    for (uint64_t used = 0; used <= RING; used += RING / 64) {
        const uint64_t pace = nvt_tier_destage_pace(RING, used);
        assert_in_range(pace, 0, before);
        before = pace;
    }
    assert_true(nvt_tier_destage_pace(RING, RING / 2) >= 64 * 4096);
    assert_int_equal(nvt_tier_destage_pace(RING, RING / 4 * 3), 0);
    assert_int_equal(nvt_tier_destage_pace(RING, RING), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(destage__is_gentle_while_the_log_has_room),
        cmocka_unit_test(destage__never_stands_still),
        cmocka_unit_test(destage__hurries_as_the_log_fills),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
