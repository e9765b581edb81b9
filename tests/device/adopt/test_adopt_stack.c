/* SPDX-License-Identifier: BSD-2-Clause */
/* Stacks of threads: they are left alone, and memory that becomes one stays where it is. */
#include <alloca.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

#include "adopt_rig.h"

/* A whole page on the caller's own stack: a sanitizer moves arrays elsewhere, alloca() not. */
#define PAGE_ON_STACK() \
    ((uint8_t *)(((uintptr_t)alloca(2 * PAGE) + PAGE - 1) & ~(uintptr_t)(PAGE - 1)))

static void get__own_stack_is_left_alone(void **state)
{
    (void)state;
    uint8_t *local = PAGE_ON_STACK();
    enum sw_adopt_reason why;
    memset(local, 1, PAGE);
    assert_int_equal(adopt_range(local, PAGE, &why), 0);
    assert_int_equal(why, SW_ADOPT_KIND);
}

struct stack_thread {
    pthread_barrier_t barrier;
    uint8_t *local;
    int found;
    enum sw_adopt_reason why;
    struct sw_segment *segment; /* of the extent found, if any */
};

static void *stack_thread_main(void *arg)
{
    struct stack_thread *t = arg;
    uint8_t *local = PAGE_ON_STACK();
    memset(local, 1, PAGE);
    struct sw_extent own[EXTENTS_MAX];
    t->local = local;
    t->found =
        sw_adopt_get((uint64_t)(uintptr_t)local, PAGE, adopt_handed, own, EXTENTS_MAX, &t->why);
    t->segment = t->found > 0 ? own[0].segment : NULL;
    pthread_barrier_wait(&t->barrier);
    pthread_barrier_wait(&t->barrier);
    return NULL;
}

/* While the thread lives, its stack is left alone, whoever asks, and memory right behind it is not.
 */
static void stack_thread_check(const pthread_attr_t *attr, uint8_t *behind)
{
    struct stack_thread t = {.found = -1};
    enum sw_adopt_reason why;
    pthread_t thread;
    pthread_barrier_init(&t.barrier, NULL, 2);
    assert_int_equal(pthread_create(&thread, attr, stack_thread_main, &t), 0);
    pthread_barrier_wait(&t.barrier);
    int found = adopt_range(t.local, PAGE, &why);
    int found_behind = behind ? adopt_range(behind, 3 * MIB, NULL) : 0;
    pthread_barrier_wait(&t.barrier);
    pthread_join(thread, NULL);
    assert_int_equal(t.found, 0);
    assert_int_equal(t.why, SW_ADOPT_KIND);
    assert_int_equal(found, 0);
    assert_int_equal(why, SW_ADOPT_KIND);
    if (behind) {
        assert_int_equal(found_behind, 1);
        assert_int_equal(extents[0].va, (uint64_t)(uintptr_t)behind);
        assert_int_equal(extents[0].len_bytes, 3 * MIB);
        sw_adopt_put(extents[0].segment);
    }
    pthread_barrier_destroy(&t.barrier);
}

static void get__other_threads_stack_is_left_alone(void **state)
{
    (void)state;
    stack_thread_check(NULL, NULL);
    /* A stack that the program made itself, inside a larger buffer: the buffer's rest is adopted.
     */
    uint8_t *base = buffer_new(4 * MIB);
    pthread_attr_t attr;
    pthread_attr_init(&attr);
    pthread_attr_setstack(&attr, base, MIB);
    stack_thread_check(&attr, base + MIB);
    pthread_attr_destroy(&attr);
    munmap(base, 4 * MIB);
}

/* A thread that makes its stack in memory that is adopted already: that memory must not move under
 * it. */
static void put__stack_made_in_adopted_memory_stays(void **state)
{
    (void)state;
    bool private;
    enum sw_adopt_reason why;
    uint8_t *base = buffer_new(MIB);
    struct sw_segment *segment = adopt_whole(base, MIB);
    struct stack_thread t = {.found = -1};
    pthread_t thread;
    pthread_attr_t attr;
    pthread_attr_init(&attr);
    pthread_attr_setstack(&attr, base, MIB);
    pthread_barrier_init(&t.barrier, NULL, 2);
    assert_int_equal(pthread_create(&thread, &attr, stack_thread_main, &t), 0);
    pthread_barrier_wait(&t.barrier);
    assert_int_equal(t.found, 1);
    sw_adopt_put(t.segment);
    sw_adopt_put(segment);
    mappings_within(base, MIB, &private);
    pthread_barrier_wait(&t.barrier);
    pthread_join(thread, NULL);
    assert_false(private);
    adopt_range(base, 0, &why); /* tries again */
    mappings_within(base, MIB, &private);
    assert_true(private);
    pthread_attr_destroy(&attr);
    pthread_barrier_destroy(&t.barrier);
    munmap(base, MIB);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(get__own_stack_is_left_alone),
        cmocka_unit_test(get__other_threads_stack_is_left_alone),
        cmocka_unit_test(put__stack_made_in_adopted_memory_stays),
    };
    setenv("SIDEWIRE_ADOPT_MAX", "4G", 1); /* also on a small machine */
    if (adopt_is_refused())
        return 77;
    return cmocka_run_group_tests_name("adopt_stack", tests, NULL, NULL);
}
