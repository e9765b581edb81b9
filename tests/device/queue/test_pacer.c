/* SPDX-License-Identifier: BSD-2-Clause */
#include "device/queue/pacer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define NOW 1000000000ull

static void sw_pacer_set__burst(void **state)
{
    (void)state;
    struct sw_pacer pacer = {0};
    sw_pacer_set(&pacer, NOW, 8000, 0, 1024); /* a byte in a microsecond */
    assert_int_equal(sw_pacer_allows(&pacer, NOW, 1u << 30), 65536);
    sw_pacer_set(&pacer, NOW, 8000000, 0, 1024); /* 1 GB/s */
    assert_int_equal(sw_pacer_allows(&pacer, NOW, 1u << 30), 1000000 - 1000000 % 1024);
    sw_pacer_set(&pacer, NOW, 8000, 1, 1024);
    assert_int_equal(sw_pacer_allows(&pacer, NOW, 1u << 30), 1024);
    sw_pacer_set(&pacer, NOW, 8000, UINT32_MAX, 4096);
    assert_int_equal(sw_pacer_allows(&pacer, NOW, 1u << 31), 1u << 31);
}

static void sw_pacer_allows__fills_at_the_rate(void **state)
{
    (void)state;
    struct sw_pacer pacer = {0};
    sw_pacer_set(&pacer, NOW, 8000, 4096, 1024);
    assert_int_equal(sw_pacer_allows(&pacer, NOW, 0), 0);
    assert_int_equal(sw_pacer_allows(&pacer, NOW, 4096), 4096);
    sw_pacer_charge(&pacer, NOW, 4096);
    assert_int_equal(sw_pacer_allows(&pacer, NOW, 1), 0);
    assert_int_equal(sw_pacer_allows(&pacer, NOW + 100000, 100), 100);
    assert_int_equal(sw_pacer_allows(&pacer, NOW + 100000, 101), 0);
    assert_int_equal(sw_pacer_allows(&pacer, NOW + 99999, 100), 0);
    /* A longer message leaves in whole packets. */
    assert_int_equal(sw_pacer_allows(&pacer, NOW + 1023999, 1u << 20), 0);
    assert_int_equal(sw_pacer_allows(&pacer, NOW + 2047999, 1u << 20), 1024);
    assert_int_equal(sw_pacer_allows(&pacer, NOW + 2048000, 1u << 20), 2048);
    /* Never more than the bucket holds. */
    assert_int_equal(sw_pacer_allows(&pacer, NOW + 10000000, 1u << 20), 4096);
}

/* In steps of any length, however odd the rate: within rate x time + burst. */
static void sw_pacer_charge__keeps_the_limit(void **state)
{
    (void)state;
    static const uint32_t rates[] = {1000, 7777, 1234567, 98765432, 400000000};
    uint32_t seed = 1;
    for (int i = 0; i < 5; i++) {
        struct sw_pacer pacer = {0};
        uint64_t now = NOW, sent = 0;
        sw_pacer_set(&pacer, NOW, rates[i], 10000, 256);
        for (int n = 0; n < 20000; n++) {
            seed = seed * 1664525 + 1013904223;
            now += seed >> 16 & 0x3fff;
            uint32_t len = seed >> 8 & 0x1fff, allowed = sw_pacer_allows(&pacer, now, len);
            assert_true(allowed == len || allowed % 256 == 0);
            sw_pacer_charge(&pacer, now, allowed);
            sent += allowed;
            assert_true(sent <= (now - NOW) * rates[i] / 8000000 + 10000);
        }
        /* And near it, where more was asked for: it is a limit, not a stop. */
        if (rates[i] < 4000000)
            assert_true(sent + 20000 > (now - NOW) * rates[i] / 8000000);
    }
}

static void sw_pacer_set__forgives_a_smaller_bucket(void **state)
{
    (void)state;
    struct sw_pacer pacer = {0};
    sw_pacer_set(&pacer, NOW, 1000, 1u << 30, 1024);
    sw_pacer_charge(&pacer, NOW, 1u << 30); /* two hours */
    sw_pacer_set(&pacer, NOW, 8000, 2048, 1024);
    assert_int_equal(sw_pacer_allows(&pacer, NOW, 1), 0);
    assert_int_equal(sw_pacer_allows(&pacer, NOW + 2048000, 2048), 2048);
}

/* At the time it says all of it may go, and not long before. */
static void sw_pacer_due_ns__to_the_byte(void **state)
{
    (void)state;
    const uint32_t rates[] = {1000, 3333, 16000, 999983};
    for (int i = 0; i < 4; i++) {
        struct sw_pacer pacer = {0};
        sw_pacer_set(&pacer, NOW, rates[i], 10000, 1024);
        assert_true(sw_pacer_due_ns(&pacer, 1024) <= NOW);
        for (uint32_t n = 0; n < 50; n++) {
            sw_pacer_charge(&pacer, NOW, 777 + n);
            uint64_t due_ns = sw_pacer_due_ns(&pacer, 1024);
            if (due_ns <= NOW)
                continue;
            assert_int_equal(sw_pacer_allows(&pacer, due_ns, 1024), 1024);
            assert_int_equal(sw_pacer_allows(&pacer, due_ns - 8000000 / rates[i] - 2, 1024), 0);
        }
        assert_true(sw_pacer_due_ns(&pacer, 1024) > NOW);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sw_pacer_set__burst),
        cmocka_unit_test(sw_pacer_allows__fills_at_the_rate),
        cmocka_unit_test(sw_pacer_charge__keeps_the_limit),
        cmocka_unit_test(sw_pacer_set__forgives_a_smaller_bucket),
        cmocka_unit_test(sw_pacer_due_ns__to_the_byte),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
