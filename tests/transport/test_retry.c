/* SPDX-License-Identifier: BSD-2-Clause */
/* When the requester gives up, and when not: what its user knows of the peer's process. */
#include "transport/rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MS 1000000ull

static struct rig rig;

/* The peer lives and does not run: it is asked on, but not often, and not given up. */
static void retry__silence_that_is_excused_does_not_count(void **state)
{
    (void)state;
    struct sw_requester_config config = rig_requester_config();
    config.timeout = 8;
    config.retry_cnt = 1;
    rig_start(&rig, &config, NULL);
    rig_post(&rig, SW_REQUEST_SEND, 8, 0);
    const uint64_t begun_ns = rig.now_ns;
    rig.r.retry.peer = SW_RETRY_PEER_WAITS;
    uint32_t sent = rig_drain(&rig);
    while (rig.now_ns < begun_ns + 10000 * MS) {
        rig_tick(&rig);
        assert_int_equal(rig.progress.failure, SW_FAILURE_NONE);
        sent += rig_drain(&rig);
    }
    assert_true(sent >= 20 && sent < 40); /* twice a second */
    rig.r.retry.peer = SW_RETRY_PEER_UNKNOWN;
    for (int i = 0; i < 4 && rig.progress.failure == SW_FAILURE_NONE; i++) {
        rig_tick(&rig);
        rig_drain(&rig);
    }
    rig_failed(&rig, SW_FAILURE_RETRY, 0);
}

/* How long a request without retries is asked for, and how often. */
static uint64_t patience(enum sw_retry_peer peer, uint64_t most_ns, uint32_t *sent)
{
    struct sw_requester_config config = rig_requester_config();
    config.timeout = 1;
    config.retry_cnt = 0;
    rig_start(&rig, &config, NULL);
    rig_post(&rig, SW_REQUEST_SEND, 8, 0);
    const uint64_t begun_ns = rig.now_ns;
    *sent = rig_drain(&rig);
    while (rig.progress.failure == SW_FAILURE_NONE && rig.now_ns < begun_ns + most_ns) {
        rig.r.retry.peer = peer;
        rig_tick(&rig);
        *sent += rig_drain(&rig);
    }
    return rig.now_ns - begun_ns;
}

static void retry__who_runs_may_pause(void **state)
{
    (void)state;
    uint32_t sent;
    assert_true(patience(SW_RETRY_PEER_UNKNOWN, 1000 * MS, &sent) < MS);
    const uint64_t patience_ns = patience(SW_RETRY_PEER_RUNS, 1000 * MS, &sent);
    assert_true(patience_ns >= 200 * MS && patience_ns < 400 * MS);
    assert_true(sent < 50);
}

/* It may be starved, and be known to live soon. */
static void retry__who_was_met_just_now_is_not_given_up(void **state)
{
    (void)state;
    uint32_t sent;
    assert_true(patience(SW_RETRY_PEER_MET, 1000 * MS, &sent) >= 1000 * MS);
    assert_true(sent < 200);
    rig.r.retry.peer = SW_RETRY_PEER_UNKNOWN; /* its silence has counted */
    rig_tick(&rig);
    rig_failed(&rig, SW_FAILURE_RETRY, 0);
}

/* Lets the timer run out, so much late, and returns whether it goes on. */
static bool run_out(struct sw_retry *retry, enum sw_retry_peer peer, uint64_t late_ns)
{
    retry->peer = peer;
    return sw_retry_expire(retry, sw_retry_due_ns(retry) + late_ns);
}

/* This process is starved, or the peer was when the timer began. */
static void retry__a_timer_of_who_runs_counts_little_if_found_late(void **state)
{
    (void)state;
    struct sw_retry retry;
    for (int late = 0; late < 2; late++) {
        sw_retry_init(&retry, 17, 0, 7); /* twice 537 ms */
        retry.backoff = 10;
        sw_retry_start(&retry, 1000 * MS);
        int count = 0;
        while (count < 100 && run_out(&retry, SW_RETRY_PEER_RUNS, late ? 60 * MS : MS))
            count++;
        assert_true(late ? count >= 10 && count < 100 : count < 6);
    }
}

/* It ran at one moment each time, and may have been stopped for the rest. */
static void retry__who_runs_is_asked_several_times(void **state)
{
    (void)state;
    struct sw_retry retry;
    sw_retry_init(&retry, 17, 0, 7); /* twice 537 ms */
    retry.backoff = 10;
    sw_retry_start(&retry, 1000 * MS);
    int count = 1;
    while (count < 100 && run_out(&retry, SW_RETRY_PEER_RUNS, 0))
        count++;
    assert_true(count >= 4);
    assert_true(retry.started_ns < 1000 * MS + 4 * 537 * MS); /* IBTA Vol1 C9-141 */
}

/* It was starved before the two had a connection, and answers questions before requests. */
static void retry__silence_before_a_peer_is_known_to_live_is_forgotten(void **state)
{
    (void)state;
    static const enum sw_retry_peer lives[] = {SW_RETRY_PEER_RUNS, SW_RETRY_PEER_WAITS};
    for (int i = 0; i < 2; i++) {
        struct sw_retry retry;
        sw_retry_init(&retry, 14, 0, 7);
        sw_retry_start(&retry, 1000 * MS);
        for (int j = 0; j < 100; j++)
            assert_true(run_out(&retry, SW_RETRY_PEER_MET, 0));
        assert_true(run_out(&retry, lives[i], 0));
        assert_true(run_out(&retry, SW_RETRY_PEER_RUNS, 0));
        int count = 0;
        while (count < 100 && run_out(&retry, SW_RETRY_PEER_RUNS, 0))
            count++;
        assert_true(count < 10); /* but not what comes then */
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(retry__silence_that_is_excused_does_not_count),
        cmocka_unit_test(retry__who_runs_may_pause),
        cmocka_unit_test(retry__who_was_met_just_now_is_not_given_up),
        cmocka_unit_test(retry__a_timer_of_who_runs_counts_little_if_found_late),
        cmocka_unit_test(retry__who_runs_is_asked_several_times),
        cmocka_unit_test(retry__silence_before_a_peer_is_known_to_live_is_forgotten),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
