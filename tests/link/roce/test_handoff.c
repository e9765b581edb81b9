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

/* Whether the engine receives then. */
static bool look(struct sw_handoff *handoff, uint64_t polled_ns, bool sleeps, uint64_t served_ns,
                 uint64_t now_ns)
{
    const struct sw_handoff_seen seen = {
        .polled_ns = polled_ns, .sleeps = sleeps, .served_ns = served_ns};
    return sw_receiver_is_engine(sw_handoff_look(handoff, &seen, now_ns));
}

static void attend(struct sw_handoff *handoff, uint64_t now_ns)
{
    const struct sw_handoff_seen seen = {.attended_until_ns = now_ns + 1};
    assert_int_equal(sw_handoff_look(handoff, &seen, now_ns), SW_RECEIVER_WAITER);
}

static bool is_engines(const struct sw_handoff *handoff)
{
    return handoff->receiver == SW_RECEIVER_ENGINE;
}

static bool is_steady(const struct sw_handoff *handoff)
{
    return handoff->receiver == SW_RECEIVER_STEADY;
}

static void nobody_polls(void **state)
{
    (void)state;
    struct sw_handoff handoff = {0};
    assert_true(look(&handoff, 0, false, NEVER_SERVED, START_NS));
    assert_true(is_engines(&handoff));
}

static void a_program_that_polls_receives(void **state)
{
    (void)state;
    struct sw_handoff handoff = {0};
    assert_false(look(&handoff, START_NS, false, NEVER_SERVED, START_NS));
    assert_false(is_engines(&handoff));
    assert_int_equal(sw_handoff_due_ns(&handoff, UINT64_MAX), START_NS + SW_HANDOFF_LOOK_NS);
    /* It polls no more. */
    assert_true(
        look(&handoff, START_NS, false, NEVER_SERVED, START_NS + (uint64_t)SW_HANDOFF_LOOK_NS));
    assert_true(is_engines(&handoff));
}

/* Asleep or awake, whatever it did before. */
static void a_program_that_attends_receives(void **state)
{
    (void)state;
    struct sw_handoff handoff = {0};
    uint64_t now_ns = START_NS;
    for (int i = 0; i < 1000; i++, now_ns += 100 * US) /* steady */
        look(&handoff, now_ns, false, NEVER_SERVED, now_ns);
    assert_true(is_steady(&handoff));
    attend(&handoff, now_ns);
    assert_false(is_engines(&handoff));
    assert_false(is_steady(&handoff)); /* the engine keeps the timers */
    assert_int_equal(sw_handoff_due_ns(&handoff, UINT64_MAX), now_ns + SW_HANDOFF_LOOK_NS);
    /* It is gone. */
    now_ns += SW_HANDOFF_LOOK_NS;
    assert_true(look(&handoff, now_ns - SW_HANDOFF_LOOK_NS, false, NEVER_SERVED, now_ns));
    assert_true(is_engines(&handoff));
}

/* Its next message would find nobody for a millisecond. */
static void a_program_that_is_about_to_sleep_does_not(void **state)
{
    (void)state;
    struct sw_handoff handoff = {0};
    assert_true(look(&handoff, START_NS, true, NEVER_SERVED, START_NS));
    assert_true(is_engines(&handoff));
    /* It is awake again. */
    assert_false(look(&handoff, START_NS + US, false, NEVER_SERVED, START_NS + US));
    assert_false(is_engines(&handoff));
}

static void a_program_that_looks_at_its_memory_does_not(void **state)
{
    (void)state;
    struct sw_handoff handoff = {0};
    const uint64_t polled_ns = START_NS, served_ns = START_NS, now_ns = START_NS + LONG;
    assert_true(look(&handoff, polled_ns, false, served_ns, now_ns));
    sw_handoff_wake(&handoff);
    assert_true(look(&handoff, polled_ns, false, served_ns, now_ns + 10 * US));
    assert_int_equal(handoff.receiver, SW_RECEIVER_BOTH);
}

/* Woken at `now_ns`, while the program polls. Returns when it has made up its mind. */
static uint64_t doubt(struct sw_handoff *handoff, uint64_t now_ns)
{
    sw_handoff_wake(handoff);
    assert_false(look(handoff, now_ns - US, false, now_ns - LONG, now_ns));
    const uint64_t due_ns = sw_handoff_due_ns(handoff, UINT64_MAX);
    assert_in_range(due_ns, now_ns + US, now_ns + LONG);
    assert_false(look(handoff, now_ns, false, now_ns - LONG, due_ns - 1));
    return due_ns;
}

static void it_was_polling_but_polls_no_more(void **state)
{
    (void)state;
    struct sw_handoff handoff = {0};
    const uint64_t due_ns = doubt(&handoff, START_NS);
    assert_true(look(&handoff, START_NS, false, START_NS - LONG, due_ns));
}

/* The due time lies ahead, or the engine would look again and again. */
static void a_doubt_ends_with_what_was_served(void **state)
{
    (void)state;
    struct sw_handoff handoff = {0};
    const uint64_t due_ns = doubt(&handoff, START_NS), later_ns = due_ns + MS;
    assert_false(look(&handoff, later_ns, false, NEVER_SERVED, later_ns));
    assert_int_equal(handoff.receiver, SW_RECEIVER_POLLER);
    assert_true(sw_handoff_due_ns(&handoff, UINT64_MAX) > later_ns);
}

/* For how long packets are left to the program, after having been woken at `now_ns`. */
static uint64_t leave(struct sw_handoff *handoff, uint64_t now_ns)
{
    uint64_t at_ns = doubt(handoff, now_ns);
    const uint64_t begun_ns = at_ns;
    while (!look(handoff, at_ns - US, false, at_ns - LONG, at_ns))
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
    while (look(&handoff, polled_ns, false, now_ns, now_ns) && wakes < 100) {
        wakes++;
        sw_handoff_wake(&handoff);
        assert_in_range(sw_handoff_yield(&handoff, now_ns), now_ns + US, now_ns + LONG);
    }
    assert_in_range(wakes, 2, 50);
    assert_int_equal(sw_handoff_yield(&handoff, now_ns), now_ns + SW_HANDOFF_LOOK_NS);
}

/* Looks at a program that polls all the time, until `end_ns`; the last look's distance. */
static uint64_t poll_until(struct sw_handoff *handoff, uint64_t from_ns, uint64_t end_ns,
                           uint64_t *at_ns)
{
    uint64_t now_ns = from_ns, due_ns = from_ns;
    do {
        now_ns = due_ns;
        assert_false(look(handoff, now_ns - US, false, NEVER_SERVED, now_ns));
        due_ns = sw_handoff_due_ns(handoff, UINT64_MAX);
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
    assert_false(is_steady(&handoff));
    /* An eighth of the time that it has polled, ... */
    const uint64_t distance_ns = poll_until(&handoff, at_ns, START_NS + 30 * MS, &at_ns);
    assert_in_range(distance_ns, 2 * MS, (at_ns - START_NS) / 8);
    assert_true(is_steady(&handoff));
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
    assert_true(look(&handoff, at_ns - 2 * MS, false, NEVER_SERVED, at_ns));
    assert_true(is_engines(&handoff));
    assert_false(is_steady(&handoff));
}

/* What it did before does not count. */
static void it_begins_anew_after_having_slept(void **state)
{
    (void)state;
    struct sw_handoff handoff = {0};
    uint64_t at_ns;
    assert_true(look(&handoff, 0, false, NEVER_SERVED, START_NS));
    assert_int_equal(poll_until(&handoff, START_NS + 500 * MS, START_NS + 502 * MS, &at_ns), MS);
    assert_false(is_steady(&handoff));
}

static void a_pause_ends_it(void **state)
{
    (void)state;
    struct sw_handoff handoff = {0};
    uint64_t at_ns;
    poll_until(&handoff, START_NS, START_NS + 500 * MS, &at_ns);
    assert_false(look(&handoff, at_ns - MS / 2, false, NEVER_SERVED, at_ns));
    assert_false(is_steady(&handoff));
    assert_in_range(sw_handoff_due_ns(&handoff, UINT64_MAX), at_ns, at_ns + MS);
    /* So does a wait for an event, and a peer that reaches for memory. */
    poll_until(&handoff, at_ns, at_ns + 500 * MS, &at_ns);
    assert_true(look(&handoff, at_ns - US, true, NEVER_SERVED, at_ns));
    assert_false(is_steady(&handoff));
    poll_until(&handoff, at_ns, at_ns + 500 * MS, &at_ns);
    assert_true(look(&handoff, at_ns - US, false, at_ns - US, at_ns));
    assert_false(is_steady(&handoff));
}

/* ---- all states and events ---- */

#define STATES 7u
enum { ENGINE = SW_RECEIVER_ENGINE, POLLER, STEADY, WAITER, BOTH, DOUBT, LEFT };

/* Brings it into the state. Returns when. */
static uint64_t enter_state(struct sw_handoff *handoff, enum sw_receiver receiver)
{
    uint64_t now_ns = START_NS;
    *handoff = (struct sw_handoff){0};
    switch (receiver) {
    case SW_RECEIVER_ENGINE:
        look(handoff, 0, false, NEVER_SERVED, now_ns);
        break;
    case SW_RECEIVER_POLLER:
        look(handoff, now_ns, false, NEVER_SERVED, now_ns);
        break;
    case SW_RECEIVER_STEADY:
        poll_until(handoff, now_ns, now_ns + 30 * MS, &now_ns);
        look(handoff, now_ns, false, NEVER_SERVED, now_ns);
        break;
    case SW_RECEIVER_WAITER:
        attend(handoff, now_ns);
        break;
    case SW_RECEIVER_BOTH:
        look(handoff, now_ns - LONG, false, now_ns, now_ns);
        break;
    case SW_RECEIVER_DOUBT:
    case SW_RECEIVER_LEFT:
        sw_handoff_wake(handoff);
        look(handoff, now_ns, false, now_ns, now_ns);
        break;
    }
    if (receiver == SW_RECEIVER_LEFT) {
        now_ns = sw_handoff_due_ns(handoff, UINT64_MAX);
        look(handoff, now_ns, false, now_ns, now_ns);
    }
    assert_int_equal(handoff->receiver, receiver);
    return now_ns;
}

/* What happens, and is seen at the next look. */
static const struct event {
    const char *name;
    uint32_t after_ns;
    bool is_woken, polls, has_polled, sleeps, waits, is_served;
    uint8_t next[STATES]; /* from ENGINE, POLLER, STEADY, WAITER, BOTH, DOUBT, LEFT */
} events[] = {
    {"polls", 10 * US, .polls = true,
     .next = {POLLER, POLLER, STEADY, POLLER, POLLER, POLLER, POLLER}},
    {"polls, woken", 10 * US, .polls = true, .is_woken = true,
     .next = {POLLER, POLLER, STEADY, POLLER, POLLER, POLLER, POLLER}},
    {"has paused", 300 * US, .has_polled = true,
     .next = {POLLER, POLLER, POLLER, POLLER, POLLER, POLLER, POLLER}},
    {"polls no more", 9 * MS, .next = {ENGINE, ENGINE, ENGINE, ENGINE, ENGINE, ENGINE, ENGINE}},
    {"is about to sleep", 10 * US, .polls = true, .sleeps = true,
     .next = {ENGINE, ENGINE, ENGINE, ENGINE, ENGINE, ENGINE, POLLER}},
    {"waits", 10 * US, .waits = true,
     .next = {WAITER, WAITER, WAITER, WAITER, WAITER, WAITER, WAITER}},
    {"waits, served", 10 * US, .waits = true, .is_served = true,
     .next = {WAITER, WAITER, WAITER, WAITER, WAITER, WAITER, WAITER}},
    {"waits and is about to sleep", 10 * US, .waits = true, .polls = true, .sleeps = true,
     .next = {ENGINE, ENGINE, ENGINE, ENGINE, ENGINE, ENGINE, POLLER}},
    {"polls, served", 10 * US, .polls = true, .is_served = true,
     .next = {BOTH, BOTH, BOTH, BOTH, BOTH, DOUBT, LEFT}},
    {"has polled, served", 10 * US, .has_polled = true, .is_served = true,
     .next = {BOTH, BOTH, BOTH, BOTH, BOTH, DOUBT, LEFT}},
    {"polls, served, woken", 10 * US, .polls = true, .is_served = true, .is_woken = true,
     .next = {DOUBT, DOUBT, DOUBT, DOUBT, DOUBT, DOUBT, DOUBT}},
    {"has polled, served, woken", 10 * US, .has_polled = true, .is_served = true, .is_woken = true,
     .next = {BOTH, BOTH, BOTH, BOTH, BOTH, DOUBT, LEFT}},
    {"polls still, served", 20 * US, .polls = true, .is_served = true,
     .next = {BOTH, BOTH, BOTH, BOTH, BOTH, LEFT, LEFT}},
    {"looks at its memory, served", 20 * US, .has_polled = true, .is_served = true,
     .next = {BOTH, BOTH, BOTH, BOTH, BOTH, BOTH, LEFT}},
    {"is left for long, served", 900 * US, .has_polled = true, .is_served = true,
     .next = {BOTH, BOTH, BOTH, BOTH, BOTH, BOTH, BOTH}},
    {"is about to sleep, served", 10 * US, .polls = true, .sleeps = true, .is_served = true,
     .next = {ENGINE, ENGINE, ENGINE, ENGINE, ENGINE, ENGINE, LEFT}},
    {"polls no more, served", 9 * MS, .is_served = true,
     .next = {ENGINE, ENGINE, ENGINE, ENGINE, ENGINE, ENGINE, ENGINE}},
};

static void each_state__after_each_event(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(events) / sizeof(*events); i++) {
        for (enum sw_receiver from = 0; (uint32_t)from < STATES; from++) {
            const struct event *event = &events[i];
            struct sw_handoff handoff;
            const uint64_t entered_ns = enter_state(&handoff, from),
                           now_ns = entered_ns + event->after_ns;
            const struct sw_handoff_seen seen = {
                .polled_ns = event->polls        ? now_ns - US
                             : event->has_polled ? now_ns - 280 * US
                                                 : handoff.polled_ns,
                .sleeps = event->sleeps,
                .attended_until_ns = event->waits ? now_ns + MS : 0,
                .served_ns = event->is_served ? now_ns : NEVER_SERVED};
            if (event->is_woken)
                sw_handoff_wake(&handoff);
            const enum sw_receiver next = sw_handoff_look(&handoff, &seen, now_ns);
            if (next != event->next[from])
                fail_msg("%s in state %d: %d", event->name, (int)from, (int)next);
            assert_int_equal(handoff.receiver, next);
            assert_int_equal(handoff.pace_ns != 0, next == SW_RECEIVER_STEADY);
            assert_int_equal(handoff.doubts_until_ns != 0, next == SW_RECEIVER_DOUBT);
        }
    }
}

/* What the engine does in each state. */
static const struct deed {
    bool receives;
    enum sw_keep_off keep_off; /* where peers reach for memory */
    enum sw_intake intake;     /* that may go on */
    uint64_t yields_ns;        /* until it looks again, if somebody else receives; 0: a pace */
    bool minds_acks;
} deeds[STATES] = {
    [ENGINE] = {true, SW_KEEP_OFF_AS_BEFORE, SW_INTAKE_HOT, 20 * US, true},
    [POLLER] = {false, SW_KEEP_OFF_PROGRAM, SW_INTAKE_NOTHING, MS, false},
    [STEADY] = {false, SW_KEEP_OFF_PROGRAM, SW_INTAKE_NOTHING, 0, false},
    [WAITER] = {false, SW_KEEP_OFF_NONE, SW_INTAKE_NOTHING, MS, false},
    [BOTH] = {true, SW_KEEP_OFF_PROGRAM, SW_INTAKE_HOT, 20 * US, false},
    [DOUBT] = {false, SW_KEEP_OFF_PROGRAM, SW_INTAKE_NOTHING, MS, false},
    [LEFT] = {false, SW_KEEP_OFF_PROGRAM, SW_INTAKE_NOTHING, MS, false},
};

static void each_state__what_the_engine_receives(void **state)
{
    (void)state;
    for (enum sw_receiver receiver = 0; (uint32_t)receiver < STATES; receiver++) {
        const struct deed *deed = &deeds[receiver];
        struct sw_handoff handoff;
        enter_state(&handoff, receiver);
        handoff.was_woken = false;
        assert_int_equal(sw_receiver_is_engine(receiver), deed->receives);
        assert_int_equal(sw_handoff_intake(&handoff, false, true), deed->intake);
        const enum sw_intake all = deed->receives ? SW_INTAKE_ALL : SW_INTAKE_NOTHING;
        assert_int_equal(sw_handoff_intake(&handoff, false, false), all);
        assert_int_equal(sw_handoff_intake(&handoff, true, false), SW_INTAKE_ALL);
        assert_int_equal(sw_handoff_intake(&handoff, true, true), SW_INTAKE_ALL);
        sw_handoff_wake(&handoff);
        assert_int_equal(sw_handoff_intake(&handoff, false, true), all);
        sw_handoff_learn(&handoff, 1, START_NS);
        assert_int_equal(sw_handoff_intake(&handoff, false, true), deed->intake);
    }
}

static void each_state__which_processor_it_keeps_off(void **state)
{
    (void)state;
    for (enum sw_receiver receiver = 0; (uint32_t)receiver < STATES; receiver++) {
        struct sw_handoff handoff;
        const uint64_t now_ns = enter_state(&handoff, receiver);
        struct sw_handoff_seen seen = {.served_ns = now_ns};
        assert_int_equal(sw_handoff_keep_off(&handoff, &seen, now_ns), deeds[receiver].keep_off);
        seen.posted_ns = now_ns;
        assert_int_equal(sw_handoff_keep_off(&handoff, &seen, now_ns),
                         receiver == SW_RECEIVER_WAITER ? SW_KEEP_OFF_NONE : SW_KEEP_OFF_PROGRAM);
        seen.serves_long = true;
        assert_int_equal(sw_handoff_keep_off(&handoff, &seen, now_ns), SW_KEEP_OFF_NONE);
        seen.serves_long = false;
        seen.sleeps = true;
        assert_int_equal(sw_handoff_keep_off(&handoff, &seen, now_ns), SW_KEEP_OFF_NONE);
        seen = (struct sw_handoff_seen){.posted_ns = now_ns};
        assert_int_equal(sw_handoff_keep_off(&handoff, &seen, now_ns), SW_KEEP_OFF_NONE);
    }
}

static void each_state__when_it_looks_again(void **state)
{
    (void)state;
    for (enum sw_receiver receiver = 0; (uint32_t)receiver < STATES; receiver++) {
        struct sw_handoff handoff;
        const struct deed *deed = &deeds[receiver];
        const uint64_t now_ns = enter_state(&handoff, receiver);
        const uint64_t yields_ns = deed->yields_ns ? deed->yields_ns : handoff.pace_ns;
        const uint64_t due_ns = sw_handoff_due_ns(&handoff, now_ns + 1);
        if (deed->minds_acks)
            assert_int_equal(due_ns, now_ns + 1);
        else if (receiver == SW_RECEIVER_DOUBT)
            assert_int_equal(due_ns, now_ns + 20 * US);
        else
            assert_int_equal(due_ns, handoff.looked_ns + (handoff.pace_ns ? handoff.pace_ns : MS));
        assert_int_equal(sw_handoff_yield(&handoff, now_ns), now_ns + yields_ns);
        assert_false(handoff.was_woken);
    }
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
        cmocka_unit_test(each_state__after_each_event),
        cmocka_unit_test(each_state__what_the_engine_receives),
        cmocka_unit_test(each_state__which_processor_it_keeps_off),
        cmocka_unit_test(each_state__when_it_looks_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
