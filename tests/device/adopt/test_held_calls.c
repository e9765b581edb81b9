/* SPDX-License-Identifier: BSD-2-Clause */
/* What the kernel says of a thread that is in a system call. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include <cmocka.h>

#include "device/adopt/held_calls.h"

static void parse__a_call(void **state)
{
    (void)state;
    char text[128];
    struct sw_held_call call;
    snprintf(text, sizeof(text), "%d 0x7fe72fa9e000 0x200000 0x4 0x0 0x1 0x2 0x3 0x4\n",
             SYS_madvise);
    assert_true(sw_held_call_parse(text, &call));
    assert_int_equal(call.va, 0x7fe72fa9e000);
    assert_int_equal(call.len_bytes, 0x200000);
    assert_int_equal(call.advice, MADV_DONTNEED);
}

static void parse__anything_else(void **state)
{
    (void)state;
    struct sw_held_call call;
    char text[64];
    snprintf(text, sizeof(text), "%d 0x1000 0x1000 0x4 0x0\n", SYS_munmap);
    assert_false(sw_held_call_parse(text, &call));
    snprintf(text, sizeof(text), "%d 0x1000 0x1000", SYS_madvise);
    assert_false(sw_held_call_parse(text, &call));
    assert_false(sw_held_call_parse("running\n", &call));
    assert_false(sw_held_call_parse("-1 0x7ffd 0x7fe7\n", &call));
    assert_false(sw_held_call_parse("", &call));
}

static void nobody_is_seen(const struct sw_held_call *call)
{
    (void)call;
    fail();
}

static void each__nobody_waits(void **state)
{
    (void)state;
    assert_int_equal(sw_held_calls_each(nobody_is_seen), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parse__a_call),
        cmocka_unit_test(parse__anything_else),
        cmocka_unit_test(each__nobody_waits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
