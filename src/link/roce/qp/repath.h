/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * When to try another way to the peer, which is another source port: routers, and the kernel of a
 * peer with several processes, choose by it (share.c). On the peer's host packets may come to
 * another process than its own, which is stopped or dead slow, and on the way there may be a router
 * that drops this flow. Then nothing is answered, or no answer is heard, again and again.
 *
 * A path that is longer than the queue pair's timeout looks like that, but its answers come. So the
 * timeouts that one round trip takes are no reason. Else both sides changed all the time, and the
 * last ACK of a peer that ends came from a port that nobody had heard.
 *
 * A peer that runs is told of the way first, and asks the kernel for it (sw_port_claim_flow()). So
 * such a way gets a little more time. No clock and no I/O.
 */
#ifndef SW_LINK_ROCE_QP_REPATH_H
#define SW_LINK_ROCE_QP_REPATH_H

#include <stdbool.h>
#include <stdint.h>

#include "transport/retry.h"

/* Zeroed: nothing has been seen yet. */
struct sw_repath {
    uint64_t timeouts, duplicates; /* seen of the machines */
    uint64_t doubted_ns;           /* when copies were counted last */
    uint32_t una, expected;        /* up to where was answered, and asked */
    uint32_t waits, doubts;        /* timeouts and repetitions since that moved */
};

/* How often the timer runs out in the shortest round trip of late. */
uint32_t sw_repath_timeouts_of(const struct sw_retry *retry);

/* `timeouts` of the requester so far, and the first packet that waits for an answer. Returns
 * whether too many of them were in vain. */
bool sw_repath_unanswered(struct sw_repath *repath, uint64_t timeouts, uint32_t una,
                          const struct sw_retry *retry);

/* Whether a timeout was in vain that waited for this packet. */
bool sw_repath_is_doubted(const struct sw_repath *repath, uint32_t una);

/* The responder has seen so many copies, and expects this packet next: whether the peer asks again
 * and again for what has been answered. */
bool sw_repath_unheard(struct sw_repath *repath, uint64_t duplicates, uint32_t expected,
                       const struct sw_retry *retry, uint64_t now_ns);

#endif
