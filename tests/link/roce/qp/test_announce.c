/* SPDX-License-Identifier: BSD-2-Clause */
/* Whether a message follows what a peer does to memory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "link/roce/qp/announce.h"

enum { US = 1000, TRIES = 10000 };
#define START_NS 1000000000u

/* Requests that a poller receives, a message after each, until one more is expected to be followed.
 * Returns how many. */
static int learn(struct sw_announce *announce)
{
    for (int i = 0; i < TRIES; i++) {
        if (sw_announce_request(announce, true, START_NS))
            return i;
        sw_announce_message(announce);
    }
    fail();
    return 0;
}

static void request__is_followed_when_some_were(void **state)
{
    (void)state;
    struct sw_announce announce = {0};
    assert_in_range(learn(&announce), 2, 10);
    sw_announce_message(&announce);
    assert_true(sw_announce_request(&announce, true, START_NS));
}

static void request__several_before_one_message(void **state)
{
    (void)state;
    struct sw_announce announce = {0};
    learn(&announce);
    for (int i = 0; i < 100; i++)
        assert_true(sw_announce_request(&announce, true, START_NS + (uint64_t)i * US));
}

static void request__that_nothing_follows(void **state)
{
    (void)state;
    struct sw_announce announce = {0};
    for (int i = 0; i < TRIES; i++)
        assert_false(sw_announce_request(&announce, true, START_NS + (uint64_t)i * US));
    announce = (struct sw_announce){0};
    learn(&announce);
    assert_false(sw_announce_request(&announce, true, START_NS + (uint64_t)SW_ANNOUNCE_WAIT_NS));
}

/* The program may look at its memory first. */
static void request__that_nobody_polls_for(void **state)
{
    (void)state;
    struct sw_announce announce = {0};
    const int few = learn(&announce);
    assert_false(sw_announce_request(&announce, false, START_NS));
    sw_announce_message(&announce);
    assert_in_range(learn(&announce), 10 * few, TRIES);
}

/* While it is not decided the engine receives, too, and that says nothing. */
static void request__received_by_the_engine_meanwhile(void **state)
{
    (void)state;
    struct sw_announce announce = {0};
    for (int i = 0; i < 3; i++) {
        assert_false(sw_announce_request(&announce, false, START_NS));
        sw_announce_message(&announce);
    }
    assert_in_range(learn(&announce), 0, 10);
}

static void message__alone_says_nothing(void **state)
{
    (void)state;
    struct sw_announce announce = {0};
    for (int i = 0; i < TRIES; i++)
        sw_announce_message(&announce);
    assert_false(sw_announce_request(&announce, true, START_NS));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(request__is_followed_when_some_were),
        cmocka_unit_test(request__several_before_one_message),
        cmocka_unit_test(request__that_nothing_follows),
        cmocka_unit_test(request__that_nobody_polls_for),
        cmocka_unit_test(request__received_by_the_engine_meanwhile),
        cmocka_unit_test(message__alone_says_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
