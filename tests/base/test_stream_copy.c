/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/stream_copy.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define BYTES (160u << 10)
#define GUARD 256u

/* Copied bytes are there, and nothing else has changed. */
static void copies_exactly(void **state)
{
    (void)state;
    static uint8_t to[BYTES + 2 * GUARD], from[BYTES + 2 * GUARD];
    static const uint32_t lengths[] = {0,    1,     63,    64,     65,     4095,
                                       4096, 16384, 71552, 131072, 131137, BYTES - 64};
    for (uint32_t i = 0; i < sizeof(from); i++)
        from[i] = (uint8_t)(i * 7 + i / 251);
    for (uint32_t i = 0; i < sizeof(lengths) / sizeof(*lengths); i++)
        for (uint32_t skew = 0; skew < 64; skew += 7) {
            const uint32_t len = lengths[i], at = GUARD + skew, source = GUARD + (skew * 5) % 64;
            memset(to, 0xee, sizeof(to));
            sw_stream_copy(to + at, from + source, len);
            assert_memory_equal(to + at, from + source, len);
            for (uint32_t guard = 0; guard < GUARD; guard++) {
                assert_int_equal(to[at - 1 - guard], 0xee);
                if (at + len + guard < sizeof(to))
                    assert_int_equal(to[at + len + guard], 0xee);
            }
        }
}

static void copies_what_overlaps(void **state)
{
    (void)state;
    static uint8_t bytes[BYTES], expected[BYTES];
    for (uint32_t way = 0; way < 2; way++) {
        for (uint32_t i = 0; i < BYTES; i++)
            bytes[i] = expected[i] = (uint8_t)(i * 13 + i / 509);
        const uint32_t to = way ? 0 : 4097, from = way ? 4097 : 0, len = BYTES - 5000;
        memmove(expected + to, expected + from, len);
        sw_stream_copy(bytes + to, bytes + from, len);
        assert_memory_equal(bytes, expected, BYTES);
    }
}

static void *place_at(uint64_t offset)
{
    return (void *)(uintptr_t)(UINT64_C(0x7f1234500000) + offset);
}

/* Goes round in `size`, in steps of `step`; what the watch said at the end. */
static bool goes_round(struct sw_stream_watch *watch, uint64_t size, uint64_t step, uint64_t total)
{
    bool passes = false;
    for (uint64_t at = 0; at < total; at += step)
        passes = sw_stream_watch_note(watch, place_at(at % size), step);
    return passes;
}

static void what_comes_back_stays_in_the_caches(void **state)
{
    (void)state;
    static const uint64_t sizes[] = {64u << 10, 1u << 20, 8u << 20, 16u << 20};
    for (uint32_t i = 0; i < 4; i++) {
        struct sw_stream_watch watch = {0};
        assert_false(goes_round(&watch, sizes[i], 64u << 10, UINT64_C(1) << 30));
    }
}

static void what_goes_on_passes_them(void **state)
{
    (void)state;
    static const uint64_t steps[] = {16u << 10, 64u << 10, 71552, 1u << 20};
    for (uint32_t i = 0; i < 4; i++) {
        struct sw_stream_watch watch = {0};
        assert_false(goes_round(&watch, UINT64_C(1) << 40, steps[i], 20u << 20));
        assert_true(goes_round(&watch, UINT64_C(1) << 30, steps[i], UINT64_C(3) << 30));
    }
}

static void in_any_order(void **state)
{
    (void)state;
    struct sw_stream_watch watch = {0};
    uint64_t draw = 1;
    bool passes = false;
    for (uint32_t i = 0; i < 40000; i++) {
        draw = draw * UINT64_C(6364136223846793005) + 1442695040888963407;
        passes = sw_stream_watch_note(&watch, place_at((draw >> 33) % 15000 * 71552), 71552);
    }
    assert_true(passes);
    /* A program that then stays in one place has its caches back soon. */
    assert_false(goes_round(&watch, 4u << 20, 64u << 10, 64u << 20));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(copies_exactly),
        cmocka_unit_test(copies_what_overlaps),
        cmocka_unit_test(what_comes_back_stays_in_the_caches),
        cmocka_unit_test(what_goes_on_passes_them),
        cmocka_unit_test(in_any_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
