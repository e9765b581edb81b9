/* SPDX-License-Identifier: BSD-2-Clause */
/* What gets through a bottleneck of 40 Gb/s with 30 us of round trip, by the virtual clock: the
 * numbers are the same on any machine. */
#include "transport/pair.h"
#include "transport/rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { REQUESTS = 1500, LEN = 65536, PERCENT = 655 /* of 65536 */ };

struct result {
    double gbps;
    uint64_t resent, timeouts, dropped;
};

static struct result transfer(bool selective, enum sw_request_kind kind, struct pair_faults faults)
{
    struct sw_requester_config requester = pair_requester_config;
    struct sw_responder_config responder = pair_responder_config;
    requester.offer_selective = responder.offer_selective = selective;
    requester.mtu_bytes = responder.mtu_bytes = 4096;
    requester.max_rd_atomic = responder.max_dest_rd_atomic = 16;
    struct pair *p = pair_new(&requester, &responder, 7);
    faults.delay_ns = 15000;
    faults.byte_ns_1024 = 1024 * 8 / 40;
    p->faults = faults;
    uint64_t begun = p->now_ns;
    for (uint32_t posted = 0; posted < REQUESTS; posted++) {
        while (p->requester.tail - p->requester.done == PAIR_ENTRIES)
            assert_true(pair_step(p));
        pair_post(p, kind, 0, LEN, 1, 0);
    }
    while (!sw_requester_is_idle(&p->requester)) {
        assert_true(pair_step(p));
        assert_int_equal(p->failure, SW_FAILURE_NONE);
    }
    struct result result = {.gbps = (double)REQUESTS * LEN * 8 / (double)(p->now_ns - begun),
                            .resent = p->requester.counts.resent,
                            .timeouts = p->requester.counts.timeouts,
                            .dropped = p->dropped};
    pair_free(p);
    return result;
}

static const struct pair_faults clean = {.queue_ns = 2000000};

static void loss__a_clean_path_is_filled_and_nothing_sent_twice(void **state)
{
    (void)state;
    for (int selective = 0; selective < 2; selective++) {
        struct result write = transfer(selective, SW_REQUEST_WRITE, clean);
        struct result read = transfer(selective, SW_REQUEST_READ, clean);
        assert_true(write.gbps > 37 && read.gbps > 37);
        assert_int_equal(write.resent + read.resent, 0);
    }
}

static void loss__one_percent_costs_little_with_selective_repeat(void **state)
{
    (void)state;
    struct pair_faults faults = clean;
    faults.loss = PERCENT;
    struct result write = transfer(true, SW_REQUEST_WRITE, faults);
    assert_true(write.gbps > 0.85 * 39);
    struct result read = transfer(true, SW_REQUEST_READ, faults);
    assert_true(read.gbps > 0.7 * 39);
}

static void loss__one_percent_is_survived_with_go_back_n(void **state)
{
    (void)state;
    struct pair_faults faults = clean;
    faults.loss = PERCENT;
    assert_true(transfer(false, SW_REQUEST_WRITE, faults).gbps > 4);
    assert_true(transfer(false, SW_REQUEST_READ, faults).gbps > 4);
}

static void loss__reordering_is_not_taken_for_loss(void **state)
{
    (void)state;
    struct pair_faults faults = clean;
    faults.reorder = 2 * PERCENT;
    faults.reorder_ns = 50000;
    struct result write = transfer(true, SW_REQUEST_WRITE, faults);
    assert_true(write.gbps > 37);
    assert_true(write.resent < REQUESTS * 16 / 200); /* a quarter of those that are late */
}

static void loss__a_short_queue_is_found_out(void **state)
{
    (void)state;
    struct pair_faults faults = {.queue_ns = 40000};
    struct result write = transfer(true, SW_REQUEST_WRITE, faults);
    assert_true(write.dropped > 0);
    assert_true(write.dropped < REQUESTS * 16 / 10);
    assert_true(write.gbps > 30);
}

/* As a kernel in an emulated guest: mostly quick, and now and then not there for tens of
 * milliseconds. */
static void loss__a_slow_peer_is_waited_for(void **state)
{
    (void)state;
    enum { MESSAGES = 100000 };
    struct sw_requester_config requester = pair_requester_config;
    struct sw_responder_config responder = pair_responder_config;
    requester.offer_selective = responder.offer_selective = false;
    struct pair *p = pair_new(&requester, &responder, 7);
    for (uint32_t i = 0; i < MESSAGES; i++) {
        p->faults.delay_ns = i % 1000 ? 50000 + i % 7 * 100000 : 25000000;
        pair_post(p, SW_REQUEST_WRITE, 0, 8, 1, 0);
        while (!sw_requester_is_idle(&p->requester))
            assert_true(pair_step(p));
    }
    assert_int_equal(p->requester.counts.resent, 0);
    assert_int_equal(p->requester.counts.timeouts, 0);
    pair_free(p);
}

/* After timeouts a long round trip makes a slow pace. It is not slower than the timer, or requests
 * would fail by a silence in which nothing was asked. */
static void loss__a_pace_is_no_silence(void **state)
{
    (void)state;
    enum { MS = 1000000, QUICK = 2 * MS, SLOW = 60 * MS, MEASURED = 20, MESSAGES = 30, COPIES = 5 };
    struct sw_requester_config config = rig_requester_config(); /* 67 ms, two retries */
    config.offer_selective = false;
    static struct rig rig;
    rig_start(&rig, &config, NULL);
    for (uint32_t i = 0; i < MESSAGES; i++) { /* of the last ones the fifth copy is answered */
        rig_post(&rig, SW_REQUEST_SEND, 8, 0);
        const uint32_t answered = i < MEASURED ? 1 : COPIES;
        for (uint32_t copies = rig_drain(&rig); copies < answered; copies += rig_drain(&rig)) {
            rig_tick(&rig);
            rig_done(&rig, i); /* it has not failed */
        }
        assert_true(answered == 1 || rig.r.congestion.window < 1024); /* less than a packet */
        rig.now_ns += i > 0 && i < MEASURED ? SLOW : QUICK;
        rig_ack(&rig, RIG_PSN + i);
        rig_done(&rig, i + 1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(loss__a_clean_path_is_filled_and_nothing_sent_twice),
        cmocka_unit_test(loss__one_percent_costs_little_with_selective_repeat),
        cmocka_unit_test(loss__one_percent_is_survived_with_go_back_n),
        cmocka_unit_test(loss__reordering_is_not_taken_for_loss),
        cmocka_unit_test(loss__a_short_queue_is_found_out),
        cmocka_unit_test(loss__a_slow_peer_is_waited_for),
        cmocka_unit_test(loss__a_pace_is_no_silence),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
