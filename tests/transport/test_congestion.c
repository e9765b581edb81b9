/* SPDX-License-Identifier: BSD-2-Clause */
#include "transport/congestion.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define US 1000ull
#define MIN_RTT (20 * US)
#define RATE_MAX 12500000000ull

static struct sw_congestion c;

static void start(void)
{
    const struct sw_congestion_config config = {.packet_bytes = 4096, .window_max = 2048};
    sw_congestion_init(&c, &config);
}

/* A window that is always filled, over this many round trips. Returns the time at their end. */
static uint64_t rounds(uint32_t count, uint64_t rtt_ns, uint64_t now_ns)
{
    for (uint32_t i = 0; i < count; i++) {
        uint32_t window = sw_congestion_window(&c);
        assert_false(sw_congestion_may_send(&c, window, now_ns));
        now_ns += rtt_ns;
        for (uint32_t k = 0; k < window; k++)
            sw_congestion_on_ack(&c, 1, rtt_ns, MIN_RTT, now_ns);
    }
    return now_ns;
}

static void sw_congestion__doubles_at_first(void **state)
{
    (void)state;
    start();
    uint32_t first = sw_congestion_window(&c);
    rounds(1, MIN_RTT, 1000 * US);
    assert_int_equal(sw_congestion_window(&c), 2 * first);
    rounds(20, MIN_RTT, 2000 * US);
    assert_int_equal(sw_congestion_window(&c), 2048); /* and not beyond its limit */
}

static void sw_congestion__a_window_that_is_not_used_does_not_grow(void **state)
{
    (void)state;
    start();
    uint32_t first = sw_congestion_window(&c);
    for (int i = 0; i < 1000; i++) {
        assert_true(sw_congestion_may_send(&c, 0, 1000 * US));
        sw_congestion_on_ack(&c, 1, MIN_RTT, MIN_RTT, 1000 * US);
    }
    assert_int_equal(sw_congestion_window(&c), first);
}

/* Three round trips of more than the target. Returns the time of the next. */
static uint64_t late(uint64_t now_ns)
{
    for (int i = 0; i < 3; i++, now_ns += 1000 * US)
        sw_congestion_on_ack(&c, 1, 1000 * US, MIN_RTT, now_ns);
    return now_ns;
}

/* A processor that the peer waits for now and then is no queue. */
static void sw_congestion__delay_now_and_then_leaves_it_alone(void **state)
{
    (void)state;
    start();
    uint64_t now = rounds(4, MIN_RTT, 1000 * US);
    uint32_t before = sw_congestion_window(&c);
    for (int i = 0; i < 100; i++) {
        now = late(now);
        assert_true(sw_congestion_window(&c) >= before);
        sw_congestion_on_ack(&c, 1, MIN_RTT, MIN_RTT, now);
    }
    now = late(now);
    sw_congestion_on_ack(&c, 1, 1000 * US, MIN_RTT, now);
    assert_true(sw_congestion_window(&c) < before);
}

static void sw_congestion__delay_shrinks_it_once_a_round_trip(void **state)
{
    (void)state;
    start();
    uint64_t now = rounds(4, MIN_RTT, 1000 * US);
    now = late(now);
    uint32_t before = sw_congestion_window(&c);
    sw_congestion_on_ack(&c, 1, 1000 * US, MIN_RTT, now);
    uint32_t after = sw_congestion_window(&c);
    assert_true(after < before && after >= before / 2);
    sw_congestion_on_ack(&c, 1, 1000 * US, MIN_RTT, now + 1);
    assert_int_equal(sw_congestion_window(&c), after);
    rounds(100, 10000 * US, now + 1000 * US);
    assert_int_equal(sw_congestion_window(&c), 64); /* a late process is not a reason to stop */
}

static void sw_congestion__delay_leaves_as_many_bytes_of_short_packets(void **state)
{
    (void)state;
    const struct sw_congestion_config config = {.packet_bytes = 1024, .window_max = 2048};
    sw_congestion_init(&c, &config);
    uint64_t now = rounds(6, MIN_RTT, 1000 * US);
    assert_int_equal(sw_congestion_window(&c), 2048);
    rounds(100, 10000 * US, now);
    assert_int_equal(sw_congestion_window(&c), 256);
}

static void sw_congestion__grows_by_one_a_round_trip_after_that(void **state)
{
    (void)state;
    start();
    uint64_t now = rounds(1, MIN_RTT, 1000 * US);
    sw_congestion_on_ack(&c, 1, 1000 * US, MIN_RTT, now);
    uint32_t before = sw_congestion_window(&c);
    rounds(10, MIN_RTT, now);
    uint32_t after = sw_congestion_window(&c);
    assert_true(after >= before + 9 && after <= before + 11);
}

static void sw_congestion__single_losses_are_the_paths(void **state)
{
    (void)state;
    start();
    uint64_t now = rounds(3, MIN_RTT, 1000 * US);
    uint32_t before = sw_congestion_window(&c);
    for (int i = 0; i < 100; i++) { /* one in a hundred */
        sw_congestion_on_loss(&c, 1, now);
        sw_congestion_on_ack(&c, 99, MIN_RTT, MIN_RTT, now += MIN_RTT);
    }
    assert_true(sw_congestion_window(&c) >= before);
    for (int i = 0; i < 100; i++) { /* one in ten */
        sw_congestion_on_loss(&c, 10, now);
        sw_congestion_on_ack(&c, 90, MIN_RTT, MIN_RTT, now += MIN_RTT);
    }
    assert_true(sw_congestion_window(&c) < before / 2);
}

static void sw_congestion__a_timeout_leaves_one_packet_and_can_be_undone(void **state)
{
    (void)state;
    start();
    uint64_t now = rounds(3, MIN_RTT, 1000 * US);
    uint32_t before = sw_congestion_window(&c);
    sw_congestion_on_timeout(&c, now);
    assert_int_equal(sw_congestion_window(&c), 1);
    sw_congestion_undo_timeout(&c);
    assert_int_equal(sw_congestion_window(&c), before);
    for (int i = 0; i < 3; i++)
        sw_congestion_on_timeout(&c, now);
    assert_true(sw_congestion_may_send(&c, 0, now));
    sw_congestion_on_send(&c, 4096, now); /* a quarter of a packet a round trip */
    assert_false(sw_congestion_may_send(&c, 0, now));
    assert_true(sw_congestion_due_ns(&c) > now + 3 * MIN_RTT);
    assert_true(sw_congestion_may_send(&c, 0, sw_congestion_due_ns(&c)));
}

/* Sends as fast as allowed from `now` to `end`; returns bytes per second. */
static uint64_t send_until(uint64_t now_ns, uint64_t end_ns)
{
    uint64_t bytes = 0, begun = now_ns;
    while (now_ns < end_ns) {
        if (sw_congestion_may_send(&c, 0, now_ns)) {
            sw_congestion_on_send(&c, 4096, now_ns);
            bytes += 4096;
            now_ns += 4096 * 1000000000ull / RATE_MAX; /* the port's own speed */
        } else {
            now_ns = sw_congestion_due_ns(&c);
        }
    }
    return bytes * 1000000000ull / (now_ns - begun);
}

static void sw_congestion__a_notification_halves_the_rate(void **state)
{
    (void)state;
    start();
    uint64_t now = 1000 * US;
    sw_congestion_on_cnp(&c, now);
    assert_true(c.paced);
    assert_true(c.rate <= RATE_MAX / 2 + 1);
    uint64_t rate = send_until(now, now + 50 * US);
    assert_true(rate < RATE_MAX * 6 / 10 && rate > RATE_MAX * 4 / 10);
    uint64_t before = c.rate;
    sw_congestion_on_cnp(&c, now + 49 * US); /* one cut in 50 us */
    assert_true(c.rate == before);
}

static void sw_congestion__the_rate_recovers_and_pacing_ends(void **state)
{
    (void)state;
    start();
    uint64_t now = 1000 * US;
    sw_congestion_on_cnp(&c, now);
    send_until(now, now + 1000000 * US);
    assert_false(c.paced);
    assert_true(sw_congestion_may_send(&c, 0, now + 1000000 * US));
}

static void sw_congestion__steady_notifications_find_the_floor(void **state)
{
    (void)state;
    start();
    uint64_t now = 1000 * US;
    for (int i = 0; i < 2000; i++)
        sw_congestion_on_cnp(&c, now += 50 * US);
    assert_true(c.paced);
    assert_true(c.rate >= 1250000 && c.rate < RATE_MAX / 100);
}

/* A host that is always late, as an emulated one: what delay leaves, it also lets grow back. */
static void sw_congestion__grows_back_although_all_is_late(void **state)
{
    (void)state;
    start();
    uint64_t now = rounds(1, 20000 * US, 1000 * US);
    sw_congestion_on_timeout(&c, now);
    assert_int_equal(sw_congestion_window(&c), 1);
    now = rounds(200, 20000 * US, now + 20000 * US);
    assert_in_range(sw_congestion_window(&c), 60, 64); /* 256 KiB */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sw_congestion__doubles_at_first),
        cmocka_unit_test(sw_congestion__a_window_that_is_not_used_does_not_grow),
        cmocka_unit_test(sw_congestion__delay_now_and_then_leaves_it_alone),
        cmocka_unit_test(sw_congestion__delay_shrinks_it_once_a_round_trip),
        cmocka_unit_test(sw_congestion__delay_leaves_as_many_bytes_of_short_packets),
        cmocka_unit_test(sw_congestion__grows_back_although_all_is_late),
        cmocka_unit_test(sw_congestion__grows_by_one_a_round_trip_after_that),
        cmocka_unit_test(sw_congestion__single_losses_are_the_paths),
        cmocka_unit_test(sw_congestion__a_timeout_leaves_one_packet_and_can_be_undone),
        cmocka_unit_test(sw_congestion__a_notification_halves_the_rate),
        cmocka_unit_test(sw_congestion__the_rate_recovers_and_pacing_ends),
        cmocka_unit_test(sw_congestion__steady_notifications_find_the_floor),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
