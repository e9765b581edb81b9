/* SPDX-License-Identifier: BSD-2-Clause */
/* The requester with a Sidewire peer, which says what has arrived behind a gap: what is sent again,
 * and when. */
#include "transport/rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "wire/aeth.h"

#define MS 1000000ull

static struct rig rig;

static void requester__offers_selective_repeat_in_reserved_bits(void **state)
{
    (void)state;
    rig_start_requester(&rig, true);
    rig_post(&rig, SW_REQUEST_SEND, 8, 0);
    rig_sends(&rig, 0x04, 100);
    assert_int_equal(rig.out.packet.bth.reserved7, SW_SELECTIVE_MARK);
    rig_ack(&rig, 100);
    assert_false(rig.r.peer_selective);
    rig_start_requester(&rig, false);
    rig_post(&rig, SW_REQUEST_SEND, 8, 0);
    rig_sends(&rig, 0x04, 100);
    assert_int_equal(rig.out.packet.bth.reserved7, 0);
}

static void requester__a_bitmap_from_a_plain_peer_is_no_bitmap(void **state)
{
    (void)state;
    rig_start_requester(&rig, true);
    rig_post(&rig, SW_REQUEST_WRITE, 6 * RIG_MTU, 0);
    assert_int_equal(rig_drain(&rig), 6);
    rig_answer(&rig, 0x10, 100, RIG_NAK_PSN, 4);
    assert_int_equal(rig.r.flight.acked_count, 0);
    rig_sends_nothing(&rig);
}

static void requester__selective_repeat_sends_what_is_missing(void **state)
{
    (void)state;
    rig_start_with_peer(&rig);
    rig_post(&rig, SW_REQUEST_WRITE, 8 * RIG_MTU, 0);
    assert_int_equal(rig_drain(&rig), 8); /* 101 to 108 */
    rig_hint(&rig, 102, 0x16);            /* 104, 105 and 107 have arrived */
    rig_sends(&rig, 0x0a, 102);
    rig_sends(&rig, 0x0a, 103);
    rig_sends(&rig, 0x0a, 106);
    assert_true(rig.out.packet.bth.ack_req);
    rig_sends_nothing(&rig); /* 108 may still be on its way */
    rig_ack(&rig, 108);
    rig_done(&rig, 2);
}

static void requester__what_is_kept_may_still_be_refused(void **state)
{
    (void)state;
    rig_start_with_peer(&rig);
    for (int i = 0; i < 8; i++)
        rig_post(&rig, SW_REQUEST_SEND, 8, 0);
    assert_int_equal(rig_drain(&rig), 8);
    rig_hint(&rig, 101, 0x01);                /* 102 is kept */
    rig_answer(&rig, 0x11, 102, 0x20 | 1, 0); /* 101 is executed, and 102 finds no receive */
    rig_done(&rig, 2);
    rig.now_ns += sw_rnr_timer_ns(1);
    rig_sends(&rig, 0x04, 102);
    rig_drain(&rig);
    rig_hint(&rig, 102, 0x01);
    rig_ack(&rig, 102);
    rig_done(&rig, 3); /* 103 is kept, not executed */
    rig_answer(&rig, 0x11, 103, RIG_NAK_ACCESS, 0);
    assert_int_equal(rig.progress.done, 3);
    rig_failed(&rig, SW_FAILURE_NAK, RIG_NAK_ACCESS);
}

static void requester__what_was_kept_is_forgotten_in_time(void **state)
{
    (void)state;
    rig_start_with_peer(&rig);
    for (int i = 0; i < 3; i++)
        rig_post(&rig, SW_REQUEST_SEND, 8, 0);
    assert_int_equal(rig_drain(&rig), 3);
    rig_hint(&rig, 101, 0x02); /* 103 */
    while (rig.r.counts.timeouts == 0) {
        rig_tick(&rig);
        if (rig.r.counts.timeouts == 0)
            rig_drain(&rig);
    }
    rig.r.congestion.window = 32 * 1024;
    rig_sends(&rig, 0x04, 101);
    rig_sends(&rig, 0x04, 102);
    rig_sends(&rig, 0x04, 103);
}

static void requester__reordering_is_waited_for(void **state)
{
    (void)state;
    rig_start_with_peer(&rig);
    rig_post(&rig, SW_REQUEST_WRITE, 8 * RIG_MTU, 0);
    assert_int_equal(rig_drain(&rig), 8);
    rig.now_ns += 100000;
    rig_hint(&rig, 101, 0x01); /* one later packet is no proof */
    rig_sends_nothing(&rig);
    uint64_t due = sw_requester_due_ns(&rig.r);
    assert_true(due > rig.now_ns && due < rig.now_ns + 50000); /* a fraction of the round trip */
    rig.now_ns += 5000;
    rig_ack(&rig, 102); /* it was only late */
    assert_true(rig.r.reorders);
    rig_hint(&rig, 103, 0x1e); /* and now more proof is no proof at once */
    rig_sends_nothing(&rig);
    rig_tick(&rig);
    rig_sends(&rig, 0x0a, 103);
}

static void requester__a_lost_repetition_is_repeated(void **state)
{
    (void)state;
    rig_start_with_peer(&rig);
    rig_post(&rig, SW_REQUEST_WRITE, 20 * RIG_MTU, 0);
    for (int i = 0; i < 10; i++)
        assert_true(sw_requester_next(&rig.r, rig.now_ns, &rig.out));
    rig_hint(&rig, 101, 0x0f);
    rig_sends(&rig, 0x0a, 101);
    rig.now_ns += 10000;
    assert_int_equal(rig_drain(&rig), 10); /* sent after the repetition */
    rig.now_ns += 100000;
    rig_hint(&rig, 101, 0xff);
    rig_sends_nothing(&rig);
    struct sw_packet packet = rig_packet(0x10, 101, 4);
    static const uint8_t later[4] = {0xff, 0xff, 0x03, 0};
    packet.aeth.syndrome = RIG_NAK_PSN;
    packet.payload = later;
    sw_requester_receive(&rig.r, &packet, rig.now_ns, &rig.progress);
    rig_sends(&rig, 0x0a, 101);
}

static void requester__a_lost_tail_is_probed_before_the_timer(void **state)
{
    (void)state;
    rig_start_with_peer(&rig);
    rig_post(&rig, SW_REQUEST_WRITE, 8 * RIG_MTU, 0);
    assert_int_equal(rig_drain(&rig), 8);
    uint64_t begun = rig.now_ns;
    rig_tick(&rig);
    assert_true(rig.now_ns - begun < MS / 2);
    rig_sends(&rig, 0x0a, 108);
    assert_true(rig.out.packet.bth.ack_req);
    assert_true(rig.out.is_again);
    rig_sends_nothing(&rig);
    assert_int_equal(rig.r.counts.timeouts, 0);
    rig_tick(&rig);
    assert_int_equal(rig.r.counts.timeouts, 1);
}

static void requester__a_hasty_timer_is_undone(void **state)
{
    (void)state;
    rig_start_with_peer(&rig);
    rig_post(&rig, SW_REQUEST_WRITE, 8 * RIG_MTU, 0);
    assert_int_equal(rig_drain(&rig), 8);
    uint32_t window = rig.r.congestion.window;
    rig_tick(&rig);
    rig_tick(&rig);
    assert_int_equal(rig.r.counts.timeouts, 1);
    assert_true(rig.r.congestion.window < window);
    rig_ack(&rig, 104); /* nothing had been sent again yet */
    assert_true(rig.r.congestion.window >= window);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(requester__offers_selective_repeat_in_reserved_bits),
        cmocka_unit_test(requester__a_bitmap_from_a_plain_peer_is_no_bitmap),
        cmocka_unit_test(requester__selective_repeat_sends_what_is_missing),
        cmocka_unit_test(requester__what_is_kept_may_still_be_refused),
        cmocka_unit_test(requester__what_was_kept_is_forgotten_in_time),
        cmocka_unit_test(requester__reordering_is_waited_for),
        cmocka_unit_test(requester__a_lost_repetition_is_repeated),
        cmocka_unit_test(requester__a_lost_tail_is_probed_before_the_timer),
        cmocka_unit_test(requester__a_hasty_timer_is_undone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
