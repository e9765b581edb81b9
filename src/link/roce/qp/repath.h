/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * When to send to the peer from another source port. Routers choose the path by it, and the kernel
 * of a peer with several processes chooses the process (share.c). A router may drop this flow, or
 * the process that gets it may be stopped. Then nothing is answered, or no answer arrives, again
 * and again.
 *
 * A round trip that takes longer than the queue pair's timeout looks the same, but its answers do
 * come. So as many timeouts as fit into one round trip are no reason. Otherwise both sides would
 * change their ports all the time, and the last ACK of a peer that ends would come from a port that
 * nobody has heard.
 *
 * A peer that runs is first told of the source port, and asks the kernel for that flow
 * (sw_port_claim_flow()). So such a path gets a little more time. No clock and no I/O.
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
