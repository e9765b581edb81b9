/* SPDX-License-Identifier: BSD-2-Clause */
#include "device/serve/datagram.h"

#include "base/fault.h"
#include "base/payload.h"
#include "device/queue/ah.h"
#include "device/queue/counters.h"
#include "device/queue/cq_impl.h"
#include "device/queue/qp_impl.h"

/* IBTA Vol1 10.3.1: the receive queue works on while sends drain or after one of them failed. */
static bool can_receive(enum ibv_qp_state state)
{
    return state == IBV_QPS_RTR || state == IBV_QPS_RTS || state == IBV_QPS_SQD ||
           state == IBV_QPS_SQE;
}

static void drop_datagram(struct sw_qp *qp, enum sw_counter why)
{
    sw_counter_add(qp->ctx->netdev, why);
}

/* The message goes behind the 40 bytes, also where they hold nothing (IBTA Vol1 11.4.1.2). */
static enum ibv_wc_status scatter_datagram(const struct sw_recv_claim *claim,
                                           const struct sw_datagram *datagram)
{
    enum ibv_wc_status status =
        sw_recv_scatter(claim->pd, claim->sges, claim->sge_count, 0, datagram->grh, SW_GRH_BYTES);
    if (status == IBV_WC_SUCCESS)
        status = sw_recv_scatter(claim->pd, claim->sges, claim->sge_count, SW_GRH_BYTES,
                                 datagram->payload, datagram->len_bytes);
    return status;
}

/* Field by field, as sw_execute_completion() does it and for its reason. */
static void fill_datagram_completion(const struct sw_qp *qp, const struct sw_datagram *datagram,
                                     uint64_t wr_id, enum ibv_wc_status status, struct ibv_wc *out)
{
    out->wr_id = wr_id;
    out->status = status;
    out->opcode = IBV_WC_RECV;
    out->vendor_err = 0;
    out->byte_len = SW_GRH_BYTES + datagram->len_bytes;
    out->imm_data = datagram->imm;
    out->qp_num = qp->qpn;
    out->src_qp = datagram->src_qpn;
    out->wc_flags = IBV_WC_GRH | (datagram->has_imm ? IBV_WC_WITH_IMM : 0);
    out->pkey_index = 0;
    out->slid = 0;
    out->sl = datagram->sl;
    out->dlid_path_bits = 0;
}

static void place_datagram(struct sw_qp *qp, const struct sw_datagram *datagram)
{
    struct sw_recv_claim claim;
    switch (sw_qp_take_recv_of(qp, SW_GRH_BYTES + datagram->len_bytes, &claim)) {
    case SW_RECV_NONE:
        drop_datagram(qp, SW_RX_DROP_NO_RECV);
        return;
    case SW_RECV_SHORT:
        drop_datagram(qp, SW_RX_DROP_LENGTH);
        return;
    case SW_RECV_TAKEN:
        break;
    }
    bool placed = scatter_datagram(&claim, datagram) == IBV_WC_SUCCESS;
    const struct sw_verdict_rule *rule = &sw_verdict_rules[placed ? SW_ACK : SW_NAK_OPERATIONAL];
    struct ibv_wc wc;
    fill_datagram_completion(qp, datagram, claim.wr_id, rule->responder, &wc);
    sw_qp_complete_recv(qp, &wc, datagram->is_solicited);
    if (rule->responder_fatal)
        sw_qp_fail(qp, rule->responder_event);
}

/* As the port has it: also what is dropped then. */
static void account_datagram(struct sw_qp *qp, const struct sw_datagram *datagram)
{
    if (datagram->is_copy)
        return;
    qp->moved.received_bytes += datagram->len_bytes;
    qp->moved.received_packets++;
    qp->moved.received_multicast += datagram->is_multicast;
}

bool sw_datagram_deliver(struct sw_qp *qp, const struct sw_datagram *datagram)
{
    bool is_welcome = false;
    sw_lock_acquire(&qp->lock);
    account_datagram(qp, datagram);
    if (!can_receive(qp->state))
        drop_datagram(qp, SW_RX_DROP_NO_QP);
    else if (datagram->qkey != qp->attr.qkey) /* the P_Key always fits: a RoCE port has but one */
        drop_datagram(qp, SW_RX_DROP_QKEY);
    else
        is_welcome = true;
    if (is_welcome)
        place_datagram(qp, datagram);
    sw_lock_release(&qp->lock);
    return is_welcome;
}

/* False: nothing is locked, and sw_datagram_deliver() is to take what comes. */
static bool begin_batch(struct sw_datagram_batch *batch, struct sw_qp *qp)
{
    sw_lock_acquire(&qp->lock);
    if (!can_receive(qp->state) ||
        atomic_load_explicit(&qp->recv_cq->pub->armed, memory_order_relaxed) != SW_CQ_DISARMED) {
        sw_lock_release(&qp->lock);
        return false;
    }
    batch->qp = qp;
    batch->count = 0;
    sw_receive_run_begin(qp, qp->srq, &batch->receives);
    return true;
}

void sw_datagram_batch_end(struct sw_datagram_batch *batch)
{
    struct sw_qp *qp = batch->qp;
    if (!qp)
        return;
    sw_receive_run_end(&batch->receives);
    sw_lock_release(&qp->lock);
    batch->qp = NULL;
}

static bool deliver_next(struct sw_datagram_batch *batch, const struct sw_datagram *datagram)
{
    struct sw_qp *qp = batch->qp;
    if (datagram->qkey != qp->attr.qkey)
        return false;
    uint8_t *to = sw_receive_run_at(&batch->receives, SW_GRH_BYTES + datagram->len_bytes);
    if (!to)
        return false;
    const uint64_t mark = sw_fault_mark();
    sw_payload_copy(to, datagram->grh, SW_GRH_BYTES);
    sw_payload_copy(to + SW_GRH_BYTES, datagram->payload, datagram->len_bytes);
    if (sw_fault_judge(mark, to, SW_GRH_BYTES + datagram->len_bytes) != SW_FAULT_NONE)
        return false;
    account_datagram(qp, datagram);
    uint64_t wr_id;
    struct ibv_wc *wc = sw_receive_run_pass(&batch->receives, &wr_id);
    fill_datagram_completion(qp, datagram, wr_id, IBV_WC_SUCCESS, wc);
    sw_receive_run_publish(&batch->receives, datagram->is_solicited);
    batch->count++;
    return true;
}

void sw_datagram_batch_deliver(struct sw_datagram_batch *batch, struct sw_qp *qp,
                               const struct sw_datagram *datagram)
{
    if (batch->qp && (batch->qp != qp || batch->count == SW_RECEIVE_RUN_MOST))
        sw_datagram_batch_end(batch);
    if ((batch->qp || begin_batch(batch, qp)) && deliver_next(batch, datagram))
        return;
    sw_datagram_batch_end(batch);
    sw_datagram_deliver(qp, datagram);
}
