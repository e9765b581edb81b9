/* SPDX-License-Identifier: BSD-2-Clause */
#include "device/serve/datagram.h"

#include "device/queue/ah.h"
#include "device/queue/counters.h"
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
    struct ibv_wc wc = {
        .wr_id = claim.wr_id,
        .status = rule->responder,
        .opcode = IBV_WC_RECV,
        .byte_len = SW_GRH_BYTES + datagram->len_bytes,
        .imm_data = datagram->imm,
        .qp_num = qp->qpn,
        .src_qp = datagram->src_qpn,
        .wc_flags = IBV_WC_GRH | (datagram->has_imm ? IBV_WC_WITH_IMM : 0),
        .sl = datagram->sl,
    };
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
