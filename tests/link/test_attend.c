/* SPDX-License-Identifier: BSD-2-Clause */
/* Which waits of a program attend to the port. The port and the clock are this test's. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include <cmocka.h>

#include "base/clock.h"
#include "link/attend.h"
#include "link/roce/attend.h"
#include "link/roce/roce.h"

struct sw_roce sw_roce;

static _Atomic uint64_t now_ns = SW_NS_PER_S;

int clock_gettime(clockid_t clock, struct timespec *out)
{
    (void)clock;
    const uint64_t ns = atomic_load(&now_ns);
    *out = (struct timespec){.tv_sec = (time_t)(ns / SW_NS_PER_S),
                             .tv_nsec = (long)(ns % SW_NS_PER_S)};
    return 0;
}

static void pass_us(unsigned int us)
{
    atomic_fetch_add(&now_ns, us * SW_NS_PER_US);
}

static struct {
    uint64_t packets;
    unsigned int looks, event_at; /* the look that finds one; 0: none does */
    bool attends, is_left;
} port;

uint64_t sw_port_counter(const struct sw_port *unused, enum sw_port_counter counter)
{
    (void)unused;
    return counter == SW_PORT_RX_PACKETS ? port.packets : 0;
}

bool sw_roce_attend_begin(uint64_t began_ns)
{
    (void)began_ns;
    return port.attends = true;
}

bool sw_roce_attend_look(bool is_woken, uint64_t look_ns, bool *has_received)
{
    (void)is_woken;
    (void)look_ns;
    pass_us(1);
    *has_received = ++port.looks == port.event_at;
    return *has_received;
}

int sw_roce_attend_rest(uint64_t rest_ns)
{
    (void)rest_ns;
    return 7;
}

void sw_roce_attend_end(uint64_t end_ns)
{
    (void)end_ns;
}

void sw_roce_attend_leave(void)
{
    port.is_left = port.attends;
    port.attends = false;
}

static int has_event(void *arg)
{
    (void)arg;
    return port.event_at && port.looks >= port.event_at;
}

/* A wait that ends at once, with so many packets. Returns whether it attended. */
static bool wait_for(uint64_t packets)
{
    struct sw_attend attend;
    const bool attends = sw_attend_begin(&attend);
    port.packets += packets;
    sw_attend_end(&attend, true);
    return attends;
}

/* Waits are forgotten: none before. */
static int begin_anew(void **state)
{
    (void)state;
    for (int i = 0; i < 100; i++)
        wait_for(0);
    struct sw_attend attend;
    sw_attend_begin(&attend);
    sw_attend_end(&attend, false);
    port.looks = port.event_at = 0;
    return 0;
}

static void after_a_short_wait(void **state)
{
    (void)state;
    assert_false(wait_for(1));
    assert_true(wait_for(1));
    assert_true(wait_for(1));
}

static void not_after_a_long_one(void **state)
{
    (void)state;
    struct sw_attend attend;
    wait_for(1);
    assert_true(sw_attend_begin(&attend));
    pass_us(5000);
    sw_attend_end(&attend, true);
    assert_true(port.is_left);
    assert_false(wait_for(1));
    assert_true(wait_for(1));
}

static void not_after_one_in_vain(void **state)
{
    (void)state;
    struct sw_attend attend;
    wait_for(1);
    assert_true(sw_attend_begin(&attend));
    sw_attend_end(&attend, false);
    assert_true(port.is_left);
    assert_false(wait_for(1));
}

static void not_of_a_stream(void **state)
{
    (void)state;
    wait_for(1);
    assert_true(wait_for(1000));
    assert_true(port.is_left);
    int left_out = 0;
    while (!wait_for(1))
        left_out++;
    assert_in_range(left_out, 4, 20);
    /* Nor where each second wait is of one. */
    wait_for(1000);
    for (int i = 0; i < 20; i++) {
        assert_false(wait_for(1));
        assert_false(wait_for(1000));
    }
}

static void *wait_elsewhere(void *arg)
{
    (void)arg;
    wait_for(1);
    assert_false(wait_for(1) && wait_for(1) && port.is_left);
    return NULL;
}

static void not_beside_another_thread(void **state)
{
    (void)state;
    pthread_t thread;
    wait_for(1);
    assert_true(wait_for(1));
    assert_int_equal(pthread_create(&thread, NULL, wait_elsewhere, NULL), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_false(wait_for(1));
    assert_true(wait_for(1)); /* it waits no more */
    assert_int_equal(pthread_create(&thread, NULL, wait_elsewhere, NULL), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    pass_us(20000);
    assert_true(wait_for(1)); /* it has not for long */
}

static void looks_until_the_event(void **state)
{
    (void)state;
    struct sw_attend attend;
    wait_for(1);
    assert_true(sw_attend_begin(&attend));
    port.event_at = 50;
    assert_int_equal(sw_attend_look(&attend, has_event, NULL), 1);
    assert_int_equal(port.looks, 50);
    sw_attend_end(&attend, true);
}

static void looks_in_vain_for_a_while(void **state)
{
    (void)state;
    struct sw_attend attend;
    wait_for(1);
    assert_true(sw_attend_begin(&attend));
    assert_int_equal(sw_attend_look(&attend, has_event, NULL), 0);
    assert_true(port.looks > 50);
    uint64_t most_ns = 0;
    assert_int_equal(sw_attend_rest(&attend, &most_ns), 7);
    assert_in_range(most_ns, SW_NS_PER_MS, SW_ROCE_ATTEND_NS - SW_NS_PER_MS);
    assert_true(now_ns + most_ns < attend.moved_ns + SW_ROCE_ATTEND_NS);
    pass_us(6000); /* the thread is taken for gone soon */
    assert_int_equal(sw_attend_rest(&attend, &most_ns), -1);
    assert_true(port.is_left);
    sw_attend_end(&attend, true);
}

static void marks_numbers(void **state)
{
    (void)state;
    const int odd[] = {-1, 0, 77, 8191, 8192, INT32_MAX};
    for (size_t i = 0; i < sizeof(odd) / sizeof(*odd); i++) {
        assert_false(sw_attend_is_marked(odd[i]));
        sw_attend_mark(odd[i]);
        sw_attend_mark(odd[i]);
        assert_int_equal(sw_attend_is_marked(odd[i]), odd[i] >= 0 && odd[i] < 8192);
    }
    assert_int_equal(atomic_load(&sw_attend_marks), 3);
    for (size_t i = 0; i < sizeof(odd) / sizeof(*odd); i++) {
        sw_attend_unmark(odd[i]);
        sw_attend_unmark(odd[i]);
        assert_false(sw_attend_is_marked(odd[i]));
    }
    assert_int_equal(atomic_load(&sw_attend_marks), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(after_a_short_wait, begin_anew),
        cmocka_unit_test_setup(not_after_a_long_one, begin_anew),
        cmocka_unit_test_setup(not_after_one_in_vain, begin_anew),
        cmocka_unit_test_setup(not_of_a_stream, begin_anew),
        cmocka_unit_test_setup(not_beside_another_thread, begin_anew),
        cmocka_unit_test_setup(looks_until_the_event, begin_anew),
        cmocka_unit_test_setup(looks_in_vain_for_a_while, begin_anew),
        cmocka_unit_test(marks_numbers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
