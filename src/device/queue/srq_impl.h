/* SPDX-License-Identifier: BSD-2-Clause */
/* Inside of shared receive queues. */
#ifndef SW_DEVICE_QUEUE_SRQ_IMPL_H
#define SW_DEVICE_QUEUE_SRQ_IMPL_H

#include "device/nic/context_impl.h"
#include "device/queue/rq.h"
#include "device/queue/srq.h"
#include "device/rules/device_limits.h"

struct sw_srq {
    struct sw_rq rq;
    struct sw_pd *pd;
    void *owner;
    uint32_t limit;   /* event when fewer remain; 0: not armed. Under rq.lock */
    atomic_uint refs; /* QPs */

    /* In an XRC domain; xrc.c. */
    struct sw_xrcd *xrcd;
    struct sw_cq *cq;
    uint32_t num;
    struct sw_srq *domain_next;
};

/* One receive taken off a queue, copied because its slot may be posted again at once. */
struct sw_recv_claim {
    uint64_t wr_id;
    uint32_t pd; /* of the queue it was posted to: a shared queue's may be another than the QP's */
    uint32_t sge_count;
    uint32_t len_bytes;
    struct ibv_sge sges[SW_MAX_SGE];
};

/* Takes the oldest receive, unless it is shorter than need_bytes. Fires the limit event. */
enum sw_recv_take { SW_RECV_TAKEN, SW_RECV_NONE, SW_RECV_SHORT };
enum sw_recv_take sw_srq_take_of(struct sw_srq *srq, uint32_t need_bytes,
                                 struct sw_recv_claim *out);

/* With rq.lock held: the oldest receive, if taking it is all there is to do; NULL: it is for
 * sw_srq_take_of(), which sees to the limit event. Once it was used, sw_rq_pass(). */
static inline const struct sw_pub_recv *sw_srq_oldest(const struct sw_srq *srq)
{
    sw_lock_assert_held(&srq->rq.lock);
    return sw_rq_depth(&srq->rq) > srq->limit ? sw_rq_oldest(&srq->rq) : NULL;
}

static inline bool sw_srq_take(struct sw_srq *srq, struct sw_recv_claim *out)
{
    return sw_srq_take_of(srq, 0, out) == SW_RECV_TAKEN;
}

#endif
