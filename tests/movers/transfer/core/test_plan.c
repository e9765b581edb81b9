/* SPDX-License-Identifier: BSD-2-Clause */
/* Blocks joined and cut: what the requests cover is what the blocks were, in their order. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>

#include "transfer/core/plan.h"

enum { ROOM = 4096, MIB = XFC_REQUEST_BYTES_MAX };

static struct xfc_plan plan;

static int set_up(void **state)
{
    (void)state;
    return xfc_plan_make(&plan, ROOM, 4, true) ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    xfc_plan_free(&plan);
    return 0;
}

static void add(uint64_t local, uint64_t remote, uint64_t bytes)
{
    const struct xfc_pair pair = {
        .local = local, .remote = remote, .bytes = bytes, .local_key = 1, .remote_key = 2};
    xfc_plan_add(&plan, &pair);
}

static void add__adjacent_on_both_sides_is_one_piece(void **state)
{
    (void)state;
    add(1000, 5000, 100);
    add(1100, 5100, 50);
    assert_int_equal(plan.requests_count, 1);
    assert_int_equal(plan.pieces_count, 1);
    assert_int_equal(plan.requests[0].bytes, 150);
    assert_int_equal(plan.pieces[0].length, 150);
    assert_int_equal(plan.requests[0].blocks_done, 2);
}

static void add__adjacent_remotely_is_gathered(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < 6; i++)
        add(1000 * (6 - i), 5000 + 100 * i, 100);
    assert_int_equal(plan.requests_count, 2); /* four pieces each at most */
    assert_int_equal(plan.requests[0].pieces, 4);
    assert_int_equal(plan.requests[1].pieces, 2);
    assert_int_equal(plan.requests[1].remote, 5400);
    assert_int_equal(plan.requests[1].first_piece, 4);
    assert_int_equal(plan.requests[0].blocks_done, 4);
}

static void add__adjacent_locally_only_is_not_joined(void **state)
{
    (void)state;
    add(1000, 5000, 100);
    add(1100, 5200, 100);
    assert_int_equal(plan.requests_count, 2);
}

static void add__another_key_is_not_joined(void **state)
{
    (void)state;
    struct xfc_pair pair = {.local = 0, .remote = 0, .bytes = 8, .local_key = 1, .remote_key = 2};
    xfc_plan_add(&plan, &pair);
    pair = (struct xfc_pair){.local = 8, .remote = 8, .bytes = 8, .local_key = 1, .remote_key = 3};
    xfc_plan_add(&plan, &pair);
    assert_int_equal(plan.requests_count, 2);
    pair =
        (struct xfc_pair){.local = 16, .remote = 16, .bytes = 8, .local_key = 9, .remote_key = 3};
    xfc_plan_add(&plan, &pair);
    assert_int_equal(plan.requests_count, 2); /* another local key is another piece */
    assert_int_equal(plan.requests[1].pieces, 2);
}

static void add__large_blocks_are_cut(void **state)
{
    (void)state;
    add(0, 0, 2 * MIB + 5);
    add(4 * MIB, 4 * MIB, MIB);
    assert_int_equal(plan.requests_count, 4);
    assert_int_equal(plan.requests[2].bytes, 5);
    assert_int_equal(plan.requests[1].blocks_done, 0);
    assert_int_equal(plan.requests[1].blocks_begun, 1);
    assert_int_equal(plan.requests[2].blocks_done, 1);
    assert_int_equal(plan.requests[3].blocks_done, 2);
    assert_int_equal(plan.bytes, 3 * MIB + 5);
}

/* Byte by byte against the pairs themselves. */
static void check_against(const struct xfc_pair *pairs, uint32_t count)
{
    uint32_t pair = 0, done_before = 0;
    uint64_t at = 0;
    for (uint32_t i = 0; i < plan.requests_count; i++) {
        const struct xfc_request *request = &plan.requests[i];
        uint64_t remote = request->remote, bytes = 0;
        assert_in_range(request->pieces, 1, 4);
        assert_in_range(request->bytes, 1, MIB);
        for (uint32_t p = 0; p < request->pieces; p++) {
            const struct ibv_sge *piece = &plan.pieces[request->first_piece + p];
            for (uint64_t k = 0; k < piece->length;) {
                const uint64_t left = pairs[pair].bytes - at;
                const uint64_t step = left < piece->length - k ? left : piece->length - k;
                assert_int_equal(piece->addr + k, pairs[pair].local + at);
                assert_int_equal(remote, pairs[pair].remote + at);
                assert_int_equal(request->key, pairs[pair].remote_key);
                assert_int_equal(piece->lkey, pairs[pair].local_key);
                k += step;
                at += step;
                remote += step;
                if (at == pairs[pair].bytes) {
                    pair++;
                    at = 0;
                }
            }
            bytes += piece->length;
        }
        assert_int_equal(bytes, request->bytes);
        assert_int_equal(request->blocks_done, pair);
        assert_int_equal(request->blocks_begun, pair + (at != 0));
        assert_true(request->blocks_done >= done_before);
        done_before = request->blocks_done;
    }
    assert_int_equal(pair, count);
}

static void add__random_pairs_are_covered(void **state)
{
    (void)state;
    enum { PAIRS = 200 };
    static struct xfc_pair pairs[PAIRS];
    srand(7);
    for (int round = 0; round < 200; round++) {
        uint64_t local = 1 << 20, remote = 1 << 30;
        xfc_plan_clear(&plan);
        for (int i = 0; i < PAIRS; i++) {
            const uint64_t bytes =
                rand() % 20 ? 1 + (uint64_t)rand() % 5000 : 1 + (uint64_t)rand() % (3 * MIB);
            pairs[i] = (struct xfc_pair){.local = local,
                                         .remote = remote,
                                         .bytes = bytes,
                                         .local_key = 1 + (rand() % 9 == 0),
                                         .remote_key = 3 + (rand() % 9 == 0)};
            xfc_plan_add(&plan, &pairs[i]);
            local += bytes + (rand() % 3 ? 0 : 64);
            remote += bytes + (rand() % 3 ? 0 : 64);
        }
        check_against(pairs, PAIRS);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(add__adjacent_on_both_sides_is_one_piece, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(add__adjacent_remotely_is_gathered, set_up, tear_down),
        cmocka_unit_test_setup_teardown(add__adjacent_locally_only_is_not_joined, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(add__another_key_is_not_joined, set_up, tear_down),
        cmocka_unit_test_setup_teardown(add__large_blocks_are_cut, set_up, tear_down),
        cmocka_unit_test_setup_teardown(add__random_pairs_are_covered, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
