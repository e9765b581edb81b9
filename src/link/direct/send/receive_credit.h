/* SPDX-License-Identifier: BSD-2-Clause */
/* Whether the peer has a receive posted for the next message, and the RNR clock while it has not.
 */
#ifndef SW_LINK_DIRECT_SEND_RECEIVE_CREDIT_H
#define SW_LINK_DIRECT_SEND_RECEIVE_CREDIT_H

#include "link/direct/bind/connection.h"
#include "link/direct/bind/step.h"
#include "wire/aeth.h"

/* Whether the peer has a receive for the next message. Its count is read only where all receives
 * that are known of are used up. */
static inline bool sw_receive_is_there(struct sw_direct_qp *d)
{
    if (__builtin_expect(d->send.recv_used == d->send.recv_posted, 0) && !d->send.in_doubt)
        d->send.recv_posted =
            atomic_load_explicit(&d->remote.entry->rq_posted, memory_order_acquire);
    return d->send.recv_used != d->send.recv_posted;
}

/* Waits for it. DONE: there is one. BLOCKED: the RNR timer runs. FAILED: retries are used up. LOST:
 * an unreliable connection does not wait. */
enum sw_step sw_receive_wait(struct sw_qp *qp, struct sw_direct_qp *d);

/* As sw_receive_wait(), for a sender that knows already that there is no receive. */
enum sw_step sw_receive_absent(struct sw_qp *qp, struct sw_direct_qp *d);

static inline enum sw_step sw_receive_credit(struct sw_qp *qp, struct sw_direct_qp *d)
{
    if (__builtin_expect(d->send.recv_used == d->send.recv_posted, 0))
        return sw_receive_wait(qp, d);
    return SW_STEP_DONE;
}

#endif
