/* SPDX-License-Identifier: BSD-2-Clause */
#include "device/queue/srq.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "device/memory/buffer.h"
#include "device/nic/nic.h"
#include "device/queue/srq_impl.h"
#include "device/queue/xrc_impl.h"
#include "device/rules/device_limits.h"

int sw_srq_create(struct sw_pd *pd, struct ibv_srq_attr *attr, void *owner, struct sw_srq **out)
{
    if (attr->max_wr < 1 || attr->max_wr > SW_MAX_SRQ_WR || attr->max_sge > SW_MAX_SGE)
        return -EINVAL;
    struct sw_rq_shape shape = sw_rq_shape(attr->max_wr, attr->max_sge ? attr->max_sge : 1);
    struct sw_srq *srq = calloc(1, sizeof(*srq));
    if (!srq)
        return -ENOMEM;
    srq->rq.ring = sw_buffer_alloc(pd, (size_t)shape.entries * shape.stride_bytes, SW_BUFFER_SRQ);
    srq->rq.wr_ids = sw_buffer_alloc(pd, shape.entries * sizeof(uint64_t), SW_BUFFER_SRQ);
    if (!srq->rq.ring || !srq->rq.wr_ids) {
        sw_buffer_free(srq->rq.ring);
        sw_buffer_free(srq->rq.wr_ids);
        free(srq);
        return -ENOMEM;
    }
    srq->rq.entries = shape.entries;
    srq->rq.stride_bytes = shape.stride_bytes;
    srq->rq.sge_max = attr->max_sge ? attr->max_sge : 1;
    srq->rq.wr_max = shape.entries;
    srq->rq.pd = pd->id;
    srq->pd = pd;
    srq->owner = owner;
    sw_pd_ref(pd);
    attr->max_wr = srq->rq.wr_max;
    attr->max_sge = srq->rq.sge_max;
    *out = srq;
    return 0;
}

int sw_srq_destroy(struct sw_srq *srq)
{
    if (atomic_load(&srq->refs))
        return -EBUSY;
    if (srq->xrcd)
        sw_xrcd_remove_srq(srq);
    sw_buffer_free(srq->rq.ring);
    sw_buffer_free(srq->rq.wr_ids);
    sw_pd_unref(srq->pd);
    free(srq);
    return 0;
}

int sw_srq_modify(struct sw_srq *srq, const struct ibv_srq_attr *attr, int mask)
{
    if (mask & ~(IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT))
        return -EINVAL;
    int rc = 0;
    struct sw_rq_shape shape = {0};
    uint8_t *ring = NULL;
    uint64_t *wr_ids = NULL;
    if (mask & IBV_SRQ_MAX_WR) {
        if (attr->max_wr < 1 || attr->max_wr > SW_MAX_SRQ_WR)
            return -EINVAL;
        shape = sw_rq_shape(attr->max_wr, srq->rq.sge_max);
        ring = sw_buffer_alloc(srq->pd, (size_t)shape.entries * shape.stride_bytes, SW_BUFFER_SRQ);
        wr_ids = sw_buffer_alloc(srq->pd, shape.entries * sizeof(uint64_t), SW_BUFFER_SRQ);
        if (!ring || !wr_ids) {
            sw_buffer_free(ring);
            sw_buffer_free(wr_ids);
            return -ENOMEM;
        }
    }
    sw_lock_acquire(&srq->rq.lock);
    uint32_t depth = sw_rq_depth(&srq->rq);
    uint32_t wr_max = ring ? shape.entries : srq->rq.wr_max;
    if (depth > wr_max || (mask & IBV_SRQ_LIMIT && attr->srq_limit > wr_max)) {
        rc = -EINVAL;
    } else {
        if (ring) {
            struct sw_rq grown = srq->rq;
            grown.ring = ring;
            grown.entries = shape.entries;
            uint32_t from = atomic_load(&srq->rq.consumed);
            for (uint32_t i = from; i != from + depth; i++) {
                memcpy(sw_rq_at(&grown, i), sw_rq_at(&srq->rq, i), shape.stride_bytes);
                wr_ids[i & (shape.entries - 1)] = srq->rq.wr_ids[i & (srq->rq.entries - 1)];
            }
            uint8_t *old_ring = srq->rq.ring;
            uint64_t *old_ids = srq->rq.wr_ids;
            srq->rq.ring = ring;
            srq->rq.wr_ids = wr_ids;
            srq->rq.entries = srq->rq.wr_max = shape.entries;
            ring = old_ring;
            wr_ids = old_ids;
        }
        if (mask & IBV_SRQ_LIMIT)
            srq->limit = attr->srq_limit;
    }
    sw_lock_release(&srq->rq.lock);
    sw_buffer_free(ring);
    sw_buffer_free(wr_ids);
    return rc;
}

void sw_srq_query(struct sw_srq *srq, struct ibv_srq_attr *out)
{
    sw_lock_acquire(&srq->rq.lock);
    out->max_wr = srq->rq.wr_max;
    out->max_sge = srq->rq.sge_max;
    out->srq_limit = srq->limit;
    sw_lock_release(&srq->rq.lock);
}

int sw_srq_post_recv(struct sw_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr)
{
    int rc = 0;
    sw_lock_acquire(&srq->rq.lock);
    for (; wr; wr = wr->next) {
        uint32_t len_bytes;
        rc = sw_rq_append(&srq->rq, wr, &len_bytes);
        if (rc) {
            *bad_wr = wr;
            break;
        }
        atomic_store_explicit(&srq->rq.posted, atomic_load(&srq->rq.posted) + 1,
                              memory_order_release);
    }
    sw_lock_release(&srq->rq.lock);
    return rc;
}

enum sw_recv_take sw_srq_take_of(struct sw_srq *srq, uint32_t need_bytes, struct sw_recv_claim *out)
{
    enum sw_recv_take result = SW_RECV_NONE;
    bool limit_hit = false;
    sw_lock_acquire(&srq->rq.lock);
    uint32_t depth = sw_rq_depth(&srq->rq);
    uint32_t at = atomic_load(&srq->rq.consumed);
    const struct sw_pub_recv *recv = sw_rq_at(&srq->rq, at);
    if (depth)
        result = recv->len_bytes < need_bytes ? SW_RECV_SHORT : SW_RECV_TAKEN;
    if (result == SW_RECV_TAKEN) {
        out->wr_id = srq->rq.wr_ids[at & (srq->rq.entries - 1)];
        out->pd = srq->rq.pd;
        out->sge_count = recv->sge_count;
        out->len_bytes = recv->len_bytes;
        memcpy(out->sges, recv->sges, recv->sge_count * sizeof(struct ibv_sge));
        atomic_store_explicit(&srq->rq.consumed, at + 1, memory_order_release);
        if (depth - 1 < srq->limit) {
            srq->limit = 0; /* fires once per arming */
            limit_hit = true;
        }
    }
    sw_lock_release(&srq->rq.lock);
    if (limit_hit)
        sw_context_event(srq->pd->ctx, IBV_EVENT_SRQ_LIMIT_REACHED, srq->owner);
    return result;
}
