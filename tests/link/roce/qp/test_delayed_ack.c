/* SPDX-License-Identifier: BSD-2-Clause */
/* Which ACKs may wait for a message to ride on, see link/roce/qp/delayed_ack.c. */
#include <string.h>

#include "link/roce/qp/delayed_ack.h"
#include "link/roce/qp/qp.h"
#include "link/roce/roce.h"
#include "link_rig.h"
#include "wire/opcode.h"

enum { NOW_NS = 1000000000, ENTRIES = 64, FIRST_WINDOW = 32 };
enum { SEND_ONLY = 0x04, READ_REQUEST = 0x0c, ACK = 0x1f }; /* IBTA Vol1 9.2, 9.7.5 */

static struct sw_qp qp;
static struct sw_roce_qp r;
static struct sw_request ring[ENTRIES];

/* A request of one packet comes, and is carried out if its turn has come. */
static void receive_request(uint8_t opcode, uint32_t psn, uint8_t mark)
{
    const struct sw_packet packet = {
        .opcode = sw_opcode_of(opcode),
        .bth = {.opcode = opcode, .psn = psn, .ack_req = true, .reserved7 = mark},
        .reth = {.addr = 0x1000, .rkey = 7, .len_bytes = 8},
        .payload = (const uint8_t *)"8 bytes",
        .payload_len = opcode == SEND_ONLY ? 8 : 0,
    };
    const struct sw_outcome done = {.syndrome = ACK};
    struct sw_demand demand;
    if (sw_responder_admit(&r.responder, &packet, NOW_NS, &demand))
        sw_responder_conclude(&r.responder, &demand, &done);
}

/* A connection of which nothing has come yet. */
static void start_unheard(void)
{
    const struct sw_responder_config responder = {
        .mtu_bytes = 4096, .service = SW_SERVICE_RC, .offer_selective = true};
    const struct sw_requester_config requester = {
        .mtu_bytes = 4096, .service = SW_SERVICE_RC, .offer_selective = true};
    qp = (struct sw_qp){.qpn = 0x1007, .index = 7, .type = IBV_QPT_RC};
    qp.lock.held = sw_roce.port.rx_lock.held = 1;
    memset(&r, 0, sizeof(r));
    r.qp = &qp;
    r.ring = ring;
    r.receives = true;
    sw_requester_init(&r.requester, &requester, ring, ENTRIES);
    sw_responder_init(&r.responder, &responder, NULL);
}

/* One that has executed a SEND of a Sidewire peer, and has said nothing yet. */
static int start(void **state)
{
    (void)state;
    start_unheard();
    receive_request(SEND_ONLY, 0, SW_SELECTIVE_MARK);
    return 0;
}

static int stop(void **state)
{
    (void)state;
    sw_delayed_ack_forget(&qp);
    assert_false(sw_delayed_ack_any_waits());
    sw_roce.port.rx_lock.held = 0;
    return 0;
}

/* A storage target's: its ACK used to leave in a message of its own. */
static void leave__an_answer_of_two_packets(void **state)
{
    (void)state;
    assert_true(sw_delayed_ack_defer(&r, 2, false, NOW_NS));
    assert_true(sw_delayed_ack_any_waits());
}

/* The peer must not come to the end of its window by that. */
static void leave__half_a_first_window_at_most(void **state)
{
    (void)state;
    for (uint32_t packets = 1; packets <= SW_DELAYED_ACK_RUN; packets++) {
        uint32_t waiting = 0;
        start(NULL);
        while (sw_delayed_ack_defer(&r, packets, false, NOW_NS)) {
            waiting += packets;
            assert_true(waiting <= FIRST_WINDOW / 2);
        }
        assert_true(waiting >= SW_DELAYED_ACK_RUN);
        sw_delayed_ack_forget(&qp);
    }
}

static void leave__not_to_a_plain_peer(void **state)
{
    (void)state;
    start_unheard();
    receive_request(SEND_ONLY, 0, 0);
    assert_true(sw_responder_only_acks(&r.responder));
    assert_false(sw_delayed_ack_defer(&r, 2, false, NOW_NS));
}

static void leave__no_nak_and_no_answer(void **state)
{
    (void)state;
    receive_request(READ_REQUEST, 1, SW_SELECTIVE_MARK); /* its answer is to be sent at once */
    assert_false(sw_delayed_ack_defer(&r, 2, false, NOW_NS));
    start(NULL);
    receive_request(SEND_ONLY, 2, SW_SELECTIVE_MARK); /* and the NAK that 1 is missing */
    assert_false(sw_delayed_ack_defer(&r, 2, false, NOW_NS));
    start(NULL);
    struct sw_emission said;
    assert_true(sw_responder_next(&r.responder, NOW_NS, &said)); /* the ACK has left */
    assert_false(sw_delayed_ack_defer(&r, 2, false, NOW_NS));
}

/* An ACK that left with a message takes no place of the next. */
static void leave__each_time_that_it_rides(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 100; i++) {
        assert_true(sw_delayed_ack_defer(&r, 2, false, NOW_NS + i));
        r.delayed_acks = 0; /* as it is when a message has left (emit.c) */
    }
}

/* The program answers requests, each time within a moment. */
static void answer(uint32_t times, uint64_t *now_ns)
{
    for (uint32_t i = 0; i < times; i++) {
        sw_delayed_ack_expects_echo(&r, false, *now_ns);
        sw_delayed_ack_note_echo(&r, *now_ns + 20000);
        *now_ns += 100000;
    }
}

static void leave__many_where_the_program_answers(void **state)
{
    (void)state;
    uint64_t now_ns = NOW_NS;
    assert_false(sw_delayed_ack_expects_echo(&r, false, now_ns));
    answer(8, &now_ns);
    assert_true(sw_delayed_ack_expects_echo(&r, false, now_ns));
    /* The long ones of a storage target's answers, then the short ones, in two polls. */
    assert_true(sw_delayed_ack_defer(&r, 15, false, now_ns));
    assert_true(sw_delayed_ack_expects_echo(&r, false, now_ns + 1000));
    assert_true(sw_delayed_ack_defer(&r, 15, false, now_ns + 1000));
    /* It does not answer these. */
    assert_false(sw_delayed_ack_expects_echo(&r, false, now_ns + 1000000));
}

/* A program that sleeps is woken first, which is no reason to expect no answer of it. */
static void leave__who_is_woken_has_longer_to_answer(void **state)
{
    (void)state;
    const uint64_t after_ns = 90000; /* awake it would be too late */
    uint64_t now_ns = NOW_NS;
    for (uint32_t i = 0; i < 8; i++, now_ns += 200000) {
        sw_delayed_ack_expects_echo(&r, false, now_ns);
        sw_delayed_ack_note_echo(&r, now_ns + after_ns);
    }
    assert_false(sw_delayed_ack_expects_echo(&r, false, now_ns));
    for (uint32_t i = 0; i < 8; i++, now_ns += 200000) {
        sw_delayed_ack_expects_echo(&r, true, now_ns);
        sw_delayed_ack_note_echo(&r, now_ns + after_ns);
    }
    assert_true(sw_delayed_ack_expects_echo(&r, true, now_ns));
    assert_true(sw_delayed_ack_defer(&r, 32, true, now_ns));
    assert_true(sw_delayed_ack_step(now_ns + after_ns) > now_ns + after_ns); /* it waits still */
    assert_true(sw_delayed_ack_any_waits());
}

/* Packets that left behind later ones on purpose come by themselves. */
static void leave__a_gap_may_close_where_the_program_answers(void **state)
{
    (void)state;
    uint64_t now_ns = NOW_NS;
    receive_request(SEND_ONLY, 2, SW_SELECTIVE_MARK);
    assert_true(sw_responder_only_misses(&r.responder));
    assert_false(sw_responder_only_acks(&r.responder));
    assert_false(sw_delayed_ack_defer(&r, 2, false, now_ns));
    answer(8, &now_ns);
    assert_true(sw_delayed_ack_defer(&r, 2, false, now_ns));
    receive_request(SEND_ONLY, 1, SW_SELECTIVE_MARK); /* it came: an ACK is left to be said */
    assert_true(sw_responder_only_acks(&r.responder));
}

/* The ACK that it adds waits for somebody's timer: the engine's, once it has looked. */
static void leave__the_engine_is_to_be_told_of_it(void **state)
{
    (void)state;
    assert_false(sw_delayed_ack_any_unseen());
    assert_true(sw_delayed_ack_defer(&r, 1, true, NOW_NS));
    assert_true(sw_delayed_ack_any_unseen());
    const uint64_t due_ns = sw_delayed_ack_step(NOW_NS);
    assert_true(due_ns > NOW_NS && due_ns < NOW_NS + 1000000);
    assert_false(sw_delayed_ack_any_unseen());
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(leave__an_answer_of_two_packets, start, stop),
        cmocka_unit_test_setup_teardown(leave__half_a_first_window_at_most, start, stop),
        cmocka_unit_test_setup_teardown(leave__not_to_a_plain_peer, start, stop),
        cmocka_unit_test_setup_teardown(leave__no_nak_and_no_answer, start, stop),
        cmocka_unit_test_setup_teardown(leave__each_time_that_it_rides, start, stop),
        cmocka_unit_test_setup_teardown(leave__many_where_the_program_answers, start, stop),
        cmocka_unit_test_setup_teardown(leave__who_is_woken_has_longer_to_answer, start, stop),
        cmocka_unit_test_setup_teardown(leave__a_gap_may_close_where_the_program_answers, start,
                                        stop),
        cmocka_unit_test_setup_teardown(leave__the_engine_is_to_be_told_of_it, start, stop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
