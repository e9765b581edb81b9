/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/backoff.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#define EVENTS_MAX 16u

/*
 * A rule, and what happens: 'f' is a failure, 's' a success, 'r' a rest that does not wait for
 * failures. `rests` has what each 'f' and 'r' returns.
 */
static const struct row {
    const char *name;
    struct sw_backoff_rule rule;
    const char *events;
    uint64_t rests[EVENTS_MAX];
} rows[] = {
    {"twice as long each time, up to a bound",
     {.first = 100, .doublings_max = 3},
     "ffffff",
     {100, 200, 400, 800, 800, 800}},
    {"a success begins anew", {.first = 100, .doublings_max = 3}, "ffsff", {100, 200, 100, 200}},
    {"the same each time", {.first = 64}, "fffsf", {64, 64, 64, 64}},
    {"after some in a row, then each time",
     {.first = 64, .failures_min = 4},
     "fffffffsffff",
     {0, 0, 0, 64, 64, 64, 64, 0, 0, 0, 64}},
    {"some in a row, each time",
     {.first = 10, .doublings_max = 1, .failures_min = 3, .is_counted_anew = true},
     "fffffffffsfff",
     {0, 0, 10, 0, 0, 20, 0, 0, 20, 0, 0, 10}},
    {"a success between them",
     {.first = 10, .failures_min = 3, .is_counted_anew = true},
     "ffsffsfff",
     {0, 0, 0, 0, 0, 0, 10}},
    {"a rest before its time",
     {.first = 10, .doublings_max = 5, .failures_min = 3, .is_counted_anew = true},
     "ffrfffr",
     {0, 0, 10, 0, 0, 20, 40}},
    {"longer than 32 bits",
     {.first = 1ull << 40, .doublings_max = 1},
     "ff",
     {1ull << 40, 2ull << 40}},
};

static void rests__by_rule(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        const struct row *row = &rows[i];
        struct sw_backoff backoff = {0};
        uint32_t count = 0;
        for (const char *event = row->events; *event; event++) {
            if (*event == 's') {
                sw_backoff_succeed(&backoff);
                continue;
            }
            const uint64_t rest = *event == 'f' ? sw_backoff_fail(&backoff, &row->rule)
                                                : sw_backoff_rest(&backoff, &row->rule);
            if (rest != row->rests[count++])
                fail_msg("%s: rest %u is %llu", row->name, count, (unsigned long long)rest);
        }
    }
}

/* How many turns pass until one is not left out. */
static uint32_t count_skipped(struct sw_backoff *backoff)
{
    uint32_t count = 0;
    for (; sw_backoff_skips(backoff); count++)
        assert_true(count < 1000);
    return count;
}

static void turns__are_counted_down(void **state)
{
    static const struct sw_backoff_rule rule = {.first = 1, .doublings_max = 6};
    static const uint32_t skipped[] = {1, 2, 4, 8, 16, 32, 64, 64};
    struct sw_backoff backoff = {0};
    (void)state;
    assert_int_equal(count_skipped(&backoff), 0);
    for (size_t i = 0; i < sizeof(skipped) / sizeof(*skipped); i++) {
        sw_backoff_fail_turn(&backoff, &rule);
        assert_false(sw_backoff_has_turn(&backoff));
        assert_int_equal(count_skipped(&backoff), skipped[i]);
        assert_true(sw_backoff_has_turn(&backoff));
    }
}

static void turns__are_left_out_after_a_success_too(void **state)
{
    static const struct sw_backoff_rule rule = {.first = 4, .doublings_max = 1};
    struct sw_backoff backoff = {0};
    (void)state;
    sw_backoff_fail_turn(&backoff, &rule);
    sw_backoff_succeed(&backoff);
    assert_int_equal(count_skipped(&backoff), 4);
    sw_backoff_fail_turn(&backoff, &rule);
    assert_int_equal(count_skipped(&backoff), 4);
}

/* Failures are counted in a byte. */
static void fail__many_times(void **state)
{
    static const struct sw_backoff_rule rule = {.first = 7, .failures_min = UINT8_MAX};
    struct sw_backoff backoff = {0};
    (void)state;
    for (uint32_t i = 1; i < UINT8_MAX; i++)
        assert_int_equal(sw_backoff_fail(&backoff, &rule), 0);
    for (uint32_t i = 0; i < 1000; i++)
        assert_int_equal(sw_backoff_fail(&backoff, &rule), 7);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rests__by_rule),
        cmocka_unit_test(turns__are_counted_down),
        cmocka_unit_test(turns__are_left_out_after_a_success_too),
        cmocka_unit_test(fail__many_times),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
