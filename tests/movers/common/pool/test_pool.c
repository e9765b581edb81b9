/* SPDX-License-Identifier: BSD-2-Clause */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "common/pool/pool.h"

enum { MIB = 1 << 20, CHUNKS = 3, PIECES = 600, ROUNDS = 20000 };

static struct mover_pool pool;

static int set_up(void **state)
{
    (void)state;
    return mover_pool_init(&pool, CHUNKS * MIB);
}

static int tear_down(void **state)
{
    (void)state;
    mover_pool_free(&pool);
    return 0;
}

/* Takes all that there is of that size; returns how many pieces. */
static uint32_t take_all(size_t bytes, uint8_t **pieces)
{
    uint32_t count = 0;
    while ((pieces[count] = mover_pool_take(&pool, bytes)))
        count++;
    return count;
}

static void give_all(uint8_t **pieces, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        mover_pool_give(&pool, pieces[i]);
}

static void piece_bytes__are_powers_of_two(void **state)
{
    (void)state;
    assert_int_equal(mover_pool_piece_bytes(1), 4096);
    assert_int_equal(mover_pool_piece_bytes(4096), 4096);
    assert_int_equal(mover_pool_piece_bytes(4097), 8192);
    assert_int_equal(mover_pool_piece_bytes(MIB), MIB);
}

static void take__pieces_that_came_back_are_joined(void **state)
{
    static uint8_t *pieces[CHUNKS * 256 + 1];
    (void)state;
    assert_int_equal(take_all(MIB, pieces), CHUNKS);
    assert_int_equal(pool.free_bytes, 0);
    give_all(pieces, CHUNKS);
    assert_int_equal(take_all(1, pieces), CHUNKS * 256);
    give_all(pieces, CHUNKS * 256);
    assert_int_equal(pool.free_bytes, CHUNKS * MIB);
    assert_int_equal(take_all(MIB, pieces), CHUNKS);
    give_all(pieces, CHUNKS);
}

struct held {
    uint8_t *data;
    size_t bytes;
    uint8_t mark;
};

static void mark_pages(const struct held *held)
{
    for (size_t at = 0; at < held->bytes; at += 4096)
        held->data[at] = held->mark;
}

static void check_pages(const struct held *held)
{
    for (size_t at = 0; at < held->bytes; at += 4096)
        assert_int_equal(held->data[at], held->mark);
}

/* Each page of a piece has the piece's mark; who took another one's would find that. */
static void take__no_page_is_of_two_pieces(void **state)
{
    static struct held held[PIECES];
    uint32_t count = 0;
    (void)state;
    srand(7);
    for (int round = 0; round < ROUNDS; round++) {
        const size_t bytes = (size_t)rand() % (1u << (12 + rand() % 6)) + 1;
        if (count < PIECES && rand() % 2 && (held[count].data = mover_pool_take(&pool, bytes))) {
            assert_int_equal(
                (size_t)(held[count].data - pool.region.base) % mover_pool_piece_bytes(bytes), 0);
            held[count].bytes = bytes;
            held[count].mark = (uint8_t)rand();
            mark_pages(&held[count++]);
        } else if (count) {
            const uint32_t at = (uint32_t)rand() % count;
            check_pages(&held[at]);
            memset(held[at].data, 0, held[at].bytes);
            mover_pool_give(&pool, held[at].data);
            held[at] = held[--count];
        }
    }
    while (count)
        mover_pool_give(&pool, held[--count].data);
    assert_int_equal(pool.free_bytes, CHUNKS * MIB);
}

static void keep__a_large_piece_comes_to_be_beside_small_ones(void **state)
{
    static uint8_t *small[CHUNKS * 256 + 1];
    (void)state;
    const uint32_t count = take_all(1, small);
    mover_pool_keep(&pool);
    assert_null(mover_pool_take_kept(&pool, MIB));
    give_all(small, count); /* all of them, the kept chunk's too */
    uint8_t *large = NULL;
    for (int i = 0; i < CHUNKS - 1; i++)
        assert_non_null(mover_pool_take(&pool, MIB));
    assert_null(mover_pool_take(&pool, 1)); /* what is left is kept */
    large = mover_pool_take_kept(&pool, MIB);
    assert_non_null(large);
    mover_pool_give(&pool, large);
    mover_pool_keep_no_more(&pool);
    mover_pool_keep_no_more(&pool); /* of nothing */
    assert_ptr_equal(mover_pool_take(&pool, MIB), large);
}

static void region__whose_pages_are_pinned_lets_nobody_in(void **state)
{
    struct mover_region region = {.base = NULL};
    (void)state;
    assert_true(mover_region_enter(&region));
    mover_region_leave(&region);
    mover_region_pin(&region);
    assert_false(mover_region_enter(&region));
    assert_int_equal(region.givers, 0);
    mover_region_pin(&region); /* once more waits for nobody */
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(piece_bytes__are_powers_of_two),
        CASE(take__pieces_that_came_back_are_joined),
        CASE(take__no_page_is_of_two_pieces),
        CASE(keep__a_large_piece_comes_to_be_beside_small_ones),
        CASE(region__whose_pages_are_pinned_lets_nobody_in),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
