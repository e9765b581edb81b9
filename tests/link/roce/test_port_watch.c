/* SPDX-License-Identifier: BSD-2-Clause */
/* Whether packets wake the engine while a program polls. The engine's thread does not run here. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cmocka.h>

#include "link/engine.h"
#include "link/roce/port_watch.h"

enum { US = 1000 };
#define START_NS 1000000000u

static int port, packets; /* an epoll, as a port's, and what makes it ready */
static struct sw_port_watch watch;
static atomic_bool sleeps;

static int open_port(void **state)
{
    (void)state;
    watch = (struct sw_port_watch){0};
    atomic_store(&sleeps, false);
    if (sw_engine_open())
        return -1;
    port = epoll_create1(EPOLL_CLOEXEC);
    packets = eventfd(0, EFD_CLOEXEC);
    struct epoll_event event = {.events = EPOLLIN};
    return epoll_ctl(port, EPOLL_CTL_ADD, packets, &event);
}

static int close_port(void **state)
{
    (void)state;
    close(packets);
    close(port);
    sw_engine_close();
    return 0;
}

static void packet_comes(void)
{
    assert_int_equal(eventfd_write(packets, 1), 0);
}

static void program_takes_it(void)
{
    eventfd_t count;
    assert_int_equal(eventfd_read(packets, &count), 0);
}

static bool engine_is_woken(void)
{
    struct epoll_event event;
    const int count = epoll_wait(sw_engine.epoll, &event, 1, 0);
    if (count == 1)
        assert_int_equal(event.data.u64 & 15, SW_WATCH_PORT);
    return count == 1;
}

static void a_packet_wakes_the_engine_once(void **state)
{
    (void)state;
    sw_port_watch_begin(&watch, port);
    assert_true(sw_port_watch_is_on(&watch));
    assert_false(engine_is_woken());
    packet_comes();
    assert_true(engine_is_woken());
    assert_false(engine_is_woken());
    sw_port_watch_told(&watch);
    assert_false(sw_port_watch_is_on(&watch));
    sw_port_watch_begin(&watch, port);
    assert_true(engine_is_woken());
}

static void a_watch_that_has_ended_tells_of_nothing(void **state)
{
    (void)state;
    sw_port_watch_begin(&watch, port);
    assert_true(sw_port_watch_end(&watch, port, &sleeps));
    assert_false(sw_port_watch_is_on(&watch));
    packet_comes();
    assert_false(engine_is_woken());
    assert_false(sw_port_watch_end(&watch, port, &sleeps)); /* there is none */
    sw_port_watch_begin(&watch, port);
    assert_true(engine_is_woken());
}

/* It has armed its completion queue between the last poll and this. */
static void a_program_about_to_sleep_keeps_it(void **state)
{
    (void)state;
    sw_port_watch_begin(&watch, port);
    atomic_store(&sleeps, true);
    assert_false(sw_port_watch_end(&watch, port, &sleeps));
    assert_true(sw_port_watch_is_on(&watch));
    packet_comes();
    assert_true(engine_is_woken());
}

/* Epoll says nothing of a packet that is gone by the time it looks, and watches on. */
static void a_packet_that_the_program_takes_leaves_it_on(void **state)
{
    (void)state;
    sw_port_watch_begin(&watch, port);
    packet_comes();
    program_takes_it();
    assert_false(engine_is_woken());
    packet_comes();
    assert_true(engine_is_woken());
}

static void polls_that_take_all_in_make_it_vain(void **state)
{
    (void)state;
    uint64_t now_ns = START_NS;
    assert_false(sw_port_watch_is_vain(&watch, 1, now_ns));
    for (int i = 0; i < 9; i++)
        assert_false(sw_port_watch_is_vain(&watch, i % 2, now_ns += 2 * US));
    assert_false(sw_port_watch_is_vain(&watch, 0, now_ns += 2 * US)); /* nothing is known by this */
    assert_true(sw_port_watch_is_vain(&watch, 1, now_ns + 2 * US));
}

/* The next packet may find that nobody polls. */
static void a_pause_begins_anew(void **state)
{
    (void)state;
    uint64_t now_ns = START_NS;
    for (int i = 0; i < 100; i++)
        assert_false(sw_port_watch_is_vain(&watch, 1, now_ns += 10 * US));
}

static void polls_that_find_nothing_say_nothing(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < 1000; i++)
        assert_false(sw_port_watch_is_vain(&watch, 0, START_NS + i * US));
    assert_false(sw_port_watch_is_vain(&watch, 1, START_NS + 1000 * US));
}

#define port_test(name) cmocka_unit_test_setup_teardown(name, open_port, close_port)

int main(void)
{
    const struct CMUnitTest tests[] = {
        port_test(a_packet_wakes_the_engine_once),
        port_test(a_watch_that_has_ended_tells_of_nothing),
        port_test(a_program_about_to_sleep_keeps_it),
        port_test(a_packet_that_the_program_takes_leaves_it_on),
        port_test(polls_that_take_all_in_make_it_vain),
        port_test(a_pause_begins_anew),
        port_test(polls_that_find_nothing_say_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
