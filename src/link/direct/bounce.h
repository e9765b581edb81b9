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

/* `len` contiguous bytes of a bounce area, or -1 while there is no room. *at and *end are
 * positions. */
static inline int64_t sw_area_reserve(uint32_t position, uint32_t consumed, uint32_t area,
                                      uint32_t len, uint32_t *end)
{
    uint32_t offset = position % area;
    uint32_t skip = offset + len > area ? area - offset : 0;
    if (position + skip + len - consumed > area)
        return -1;
    *end = position + skip + len;
    return (int64_t)((position + skip) % area);
}

#endif
