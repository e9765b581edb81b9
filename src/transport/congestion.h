/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * How much a QP may have on its way, and how fast. Two controllers in one:
 *
 * - by delay, as Swift (Kumar et al., SIGCOMM 2020): a window that grows by a packet a round trip
 *   while the round trip is below a target, and shrinks in proportion to the excess when that
 * lasts: a queue is there in each round trip, a processor that the peer has to wait for is not.
 * Single losses are the path's; many in one round shrink it. After timeouts it may be less than one
 *   packet and becomes a pace.
 * - by marks, as DCQCN (Zhu et al., SIGCOMM 2015), from the first congestion notification until the
 *   rate is back where it was.
 *
 * Integers only, so that a simulation repeats exactly. Times are ns, rates bytes per second.
 */
#ifndef SW_TRANSPORT_CONGESTION_H
#define SW_TRANSPORT_CONGESTION_H

#include <stdbool.h>
#include <stdint.h>

struct sw_congestion_config {
    uint32_t packet_bytes;
    uint32_t window_max; /* packets */
    uint64_t rate_max;   /* bytes per second; 0: 12.5e9 (100 Gb/s) */
    uint64_t slack_ns;   /* of the target above the shortest round trip; 0: 300 us */
    uint64_t gap_max_ns; /* between two packets, by a window of less than one; 0: any */
};

struct sw_congestion {
    struct sw_congestion_config config;
    /* The window, in 1/1024 packets. */
    uint32_t window, window_before; /* the latter: what a timeout took away */
    uint32_t threshold;             /* of slow start */
    uint32_t round_acked, round_lost;
    uint32_t late_rounds; /* one after the other, of which nothing came within the target */
    uint64_t late_ns;     /* when the last of these was counted */
    uint64_t min_rtt_ns, rtt_ns, decreased_ns;
    uint64_t limited_ns; /* when the window was last what kept packets back */
    /* The rate, while notifications rule. */
    bool paced;
    uint32_t alpha; /* 1/65536 */
    uint32_t byte_stage, time_stage;
    uint64_t rate, target;
    uint64_t bytes; /* since the last stage */
    uint64_t alpha_due_ns, stage_due_ns, cut_ns;
    uint64_t next_ns; /* pacing: nothing goes earlier */
};

void sw_congestion_init(struct sw_congestion *c, const struct sw_congestion_config *config);
/* Whether a packet may go while `out` are on their way. */
bool sw_congestion_may_send(struct sw_congestion *c, uint32_t out, uint64_t now_ns);
/* Whether packets are kept apart in time, rather than by what is on its way alone. */
bool sw_congestion_spaces(const struct sw_congestion *c);
/* When pacing alone keeps a packet back: until when. 0: it does not. */
uint64_t sw_congestion_due_ns(const struct sw_congestion *c);
void sw_congestion_on_send(struct sw_congestion *c, uint32_t bytes, uint64_t now_ns);
/* `packets` have arrived; rtt_ns and min_rtt_ns are 0 where nothing was measured. */
void sw_congestion_on_ack(struct sw_congestion *c, uint32_t packets, uint64_t rtt_ns,
                          uint64_t min_rtt_ns, uint64_t now_ns);
void sw_congestion_on_loss(struct sw_congestion *c, uint32_t packets, uint64_t now_ns);
/* The retransmission timer ran out; and: that was a mistake. */
void sw_congestion_on_timeout(struct sw_congestion *c, uint64_t now_ns);
void sw_congestion_undo_timeout(struct sw_congestion *c);
void sw_congestion_on_cnp(struct sw_congestion *c, uint64_t now_ns);

/* Packets that the window admits, at least 1. */
static inline uint32_t sw_congestion_window(const struct sw_congestion *c)
{
    return c->window < 1024 ? 1 : c->window >> 10;
}

#endif
