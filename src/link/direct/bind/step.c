/* SPDX-License-Identifier: BSD-2-Clause */

#include "link/direct/bind/step.h"

#include "device/queue/qp_impl.h"
#include "link/direct/bind/connection.h"
#include "link/direct/bind/record.h"
#include "link/direct/process/block.h"
#include "link/gather.h"

enum sw_step sw_step_local_error(struct sw_direct_qp *d, enum ibv_wc_status status)
{
    d->send.fail_status = status;
    d->send.fail_verdict = SW_ACK;
    return SW_STEP_FAILED;
}

enum sw_step sw_step_refused(struct sw_direct_qp *d, enum sw_verdict verdict)
{
    const struct sw_verdict_rule *rule = &d->rules[verdict];
    if (rule->requester_fatal) {
        d->send.fail_status = rule->requester;
        d->send.fail_verdict = verdict;
        return SW_STEP_FAILED;
    }
    if (rule->lost) {
        atomic_fetch_add_explicit(&d->tx->lost, 1, memory_order_relaxed);
    } else if (rule->responder_fatal) {
        sw_record_fatal(d, verdict);
        d->send.notify = d->send.notify_solicited = true;
    }
    return SW_STEP_LOST;
}

bool sw_step_is_sound(struct sw_qp *qp)
{
    const struct sw_wqe *wqe = sw_sq_at(&qp->sq, qp->sq.next);
    if (wqe->opcode != IBV_WR_SEND && wqe->opcode != IBV_WR_SEND_WITH_IMM &&
        wqe->opcode != IBV_WR_SEND_WITH_INV && wqe->opcode != IBV_WR_RDMA_WRITE &&
        wqe->opcode != IBV_WR_RDMA_WRITE_WITH_IMM)
        return true;
    struct sw_gather gather = sw_gather_of(qp, qp->sq.next);
    return sw_gather_allows(&gather, wqe->len_bytes);
}

enum sw_step sw_step_refused_next(struct sw_qp *qp, struct sw_direct_qp *d, enum sw_verdict verdict)
{
    return sw_step_is_sound(qp) ? sw_step_refused(d, verdict)
                                : sw_step_local_error(d, IBV_WC_LOC_PROT_ERR);
}
