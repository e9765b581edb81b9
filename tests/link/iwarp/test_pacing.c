/* SPDX-License-Identifier: BSD-2-Clause */
/* When a program that polls gives TCP more, where TCP paces. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/clock.h"
#include "link/iwarp/pacing.h"

#define RATE (2 * (uint64_t)SW_NS_PER_S) /* two bytes per nanosecond */
#define SEGMENT 8948u
#define BURST (7 * SEGMENT)
#define MUCH ((size_t)256 << 10)

static struct sw_iwarp_pacing pacing;
static uint64_t now_ns;

static int setup(void **state)
{
    (void)state;
    now_ns = SW_NS_PER_S;
    sw_iwarp_pacing_start(&pacing);
    sw_iwarp_pacing_learn(&pacing, RATE, SEGMENT);
    return 0;
}

static size_t ask(bool polls)
{
    return sw_iwarp_pacing_allows(&pacing, now_ns, polls, MUCH);
}

/* Gives what may be given. */
static size_t give(bool polls)
{
    const size_t bytes = ask(polls);
    if (bytes)
        sw_iwarp_pacing_charge(&pacing, bytes, now_ns);
    return bytes;
}

static void gives_a_burst_when_it_is_due(void **state)
{
    (void)state;
    for (int i = 0; i < 20; i++) {
        assert_int_equal(give(true), BURST);
        assert_int_equal(give(true), 0);
        now_ns += BURST / 2 - 1;
        assert_int_equal(give(true), 0);
        now_ns++;
    }
}

static void short_ones_wait_no_longer_than_they_take(void **state)
{
    (void)state;
    sw_iwarp_pacing_charge(&pacing, 100, now_ns);
    assert_int_equal(ask(true), 0);
    now_ns += 50;
    assert_int_equal(sw_iwarp_pacing_allows(&pacing, now_ns, true, 100), 100);
}

static void holds_nothing_back_for_who_is_late(void **state)
{
    (void)state;
    assert_int_equal(give(true), BURST);
    assert_int_equal(give(true), 0);
    now_ns = pacing.due_ns + SW_PACING_LATE_NS + 1;
    assert_int_equal(give(true), MUCH);
    assert_int_equal(give(true), MUCH);
    now_ns += SW_PACING_ALONE_NS;
    assert_int_equal(give(true), BURST);
}

/* Comes late with something that waits. How long nothing is held back then. */
static uint64_t be_late(void)
{
    while (give(true))
        ;
    now_ns = pacing.due_ns + SW_PACING_LATE_NS + 1;
    assert_int_equal(give(true), MUCH);
    return pacing.alone_ns - now_ns;
}

static void who_is_late_again_and_again_is_left_alone_longer(void **state)
{
    (void)state;
    uint64_t longest_ns = SW_PACING_ALONE_NS;
    for (int i = 0; i < 10; i++) {
        assert_int_equal(be_late(), longest_ns);
        now_ns = pacing.alone_ns;
        if (longest_ns < (uint64_t)SW_PACING_ALONE_NS << SW_PACING_DOUBLINGS_MAX)
            longest_ns *= 2;
    }
    now_ns += SW_PACING_TRUST_NS;
    assert_int_equal(be_late(), SW_PACING_ALONE_NS);
}

static void who_had_nothing_waiting_is_not_late(void **state)
{
    (void)state;
    assert_int_equal(give(true), BURST);
    now_ns = pacing.due_ns + 10 * SW_PACING_LATE_NS;
    assert_int_equal(give(true), BURST);
}

static void holds_nothing_back_where_nobody_polls(void **state)
{
    (void)state;
    assert_int_equal(give(true), BURST);
    assert_int_equal(give(true), 0);
    assert_int_equal(give(false), MUCH);
    assert_int_equal(give(false), MUCH);
    assert_int_equal(give(true), 0); /* which was no fault of the program */
    now_ns = pacing.due_ns;
    assert_int_equal(give(true), BURST);
}

static void leaves_slow_and_unpaced_ones_alone(void **state)
{
    (void)state;
    static const uint64_t rates[] = {0, SW_PACING_RATE_LEAST - 1, UINT64_MAX};
    for (unsigned int i = 0; i < 3; i++) {
        sw_iwarp_pacing_learn(&pacing, rates[i], SEGMENT);
        assert_false(sw_iwarp_pacing_is_used(&pacing));
        for (int j = 0; j < 100; j++)
            assert_int_equal(give(true), MUCH);
    }
}

static void asks_for_the_rate_now_and_then(void **state)
{
    (void)state;
    struct sw_iwarp_pacing never = {0};
    sw_iwarp_pacing_charge(&never, SW_PACING_LOOK_BYTES, now_ns);
    assert_false(sw_iwarp_pacing_wants_rate(&never));
    assert_false(sw_iwarp_pacing_wants_rate(&pacing));
    sw_iwarp_pacing_charge(&pacing, SW_PACING_LOOK_BYTES - 1, now_ns);
    assert_false(sw_iwarp_pacing_wants_rate(&pacing));
    sw_iwarp_pacing_charge(&pacing, 1, now_ns);
    assert_true(sw_iwarp_pacing_wants_rate(&pacing));
    sw_iwarp_pacing_learn(&pacing, 1, SEGMENT); /* slow: it may become faster */
    sw_iwarp_pacing_charge(&pacing, SW_PACING_LOOK_BYTES, now_ns);
    assert_true(sw_iwarp_pacing_wants_rate(&pacing));
}

static void a_segment_longer_than_a_burst(void **state)
{
    (void)state;
    sw_iwarp_pacing_learn(&pacing, RATE, 65483);
    assert_int_equal(give(true), 65483);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(gives_a_burst_when_it_is_due, setup),
        cmocka_unit_test_setup(short_ones_wait_no_longer_than_they_take, setup),
        cmocka_unit_test_setup(holds_nothing_back_for_who_is_late, setup),
        cmocka_unit_test_setup(who_is_late_again_and_again_is_left_alone_longer, setup),
        cmocka_unit_test_setup(who_had_nothing_waiting_is_not_late, setup),
        cmocka_unit_test_setup(holds_nothing_back_where_nobody_polls, setup),
        cmocka_unit_test_setup(leaves_slow_and_unpaced_ones_alone, setup),
        cmocka_unit_test_setup(asks_for_the_rate_now_and_then, setup),
        cmocka_unit_test_setup(a_segment_longer_than_a_burst, setup),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
