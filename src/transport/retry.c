/* SPDX-License-Identifier: BSD-2-Clause */
#include "transport/retry.h"

#include "base/minmax.h"
#include "wire/ib_time.h"

#define MS 1000000ull
#define FIRST_TIMER (40 * MS) /* while nothing has been measured */
#define MIN_AGE (5000 * MS)   /* after which the shortest round trip is found anew */
#define PROBE_MIN (MS / 5)
#define EXCUSED_MAX (500 * MS) /* who does not run is asked again no more often than needed */
#define KNOWN_MAX (10 * MS)    /* who lives is not flooded, however short `timeout` is */
#define LATE_MAX (50 * MS)     /* a timer that is found later was not looked at */
#define PAUSE_MAX (200 * MS)   /* for one that runs: between answers about it and to requests */
enum { BACKOFF_MAX = 10, RNR_FOREVER = 7, PATIENCE = 2, MOMENTS = 4 };

void sw_retry_init(struct sw_retry *t, uint8_t timeout, uint8_t retry_cnt, uint8_t rnr_retry)
{
    *t = (struct sw_retry){
        .timeout_ns = timeout ? sw_ib_time_ns(timeout) : 0,
        .retry_cnt = retry_cnt,
        .rnr_retry = rnr_retry,
    };
}

void sw_retry_measure(struct sw_retry *t, uint64_t rtt_ns, uint64_t now_ns)
{
    t->backoff = 0;
    if (t->srtt_ns == 0) {
        t->srtt_ns = rtt_ns ? rtt_ns : 1;
        t->var_ns = rtt_ns / 2;
    } else {
        uint64_t off = rtt_ns > t->srtt_ns ? rtt_ns - t->srtt_ns : t->srtt_ns - rtt_ns;
        t->var_ns = (3 * t->var_ns + off) / 4;
        t->srtt_ns = (7 * t->srtt_ns + rtt_ns) / 8;
        t->srtt_ns += t->srtt_ns == 0;
    }
    if (t->min_ns == 0 || rtt_ns <= t->min_ns || now_ns - t->min_since_ns > MIN_AGE) {
        t->min_ns = rtt_ns ? rtt_ns : 1;
        t->min_since_ns = now_ns;
    }
}

void sw_retry_at_least(struct sw_retry *t, uint64_t product_ns)
{
    if (t->timeout_ns)
        t->timeout_ns = sw_max_u64(t->timeout_ns, product_ns / (t->retry_cnt + 1u));
}

/* How long silence lasts until it is time to give up. */
static uint64_t retry_patience_ns(const struct sw_retry *t)
{
    return t->timeout_ns * PATIENCE * (t->retry_cnt + 1ull);
}

uint64_t sw_retry_timer_ns(const struct sw_retry *t)
{
    uint64_t timer = t->srtt_ns ? t->srtt_ns + 4 * t->var_ns : FIRST_TIMER;
    if (timer < t->floor_ns)
        timer = t->floor_ns;
    timer <<= sw_min_u32(t->backoff, BACKOFF_MAX);
    uint64_t most = t->timeout_ns;
    const uint64_t known = t->peer == SW_RETRY_PEER_WAITS ? EXCUSED_MAX : KNOWN_MAX;
    if (t->peer != SW_RETRY_PEER_UNKNOWN && most && most < known)
        most = known;
    if (!most)
        return timer;
    /* The last one does not go beyond the end, which would come up to half as late again. Where
     * silence does not count, no end comes nearer. */
    const uint64_t patience_ns = retry_patience_ns(t);
    if (t->silent_ns < patience_ns && t->peer != SW_RETRY_PEER_WAITS)
        most = sw_min_u64(most, patience_ns - t->silent_ns);
    return sw_min_u64(timer, most);
}

uint64_t sw_retry_probe_due_ns(const struct sw_retry *t)
{
    if (!t->running || t->probed || t->srtt_ns == 0)
        return SW_RETRY_NEVER;
    uint64_t wait = 2 * t->srtt_ns + PROBE_MIN;
    return wait < sw_retry_timer_ns(t) ? t->started_ns + wait : SW_RETRY_NEVER;
}

bool sw_retry_expire(struct sw_retry *t, uint64_t now_ns)
{
    uint64_t patience_ns = retry_patience_ns(t);
    uint64_t waited_ns = now_ns - t->started_ns, most_ns = 2 * sw_retry_timer_ns(t);
    if (t->peer == SW_RETRY_PEER_RUNS) {
        if (patience_ns < PAUSE_MAX)
            patience_ns = PAUSE_MAX;
        const uint64_t timer_ns = most_ns / 2;
        /* It ran at one moment, and may have been stopped for the rest of the time. */
        most_ns = sw_min_u64(most_ns, patience_ns / MOMENTS);
        /* One of the two has hardly run: this process, or the peer when the timer began, which was
         * a longer one then. */
        if (waited_ns > timer_ns + LATE_MAX)
            most_ns = sw_min_u64(most_ns, LATE_MAX);
    }
    if (t->peer == SW_RETRY_PEER_MET) {
        t->was_met = true;
    } else if (t->was_met && t->peer != SW_RETRY_PEER_UNKNOWN) {
        t->was_met = false;
        t->silent_ns = 0; /* it lives: before that was known it may have been starved */
    }
    if (t->peer != SW_RETRY_PEER_WAITS)
        t->silent_ns += sw_min_u64(waited_ns, most_ns);
    const bool may_give_up = t->timeout_ns && t->peer != SW_RETRY_PEER_MET;
    if (may_give_up && t->silent_ns >= patience_ns)
        return false;
    t->backoff++;
    t->started_ns = now_ns;
    return true;
}

bool sw_retry_rnr(struct sw_retry *t, uint64_t resume_ns)
{
    if (t->rnr_retry != RNR_FOREVER && t->rnr_count >= t->rnr_retry)
        return false;
    if (t->rnr_count < t->rnr_retry)
        t->rnr_count++;
    t->running = true; /* the peer lives: the timer starts when sending goes on */
    t->started_ns = t->alive_ns = resume_ns;
    t->silent_ns = 0;
    t->backoff = 0;
    return true;
}
