/* SPDX-License-Identifier: BSD-2-Clause */
/* Requests that the target executes: what the requester's motor must know of them. */
#ifndef SW_LINK_DIRECT_SEND_BOUNCE_H
#define SW_LINK_DIRECT_SEND_BOUNCE_H

#include "device/queue/qp_impl.h"
#include "link/direct/bind/step.h"
#include "link/direct/process/block.h"
#include "link/gather.h"

struct sw_record_head;

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

enum sw_step sw_bounce_start(struct sw_qp *qp, struct sw_direct_qp *d, struct sw_wqe *wqe,
                             uint32_t position);
/* A short SEND that the target executes, in one go, with no space to be given back: at most
 * SW_WHOLE_BYTES. SENT, or BLOCKED: the ring has no room. */
enum sw_step sw_send_whole(struct sw_qp *qp, struct sw_direct_qp *d, const struct sw_gather *gather,
                           const struct sw_record_head *head, uint32_t srq_num);
/* A request that carries no bytes. */
enum sw_step sw_bounce_ask(struct sw_direct_qp *d, struct sw_wqe *wqe, enum sw_record_kind kind);
/* Reads answers; false if one was a refusal of the request at the head (d->fail_*). */
bool sw_bounce_collect(struct sw_qp *qp, struct sw_direct_qp *d);

#endif
