/* SPDX-License-Identifier: BSD-2-Clause */
/* Requests that are executed before they are queued: what the target waits for is on its way while
 * the bookkeeping is done. Only what needs no state of its own: complete (or sent, to a shared
 * receive queue) in one step, and to memory or a receive that is known. Everything else, errors
 * too, is left to the queue. Which ones those are is said here; a SEND's record is written by the
 * functions that the queue calls. */
#include "link/direct/send/ahead.h"

#include "base/fault.h"
#include "base/minmax.h"
#include "device/memory/mr_impl.h"
#include "device/queue/qp_impl.h"
#include "link/direct/bind/account.h"
#include "link/direct/bind/bind.h"
#include "link/direct/bind/connection.h"
#include "link/direct/bind/lane.h"
#include "link/direct/bind/step.h"
#include "link/direct/process/block.h"
#include "link/direct/send/bounce.h"
#include "link/direct/send/moving.h"
#include "link/direct/send/peer_receive.h"
#include "link/direct/send/placing.h"
#include "link/direct/send/reach.h"
#include "link/direct/send/receive_credit.h"
#include "link/direct/send/record_head.h"
#include "link/direct/send/requester.h"
#include "link/direct/send/twosided.h"
#include "link/gather.h"

/* What one call moves at most; the queue does the rest, so that a post never blocks for long. */
#define AHEAD_BYTES (1u << 20)
#define SHORT_BYTES 256u /* a packet at any path MTU */

static inline __attribute__((always_inline)) bool
write_or_read(struct sw_qp *qp, struct sw_direct_qp *d, const struct ibv_send_wr *wr, bool reads)
{
    const uint32_t len_bytes = wr->sg_list->length;
    uint8_t *remote = sw_reach_remembered(d, wr->wr.rdma.rkey, wr->wr.rdma.remote_addr, len_bytes,
                                          reads ? IBV_ACCESS_REMOTE_READ : IBV_ACCESS_REMOTE_WRITE);
    if (!remote)
        return false;
    uint8_t *local = sw_gather_local(qp, wr, reads ? IBV_ACCESS_LOCAL_WRITE : 0);
    if (!local)
        return false;
    const uint64_t mark = sw_fault_mark();
    sw_move_bytes(d, reads ? local : remote, reads ? remote : local, len_bytes, reads);
    /* By the queue it is made again, and ends with an error if it faults again. */
    return sw_fault_quiet(mark) || (sw_fault_judge(mark, remote, len_bytes) == SW_FAULT_NONE &&
                                    sw_fault_judge(mark, local, len_bytes) == SW_FAULT_NONE);
}

/* Into a record, where the receive that waits has room for it. */
static inline bool send_short(struct sw_qp *qp, struct sw_direct_qp *d,
                              const struct ibv_send_wr *wr)
{
    if (!sw_send_suits_ring(d, wr->sg_list->length))
        return false;
    const struct sw_gather gather = sw_gather_posted(qp, wr);
    if (!gather.inline_bytes)
        return false;
    const struct sw_record_head head = sw_record_head_posted(wr);
    return sw_send_inline(d, &gather, &head) == SW_STEP_DONE;
}

/* Into the receive itself, where that is mapped. Errors are reported by the queued path. */
static bool send_placed(struct sw_qp *qp, struct sw_direct_qp *d, const struct ibv_send_wr *wr)
{
    struct sw_peer_receive receive;
    struct sw_placing placing;
    const struct sw_gather gather = sw_gather_posted(qp, wr);
    const struct sw_record_head head = sw_record_head_posted(wr);
    sw_peer_receive_read(d, &receive);
    if (!gather.inline_bytes ||
        sw_peer_receive_judge(d, &receive, head.len_bytes, &placing) != SW_ACK ||
        !sw_placing_suits(d, &placing))
        return false;
    return sw_placing_send(d, &gather, &placing, &head) == SW_STEP_DONE;
}

/* To a queue of the peer's own, where a receive waits. */
static inline bool send_own(struct sw_qp *qp, struct sw_direct_qp *d, const struct ibv_send_wr *wr)
{
    if (!sw_receive_is_there(d))
        return false;
    return wr->sg_list->length > SW_INLINE_BYTES ? send_placed(qp, d, wr) : send_short(qp, d, wr);
}

/* Into a record, where the target takes a receive of a shared queue for it. */
static inline bool send_shared(struct sw_qp *qp, struct sw_direct_qp *d,
                               const struct ibv_send_wr *wr)
{
    if (wr->sg_list->length > SW_WHOLE_BYTES ||
        (wr->send_flags & IBV_SEND_FENCE && d->send.reads_due))
        return false;
    const struct sw_gather gather = sw_gather_posted(qp, wr);
    if (!gather.inline_bytes)
        return false;
    const struct sw_record_head head = sw_record_head_posted(wr);
    const uint32_t srq_num = qp->type == IBV_QPT_XRC_SEND ? wr->qp_type.xrc.remote_srqn : 0;
    return sw_send_whole(qp, d, &gather, &head, srq_num) == SW_STEP_SENT;
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
                      : sends   ? send_own(qp, d, wr)
                                : write_or_read(qp, d, wr, wr->opcode == IBV_WR_RDMA_READ);
    if (!good)
        return SW_STEP_BLOCKED;
    sw_account_request(qp, d, wr->opcode, wr->sg_list->length);
    return is_shared ? SW_STEP_SENT : SW_STEP_DONE;
}

static inline bool is_short(const struct sw_sq *sq, const struct ibv_send_wr *wr, bool reads)
{
    if (wr->opcode != (reads ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE) || wr->num_sge != 1)
        return false;
    const uint32_t len_bytes = wr->sg_list->length;
    return len_bytes - 1 < SHORT_BYTES &&
           (!(wr->send_flags & IBV_SEND_INLINE) || (!reads && len_bytes <= sq->inline_max));
}

/* The short WRITEs or READs that a list begins with, often all of it. They take ten nanoseconds
 * each, so what is the same for all is looked at and added up once. Returns how many; *wr: the
 * rest. */
static inline __attribute__((always_inline)) uint32_t
move_short_run(struct sw_qp *qp, struct sw_direct_qp *d, const struct ibv_send_wr **wr,
               uint32_t most, uint32_t *moved_bytes, bool reads)
{
    const struct ibv_send_wr *at = *wr;
    uint32_t count = 0, bytes = 0;
    if (d->send.answers_due || qp->type == IBV_QPT_XRC_SEND ||
        !(qp->sq.opcodes >> (reads ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE) & 1))
        return 0;
    most = sw_min_u32(most, AHEAD_BYTES / SHORT_BYTES);
    for (; count < most && at && is_short(&qp->sq, at, reads); at = at->next) {
        if (!write_or_read(qp, d, at, reads))
            break;
        bytes += at->sg_list->length;
        count++;
    }
    sw_account_short(d, reads ? SW_MOVED_IN : SW_MOVED_OUT, bytes, count);
    *moved_bytes = bytes;
    *wr = at;
    return count;
}

static inline uint32_t move_short(struct sw_qp *qp, struct sw_direct_qp *d,
                                  const struct ibv_send_wr **wr, uint32_t most,
                                  uint32_t *moved_bytes)
{
    if ((*wr)->opcode == IBV_WR_RDMA_WRITE)
        return move_short_run(qp, d, wr, most, moved_bytes, false);
    if ((*wr)->opcode == IBV_WR_RDMA_READ)
        return move_short_run(qp, d, wr, most, moved_bytes, true);
    return 0;
}

/* It takes part of the bounce area, or is fetched. */
static inline bool is_long_shared(const struct sw_direct_qp *d, const struct ibv_send_wr *wr)
{
    return !d->remote.rq_entries && wr->sg_list->length > SW_WHOLE_BYTES &&
           (wr->opcode == IBV_WR_SEND || wr->opcode == IBV_WR_SEND_WITH_IMM);
}

uint32_t sw_ahead_run(struct sw_qp *qp, struct sw_direct_qp *d, const struct ibv_send_wr *wr,
                      uint32_t most, uint32_t *sent)
{
    sw_lock_assert_held(&qp->lock);
    uint32_t executed, moved_bytes = 0;
    if (!d->tx || d->xrc.busy || (d->send.answers_due && d->remote.rq_entries) || !most ||
        !sw_sq_may_skip(&qp->sq, wr) || is_long_shared(d, wr) || !sw_bind_enter(qp, d))
        return 0;
    executed = move_short(qp, d, &wr, most, &moved_bytes);
    bool may_skip = executed == 0; /* the first, of which that is known */
    for (; executed < most && wr && moved_bytes < AHEAD_BYTES; may_skip = false) {
        if (!may_skip && !sw_sq_may_skip(&qp->sq, wr))
            break;
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
