/* SPDX-License-Identifier: BSD-2-Clause */
#include "link/direct/serve/responder.h"

#include "device/queue/qp_impl.h"
#include "device/serve/execute.h"
#include "link/direct/bind/bind.h"
#include "link/direct/bind/connection.h"
#include "link/direct/bind/record_payload.h"
#include "link/direct/process/block.h"
#include "link/direct/process/state.h"
#include "link/direct/send/requester.h"
#include "link/direct/serve/answer.h"
#include "link/direct/serve/serve_key.h"
#include "link/direct/serve/serve_run.h"
#include "link/direct/serve/serve_send.h"
#include "link/engine.h"

#define RUN_RECORDS 64u /* at most in one call */

/* What a peer may say of a message it could not deliver. */
static enum sw_verdict verdict_of(const struct sw_peer_request *request)
{
    enum sw_verdict verdict = (enum sw_verdict)request->verdict;
    bool known = verdict < SW_VERDICT_COUNT && sw_verdict_rules[verdict].responder_fatal;
    return known || verdict == SW_ACK ? verdict : SW_NAK_INVALID;
}

static enum sw_serve serve_inline(struct sw_qp *qp, struct sw_direct_qp *d,
                                  const struct sw_peer_request *request)
{
    uint32_t len = request->len_bytes;
    if (len > SW_INLINE_BYTES || !sw_receive_take(qp, &d->serve.receive, &request->message))
        return sw_serve_end_connection(qp, SW_NAK_INVALID); /* the peer broke the protocol */
    enum ibv_wc_status status = sw_record_scatter(d, len, SW_INLINE_FIRST);
    sw_receive_complete(qp, &d->serve.receive, &request->message, len, IBV_WC_RECV, status);
    return status == IBV_WC_SUCCESS ? SW_SERVED : sw_serve_end_connection(qp, SW_NAK_OPERATIONAL);
}

/* The initiator did the work (or was refused): only the completion is left. */
static enum sw_serve serve_placed(struct sw_qp *qp, struct sw_direct_qp *d,
                                  const struct sw_peer_request *request, enum ibv_wc_opcode opcode)
{
    const uint32_t len = request->len_bytes;
    enum sw_verdict verdict = verdict_of(request);
    if (!sw_receive_take(qp, &d->serve.receive, &request->message))
        return sw_serve_end_connection(qp, SW_NAK_INVALID);
    if (verdict == SW_ACK && opcode == IBV_WC_RECV && len > d->serve.receive.claim.len_bytes)
        verdict = SW_NAK_INVALID; /* a program must never be told of more than its buffer holds */
    if (verdict != SW_ACK && sw_verdict_rules[verdict].responder == IBV_WC_SUCCESS)
        verdict = SW_NAK_INVALID; /* it would use up no receive */
    sw_receive_complete(qp, &d->serve.receive, &request->message, len, opcode,
                        sw_verdict_rules[verdict].responder);
    return verdict == SW_ACK ? SW_SERVED : sw_serve_end_connection(qp, verdict);
}

static enum sw_serve serve_hello(struct sw_qp *qp, struct sw_direct_qp *d)
{
    if (d->serve.greeted)
        return sw_serve_end_connection(qp, SW_NAK_INVALID);
    d->serve.greeted = true;
    if (qp->state == IBV_QPS_RTR)
        sw_context_event(qp->ctx, IBV_EVENT_COMM_EST, qp->owner);
    return SW_SERVED;
}

static bool uses_bounce(const struct sw_peer_request *request)
{
    return request->kind == SW_REC_SEND || request->kind == SW_REC_WRITE ||
           request->kind == SW_REC_SEND_PULL;
}

/* Whether bytes of the bounce area come with it. */
static bool takes_area(const struct sw_peer_request *request)
{
    return uses_bounce(request) || request->kind == SW_REC_SEND_PARTLY;
}

static bool wants_answer(const struct sw_peer_request *request)
{
    return uses_bounce(request) || request->kind == SW_REC_SEND_WHOLE ||
           request->kind == SW_REC_READ || request->kind == SW_REC_ATOMIC ||
           request->kind == SW_REC_FLUSH;
}

static enum sw_serve serve_bye(struct sw_qp *qp, struct sw_direct_qp *d)
{
    if (!d->rules[SW_UNREACHABLE].lost)
        return sw_serve_end_connection(qp, SW_NAK_INVALID);
    return sw_bind_renew(qp, d) ? SW_SERVE_ENDED : SW_SERVED;
}

static enum sw_serve serve_request(struct sw_qp *qp, struct sw_direct_qp *d,
                                   struct sw_peer_request *request)
{
    if (__builtin_expect(qp->xrcd != NULL, 0) && wants_answer(request) &&
        !sw_execute_name_srq(qp, request->slot->srq_num, &request->message))
        return sw_serve_answer(qp, d, SW_NAK_INVALID, 0);
    if (__builtin_expect(d->serve.skipping, 0)) {
        if (!(request->flags & SW_REC_FIRST) && uses_bounce(request))
            return sw_serve_lose(qp, d, request);
        d->serve.skipping = false;
    }
    switch ((enum sw_record_kind)request->kind) {
    case SW_REC_SEND_INLINE:
        return serve_inline(qp, d, request);
    case SW_REC_SEND_PLACED:
        return serve_placed(qp, d, request, IBV_WC_RECV);
    case SW_REC_WRITE_IMM:
        return serve_placed(qp, d, request, IBV_WC_RECV_RDMA_WITH_IMM);
    case SW_REC_SEND:
        return sw_serve_send(qp, d, request);
    case SW_REC_WRITE:
    case SW_REC_READ:
    case SW_REC_ATOMIC:
    case SW_REC_FLUSH:
        return sw_serve_by_key(qp, d, request);
    case SW_REC_HELLO:
        return serve_hello(qp, d);
    case SW_REC_SEND_PULL:
        return sw_serve_pull(qp, d, request);
    case SW_REC_SEND_WHOLE:
        return sw_serve_whole(qp, d, request);
    case SW_REC_SEND_PARTLY:
        return sw_serve_partly(qp, d, request);
    case SW_REC_BYE:
        return serve_bye(qp, d);
    case SW_REC_FATAL:
    case SW_REC_ANSWER:
    case SW_REC_DATA:
        break;
    }
    return sw_serve_end_connection(qp, request->kind == SW_REC_FATAL ? verdict_of(request)
                                                                     : SW_NAK_INVALID);
}

/* The engine goes on looking after what was answered. A program that polls needs no help. And where
 * a receive is missing, it is the program that has to post one: on its processor the engine would
 * be in its way. */
static void note_answered(const struct sw_qp *qp, const struct sw_direct_qp *d)
{
    if (sw_engine_drives(qp) && !d->serve.rnr_ns)
        atomic_store_explicit(&sw_direct.served, true, memory_order_relaxed);
}

/* The head of its record, of which the kind was read already: the peer could change it meanwhile.
 */
static inline struct sw_peer_request read_request(const struct sw_qp *qp,
                                                  const struct sw_record *slot, uint8_t kind)
{
    const uint8_t flags = slot->flags;
    struct sw_peer_request request = {kind,
                                      flags,
                                      slot->slots,
                                      slot->verdict,
                                      slot->len_bytes,
                                      slot->imm,
                                      slot,
                                      {.pd = qp->pd_id,
                                       .has_imm = flags & SW_REC_IMM,
                                       .has_inv = flags & SW_REC_INV,
                                       .is_solicited = flags & SW_REC_SOLICITED}};
    request.message.imm = request.imm;
    atomic_signal_fence(memory_order_seq_cst); /* what is checked must not be read again */
    return request;
}

static void note_served(struct sw_qp *qp, struct sw_direct_qp *d)
{
    atomic_store_explicit(&qp->rx_expect, d->serve.at + 1, memory_order_relaxed);
    atomic_store_explicit(&qp->rx_seq, &d->rx->requests[d->serve.at % SW_REQUEST_SLOTS].seq,
                          memory_order_relaxed);
}

bool sw_serve_run(struct sw_qp *qp, struct sw_direct_qp *d)
{
    sw_lock_assert_held(&qp->lock);
    bool any = false, answered = false;
    d->serve.is_running = true;
    for (uint32_t i = 0; i < RUN_RECORDS && !d->serve.is_over; i++) {
        const struct sw_record *slot = &d->rx->requests[d->serve.at % SW_REQUEST_SLOTS];
        if (atomic_load_explicit(&slot->seq, memory_order_acquire) != d->serve.at + 1)
            break;
        /* The peer's reply completes after what it replies to, as on a wire. */
        if (d->send.answers_due && !sw_direct_send_collect(qp, d))
            return true;
        const uint8_t kind = slot->kind;
        atomic_signal_fence(memory_order_seq_cst); /* it is not read again */
        if (kind == SW_REC_SEND_INLINE || kind == SW_REC_SEND_WHOLE) {
            const uint32_t together = sw_serve_together(qp, d, kind, RUN_RECORDS - i);
            if (together) {
                any = true;
                answered |= kind == SW_REC_SEND_WHOLE;
                note_served(qp, d);
                i += together - 1;
                continue;
            }
        }
        struct sw_peer_request request = read_request(qp, slot, kind);
        if (request.slots < 1 || request.slots > SW_RECORD_SLOTS_MAX) {
            sw_serve_end_connection(qp, SW_NAK_INVALID);
            return true;
        }
        bool bounced_this = takes_area(&request);
        uint32_t end = slot->bounce_end;
        enum sw_serve result = serve_request(qp, d, &request);
        if (result == SW_SERVE_ENDED)
            return true;
        if (result == SW_SERVE_WAIT)
            break;
        if (bounced_this) /* only now may the sender use the space again */
            d->serve.bounce_end = end;
        any = true;
        d->serve.at += request.slots;
        answered |= wants_answer(&request);
        note_served(qp, d);
    }
    d->serve.is_running = false;
    if (answered)
        note_answered(qp, d);
    sw_answer_tell(qp, d);
    return any;
}
