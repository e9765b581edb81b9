/* SPDX-License-Identifier: BSD-2-Clause */
#include "transport/congestion.h"
#include "base/minmax.h"

#define US 1000ull
#define ONE 1024u /* packet */

enum {
    WINDOW_FIRST = 32 * ONE,
    WINDOW_MIN = ONE / 16,
    DELAY_MIN = 8, /* packets, and these bytes: a late process is no congestion, ... */
    DELAY_MIN_BYTES = 256 * 1024, /* ... so delay alone takes no more */
    LATE_ROUNDS = 4,              /* in a row: that is a queue */
    ROUND_MIN = 128,              /* packets over which a loss rate is taken */
    LOSS_PART = 20,               /* of which this part, and less, is the path's own */
    ALPHA_ONE = 1 << 16,
    ALPHA_SHIFT = 8,  /* DCQCN's g: 1/256 */
    FAST_STAGES = 5,  /* of recovery, before the rate grows beyond what it was */
    CATCH_UP_MAX = 64 /* timer steps at once; more make no difference */
};
#define RATE_DEFAULT 12500000000ull
#define RATE_MIN 1250000ull   /* 10 Mb/s */
#define RATE_STEP 12500000ull /* 100 Mb/s */
#define RATE_LEAP (10 * RATE_STEP)
#define ALPHA_PERIOD (55 * US)
#define STAGE_PERIOD (55 * US)
#define STAGE_BYTES 10000000ull
#define CUT_PERIOD (50 * US)
#define SLACK_DEFAULT (300 * US)
#define PACE_BURST (10 * US) /* what may be made up for after a late look at the clock */

void sw_congestion_init(struct sw_congestion *c, const struct sw_congestion_config *config)
{
    *c = (struct sw_congestion){.config = *config, .window = WINDOW_FIRST, .threshold = UINT32_MAX};
    if (c->config.rate_max == 0)
        c->config.rate_max = RATE_DEFAULT;
    if (c->config.slack_ns == 0)
        c->config.slack_ns = SLACK_DEFAULT;
}

static void window_set(struct sw_congestion *c, uint64_t window)
{
    uint64_t max = (uint64_t)c->config.window_max * ONE;
    c->window = (uint32_t)(window > max ? max : window < WINDOW_MIN ? WINDOW_MIN : window);
}

/* Takes `part` of 1024 of the window, but leaves `least`; once in a round trip. */
static void window_cut(struct sw_congestion *c, uint32_t part, uint32_t least, uint64_t now_ns)
{
    if (now_ns - c->decreased_ns < c->rtt_ns || c->window <= least)
        return;
    c->decreased_ns = now_ns;
    uint64_t window = (uint64_t)c->window * (1024 - part) / 1024;
    window_set(c, sw_max_u64(window, least));
    c->threshold = c->window;
}

static void window_grow(struct sw_congestion *c, uint32_t packets, uint64_t now_ns)
{
    if (now_ns - c->limited_ns > 2 * c->rtt_ns)
        return; /* what was not used was not tried */
    if (c->window < c->threshold)
        window_set(c, (uint64_t)c->window + packets * ONE);
    else if (c->window >= ONE)
        window_set(c, c->window + (uint64_t)packets * ONE * ONE / c->window);
    else
        window_set(c, c->window + packets * (uint64_t)c->window / 4 + 1);
}

/* What delay alone leaves: what a link of 1 GB/s moves while a process waits 256 us for its
 * processor. */
static uint32_t delay_least(const struct sw_congestion *c)
{
    uint32_t packets = c->config.packet_bytes ? DELAY_MIN_BYTES / c->config.packet_bytes : 0;
    return sw_max_u32(packets, DELAY_MIN) * ONE;
}

/* At the end of a round: how much was lost in it. */
static void round_close(struct sw_congestion *c, uint64_t now_ns)
{
    uint32_t total = c->round_acked + c->round_lost;
    if (total < ROUND_MIN || total < c->window / ONE)
        return;
    if (c->round_lost * LOSS_PART > total)
        window_cut(c, c->round_lost * 4 > total ? 512 : 307, ONE, now_ns);
    c->round_acked = c->round_lost = 0;
}

/* One stage of recovery, by time or by bytes. */
static void rate_stage(struct sw_congestion *c)
{
    uint32_t low = sw_min_u32(c->byte_stage, c->time_stage);
    uint32_t high = sw_max_u32(c->byte_stage, c->time_stage);
    if (low > FAST_STAGES)
        c->target += RATE_LEAP * (low - FAST_STAGES);
    else if (high > FAST_STAGES)
        c->target += RATE_STEP;
    if (c->target > c->config.rate_max)
        c->target = c->config.rate_max;
    c->rate = (c->rate + c->target) / 2;
    if (c->rate + c->rate / 64 >= c->config.rate_max)
        c->paced = false;
}

static void rate_catch_up(struct sw_congestion *c, uint64_t now_ns)
{
    for (int i = 0; i < CATCH_UP_MAX && now_ns >= c->alpha_due_ns; i++) {
        c->alpha -= c->alpha >> ALPHA_SHIFT;
        c->alpha_due_ns += ALPHA_PERIOD;
    }
    for (int i = 0; i < CATCH_UP_MAX && now_ns >= c->stage_due_ns && c->paced; i++) {
        c->time_stage++;
        c->stage_due_ns += STAGE_PERIOD;
        rate_stage(c);
    }
    if (now_ns >= c->alpha_due_ns)
        c->alpha_due_ns = now_ns + ALPHA_PERIOD;
    if (now_ns >= c->stage_due_ns)
        c->stage_due_ns = now_ns + STAGE_PERIOD;
}

void sw_congestion_on_cnp(struct sw_congestion *c, uint64_t now_ns)
{
    if (!c->paced) {
        uint64_t rate = c->config.rate_max;
        if (c->rtt_ns) {
            uint64_t used = (uint64_t)c->window * c->config.packet_bytes / ONE * 1000000000ull;
            rate = sw_min_u64(used / c->rtt_ns, rate);
        }
        c->paced = true;
        c->rate = c->target = sw_max_u64(rate, RATE_MIN);
        c->alpha = ALPHA_ONE;
        c->next_ns = now_ns;
    } else if (now_ns - c->cut_ns < CUT_PERIOD) {
        return;
    } else {
        rate_catch_up(c, now_ns);
    }
    c->cut_ns = now_ns;
    c->target = c->rate;
    c->rate -= c->rate * c->alpha / (2 * ALPHA_ONE);
    if (c->rate < RATE_MIN)
        c->rate = RATE_MIN;
    c->alpha += (ALPHA_ONE - c->alpha) >> ALPHA_SHIFT;
    c->byte_stage = c->time_stage = 0;
    c->bytes = 0;
    c->alpha_due_ns = now_ns + ALPHA_PERIOD;
    c->stage_due_ns = now_ns + STAGE_PERIOD;
}

bool sw_congestion_may_send(struct sw_congestion *c, uint32_t out, uint64_t now_ns)
{
    if (c->paced)
        rate_catch_up(c, now_ns);
    if (now_ns < c->next_ns)
        return false;
    if (out < sw_congestion_window(c))
        return true;
    c->limited_ns = now_ns;
    return false;
}

bool sw_congestion_spaces(const struct sw_congestion *c)
{
    return c->paced || c->window < ONE;
}

uint64_t sw_congestion_due_ns(const struct sw_congestion *c)
{
    return c->next_ns;
}

void sw_congestion_on_send(struct sw_congestion *c, uint32_t bytes, uint64_t now_ns)
{
    if (c->paced) {
        if (c->next_ns + PACE_BURST < now_ns)
            c->next_ns = now_ns - PACE_BURST;
        c->next_ns += bytes * 1000000000ull / c->rate;
        c->bytes += bytes;
        if (c->bytes >= STAGE_BYTES) {
            c->bytes = 0;
            c->byte_stage++;
            rate_stage(c);
        }
    } else if (c->window < ONE) {
        uint64_t gap_ns = c->rtt_ns * ONE / c->window, most_ns = c->config.gap_max_ns;
        c->next_ns = now_ns + (most_ns ? sw_min_u64(gap_ns, most_ns) : gap_ns);
        c->limited_ns = now_ns;
    } else {
        c->next_ns = 0;
    }
}

/* Whether round trips have been longer than their target for some time. */
static bool is_queued(struct sw_congestion *c, bool is_late, uint64_t now_ns)
{
    if (!is_late) {
        c->late_rounds = 0;
    } else if (c->late_rounds == 0 || now_ns - c->late_ns >= c->rtt_ns) {
        c->late_rounds++;
        c->late_ns = now_ns;
    }
    return c->late_rounds >= LATE_ROUNDS;
}

void sw_congestion_on_ack(struct sw_congestion *c, uint32_t packets, uint64_t rtt_ns,
                          uint64_t min_rtt_ns, uint64_t now_ns)
{
    if (rtt_ns && rtt_ns >= min_rtt_ns) {
        c->rtt_ns = c->rtt_ns ? (7 * c->rtt_ns + rtt_ns) / 8 : rtt_ns;
        c->min_rtt_ns = min_rtt_ns;
    }
    c->window_before = 0;
    c->round_acked += packets;
    uint64_t target = c->min_rtt_ns + c->config.slack_ns;
    const uint32_t least = delay_least(c);
    const bool is_late = rtt_ns > target, queues = is_queued(c, is_late, now_ns);
    if (is_late && c->window < c->threshold && c->window >= least)
        c->threshold = c->window;                    /* the end of slow start, in any case */
    if (c->paced || !is_late || c->window < least) { /* what it does not take it does not refuse */
        window_grow(c, packets, now_ns);
    } else if (queues) {
        /* Swift: beta = 0.8 of the excess, at most half. */
        uint64_t part = (rtt_ns - target) * 819 / rtt_ns;
        window_cut(c, (uint32_t)(part < 512 ? part : 512), least, now_ns);
    }
    round_close(c, now_ns);
}

void sw_congestion_on_loss(struct sw_congestion *c, uint32_t packets, uint64_t now_ns)
{
    c->round_lost += packets;
    round_close(c, now_ns);
}

void sw_congestion_on_timeout(struct sw_congestion *c, uint64_t now_ns)
{
    if (c->window_before < c->window)
        c->window_before = c->window;
    c->decreased_ns = now_ns;
    c->threshold = sw_max_u32(c->window / 2, 2 * ONE);
    c->round_acked = c->round_lost = 0;
    window_set(c, c->window <= ONE ? c->window / 2 : ONE);
}

void sw_congestion_undo_timeout(struct sw_congestion *c)
{
    if (c->window_before > c->window)
        c->window = c->window_before;
    c->threshold = c->window;
    c->window_before = 0;
}
