/* SPDX-License-Identifier: BSD-2-Clause */
#include "link/direct/serve/serve.h"

#include "base/clock.h"
#include "device/queue/cq_impl.h"
#include "device/queue/qp_impl.h"
#include "link/direct/bind/bind.h"
#include "link/direct/send/receive_credit.h"
#include "link/direct/serve/answer.h"

enum sw_serve sw_serve_end_connection(struct sw_qp *qp, enum sw_verdict verdict)
{
    sw_lock_assert_held(&qp->lock);
    struct sw_direct_qp *d = qp->link_state;
    if (d->serve.acks_due && sw_bind_enter(qp, d)) { /* what was done before stays done */
        sw_answer_acks(d);
        sw_bind_leave(d);
    }
    sw_answer_wake(d);
    sw_qp_fail(qp, sw_verdict_rules[verdict].responder_event);
    return SW_SERVE_ENDED;
}

enum sw_serve sw_serve_answer(struct sw_qp *qp, struct sw_direct_qp *d, enum sw_verdict verdict,
                              uint64_t original)
{
    sw_lock_assert_held(&qp->lock);
    bool answered = false;
    if (sw_bind_enter(qp, d)) {
        sw_answer_acks(d);
        struct sw_record *record = sw_answer_reserve(d, 0);
        answered = record;
        if (record) {
            record->kind = SW_REC_ANSWER;
            bool told = d->rules[verdict].requester_fatal || d->rules[verdict].lost;
            record->verdict = told ? (uint8_t)verdict : SW_ACK;
            record->compare_add = original;
            sw_answer_publish(d, record);
        }
        sw_bind_leave(d);
    }
    if (!answered && !sw_bind_is_over(qp, d))
        return SW_SERVE_WAIT;
    if (d->rules[verdict].responder_fatal)
        return sw_serve_end_connection(qp, verdict);
    return SW_SERVED;
}

enum sw_serve sw_serve_deliver(struct sw_qp *qp, struct sw_direct_qp *d,
                               const struct sw_peer_request *request, uint32_t len_bytes,
                               enum ibv_wc_opcode opcode)
{
    const struct sw_cq *cq = request->message.srq ? request->message.srq->cq : qp->recv_cq;
    sw_serve_acknowledge(d);
    if (atomic_load_explicit(&cq->pub->armed, memory_order_relaxed) != SW_CQ_DISARMED &&
        sw_bind_enter(qp, d)) {
        sw_answer_acks(d);
        sw_bind_leave(d);
    }
    sw_receive_complete(qp, &d->serve.receive, &request->message, len_bytes, opcode,
                        IBV_WC_SUCCESS);
    return SW_SERVED;
}

/* Whether the sender has counted one of our receives for this message. */
static bool counts_receive(const struct sw_qp *qp, const struct sw_peer_request *request)
{
    return !qp->srq && (request->kind != SW_REC_WRITE || request->flags & SW_REC_IMM);
}

enum sw_serve sw_serve_lose(struct sw_qp *qp, struct sw_direct_qp *d,
                            const struct sw_peer_request *request)
{
    sw_lock_assert_held(&qp->lock);
    const bool last = request->flags & SW_REC_LAST;
    if (last && !counts_receive(qp, request))
        sw_serve_acknowledge(d);
    else if (last && sw_serve_answer(qp, d, SW_RNR, 0) == SW_SERVE_WAIT)
        return SW_SERVE_WAIT;
    if (!d->serve.skipping)
        d->serve.lost++;
    d->serve.skipping = !last;
    return SW_SERVED;
}

enum sw_serve sw_serve_refuse(struct sw_qp *qp, struct sw_direct_qp *d,
                              const struct sw_peer_request *request, enum sw_verdict verdict)
{
    sw_lock_assert_held(&qp->lock);
    if (d->rules[verdict].lost)
        return sw_serve_lose(qp, d, request);
    if (!d->rules[verdict].requester_fatal && !(request->flags & SW_REC_LAST))
        return sw_serve_end_connection(qp, verdict);
    return sw_serve_answer(qp, d, verdict, 0);
}

bool sw_serve_can_answer(struct sw_qp *qp, struct sw_direct_qp *d)
{
    if (__builtin_expect(!d->tx, 0)) {
        if (!sw_bind_enter(qp, d))
            return sw_bind_is_over(qp, d);
        sw_bind_leave(d);
    }
    return sw_answer_has_room(d) || sw_bind_is_over(qp, d);
}

enum sw_serve sw_serve_rnr(struct sw_qp *qp, struct sw_direct_qp *d,
                           const struct sw_peer_request *request, uint8_t rnr_retry)
{
    sw_lock_assert_held(&qp->lock);
    if (d->rules[SW_RNR].lost)
        return sw_serve_lose(qp, d, request);
    uint64_t now_ns = sw_clock_ns();
    if (!d->serve.rnr_ns)
        d->serve.rnr_ns = now_ns;
    if (rnr_retry >= 7 ||
        now_ns - d->serve.rnr_ns < rnr_retry * sw_rnr_timer_ns(qp->attr.min_rnr_timer))
        return SW_SERVE_WAIT;
    enum sw_serve result = sw_serve_answer(qp, d, SW_RNR_EXHAUSTED, 0);
    d->serve.is_over |= result == SW_SERVED;
    return result;
}

bool sw_serve_take_receive(struct sw_qp *qp, struct sw_direct_qp *d,
                           const struct sw_peer_request *request)
{
    if (!sw_receive_take(qp, &d->serve.receive, &request->message))
        return false;
    d->serve.rnr_ns = 0;
    return true;
}
