/* SPDX-License-Identifier: BSD-2-Clause */

#include "base/clock.h"
#include "link/roce/qp/repath.h"
#include "link_rig.h"

#define TIMEOUT 14 /* 67 ms */

static struct sw_retry retry_of(uint64_t round_trip_ns)
{
    struct sw_retry retry;
    sw_retry_init(&retry, TIMEOUT, 7, 7);
    sw_retry_measure(&retry, round_trip_ns, SW_NS_PER_S);
    return retry;
}

/* So many timeouts for the packet `una`; returns after how many another way is wanted, or 0. */
static uint32_t time_out(struct sw_repath *repath, struct sw_retry *retry, uint32_t una,
                         uint32_t times)
{
    uint32_t wanted = 0;
    for (uint32_t i = 1; i <= times; i++) {
        retry->backoff++;
        if (sw_repath_unanswered(repath, repath->timeouts + 1, una, retry) && !wanted)
            wanted = i;
    }
    return wanted;
}

/* So many copies, each after a while; the same. */
static uint32_t repeat(struct sw_repath *repath, const struct sw_retry *retry, uint32_t times)
{
    uint32_t wanted = 0;
    for (uint32_t i = 1; i <= times; i++)
        if (sw_repath_unheard(repath, repath->duplicates + 1, 1, retry,
                              repath->doubted_ns + 50 * SW_NS_PER_MS) &&
            !wanted)
            wanted = i;
    return wanted;
}

static void timeouts_of__one_round_trip(void **state)
{
    (void)state;
    struct sw_retry retry = {0};
    assert_int_equal(sw_repath_timeouts_of(&retry), 0); /* nothing is known */
    retry = retry_of(20 * SW_NS_PER_US);
    assert_int_equal(sw_repath_timeouts_of(&retry), 0);
    retry = retry_of(60 * SW_NS_PER_MS);
    assert_int_equal(sw_repath_timeouts_of(&retry), 0);
    retry = retry_of(205 * SW_NS_PER_MS);
    assert_int_equal(sw_repath_timeouts_of(&retry), 3);
}

static void unanswered__the_second_timeout(void **state)
{
    (void)state;
    struct sw_repath repath = {0};
    struct sw_retry retry = retry_of(20 * SW_NS_PER_US);
    assert_int_equal(time_out(&repath, &retry, 1, 1), 0);
    assert_false(
        sw_repath_unanswered(&repath, repath.timeouts, 1, &retry)); /* looked at without one */
    assert_int_equal(time_out(&repath, &retry, 1, 1), 1);
    assert_int_equal(time_out(&repath, &retry, 2, 1), 1); /* no round trip was measured since */
}

static void unanswered__not_within_a_round_trip(void **state)
{
    (void)state;
    struct sw_repath repath = {0};
    struct sw_retry retry = retry_of(205 * SW_NS_PER_MS);
    for (uint32_t una = 1; una < 20; una++)
        assert_int_equal(time_out(&repath, &retry, una, 3), 0);
    assert_int_equal(time_out(&repath, &retry, 20, 5), 4);
}

/* It gets the time to claim the flow, and so does each path. */
static void unanswered__who_runs_is_told_first(void **state)
{
    (void)state;
    struct sw_repath repath = {0};
    struct sw_retry retry = retry_of(20 * SW_NS_PER_US);
    retry.peer = SW_RETRY_PEER_RUNS;
    assert_false(sw_repath_is_doubted(&repath, 0));
    assert_int_equal(time_out(&repath, &retry, 1, 1), 0);
    assert_true(sw_repath_is_doubted(&repath, 1));
    assert_false(sw_repath_is_doubted(&repath, 2)); /* that one was never missed */
    assert_int_equal(time_out(&repath, &retry, 1, 3), 3);
    assert_true(sw_repath_is_doubted(&repath, 1));
    assert_int_equal(time_out(&repath, &retry, 1, 3), 3);
}

static void unanswered__who_does_not_run_answers_on_no_way(void **state)
{
    (void)state;
    struct sw_repath repath = {0};
    struct sw_retry retry = retry_of(20 * SW_NS_PER_US);
    retry.peer = SW_RETRY_PEER_WAITS;
    assert_int_equal(time_out(&repath, &retry, 1, 50), 0);
    retry.peer = SW_RETRY_PEER_UNKNOWN;
    assert_int_equal(time_out(&repath, &retry, 1, 1), 1);
}

static void unheard__asked_again_three_times(void **state)
{
    (void)state;
    struct sw_repath repath = {.expected = 1, .doubted_ns = SW_NS_PER_S};
    const struct sw_retry retry = retry_of(20 * SW_NS_PER_US);
    assert_int_equal(repeat(&repath, &retry, 3), 3);
}

static void unheard__a_burst_counts_once(void **state)
{
    (void)state;
    struct sw_repath repath = {.expected = 1};
    const struct sw_retry retry = retry_of(20 * SW_NS_PER_US);
    for (uint64_t copies = 1; copies < 100; copies++)
        assert_false(sw_repath_unheard(&repath, copies, 1, &retry, SW_NS_PER_S + copies));
}

static void unheard__as_often_as_a_round_trip_takes(void **state)
{
    (void)state;
    struct sw_repath repath = {.expected = 1, .doubted_ns = SW_NS_PER_S};
    const struct sw_retry retry = retry_of(205 * SW_NS_PER_MS);
    assert_int_equal(repeat(&repath, &retry, 8), 6);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(timeouts_of__one_round_trip),
        cmocka_unit_test(unanswered__the_second_timeout),
        cmocka_unit_test(unanswered__not_within_a_round_trip),
        cmocka_unit_test(unanswered__who_runs_is_told_first),
        cmocka_unit_test(unanswered__who_does_not_run_answers_on_no_way),
        cmocka_unit_test(unheard__asked_again_three_times),
        cmocka_unit_test(unheard__a_burst_counts_once),
        cmocka_unit_test(unheard__as_often_as_a_round_trip_takes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
