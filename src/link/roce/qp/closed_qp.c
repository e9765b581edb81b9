/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What is left of a connection that this side ended: the responder outlives it, until the queue
 * pair is reset. It executes nothing.
 *
 * Ended by a refusal: the NAK leaves once, and the queue pair is in ERR then, where hardware hears
 * nothing any more. If the NAK is lost, or an answer to what was done before, the peer runs out of
 * retries and never learns why, or that it was done. So the responder answers what it had answered
 * before (READs as their keys allow by then), and repeats its NAK.
 *
 * Ended by its program, that may well have been told of a message just before: servers do so when
 * they have what they waited for. The ACK left with the last look at the queue pair, and cannot be
 * had again from hardware. A wire hardly loses it. But here it may wait in the socket of another
 * process of the peer's host that is killed (port/share.c), and a message that arrived would fail.
 * So the responder says again what it has acknowledged. It reads no memory any more: that is the
 * program's again.
 */
#include "link/roce/qp/closed_qp.h"

#include <stdlib.h>

#include "base/clock.h"
#include "link/roce/qp/qp.h"

/* Peers have run out of retries by then, and the program may hold the memory of a connection that
 * has failed for its own again. Only the NAK is said for longer. */
#define RECALL_NS (5 * SW_NS_PER_S)

struct sw_roce_qp *sw_closed_qp_of(const struct sw_roce_qp *r, uint64_t now_ns)
{
    sw_lock_assert_held(&r->qp->lock);
    if (r->qp->state != IBV_QPS_ERR || r->ended_ns || !r->receives)
        return NULL;
    struct sw_roce_qp *closed = malloc(sizeof(*closed));
    if (!closed)
        return NULL;
    *closed = *r;
    if (!sw_responder_outlive(&closed->responder)) {
        free(closed);
        return NULL;
    }
    closed->ring = NULL; /* the requester is no part of it */
    closed->ended_ns = now_ns;
    closed->is_ending = closed->receive.is_taken = closed->is_parked = false;
    closed->reads_due = closed->has_bad = closed->is_limited = false;
    closed->delayed_acks = 0;
    closed->flushing = (struct sw_flushing){0};
    return closed;
}

void sw_closed_qp_age(struct sw_roce_qp *r, uint64_t now_ns)
{
    sw_lock_assert_held(&r->qp->lock);
    if (now_ns >= r->ended_ns + RECALL_NS)
        sw_responder_forget(&r->responder);
}
