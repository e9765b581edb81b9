/* SPDX-License-Identifier: BSD-2-Clause */
/* What the machines make of packets that their peer cannot have sent. */
#include "transport/rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Requests of every kind that nobody can have sent change nothing, and are not answered. */
static void expect_astray(struct rig *rig, uint32_t psn)
{
    static const uint8_t opcodes[] = {0x00, 0x04, 0x06, 0x0a, 0x0c, 0x13, 0x14, 0x1c, 0x1d};
    for (size_t i = 0; i < sizeof(opcodes); i++) {
        const uint64_t before = rig->p.counts.astray;
        struct sw_packet packet = rig_packet(opcodes[i], psn & SW_PSN_MASK, 8);
        assert_false(rig_admits(rig, &packet));
        assert_int_equal(rig->p.counts.astray, before + 1);
        rig_is_silent(rig);
        assert_int_equal(sw_responder_place(&rig->p, &packet), SW_PLACE_ASTRAY);
    }
}

static void responder__a_psn_beyond_what_is_in_flight_is_no_gap(void **state)
{
    (void)state;
    static struct rig rig;
    rig_start_responder(&rig, true);
    rig_send(&rig, 100);
    rig_acks(&rig, 100, RIG_ACK);
    for (uint32_t psn = 101 + SW_FLIGHT_PACKETS; psn < 1u << 23; psn += 99991)
        expect_astray(&rig, psn);
    for (uint32_t behind = SW_FLIGHT_PACKETS + 1; behind < 1u << 23; behind += 99991)
        expect_astray(&rig, 101 - behind);
    rig_send(&rig, 101); /* no gap is asked for behind it */
    rig_acks(&rig, 101, RIG_ACK);
    rig_is_silent(&rig);
    assert_int_equal(rig.p.counts.early, 0);
}

/* A READ that the peer may still wait for lies before 2^20 packets of its own. */
static void responder__plain_peers_reach_further(void **state)
{
    (void)state;
    static struct rig rig;
    rig_start_responder(&rig, false);
    struct sw_packet send = rig_packet(0x04, 100 + SW_RESPONDER_REACH_PLAIN - 1, 8);
    send.bth.reserved7 = 0;
    assert_false(rig_admits(&rig, &send));
    rig_acks(&rig, 100, RIG_NAK_PSN);
    expect_astray(&rig, 100 + SW_RESPONDER_REACH_PLAIN);
    struct sw_packet read = rig_packet(0x0c, 100, 0);
    read.reth.len_bytes = 1u << 30;
    rig_request(&rig, &read, RIG_ACK);
    while (sw_responder_next(&rig.p, rig.now_ns, &rig.out))
        ;
    assert_int_equal(rig.p.expected, 100 + (1u << 20));
    read.bth.psn += 5;
    read.reth.addr += 5 * RIG_MTU;
    read.reth.len_bytes -= 5 * RIG_MTU;
    assert_true(rig_admits(&rig, &read));
}

/* The answer to a gap differs: one of those would end a plain peer's connection. */
static void responder__only_what_is_expected_tells_what_a_peer_speaks(void **state)
{
    (void)state;
    static struct rig rig;
    rig_start_responder(&rig, true);
    struct sw_packet plain = rig_packet(0x04, 100, 8);
    plain.bth.reserved7 = 0;
    rig_request(&rig, &plain, RIG_ACK);
    rig_acks(&rig, 100, RIG_ACK);
    static const uint32_t marked[] = {100, 102, 103, 100 + SW_FLIGHT_PACKETS, 0x800000};
    for (size_t i = 0; i < sizeof(marked) / sizeof(*marked); i++) {
        struct sw_packet packet = rig_packet(0x04, marked[i], 8);
        assert_false(rig_admits(&rig, &packet));
        assert_false(rig.p.peer_selective);
        while (sw_responder_next(&rig.p, rig.now_ns, &rig.out))
            assert_int_equal(rig.out.packet.opcode->kind, SW_PACKET_ACK);
    }
    rig_send(&rig, 101);
    assert_true(rig.p.peer_selective);
}

/* A READ at 100, a SEND at 104, and then this one, which is dropped and counted. */
static void expect_unknown(const struct sw_packet *packet)
{
    static struct rig rig;
    rig_start_responder(&rig, true);
    struct sw_packet read = rig_packet(0x0c, 100, 0);
    read.reth.len_bytes = 3 * RIG_MTU + 1;
    rig_request(&rig, &read, RIG_ACK);
    while (sw_responder_next(&rig.p, rig.now_ns, &rig.out))
        ;
    rig_send(&rig, 104);
    rig_acks(&rig, 104, RIG_ACK);
    assert_false(rig_admits(&rig, packet));
    assert_int_equal(rig.p.counts.astray, 1);
    rig_is_silent(&rig);
}

/* Anybody who knows a key could have it read, at any PSN, as often as he likes. */
static void responder__a_duplicate_of_nothing_is_dropped(void **state)
{
    (void)state;
    struct sw_packet read = rig_packet(0x0c, 101, 0);
    read.reth = (struct sw_reth){.addr = 0x1000 + RIG_MTU, .rkey = 7, .len_bytes = RIG_MTU};
    struct sw_packet other = read;
    other.reth.rkey++;
    expect_unknown(&other);
    other = read;
    other.reth.addr += 4;
    expect_unknown(&other);
    other = read;
    other.reth.addr -= RIG_MTU;
    expect_unknown(&other);
    other = read;
    other.reth.len_bytes = 2 * RIG_MTU + 2; /* the READ ended a byte before */
    expect_unknown(&other);
    other.reth.len_bytes = 4 * RIG_MTU;
    expect_unknown(&other);
    other = read;
    other.bth.psn = 99;
    other.reth.addr -= 2 * RIG_MTU;
    expect_unknown(&other);
    other = read;
    other.bth.psn = 104; /* that was a SEND */
    expect_unknown(&other);
    static const uint8_t opcodes[] = {0x13, 0x14, 0x1c, 0x1d}; /* of other kinds */
    for (size_t i = 0; i < sizeof(opcodes); i++) {
        other = rig_packet(opcodes[i], 100, 8);
        expect_unknown(&other);
    }
}

static void responder__a_duplicate_read_is_known_as_long_as_it_may_be_awaited(void **state)
{
    (void)state;
    static struct rig rig;
    rig_start_responder(&rig, true);
    for (uint32_t psn = 100; psn < 100 + SW_RESPONDER_RD_ATOMIC_MAX; psn++) {
        struct sw_packet read = rig_packet(0x0c, psn, 0);
        read.reth = (struct sw_reth){.addr = 0x1000 * psn, .rkey = psn, .len_bytes = psn};
        rig_request(&rig, &read, RIG_ACK);
        rig_responds(&rig, 0x10, psn);
    }
    for (uint32_t psn = 100; psn < 100 + SW_RESPONDER_RD_ATOMIC_MAX; psn++) {
        struct sw_packet read = rig_packet(0x0c, psn, 0);
        read.reth = (struct sw_reth){.addr = 0x1000 * psn, .rkey = psn, .len_bytes = psn};
        rig_request(&rig, &read, RIG_ACK);
        rig_responds(&rig, 0x10, psn);
    }
}

/* An answer to nothing that is on its way may be anybody's. */
static void requester__only_an_awaited_answer_tells_what_a_peer_speaks(void **state)
{
    (void)state;
    static struct rig rig;
    rig_start_responder(&rig, true);
    rig_post(&rig, SW_REQUEST_SEND, 8, 0);
    rig_drain(&rig);
    static const uint32_t psns[] = {99, 101, 100 + SW_FLIGHT_PACKETS, 0x800000};
    for (size_t i = 0; i < sizeof(psns) / sizeof(*psns); i++) {
        struct sw_packet ack = rig_packet(0x11, psns[i], 0);
        ack.aeth.syndrome = RIG_ACK;
        sw_requester_receive(&rig.r, &ack, rig.now_ns, &rig.progress);
        assert_false(rig.r.peer_selective);
        assert_false(sw_requester_awaits(&rig.r, psns[i]));
    }
    assert_true(sw_requester_awaits(&rig.r, 100));
    struct sw_packet ack = rig_packet(0x11, 100, 0);
    ack.aeth.syndrome = RIG_ACK;
    sw_requester_receive(&rig.r, &ack, rig.now_ns, &rig.progress);
    assert_true(rig.r.peer_selective);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(responder__a_psn_beyond_what_is_in_flight_is_no_gap),
        cmocka_unit_test(responder__plain_peers_reach_further),
        cmocka_unit_test(responder__only_what_is_expected_tells_what_a_peer_speaks),
        cmocka_unit_test(responder__a_duplicate_of_nothing_is_dropped),
        cmocka_unit_test(responder__a_duplicate_read_is_known_as_long_as_it_may_be_awaited),
        cmocka_unit_test(requester__only_an_awaited_answer_tells_what_a_peer_speaks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
