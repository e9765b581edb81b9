/* SPDX-License-Identifier: BSD-2-Clause */
/* Which processors the engine runs on; the test's thread is the engine. */
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "link/engine_cpus.h"

static cpu_set_t before; /* as the test was started */
static int first = -1, other = -1;

static int setup(void **state)
{
    (void)state;
    cpu_set_t all;
    assert_int_equal(sched_getaffinity(0, sizeof(before), &before), 0);
    assert_int_equal(sched_getaffinity(1, sizeof(all), &all), 0);
    for (int cpu = CPU_SETSIZE - 1; cpu >= 0; cpu--) {
        if (CPU_ISSET(cpu, &before) && CPU_ISSET(cpu, &all)) {
            other = first;
            first = cpu;
        }
    }
    return first < 0 ? -1 : 0;
}

static void bind_to(int cpu)
{
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    assert_int_equal(sched_setaffinity(0, sizeof(one), &one), 0);
}

static int bind_to_first(void **state)
{
    (void)state;
    bind_to(first);
    return 0;
}

static int restore(void **state)
{
    (void)state;
    unsetenv("SIDEWIRE_ENGINE_CPUS");
    return sched_setaffinity(0, sizeof(before), &before);
}

static bool may_run_on(int cpu)
{
    cpu_set_t now;
    assert_int_equal(sched_getaffinity(0, sizeof(now), &now), 0);
    return CPU_ISSET(cpu, &now);
}

static void keeps_off_and_comes_back(void **state)
{
    (void)state;
    sw_engine_cpus_start();
    assert_true(may_run_on(first));
    sw_engine_keep_off(first);
    if (other < 0) {
        assert_true(may_run_on(first)); /* there is no other one */
        print_message("SKIP: one processor\n");
        skip();
    }
    assert_false(may_run_on(first));
    assert_true(may_run_on(other));
    sw_engine_keep_off(other);
    assert_true(may_run_on(first));
    assert_false(may_run_on(other));
    sw_engine_keep_off(-1);
    assert_true(may_run_on(first));
    assert_false(may_run_on(other));
}

static void stays_if_it_shall(void **state)
{
    (void)state;
    setenv("SIDEWIRE_ENGINE_CPUS", "program", 1);
    sw_engine_cpus_start();
    sw_engine_keep_off(first);
    assert_true(may_run_on(first));
}

static void goes_where_it_shall(void **state)
{
    (void)state;
    char list[16];
    if (other < 0)
        skip();
    snprintf(list, sizeof(list), "%d", other);
    setenv("SIDEWIRE_ENGINE_CPUS", list, 1);
    sw_engine_cpus_start();
    assert_true(may_run_on(other));
    assert_false(may_run_on(first));
    sw_engine_keep_off(other);
    assert_true(may_run_on(other));
}

static void a_bad_wish_is_no_wish(void **state)
{
    (void)state;
    setenv("SIDEWIRE_ENGINE_CPUS", "everywhere", 1);
    sw_engine_cpus_start();
    sw_engine_keep_off(first);
    assert_int_equal(may_run_on(first), other < 0);
}

static void lists(void **state)
{
    (void)state;
    static const char *const bad[] = {"",   "-",     "1-",  "3-1", ",",   "1,",    "0-3,",
                                      "a",  "1;2",   " 1",  "+1",  "-1",  "99999", "0-99999",
                                      "1 ", "auto2", "all", "0x1", "1--2"};
    enum sw_cpus_wish wish;
    cpu_set_t list;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_false(sw_cpus_parse(bad[i], &wish, &list));
    assert_true(sw_cpus_parse("0-2,7,9-9", &wish, &list));
    assert_int_equal(wish, SW_CPUS_LIST);
    assert_int_equal(CPU_COUNT(&list), 5);
    assert_true(CPU_ISSET(0, &list) && CPU_ISSET(2, &list) && CPU_ISSET(7, &list) &&
                CPU_ISSET(9, &list));
    assert_true(sw_cpus_parse("auto", &wish, &list) && wish == SW_CPUS_AUTO);
    assert_true(sw_cpus_parse("program", &wish, &list) && wish == SW_CPUS_PROGRAM);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(keeps_off_and_comes_back, bind_to_first, restore),
        cmocka_unit_test_setup_teardown(stays_if_it_shall, bind_to_first, restore),
        cmocka_unit_test_setup_teardown(goes_where_it_shall, bind_to_first, restore),
        cmocka_unit_test_setup_teardown(a_bad_wish_is_no_wish, bind_to_first, restore),
        cmocka_unit_test(lists),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}
