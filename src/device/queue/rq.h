/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A ring of posted receives: a queue pair's own (its WQEs lie in the public tables, where the
 * sender on the other side matches them itself) or a shared receive queue's (private memory).
 *
 * Producers: posting threads under `lock`. Consumer: the thread that drives the QP (its lock), or
 * for an SRQ under `lock` too.
 */
#ifndef SW_DEVICE_QUEUE_RQ_H
#define SW_DEVICE_QUEUE_RQ_H

#include <infiniband/verbs.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/lock.h"
#include "device/rules/pub.h"

struct sw_rq {
    struct sw_lock lock;
    uint32_t entries; /* power of two */
    uint32_t stride_bytes;
    uint32_t sge_max;
    uint32_t wr_max; /* granted to the program */
    uint8_t *ring;
    uint64_t *wr_ids;
    _Atomic uint32_t posted;
    _Atomic uint32_t consumed;
    _Atomic uint32_t claimed; /* of these, for a message that is not complete: they keep their
                                 place. A queue pair's own queue only */
    uint32_t pd;
};

struct sw_rq_shape {
    uint32_t entries, stride_bytes;
};
struct sw_rq_shape sw_rq_shape(uint32_t wr_max, uint32_t sge_max);

static inline struct sw_pub_recv *sw_rq_at(const struct sw_rq *rq, uint32_t position)
{
    return (struct sw_pub_recv *)(rq->ring +
                                  (size_t)(position & (rq->entries - 1)) * rq->stride_bytes);
}

static inline uint32_t sw_rq_depth(const struct sw_rq *rq)
{
    return atomic_load_explicit(&rq->posted, memory_order_acquire) -
           atomic_load_explicit(&rq->consumed, memory_order_acquire);
}

/* The consumer's: the oldest receive, or NULL; and once it was used, its wr_id. */
static inline const struct sw_pub_recv *sw_rq_oldest(const struct sw_rq *rq)
{
    return sw_rq_depth(rq) ? sw_rq_at(rq, atomic_load_explicit(&rq->consumed, memory_order_relaxed))
                           : NULL;
}
static inline uint64_t sw_rq_pass(struct sw_rq *rq)
{
    const uint32_t at = atomic_load_explicit(&rq->consumed, memory_order_relaxed);
    const uint64_t wr_id = rq->wr_ids[at & (rq->entries - 1)];
    atomic_store_explicit(&rq->consumed, at + 1, memory_order_release);
    return wr_id;
}

/* Appends one receive; the caller holds rq->lock and publishes. 0, -ENOMEM (full) or -EINVAL (too
 * many elements). *len_bytes: room of the scatter list, 0 if one of its keys is not usable now. */
int sw_rq_append(struct sw_rq *rq, const struct ibv_recv_wr *wr, uint32_t *len_bytes);

/* Copies `len_bytes` to byte `offset` of a posted receive. IBV_WC_SUCCESS, LOC_LEN_ERR or
 * LOC_PROT_ERR. */
enum ibv_wc_status sw_recv_scatter(uint32_t pd, const struct ibv_sge *sges, uint32_t count,
                                   uint64_t offset, const void *from, uint32_t len_bytes);

#endif
