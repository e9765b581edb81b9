/* SPDX-License-Identifier: BSD-2-Clause */
/* What a server's loop calls, and when. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "common/serve/loop.h"
#include "common/time/clock.h"

static struct mover_loop loop;
static int calls;

static int open_loop(void **state)
{
    (void)state;
    calls = 0;
    return mover_loop_open(&loop);
}

static int close_loop(void **state)
{
    (void)state;
    mover_loop_close(&loop);
    mover_loop_close(&loop); /* does nothing */
    return 0;
}

static void count_call(struct mover_watch *watch)
{
    (void)watch;
    calls++;
}

static void read_and_stop(struct mover_watch *watch)
{
    eventfd_t count;
    assert_int_equal(eventfd_read(watch->fd, &count), 0);
    calls++;
    mover_loop_stop(&loop);
}

static void loop__calls_what_can_be_read(void **state)
{
    struct mover_watch ready = {.fd = eventfd(1, EFD_NONBLOCK), .ready = read_and_stop},
                       silent = {.fd = eventfd(0, EFD_NONBLOCK), .ready = count_call};
    (void)state;
    assert_int_equal(mover_loop_watch(&loop, &ready), 0);
    assert_int_equal(mover_loop_watch(&loop, &silent), 0);
    mover_loop_run(&loop);
    assert_int_equal(calls, 1);
    mover_loop_turn(&loop, 0);
    assert_int_equal(calls, 1);
    close(ready.fd);
    close(silent.fd);
}

static void loop__refuses_what_is_no_descriptor(void **state)
{
    struct mover_watch none = {.fd = -1, .ready = count_call};
    (void)state;
    assert_true(mover_loop_watch(&loop, &none) < 0);
}

/* The one that is called first ends the other one, which was found ready in the same turn. */
static struct mover_watch *pair[2];

static void free_the_other(struct mover_watch *watch)
{
    const int other = watch == pair[0];
    calls++;
    close(pair[other]->fd);
    pair[other]->fd = -1; /* the kernel forgets what is closed; the loop must be told */
    mover_loop_unwatch(&loop, pair[other]);
    free(pair[other]);
    pair[other] = NULL;
}

static void loop__calls_none_that_another_has_freed(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        pair[i] = calloc(1, sizeof(*pair[i]));
        *pair[i] = (struct mover_watch){.fd = eventfd(1, EFD_NONBLOCK), .ready = free_the_other};
        mover_loop_call_at(&loop, pair[i], mover_now_ns() + NS_PER_S);
        assert_int_equal(mover_loop_watch(&loop, pair[i]), 0);
    }
    mover_loop_turn(&loop, -1);
    assert_int_equal(calls, 1);
    struct mover_watch *left = pair[pair[0] == NULL];
    mover_loop_unwatch(&loop, left);
    close(left->fd);
    free(left);
    mover_loop_turn(&loop, 0);
    assert_int_equal(calls, 1);
}

static void note_and_repeat(struct mover_watch *watch)
{
    uint64_t *due_ns = watch->context;
    assert_true(mover_now_ns() >= *due_ns);
    *due_ns += NS_PER_MS;
    if (++calls < 3)
        mover_loop_call_at(&loop, watch, *due_ns);
    else
        mover_loop_stop(&loop);
}

static void loop__calls_at_a_time_and_not_before(void **state)
{
    uint64_t due_ns = mover_now_ns() + 5 * NS_PER_MS;
    struct mover_watch timed = {.fd = -1, .ready = note_and_repeat, .context = &due_ns},
                       late = {.fd = -1, .ready = count_call},
                       gone = {.fd = -1, .ready = count_call};
    (void)state;
    mover_loop_call_at(&loop, &late, due_ns + 3600 * NS_PER_S);
    mover_loop_call_at(&loop, &timed, due_ns + 3600 * NS_PER_S);
    mover_loop_call_at(&loop, &timed, due_ns);
    mover_loop_call_at(&loop, &gone, 1);
    mover_loop_call_at(&loop, &gone, 0);
    mover_loop_run(&loop);
    assert_int_equal(calls, 3);
    mover_loop_unwatch(&loop, &late);
    mover_loop_unwatch(&loop, &late);
}

/* It would starve the descriptors otherwise. */
static void call_again_at_once(struct mover_watch *watch)
{
    calls++;
    mover_loop_call_at(&loop, watch, 1);
}

static void loop__comes_to_descriptors_beside_a_time_that_has_always_come(void **state)
{
    struct mover_watch eager = {.fd = -1, .ready = call_again_at_once},
                       ready = {.fd = eventfd(1, EFD_NONBLOCK), .ready = read_and_stop};
    (void)state;
    mover_loop_call_at(&loop, &eager, 1);
    assert_int_equal(mover_loop_watch(&loop, &ready), 0);
    mover_loop_run(&loop);
    assert_int_equal(calls, 2); /* of each one */
    mover_loop_unwatch(&loop, &eager);
    close(ready.fd);
}

static void loop__is_woken_by_a_watch_that_calls_nothing(void **state)
{
    struct mover_watch wakes = {.fd = eventfd(1, EFD_NONBLOCK)};
    (void)state;
    assert_int_equal(mover_loop_watch(&loop, &wakes), 0);
    mover_loop_turn(&loop, -1);
    mover_loop_unwatch(&loop, &wakes);
    close(wakes.fd);
}

static void loop__hands_each_out_once_a_wait(void **state)
{
    struct mover_watch many[MOVER_LOOP_EVENTS / 2];
    const int count = MOVER_LOOP_EVENTS / 2;
    (void)state;
    for (int i = 0; i < count; i++) {
        many[i] = (struct mover_watch){.fd = eventfd(1, EFD_NONBLOCK), .ready = count_call};
        assert_int_equal(mover_loop_watch(&loop, &many[i]), 0);
    }
    mover_loop_wait(&loop, -1);
    for (int i = 0; i < count; i++)
        assert_non_null(mover_loop_next(&loop));
    assert_null(mover_loop_next(&loop));
    for (int i = 0; i < count; i++)
        close(many[i].fd);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, open_loop, close_loop)
    const struct CMUnitTest tests[] = {
        TEST(loop__calls_what_can_be_read),
        TEST(loop__refuses_what_is_no_descriptor),
        TEST(loop__calls_none_that_another_has_freed),
        TEST(loop__calls_at_a_time_and_not_before),
        TEST(loop__comes_to_descriptors_beside_a_time_that_has_always_come),
        TEST(loop__is_woken_by_a_watch_that_calls_nothing),
        TEST(loop__hands_each_out_once_a_wait),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
