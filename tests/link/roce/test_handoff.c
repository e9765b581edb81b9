/* SPDX-License-Identifier: BSD-2-Clause */
/* The choice of the receiver: the program that polls, or the engine. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "link/roce/handoff.h"

enum { US = 1000, MS = 1000 * US, LONG = 100 * US, NEVER_SERVED = 0 };
#define START_NS 1000000000u /* long after anything was served */

static void nobody_polls(void **state)
{
    (void)state;
    struct sw_handoff handoff = {0};
    assert_true(sw_handoff_look(&handoff, 0, false, NEVER_SERVED, START_NS));
    assert_true(handoff.is_alone);
}

static void a_program_that_polls_receives(void **state)
{
    (void)state;
    struct sw_handoff handoff = {0};
    assert_false(sw_handoff_look(&handoff, START_NS, false, NEVER_SERVED, START_NS));
    assert_false(handoff.is_alone);
    assert_int_equal(sw_handoff_due_ns(&handoff), START_NS + SW_HANDOFF_LOOK_NS);
    /* It polls no more. */
    assert_true(sw_handoff_look(&handoff, START_NS, false, NEVER_SERVED,
                                START_NS + (uint64_t)SW_HANDOFF_LOOK_NS));
    assert_true(handoff.is_alone);
}

/* Asleep or awake, whatever it did before. */
static void a_program_that_attends_receives(void **state)
{
    (void)state;
    struct sw_handoff handoff = {0};
    uint64_t now_ns = START_NS;
    for (int i = 0; i < 1000; i++, now_ns += 100 * US) /* steady */
        sw_handoff_look(&handoff, now_ns, false, NEVER_SERVED, now_ns);
    assert_true(sw_handoff_is_steady(&handoff));
    sw_handoff_attend(&handoff, now_ns);
    assert_false(handoff.is_alone);
    assert_false(sw_handoff_is_steady(&handoff)); /* the engine keeps the timers */
    assert_int_equal(sw_handoff_due_ns(&handoff), now_ns + SW_HANDOFF_LOOK_NS);
    /* It is gone. */
    now_ns += SW_HANDOFF_LOOK_NS;
    assert_true(
        sw_handoff_look(&handoff, now_ns - SW_HANDOFF_LOOK_NS, false, NEVER_SERVED, now_ns));
    assert_true(handoff.is_alone);
}

/* Its next message would find nobody for a millisecond. */
static void a_program_that_is_about_to_sleep_does_not(void **state)
{
    (void)state;
    struct sw_handoff handoff = {0};
    assert_true(sw_handoff_look(&handoff, START_NS, true, NEVER_SERVED, START_NS));
    assert_true(handoff.is_alone);
    /* It is awake again. */
    assert_false(sw_handoff_look(&handoff, START_NS + US, false, NEVER_SERVED, START_NS + US));
    assert_false(handoff.is_alone);
}

static void a_program_that_looks_at_its_memory_does_not(void **state)
{
    (void)state;
    struct sw_handoff handoff = {0};
    const uint64_t polled_ns = START_NS, served_ns = START_NS, now_ns = START_NS + LONG;
    assert_true(sw_handoff_look(&handoff, polled_ns, false, served_ns, now_ns));
    sw_handoff_wake(&handoff);
    assert_true(sw_handoff_look(&handoff, polled_ns, false, served_ns, now_ns + 10 * US));
    assert_false(handoff.is_alone);
    assert_true(handoff.is_served);
}

/* Woken at `now_ns`, while the program polls. Returns when it has made up its mind. */
static uint64_t doubt(struct sw_handoff *handoff, uint64_t now_ns)
{
    sw_handoff_wake(handoff);
    assert_false(sw_handoff_look(handoff, now_ns - US, false, now_ns - LONG, now_ns));
    const uint64_t due_ns = sw_handoff_due_ns(handoff);
    assert_in_range(due_ns, now_ns + US, now_ns + LONG);
    assert_false(sw_handoff_look(handoff, now_ns, false, now_ns - LONG, due_ns - 1));
    return due_ns;
}

static void it_was_polling_but_polls_no_more(void **state)
{
    (void)state;
    struct sw_handoff handoff = {0};
    const uint64_t due_ns = doubt(&handoff, START_NS);
    assert_true(sw_handoff_look(&handoff, START_NS, false, START_NS - LONG, due_ns));
}

/* The due time lies ahead, or the engine would look again and again. */
static void a_doubt_ends_with_what_was_served(void **state)
{
    (void)state;
    struct sw_handoff handoff = {0};
    const uint64_t due_ns = doubt(&handoff, START_NS), later_ns = due_ns + MS;
    assert_false(sw_handoff_look(&handoff, later_ns, false, NEVER_SERVED, later_ns));
    assert_false(handoff.is_served);
    assert_true(sw_handoff_due_ns(&handoff) > later_ns);
}

/* For how long packets are left to the program, after having been woken at `now_ns`. */
static uint64_t leave(struct sw_handoff *handoff, uint64_t now_ns)
{
    uint64_t at_ns = doubt(handoff, now_ns);
    const uint64_t begun_ns = at_ns;
    while (!sw_handoff_look(handoff, at_ns - US, false, at_ns - LONG, at_ns))
        at_ns += 10 * US;
    return at_ns - begun_ns;
}

static void it_polls_still(void **state)
{
    (void)state;
    struct sw_handoff handoff = {0};
    uint64_t now_ns = START_NS, last_ns = 0;
    for (int i = 0; i < 4; i++, now_ns += 10 * (uint64_t)LONG) {
        const uint64_t left_ns = leave(&handoff, now_ns);
        assert_in_range(left_ns, last_ns + US, 20 * LONG); /* longer each time */
        last_ns = left_ns;
    }
    /* Once it was of use it begins anew. */
    sw_handoff_wake(&handoff);
    sw_handoff_learn(&handoff, 1, now_ns);
    assert_in_range(leave(&handoff, now_ns + LONG), US, last_ns / 2);
}

static void woken_in_vain(void **state)
{
    (void)state;
    struct sw_handoff handoff = {0};
    const uint64_t polled_ns = START_NS, now_ns = START_NS + LONG;
    int wakes = 0;
    while (sw_handoff_look(&handoff, polled_ns, false, now_ns, now_ns) && wakes < 100) {
        wakes++;
        sw_handoff_wake(&handoff);
        assert_in_range(sw_handoff_yield(&handoff, true, now_ns), now_ns + US, now_ns + LONG);
    }
    assert_in_range(wakes, 2, 50);
    assert_int_equal(sw_handoff_yield(&handoff, false, now_ns), now_ns + SW_HANDOFF_LOOK_NS);
}

/* Looks at a program that polls all the time, until `end_ns`; the last look's distance. */
static uint64_t poll_until(struct sw_handoff *handoff, uint64_t from_ns, uint64_t end_ns,
                           uint64_t *at_ns)
{
    uint64_t now_ns = from_ns, due_ns = from_ns;
    do {
        now_ns = due_ns;
        assert_false(sw_handoff_look(handoff, now_ns - US, false, NEVER_SERVED, now_ns));
        due_ns = sw_handoff_due_ns(handoff);
        assert_in_range(due_ns, now_ns + LONG, now_ns + 8 * MS);
    } while (due_ns < end_ns);
    *at_ns = due_ns;
    return due_ns - now_ns;
}

static void who_polls_all_the_time_is_looked_at_less_often(void **state)
{
    (void)state;
    struct sw_handoff handoff = {0};
    uint64_t at_ns;
    assert_int_equal(poll_until(&handoff, START_NS, START_NS + 2 * MS, &at_ns), MS);
    assert_false(sw_handoff_is_steady(&handoff));
    /* An eighth of the time that it has polled, ... */
    const uint64_t distance_ns = poll_until(&handoff, at_ns, START_NS + 30 * MS, &at_ns);
    assert_in_range(distance_ns, 2 * MS, (at_ns - START_NS) / 8);
    assert_true(sw_handoff_is_steady(&handoff));
    /* ... and no more than this. */
    assert_in_range(poll_until(&handoff, at_ns, START_NS + 500 * MS, &at_ns), 8 * MS - 2 * US,
                    8 * MS);
}

/* Between the looks. Its packets have waited long enough. */
static void it_has_stopped_meanwhile(void **state)
{
    (void)state;
    struct sw_handoff handoff = {0};
    uint64_t at_ns;
    poll_until(&handoff, START_NS, START_NS + 500 * MS, &at_ns);
    assert_true(sw_handoff_look(&handoff, at_ns - 2 * MS, false, NEVER_SERVED, at_ns));
    assert_true(handoff.is_alone);
    assert_false(sw_handoff_is_steady(&handoff));
}

/* What it did before does not count. */
static void it_begins_anew_after_having_slept(void **state)
{
    (void)state;
    struct sw_handoff handoff = {0};
    uint64_t at_ns;
    assert_true(sw_handoff_look(&handoff, 0, false, NEVER_SERVED, START_NS));
    assert_int_equal(poll_until(&handoff, START_NS + 500 * MS, START_NS + 502 * MS, &at_ns), MS);
    assert_false(sw_handoff_is_steady(&handoff));
}

static void a_pause_ends_it(void **state)
{
    (void)state;
    struct sw_handoff handoff = {0};
    uint64_t at_ns;
    poll_until(&handoff, START_NS, START_NS + 500 * MS, &at_ns);
    assert_false(sw_handoff_look(&handoff, at_ns - MS / 2, false, NEVER_SERVED, at_ns));
    assert_false(sw_handoff_is_steady(&handoff));
    assert_in_range(sw_handoff_due_ns(&handoff), at_ns, at_ns + MS);
    /* So does a wait for an event, and a peer that reaches for memory. */
    poll_until(&handoff, at_ns, at_ns + 500 * MS, &at_ns);
    assert_true(sw_handoff_look(&handoff, at_ns - US, true, NEVER_SERVED, at_ns));
    assert_false(sw_handoff_is_steady(&handoff));
    poll_until(&handoff, at_ns, at_ns + 500 * MS, &at_ns);
    assert_true(sw_handoff_look(&handoff, at_ns - US, false, at_ns - US, at_ns));
    assert_false(sw_handoff_is_steady(&handoff));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nobody_polls),
        cmocka_unit_test(a_program_that_polls_receives),
        cmocka_unit_test(a_program_that_attends_receives),
        cmocka_unit_test(a_program_that_is_about_to_sleep_does_not),
        cmocka_unit_test(a_program_that_looks_at_its_memory_does_not),
        cmocka_unit_test(it_was_polling_but_polls_no_more),
        cmocka_unit_test(a_doubt_ends_with_what_was_served),
        cmocka_unit_test(it_polls_still),
        cmocka_unit_test(woken_in_vain),
        cmocka_unit_test(who_polls_all_the_time_is_looked_at_less_often),
        cmocka_unit_test(it_has_stopped_meanwhile),
        cmocka_unit_test(it_begins_anew_after_having_slept),
        cmocka_unit_test(a_pause_ends_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
