/* SPDX-License-Identifier: BSD-2-Clause */
/* What `sidewire coll perf` awaits, and the library's fold: two that share no code agree in each
 * bit. And a wrong one is found. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "collectives/command/pattern.h"
#include "collectives/core/fold.h"

enum { SIZES_MAX = 17 };

static struct co_tile ranks[SIZES_MAX], awaited;
static uint8_t result[sizeof(ranks[0].bytes)];

static void expect_same(enum sw_coll_type type, enum sw_coll_op op, uint32_t size)
{
    const void *sources[SIZES_MAX];
    for (uint32_t rank = 0; rank < size; rank++)
        sources[rank] = ranks[rank].bytes;
    coll_fold(type, op, result, sources, size, CO_TILE_ELEMENTS);
    co_tile_of_all(&awaited, type, op, size);
    const uint64_t differs = co_tile_differs(&awaited, 0, CO_TILE_ELEMENTS, result);
    if (differs)
        fail_msg("type %u, operator %u, %u ranks: %u differ", type, op, size, (unsigned)differs);
}

static void results__are_those_of_the_fold(void **state)
{
    static const uint32_t sizes[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 16, SIZES_MAX};
    (void)state;
    for (int type = 0; type < SW_COLL_TYPES; type++)
        for (int op = 0; op < SW_COLL_OPS; op++) {
            for (uint32_t rank = 0; rank < SIZES_MAX; rank++)
                co_tile_of_rank(&ranks[rank], (enum sw_coll_type)type, (enum sw_coll_op)op, rank);
            for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
                expect_same((enum sw_coll_type)type, (enum sw_coll_op)op, sizes[i]);
        }
}

/* Many sums of five values have other bits when the values come in another order. */
static void sums__in_another_order_have_other_bits(void **state)
{
    const void *sources[5], *rotated[5];
    (void)state;
    for (int type = SW_COLL_F16; type <= SW_COLL_F64; type++) {
        for (uint32_t rank = 0; rank < 5; rank++) {
            co_tile_of_rank(&ranks[rank], (enum sw_coll_type)type, SW_COLL_SUM, rank);
            sources[rank] = rotated[(rank + 1) % 5] = ranks[rank].bytes;
        }
        co_tile_of_all(&awaited, (enum sw_coll_type)type, SW_COLL_SUM, 5);
        coll_fold((enum sw_coll_type)type, SW_COLL_SUM, result, rotated, 5, CO_TILE_ELEMENTS);
        assert_true(co_tile_differs(&awaited, 0, CO_TILE_ELEMENTS, result) > 100);
        coll_fold((enum sw_coll_type)type, SW_COLL_SUM, result, sources, 5, CO_TILE_ELEMENTS);
        assert_int_equal(co_tile_differs(&awaited, 0, CO_TILE_ELEMENTS, result), 0);
    }
}

/* What may have any order has the same bits in each. */
static void sums__of_any_order_are_exact(void **state)
{
    const void *rotated[SIZES_MAX];
    (void)state;
    awaited.is_any_order = true;
    for (int type = 0; type < SW_COLL_TYPES; type++)
        for (int op = 0; op < SW_COLL_OPS; op++) {
            for (uint32_t rank = 0; rank < SIZES_MAX; rank++) {
                ranks[rank].is_any_order = true;
                co_tile_of_rank(&ranks[rank], (enum sw_coll_type)type, (enum sw_coll_op)op, rank);
                ranks[rank].is_any_order = false;
                rotated[(rank * 5 + 3) % SIZES_MAX] = ranks[rank].bytes;
            }
            co_tile_of_all(&awaited, (enum sw_coll_type)type, (enum sw_coll_op)op, SIZES_MAX);
            coll_fold((enum sw_coll_type)type, (enum sw_coll_op)op, result, rotated, SIZES_MAX,
                      CO_TILE_ELEMENTS);
            assert_int_equal(co_tile_differs(&awaited, 0, CO_TILE_ELEMENTS, result), 0);
        }
    awaited.is_any_order = false;
}

static void ranks__bring_different_values(void **state)
{
    (void)state;
    for (int type = 0; type < SW_COLL_TYPES; type++) {
        co_tile_of_rank(&ranks[0], (enum sw_coll_type)type, SW_COLL_SUM, 0);
        co_tile_of_rank(&ranks[1], (enum sw_coll_type)type, SW_COLL_SUM, 1);
        assert_true(co_tile_differs(&ranks[0], 0, CO_TILE_ELEMENTS, ranks[1].bytes) >
                    CO_TILE_ELEMENTS / 2);
    }
}

static void tile__is_an_endless_row(void **state)
{
    enum { COUNT = 3 * CO_TILE_ELEMENTS };
    static uint16_t row[COUNT], part[COUNT];
    (void)state;
    co_tile_of_rank(&ranks[0], SW_COLL_U16, SW_COLL_SUM, 7);
    co_tile_spread(&ranks[0], 0, COUNT, row);
    assert_memory_equal(row, ranks[0].bytes, CO_TILE_ELEMENTS * sizeof(row[0]));
    assert_memory_equal(row + CO_TILE_ELEMENTS, row, CO_TILE_ELEMENTS * sizeof(row[0]));
    co_tile_spread(&ranks[0], 4000, 5000, part);
    assert_memory_equal(part, row + 4000, 5000 * sizeof(row[0]));
    assert_int_equal(co_tile_differs(&ranks[0], 4000, 5000, row + 4000), 0);
    assert_int_equal(co_tile_differs(&ranks[0], CO_TILE_ELEMENTS - 1, 0, row), 0);
}

/* One bit of each of three elements, the first and the last among them. */
static void differences__are_counted(void **state)
{
    enum { COUNT = 2 * CO_TILE_ELEMENTS + 5 };
    static uint32_t row[COUNT];
    (void)state;
    co_tile_of_all(&awaited, SW_COLL_F32, SW_COLL_SUM, 3);
    co_tile_spread(&awaited, 11, COUNT, row);
    row[0] ^= 1, row[CO_TILE_ELEMENTS] ^= 1u << 31, row[COUNT - 1] ^= 1u << 12;
    assert_int_equal(co_tile_differs(&awaited, 11, COUNT, row), 3);
    assert_true(co_tile_differs(&awaited, 12, COUNT, row) > COUNT / 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(results__are_those_of_the_fold),
        cmocka_unit_test(sums__in_another_order_have_other_bits),
        cmocka_unit_test(sums__of_any_order_are_exact),
        cmocka_unit_test(ranks__bring_different_values),
        cmocka_unit_test(tile__is_an_endless_row),
        cmocka_unit_test(differences__are_counted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
