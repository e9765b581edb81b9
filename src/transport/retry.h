/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * When to send again, and when to give up. The round trip is measured as in RFC 6298; the timer is
 * made of it and not of the QP's `timeout`, which says how long hardware would wait: one to four
 * times as long (IBTA Vol1 9.7.6.1.3, C9-141), and is never exceeded. Nothing is given up before
 * twice `timeout` has passed `retry_cnt` + 1 times without a sign of life: a peer in software may
 * have to wait for a processor. Nor does time count in which nobody was there to look: of a timer
 * that is found to have run out long ago, no more than twice its time, and little where the peer
 * is known to run, since one of the two hardly did. Nor does that of a peer who is known to live
 * and not to have run since (SW_RETRY_PEER_WAITS): it may be stopped for as long as it is.
 */
#ifndef SW_TRANSPORT_RETRY_H
#define SW_TRANSPORT_RETRY_H

#include <stdbool.h>
#include <stdint.h>

#define SW_RETRY_NEVER UINT64_MAX

/* What is known of the peer's process beside its packets. */
enum sw_retry_peer {
    SW_RETRY_PEER_UNKNOWN,
    SW_RETRY_PEER_MET,   /* only just: silence counts, but nothing is given up for now */
    SW_RETRY_PEER_WAITS, /* for a processor: silence does not count */
    SW_RETRY_PEER_RUNS   /* silence counts, but a little of it may be no more than a pause */
};

struct sw_retry {
    uint64_t timeout_ns; /* 0: for ever */
    uint64_t floor_ns;   /* the timer is never shorter */
    uint64_t srtt_ns;    /* 0: nothing measured yet */
    uint64_t var_ns;
    uint64_t min_ns; /* the shortest of the last seconds */
    uint64_t min_since_ns;
    uint64_t alive_ns;   /* last sign of life, or since when one is waited for */
    uint64_t started_ns; /* of the running timer */
    uint64_t silent_ns;  /* of timers that have run out since the last sign of life */
    uint32_t backoff;    /* how often the timer has run out since a round trip was measured */
    uint8_t retry_cnt;
    uint8_t rnr_retry; /* 7: for ever */
    uint8_t rnr_count; /* RNR NAKs without progress */
    bool running;
    enum sw_retry_peer peer;
    bool was_met; /* silent_ns may have time of SW_RETRY_PEER_MET */
    bool probed;  /* the tail has been asked for since the last progress */
};

/* The floor is the caller's to set. */
void sw_retry_init(struct sw_retry *t, uint8_t timeout, uint8_t retry_cnt, uint8_t rnr_retry);

/* The product of sw_retry_init(), timeout x (retry_cnt + 1), counts as `product_ns`, unless it is
 * more or for ever. */
void sw_retry_at_least(struct sw_retry *t, uint64_t product_ns);

/* A packet was sent: the timer runs from now on, if it did not. */
static inline void sw_retry_start(struct sw_retry *t, uint64_t now_ns)
{
    if (t->running)
        return;
    t->running = true;
    t->started_ns = t->alive_ns = now_ns;
    t->silent_ns = 0;
}

/* Something new was acknowledged; `more`: and other things are still on their way. The timer stays
 * as long as it has become: what was sent twice tells nothing of the round trip, and may have been
 * sent again too early (RFC 6298 section 5, Karn). */
static inline void sw_retry_progress(struct sw_retry *t, bool more, uint64_t now_ns)
{
    t->running = more;
    t->started_ns = t->alive_ns = now_ns;
    t->silent_ns = 0;
    t->rnr_count = 0;
    t->probed = false;
}

/* The peer lives, and goes on with what it was asked for. */
static inline void sw_retry_hear(struct sw_retry *t, uint64_t now_ns)
{
    t->alive_ns = now_ns;
    t->silent_ns = 0;
}

/* A round trip of something that was sent once. */
void sw_retry_measure(struct sw_retry *t, uint64_t rtt_ns, uint64_t now_ns);

uint64_t sw_retry_timer_ns(const struct sw_retry *t);

/* When a lost tail is asked for with one packet, ahead of the timer; SW_RETRY_NEVER: not. */
uint64_t sw_retry_probe_due_ns(const struct sw_retry *t);

static inline uint64_t sw_retry_due_ns(const struct sw_retry *t)
{
    return t->running ? t->started_ns + sw_retry_timer_ns(t) : SW_RETRY_NEVER;
}

/* The timer has run out. false: it is time to give up. */
bool sw_retry_expire(struct sw_retry *t, uint64_t now_ns);

/* An RNR NAK came. false: one too many. */
bool sw_retry_rnr(struct sw_retry *t, uint64_t resume_ns);

#endif
