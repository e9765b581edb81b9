/* SPDX-License-Identifier: BSD-2-Clause */
/* The responder's rules: docs/transport.md says which line of the specification each one shows.
 * What it does once it has refused something is in test_responder_dead.c. */
#include "transport/rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void responder__psns_wrap_and_compare_in_a_window(void **state)
{
    (void)state;
    static struct rig rig;
    struct sw_responder_config config = rig_responder_config();
    config.first_psn = 0xffffff;
    rig_start(&rig, NULL, &config);
    rig_send(&rig, 0xffffff);
    rig_acks(&rig, 0xffffff, RIG_ACK);
    rig_send(&rig, 0);
    rig_acks(&rig, 0, RIG_ACK);
    struct sw_packet old = rig_packet(0x04, sw_psn_add(1, -SW_FLIGHT_PACKETS), 8);
    assert_false(rig_admits(&rig, &old));
    assert_int_equal(rig.p.counts.duplicates, 1);
    struct sw_packet ahead = rig_packet(0x04, SW_FLIGHT_PACKETS, 8);
    assert_false(rig_admits(&rig, &ahead));
    assert_int_equal(rig.p.counts.early, 1);
}

static void responder__one_nak_a_gap(void **state)
{
    (void)state;
    static struct rig rig;
    rig_start_responder(&rig, false);
    rig_send(&rig, 100);
    rig_acks(&rig, 100, RIG_ACK);
    for (uint32_t psn = 102; psn < 110; psn++) {
        struct sw_packet early = rig_packet(0x04, psn, 8);
        assert_false(rig_admits(&rig, &early));
        if (psn == 102)
            rig_acks(&rig, 101, RIG_NAK_PSN);
        rig_is_silent(&rig);
    }
    rig_send(&rig, 101);
    rig_acks(&rig, 101, RIG_ACK);
    struct sw_packet early = rig_packet(0x04, 103, 8);
    assert_false(rig_admits(&rig, &early));
    rig_acks(&rig, 102, RIG_NAK_PSN); /* another gap, another NAK */
}

static void responder__a_gap_that_closed_is_no_nak(void **state)
{
    (void)state;
    static struct rig rig;
    rig_start_responder(&rig, false);
    struct sw_packet early = rig_packet(0x04, 101, 8);
    assert_false(rig_admits(&rig, &early));
    rig_send(&rig, 100);
    rig_acks(&rig, 100, RIG_ACK);
    rig_is_silent(&rig);
}

static void responder__nak_codes(void **state)
{
    (void)state;
    static const uint8_t codes[] = {RIG_NAK_INVALID, RIG_NAK_ACCESS, 0x63};
    for (size_t i = 0; i < sizeof(codes); i++) {
        static struct rig rig;
        rig_start_responder(&rig, true);
        struct sw_packet packet = rig_packet(0x0a, 100, 8);
        rig_request(&rig, &packet, codes[i]);
        rig_acks(&rig, 100, codes[i]);
        assert_true(rig.p.dead);
    }
}

static void responder__msn_counts_messages(void **state)
{
    (void)state;
    static struct rig rig;
    rig_start_responder(&rig, true);
    struct sw_packet first = rig_packet(0x00, 100, RIG_MTU), last = rig_packet(0x02, 101, 5);
    rig_request(&rig, &first, RIG_ACK);
    rig_acks(&rig, 100, RIG_ACK);
    assert_int_equal(rig.out.packet.aeth.msn, 0);
    rig_request(&rig, &last, RIG_ACK);
    rig_acks(&rig, 101, RIG_ACK);
    assert_int_equal(rig.out.packet.aeth.msn, 1);
    struct sw_packet read = rig_packet(0x0c, 102, 0);
    read.reth.len_bytes = 4000;
    rig_request(&rig, &read, RIG_ACK);
    rig_responds(&rig, 0x0d, 102);
    assert_int_equal(rig.out.packet.aeth.msn, 2);
}

static void responder__no_credits_are_given(void **state)
{
    (void)state;
    static struct rig rig;
    rig_start_responder(&rig, true);
    rig_send(&rig, 100);
    rig_acks(&rig, 100, 0x1f);
}

static void responder__acks_are_coalesced(void **state)
{
    (void)state;
    static struct rig rig;
    rig_start_responder(&rig, true);
    for (uint32_t psn = 100; psn < 110; psn++)
        rig_send(&rig, psn);
    rig_acks(&rig, 109, RIG_ACK);
    assert_int_equal(rig.out.packet.aeth.msn, 10);
    rig_is_silent(&rig);
}

static void responder__no_ack_that_was_not_asked_for(void **state)
{
    (void)state;
    static struct rig rig;
    rig_start_responder(&rig, true);
    struct sw_packet packet = rig_packet(0x04, 100, 8);
    packet.bth.ack_req = false;
    rig_request(&rig, &packet, RIG_ACK);
    rig_is_silent(&rig);
    rig_send(&rig, 101);
    rig_acks(&rig, 101, RIG_ACK);
}

static void responder__a_duplicate_write_is_only_acknowledged(void **state)
{
    (void)state;
    static struct rig rig;
    rig_start_responder(&rig, true);
    rig_send(&rig, 100);
    rig_send(&rig, 101);
    rig_acks(&rig, 101, RIG_ACK);
    struct sw_packet again = rig_packet(0x04, 100, 8);
    assert_false(rig_admits(&rig, &again));
    rig_acks(&rig, 101, RIG_ACK); /* the latest, not its own */
    again = rig_packet(0x0a, 101, 8);
    assert_false(rig_admits(&rig, &again));
    rig_acks(&rig, 101, RIG_ACK);
}

static void responder__a_duplicate_read_is_executed_again(void **state)
{
    (void)state;
    static struct rig rig;
    rig_start_responder(&rig, true);
    struct sw_packet read = rig_packet(0x0c, 100, 0);
    read.reth.len_bytes = 3 * RIG_MTU + 1;
    rig_request(&rig, &read, RIG_ACK);
    rig_responds(&rig, 0x0d, 100);
    rig_responds(&rig, 0x0e, 101);
    rig_responds(&rig, 0x0e, 102);
    rig_responds(&rig, 0x0f, 103);
    assert_int_equal(rig.out.packet.payload_len, 1);
    rig_send(&rig, 104);
    struct sw_packet part = rig_packet(0x0c, 102, 0);
    part.reth = (struct sw_reth){.addr = 0x1000 + 2 * RIG_MTU, .rkey = 7, .len_bytes = RIG_MTU};
    rig_request(&rig, &part, RIG_ACK);
    assert_true(rig.demand.duplicate);
    assert_true(rig.demand.addr == 0x1000 + 2 * RIG_MTU);
    rig_responds(&rig, 0x10, 102);
    assert_int_equal(rig.out.source, SW_PAYLOAD_MEMORY);
    assert_true(rig.out.addr == 0x1000 + 2 * RIG_MTU);
    rig_acks(&rig, 104, RIG_ACK); /* in the order they were caused */
    assert_int_equal(rig.p.expected, 105);
}

static void responder__a_refused_duplicate_is_told_and_changes_nothing(void **state)
{
    (void)state;
    static struct rig rig;
    rig_start_responder(&rig, true);
    struct sw_packet read = rig_packet(0x0c, 100, 0);
    read.reth.len_bytes = 10;
    rig_request(&rig, &read, RIG_ACK);
    rig_responds(&rig, 0x10, 100);
    rig_request(&rig, &read, RIG_NAK_ACCESS);
    rig_acks(&rig, 100, RIG_NAK_ACCESS); /* the response may have been lost */
    rig_is_silent(&rig);
    assert_false(rig.p.dead);
    rig_send(&rig, 101);
    rig_acks(&rig, 101, RIG_ACK);
}

static void responder__a_duplicate_that_reaches_beyond_is_dropped(void **state)
{
    (void)state;
    static struct rig rig;
    rig_start_responder(&rig, true);
    rig_send(&rig, 100);
    rig_acks(&rig, 100, RIG_ACK);
    struct sw_packet read = rig_packet(0x0c, 100, 0);
    read.reth.len_bytes = 2 * RIG_MTU;
    assert_false(rig_admits(&rig, &read));
    rig_is_silent(&rig);
}

static void responder__a_duplicate_atomic_replays_its_result(void **state)
{
    (void)state;
    static struct rig rig;
    rig_start_responder(&rig, true);
    struct sw_packet swap = rig_packet(0x13, 100, 0), add = rig_packet(0x14, 101, 0);
    rig_request(&rig, &swap, RIG_ACK);
    assert_true(rig.demand.compare_add == 3 && rig.demand.swap == 4);
    rig_responds(&rig, 0x12, 100);
    assert_true(rig.out.packet.original == 0x77);
    rig_request(&rig, &add, RIG_ACK);
    assert_true(rig.demand.compare_add == 4);
    rig_responds(&rig, 0x12, 101);
    assert_false(rig_admits(&rig, &swap));
    rig_responds(&rig, 0x12, 100);
    assert_true(rig.out.packet.original == 0x77);
    assert_int_equal(rig.p.outstanding, 0);
}

static void responder__an_atomic_that_is_forgotten_is_not_replayed(void **state)
{
    (void)state;
    static struct rig rig;
    rig_start_responder(&rig, true);
    const uint32_t beyond = 101 + SW_RESPONDER_RD_ATOMIC_MAX; /* one more than are kept */
    for (uint32_t psn = 100; psn < beyond; psn++) {
        struct sw_packet add = rig_packet(0x14, psn, 0);
        rig_request(&rig, &add, RIG_ACK);
        rig_responds(&rig, 0x12, psn);
    }
    struct sw_packet add = rig_packet(0x14, 100, 0);
    assert_false(rig_admits(&rig, &add));
    rig_is_silent(&rig);
}

static void responder__too_many_outstanding_is_an_invalid_request(void **state)
{
    (void)state;
    static struct rig rig;
    rig_start_responder(&rig, true);
    for (uint32_t psn = 100; psn < 102; psn++) {
        struct sw_packet add = rig_packet(0x14, psn, 0);
        rig_request(&rig, &add, RIG_ACK);
    }
    struct sw_packet third = rig_packet(0x14, 102, 0);
    assert_false(rig_admits(&rig, &third));
    rig_responds(&rig, 0x12, 100);
    rig_responds(&rig, 0x12, 101);
    rig_acks(&rig, 102, RIG_NAK_INVALID);
}

static void expect_invalid(struct rig *rig, const struct sw_packet *packet)
{
    assert_false(rig_admits(rig, packet));
    rig_acks(rig, packet->bth.psn, RIG_NAK_INVALID);
    assert_true(rig->p.dead);
}

static void responder__opcode_sequence_errors(void **state)
{
    (void)state;
    static const uint8_t outside[] = {0x01, 0x02, 0x03, 0x07, 0x08, 0x09, 0x16};
    static const uint8_t inside_send[] = {0x00, 0x04, 0x06, 0x07, 0x08, 0x0a, 0x0c, 0x13, 0x1c};
    static struct rig rig;
    for (size_t i = 0; i < sizeof(outside); i++) {
        rig_start_responder(&rig, true);
        struct sw_packet packet = rig_packet(outside[i], 100, RIG_MTU);
        expect_invalid(&rig, &packet);
    }
    for (size_t i = 0; i < sizeof(inside_send); i++) {
        rig_start_responder(&rig, true);
        struct sw_packet first = rig_packet(0x00, 100, RIG_MTU);
        rig_request(&rig, &first, RIG_ACK);
        struct sw_packet packet = rig_packet(inside_send[i], 101, RIG_MTU);
        expect_invalid(&rig, &packet);
    }
}

static void responder__packets_before_the_last_are_one_mtu(void **state)
{
    (void)state;
    static struct rig rig;
    rig_start_responder(&rig, true);
    struct sw_packet first = rig_packet(0x00, 100, RIG_MTU - 1);
    expect_invalid(&rig, &first);
    rig_start_responder(&rig, true);
    struct sw_packet only = rig_packet(0x04, 100, RIG_MTU + 1);
    expect_invalid(&rig, &only);
    rig_start_responder(&rig, true);
    first = rig_packet(0x00, 100, RIG_MTU);
    rig_request(&rig, &first, RIG_ACK);
    struct sw_packet last = rig_packet(0x02, 101, 0); /* nothing left: it would have been ONLY */
    expect_invalid(&rig, &last);
}

static void responder__the_length_of_the_reth_is_what_comes(void **state)
{
    (void)state;
    static struct rig rig;
    rig_start_responder(&rig, true);
    struct sw_packet only = rig_packet(0x0a, 100, 8);
    only.reth.len_bytes = 9;
    expect_invalid(&rig, &only);
    rig_start_responder(&rig, true);
    struct sw_packet first = rig_packet(0x06, 100, RIG_MTU), last = rig_packet(0x08, 101, 5);
    first.reth.len_bytes = RIG_MTU + 4;
    rig_request(&rig, &first, RIG_ACK);
    expect_invalid(&rig, &last);
    rig_start_responder(&rig, true);
    first.reth.len_bytes = RIG_MTU + 5;
    rig_request(&rig, &first, RIG_ACK);
    rig_request(&rig, &last, RIG_ACK);
    assert_true(rig.demand.addr == 0x1000 + RIG_MTU && rig.demand.total == RIG_MTU + 5);
    struct sw_packet huge = rig_packet(0x0c, 102, 0);
    huge.reth.len_bytes = (1u << 31) + 1;
    rig_acks(&rig, 101, RIG_ACK);
    expect_invalid(&rig, &huge);
}

static void responder__an_atomic_write_is_eight_bytes(void **state)
{
    (void)state;
    static struct rig rig;
    rig_start_responder(&rig, true);
    struct sw_packet packet = rig_packet(0x1d, 100, 8);
    rig_request(&rig, &packet, RIG_ACK);
    rig_responds(&rig, 0x10, 100); /* answered like a READ of nothing: A19.4 */
    assert_int_equal(rig.out.packet.payload_len, 0);
    assert_false(rig_admits(&rig, &packet)); /* a duplicate is answered, not executed */
    rig_responds(&rig, 0x10, 100);
    packet = rig_packet(0x1d, 101, 4);
    expect_invalid(&rig, &packet);
}

static void responder__a_flush_is_answered_and_replayable(void **state)
{
    (void)state;
    static struct rig rig;
    rig_start_responder(&rig, true);
    struct sw_packet packet = rig_packet(0x1c, 100, 0);
    packet.flush_type = SW_FLUSH_PERSISTENT;
    packet.reth.len_bytes = 100;
    rig_request(&rig, &packet, RIG_ACK);
    assert_int_equal(rig.demand.flush_type, SW_FLUSH_PERSISTENT);
    assert_true(rig.demand.total == 100 && !rig.demand.duplicate);
    rig_responds(&rig, 0x10, 100);
    rig_request(&rig, &packet, RIG_ACK);
    assert_true(rig.demand.duplicate);
    rig_responds(&rig, 0x10, 100);
}

static void responder__rnr_keeps_the_expected_psn(void **state)
{
    (void)state;
    static struct rig rig;
    rig_start_responder(&rig, true);
    struct sw_packet packet = rig_packet(0x04, 100, 8), next = rig_packet(0x04, 101, 8);
    rig_request(&rig, &packet, 0x20);
    rig_acks(&rig, 100, 0x20 | 12);
    assert_false(rig_admits(&rig, &next)); /* no NAK for what follows it: 9.7.5.2.8 */
    rig_is_silent(&rig);
    rig_send(&rig, 100);
    rig_acks(&rig, 100, RIG_ACK);
    assert_int_equal(rig.p.msn, 1);
}

static void responder__a_write_with_immediate_may_rnr_at_its_last_packet(void **state)
{
    (void)state;
    static struct rig rig;
    rig_start_responder(&rig, true);
    struct sw_packet first = rig_packet(0x06, 100, RIG_MTU), last = rig_packet(0x09, 101, 5);
    first.reth.len_bytes = RIG_MTU + 5;
    rig_request(&rig, &first, RIG_ACK);
    rig_request(&rig, &last, 0x20);
    rig_acks(&rig, 101, 0x20 | 12);
    rig_request(&rig, &last, RIG_ACK);
    assert_true(rig.demand.has_imm && rig.demand.last);
    assert_true(rig.demand.offset == RIG_MTU && rig.demand.addr == 0x1000 + RIG_MTU);
    rig_acks(&rig, 101, RIG_ACK);
}

static void responder__responses_and_acks_keep_the_order(void **state)
{
    (void)state;
    static struct rig rig;
    rig_start_responder(&rig, true);
    struct sw_packet read = rig_packet(0x0c, 101, 0), add = rig_packet(0x14, 103, 0);
    read.reth.len_bytes = 2 * RIG_MTU;
    rig_send(&rig, 100);
    rig_request(&rig, &read, RIG_ACK);
    rig_request(&rig, &add, RIG_ACK);
    rig_send(&rig, 104);
    rig_responds(&rig, 0x0d, 101); /* acknowledges 100 as well */
    rig_responds(&rig, 0x0f, 102);
    rig_responds(&rig, 0x12, 103);
    rig_acks(&rig, 104, RIG_ACK);
    rig_is_silent(&rig);
}

static void responder__memory_that_vanished_is_a_nak_in_its_place(void **state)
{
    (void)state;
    static struct rig rig;
    rig_start_responder(&rig, true);
    struct sw_packet read = rig_packet(0x0c, 100, 0);
    read.reth.len_bytes = 3 * RIG_MTU;
    rig_request(&rig, &read, RIG_ACK);
    rig_responds(&rig, 0x0d, 100);
    rig_responds(&rig, 0x0e, 101);
    assert_true(sw_responder_unreadable(&rig.p, RIG_NAK_ACCESS, &rig.out));
    assert_int_equal(rig.out.packet.bth.opcode, 0x11);
    assert_int_equal(rig.out.packet.bth.psn, 101);
    assert_int_equal(rig.out.packet.aeth.syndrome, RIG_NAK_ACCESS);
    rig_is_silent(&rig);
    assert_true(rig.p.dead);
    struct sw_packet next = rig_packet(0x04, 103, 8); /* the NAK was lost */
    assert_false(rig_admits(&rig, &next));
    rig_acks(&rig, 101, RIG_NAK_ACCESS);
}

/* A duplicate of what the peer has had long ago may come late, when the memory is gone. */
static void responder__memory_that_vanished_under_a_duplicate_ends_nothing(void **state)
{
    (void)state;
    static struct rig rig;
    rig_start_responder(&rig, true);
    struct sw_packet read = rig_packet(0x0c, 100, 0), rest = rig_packet(0x0c, 102, 0);
    read.reth.len_bytes = 3 * RIG_MTU;
    rest.reth = (struct sw_reth){.addr = 0x1000 + 2 * RIG_MTU, .rkey = 7, .len_bytes = RIG_MTU};
    rig_request(&rig, &read, RIG_ACK);
    for (uint32_t i = 0; i < 3; i++)
        rig_responds(&rig, i == 0 ? 0x0d : i == 1 ? 0x0e : 0x0f, 100 + i);
    rig_request(&rig, &rest, RIG_ACK);
    rig_request(&rig, &read, RIG_ACK);
    rig_responds(&rig, 0x10, 102);
    assert_false(sw_responder_unreadable(&rig.p, RIG_NAK_ACCESS, &rig.out));
    assert_int_equal(rig.out.packet.bth.psn, 102);
    rig_responds(&rig, 0x0d, 100);
    assert_false(sw_responder_unreadable(&rig.p, RIG_NAK_ACCESS, &rig.out));
    assert_int_equal(rig.out.packet.bth.opcode, 0x11);
    assert_int_equal(rig.out.packet.bth.psn, 100);
    assert_int_equal(rig.out.packet.aeth.syndrome, RIG_NAK_ACCESS);
    assert_int_equal(rig.out.packet.payload_len, 0);
    assert_int_equal(rig.out.source, SW_PAYLOAD_NONE);
    rig_is_silent(&rig); /* the rest of it would be no better */
    assert_false(rig.p.dead);
    rig_send(&rig, 103);
    rig_acks(&rig, 103, RIG_ACK);
}

static void responder__ignores_what_is_no_request_of_its_service(void **state)
{
    (void)state;
    static struct rig rig;
    rig_start_responder(&rig, true);
    static const uint8_t foreign[] = {0x11, 0x10, 0x24, 0x64, 0xa4, 0x81};
    for (size_t i = 0; i < sizeof(foreign); i++) {
        struct sw_packet packet = rig_packet(foreign[i], 100, 0);
        assert_false(rig_admits(&rig, &packet));
        rig_is_silent(&rig);
    }
    assert_int_equal(rig.p.expected, 100);
}

static void responder__xrc_says_which_srq(void **state)
{
    (void)state;
    static struct rig rig;
    struct sw_responder_config config = rig_responder_config();
    config.service = SW_SERVICE_XRC;
    rig_start(&rig, NULL, &config);
    struct sw_packet packet = rig_packet(0xa4, 100, 8);
    packet.srq_num = 0x333;
    rig_request(&rig, &packet, RIG_ACK);
    assert_int_equal(rig.demand.srq_num, 0x333);
    rig_responds(&rig, 0xb1, 100);
}

static void responder__cnp_for_marked_packets(void **state)
{
    (void)state;
    static struct rig rig;
    rig_start_responder(&rig, true);
    sw_responder_congested(&rig.p, rig.now_ns);
    rig_responds(&rig, 0x81, 0);
    assert_true(rig.out.packet.bth.becn);
    rig.now_ns += 49999;
    sw_responder_congested(&rig.p, rig.now_ns);
    rig_is_silent(&rig);
    rig.now_ns += 1;
    sw_responder_congested(&rig.p, rig.now_ns);
    rig_responds(&rig, 0x81, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(responder__psns_wrap_and_compare_in_a_window),
        cmocka_unit_test(responder__one_nak_a_gap),
        cmocka_unit_test(responder__a_gap_that_closed_is_no_nak),
        cmocka_unit_test(responder__nak_codes),
        cmocka_unit_test(responder__msn_counts_messages),
        cmocka_unit_test(responder__no_credits_are_given),
        cmocka_unit_test(responder__acks_are_coalesced),
        cmocka_unit_test(responder__no_ack_that_was_not_asked_for),
        cmocka_unit_test(responder__a_duplicate_write_is_only_acknowledged),
        cmocka_unit_test(responder__a_duplicate_read_is_executed_again),
        cmocka_unit_test(responder__a_refused_duplicate_is_told_and_changes_nothing),
        cmocka_unit_test(responder__a_duplicate_that_reaches_beyond_is_dropped),
        cmocka_unit_test(responder__a_duplicate_atomic_replays_its_result),
        cmocka_unit_test(responder__an_atomic_that_is_forgotten_is_not_replayed),
        cmocka_unit_test(responder__too_many_outstanding_is_an_invalid_request),
        cmocka_unit_test(responder__opcode_sequence_errors),
        cmocka_unit_test(responder__packets_before_the_last_are_one_mtu),
        cmocka_unit_test(responder__the_length_of_the_reth_is_what_comes),
        cmocka_unit_test(responder__an_atomic_write_is_eight_bytes),
        cmocka_unit_test(responder__a_flush_is_answered_and_replayable),
        cmocka_unit_test(responder__rnr_keeps_the_expected_psn),
        cmocka_unit_test(responder__a_write_with_immediate_may_rnr_at_its_last_packet),
        cmocka_unit_test(responder__responses_and_acks_keep_the_order),
        cmocka_unit_test(responder__memory_that_vanished_is_a_nak_in_its_place),
        cmocka_unit_test(responder__memory_that_vanished_under_a_duplicate_ends_nothing),
        cmocka_unit_test(responder__ignores_what_is_no_request_of_its_service),
        cmocka_unit_test(responder__xrc_says_which_srq),
        cmocka_unit_test(responder__cnp_for_marked_packets),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
