/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What is left of a connection that this side ended by a refusal. The NAK leaves once, and the
 * queue pair is in ERR then, where hardware hears nothing any more: if the NAK is lost, or an
 * answer to what was done before, the peer runs out of retries and never learns why, or that it was
 * done. So the responder outlives the connection, until the queue pair is reset: it executes
 * nothing, but answers what it had answered before (READs as their keys allow by then), and repeats
 * its NAK.
 */
#include <stdlib.h>

#include "base/clock.h"
#include "link/roce/roce.h"

/* Peers have run out of retries by then, and the program may hold the memory of a connection that
 * has failed for its own again. What is said longer is the NAK. */
#define RECALL_NS (5 * SW_NS_PER_S)

struct sw_roce_qp *sw_roce_remains_of(const struct sw_roce_qp *r, uint64_t now_ns)
{
    if (r->qp->state != IBV_QPS_ERR || r->ended_ns || !r->receives)
        return NULL;
    struct sw_roce_qp *remains = malloc(sizeof(*remains));
    if (!remains)
        return NULL;
    *remains = *r;
    if (!sw_responder_outlive(&remains->responder)) {
        free(remains);
        return NULL;
    }
    remains->ring = NULL; /* the requester is no part of it */
    remains->ended_ns = now_ns;
    remains->is_ending = remains->receive.is_taken = remains->is_parked = false;
    remains->reads_due = remains->has_bad = remains->is_limited = false;
    remains->unsaid = 0;
    remains->flushing = (struct sw_flushing){0};
    return remains;
}

void sw_roce_remains_age(struct sw_roce_qp *r, uint64_t now_ns)
{
    if (now_ns >= r->ended_ns + RECALL_NS)
        sw_responder_forget(&r->responder);
}
