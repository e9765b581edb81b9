/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/card_memory.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define BYTES 64

/* Nothing around the range changes, whatever its ends are. */
static void sw_card_memory_copy__all_ends(void **state)
{
    (void)state;
    uint8_t from[BYTES];
    _Alignas(8) uint8_t to[BYTES];
    for (size_t i = 0; i < BYTES; i++)
        from[i] = (uint8_t)(i + 1);
    for (size_t start = 0; start < 17; start++)
        for (size_t len = 0; len <= 40; len++)
            for (size_t skew = 0; skew < 3; skew++) {
                memset(to, 0, sizeof(to));
                sw_card_memory_copy(to + start, from + skew, len);
                for (size_t i = 0; i < BYTES; i++)
                    assert_int_equal(to[i],
                                     i >= start && i < start + len ? from[skew + i - start] : 0);
            }
}

static void sw_card_memory__known_ranges(void **state)
{
    (void)state;
    uint8_t *at = (uint8_t *)0x10000;
    assert_false(sw_card_memory_has(at));
    assert_true(sw_card_memory_add(0x10000, 0x1000));
    assert_true(sw_card_memory_add(0x10000, 0x1000)); /* the same one */
    assert_true(sw_card_memory_has(at));
    assert_true(sw_card_memory_has(at + 0xfff));
    assert_false(sw_card_memory_has(at - 1));
    assert_false(sw_card_memory_has(at + 0x1000));
    sw_card_memory_remove(0x10000);
    assert_false(sw_card_memory_has(at));
    assert_int_equal(atomic_load(&sw_card_ranges), 0);
}

static void sw_card_memory__too_many_ranges(void **state)
{
    (void)state;
    uint64_t count = 0;
    while (sw_card_memory_add(0x10000 * (count + 1), 0x1000)) {
        count++;
        assert_true(count < 1000);
    }
    assert_true(count > 0);
    assert_int_equal(atomic_load(&sw_card_ranges), count);
    assert_true(sw_card_memory_add(0x10000, 0x1000)); /* known */
    for (uint64_t i = 0; i < count; i++)
        sw_card_memory_remove(0x10000 * (i + 1));
    assert_int_equal(atomic_load(&sw_card_ranges), 0);
}

static void sw_card_memory_is_file__of_sysfs(void **state)
{
    (void)state;
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    assert_false(sw_card_memory_is_file(ends[0]));
    assert_false(sw_card_memory_is_file(-1));
}

static void sw_card_memory_settle__any_place(void **state)
{
    (void)state;
    _Alignas(8) uint8_t bytes[8] = {1, 2, 3};
    for (size_t i = 0; i < sizeof(bytes); i++)
        sw_card_memory_settle(bytes + i);
    assert_int_equal(bytes[2], 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sw_card_memory_copy__all_ends),
        cmocka_unit_test(sw_card_memory__known_ranges),
        cmocka_unit_test(sw_card_memory__too_many_ranges),
        cmocka_unit_test(sw_card_memory_is_file__of_sysfs),
        cmocka_unit_test(sw_card_memory_settle__any_place),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
