/* SPDX-License-Identifier: BSD-2-Clause */
/* Requests that are executed before they are queued: what the target waits for is on its way while
 * the bookkeeping is done. Only what needs no state of its own: short, complete in one step, and
 * to memory or a receive that is known. Everything else, errors too, is left to the queue. */
#include "base/fault.h"
#include "base/payload.h"
#include "device/execute.h"
#include "device/mr_impl.h"
#include "device/qp_impl.h"
#include "link/direct/account.h"
#include "link/direct/direct.h"
#include "link/direct/lane.h"
#include "link/gather.h"

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

/* Into a record, where a receive waits that has room for it. */
static inline bool send_short(struct sw_qp *qp, struct sw_direct_qp *d,
                              const struct ibv_send_wr *wr)
{
    const uint32_t len_bytes = wr->sg_list->length;
    if (!d->remote_rq_entries || d->recv_used == d->recv_posted || len_bytes > SW_INLINE_BYTES ||
        len_bytes > atomic_load_explicit(&d->remote->rq_len_min_bytes, memory_order_acquire))
        return false;
    const struct sw_gather gather = {.inline_bytes = local_of(qp, wr, 0), .inline_len = len_bytes};
    if (!gather.inline_bytes)
        return false;
    const bool has_imm = wr->opcode == IBV_WR_SEND_WITH_IMM;
    uint8_t flags = (uint8_t)((wr->send_flags & IBV_SEND_SOLICITED ? SW_REC_SOLICITED : 0) |
                              (has_imm ? SW_REC_IMM : 0));
    return sw_send_inline(d, &gather, len_bytes, flags, has_imm ? wr->imm_data : 0) == SW_STEP_DONE;
}

static inline bool execute(struct sw_qp *qp, struct sw_direct_qp *d, const struct ibv_send_wr *wr)
{
    const bool sends = wr->opcode == IBV_WR_SEND || wr->opcode == IBV_WR_SEND_WITH_IMM;
    if (__builtin_expect(qp->type == IBV_QPT_XRC_SEND, 0) &&
        (sends || !sw_lane_leads_to(d, wr->qp_type.xrc.remote_srqn) ||
         !sw_bind_name_srq(d, wr->qp_type.xrc.remote_srqn)))
        return false;
    if (!(sends ? send_short(qp, d, wr) : write_or_read(qp, d, wr)))
        return false;
    sw_account_request(qp, d, wr->opcode, wr->sg_list->length);
    return true;
}

uint32_t sw_ahead_run(struct sw_qp *qp, struct sw_direct_qp *d, const struct ibv_send_wr *wr,
                      uint32_t most)
{
    uint32_t done = 0;
    if (!d->tx || d->answers_due || !most || !sw_sq_may_skip(&qp->sq, wr) || !sw_bind_enter(qp, d))
        return 0;
    while (done < most && wr && sw_sq_may_skip(&qp->sq, wr) && execute(qp, d, wr)) {
        done++;
        wr = wr->next;
    }
    sw_requester_leave(d);
    return done;
}
