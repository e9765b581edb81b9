/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/lock.h"

#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/clock.h"

struct shared {
    struct sw_lock lock;
    atomic_bool over;
    uint64_t counter; /* under the lock */
    bool by_try;
};

static void one_processor(void)
{
    cpu_set_t allowed, first;
    assert_int_equal(sched_getaffinity(0, sizeof(allowed), &allowed), 0);
    int cpu = 0;
    while (!CPU_ISSET(cpu, &allowed))
        cpu++;
    CPU_ZERO(&first);
    CPU_SET(cpu, &first);
    assert_int_equal(sched_setaffinity(0, sizeof(first), &first), 0);
}

/* As a program that waits for a completion does: takes the lock nearly all of the time. */
static void *poll_for_ever(void *arg)
{
    struct shared *shared = arg;
    while (!atomic_load(&shared->over)) {
        if (shared->by_try ? !sw_lock_try(&shared->lock) : (sw_lock_acquire(&shared->lock), false))
            continue;
        for (int i = 0; i < 2000; i++)
            sw_cpu_relax();
        shared->counter++;
        sw_lock_release(&shared->lock);
    }
    return NULL;
}

static void passes_a_poller(bool by_try)
{
    struct shared shared = {.by_try = by_try};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, poll_for_ever, &shared), 0);
    uint64_t start_ns = sw_clock_ns();
    int turns = 0;
    for (; turns < 200 && sw_clock_ns() - start_ns < 20 * SW_NS_PER_S; turns++) {
        sw_lock_acquire(&shared.lock);
        shared.counter++;
        sw_lock_release(&shared.lock);
        sched_yield();
    }
    atomic_store(&shared.over, true);
    pthread_join(thread, NULL);
    assert_int_equal(turns, 200);
    assert_int_equal(atomic_load(&shared.lock.wanted), 0);
    assert_int_equal(atomic_load(&shared.lock.held), 0);
}

static void sw_lock_acquire__passes_a_thread_that_polls(void **state)
{
    (void)state;
    one_processor();
    passes_a_poller(true);
}

static void sw_lock_acquire__passes_a_thread_that_acquires_again_and_again(void **state)
{
    (void)state;
    one_processor();
    passes_a_poller(false);
}

static void *count(void *arg)
{
    struct shared *shared = arg;
    for (int i = 0; i < 200000;) {
        if (i % 2) {
            if (!sw_lock_try(&shared->lock))
                continue;
        } else {
            sw_lock_acquire(&shared->lock);
        }
        shared->counter++;
        i++;
        sw_lock_release(&shared->lock);
    }
    return NULL;
}

static void sw_lock__excludes(void **state)
{
    (void)state;
    struct shared shared = {0};
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, count, &shared), 0);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(shared.counter, 800000);
    assert_int_equal(atomic_load(&shared.lock.wanted), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sw_lock__excludes),
        cmocka_unit_test(sw_lock_acquire__passes_a_thread_that_polls),
        cmocka_unit_test(sw_lock_acquire__passes_a_thread_that_acquires_again_and_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
