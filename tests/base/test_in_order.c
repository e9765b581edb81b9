/* SPDX-License-Identifier: BSD-2-Clause */
/* Seen after each single instruction of the copy, as another processor may see it. */
#include "base/in_order.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#include <cmocka.h>

#define BYTES 512u
#define OLD 0x11
#define NEW 0x22

static uint8_t source[BYTES];
static _Alignas(64) uint8_t target[BYTES];

static void every_end(void (*copy)(uint8_t *, const uint8_t *, uint64_t))
{
    static uint8_t expected[BYTES];
    for (uint32_t i = 0; i < BYTES; i++)
        source[i] = (uint8_t)(i * 7 + 1);
    for (uint32_t len = 0; len <= 200; len++)
        for (uint32_t start = 0; start < 17; start++) {
            memset(target, 0, sizeof(target));
            memset(expected, 0, sizeof(expected));
            memcpy(expected + start, source + start % 5, len);
            copy(target + start, source + start % 5, len);
            assert_memory_equal(target, expected, sizeof(target));
        }
}

static void sw_copy_in_order__every_end(void **state)
{
    (void)state;
    every_end(sw_copy_in_order);
    every_end(sw_copy_words);
}

static void sw_copy_in_order__overlap(void **state)
{
    (void)state;
    uint8_t expected[BYTES];
    for (uint32_t apart = 0; apart < 70; apart++)
        for (int up = 0; up < 2; up++) {
            for (uint32_t i = 0; i < BYTES; i++)
                target[i] = expected[i] = (uint8_t)i;
            const uint32_t from = up ? 100 : 100 + apart, to = up ? 100 + apart : 100;
            memmove(expected + to, expected + from, 200);
            sw_copy_in_order(target + to, target + from, 200);
            assert_memory_equal(target, expected, sizeof(expected));
        }
}

#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__)

static struct {
    const uint8_t *start;
    uint32_t len_bytes;
    volatile uint32_t steps, seen;
    volatile bool is_over, disorder, is_torn;
} walk; /* changed by a signal handler */

/* After an instruction: new bytes, then old ones, and no word of eight in part. */
static void on_step(int number, siginfo_t *info, void *context)
{
    (void)number;
    (void)info;
    ucontext_t *now = context;
    const volatile uint8_t *bytes = walk.start;
    uint32_t count = 0;
    while (count < walk.len_bytes && bytes[count] == NEW)
        count++;
    for (uint32_t i = count; i < walk.len_bytes; i++)
        walk.disorder |= bytes[i] != OLD;
    const uint32_t into = (uint32_t)((uintptr_t)(walk.start + count) % 8);
    const bool is_inside = into <= count && count - into + 8 <= walk.len_bytes;
    walk.is_torn |= into && is_inside;
    walk.steps++;
    walk.seen += count > 0 && count < walk.len_bytes;
    if (walk.is_over)
        now->uc_mcontext.gregs[REG_EFL] &= ~0x100ll;
}

/* The trap flag; the red zone is the compiler's. */
static inline void begin_steps(void)
{
    __asm__ volatile("lea -128(%%rsp), %%rsp\n\t"
                     "pushfq\n\t"
                     "orq $0x100, (%%rsp)\n\t"
                     "popfq\n\t"
                     "lea 128(%%rsp), %%rsp" ::
                         : "memory", "cc");
}

static void walk_through(uint32_t start, uint32_t len_bytes)
{
    memset(source, NEW, sizeof(source));
    memset(target, OLD, sizeof(target));
    walk.start = target + start;
    walk.len_bytes = len_bytes;
    walk.is_over = false;
    begin_steps();
    sw_copy_in_order(target + start, source + start % 3, len_bytes);
    walk.is_over = true;
    __asm__ volatile("nop" ::: "memory");
    assert_false(walk.disorder);
    assert_false(walk.is_torn);
}

static void sw_copy_in_order__after_each_instruction(void **state)
{
    (void)state;
    static const uint32_t lens[] = {2, 9, 12, 16, 31, 64, 100, 200};
    const struct sigaction action = {.sa_sigaction = on_step, .sa_flags = SA_SIGINFO};
    struct sigaction before;
    assert_int_equal(sigaction(SIGTRAP, &action, &before), 0);
    for (uint32_t i = 0; i < sizeof(lens) / sizeof(lens[0]); i++)
        for (uint32_t start = 0; start < 17; start += start % 4 ? 3 : 1)
            walk_through(start, lens[i]);
    assert_int_equal(sigaction(SIGTRAP, &before, NULL), 0);
    assert_true(walk.seen > 100); /* it was looked at on its way */
}

#else

static void sw_copy_in_order__after_each_instruction(void **state)
{
    (void)state;
    skip();
}

#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sw_copy_in_order__every_end),
        cmocka_unit_test(sw_copy_in_order__overlap),
        cmocka_unit_test(sw_copy_in_order__after_each_instruction),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
