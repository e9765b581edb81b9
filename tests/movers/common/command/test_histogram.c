/* SPDX-License-Identifier: BSD-2-Clause */
/* Percentiles of latencies, as the benches of the movers print them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "common/command/histogram.h"

static void histogram__is_right_within_two_percent(void **state)
{
    static struct mover_histogram h;
    (void)state;
    for (uint64_t ns = 1; ns < 1ull << 38; ns = ns * 9 / 8 + 1) {
        memset(&h, 0, sizeof(h));
        mover_histogram_add(&h, ns);
        const double error = (double)mover_histogram_at(&h, 0.5) / (double)ns - 1;
        assert_true(error < 0.02 && error > -0.02);
        assert_int_equal(h.max_ns, ns);
        assert_true(mover_histogram_at(&h, 1) <= ns); /* no percentile is above the longest */
    }
    memset(&h, 0, sizeof(h));
    mover_histogram_add(&h, 0);
    mover_histogram_add(&h, UINT64_MAX);
    assert_int_equal(h.count, 2);
}

static void histogram__percentiles(void **state)
{
    static struct mover_histogram h, sum;
    (void)state;
    assert_int_equal(mover_histogram_at(&h, 0.5), 0);
    for (unsigned i = 1; i <= 1000; i++)
        mover_histogram_add(&h, i * 1000);
    mover_histogram_merge(&sum, &h);
    mover_histogram_merge(&sum, &h);
    assert_int_equal(sum.count, 2000);
    assert_in_range(mover_histogram_at(&sum, 0.5), 490000, 510000);
    assert_in_range(mover_histogram_at(&sum, 0.99), 970000, 1010000);
    assert_int_equal(sum.max_ns, 1000000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(histogram__is_right_within_two_percent),
        cmocka_unit_test(histogram__percentiles),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
