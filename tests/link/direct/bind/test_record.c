/* SPDX-License-Identifier: BSD-2-Clause */
#include <stdlib.h>

#include "link/direct/bind/connection.h"
#include "link/direct/bind/record.h"
#include "link/direct/process/block.h"
#include "link_rig.h"

/* One side's view, with two blocks that nobody else uses. */
struct side {
    struct sw_direct_qp d;
    struct sw_block *tx, *rx;
};

static struct side *new_side(uint32_t position)
{
    struct side *side = calloc(1, sizeof(*side));
    assert_non_null(side);
    side->tx = aligned_alloc(4096, SW_BLOCK_BYTES);
    side->rx = aligned_alloc(4096, SW_BLOCK_BYTES);
    assert_non_null(side->tx);
    assert_non_null(side->rx);
    memset(side->tx, 0, SW_BLOCK_BYTES);
    memset(side->rx, 0, SW_BLOCK_BYTES);
    side->d.tx = side->tx;
    side->d.rx = side->rx;
    side->d.send.request_at = position;
    side->d.send.request_limit = position + SW_REQUEST_SLOTS - 1;
    atomic_store(&side->rx->requests_consumed, position);
    return side;
}

static void free_side(struct side *side)
{
    free(side->tx);
    free(side->rx);
    free(side);
}

static void sw_record_reserve__fills_the_ring_but_one(void **state)
{
    (void)state;
    static const uint32_t starts[] = {
        0, 5, UINT32_MAX - 600, UINT32_MAX - 511, UINT32_MAX - 3, UINT32_MAX};
    for (size_t i = 0; i < sizeof(starts) / sizeof(starts[0]); i++) {
        struct side *side = new_side(starts[i]);
        for (uint32_t n = 0; n < SW_REQUEST_SLOTS - 1; n++) {
            struct sw_record *record = sw_record_reserve(&side->d, 1, false);
            assert_ptr_equal(record, &side->tx->requests[(starts[i] + n) % SW_REQUEST_SLOTS]);
            sw_record_publish(&side->d, record, 1, false);
            assert_int_equal(atomic_load(&record->seq), starts[i] + n + 1);
        }
        assert_null(sw_record_reserve(&side->d, 1, false));
        /* One is kept for bad news; there is not a second. */
        assert_non_null(sw_record_reserve(&side->d, 1, true));
        sw_record_fatal(&side->d, SW_NAK_ACCESS);
        assert_null(sw_record_reserve(&side->d, 1, true));
        uint32_t at = side->d.send.request_at;
        sw_record_fatal(&side->d, SW_NAK_ACCESS); /* no room: nothing is overwritten */
        assert_int_equal(side->d.send.request_at, at);
        free_side(side);
    }
}

static void sw_record_reserve__room_comes_back_as_the_peer_reads(void **state)
{
    (void)state;
    struct side *side = new_side(UINT32_MAX - 100);
    while (sw_record_reserve(&side->d, 1, false))
        sw_record_publish(&side->d, sw_record_reserve(&side->d, 1, false), 1, false);
    atomic_fetch_add(&side->rx->requests_consumed, 3); /* past the wrap */
    assert_null(sw_record_reserve(&side->d, 4, false));
    assert_non_null(sw_record_reserve(&side->d, 3, false));
    sw_record_publish(&side->d, sw_record_reserve(&side->d, 3, false), 3, false);
    assert_null(sw_record_reserve(&side->d, 1, false));
    atomic_fetch_add(&side->rx->requests_consumed, SW_REQUEST_SLOTS - 1);
    assert_non_null(sw_record_reserve(&side->d, SW_RECORD_SLOTS_MAX, false));
    free_side(side);
}

static void sw_record_reserve__several_records_at_the_end(void **state)
{
    (void)state;
    struct side *side = new_side(0);
    for (uint32_t n = 0; n < SW_REQUEST_SLOTS - 3; n++)
        sw_record_publish(&side->d, sw_record_reserve(&side->d, 1, false), 1, false);
    assert_null(sw_record_reserve(&side->d, 3, false)); /* two are left, and the reserve */
    assert_non_null(sw_record_reserve(&side->d, 3, true));
    assert_non_null(sw_record_reserve(&side->d, 2, false));
    free_side(side);
}

/* Records stay inside the ring, whatever a hostile peer says it has read. */
static void sw_record_reserve__absurd_positions(void **state)
{
    (void)state;
    static const uint32_t lies[] = {0, 1, 511, 512, 513, UINT32_MAX, 1u << 31, (1u << 31) - 1};
    struct side *side = new_side(1000);
    for (size_t i = 0; i < sizeof(lies) / sizeof(lies[0]); i++) {
        atomic_store(&side->rx->requests_consumed, lies[i]);
        side->d.send.request_limit = side->d.send.request_at;
        for (uint32_t n = 0; n < 2 * SW_REQUEST_SLOTS; n++) {
            struct sw_record *record = sw_record_reserve(&side->d, 1, false);
            if (!record)
                break;
            assert_true(record >= side->tx->requests &&
                        record < side->tx->requests + SW_REQUEST_SLOTS);
            sw_record_publish(&side->d, record, 1, false);
        }
    }
    free_side(side);
}

static void sw_record_publish__asks_for_notice(void **state)
{
    (void)state;
    struct side *side = new_side(0);
    struct sw_record *record = sw_record_reserve(&side->d, 1, false);
    sw_record_publish(&side->d, record, 1, false);
    assert_false(side->d.send.notify);
    record = sw_record_reserve(&side->d, 1, false);
    sw_record_publish(&side->d, record, 1, true);
    assert_true(side->d.send.notify);
    assert_false(side->d.send.notify_solicited);
    record = sw_record_reserve(&side->d, 1, false);
    record->flags = SW_REC_SOLICITED;
    sw_record_publish(&side->d, record, 1, true);
    assert_true(side->d.send.notify_solicited);
    side->d.send.notify_solicited = false;
    record = sw_record_reserve(&side->d, 1, false);
    record->verdict = SW_NAK_INVALID; /* an error counts as solicited: IBTA Vol1 11.4.2.2 */
    sw_record_publish(&side->d, record, 1, true);
    assert_true(side->d.send.notify_solicited);
    free_side(side);
}

static void sw_record_fatal__says_why(void **state)
{
    (void)state;
    struct side *side = new_side(0);
    sw_record_fatal(&side->d, SW_NAK_INVALID);
    assert_int_equal(atomic_load(&side->tx->requests[0].seq), 1);
    assert_int_equal(side->tx->requests[0].kind, SW_REC_FATAL);
    assert_int_equal(side->tx->requests[0].verdict, SW_NAK_INVALID);
    assert_int_equal(side->tx->requests[0].slots, 1);
    free_side(side);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sw_record_reserve__fills_the_ring_but_one),
        cmocka_unit_test(sw_record_reserve__room_comes_back_as_the_peer_reads),
        cmocka_unit_test(sw_record_reserve__several_records_at_the_end),
        cmocka_unit_test(sw_record_reserve__absurd_positions),
        cmocka_unit_test(sw_record_publish__asks_for_notice),
        cmocka_unit_test(sw_record_fatal__says_why),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
