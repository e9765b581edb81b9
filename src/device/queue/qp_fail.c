/* SPDX-License-Identifier: BSD-2-Clause */
/* The end of a queue pair's work: errors, and what is flushed. */
#include "device/queue/cq_impl.h"
#include "device/queue/qp_impl.h"

void sw_qp_flush_recv(struct sw_qp *qp, uint64_t wr_id)
{
    struct ibv_wc wc = {
        .wr_id = wr_id, .status = IBV_WC_WR_FLUSH_ERR, .opcode = IBV_WC_RECV, .qp_num = qp->qpn};
    sw_qp_complete_recv(qp, &wc, true);
}

void sw_qp_fail(struct sw_qp *qp, int event)
{
    sw_lock_assert_held(&qp->lock);
    if (qp->state != IBV_QPS_ERR) {
        sw_qp_set_state(qp, IBV_QPS_ERR);
        qp->link->disconnect(qp);
        sw_qp_rx_idle(qp);
        sw_qp_publish(qp, IBV_QPS_ERR);
    }
    while (qp->sq.head != qp->sq.tail)
        sw_sq_retire(qp, IBV_WC_WR_FLUSH_ERR);
    atomic_store(&qp->tx_pending, false);
    struct sw_recv_claim claim;
    while (!qp->srq && sw_qp_take_recv(qp, &claim))
        sw_qp_flush_recv(qp, claim.wr_id);
    if (event >= 0)
        sw_context_event(qp->ctx, (enum ibv_event_type)event, qp->owner);
    if (qp->srq && !qp->last_wqe_sent) {
        qp->last_wqe_sent = true;
        sw_context_event(qp->ctx, IBV_EVENT_QP_LAST_WQE_REACHED, qp->owner);
    }
}

void sw_qp_fail_send(struct sw_qp *qp, enum ibv_wc_status status)
{
    sw_lock_assert_held(&qp->lock);
    if (qp->sq.head != qp->sq.tail)
        sw_sq_retire(qp, status);
    if (!qp->rules->has_sqe || qp->state == IBV_QPS_ERR) {
        sw_qp_fail(qp, -1);
        return;
    }
    sw_qp_set_state(qp, IBV_QPS_SQE);
    sw_qp_publish(qp, IBV_QPS_SQE);
    while (qp->sq.head != qp->sq.tail)
        sw_sq_retire(qp, IBV_WC_WR_FLUSH_ERR);
    atomic_store(&qp->tx_pending, false);
}
