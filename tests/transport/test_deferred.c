/* SPDX-License-Identifier: BSD-2-Clause */
/* Short packets that leave behind the long ones posted around them. */
#include "transport/rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { SEND_ONLY = 0x04, WRITE_ONLY = 0x0a, READ_REQUEST = 0x0c, ACK = 0x11 };

static struct rig rig;

/* With a peer that has shown what it speaks, and a round trip of 100 us measured. */
static void start_with_peer(uint8_t marks)
{
    rig_start(&rig, NULL, NULL);
    rig_post(&rig, SW_REQUEST_SEND, 8, 0);
    rig_sends(&rig, SEND_ONLY, RIG_PSN);
    rig.now_ns += 100000;
    struct sw_packet ack = rig_packet(ACK, RIG_PSN, 0);
    ack.aeth.syndrome = RIG_ACK;
    ack.bth.reserved7 = marks;
    sw_requester_receive(&rig.r, &ack, rig.now_ns, &rig.progress);
    rig_done(&rig, 1);
}

static void post_answers(uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        rig_post(&rig, SW_REQUEST_WRITE, 512, 0);
        rig_post(&rig, SW_REQUEST_SEND, 16, 0);
    }
}

static void deferred__short_packets_leave_behind_the_long_ones(void **state)
{
    (void)state;
    start_with_peer(SW_SELECTIVE_MARK);
    post_answers(3);
    rig_sends(&rig, WRITE_ONLY, 101);
    rig_sends(&rig, WRITE_ONLY, 103);
    rig_sends(&rig, WRITE_ONLY, 105);
    assert_false(rig.out.begins_message || rig.out.ends_deferred);
    assert_int_equal(rig.out.joint_bytes, 0);
    rig_sends(&rig, SEND_ONLY, 102);
    assert_int_equal(rig.out.packet.payload_len, 16);
    assert_true(rig.out.packet.bth.ack_req);
    assert_true(rig.out.begins_message && !rig.out.ends_deferred);
    assert_in_range(rig.out.joint_bytes, 3 * (12 + 16), 3 * (SW_HEADERS_MAX + 16)); /* all three */
    rig_sends(&rig, SEND_ONLY, 104);
    assert_true(!rig.out.begins_message && rig.out.ends_deferred);
    assert_int_equal(rig.out.joint_bytes, 0);
    rig_sends(&rig, SEND_ONLY, 106);
    assert_false(rig.out.begins_message || rig.out.ends_deferred);
    rig_sends_nothing(&rig);
    assert_false(sw_requester_has_unsent(&rig.r));
    assert_int_equal(rig.r.counts.deferred, 2);
    rig_ack(&rig, 106);
    rig_done(&rig, 7);
}

static void deferred__plain_peers_get_all_in_order(void **state)
{
    (void)state;
    start_with_peer(0);
    post_answers(3);
    for (uint32_t i = 0; i < 6; i++)
        rig_sends(&rig, i % 2 ? SEND_ONLY : WRITE_ONLY, 101 + i);
}

/* Only what is posted together leaves together. */
static void deferred__only_within_a_burst(void **state)
{
    (void)state;
    start_with_peer(SW_SELECTIVE_MARK);
    rig_post(&rig, SW_REQUEST_WRITE, 512, 0);
    rig_sends(&rig, WRITE_ONLY, 101);
    rig.now_ns += 1000;
    rig_post(&rig, SW_REQUEST_SEND, 16, 0);
    rig_post(&rig, SW_REQUEST_WRITE, 512, 0);
    rig_sends(&rig, SEND_ONLY, 102);
    rig_sends(&rig, WRITE_ONLY, 103);
}

static void deferred__nothing_of_another_length_or_kind_goes_before(void **state)
{
    (void)state;
    start_with_peer(SW_SELECTIVE_MARK);
    rig_post(&rig, SW_REQUEST_WRITE, 512, 0);
    rig_post(&rig, SW_REQUEST_SEND, 16, 0);
    rig_post(&rig, SW_REQUEST_WRITE, 500, 0); /* shorter */
    rig_post(&rig, SW_REQUEST_SEND, 16, 0);
    rig_post(&rig, SW_REQUEST_SEND, 500, 0); /* another kind */
    rig_post(&rig, SW_REQUEST_WRITE, 16, 0);
    rig_post(&rig, SW_REQUEST_READ, 500, 0);
    static const uint8_t opcodes[] = {WRITE_ONLY, SEND_ONLY,  WRITE_ONLY,  SEND_ONLY,
                                      SEND_ONLY,  WRITE_ONLY, READ_REQUEST};
    for (uint32_t i = 0; i < sizeof(opcodes); i++)
        rig_sends(&rig, opcodes[i], 101 + i);
}

static void deferred__a_fence_keeps_its_place(void **state)
{
    (void)state;
    start_with_peer(SW_SELECTIVE_MARK);
    rig_post(&rig, SW_REQUEST_WRITE, 512, 0);
    rig_post(&rig, SW_REQUEST_SEND, 16, SW_REQUEST_FENCE);
    rig_post(&rig, SW_REQUEST_WRITE, 512, 0);
    for (uint32_t i = 0; i < 3; i++)
        rig_sends(&rig, i % 2 ? SEND_ONLY : WRITE_ONLY, 101 + i);
}

/* The peer tells of the gap as soon as it sees it. That is no loss, and no path that reorders. */
static void deferred__a_gap_on_purpose_is_no_loss(void **state)
{
    (void)state;
    start_with_peer(SW_SELECTIVE_MARK);
    const uint32_t window = sw_congestion_window(&rig.r.congestion);
    post_answers(5);
    assert_int_equal(rig_drain(&rig), 10);
    rig.now_ns += 100000;
    rig_hint(&rig, 102, 0x55); /* 103, 105, 107, 109 are there: proof enough, where it is loss */
    rig_done(&rig, 2);
    assert_int_equal(rig.r.counts.gaps, 1);
    rig_sends_nothing(&rig);
    rig.now_ns += 1000;
    rig_ack(&rig, 110);
    rig_done(&rig, 11);
    rig_sends_nothing(&rig);
    assert_int_equal(rig.r.counts.resent, 0);
    assert_false(rig.r.reorders);
    assert_true(sw_congestion_window(&rig.r.congestion) >= window);
}

/* Packets that were sent after it have arrived, so it is. */
static void deferred__one_that_is_lost_is_sent_again(void **state)
{
    (void)state;
    start_with_peer(SW_SELECTIVE_MARK);
    post_answers(2);
    assert_int_equal(rig_drain(&rig), 4);
    rig.now_ns += 10000;
    for (uint32_t i = 0; i < 3; i++)
        rig_post(&rig, SW_REQUEST_SEND, 8, 0);
    assert_int_equal(rig_drain(&rig), 3);
    rig.now_ns += 100000;
    rig_hint(&rig, 102, 0x3d); /* all but 102 and 104 */
    rig_sends(&rig, SEND_ONLY, 102);
    rig_sends(&rig, SEND_ONLY, 104);
    rig_sends_nothing(&rig);
    assert_int_equal(rig.r.counts.resent, 2);
}

/* A peer of ours that has no room for what comes early: from there on all leaves in order. */
static void deferred__not_to_a_peer_that_keeps_nothing(void **state)
{
    (void)state;
    start_with_peer(SW_SELECTIVE_MARK);
    post_answers(3);
    assert_int_equal(rig_drain(&rig), 6);
    rig.now_ns += 100000;
    rig_answer(&rig, ACK, 102, RIG_NAK_PSN, 0);
    for (uint32_t i = 0; i < 5; i++)
        rig_sends(&rig, i % 2 ? WRITE_ONLY : SEND_ONLY, 102 + i);
    rig_ack(&rig, 106);
    rig_done(&rig, 7);
    post_answers(2);
    for (uint32_t i = 0; i < 4; i++)
        rig_sends(&rig, i % 2 ? SEND_ONLY : WRITE_ONLY, 107 + i);
}

/* The timer runs out while some wait: they are sent once. */
static void deferred__all_is_sent_again_once(void **state)
{
    (void)state;
    start_with_peer(SW_SELECTIVE_MARK);
    post_answers(3);
    rig_sends(&rig, WRITE_ONLY, 101);
    rig_sends(&rig, WRITE_ONLY, 103); /* 102 waits, and 104 will */
    assert_true(sw_requester_has_unsent(&rig.r));
    while (rig.r.counts.timeouts == 0)
        rig_tick(&rig);
    for (uint32_t i = 0; i < 6; i++) { /* one at a time, by then */
        while (!sw_requester_next(&rig.r, rig.now_ns, &rig.out))
            rig.now_ns += 100000;
        assert_int_equal(rig.out.packet.bth.psn, 101 + i);
        rig_ack(&rig, 101 + i);
    }
    rig_done(&rig, 7);
    rig_sends_nothing(&rig);
}

/* A queue pair that is stopped sends what has its PSN. */
static void deferred__what_waits_has_begun(void **state)
{
    (void)state;
    start_with_peer(SW_SELECTIVE_MARK);
    post_answers(2);
    rig_sends(&rig, WRITE_ONLY, 101);
    rig_sends(&rig, WRITE_ONLY, 103);
    sw_requester_pause(&rig.r, true);
    rig_sends(&rig, SEND_ONLY, 102);
    rig_sends_nothing(&rig); /* 104 has not begun */
    rig_ack(&rig, 103);
    assert_true(sw_requester_is_drained(&rig.r));
}

static struct sw_requester machine;
static struct sw_request requests[128];

/* As many as share a message wait, and no more. */
static void deferred__not_for_more_than_a_message(void **state)
{
    (void)state;
    static const struct {
        uint32_t mtu_bytes, at_once;
    } rows[] = {{4096, 15}, {1024, 60}};
    for (uint32_t row = 0; row < 2; row++) {
        struct sw_requester_config config = rig_requester_config();
        struct sw_emission out;
        config.mtu_bytes = rows[row].mtu_bytes;
        sw_requester_init(&machine, &config, requests, 128);
        machine.peer_selective = true;
        machine.congestion.window = 1000 << 10;
        for (uint32_t i = 0; i < 128; i++) {
            const struct sw_request request = {.kind = i % 2 ? SW_REQUEST_SEND : SW_REQUEST_WRITE,
                                               .len_bytes = i % 2 ? 16 : config.mtu_bytes};
            assert_true(sw_requester_post(&machine, &request));
        }
        for (uint32_t i = 0; i < rows[row].at_once; i++) {
            assert_true(sw_requester_next(&machine, 1000, &out));
            assert_int_equal(out.packet.bth.psn, RIG_PSN + 2 * i);
        }
        for (uint32_t i = 0; i < rows[row].at_once; i++) {
            assert_true(sw_requester_next(&machine, 1000, &out));
            assert_int_equal(out.packet.bth.psn, RIG_PSN + 2 * i + 1);
        }
        assert_true(sw_requester_next(&machine, 1000, &out));
        assert_int_equal(out.packet.bth.psn, RIG_PSN + 2 * rows[row].at_once);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(deferred__short_packets_leave_behind_the_long_ones),
        cmocka_unit_test(deferred__plain_peers_get_all_in_order),
        cmocka_unit_test(deferred__only_within_a_burst),
        cmocka_unit_test(deferred__nothing_of_another_length_or_kind_goes_before),
        cmocka_unit_test(deferred__a_fence_keeps_its_place),
        cmocka_unit_test(deferred__a_gap_on_purpose_is_no_loss),
        cmocka_unit_test(deferred__one_that_is_lost_is_sent_again),
        cmocka_unit_test(deferred__not_to_a_peer_that_keeps_nothing),
        cmocka_unit_test(deferred__all_is_sent_again_once),
        cmocka_unit_test(deferred__what_waits_has_begun),
        cmocka_unit_test(deferred__not_for_more_than_a_message),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
