/* SPDX-License-Identifier: BSD-2-Clause */
/* The requester's rules for requests with answers of their own: READ, atomics, FLUSH, ATOMIC WRITE.
 */
#include "transport/rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct rig rig;

static void reads__one_psn_for_each_response(void **state)
{
    (void)state;
    rig_start_requester(&rig, false);
    rig_post(&rig, SW_REQUEST_READ, 2 * RIG_MTU + 5, 0);
    rig_post(&rig, SW_REQUEST_SEND, 8, 0);
    rig_sends(&rig, 0x0c, 100);
    assert_true(rig.out.packet.reth.addr == 0x1000);
    assert_int_equal(rig.out.packet.reth.len_bytes, 2 * RIG_MTU + 5);
    assert_int_equal(rig.out.packet.payload_len, 0);
    rig_sends(&rig, 0x04, 103);
    rig_answer(&rig, 0x0d, 100, RIG_ACK, RIG_MTU);
    assert_true(rig.progress.places && rig.progress.place_offset == 0);
    assert_int_equal(rig.progress.place_len, RIG_MTU);
    rig_answer(&rig, 0x0e, 101, 0, RIG_MTU);
    assert_true(rig.progress.places && rig.progress.place_offset == RIG_MTU);
    rig_done(&rig, 0);
    rig_answer(&rig, 0x0f, 102, RIG_ACK, 5);
    assert_true(rig.progress.places && rig.progress.place_offset == 2 * RIG_MTU);
    rig_done(&rig, 1);
    rig_ack(&rig, 103);
    rig_done(&rig, 2);
}

static void reads__of_nothing(void **state)
{
    (void)state;
    rig_start_requester(&rig, false);
    rig_post(&rig, SW_REQUEST_READ, 0, 0);
    rig_sends(&rig, 0x0c, 100);
    assert_int_equal(rig.out.packet.reth.len_bytes, 0);
    rig_answer(&rig, 0x10, 100, RIG_ACK, 0);
    assert_false(rig.progress.places);
    rig_done(&rig, 1);
}

static void reads__a_response_acknowledges_what_is_before_it(void **state)
{
    (void)state;
    rig_start_requester(&rig, false);
    rig_post(&rig, SW_REQUEST_SEND, 8, 0);
    rig_post(&rig, SW_REQUEST_WRITE, 8, 0);
    rig_post(&rig, SW_REQUEST_READ, 8, 0);
    assert_int_equal(rig_drain(&rig), 3);
    rig_answer(&rig, 0x10, 102, RIG_ACK, 8);
    assert_int_equal(rig.progress.place_position, 2);
    rig_done(&rig, 3);
}

static void reads__an_ack_beyond_does_not_complete_them(void **state)
{
    (void)state;
    rig_start_requester(&rig, false);
    rig_post(&rig, SW_REQUEST_READ, 8, 0);
    rig_post(&rig, SW_REQUEST_SEND, 8, 0);
    rig_post(&rig, SW_REQUEST_SEND, 8, 0);
    assert_int_equal(rig_drain(&rig), 3);
    rig_ack(&rig, 102);
    rig_done(&rig, 0); /* the response was lost: an implied NAK */
    rig_tick(&rig);
    rig_sends(&rig, 0x0c, 100);
    rig_sends_nothing(&rig); /* the SENDs have arrived */
    rig_answer(&rig, 0x10, 100, RIG_ACK, 8);
    rig_done(&rig, 3);
}

static void reads__a_gap_is_asked_for_again_from_there(void **state)
{
    (void)state;
    rig_start_requester(&rig, false);
    rig_post(&rig, SW_REQUEST_READ, 8 * RIG_MTU, 0);
    rig_sends(&rig, 0x0c, 100);
    rig_answer(&rig, 0x0d, 100, RIG_ACK, RIG_MTU);
    for (uint32_t psn = 103; psn < 106; psn++) { /* 101 and 102 are lost */
        rig_answer(&rig, 0x0e, psn, 0, RIG_MTU);
        assert_true(rig.progress.places); /* its place is known */
        assert_true(rig.progress.place_offset == (psn - 100) * RIG_MTU);
    }
    rig_sends(&rig, 0x0c, 101);
    assert_true(rig.out.packet.reth.addr == 0x1000 + RIG_MTU);
    assert_int_equal(rig.out.packet.reth.len_bytes, 7 * RIG_MTU); /* a plain peer: to the end */
    rig_sends_nothing(&rig);
}

static void reads__only_the_gap_from_a_sidewire_peer(void **state)
{
    (void)state;
    rig_start_requester(&rig, true);
    rig.r.peer_selective = true;
    rig_post(&rig, SW_REQUEST_READ, 8 * RIG_MTU, 0);
    rig_sends(&rig, 0x0c, 100);
    rig_answer(&rig, 0x0d, 100, RIG_ACK, RIG_MTU);
    for (uint32_t psn = 103; psn < 106; psn++)
        rig_answer(&rig, 0x0e, psn, 0, RIG_MTU);
    rig_sends(&rig, 0x0c, 101);
    assert_int_equal(rig.out.packet.reth.len_bytes, 2 * RIG_MTU);
    rig_answer(&rig, 0x0d, 101, RIG_ACK, RIG_MTU);
    rig_answer(&rig, 0x0f, 102, RIG_ACK, RIG_MTU);
    assert_int_equal(rig.r.flight.una, 106);
    rig_answer(&rig, 0x0e, 106, 0, RIG_MTU);
    rig_answer(&rig, 0x0f, 107, RIG_ACK, RIG_MTU);
    rig_done(&rig, 1);
}

static void reads__a_copy_of_a_response_is_not_placed(void **state)
{
    (void)state;
    rig_start_requester(&rig, false);
    rig_post(&rig, SW_REQUEST_READ, 4 * RIG_MTU, 0);
    rig_sends(&rig, 0x0c, 100);
    rig_answer(&rig, 0x0d, 100, RIG_ACK, RIG_MTU);
    rig_answer(&rig, 0x0d, 100, RIG_ACK, RIG_MTU);
    assert_false(rig.progress.places);
    rig_answer(&rig, 0x0e, 102, 0, RIG_MTU);
    rig_answer(&rig, 0x0e, 102, 0, RIG_MTU);
    assert_false(rig.progress.places);
}

static void reads__a_response_of_the_wrong_length_is_bad(void **state)
{
    (void)state;
    rig_start_requester(&rig, false);
    rig_post(&rig, SW_REQUEST_READ, 2 * RIG_MTU, 0);
    rig_sends(&rig, 0x0c, 100);
    rig_answer(&rig, 0x0d, 100, RIG_ACK, RIG_MTU - 1);
    assert_false(rig.progress.places);
    rig_failed(&rig, SW_FAILURE_BAD_RESPONSE, 0);
}

static void reads__a_response_to_something_else_is_bad(void **state)
{
    (void)state;
    rig_start_requester(&rig, false);
    rig_post(&rig, SW_REQUEST_SEND, 8, 0);
    rig_sends(&rig, 0x04, 100);
    rig_answer(&rig, 0x10, 100, RIG_ACK, 0);
    rig_failed(&rig, SW_FAILURE_BAD_RESPONSE, 0);
    rig_start_requester(&rig, false);
    rig_post(&rig, SW_REQUEST_READ, 8, 0);
    rig_sends(&rig, 0x0c, 100);
    rig_answer(&rig, 0x12, 100, RIG_ACK, 0);
    rig_failed(&rig, SW_FAILURE_BAD_RESPONSE, 0);
}

static void reads__large_ones_go_in_pieces(void **state)
{
    (void)state;
    rig_start_requester(&rig, false); /* max_rd_atomic 2 */
    rig_post(&rig, SW_REQUEST_READ, 1000 * RIG_MTU, 0);
    rig_sends(&rig, 0x0c, 100);
    uint32_t first = rig.out.packet.reth.len_bytes;
    assert_true(first % RIG_MTU == 0 && first <= 128 * RIG_MTU && first >= 16 * RIG_MTU);
    uint32_t left = 1000, psn = 100, pieces = 1;
    for (uint32_t len = first / RIG_MTU; left; len = rig.out.packet.reth.len_bytes / RIG_MTU) {
        for (uint32_t i = 0; i < len; i++, psn++) {
            bool begins = i == 0, ends = i + 1 == len;
            rig_answer(&rig, begins ? 0x0d : ends ? 0x0f : 0x0e, psn, RIG_ACK, RIG_MTU);
            assert_true(rig.progress.place_offset == (uint64_t)(psn - 100) * RIG_MTU);
        }
        left -= len;
        if (left) {
            rig_sends(&rig, 0x0c, psn);
            assert_true(rig.out.packet.reth.addr == 0x1000 + (uint64_t)(psn - 100) * RIG_MTU);
            pieces++;
        }
    }
    rig_done(&rig, 1);
    assert_true(pieces >= 8 && pieces < 64);
}

static void reads__initiator_depth_throttles(void **state)
{
    (void)state;
    rig_start_requester(&rig, false);
    for (int i = 0; i < 4; i++)
        rig_post(&rig, SW_REQUEST_READ, 8, 0);
    assert_int_equal(rig_drain(&rig), 2);
    rig_answer(&rig, 0x10, 100, RIG_ACK, 8);
    rig_sends(&rig, 0x0c, 102);
    rig_sends_nothing(&rig);
    rig_answer(&rig, 0x10, 101, RIG_ACK, 8);
    rig_sends(&rig, 0x0c, 103);
}

static void reads__fences_wait_for_them(void **state)
{
    (void)state;
    static const enum sw_request_kind kinds[] = {SW_REQUEST_READ, SW_REQUEST_FETCH_ADD,
                                                 SW_REQUEST_FLUSH};
    static const uint8_t answers[] = {0x10, 0x12, 0x10};
    for (size_t i = 0; i < 3; i++) {
        rig_start_requester(&rig, false);
        rig_post(&rig, kinds[i], 8, 0);
        rig_post(&rig, SW_REQUEST_SEND, 8, 0);
        rig_post(&rig, SW_REQUEST_SEND, 8, SW_REQUEST_FENCE);
        assert_int_equal(rig_drain(&rig), 2); /* only the fenced one waits */
        rig_answer(&rig, answers[i], 100, RIG_ACK, i == 0 ? 8 : 0);
        rig_sends(&rig, 0x04, 102);
    }
}

static void reads__atomics(void **state)
{
    (void)state;
    rig_start_requester(&rig, false);
    rig_post(&rig, SW_REQUEST_CMP_SWAP, 8, 0);
    rig_post(&rig, SW_REQUEST_FETCH_ADD, 8, 0);
    rig_sends(&rig, 0x13, 100);
    assert_true(rig.out.packet.atomic.compare == 3 && rig.out.packet.atomic.swap_add == 4);
    assert_true(rig.out.packet.atomic.addr == 0x1000 && rig.out.packet.atomic.rkey == 7);
    rig_sends(&rig, 0x14, 101);
    assert_true(rig.out.packet.atomic.swap_add == 3);
    rig_answer(&rig, 0x12, 100, RIG_ACK, 0);
    assert_true(rig.progress.places && rig.progress.value == 0x55);
    assert_null(rig.progress.place_bytes);
    assert_int_equal(rig.progress.place_len, 8);
    rig_done(&rig, 1);
    rig_answer(&rig, 0x12, 101, RIG_ACK, 0);
    assert_int_equal(rig.progress.place_position, 1);
    rig_done(&rig, 2);
}

static void reads__a_lost_atomic_is_sent_again_with_its_psn(void **state)
{
    (void)state;
    rig_start_requester(&rig, false);
    rig_post(&rig, SW_REQUEST_FETCH_ADD, 8, 0);
    rig_sends(&rig, 0x14, 100);
    rig_tick(&rig);
    rig_sends(&rig, 0x14, 100);
    rig_answer(&rig, 0x12, 100, RIG_ACK, 0);
    rig_done(&rig, 1);
}

static void reads__flush_and_atomic_write(void **state)
{
    (void)state;
    rig_start_requester(&rig, false);
    rig_post(&rig, SW_REQUEST_FLUSH, 500, 0);
    rig_post(&rig, SW_REQUEST_ATOMIC_WRITE, 8, 0);
    rig_sends(&rig, 0x1c, 100);
    assert_int_equal(rig.out.packet.flush_type, SW_FLUSH_PERSISTENT);
    assert_int_equal(rig.out.packet.reth.len_bytes, 500);
    assert_int_equal(rig.out.packet.payload_len, 0);
    rig_sends(&rig, 0x1d, 101);
    assert_int_equal(rig.out.packet.payload_len, 8);
    assert_int_equal(rig.out.source, SW_PAYLOAD_BYTES);
    uint64_t value;
    memcpy(&value, rig.out.bytes, sizeof(value));
    assert_true(value == 3);
    rig_answer(&rig, 0x10, 100, RIG_ACK, 0);
    rig_done(&rig, 1);
    rig_answer(&rig, 0x10, 101, RIG_ACK, 0);
    rig_done(&rig, 2);
}

static void reads__a_refusal_waits_for_the_answers_before_it(void **state)
{
    (void)state;
    rig_start_requester(&rig, false);
    rig_post(&rig, SW_REQUEST_READ, 8, 0);
    rig_post(&rig, SW_REQUEST_WRITE, 8, 0);
    assert_int_equal(rig_drain(&rig), 2);
    rig_answer(&rig, 0x11, 101, RIG_NAK_ACCESS, 0); /* it has overtaken the response */
    rig_done(&rig, 0);
    rig_answer(&rig, 0x10, 100, RIG_ACK, 8);
    assert_int_equal(rig.progress.done, 1);
    rig_failed(&rig, SW_FAILURE_NAK, RIG_NAK_ACCESS);
}

/* It was asked for again too early, and the memory was gone by then. */
static void reads__a_refusal_of_what_has_come_is_none(void **state)
{
    (void)state;
    rig_start_requester(&rig, false);
    rig_post(&rig, SW_REQUEST_WRITE, 8, 0);
    rig_post(&rig, SW_REQUEST_READ, 8, 0);
    rig_post(&rig, SW_REQUEST_READ, 8, 0);
    rig_post(&rig, SW_REQUEST_WRITE, 8, 0);
    assert_int_equal(rig_drain(&rig), 4);
    rig_answer(&rig, 0x10, 102, RIG_ACK, 8); /* it has overtaken the other one */
    rig_done(&rig, 1);
    rig_answer(&rig, 0x11, 102, RIG_NAK_ACCESS, 0);
    rig_done(&rig, 1);
    rig_answer(&rig, 0x10, 101, RIG_ACK, 8);
    rig_done(&rig, 3);
    rig_answer(&rig, 0x11, 101, RIG_NAK_ACCESS, 0);
    rig_ack(&rig, 103);
    rig_done(&rig, 4);
}

static void reads__a_refusal_of_what_was_asked_for_again(void **state)
{
    (void)state;
    rig_start_requester(&rig, false);
    rig_post(&rig, SW_REQUEST_READ, 2 * RIG_MTU, 0);
    rig_sends(&rig, 0x0c, 100);
    rig_answer(&rig, 0x0d, 100, RIG_ACK, RIG_MTU);
    rig_tick(&rig);
    rig_sends(&rig, 0x0c, 101);
    rig_answer(&rig, 0x11, 101, RIG_NAK_ACCESS, 0);
    rig_failed(&rig, SW_FAILURE_NAK, RIG_NAK_ACCESS);
}

static void reads__one_that_waits_behind_a_gap_is_not_lost(void **state)
{
    (void)state;
    rig_start_requester(&rig, true);
    rig.r.peer_selective = true;
    rig_post(&rig, SW_REQUEST_SEND, 8, 0);
    rig_post(&rig, SW_REQUEST_READ, 3 * RIG_MTU, 0);
    assert_int_equal(rig_drain(&rig), 2);
    rig.now_ns += 100000;
    rig_hint(&rig, 100, 0x01); /* the READ request is there, the SEND is not */
    rig_done(&rig, 0);
    rig_tick(&rig);
    rig_sends(&rig, 0x04, 100);
    rig_sends_nothing(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads__one_psn_for_each_response),
        cmocka_unit_test(reads__of_nothing),
        cmocka_unit_test(reads__a_response_acknowledges_what_is_before_it),
        cmocka_unit_test(reads__an_ack_beyond_does_not_complete_them),
        cmocka_unit_test(reads__a_gap_is_asked_for_again_from_there),
        cmocka_unit_test(reads__only_the_gap_from_a_sidewire_peer),
        cmocka_unit_test(reads__a_copy_of_a_response_is_not_placed),
        cmocka_unit_test(reads__a_response_of_the_wrong_length_is_bad),
        cmocka_unit_test(reads__a_response_to_something_else_is_bad),
        cmocka_unit_test(reads__large_ones_go_in_pieces),
        cmocka_unit_test(reads__initiator_depth_throttles),
        cmocka_unit_test(reads__fences_wait_for_them),
        cmocka_unit_test(reads__atomics),
        cmocka_unit_test(reads__a_lost_atomic_is_sent_again_with_its_psn),
        cmocka_unit_test(reads__flush_and_atomic_write),
        cmocka_unit_test(reads__a_refusal_waits_for_the_answers_before_it),
        cmocka_unit_test(reads__a_refusal_of_what_has_come_is_none),
        cmocka_unit_test(reads__a_refusal_of_what_was_asked_for_again),
        cmocka_unit_test(reads__one_that_waits_behind_a_gap_is_not_lost),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
