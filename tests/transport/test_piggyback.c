/* SPDX-License-Identifier: BSD-2-Clause */
/* ACKs that leave in a SEND, and come in one. */
#include "transport/rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "transport/piggyback.h"

enum { SEND_FIRST = 0x00, SEND_ONLY = 0x04, SEND_IMM = 0x05, SEND_INV = 0x17, WRITE_ONLY = 0x0a };
enum { READ = 0x0c, CARRIES = 0xc0, XRC_SEND = 0xa4 };

static struct rig rig;

/* A SEND of eight bytes comes from a peer that understands piggybacked ACKs, and is executed. */
static void execute_send(uint32_t psn)
{
    struct sw_packet packet = rig_packet(SEND_ONLY, psn, 8);
    packet.bth.reserved6 = SW_PIGGYBACK_MARK;
    rig_request(&rig, &packet, RIG_ACK);
}

static void start(void)
{
    rig_start(&rig, NULL, NULL);
    execute_send(RIG_PSN);
}

static bool loads(uint8_t opcode, uint32_t len)
{
    struct sw_packet answer = rig_packet(opcode, 5000, len);
    return sw_piggyback_load(&rig.p, &answer);
}

static void load__an_answer_carries_the_ack(void **state)
{
    static const uint8_t opcodes[] = {SEND_ONLY, SEND_IMM, SEND_INV};
    (void)state;
    for (size_t i = 0; i < sizeof(opcodes); i++) {
        start();
        execute_send(RIG_PSN + 1);
        struct sw_packet answer = rig_packet(opcodes[i], 5000, 16);
        assert_true(sw_piggyback_load(&rig.p, &answer));
        assert_int_equal(answer.bth.opcode, CARRIES + opcodes[i]);
        assert_int_equal(answer.opcode->number, CARRIES + opcodes[i]);
        assert_int_equal(answer.bth.psn, 5000);
        assert_int_equal(answer.acked_psn, RIG_PSN + 1);
        assert_int_equal(answer.aeth.syndrome, RIG_ACK);
        assert_int_equal(answer.aeth.msn, 2);
        rig_is_silent(&rig);
        assert_false(loads(SEND_ONLY, 16)); /* it is said */
    }
}

static void load__other_packets_do_not(void **state)
{
    (void)state;
    start();
    assert_false(loads(SEND_FIRST, RIG_MTU));
    assert_false(loads(WRITE_ONLY, 16));
    assert_false(loads(XRC_SEND, 16));
    assert_false(loads(SEND_ONLY, RIG_MTU - SW_PIGGYBACK_BYTES + 1));
    assert_true(loads(SEND_ONLY, RIG_MTU - SW_PIGGYBACK_BYTES));
}

/* Neither hardware nor an older release. */
static void load__not_for_peers_that_did_not_ask(void **state)
{
    (void)state;
    rig_start(&rig, NULL, NULL);
    rig_send(&rig, RIG_PSN); /* selective repeat alone */
    assert_false(loads(SEND_ONLY, 16));
    struct sw_packet packet = rig_packet(SEND_ONLY, RIG_PSN + 1, 8);
    packet.bth.reserved6 = SW_PIGGYBACK_MARK;
    packet.bth.reserved7 = 0; /* bits that something set on the way */
    rig_request(&rig, &packet, RIG_ACK);
    assert_false(loads(SEND_ONLY, 16));
    rig_acks(&rig, RIG_PSN + 1, RIG_ACK);
}

static void load__no_longer_where_the_bits_are_cleared(void **state)
{
    (void)state;
    start();
    rig_send(&rig, RIG_PSN + 1);
    assert_false(loads(SEND_ONLY, 16));
    execute_send(RIG_PSN + 2);
    assert_true(loads(SEND_ONLY, 16));
}

static void load__nothing_but_an_ack(void **state)
{
    (void)state;
    start();
    struct sw_packet packet = rig_packet(SEND_ONLY, RIG_PSN + 3, 8); /* a gap */
    assert_false(rig_admits(&rig, &packet));
    assert_false(loads(SEND_ONLY, 16));

    start();
    packet = rig_packet(READ, RIG_PSN + 1, 8);
    rig_request(&rig, &packet, RIG_ACK);
    assert_false(loads(SEND_ONLY, 16));
    rig_responds(&rig, 0x10, RIG_PSN + 1);

    start();
    packet = rig_packet(SEND_ONLY, RIG_PSN + 1, 8);
    rig_request(&rig, &packet, RIG_NAK_INVALID);
    assert_false(loads(SEND_ONLY, 16));
    rig_acks(&rig, RIG_PSN + 1, RIG_NAK_INVALID);
}

/* A duplicate asks for the ACK that may have been lost with the answer. */
static void load__a_duplicate_is_acknowledged_again(void **state)
{
    (void)state;
    start();
    assert_true(loads(SEND_ONLY, 16));
    struct sw_packet packet = rig_packet(SEND_ONLY, RIG_PSN, 8);
    assert_false(rig_admits(&rig, &packet));
    rig_acks(&rig, RIG_PSN, RIG_ACK);
}

static void unload__it_completes_what_it_acknowledges(void **state)
{
    (void)state;
    rig_start(&rig, NULL, NULL);
    for (int i = 0; i < 3; i++)
        rig_post(&rig, SW_REQUEST_SEND, 8, 0);
    assert_int_equal(rig_drain(&rig), 3);
    struct sw_packet request = rig_packet(CARRIES + SEND_ONLY, 9000, 8), ack;
    request.aeth.syndrome = RIG_ACK;
    request.acked_psn = RIG_PSN + 1;
    assert_true(sw_piggyback_unload(&request, &ack));
    sw_requester_receive(&rig.r, &ack, rig.now_ns, &rig.progress);
    rig_done(&rig, 2);
}

/* A PSN that is not on its way. */
static void unload__what_was_never_sent_completes_nothing(void **state)
{
    static const uint32_t psns[] = {RIG_PSN - 1, RIG_PSN + 1, RIG_PSN + 0x400000};
    (void)state;
    rig_start(&rig, NULL, NULL);
    rig_post(&rig, SW_REQUEST_SEND, 8, 0);
    assert_int_equal(rig_drain(&rig), 1);
    for (size_t i = 0; i < sizeof(psns) / sizeof(*psns); i++) {
        struct sw_packet request = rig_packet(CARRIES + SEND_ONLY, 9000, 8), ack;
        request.aeth.syndrome = RIG_ACK;
        request.acked_psn = psns[i];
        assert_true(sw_piggyback_unload(&request, &ack));
        sw_requester_receive(&rig.r, &ack, rig.now_ns, &rig.progress);
        rig_done(&rig, 0);
    }
}

static void unload__acks_only(void **state)
{
    (void)state;
    struct sw_packet request = rig_packet(SEND_ONLY, 9000, 8), ack;
    assert_false(sw_piggyback_unload(&request, &ack));
    request = rig_packet(CARRIES + SEND_ONLY, 9000, 8);
    request.aeth.syndrome = RIG_NAK_ACCESS;
    assert_false(sw_piggyback_unload(&request, &ack));
}

static void mark__only_for_peers_that_are_known(void **state)
{
    (void)state;
    rig_start(&rig, NULL, NULL);
    rig_post(&rig, SW_REQUEST_SEND, 8, 0);
    rig_post(&rig, SW_REQUEST_SEND, 8, 0);
    rig_sends(&rig, SEND_ONLY, RIG_PSN);
    assert_int_equal(rig.out.packet.bth.reserved6, 0);
    rig_ack(&rig, RIG_PSN); /* a stock kernel's */
    rig_sends(&rig, SEND_ONLY, RIG_PSN + 1);
    assert_int_equal(rig.out.packet.bth.reserved6, 0);
    struct sw_packet ack = rig_packet(0x11, RIG_PSN + 1, 0);
    ack.aeth.syndrome = RIG_ACK;
    sw_requester_receive(&rig.r, &ack, rig.now_ns, &rig.progress);
    rig_post(&rig, SW_REQUEST_SEND, 8, 0);
    rig_sends(&rig, SEND_ONLY, RIG_PSN + 2);
    assert_int_equal(rig.out.packet.bth.reserved6, SW_PIGGYBACK_MARK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(load__an_answer_carries_the_ack),
        cmocka_unit_test(load__other_packets_do_not),
        cmocka_unit_test(load__not_for_peers_that_did_not_ask),
        cmocka_unit_test(load__no_longer_where_the_bits_are_cleared),
        cmocka_unit_test(load__nothing_but_an_ack),
        cmocka_unit_test(load__a_duplicate_is_acknowledged_again),
        cmocka_unit_test(unload__it_completes_what_it_acknowledges),
        cmocka_unit_test(unload__what_was_never_sent_completes_nothing),
        cmocka_unit_test(unload__acks_only),
        cmocka_unit_test(mark__only_for_peers_that_are_known),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
