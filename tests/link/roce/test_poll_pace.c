/* SPDX-License-Identifier: BSD-2-Clause */
/* How often a poll looks at the port, and when it gives the processor away. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "link/roce/poll_pace.h"

enum { US = 1000, MS = 1000 * US };
#define START_NS 1000000000u

static void is_quiet__when_nothing_has_moved_for_some_time(void **state)
{
    (void)state;
    assert_false(sw_poll_pace_is_quiet(START_NS, START_NS));
    assert_false(sw_poll_pace_is_quiet(START_NS, START_NS + 9 * MS));
    assert_true(sw_poll_pace_is_quiet(START_NS, START_NS + 20 * MS));
}

static void glances__each_few_microseconds(void **state)
{
    (void)state;
    assert_false(sw_poll_pace_glances(START_NS, START_NS));
    assert_false(sw_poll_pace_glances(START_NS, START_NS + 4 * US));
    assert_true(sw_poll_pace_glances(START_NS, START_NS + 5 * US));
}

/* Polls in vain until it yields. Returns when. */
static uint64_t until_it_yields(struct sw_poll_pace *pace, uint64_t now_ns)
{
    for (int i = 0; i < 100000; i++, now_ns += US)
        if (sw_poll_pace_yields(pace, 0, 0, now_ns))
            return now_ns;
    fail_msg("it does not yield");
    return 0;
}

static void yields__after_some_time_in_vain(void **state)
{
    (void)state;
    struct sw_poll_pace pace = {0};
    assert_false(sw_poll_pace_yields(&pace, 1, 0, START_NS));
    assert_in_range(until_it_yields(&pace, START_NS), START_NS + 20 * US, START_NS + 50 * US);
}

/* To the peer, which polls on the same processor and yields in its turn. */
static void yields__again_where_a_packet_comes_of_it(void **state)
{
    (void)state;
    struct sw_poll_pace pace = {0};
    uint64_t now_ns = START_NS;
    for (int i = 0; i < 100; i++) {
        const uint64_t at_ns = until_it_yields(&pace, now_ns);
        assert_in_range(at_ns - now_ns, 0, 50 * US);
        now_ns = at_ns + 60 * US;
        assert_false(sw_poll_pace_yields(&pace, 1, now_ns, now_ns));
    }
}

static void yields__for_nothing_where_it_is_alone(void **state)
{
    (void)state;
    struct sw_poll_pace pace = {0};
    uint64_t now_ns = until_it_yields(&pace, START_NS);
    for (int i = 0; i < 100; i++) {
        assert_true(sw_poll_pace_yields(&pace, 0, now_ns + US, now_ns + US));
        now_ns += 2 * US;
    }
}

/* How long it holds its processor after a yield that took so long. */
static uint64_t holds_after(struct sw_poll_pace *pace, uint64_t took_ns, uint32_t found,
                            uint64_t *now_ns)
{
    *now_ns = until_it_yields(pace, *now_ns) + took_ns;
    assert_false(sw_poll_pace_yields(pace, found, *now_ns, *now_ns));
    const uint64_t from_ns = *now_ns;
    *now_ns = until_it_yields(pace, from_ns);
    return *now_ns - from_ns;
}

static void yields__less_and_less_to_other_work(void **state)
{
    (void)state;
    struct sw_poll_pace pace = {0};
    uint64_t now_ns = START_NS;
    assert_in_range(holds_after(&pace, 3 * MS, 0, &now_ns), MS, MS + 50 * US);
    pace.yielded_ns = 0;
    assert_in_range(holds_after(&pace, 3 * MS, 0, &now_ns), 2 * MS, 2 * MS + 50 * US);
    for (int i = 0; i < 20; i++) {
        pace.yielded_ns = 0;
        holds_after(&pace, 3 * MS, 0, &now_ns);
    }
    pace.yielded_ns = 0;
    assert_in_range(holds_after(&pace, 3 * MS, 0, &now_ns), 16 * MS, 17 * MS);
}

/* The packet was there for long when other work gave the processor back. */
static void yields__late_packets_prove_nothing(void **state)
{
    (void)state;
    struct sw_poll_pace pace = {0};
    uint64_t now_ns = START_NS;
    assert_in_range(holds_after(&pace, 3 * MS, 1, &now_ns), MS, 2 * MS);
}

static void yields__again_once_it_is_of_use(void **state)
{
    (void)state;
    struct sw_poll_pace pace = {0};
    uint64_t now_ns = START_NS;
    for (int i = 0; i < 10; i++) {
        holds_after(&pace, 3 * MS, 0, &now_ns);
        pace.yielded_ns = 0;
    }
    holds_after(&pace, 60 * US, 1, &now_ns);
    pace.yielded_ns = 0;
    assert_in_range(holds_after(&pace, 3 * MS, 0, &now_ns), MS, MS + 50 * US);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(is_quiet__when_nothing_has_moved_for_some_time),
        cmocka_unit_test(glances__each_few_microseconds),
        cmocka_unit_test(yields__after_some_time_in_vain),
        cmocka_unit_test(yields__again_where_a_packet_comes_of_it),
        cmocka_unit_test(yields__for_nothing_where_it_is_alone),
        cmocka_unit_test(yields__less_and_less_to_other_work),
        cmocka_unit_test(yields__late_packets_prove_nothing),
        cmocka_unit_test(yields__again_once_it_is_of_use),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
