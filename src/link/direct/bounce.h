/* SPDX-License-Identifier: BSD-2-Clause */
/* Requests that the target executes: what the requester's motor must know of them. */
#ifndef SW_LINK_DIRECT_BOUNCE_H
#define SW_LINK_DIRECT_BOUNCE_H

#include "device/qp_impl.h"

/* Whether pieces of the request at the front of the queue are on their way, but not all yet. */
static inline bool sw_bounce_sending(struct sw_qp *qp)
{
    return qp->sq.next != qp->sq.tail && sw_sq_at(&qp->sq, qp->sq.next)->via_ring;
}

#endif
