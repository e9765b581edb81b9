/* SPDX-License-Identifier: BSD-2-Clause */
/* How long a requester waits for answers, and how often it tries. */
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

static void requester__rnr_waits_and_sends_again(void **state)
{
    (void)state;
    rig_start_requester(&rig, false);
    rig_post(&rig, SW_REQUEST_SEND, 8, 0);
    rig_post(&rig, SW_REQUEST_SEND, 8, 0);
    assert_int_equal(rig_drain(&rig), 2);
    rig_answer(&rig, 0x11, 100, 0x20 | 14, 0);
    rig_sends_nothing(&rig);
    assert_true(sw_requester_due_ns(&rig.r) == rig.now_ns + sw_rnr_timer_ns(14));
    rig.now_ns += sw_rnr_timer_ns(14) - 1;
    rig_sends_nothing(&rig);
    rig.now_ns += 1;
    rig_sends(&rig, 0x04, 100);
    rig_sends(&rig, 0x04, 101);
    rig_ack(&rig, 101);
    rig_done(&rig, 2);
}

/* Returns how many RNR NAKs in a row it takes to fail. */
static uint32_t count_rnr(uint8_t rnr_retry, uint32_t limit)
{
    struct sw_requester_config config = rig_requester_config();
    config.rnr_retry = rnr_retry;
    rig_start(&rig, &config, NULL);
    rig_post(&rig, SW_REQUEST_SEND, 8, 0);
    for (uint32_t count = 1; count <= limit; count++) {
        rig_sends(&rig, 0x04, 100);
        rig_answer(&rig, 0x11, 100, 0x20 | 1, 0);
        if (rig.progress.failure != SW_FAILURE_NONE) {
            rig_failed(&rig, SW_FAILURE_RNR_RETRY, 0);
            return count;
        }
        rig.now_ns += sw_rnr_timer_ns(1);
    }
    return 0;
}

static void requester__rnr_retry_is_a_limit_and_seven_is_none(void **state)
{
    (void)state;
    assert_int_equal(count_rnr(0, 10), 1);
    assert_int_equal(count_rnr(2, 10), 3);
    assert_int_equal(count_rnr(6, 10), 7);
    assert_int_equal(count_rnr(7, 1000), 0);
}

static void requester__progress_resets_the_rnr_count(void **state)
{
    (void)state;
    rig_start_requester(&rig, false); /* rnr_retry is 2 */
    for (uint32_t i = 0; i < 10; i++) {
        rig_post(&rig, SW_REQUEST_SEND, 8, 0);
        rig_sends(&rig, 0x04, 100 + i);
        for (int k = 0; k < 2; k++) {
            rig_answer(&rig, 0x11, 100 + i, 0x20 | 1, 0);
            rig.now_ns += sw_rnr_timer_ns(1);
            rig_sends(&rig, 0x04, 100 + i);
        }
        rig_ack(&rig, 100 + i);
        rig_done(&rig, i + 1);
    }
}

/* Lets a lone request run out of time; returns after how long it fails, and how often it was sent.
 */
static uint64_t time_out(uint8_t timeout, uint8_t retry_cnt, uint64_t least_ns, uint32_t *sent)
{
    struct sw_requester_config config = rig_requester_config();
    config.patience_min_ns = least_ns;
    config.timeout = timeout;
    config.retry_cnt = retry_cnt;
    rig_start(&rig, &config, NULL);
    rig_post(&rig, SW_REQUEST_SEND, 8, 0);
    uint64_t begun = rig.now_ns;
    *sent = rig_drain(&rig);
    for (int i = 0; i < 100; i++) {
        rig_tick(&rig);
        if (rig.progress.failure != SW_FAILURE_NONE) {
            rig_failed(&rig, SW_FAILURE_RETRY, 0);
            return rig.now_ns - begun;
        }
        *sent += rig_drain(&rig);
    }
    return 0;
}

static void requester__is_as_patient_as_hardware(void **state)
{
    (void)state;
    uint32_t sent;
    for (uint8_t timeout = 8; timeout < 20; timeout += 3)
        for (uint8_t retry_cnt = 0; retry_cnt <= 7; retry_cnt++) {
            uint64_t unit = 4096ull << timeout, took = time_out(timeout, retry_cnt, 0, &sent);
            assert_true(took == 2 * unit * (retry_cnt + 1u));
            assert_true(sent > retry_cnt);
        }
    assert_true(time_out(0, 1, 0, &sent) == 0); /* for ever */
    assert_int_equal(sent, 101);
}

static void requester__short_timers_have_a_least_patience(void **state)
{
    (void)state;
    uint32_t sent;
    for (uint8_t timeout = 8; timeout <= 10; timeout++) {
        assert_true(time_out(timeout, 0, 500 * MS, &sent) == 1000 * MS);
        assert_true(time_out(timeout, 3, 500 * MS, &sent) == 1000 * MS);
    }
    assert_true(time_out(17, 1, 500 * MS, &sent) == 4 * (4096ull << 17)); /* enough by itself */
    assert_true(time_out(0, 1, 500 * MS, &sent) == 0);
}

static void requester__progress_resets_the_retries(void **state)
{
    (void)state;
    rig_start_requester(&rig, false); /* timeout 14: 67 ms, two retries */
    for (uint32_t i = 0; i < 14; i++)
        rig_post(&rig, SW_REQUEST_SEND, 8, 0);
    rig_drain(&rig);
    for (uint32_t i = 0; i < 14; i++) {
        rig.now_ns += 150 * MS;
        sw_requester_tick(&rig.r, rig.now_ns, &rig.progress);
        rig_drain(&rig);
        rig_ack(&rig, 100 + i);
        rig_done(&rig, i + 1);
    }
}

/* For how long it waits for a lone request whose peer says the last ACK again, each time that the
 * request comes again. 0: for longer than a minute. */
static uint64_t wait_for_work(enum sw_request_kind kind, bool selective, uint32_t ack)
{
    if (selective)
        rig_start_with_peer(&rig);
    else
        rig_start_requester(&rig, false);
    rig_post(&rig, kind, 8, 0);
    rig_drain(&rig);
    const uint64_t begun = rig.now_ns;
    while (rig.now_ns - begun < 60000 * MS) {
        rig_tick(&rig);
        if (rig.progress.failure != SW_FAILURE_NONE)
            return rig.now_ns - begun;
        if (rig_drain(&rig))
            rig_ack(&rig, rig.r.flight.una - ack);
    }
    return 0;
}

static void requester__a_peer_may_take_its_time_for_a_flush(void **state)
{
    (void)state;
    assert_true(wait_for_work(SW_REQUEST_FLUSH, true, 1) == 0);
    assert_true(wait_for_work(SW_REQUEST_FLUSH, true, 2) > 0); /* says nothing new */
    assert_true(wait_for_work(SW_REQUEST_FLUSH, false, 1) > 0);
    assert_true(wait_for_work(SW_REQUEST_SEND, true, 1) > 0);
}

static void requester__the_timer_follows_the_round_trip(void **state)
{
    (void)state;
    rig_start_requester(&rig, true);
    assert_true(sw_retry_timer_ns(&rig.r.retry) >= 64 * MS); /* nothing known of the peer */
    rig_start_with_peer(&rig);
    assert_true(rig.r.retry.srtt_ns > 99800 && rig.r.retry.srtt_ns < 100200);
    assert_true(sw_retry_timer_ns(&rig.r.retry) == 8 * MS); /* the floor */
    for (uint32_t i = 0; i < 30; i++) {
        rig_post(&rig, SW_REQUEST_SEND, 8, 0);
        rig_sends(&rig, 0x04, 101 + i);
        rig.now_ns += 30 * MS;
        rig_ack(&rig, 101 + i);
    }
    assert_true(sw_retry_timer_ns(&rig.r.retry) > 30 * MS);
    assert_true(sw_retry_timer_ns(&rig.r.retry) < 50 * MS);
}

/* A guest that is emulated, on a busy host, answers in a tenth of a millisecond or in forty. */
static void requester__a_plain_peer_has_the_time_of_hardware(void **state)
{
    (void)state;
    struct sw_requester_config config = rig_requester_config();
    rig_start_requester(&rig, false);
    rig_post(&rig, SW_REQUEST_SEND, 8, 0);
    rig_sends(&rig, 0x04, 100);
    rig.now_ns += MS / 10;
    rig_ack(&rig, 100);
    assert_true(sw_retry_timer_ns(&rig.r.retry) == 64 * MS);
    config.timeout = 11;
    rig_start(&rig, &config, NULL);
    assert_true(sw_retry_timer_ns(&rig.r.retry) == 4096ull << 11); /* never longer than that */
}

/* It cannot be told whose answer it was that came, and the next packet would be sent too early
 * again.
 */
static void requester__the_timer_stays_long_until_something_is_measured(void **state)
{
    (void)state;
    rig_start_with_peer(&rig);
    rig_post(&rig, SW_REQUEST_SEND, 8, 0);
    rig_sends(&rig, 0x04, 101);
    const uint64_t timer_ns = sw_retry_timer_ns(&rig.r.retry);
    while (rig.r.counts.timeouts < 2) {
        rig_tick(&rig);
        rig_drain(&rig);
    }
    rig_ack(&rig, 101);
    assert_true(sw_retry_timer_ns(&rig.r.retry) == 4 * timer_ns);
    rig.now_ns += 100 * MS; /* after a timeout it goes slowly */
    rig_post(&rig, SW_REQUEST_SEND, 8, 0);
    rig_sends(&rig, 0x04, 102);
    rig.now_ns += 2 * timer_ns;
    rig_ack(&rig, 102);
    assert_true(rig.r.retry.srtt_ns > timer_ns / 4);
    assert_true(sw_retry_timer_ns(&rig.r.retry) > 2 * timer_ns);
    assert_true(sw_retry_timer_ns(&rig.r.retry) < 4 * timer_ns);
}

/* A process that was stopped for long has not waited for its peer meanwhile. */
static void requester__time_in_which_nobody_looked_is_no_silence(void **state)
{
    (void)state;
    rig_start_requester(&rig, false);
    rig_post(&rig, SW_REQUEST_SEND, 8, 0);
    rig_drain(&rig);
    rig.now_ns += 100000 * MS;
    sw_requester_tick(&rig.r, rig.now_ns, &rig.progress);
    assert_int_equal(rig.progress.failure, SW_FAILURE_NONE);
    assert_int_equal(rig_drain(&rig), 1);
    rig_ack(&rig, 100);
    rig_done(&rig, 1);
}

static void requester__what_was_sent_twice_is_not_measured(void **state)
{
    (void)state;
    rig_start_with_peer(&rig);
    rig_post(&rig, SW_REQUEST_SEND, 8, 0);
    rig_sends(&rig, 0x04, 101);
    uint64_t before = rig.r.retry.srtt_ns;
    rig_answer(&rig, 0x11, 101, RIG_NAK_PSN, 0);
    rig_sends(&rig, 0x04, 101);
    rig.now_ns += 50 * MS;
    rig_ack(&rig, 101);
    rig_done(&rig, 2);
    assert_true(rig.r.retry.srtt_ns == before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(requester__rnr_waits_and_sends_again),
        cmocka_unit_test(requester__rnr_retry_is_a_limit_and_seven_is_none),
        cmocka_unit_test(requester__progress_resets_the_rnr_count),
        cmocka_unit_test(requester__is_as_patient_as_hardware),
        cmocka_unit_test(requester__short_timers_have_a_least_patience),
        cmocka_unit_test(requester__progress_resets_the_retries),
        cmocka_unit_test(requester__a_peer_may_take_its_time_for_a_flush),
        cmocka_unit_test(requester__the_timer_follows_the_round_trip),
        cmocka_unit_test(requester__a_plain_peer_has_the_time_of_hardware),
        cmocka_unit_test(requester__the_timer_stays_long_until_something_is_measured),
        cmocka_unit_test(requester__time_in_which_nobody_looked_is_no_silence),
        cmocka_unit_test(requester__what_was_sent_twice_is_not_measured),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
