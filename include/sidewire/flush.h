/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * RDMA FLUSH (IBTA Vol1 annex A19) for programs that are built with an <infiniband/verbs.h> that
 * does not know it yet. Names and numbers are those of newer headers, beside which this one changes
 * nothing, so a program includes it and is written as if all headers were new.
 *
 * A queue pair that is created with IBV_QP_EX_WITH_FLUSH posts with ibv_wr_flush(); ibv_post_send()
 * has no place for what it needs. A completed WRITE says that the bytes have left the requester's
 * hands; a completed FLUSH says of all that was posted before it on the same queue pair that it
 *  - is seen by all that look at the target's memory (IBV_FLUSH_GLOBAL), or
 *  - outlives the target's power (IBV_FLUSH_PERSISTENT).
 * Region and queue pair of the target must both admit it: IBV_ACCESS_FLUSH_*.
 */
#ifndef SIDEWIRE_FLUSH_H
#define SIDEWIRE_FLUSH_H

#include <infiniband/verbs.h>
#include <rdma/ib_user_verbs.h> /* before its names are taken */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define IBV_WR_FLUSH ((enum ibv_wr_opcode)14)
#define IBV_WC_FLUSH ((enum ibv_wc_opcode)8)
#define IBV_QP_EX_WITH_FLUSH (1 << 11)

/* Rights of regions (ibv_reg_mr) and queue pairs (ibv_modify_qp). */
#define IBV_ACCESS_FLUSH_GLOBAL (1 << 8)
#define IBV_ACCESS_FLUSH_PERSISTENT (1 << 9)

/* In device_cap_flags_ex. */
#define IB_UVERBS_DEVICE_FLUSH_GLOBAL (1ull << 38)
#define IB_UVERBS_DEVICE_FLUSH_PERSISTENT (1ull << 39)

/* In the capabilities of on-demand paging. */
#define IBV_ODP_SUPPORT_FLUSH (1 << 6)
#define IBV_ODP_SUPPORT_ATOMIC_WRITE (1 << 7)

/* What becomes of the bytes; one or both. */
#define IBV_FLUSH_GLOBAL 1
#define IBV_FLUSH_PERSISTENT 2

/* Which bytes: those of the request, or all of the region its key names. */
#define IBV_FLUSH_RANGE 0
#define IBV_FLUSH_MR 1

typedef void (*sidewire_flush_fn)(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t remote_addr,
                                  size_t len, uint8_t type, uint8_t level);

/* Between ibv_wr_start() and ibv_wr_complete(), on a queue pair created with IBV_QP_EX_WITH_FLUSH.
 * `type`: IBV_FLUSH_GLOBAL, IBV_FLUSH_PERSISTENT; `level`: IBV_FLUSH_RANGE or IBV_FLUSH_MR. */
static inline void sidewire_wr_flush(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t remote_addr,
                                     size_t len, uint8_t type, uint8_t level)
{
    sidewire_flush_fn flush; /* newer headers have it behind the last field that all know */
    memcpy(&flush, (const char *)&qp->wr_atomic_write + sizeof(qp->wr_atomic_write), sizeof(flush));
    flush(qp, rkey, remote_addr, len, type, level);
}
#define ibv_wr_flush sidewire_wr_flush

#endif
