/* SPDX-License-Identifier: BSD-2-Clause */
/* The requester's rules: docs/transport.md says which line of the specification each one shows.
 * Rules of READs and atomics are in test_requester_reads.c, those of time in
 * test_requester_timers.c. */
#include "transport/rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MS 1000000ull

static struct rig rig;

static void requester__cuts_messages_by_the_mtu(void **state)
{
    (void)state;
    rig_start_requester(&rig, false);
    rig_post(&rig, SW_REQUEST_WRITE, 2 * RIG_MTU + 5, SW_REQUEST_IMM | SW_REQUEST_SOLICITED);
    rig_sends(&rig, 0x06, 100);
    assert_true(rig.out.packet.reth.addr == 0x1000);
    assert_int_equal(rig.out.packet.reth.rkey, 7);
    assert_int_equal(rig.out.packet.reth.len_bytes, 2 * RIG_MTU + 5);
    assert_false(rig.out.packet.bth.solicited);
    assert_false(rig.out.packet.bth.ack_req);
    rig_sends(&rig, 0x07, 101);
    assert_true(rig.out.offset == RIG_MTU && rig.out.packet.payload_len == RIG_MTU);
    rig_sends(&rig, 0x09, 102);
    assert_true(rig.out.offset == 2 * RIG_MTU && rig.out.packet.payload_len == 5);
    assert_int_equal(rig.out.packet.imm_be, 0x12345678);
    assert_true(rig.out.packet.bth.solicited && rig.out.packet.bth.ack_req);
    assert_int_equal(rig.out.packet.bth.dest_qpn, 18);
    assert_int_equal(rig.out.packet.bth.pkey, 0xffff);
    rig_sends_nothing(&rig);
}

static void requester__opcodes_of_a_send(void **state)
{
    (void)state;
    rig_start_requester(&rig, false);
    rig_post(&rig, SW_REQUEST_SEND, 8, 0);
    rig_post(&rig, SW_REQUEST_SEND, 8, SW_REQUEST_IMM);
    rig_post(&rig, SW_REQUEST_SEND, 8, SW_REQUEST_INV);
    rig_post(&rig, SW_REQUEST_SEND, 0, 0);
    rig_post(&rig, SW_REQUEST_SEND, RIG_MTU, 0);
    rig_post(&rig, SW_REQUEST_SEND, RIG_MTU + 1, SW_REQUEST_INV);
    rig_sends(&rig, 0x04, 100);
    assert_int_equal(rig.out.packet.imm_be, 0);
    rig_sends(&rig, 0x05, 101);
    rig_sends(&rig, 0x17, 102);
    assert_int_equal(rig.out.packet.inv_rkey, 0x12345678);
    rig_sends(&rig, 0x04, 103);
    assert_int_equal(rig.out.source, SW_PAYLOAD_NONE);
    rig_sends(&rig, 0x04, 104);
    assert_int_equal(rig.out.packet.payload_len, RIG_MTU);
    rig_sends(&rig, 0x00, 105);
    rig_sends(&rig, 0x16, 106);
}

/* WRITEs of one length, so that they can leave together. */
static void requester__long_writes_to_our_own_are_split(void **state)
{
    (void)state;
    rig_start_with_peer(&rig);
    rig_post(&rig, SW_REQUEST_WRITE, 2 * RIG_MTU + 8, 0);
    rig_post(&rig, SW_REQUEST_WRITE, 2 * RIG_MTU, SW_REQUEST_IMM);
    rig_post(&rig, SW_REQUEST_SEND, 2 * RIG_MTU, 0);
    for (uint32_t i = 0; i < 3; i++) {
        const struct sw_packet *packet = &rig.out.packet;
        rig_sends(&rig, 0x0a, 101 + i);
        assert_int_equal(packet->reth.addr, 0x1000 + i * RIG_MTU);
        assert_int_equal(packet->reth.rkey, 7);
        assert_int_equal(packet->reth.len_bytes, i < 2 ? RIG_MTU : 8);
        assert_int_equal(packet->payload_len, packet->reth.len_bytes);
        assert_int_equal(rig.out.offset, i * RIG_MTU);
        assert_int_equal(packet->bth.ack_req, i == 2);
    }
    rig_sends(&rig, 0x06, 104); /* its completion there tells the whole length */
    assert_int_equal(rig.out.packet.reth.len_bytes, 2 * RIG_MTU);
    rig_sends(&rig, 0x09, 105);
    rig_sends(&rig, 0x00, 106);
    rig_sends(&rig, 0x02, 107);
    rig_ack(&rig, 102);
    rig_done(&rig, 1); /* the SEND before them */
    rig_ack(&rig, 103);
    rig_done(&rig, 2);
}

static void requester__a_write_that_has_begun_is_not_split(void **state)
{
    (void)state;
    rig_start_requester(&rig, true);
    rig_post(&rig, SW_REQUEST_WRITE, 4 * RIG_MTU, 0);
    rig_sends(&rig, 0x06, 100);
    rig_sends(&rig, 0x07, 101);
    struct sw_packet ack = rig_packet(0x11, 100, 0); /* with the mark */
    ack.aeth.syndrome = RIG_ACK;
    sw_requester_receive(&rig.r, &ack, rig.now_ns, &rig.progress);
    assert_true(rig.r.peer_selective);
    rig_sends(&rig, 0x07, 102);
    rig_sends(&rig, 0x08, 103);
    rig_hint(&rig, 101, 0x03);
    rig_tick(&rig);
    rig_sends(&rig, 0x07, 101);
}

static void requester__a_run_is_of_packets_that_are_alike(void **state)
{
    (void)state;
    rig_start_with_peer(&rig);
    rig.r.congestion.window = 64 * 1024;
    rig_post(&rig, SW_REQUEST_SEND, 6 * RIG_MTU, 0);
    rig_post(&rig, SW_REQUEST_WRITE, 5 * RIG_MTU, 0);
    rig_post(&rig, SW_REQUEST_WRITE, 2 * RIG_MTU + 8, 0);
    static const struct {
        uint8_t opcode;
        uint32_t psn, count;
        bool asks;
    } runs[] = {{0x00, 101, 1, false}, {0x01, 102, 3, false}, {0x01, 105, 1, false},
                {0x02, 106, 1, true},  {0x0a, 107, 3, false}, {0x0a, 110, 2, true},
                {0x0a, 112, 2, false}, {0x0a, 114, 1, true}};
    for (size_t i = 0; i < sizeof(runs) / sizeof(runs[0]); i++) {
        assert_true(sw_requester_next_run(&rig.r, rig.now_ns, 3, &rig.out));
        assert_int_equal(rig.out.packet.bth.opcode, runs[i].opcode);
        assert_int_equal(rig.out.packet.bth.psn, runs[i].psn);
        assert_int_equal(rig.out.count, runs[i].count);
        assert_int_equal(rig.out.packet.bth.ack_req, runs[i].asks);
    }
    assert_false(sw_requester_next_run(&rig.r, rig.now_ns, 3, &rig.out));
}

static void requester__a_run_stays_within_the_window(void **state)
{
    (void)state;
    rig_start_with_peer(&rig);
    rig.r.congestion.window = 10 * 1024;
    rig_post(&rig, SW_REQUEST_WRITE, 40 * RIG_MTU, 0);
    uint32_t sent = 0;
    while (sw_requester_next_run(&rig.r, rig.now_ns, 100, &rig.out)) {
        assert_in_range(rig.out.count, 1, 5); /* half of it: then it asks for an answer */
        assert_true(rig.out.packet.bth.ack_req);
        sent += rig.out.count;
    }
    assert_int_equal(sent, 10);
    rig.r.congestion.paced = true; /* each has its own time */
    rig_ack(&rig, 110);
    rig.now_ns += MS;
    assert_true(sw_requester_next_run(&rig.r, rig.now_ns, 100, &rig.out));
    assert_int_equal(rig.out.count, 1);
}

static void requester__a_full_ring_refuses(void **state)
{
    (void)state;
    rig_start_requester(&rig, false);
    for (int i = 0; i < RIG_ENTRIES; i++)
        rig_post(&rig, SW_REQUEST_SEND, 8, 0);
    const struct sw_request request = {.kind = SW_REQUEST_SEND};
    assert_false(sw_requester_post(&rig.r, &request));
    rig_sends(&rig, 0x04, 100);
    rig_ack(&rig, 100);
    assert_true(sw_requester_post(&rig.r, &request));
}

static void requester__psns_wrap(void **state)
{
    (void)state;
    struct sw_requester_config config = rig_requester_config();
    config.first_psn = 0xffffff;
    rig_start(&rig, &config, NULL);
    rig_post(&rig, SW_REQUEST_SEND, 2 * RIG_MTU, 0);
    rig_sends(&rig, 0x00, 0xffffff);
    rig_sends(&rig, 0x02, 0);
    rig_ack(&rig, 0);
    rig_done(&rig, 1);
}

static void requester__asks_for_answers_before_the_window_is_full(void **state)
{
    (void)state;
    rig_start_requester(&rig, false);
    rig_post(&rig, SW_REQUEST_WRITE, 100 * RIG_MTU, 0);
    uint32_t asked = 0, sent = 0, last = 0;
    while (sw_requester_next(&rig.r, rig.now_ns, &rig.out)) {
        sent++;
        if (rig.out.packet.bth.ack_req) {
            asked++;
            last = rig.out.packet.bth.psn;
        }
    }
    assert_int_equal(sent, 32); /* the first window */
    assert_true(asked >= 2);
    assert_int_equal(last, 100 + 31); /* else it might never open */
    rig_ack(&rig, last);
    assert_true(rig_drain(&rig) > 32);
}

static void requester__one_ack_completes_many(void **state)
{
    (void)state;
    rig_start_requester(&rig, false);
    for (int i = 0; i < 5; i++)
        rig_post(&rig, SW_REQUEST_SEND, 8, 0);
    assert_int_equal(rig_drain(&rig), 5);
    rig_ack(&rig, 102);
    rig_done(&rig, 3);
    rig_ack(&rig, 104);
    rig_done(&rig, 5);
    assert_true(sw_requester_is_idle(&rig.r));
    assert_true(sw_requester_due_ns(&rig.r) == UINT64_MAX);
}

static void requester__an_ack_within_a_message_completes_nothing(void **state)
{
    (void)state;
    rig_start_requester(&rig, false);
    rig_post(&rig, SW_REQUEST_WRITE, 3 * RIG_MTU, 0);
    assert_int_equal(rig_drain(&rig), 3);
    rig_ack(&rig, 101);
    rig_done(&rig, 0);
    rig_ack(&rig, 102);
    rig_done(&rig, 1);
}

static void requester__stale_and_ghost_answers_are_ignored(void **state)
{
    (void)state;
    rig_start_requester(&rig, false);
    rig_post(&rig, SW_REQUEST_SEND, 8, 0);
    rig_post(&rig, SW_REQUEST_SEND, 8, 0);
    assert_int_equal(rig_drain(&rig), 2);
    rig_ack(&rig, 100);
    rig_done(&rig, 1);
    static const uint32_t psns[] = {99, 100, 102, 103, 0x800000};
    for (size_t i = 0; i < sizeof(psns) / sizeof(*psns); i++) {
        rig_ack(&rig, psns[i]); /* settled, or never sent */
        rig_done(&rig, 1);
        rig_answer(&rig, 0x11, psns[i], RIG_NAK_ACCESS, 0);
        rig_done(&rig, 1);
        rig_answer(&rig, 0x11, psns[i], RIG_NAK_PSN, 0);
        rig_sends_nothing(&rig);
    }
    assert_int_equal(rig.r.counts.stale, 15);
    rig_ack(&rig, 101);
    rig_done(&rig, 2);
}

static void requester__requests_are_no_answers(void **state)
{
    (void)state;
    rig_start_requester(&rig, false);
    rig_post(&rig, SW_REQUEST_SEND, 8, 0);
    rig_sends(&rig, 0x04, 100);
    rig_answer(&rig, 0x04, 100, RIG_ACK, 0);
    rig_done(&rig, 0);
    rig_answer(&rig, 0x81, 100, RIG_ACK, 0);
    rig_done(&rig, 0);
}

static void requester__a_plain_gap_is_sent_again_from_there(void **state)
{
    (void)state;
    rig_start_requester(&rig, false);
    for (int i = 0; i < 5; i++)
        rig_post(&rig, SW_REQUEST_SEND, 8, 0);
    assert_int_equal(rig_drain(&rig), 5);
    rig_answer(&rig, 0x11, 102, RIG_NAK_PSN, 0);
    rig_done(&rig, 2); /* what is before the gap has arrived */
    rig_sends(&rig, 0x04, 102);
    rig_sends(&rig, 0x04, 103);
    assert_int_equal(rig.out.position, 3);
    rig_sends(&rig, 0x04, 104);
    assert_true(rig.out.packet.bth.ack_req);
    rig_sends_nothing(&rig);
    rig_ack(&rig, 104);
    rig_done(&rig, 5);
}

static void requester__what_is_sent_again_is_the_same(void **state)
{
    (void)state;
    rig_start_requester(&rig, false);
    rig_post(&rig, SW_REQUEST_WRITE, 2 * RIG_MTU + 5, SW_REQUEST_IMM);
    assert_int_equal(rig_drain(&rig), 3);
    rig_answer(&rig, 0x11, 100, RIG_NAK_PSN, 0);
    rig_sends(&rig, 0x06, 100);
    assert_int_equal(rig.out.packet.reth.len_bytes, 2 * RIG_MTU + 5);
    rig_sends(&rig, 0x07, 101);
    assert_true(rig.out.offset == RIG_MTU);
    rig_sends(&rig, 0x09, 102);
    assert_int_equal(rig.out.packet.payload_len, 5);
}

static void requester__a_refusal_fails_its_request(void **state)
{
    (void)state;
    static const uint8_t codes[] = {RIG_NAK_INVALID, RIG_NAK_ACCESS, 0x63};
    for (size_t i = 0; i < sizeof(codes); i++) {
        rig_start_requester(&rig, false);
        for (int k = 0; k < 3; k++)
            rig_post(&rig, SW_REQUEST_SEND, 8, 0);
        assert_int_equal(rig_drain(&rig), 3);
        rig_answer(&rig, 0x11, 101, codes[i], 0);
        assert_int_equal(rig.progress.done, 1);
        rig_failed(&rig, SW_FAILURE_NAK, codes[i]);
        rig_ack(&rig, 102); /* it is dead */
        assert_int_equal(rig.progress.done, 1);
    }
}

static void requester__pauses_between_requests(void **state)
{
    (void)state;
    rig_start_requester(&rig, false);
    rig_post(&rig, SW_REQUEST_WRITE, 3 * RIG_MTU, 0);
    rig_post(&rig, SW_REQUEST_SEND, 8, 0);
    rig_sends(&rig, 0x06, 100);
    sw_requester_pause(&rig.r, true);
    assert_false(sw_requester_is_drained(&rig.r));
    rig_sends(&rig, 0x07, 101);
    rig_sends(&rig, 0x08, 102);
    rig_sends_nothing(&rig);
    assert_false(sw_requester_is_drained(&rig.r));
    rig_ack(&rig, 102);
    assert_true(sw_requester_is_drained(&rig.r) && !sw_requester_is_idle(&rig.r));
    sw_requester_pause(&rig.r, false);
    rig_sends(&rig, 0x04, 103);
}

static void requester__local_requests_keep_their_place(void **state)
{
    (void)state;
    rig_start_requester(&rig, false);
    rig_post(&rig, SW_REQUEST_SEND, 8, 0);
    rig_post(&rig, SW_REQUEST_LOCAL, 0, 0);
    rig_post(&rig, SW_REQUEST_SEND, 8, 0);
    assert_int_equal(rig_drain(&rig), 1);
    assert_false(sw_requester_is_local(&rig.r));
    rig_ack(&rig, 100);
    rig_done(&rig, 1);
    rig_sends_nothing(&rig);
    assert_true(sw_requester_is_local(&rig.r));
    sw_requester_local_done(&rig.r);
    assert_int_equal(sw_requester_done(&rig.r), 2);
    rig_sends(&rig, 0x04, 101);
    rig_ack(&rig, 101);
    rig_done(&rig, 3);
}

static void requester__xrc_names_the_srq(void **state)
{
    (void)state;
    struct sw_requester_config config = rig_requester_config();
    config.service = SW_SERVICE_XRC;
    rig_start(&rig, &config, NULL);
    const struct sw_request request = {
        .kind = SW_REQUEST_SEND, .len_bytes = 2 * RIG_MTU, .srq_num = 0x444};
    assert_true(sw_requester_post(&rig.r, &request));
    rig_sends(&rig, 0xa0, 100);
    assert_int_equal(rig.out.packet.srq_num, 0x444);
    rig_sends(&rig, 0xa2, 101);
    assert_int_equal(rig.out.packet.srq_num, 0x444);
    rig_answer(&rig, 0xb1, 101, RIG_ACK, 0);
    rig_done(&rig, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(requester__cuts_messages_by_the_mtu),
        cmocka_unit_test(requester__opcodes_of_a_send),
        cmocka_unit_test(requester__long_writes_to_our_own_are_split),
        cmocka_unit_test(requester__a_write_that_has_begun_is_not_split),
        cmocka_unit_test(requester__a_run_is_of_packets_that_are_alike),
        cmocka_unit_test(requester__a_run_stays_within_the_window),
        cmocka_unit_test(requester__a_full_ring_refuses),
        cmocka_unit_test(requester__psns_wrap),
        cmocka_unit_test(requester__asks_for_answers_before_the_window_is_full),
        cmocka_unit_test(requester__one_ack_completes_many),
        cmocka_unit_test(requester__an_ack_within_a_message_completes_nothing),
        cmocka_unit_test(requester__stale_and_ghost_answers_are_ignored),
        cmocka_unit_test(requester__requests_are_no_answers),
        cmocka_unit_test(requester__a_plain_gap_is_sent_again_from_there),
        cmocka_unit_test(requester__what_is_sent_again_is_the_same),
        cmocka_unit_test(requester__a_refusal_fails_its_request),
        cmocka_unit_test(requester__pauses_between_requests),
        cmocka_unit_test(requester__local_requests_keep_their_place),
        cmocka_unit_test(requester__xrc_names_the_srq),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
