/* SPDX-License-Identifier: BSD-2-Clause */
/* Requests that are executed before they are queued: what the target waits for is on its way while
 * the bookkeeping is done. Only what needs no state of its own: short, complete (or sent, to a
 * shared receive queue) in one step, and to memory or a receive that is known. Everything else,
 * errors too, is left to the queue. */
#include "link/direct/send/ahead.h"

#include "base/fault.h"
#include "base/payload.h"
#include "device/memory/mr_impl.h"
#include "device/queue/qp_impl.h"
#include "device/serve/execute.h"
#include "link/direct/bind/account.h"
#include "link/direct/bind/bind.h"
#include "link/direct/bind/connection.h"
#include "link/direct/bind/lane.h"
#include "link/direct/bind/step.h"
#include "link/direct/process/block.h"
#include "link/direct/send/bounce.h"
#include "link/direct/send/reach.h"
#include "link/direct/send/requester.h"
#include "link/direct/send/twosided.h"
#include "link/gather.h"

/* What one call moves at most; the queue does the rest, so that a post never blocks for long. */
#define AHEAD_BYTES (1u << 20)

/* Where the bytes of a request's one element are; NULL: the key does not allow it. */
static inline uint8_t *local_of(const struct sw_qp *qp, const struct ibv_send_wr *wr, uint32_t need)
{
    uint8_t *local = (uint8_t *)(uintptr_t)wr->sg_list->addr;
    if (!(wr->send_flags & IBV_SEND_INLINE) &&
        !sw_sge_resolve(qp->pd_id, wr->sg_list, need, &local))
        return NULL;
    return local;
}

static inline bool write_or_read(struct sw_qp *qp, struct sw_direct_qp *d,
                                 const struct ibv_send_wr *wr)
{
    const bool reads = wr->opcode == IBV_WR_RDMA_READ;
    const uint32_t len_bytes = wr->sg_list->length;
    uint8_t *remote = sw_reach_remembered(d, wr->wr.rdma.rkey, wr->wr.rdma.remote_addr, len_bytes,
                                          reads ? IBV_ACCESS_REMOTE_READ : IBV_ACCESS_REMOTE_WRITE);
    if (!remote)
        return false;
    uint8_t *local = local_of(qp, wr, reads ? IBV_ACCESS_LOCAL_WRITE : 0);
    if (!local)
        return false;
    if (reads)
        sw_payload_copy(local, remote, len_bytes);
    else
        sw_copy_ordered(remote, local, len_bytes);
    /* By the queue it ends with an error. */
    return !sw_fault_any() || (!sw_fault_lost_at(remote) && !sw_fault_lost_at(local));
}

static inline uint8_t flags_of(const struct ibv_send_wr *wr)
{
    return (uint8_t)((wr->send_flags & IBV_SEND_SOLICITED ? SW_REC_SOLICITED : 0) |
                     (wr->opcode == IBV_WR_SEND_WITH_IMM ? SW_REC_IMM : 0));
}

/* Into a record, where a receive waits that has room for it. */
static inline bool send_short(struct sw_qp *qp, struct sw_direct_qp *d,
                              const struct ibv_send_wr *wr)
{
    const uint32_t len_bytes = wr->sg_list->length;
    if (d->send.recv_used == d->send.recv_posted || len_bytes > SW_INLINE_BYTES ||
        len_bytes > atomic_load_explicit(&d->remote.entry->rq_len_min_bytes, memory_order_acquire))
        return false;
    const struct sw_gather gather = {.inline_bytes = local_of(qp, wr, 0), .inline_len = len_bytes};
    if (!gather.inline_bytes)
        return false;
    const uint8_t flags = flags_of(wr);
    return sw_send_inline(d, &gather, len_bytes, flags, flags & SW_REC_IMM ? wr->imm_data : 0) ==
           SW_STEP_DONE;
}

/* Into a record, where the target takes a receive of a shared queue for it. */
static inline bool send_shared(struct sw_qp *qp, struct sw_direct_qp *d,
                               const struct ibv_send_wr *wr)
{
    const uint32_t len_bytes = wr->sg_list->length;
    if (len_bytes > SW_WHOLE_BYTES || (wr->send_flags & IBV_SEND_FENCE && d->send.reads_due))
        return false;
    const struct sw_gather gather = {.inline_bytes = local_of(qp, wr, 0), .inline_len = len_bytes};
    if (!gather.inline_bytes)
        return false;
    const uint8_t flags = flags_of(wr);
    const struct sw_whole whole = {
        .flags = flags,
        .imm = flags & SW_REC_IMM ? wr->imm_data : 0,
        .srq_num = qp->type == IBV_QPT_XRC_SEND ? wr->qp_type.xrc.remote_srqn : 0};
    return sw_send_whole(qp, d, &gather, len_bytes, &whole) == SW_STEP_SENT;
}

/* DONE, SENT, or BLOCKED: it is for the queue. */
static inline enum sw_step execute_one(struct sw_qp *qp, struct sw_direct_qp *d,
                                       const struct ibv_send_wr *wr)
{
    const bool sends = wr->opcode == IBV_WR_SEND || wr->opcode == IBV_WR_SEND_WITH_IMM;
    const bool is_shared = sends && !d->remote.rq_entries;
    if (d->send.answers_due && !is_shared)
        return SW_STEP_BLOCKED;
    if (__builtin_expect(qp->type == IBV_QPT_XRC_SEND, 0) &&
        (!sw_lane_leads_to(d, wr->qp_type.xrc.remote_srqn) ||
         !sw_bind_name_srq(d, wr->qp_type.xrc.remote_srqn)))
        return SW_STEP_BLOCKED;
    const bool good = is_shared ? send_shared(qp, d, wr)
                      : sends   ? send_short(qp, d, wr)
                                : write_or_read(qp, d, wr);
    if (!good)
        return SW_STEP_BLOCKED;
    sw_account_request(qp, d, wr->opcode, wr->sg_list->length);
    return is_shared ? SW_STEP_SENT : SW_STEP_DONE;
}

uint32_t sw_ahead_run(struct sw_qp *qp, struct sw_direct_qp *d, const struct ibv_send_wr *wr,
                      uint32_t most, uint32_t *sent)
{
    sw_lock_assert_held(&qp->lock);
    uint32_t executed = 0, moved_bytes = 0;
    if (!d->tx || d->xrc.busy || (d->send.answers_due && d->remote.rq_entries) || !most ||
        !sw_sq_may_skip(&qp->sq, wr) || !sw_bind_enter(qp, d))
        return 0;
    while (executed < most && wr && moved_bytes < AHEAD_BYTES && sw_sq_may_skip(&qp->sq, wr)) {
        const enum sw_step step = execute_one(qp, d, wr);
        if (step == SW_STEP_BLOCKED)
            break;
        *sent += step == SW_STEP_SENT;
        executed++;
        moved_bytes += wr->sg_list->length;
        wr = wr->next;
    }
    sw_direct_send_leave(d);
    return executed;
}
