/* SPDX-License-Identifier: BSD-2-Clause */
/* The gate between threads that serve and one that changes what they share. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "nvme/target/server/gate.h"

enum { THREADS = 3, CHANGES = 2000 };

static struct nvt_gate gate;
static int one, other; /* the same, but while somebody changes them */
static int torn[THREADS];
static _Atomic int seen;
static _Atomic bool ends;

static void *look(void *arg)
{
    const uint32_t number = (uint32_t)(uintptr_t)arg;
    while (!atomic_load(&ends)) {
        nvt_gate_enter(&gate, number);
        torn[number] += one != other;
        nvt_gate_leave(&gate, number);
        atomic_fetch_add(&seen, 1);
    }
    return NULL;
}

static void change(void)
{
    nvt_gate_close(&gate);
    one++;
    other++;
    nvt_gate_open(&gate);
}

static void gate__nobody_sees_half_a_change(void **state)
{
    (void)state;
    pthread_t threads[THREADS];
    one = other = 0;
    atomic_store(&ends, false);
    nvt_gate_init(&gate, THREADS);
    for (uintptr_t i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, look, (void *)i), 0);
    for (int i = 0; i < CHANGES; i++)
        change();
    atomic_store(&ends, true);
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(torn[i], 0);
    }
    assert_int_equal(one, CHANGES);
    nvt_gate_free(&gate);
}

static void *change_often(void *arg)
{
    (void)arg;
    for (int i = 0; i < CHANGES; i++)
        change();
    return NULL;
}

static void close__one_after_the_other(void **state)
{
    (void)state;
    pthread_t threads[THREADS];
    one = other = 0;
    nvt_gate_init(&gate, THREADS);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, change_often, NULL), 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(one, THREADS * CHANGES);
    nvt_gate_free(&gate);
}

static void enter__waits_while_it_is_closed(void **state)
{
    (void)state;
    pthread_t thread;
    atomic_store(&ends, false);
    atomic_store(&seen, 0);
    nvt_gate_init(&gate, 1);
    nvt_gate_close(&gate);
    assert_int_equal(pthread_create(&thread, NULL, look, NULL), 0);
    for (int i = 0; i < CHANGES; i++)
        one = other = i; /* it would be seen, and a sanitizer would tell */
    assert_int_equal(atomic_load(&seen), 0);
    assert_true(nvt_gate_is_wanted(&gate));
    nvt_gate_open(&gate);
    while (!atomic_load(&seen))
        ;
    assert_false(nvt_gate_is_wanted(&gate));
    atomic_store(&ends, true);
    pthread_join(thread, NULL);
    nvt_gate_free(&gate);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gate__nobody_sees_half_a_change),
        cmocka_unit_test(close__one_after_the_other),
        cmocka_unit_test(enter__waits_while_it_is_closed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
