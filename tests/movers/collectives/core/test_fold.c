/* SPDX-License-Identifier: BSD-2-Clause */
/* What the order of a sum means, in numbers. test_fold.py has all types, operators and bits. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <string.h>
#if defined(__SSE2__)
#include <xmmintrin.h>
#endif

#include "collectives/core/fold.h"

enum { LEAVES_MAX = 8 };

/* One element, of each leaf. */
static float fold_f32(enum sw_coll_op op, const float *leaves, unsigned count)
{
    const void *sources[LEAVES_MAX];
    for (unsigned i = 0; i < count; i++)
        sources[i] = &leaves[i];
    float result;
    coll_fold(SW_COLL_F32, op, &result, sources, count, 1);
    return result;
}

static uint16_t fold_u16(enum sw_coll_type type, enum sw_coll_op op, const uint16_t *leaves,
                         unsigned count)
{
    const void *sources[LEAVES_MAX];
    for (unsigned i = 0; i < count; i++)
        sources[i] = &leaves[i];
    uint16_t result;
    coll_fold(type, op, &result, sources, count, 1);
    return result;
}

static uint32_t f32_bits(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

static void fold__neighbours_are_first(void **state)
{
    (void)state;
    /* (1e8 + 1) + (-1e8 + 1): each 1 is lost. One after the other, the last would be left. */
    assert_true(fold_f32(SW_COLL_SUM, (float[]){1e8F, 1, -1e8F, 1}, 4) == 0);
    assert_true(fold_f32(SW_COLL_SUM, (float[]){1e8F, -1e8F, 1, 1}, 4) == 2);
}

static void fold__splits_at_the_largest_power_of_two(void **state)
{
    (void)state;
    /* Four and one. Two and three would give 0 first, three and two 1 then. */
    assert_true(fold_f32(SW_COLL_SUM, (float[]){1e8F, 0, -1e8F, 0, 1}, 5) == 1);
    assert_true(fold_f32(SW_COLL_SUM, (float[]){0, 0, 1, 1e8F, -1e8F}, 5) == 0);
    /* Four and two: 1e8 + (-1e8 + 1). Three and three, or five and one, would give 1. */
    assert_true(fold_f32(SW_COLL_SUM, (float[]){0, 0, 0, 1e8F, -1e8F, 1}, 6) == 0);
}

static void fold__rounds_16_bits_once(void **state)
{
    (void)state;
    /* 2048 + 1 lies half way between two f16, and would be rounded down twice. */
    assert_int_equal(fold_u16(SW_COLL_F16, SW_COLL_SUM, (uint16_t[]){0x6800, 0x3c00, 0x3c00}, 3),
                     0x6801);
    /* The same in bf16: 256 + 1 + 1 = 258. */
    assert_int_equal(fold_u16(SW_COLL_BF16, SW_COLL_SUM, (uint16_t[]){0x4380, 0x3f80, 0x3f80}, 3),
                     0x4381);
    /* Halves go to the even one: 256 + 1 down to 256, 258 + 1 up to 260. */
    assert_int_equal(fold_u16(SW_COLL_BF16, SW_COLL_SUM, (uint16_t[]){0x4380, 0x3f80}, 2), 0x4380);
    assert_int_equal(fold_u16(SW_COLL_BF16, SW_COLL_SUM, (uint16_t[]){0x4381, 0x3f80}, 2), 0x4382);
    /* A sum of two f16 may be too large for one, and its half not. */
    assert_int_equal(fold_u16(SW_COLL_F16, SW_COLL_SUM, (uint16_t[]){0x7bff, 0x7bff}, 2), 0x7c00);
    assert_int_equal(fold_u16(SW_COLL_F16, SW_COLL_AVG, (uint16_t[]){0x7bff, 0x7bff}, 2), 0x7bff);
}

static void fold__nan_is_found_by_min_and_max(void **state)
{
    (void)state;
    for (enum sw_coll_op op = SW_COLL_SUM; op < SW_COLL_OPS; op++) {
        assert_int_equal(f32_bits(fold_f32(op, (float[]){-NAN, 1}, 2)), 0x7fc00000);
        assert_int_equal(f32_bits(fold_f32(op, (float[]){1, 2, -NAN}, 3)), 0x7fc00000);
        assert_int_equal(f32_bits(fold_f32(op, (float[]){-NAN}, 1)), 0x7fc00000);
    }
    assert_int_equal(f32_bits(fold_f32(SW_COLL_SUM, (float[]){INFINITY, -INFINITY}, 2)),
                     0x7fc00000);
}

static void fold__minus_zero_is_less(void **state)
{
    (void)state;
    assert_true(signbit(fold_f32(SW_COLL_MIN, (float[]){0, -0.0F}, 2)));
    assert_true(signbit(fold_f32(SW_COLL_MIN, (float[]){-0.0F, 0}, 2)));
    assert_false(signbit(fold_f32(SW_COLL_MAX, (float[]){0, -0.0F}, 2)));
    assert_false(signbit(fold_f32(SW_COLL_MAX, (float[]){-0.0F, 0}, 2)));
    assert_true(signbit(fold_f32(SW_COLL_SUM, (float[]){-0.0F, -0.0F}, 2)));
}

static void fold__integers_wrap_and_are_cut(void **state)
{
    (void)state;
    const int8_t leaves[] = {-7, 0, 127, 1};
    int8_t result;
    coll_fold(SW_COLL_I8, SW_COLL_AVG, &result, (const void *[]){&leaves[0], &leaves[1]}, 2, 1);
    assert_int_equal(result, -3);
    coll_fold(SW_COLL_I8, SW_COLL_AVG, &result, (const void *[]){&leaves[2], &leaves[3]}, 2, 1);
    assert_int_equal(result, -64);
}

#if defined(__SSE2__)
static void fold__flush_to_zero_changes_nothing(void **state)
{
    (void)state;
    enum { FLUSH = 0x9fc0 | 0x4000 }; /* and subnormals are zeros, and rounds up */
    const unsigned before = _mm_getcsr();
    _mm_setcsr(FLUSH);
    const uint32_t tiny = f32_bits(fold_f32(SW_COLL_SUM, (float[]){0x1p-149F, 0x1p-149F}, 2));
    const uint32_t least = f32_bits(fold_f32(SW_COLL_MIN, (float[]){0x1p-149F, 0}, 2));
    const uint32_t rounded = f32_bits(fold_f32(SW_COLL_SUM, (float[]){1, 0x1p-30F}, 2));
    const unsigned after = _mm_getcsr();
    _mm_setcsr(before);
    assert_int_equal(tiny, 2);
    assert_int_equal(least, 0);
    assert_int_equal(rounded, f32_bits(1));
    assert_int_equal(after & ~0x3fU, FLUSH);
}
#endif

/* 8 ranks of a leaf, 4 of two and 2 of four. */
static void fold__bits_depend_on_leaves_alone(void **state)
{
    (void)state;
    enum { LEAVES = 8, COUNT = 100 };
    static uint16_t leaves[LEAVES][COUNT], whole[COUNT], in_steps[COUNT];
    static float partials[LEAVES][COUNT];
    const void *sources[LEAVES], *parts[LEAVES];
    for (unsigned i = 0; i < LEAVES; i++) {
        sources[i] = leaves[i], parts[i] = partials[i];
        for (unsigned j = 0; j < COUNT; j++)
            leaves[i][j] = (uint16_t)((i * 0x9e37 + j * 0x79b9) & 0xbfff);
    }
    coll_fold(SW_COLL_BF16, SW_COLL_AVG, whole, sources, LEAVES, COUNT);
    for (unsigned each = 1; each <= LEAVES; each *= 2) {
        for (unsigned rank = 0; rank < LEAVES / each; rank++)
            coll_fold_leaves(SW_COLL_BF16, SW_COLL_AVG, partials[rank], &sources[rank * each], each,
                             COUNT);
        coll_fold_partials(SW_COLL_BF16, SW_COLL_AVG, partials[0], parts, LEAVES / each, COUNT);
        coll_fold_finish(SW_COLL_BF16, SW_COLL_AVG, LEAVES, in_steps, partials[0], COUNT);
        assert_memory_equal(whole, in_steps, sizeof(whole));
    }
}

static void fold__of_nothing_touches_nothing(void **state)
{
    (void)state;
    for (enum sw_coll_type type = 0; type < SW_COLL_TYPES; type++)
        for (enum sw_coll_op op = 0; op < SW_COLL_OPS; op++)
            for (unsigned leaves = 1; leaves <= 3; leaves++)
                coll_fold(type, op, NULL, (const void *[]){NULL, NULL, NULL}, leaves, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fold__neighbours_are_first),
        cmocka_unit_test(fold__splits_at_the_largest_power_of_two),
        cmocka_unit_test(fold__rounds_16_bits_once),
        cmocka_unit_test(fold__nan_is_found_by_min_and_max),
        cmocka_unit_test(fold__minus_zero_is_less),
        cmocka_unit_test(fold__integers_wrap_and_are_cut),
#if defined(__SSE2__)
        cmocka_unit_test(fold__flush_to_zero_changes_nothing),
#endif
        cmocka_unit_test(fold__bits_depend_on_leaves_alone),
        cmocka_unit_test(fold__of_nothing_touches_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
