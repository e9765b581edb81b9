/* SPDX-License-Identifier: BSD-2-Clause */
#include "device/serve/receive.h"

#include "device/memory/mr_impl.h"
#include "device/queue/cq_impl.h"
#include "device/queue/xrc_impl.h"

bool sw_receive_take(struct sw_qp *qp, struct sw_receive *receive, const struct sw_inbound *message)
{
    sw_lock_assert_held(&qp->lock);
    if (!receive->is_taken) {
        receive->is_taken = sw_execute_take_recv(qp, message, &receive->claim);
        receive->srq_num = message->srq ? message->srq->num : 0;
    }
    return receive->is_taken;
}

enum ibv_wc_status sw_receive_refusal(const struct sw_qp *qp, enum sw_verdict verdict)
{
    const struct sw_verdict_rule *rule = &sw_verdict_rules_of(qp->type)[verdict];
    if (rule->lost && !qp->srq)
        return IBV_WC_SUCCESS;
    return rule->responder == IBV_WC_SUCCESS ? IBV_WC_WR_FLUSH_ERR : rule->responder;
}

void sw_receive_complete(struct sw_qp *qp, struct sw_receive *receive,
                         const struct sw_inbound *message, uint32_t len_bytes,
                         enum ibv_wc_opcode opcode, enum ibv_wc_status status)
{
    receive->is_taken = false;
    sw_execute_complete(qp, message, &receive->claim, len_bytes, opcode, status);
}

void sw_receive_flush(struct sw_qp *qp, struct sw_receive *receive)
{
    sw_lock_assert_held(&qp->lock);
    const struct sw_inbound message = {
        .srq = qp->xrcd ? sw_xrcd_srq_of(qp, receive->srq_num) : NULL,
        .is_solicited = true,
    };
    if (!receive->is_taken)
        return;
    receive->is_taken = false;
    if (!qp->xrcd || message.srq)
        sw_execute_complete(qp, &message, &receive->claim, 0, IBV_WC_RECV, IBV_WC_WR_FLUSH_ERR);
}

void sw_receive_run_begin(struct sw_qp *qp, struct sw_srq *srq, struct sw_receive_run *run)
{
    sw_lock_assert_held(&qp->lock);
    run->srq = srq;
    run->rq = srq ? &srq->rq : &qp->rq;
    run->cq = qp->xrcd ? srq->cq : qp->recv_cq;
    run->is_solicited = run->any = false;
    if (srq) /* others take from it, too */
        sw_lock_acquire(&srq->rq.lock);
    sw_cq_lock(run->cq);
    run->room = sw_cq_room(run->cq);
}

/* NULL: there is none, or it is for the caller that takes receives one by one. */
static inline const struct sw_pub_recv *oldest_receive(const struct sw_receive_run *run)
{
    return run->srq ? sw_srq_oldest(run->srq) : sw_rq_oldest(run->rq);
}

uint8_t *sw_receive_run_at(const struct sw_receive_run *run, uint32_t len_bytes)
{
    uint8_t *to;
    if (!run->room ||
        atomic_load_explicit(&run->cq->pub->armed, memory_order_relaxed) != SW_CQ_DISARMED)
        return NULL;
    const struct sw_pub_recv *recv = oldest_receive(run);
    if (!recv || !recv->sge_count || recv->sges[0].length < len_bytes ||
        !sw_sge_resolve(run->rq->pd, recv->sges, IBV_ACCESS_LOCAL_WRITE, &to))
        return NULL;
    return to;
}

struct ibv_wc *sw_receive_run_pass(struct sw_receive_run *run, uint64_t *wr_id)
{
    struct sw_cqe *cqe = sw_cq_reserve(run->cq);
    *wr_id = sw_rq_pass(run->rq);
    cqe->qp = NULL;
    return &cqe->wc;
}

void sw_receive_run_publish(struct sw_receive_run *run, bool is_solicited)
{
    sw_cq_publish(run->cq);
    run->room--;
    run->any = true;
    run->is_solicited |= is_solicited;
}

void sw_receive_run_complete(const struct sw_qp *qp, struct sw_receive_run *run,
                             const struct sw_inbound *message, uint32_t len_bytes)
{
    uint64_t wr_id;
    struct ibv_wc *wc = sw_receive_run_pass(run, &wr_id);
    sw_execute_completion(qp, message, wr_id, len_bytes, IBV_WC_RECV, IBV_WC_SUCCESS, wc);
    sw_receive_run_publish(run, message->is_solicited);
}

void sw_receive_run_end(struct sw_receive_run *run)
{
    if (run->srq)
        sw_lock_release(&run->srq->rq.lock);
    if (run->any)
        sw_cq_unlock(run->cq, run->is_solicited);
    else /* without an event */
        sw_lock_release(&run->cq->push_lock);
}
