/* SPDX-License-Identifier: BSD-2-Clause */
/* SENDs: matched with the peer's posted receive by the initiator, or (shared receive queue,
 * unreachable buffer) by the target. */
#include "link/direct/send/twosided.h"

#include "device/memory/mr_impl.h"
#include "device/queue/qp_impl.h"
#include "link/direct/bind/connection.h"
#include "link/direct/bind/record.h"
#include "link/direct/bind/record_payload.h"
#include "link/direct/bind/step.h"
#include "link/direct/process/block.h"
#include "link/direct/process/peer.h"
#include "link/direct/send/bounce.h"
#include "link/direct/send/peer_receive.h"
#include "link/direct/send/placing.h"
#include "link/direct/send/receive_credit.h"
#include "link/direct/send/record_head.h"
#include "link/gather.h"

enum sw_step sw_send_inline(struct sw_direct_qp *d, const struct sw_gather *gather,
                            const struct sw_record_head *head)
{
    const uint32_t len_bytes = head->len_bytes;
    uint32_t slots = sw_record_slots(len_bytes, SW_INLINE_FIRST);
    struct sw_record *record = sw_record_reserve(d, slots, false);
    if (!record)
        return SW_STEP_BLOCKED;
    if (!sw_record_fill(d, record, gather, len_bytes, SW_INLINE_FIRST))
        return sw_step_local_error(d, IBV_WC_LOC_PROT_ERR);
    sw_record_head_write(record, SW_REC_SEND_INLINE, SW_ACK, head);
    d->send.recv_used++;
    sw_record_publish(d, record, slots, true);
    return SW_STEP_DONE;
}

enum sw_step sw_send_announce(struct sw_direct_qp *d, const struct sw_wqe *wqe,
                              enum sw_record_kind kind, enum sw_verdict verdict)
{
    struct sw_record *record = sw_record_reserve(d, 1, verdict != SW_ACK);
    if (!record)
        return SW_STEP_BLOCKED;
    const struct sw_record_head head = sw_record_head_queued(wqe);
    sw_record_head_write(record, kind, verdict, &head);
    d->send.recv_used++;
    sw_record_publish(d, record, 1, true);
    if (!d->rules[verdict].requester_fatal)
        return SW_STEP_DONE;
    d->send.fail_verdict = SW_ACK; /* this record told the peer */
    d->send.fail_status = d->rules[verdict].requester;
    return SW_STEP_FAILED;
}

static enum sw_step place_message(struct sw_qp *qp, struct sw_direct_qp *d, struct sw_wqe *wqe,
                                  uint32_t position, const struct sw_placing *placing)
{
    const struct sw_gather gather = sw_gather_of(qp, position);
    const struct sw_record_head head = sw_record_head_queued(wqe);
    const enum sw_step step = sw_placing_send(d, &gather, placing, &head);
    if (step == SW_STEP_DONE) {
        wqe->done_bytes = wqe->len_bytes;
        d->send.budget_bytes -= wqe->len_bytes;
    }
    return step;
}

enum sw_step sw_twosided_start(struct sw_qp *qp, struct sw_direct_qp *d, struct sw_wqe *wqe,
                               uint32_t position)
{
    if (wqe->via_ring)
        return sw_bounce_start(qp, d, wqe, position);
    /* The target finds what is wrong with a message, in its order; but one that will be lost takes
     * no receive, and who is its own target would fail, and flush it, before it has its status. */
    const bool is_own_target = qp->dest_qpn == qp->qpn;
    if (wqe->opcode == IBV_WR_SEND_WITH_INV && (d->rules[SW_NAK_ACCESS].lost || is_own_target)) {
        enum sw_verdict verdict =
            sw_target_check_invalidate(d->peer->pub, wqe->imm, sw_remote_side(&d->remote));
        if (verdict != SW_ACK)
            return sw_step_refused_next(qp, d, verdict);
    }
    if (d->remote.rq_entries == 0)
        return sw_bounce_start(qp, d, wqe, position);
    enum sw_step step = sw_receive_credit(qp, d);
    if (step != SW_STEP_DONE)
        return step;
    bool invalidates = wqe->opcode == IBV_WR_SEND_WITH_INV;
    if (wqe->len_bytes <= SW_INLINE_BYTES && !invalidates &&
        sw_send_suits_ring(d, wqe->len_bytes)) {
        const struct sw_gather gather = sw_gather_of(qp, position);
        const struct sw_record_head head = sw_record_head_queued(wqe);
        return sw_send_inline(d, &gather, &head);
    }

    struct sw_peer_receive receive;
    struct sw_placing placing;
    sw_peer_receive_read(d, &receive);
    enum sw_verdict verdict = sw_peer_receive_judge(d, &receive, wqe->len_bytes, &placing);
    if (d->rules[verdict].lost)
        return sw_step_refused_next(qp, d, verdict); /* the receive serves the next message */
    if (invalidates) /* the key dies at the target, in order: what comes after must not find it */
        return sw_bounce_start(qp, d, wqe, position);
    if (verdict != SW_ACK && !sw_step_is_sound(qp))
        return sw_step_local_error(d, IBV_WC_LOC_PROT_ERR);
    if (verdict != SW_ACK)
        return d->send.answers_due ? SW_STEP_BLOCKED
                                   : sw_send_announce(d, wqe, SW_REC_SEND_PLACED, verdict);
    const bool at_once =
        !wqe->done_bytes && wqe->len_bytes <= d->send.budget_bytes && sw_placing_suits(d, &placing);
    if (placing.reach == SW_REACH_RING && !at_once) {
        wqe->done_bytes =
            0; /* the peer may have changed its memory since; it was told of nothing */
        return sw_bounce_start(qp, d, wqe, position);
    }
    if (placing.reach == SW_REACH_WAIT && !at_once)
        return SW_STEP_BLOCKED;
    if (d->send.answers_due && wqe->done_bytes == 0)
        return SW_STEP_BLOCKED; /* what the target executes may fail, and nothing be placed then */
    if (at_once)
        return place_message(qp, d, wqe, position, &placing);
    step = sw_peer_receive_fill(qp, d, wqe, position, &receive, &verdict);
    return step == SW_STEP_DONE ? sw_send_announce(d, wqe, SW_REC_SEND_PLACED, verdict) : step;
}
