/* SPDX-License-Identifier: BSD-2-Clause */
#include "device/serve/receive.h"

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
