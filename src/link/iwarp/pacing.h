/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Keeping to TCP's own pace. A congestion control that paces, as BBR does, holds each burst of
 * segments back by a timer of the kernel. In a virtual machine that timer costs as much as sending
 * the burst. A program that polls is there anyway: so it gives TCP one burst at a time, when TCP
 * may send it, and no timer is set. How fast TCP sends stays TCP's decision.
 *
 * TCP takes such a sender for one that has little to send, whose samples can only raise its
 * estimate of the path, until what is in flight fills its window. On a path that has become slower
 * it does, so that TCP slows down as it would anyway.
 *
 * A program that stops polling while something is held back leaves that to the engine, which comes
 * a millisecond late. So for a while after that nothing is held back.
 *
 * No clock, no system call: times are given.
 */
#ifndef SW_LINK_IWARP_PACING_H
#define SW_LINK_IWARP_PACING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/backoff.h"

#define SW_PACING_RATE_LEAST 500000000u /* bytes per second; of slower ones the timer is cheap */
#define SW_PACING_BURST_MAX (63u << 10) /* that TCP sends at once: 64 KiB with headers */
#define SW_PACING_LOOK_BYTES (1u << 20) /* between looks at TCP's rate */
#define SW_PACING_LATE_NS 200000u       /* the program does something else */
#define SW_PACING_ALONE_NS 10000000u    /* then nothing is held back for so long, ... */
#define SW_PACING_DOUBLINGS_MAX 5u      /* ... twice as long each time, up to 32 times, ... */
#define SW_PACING_TRUST_NS 1000000000u  /* ... until it was not late for so long */

struct sw_iwarp_pacing {
    bool is_on;                /* TCP paces */
    bool holds;                /* something waits for due_ns */
    struct sw_backoff backoff; /* of times that the program was late */
    uint32_t burst_bytes;      /* 0: nothing is held back */
    uint32_t unlooked_bytes;
    uint64_t rate; /* bytes per second */
    uint64_t due_ns;
    uint64_t alone_ns; /* nothing is held back before */
};

void sw_iwarp_pacing_start(struct sw_iwarp_pacing *p);
/* Whether it is time to learn TCP's rate again. */
bool sw_iwarp_pacing_wants_rate(const struct sw_iwarp_pacing *p);
void sw_iwarp_pacing_learn(struct sw_iwarp_pacing *p, uint64_t rate, uint32_t segment_bytes);
/* Whether the two that follow need to know the time. */
static inline bool sw_iwarp_pacing_is_used(const struct sw_iwarp_pacing *p)
{
    return p->burst_bytes;
}
/* How many of `len` bytes may be given to TCP. `polls`: the program, which will be back at once. */
size_t sw_iwarp_pacing_allows(struct sw_iwarp_pacing *p, uint64_t now_ns, bool polls, size_t len);
/* TCP has taken them, and sent them if it may. */
void sw_iwarp_pacing_charge(struct sw_iwarp_pacing *p, size_t bytes, uint64_t now_ns);

#endif
