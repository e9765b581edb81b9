/* SPDX-License-Identifier: BSD-2-Clause */
/* Unreliable connections: IBTA Vol1 9.8.2. */
#include "transport/rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct rig rig;

static void start(void)
{
    struct sw_requester_config requester = rig_requester_config();
    struct sw_responder_config responder = rig_responder_config();
    requester.service = responder.service = SW_SERVICE_UC;
    rig_start(&rig, &requester, &responder);
}

static void uc__is_complete_once_it_is_out(void **state)
{
    (void)state;
    start();
    rig_post(&rig, SW_REQUEST_WRITE, 2 * RIG_MTU, 0);
    rig_post(&rig, SW_REQUEST_SEND, 8, 0);
    rig_sends(&rig, 0x26, 100);
    assert_false(rig.out.packet.bth.ack_req);
    assert_int_equal(sw_requester_done(&rig.r), 0);
    rig_sends(&rig, 0x28, 101);
    assert_false(rig.out.packet.bth.ack_req);
    assert_int_equal(sw_requester_done(&rig.r), 1);
    rig_sends(&rig, 0x24, 102);
    assert_int_equal(sw_requester_done(&rig.r), 2);
    assert_true(sw_requester_is_idle(&rig.r));
    assert_true(sw_requester_due_ns(&rig.r) == UINT64_MAX);
}

static void uc__any_number_goes_at_once(void **state)
{
    (void)state;
    start();
    rig_post(&rig, SW_REQUEST_WRITE, 5000 * RIG_MTU, 0);
    assert_int_equal(rig_drain(&rig), 5000);
}

/* A key was taken away in the middle of a message: what is posted later is a message of its own. */
static void uc__what_is_abandoned_leaves_a_gap(void **state)
{
    (void)state;
    start();
    rig_post(&rig, SW_REQUEST_WRITE, 3 * RIG_MTU, 0);
    rig_post(&rig, SW_REQUEST_LOCAL, 0, 0);
    rig_post(&rig, SW_REQUEST_SEND, 8, 0);
    rig_sends(&rig, 0x26, 100);
    rig_sends(&rig, 0x27, 101);
    sw_requester_abandon(&rig.r);
    rig_sends_nothing(&rig);
    assert_false(sw_requester_is_local(&rig.r));
    assert_int_equal(sw_requester_done(&rig.r), 3);
    rig_post(&rig, SW_REQUEST_SEND, 8, 0);
    rig_sends(&rig, 0x24, 102);
    assert_int_equal(sw_requester_done(&rig.r), 4);
    rig_sends_nothing(&rig);
}

static void uc__answers_are_ignored(void **state)
{
    (void)state;
    start();
    rig_post(&rig, SW_REQUEST_SEND, 8, 0);
    rig_sends(&rig, 0x24, 100);
    rig_answer(&rig, 0x11, 100, RIG_NAK_ACCESS, 0);
    rig_done(&rig, 1);
}

static void uc__nothing_is_acknowledged(void **state)
{
    (void)state;
    start();
    struct sw_packet packet = rig_packet(0x24, 100, 8);
    rig_request(&rig, &packet, RIG_ACK);
    rig_is_silent(&rig);
    packet = rig_packet(0x24, 101, 8);
    rig_request(&rig, &packet, 0x20); /* no receive: it is lost */
    rig_is_silent(&rig);
    packet = rig_packet(0x24, 102, 8);
    rig_request(&rig, &packet, RIG_ACK);
}

static void uc__the_rest_of_a_message_with_a_gap_is_lost(void **state)
{
    (void)state;
    start();
    struct sw_packet first = rig_packet(0x20, 100, RIG_MTU),
                     middle = rig_packet(0x21, 102, RIG_MTU), last = rig_packet(0x22, 103, 8),
                     next = rig_packet(0x24, 104, 8);
    rig_request(&rig, &first, RIG_ACK);
    assert_false(rig_admits(&rig, &middle));
    assert_false(rig_admits(&rig, &last));
    rig_request(&rig, &next, RIG_ACK);
    assert_true(rig.demand.first && rig.demand.last);
    rig_is_silent(&rig);
    assert_int_equal(rig.p.counts.malformed, 0);
}

static void uc__a_message_begins_wherever_it_begins(void **state)
{
    (void)state;
    start();
    struct sw_packet first = rig_packet(0x20, 100, RIG_MTU), other = rig_packet(0x20, 500, RIG_MTU),
                     last = rig_packet(0x22, 501, 8);
    rig_request(&rig, &first, RIG_ACK);
    rig_request(&rig, &other, RIG_ACK);
    assert_true(rig.demand.first && rig.demand.offset == 0);
    rig_request(&rig, &last, RIG_ACK);
    assert_true(rig.demand.last && rig.demand.offset == RIG_MTU);
    struct sw_packet older = rig_packet(0x24, 501 - 5000 + (1 << 24), 8), none;
    rig_request(&rig, &older, RIG_ACK);
    assert_false(sw_responder_early(&rig.p, &none));
    rig_is_silent(&rig);
}

/* It counts from its first PSN again; the path may also deliver late, or twice. */
static void uc__a_peer_that_begins_anew_is_heard(void **state)
{
    (void)state;
    start();
    struct sw_packet packet = rig_packet(0x24, 100, 8), last = rig_packet(0x22, 105, 8);
    for (packet.bth.psn = 100; packet.bth.psn < 120; packet.bth.psn++)
        rig_request(&rig, &packet, RIG_ACK);
    packet.bth.psn = 100;
    assert_false(rig_admits(&rig, &packet)); /* a copy */
    rig.now_ns += 2000000;
    rig_request(&rig, &packet, RIG_ACK); /* at its beginning */
    packet.bth.psn = 119;
    rig_request(&rig, &packet, RIG_ACK);
    packet.bth.psn = 103;
    assert_false(rig_admits(&rig, &packet)); /* late */
    rig.now_ns += 100000000;
    assert_false(rig_admits(&rig, &last));
    rig_request(&rig, &packet, RIG_ACK); /* after a silence */
    packet.bth.psn = 119;
    rig_request(&rig, &packet, RIG_ACK);
    for (packet.bth.psn = 101; packet.bth.psn < 109; packet.bth.psn++)
        assert_false(rig_admits(&rig, &packet));
    rig_request(&rig, &packet, RIG_ACK); /* it goes on and on */
    sw_responder_begin_anew(&rig.p);
    packet.bth.psn = 100;
    rig_request(&rig, &packet, RIG_ACK); /* and where that is known */
    rig_is_silent(&rig);
}

static void uc__a_refused_message_is_lost_to_its_end(void **state)
{
    (void)state;
    start();
    struct sw_packet first = rig_packet(0x26, 100, RIG_MTU), last = rig_packet(0x28, 101, 8),
                     next = rig_packet(0x24, 102, 8);
    first.reth.len_bytes = RIG_MTU + 8;
    const struct sw_outcome denied = {.syndrome = RIG_NAK_ACCESS};
    assert_true(rig_admits(&rig, &first));
    sw_responder_conclude(&rig.p, &rig.demand, &denied);
    assert_false(rig_admits(&rig, &last));
    assert_false(rig.p.dead);
    rig_request(&rig, &next, RIG_ACK);
}

static void uc__malformed_messages_are_lost(void **state)
{
    (void)state;
    start();
    struct sw_packet first = rig_packet(0x20, 100, RIG_MTU - 1), next = rig_packet(0x24, 101, 8);
    assert_false(rig_admits(&rig, &first));
    assert_int_equal(rig.p.counts.malformed, 1);
    rig_is_silent(&rig);
    rig_request(&rig, &next, RIG_ACK);
}

#define LATE_NS 4000000u

/* As start(), and gaps are open for LATE_NS. */
static void start_patient(void)
{
    struct sw_requester_config requester = rig_requester_config();
    struct sw_responder_config responder = rig_responder_config();
    requester.service = responder.service = SW_SERVICE_UC;
    responder.late_ns = LATE_NS;
    rig_start(&rig, &requester, &responder);
}

static void comes_early(uint8_t opcode, uint32_t psn)
{
    struct sw_packet packet = rig_packet(opcode, psn, opcode == 0x24 ? 8 : RIG_MTU);
    assert_false(rig_admits(&rig, &packet));
}

/* Packets that waited are given out now, up to this one. */
static void follows(uint32_t psn)
{
    struct sw_packet packet;
    assert_true(sw_responder_early(&rig.p, &packet));
    assert_int_equal(packet.bth.psn, psn);
    rig_request(&rig, &packet, RIG_ACK);
}

static void nothing_follows(void)
{
    struct sw_packet none;
    assert_false(sw_responder_early(&rig.p, &none));
}

static void uc__what_is_late_keeps_its_place(void **state)
{
    (void)state;
    start_patient();
    struct sw_packet first = rig_packet(0x20, 100, RIG_MTU), late = rig_packet(0x21, 101, RIG_MTU);
    rig_request(&rig, &first, RIG_ACK);
    comes_early(0x22, 102);
    nothing_follows();
    comes_early(0x24, 103);
    comes_early(0x24, 103); /* a copy */
    nothing_follows();
    rig.now_ns += LATE_NS - 1;
    sw_responder_tick(&rig.p, rig.now_ns);
    nothing_follows();
    rig_request(&rig, &late, RIG_ACK);
    follows(102);
    assert_true(rig.demand.last && rig.demand.offset == 2 * RIG_MTU);
    follows(103);
    nothing_follows();
    assert_true(sw_responder_due_ns(&rig.p) == UINT64_MAX);
    rig_is_silent(&rig);
}

static void uc__a_gap_is_given_up(void **state)
{
    (void)state;
    start_patient();
    const uint64_t due_ns = rig.now_ns + LATE_NS;
    struct sw_packet packet = rig_packet(0x20, 100, RIG_MTU), late = rig_packet(0x24, 101, 8);
    rig_request(&rig, &packet, RIG_ACK);
    comes_early(0x24, 102);
    assert_int_equal(sw_responder_due_ns(&rig.p), due_ns);
    rig.now_ns += LATE_NS / 2;
    comes_early(0x24, 104);
    rig.now_ns = due_ns;
    sw_responder_tick(&rig.p, rig.now_ns);
    follows(102);
    assert_true(rig.demand.first);
    nothing_follows(); /* of the next gap less is known */
    assert_false(rig_admits(&rig, &late));
    sw_responder_tick(&rig.p, rig.now_ns);
    nothing_follows();
    rig.now_ns = sw_responder_due_ns(&rig.p);
    assert_true(rig.now_ns > due_ns && rig.now_ns <= due_ns + LATE_NS);
    sw_responder_tick(&rig.p, rig.now_ns);
    follows(104);
    nothing_follows();
    assert_true(sw_responder_due_ns(&rig.p) == UINT64_MAX);
}

/* A message that lacks its beginning is lost, as without the wait. */
static void uc__what_is_given_up_is_lost_to_its_end(void **state)
{
    (void)state;
    start_patient();
    struct sw_packet packet = rig_packet(0x24, 100, 8);
    rig_request(&rig, &packet, RIG_ACK);
    comes_early(0x22, 102);
    comes_early(0x24, 103);
    rig.now_ns += LATE_NS;
    sw_responder_tick(&rig.p, rig.now_ns);
    assert_true(sw_responder_early(&rig.p, &packet));
    assert_false(rig_admits(&rig, &packet));
    follows(103);
    nothing_follows();
    assert_int_equal(rig.p.counts.malformed, 0);
}

static void uc__a_gap_with_too_much_behind_it_is_given_up(void **state)
{
    (void)state;
    start_patient();
    uint32_t psn = 102;
    for (; !rig.p.gives_up; psn++)
        comes_early(0x24, psn);
    assert_int_equal(rig.p.early.count, RIG_SLOTS / 2);
    for (uint32_t kept = 102; kept < psn - 1; kept++) /* the last was one too many */
        follows(kept);
    nothing_follows();
    struct sw_packet next = rig_packet(0x24, psn - 1, 8);
    rig_request(&rig, &next, RIG_ACK);
    nothing_follows();
    assert_int_equal(rig.pool.free_count, RIG_SLOTS);
}

static void uc__what_waits_of_a_former_life_is_dropped(void **state)
{
    (void)state;
    start_patient();
    struct sw_packet packet = rig_packet(0x24, 100, 8);
    rig_request(&rig, &packet, RIG_ACK);
    comes_early(0x24, 102);
    rig.now_ns += 2000000;
    rig_request(&rig, &packet, RIG_ACK); /* from its beginning */
    assert_int_equal(rig.p.early.count, 0);
    comes_early(0x24, 102);
    sw_responder_begin_anew(&rig.p);
    rig_request(&rig, &packet, RIG_ACK);
    nothing_follows();
    assert_int_equal(rig.pool.free_count, RIG_SLOTS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(uc__is_complete_once_it_is_out),
        cmocka_unit_test(uc__any_number_goes_at_once),
        cmocka_unit_test(uc__what_is_abandoned_leaves_a_gap),
        cmocka_unit_test(uc__answers_are_ignored),
        cmocka_unit_test(uc__nothing_is_acknowledged),
        cmocka_unit_test(uc__the_rest_of_a_message_with_a_gap_is_lost),
        cmocka_unit_test(uc__a_message_begins_wherever_it_begins),
        cmocka_unit_test(uc__a_peer_that_begins_anew_is_heard),
        cmocka_unit_test(uc__a_refused_message_is_lost_to_its_end),
        cmocka_unit_test(uc__malformed_messages_are_lost),
        cmocka_unit_test(uc__what_is_late_keeps_its_place),
        cmocka_unit_test(uc__a_gap_is_given_up),
        cmocka_unit_test(uc__what_is_given_up_is_lost_to_its_end),
        cmocka_unit_test(uc__a_gap_with_too_much_behind_it_is_given_up),
        cmocka_unit_test(uc__what_waits_of_a_former_life_is_dropped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
