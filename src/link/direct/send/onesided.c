/* SPDX-License-Identifier: BSD-2-Clause */
/* WRITE, WRITE with immediate, READ and atomics, executed by the initiator on memory it can reach.
 */
#include "link/direct/send/onesided.h"

#include <sidewire/flush.h>
#include <string.h>

#include "base/fault.h"
#include "base/guarded_copy.h"
#include "device/memory/mr_impl.h"
#include "device/queue/qp_impl.h"
#include "link/direct/bind/account.h"
#include "link/direct/bind/connection.h"
#include "link/direct/bind/step.h"
#include "link/direct/process/block.h"
#include "link/direct/process/peer.h"
#include "link/direct/send/bounce.h"
#include "link/direct/send/flush.h"
#include "link/direct/send/moving.h"
#include "link/direct/send/reach.h"
#include "link/direct/send/receive_credit.h"
#include "link/direct/send/twosided.h"
#include "link/gather.h"

static enum sw_step finish_write(struct sw_direct_qp *d, const struct sw_wqe *wqe)
{
    if (wqe->opcode != IBV_WR_RDMA_WRITE_WITH_IMM)
        return SW_STEP_DONE;
    return sw_send_announce(d, wqe, SW_REC_WRITE_IMM, SW_ACK);
}

static enum sw_move onesided_move_of(const struct sw_direct_qp *d, const struct sw_wqe *wqe)
{
    if (wqe->opcode == IBV_WR_RDMA_READ)
        return SW_MOVE_IN;
    return d->remote.in_order ? SW_MOVE_IN_ORDER : SW_MOVE_OUT;
}

/* The peer may have changed its memory since the first part of a long one was moved. */
static enum sw_reach reach_of_rest(const struct sw_direct_qp *d, const struct sw_pub_mr *mr,
                                   const struct sw_wqe *wqe, enum sw_move move)
{
    const uint64_t at = wqe->remote_addr + wqe->done_bytes;
    const uint64_t rest = wqe->len_bytes - wqe->done_bytes;
    return move == SW_MOVE_IN_ORDER ? sw_reach_probe_stores(d->peer, mr, at, rest)
                                    : sw_reach_probe(d->peer, mr, at, rest);
}

static enum sw_step onesided_move_bytes(struct sw_qp *qp, struct sw_direct_qp *d,
                                        struct sw_wqe *wqe, uint32_t position)
{
    uint32_t need = sw_target_need((enum ibv_wr_opcode)wqe->opcode);
    const struct sw_pub_mr *mr;
    uint64_t word;
    enum sw_verdict verdict =
        sw_target_check(d->peer->pub, wqe->rkey, wqe->remote_addr, wqe->len_bytes, need,
                        sw_remote_side(&d->remote), &mr, &word);
    if (verdict != SW_ACK)
        return sw_step_refused_next(qp, d, verdict);
    const enum sw_move move = onesided_move_of(d, wqe);
    const enum sw_reach reach = reach_of_rest(d, mr, wqe, move);
    if (reach == SW_REACH_RING && move == SW_MOVE_IN)
        wqe->done_bytes = 0; /* it is asked for as a whole */
    if (reach == SW_REACH_RING)
        return sw_bounce_start(qp, d, wqe, position);
    if (reach == SW_REACH_WAIT)
        return SW_STEP_BLOCKED;
    if (d->send.answers_due)
        return SW_STEP_BLOCKED; /* must not overtake what the target still executes */
    struct sw_gather gather = sw_gather_of(qp, position);
    enum sw_step step =
        sw_reach_move(d, &gather, 0, mr, wqe->remote_addr, wqe->len_bytes, move, &wqe->done_bytes);
    if (step != SW_STEP_DONE)
        return step;
    sw_reach_remember(d, wqe->rkey, mr, word, wqe->remote_addr);
    return finish_write(d, wqe);
}

/* The word of an ATOMIC WRITE; false: a local key does not allow it. */
static bool gather_word(struct sw_qp *qp, struct sw_wqe *wqe, uint32_t position)
{
    struct sw_gather gather = sw_gather_of(qp, position);
    for (uint64_t got = 0; !(wqe->flags & SW_WQE_INLINE) && got < 8;) {
        uint64_t run = 8 - got;
        const uint8_t *from = sw_gather_at(&gather, got, 0, &run);
        if (!from)
            return false;
        if (!sw_guarded_copy((uint8_t *)&wqe->compare_add + got, from, run, from))
            return false;
        got += run;
    }
    return true;
}

static enum sw_step onesided_do_atomic(struct sw_qp *qp, struct sw_direct_qp *d, struct sw_wqe *wqe,
                                       uint32_t position)
{
    if (wqe->remote_addr & 7)
        return sw_step_refused(d, SW_NAK_INVALID);
    bool is_write = wqe->opcode == IBV_WR_ATOMIC_WRITE;
    uint32_t need = sw_target_need((enum ibv_wr_opcode)wqe->opcode);
    if (is_write && !gather_word(qp, wqe, position))
        return sw_step_local_error(d, IBV_WC_LOC_PROT_ERR);
    const struct sw_pub_mr *mr;
    uint64_t word;
    uint8_t *remote = sw_reach_remembered(d, wqe->rkey, wqe->remote_addr, 8, need);
    if (!remote) {
        enum sw_verdict verdict = sw_target_check(d->peer->pub, wqe->rkey, wqe->remote_addr, 8,
                                                  need, sw_remote_side(&d->remote), &mr, &word);
        if (verdict != SW_ACK)
            return sw_step_refused(d, verdict);
        bool wait;
        remote = sw_reach_mapped(d->peer, mr, wqe->remote_addr, 8, &wait);
        if (!remote)
            return wait ? SW_STEP_BLOCKED : sw_bounce_start(qp, d, wqe, position);
        sw_reach_remember(d, wqe->rkey, mr, word, wqe->remote_addr);
    }
    if ((uintptr_t)remote & 7)
        return sw_step_refused(d, SW_NAK_INVALID); /* its iova is aligned, the memory is not */
    if (d->send.answers_due)
        return SW_STEP_BLOCKED;
    const uint64_t mark = sw_fault_mark();
    if (is_write) {
        sw_target_atomic((uint64_t *)remote, wqe->opcode, wqe->compare_add, 0);
        return sw_reach_judge(d, mark, remote, &wqe->compare_add, 8);
    }
    struct sw_gather gather = sw_gather_of(qp, position);
    uint8_t *local[8];
    for (uint32_t got = 0;
         got < 8;) { /* the result may be scattered: resolve it all before the effect */
        uint64_t run = 8 - got;
        uint8_t *at = sw_gather_at(&gather, got, IBV_ACCESS_LOCAL_WRITE, &run);
        if (!at)
            return sw_step_local_error(d, IBV_WC_LOC_PROT_ERR);
        for (uint64_t i = 0; i < run; i++)
            local[got++] = at + i;
    }
    uint64_t before =
        sw_target_atomic((uint64_t *)remote, wqe->opcode, wqe->compare_add, wqe->swap);
    if (sw_fault_judge(mark, remote, 8) != SW_FAULT_NONE) /* it may have happened: never again */
        return sw_reach_lost(d);
    for (int i = 0; i < 8; i++)
        if (!sw_guarded_copy(local[i], (uint8_t *)&before + i, 1, local[i]))
            return sw_step_local_error(d, IBV_WC_LOC_PROT_ERR);
    return SW_STEP_DONE;
}

/* One local element, region remembered: what nearly every request of a tuned program looks like. */
static enum sw_step do_mapped(struct sw_qp *qp, struct sw_direct_qp *d, struct sw_wqe *wqe,
                              uint32_t position, uint8_t *remote)
{
    uint8_t *local;
    if (wqe->flags & SW_WQE_INLINE) {
        local = sw_sq_inline(&qp->sq, position);
    } else {
        uint32_t need = wqe->opcode == IBV_WR_RDMA_READ ? IBV_ACCESS_LOCAL_WRITE : 0;
        if (!sw_sge_resolve(qp->pd_id, sw_sq_sges(&qp->sq, position), need, &local))
            return sw_step_local_error(d, IBV_WC_LOC_PROT_ERR);
    }
    const bool reads = wqe->opcode == IBV_WR_RDMA_READ;
    const uint64_t mark = sw_fault_mark();
    sw_move_bytes(d, reads ? local : remote, reads ? remote : local, wqe->len_bytes, reads);
    if (!sw_fault_quiet(mark)) {
        enum sw_step step = sw_reach_judge(d, mark, remote, local, wqe->len_bytes);
        if (step != SW_STEP_DONE)
            return step;
    }
    d->send.budget_bytes -= wqe->len_bytes;
    wqe->done_bytes = wqe->len_bytes;
    return finish_write(d, wqe);
}

enum sw_step sw_onesided_start(struct sw_qp *qp, struct sw_direct_qp *d, struct sw_wqe *wqe,
                               uint32_t position)
{
    if (wqe->via_ring)
        return sw_bounce_start(qp, d, wqe, position);
    if (wqe->opcode >= IBV_WR_ATOMIC_CMP_AND_SWP) /* and what newer headers have: all above READ */
        return wqe->opcode == IBV_WR_FLUSH ? sw_flush_start(d, wqe)
                                           : onesided_do_atomic(qp, d, wqe, position);
    if (wqe->opcode == IBV_WR_RDMA_WRITE_WITH_IMM) {
        if (d->remote.rq_entries == 0)
            return sw_bounce_start(qp, d, wqe, position); /* the target takes the receive */
        enum sw_step step = sw_receive_credit(qp, d);
        if (step != SW_STEP_DONE)
            return step;
    }
    if (wqe->len_bytes == 0) {
        enum sw_verdict verdict = sw_target_check_empty(
            sw_target_need((enum ibv_wr_opcode)wqe->opcode), d->remote.access);
        if (verdict != SW_ACK)
            return sw_step_refused(d, verdict);
        return d->send.answers_due ? SW_STEP_BLOCKED : finish_write(d, wqe);
    }
    if (wqe->done_bytes == wqe->len_bytes)
        return finish_write(d, wqe); /* the immediate had no room before */
    if (wqe->sge_count <= 1 && wqe->done_bytes == 0 && wqe->len_bytes <= d->send.budget_bytes &&
        !d->send.answers_due) {
        uint8_t *remote = sw_reach_remembered(d, wqe->rkey, wqe->remote_addr, wqe->len_bytes,
                                              sw_target_need((enum ibv_wr_opcode)wqe->opcode));
        if (remote)
            return do_mapped(qp, d, wqe, position, remote);
    }
    return onesided_move_bytes(qp, d, wqe, position);
}
