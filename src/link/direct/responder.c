/* SPDX-License-Identifier: BSD-2-Clause */
/* What came in: delivers messages to receives, executes requests that the initiator could not
 * execute itself. */
#include "link/direct/responder.h"

#include <string.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/payload.h"
#include "device/memory/mr_impl.h"
#include "device/memory/view.h"
#include "device/queue/cq_impl.h"
#include "device/queue/qp_impl.h"
#include "device/serve/execute.h"
#include "link/direct/answer.h"
#include "link/direct/bind.h"
#include "link/direct/block.h"
#include "link/direct/connection.h"
#include "link/direct/direct.h"
#include "link/direct/pull.h"
#include "link/direct/receive_credit.h"
#include "link/direct/record_payload.h"
#include "link/direct/step.h"
#include "link/engine.h"

#define RUN_RECORDS 64               /* at most in one call */
#define PULL_BUDGET_BYTES (1u << 20) /* fetched in one step, so that a poll does not take long */

/* ENDED: the connection is over, and its state freed. */
enum serve { SERVED, SERVE_WAIT, SERVE_ENDED };

/* A record's head, read once from memory that the peer may still scribble over. */
struct request {
    uint8_t kind, flags, slots, verdict;
    uint32_t len_bytes, imm;
    const struct sw_record *slot;
    struct sw_inbound message;
};

/* The rest of it, for the kinds that ask the target to do something. */
static struct sw_record read_whole(const struct request *request)
{
    struct sw_record copy;
    memcpy((void *)&copy, (const void *)request->slot, sizeof(copy));
    atomic_signal_fence(memory_order_seq_cst); /* what was checked must not be read again */
    return copy;
}

/* What a peer may say of a message it could not deliver. */
static enum sw_verdict verdict_of(const struct request *request)
{
    enum sw_verdict verdict = (enum sw_verdict)request->verdict;
    bool known = verdict < SW_VERDICT_COUNT && sw_verdict_rules[verdict].responder_fatal;
    return known || verdict == SW_ACK ? verdict : SW_NAK_INVALID;
}

static enum serve end_connection(struct sw_qp *qp, enum sw_verdict verdict)
{
    struct sw_direct_qp *d = qp->link_state;
    if (d->serve.acks_due && sw_bind_enter(qp, d)) { /* what was done before stays done */
        sw_answer_acks(d);
        sw_bind_leave(d);
    }
    sw_qp_fail(qp, sw_verdict_rules[verdict].responder_event);
    return SERVE_ENDED;
}

static struct sw_target_qp own_side(const struct sw_qp *qp, const struct request *request)
{
    return (struct sw_target_qp){qp->qpn, request->message.pd, (uint32_t)qp->attr.qp_access_flags};
}

/* Ends a request that wants an answer of its own. */
static enum serve answer_request(struct sw_qp *qp, struct sw_direct_qp *d, enum sw_verdict verdict,
                                 uint64_t original)
{
    bool answered = false;
    if (sw_bind_enter(qp, d)) {
        struct sw_record *record = sw_answer_acks(d) ? sw_answer_reserve(d, 0) : NULL;
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
        return SERVE_WAIT;
    if (d->rules[verdict].responder_fatal)
        return end_connection(qp, verdict);
    return SERVED;
}

/* Ends a request that was done: sw_answer_tell() answers, for all that one run does. */
static enum serve acknowledge_request(struct sw_direct_qp *d)
{
    d->serve.acks_due++;
    return SERVED;
}

/* Ends a message that lies where its receive wants it. A sleeping program is woken when the answer
 * is out: what it then sends must not be seen before that, as it is not where hardware answers. */
static enum serve deliver_message(struct sw_qp *qp, struct sw_direct_qp *d,
                                  const struct request *request, uint32_t len_bytes,
                                  enum ibv_wc_opcode opcode)
{
    const struct sw_cq *cq = request->message.srq ? request->message.srq->cq : qp->recv_cq;
    acknowledge_request(d);
    if (atomic_load_explicit(&cq->pub->armed, memory_order_relaxed) != SW_CQ_DISARMED &&
        sw_bind_enter(qp, d)) {
        sw_answer_acks(d);
        sw_bind_leave(d);
    }
    sw_receive_complete(qp, &d->serve.receive, &request->message, len_bytes, opcode,
                        IBV_WC_SUCCESS);
    return SERVED;
}

/* Whether the sender has counted one of our receives for this message. */
static bool counts_receive(const struct sw_qp *qp, const struct request *request)
{
    return !qp->srq && (request->kind != SW_REC_WRITE || request->flags & SW_REC_IMM);
}

/* An unreliable message that cannot be delivered: what is left of it is skipped, and its last piece
 * is answered like any other, because the sender counts on the order of answers; or as one whose
 * receive serves the next, because it counts those, too. */
static enum serve lose_message(struct sw_qp *qp, struct sw_direct_qp *d,
                               const struct request *request)
{
    const bool last = request->flags & SW_REC_LAST;
    if (last && !counts_receive(qp, request))
        acknowledge_request(d);
    else if (last && answer_request(qp, d, SW_RNR, 0) == SERVE_WAIT)
        return SERVE_WAIT;
    if (!d->serve.skipping)
        d->serve.lost++;
    d->serve.skipping = !last;
    return SERVED;
}

/* Refuses a request: by a NAK or, where there is none, by losing it. Of a fault of our own that
 * ends the QP an unreliable sender hears nothing either: its message ends as others do, with its
 * last piece. */
static enum serve refuse_request(struct sw_qp *qp, struct sw_direct_qp *d,
                                 const struct request *request, enum sw_verdict verdict)
{
    if (d->rules[verdict].lost)
        return lose_message(qp, d, request);
    if (!d->rules[verdict].requester_fatal && !(request->flags & SW_REC_LAST))
        return end_connection(qp, verdict);
    return answer_request(qp, d, verdict, 0);
}

/* Room for an answer, tested before an effect that must not be repeated. */
static bool can_answer(struct sw_qp *qp, struct sw_direct_qp *d)
{
    if (__builtin_expect(!d->tx, 0)) {
        if (!sw_bind_enter(qp, d))
            return sw_bind_is_over(qp, d);
        sw_bind_leave(d);
    }
    return sw_answer_has_room(d) || sw_bind_is_over(qp, d);
}

static enum serve serve_inline(struct sw_qp *qp, struct sw_direct_qp *d,
                               const struct request *request)
{
    uint32_t len = request->len_bytes;
    if (len > SW_INLINE_BYTES || !sw_receive_take(qp, &d->serve.receive, &request->message))
        return end_connection(qp, SW_NAK_INVALID); /* the peer broke the protocol */
    enum ibv_wc_status status = sw_record_scatter(d, len, SW_INLINE_FIRST);
    sw_receive_complete(qp, &d->serve.receive, &request->message, len, IBV_WC_RECV, status);
    return status == IBV_WC_SUCCESS ? SERVED : end_connection(qp, SW_NAK_OPERATIONAL);
}

/* The initiator did the work (or was refused): only the completion is left. */
static enum serve serve_placed(struct sw_qp *qp, struct sw_direct_qp *d,
                               const struct request *request, enum ibv_wc_opcode opcode)
{
    const uint32_t len = request->len_bytes;
    enum sw_verdict verdict = verdict_of(request);
    if (!sw_receive_take(qp, &d->serve.receive, &request->message))
        return end_connection(qp, SW_NAK_INVALID);
    if (verdict == SW_ACK && opcode == IBV_WC_RECV && len > d->serve.receive.claim.len_bytes)
        verdict = SW_NAK_INVALID; /* a program must never be told of more than its buffer holds */
    if (verdict != SW_ACK && sw_verdict_rules[verdict].responder == IBV_WC_SUCCESS)
        verdict = SW_NAK_INVALID; /* it would use up no receive */
    sw_receive_complete(qp, &d->serve.receive, &request->message, len, opcode,
                        sw_verdict_rules[verdict].responder);
    return verdict == SW_ACK ? SERVED : end_connection(qp, verdict);
}

/* No receive for a message that waits in the ring: the sender's retries are counted here, where the
 * receive would show up. */
static enum serve serve_rnr(struct sw_qp *qp, struct sw_direct_qp *d, const struct request *request,
                            uint8_t rnr_retry)
{
    if (d->rules[SW_RNR].lost)
        return lose_message(qp, d, request);
    uint64_t now_ns = sw_clock_ns();
    if (!d->serve.rnr_ns)
        d->serve.rnr_ns = now_ns;
    if (rnr_retry >= 7 ||
        now_ns - d->serve.rnr_ns < rnr_retry * sw_rnr_timer_ns(qp->attr.min_rnr_timer))
        return SERVE_WAIT;
    enum serve result = answer_request(qp, d, SW_RNR_EXHAUSTED, 0);
    d->serve.is_over |= result == SERVED;
    return result;
}

static bool take_receive(struct sw_qp *qp, struct sw_direct_qp *d, const struct request *request)
{
    if (!sw_receive_take(qp, &d->serve.receive, &request->message))
        return false;
    d->serve.rnr_ns = 0;
    return true;
}

static enum serve refuse_send(struct sw_qp *qp, struct sw_direct_qp *d,
                              const struct request *request, enum sw_verdict verdict)
{
    const enum ibv_wc_status status = sw_receive_refusal(qp, verdict);
    if (status != IBV_WC_SUCCESS)
        sw_receive_complete(qp, &d->serve.receive, &request->message, 0, IBV_WC_RECV, status);
    return refuse_request(qp, d, request, verdict);
}

static const uint8_t *bounced(const struct sw_direct_qp *d, const struct request *request,
                              uint32_t at)
{
    if (request->len_bytes > SW_BOUNCE_CHUNK || at > SW_REQUEST_BOUNCE - request->len_bytes)
        return NULL;
    return d->rx->request_bounce + at;
}

/* Takes the receive for a message. *taken: it is there and fits; else the result is the request's.
 */
static enum serve begin_send(struct sw_qp *qp, struct sw_direct_qp *d,
                             const struct request *request, uint32_t total_bytes, uint8_t rnr_retry,
                             bool *taken)
{
    *taken = false;
    /* An unreliable message must not begin to fill a receive that is for the next one. */
    if (request->flags & SW_REC_INV && d->rules[SW_NAK_ACCESS].lost &&
        sw_target_check_invalidate(sw_nic.pub, request->imm, own_side(qp, request)) != SW_ACK)
        return refuse_request(qp, d, request, SW_NAK_ACCESS);
    if (!take_receive(qp, d, request))
        return serve_rnr(qp, d, request, rnr_retry);
    d->serve.received_bytes = 0;
    if (total_bytes > d->serve.receive.claim.len_bytes)
        return refuse_send(qp, d, request, SW_NAK_INVALID);
    *taken = true;
    return SERVED;
}

static enum serve end_send(struct sw_qp *qp, struct sw_direct_qp *d, const struct request *request)
{
    /* Where the program was faster with its key, an unreliable message has what it wants: it cannot
     * be lost any more, since its sender has counted the receive. */
    if (sw_execute_invalidate(qp, &request->message, request->imm) != SW_ACK &&
        !d->rules[SW_NAK_ACCESS].lost)
        return refuse_send(qp, d, request, SW_NAK_ACCESS);
    return deliver_message(qp, d, request, d->serve.received_bytes, IBV_WC_RECV);
}

static enum serve serve_send(struct sw_qp *qp, struct sw_direct_qp *d,
                             const struct request *request)
{
    if (!can_answer(qp, d))
        return SERVE_WAIT;
    const struct sw_record record = read_whole(request);
    const uint8_t *from = bounced(d, request, record.bounce_at);
    if (request->flags & SW_REC_FIRST) {
        bool taken;
        enum serve result =
            begin_send(qp, d, request, record.total_bytes, record.rnr_retry, &taken);
        if (!taken)
            return result;
    }
    if (!d->serve.receive.is_taken || !from)
        return end_connection(qp, SW_NAK_INVALID);
    enum sw_verdict verdict =
        sw_execute_fill(&d->serve.receive.claim, d->serve.received_bytes, from, request->len_bytes);
    if (verdict != SW_ACK)
        return refuse_send(qp, d, request, verdict);
    d->serve.received_bytes += request->len_bytes;
    return request->flags & SW_REC_LAST ? end_send(qp, d, request) : SERVED;
}

static enum serve serve_whole(struct sw_qp *qp, struct sw_direct_qp *d,
                              const struct request *request)
{
    if (!can_answer(qp, d))
        return SERVE_WAIT;
    if (request->len_bytes > SW_WHOLE_BYTES)
        return end_connection(qp, SW_NAK_INVALID);
    bool taken;
    enum serve result =
        begin_send(qp, d, request, request->len_bytes, request->slot->rnr_retry, &taken);
    if (!taken)
        return result;
    if (sw_record_scatter(d, request->len_bytes, SW_WHOLE_FIRST) != IBV_WC_SUCCESS)
        return refuse_send(qp, d, request, SW_NAK_OPERATIONAL);
    d->serve.received_bytes = request->len_bytes;
    return end_send(qp, d, request);
}

/* Where the bytes of a message are, as the peer says. 0: not a sane list. */
static uint32_t read_list(const struct sw_direct_qp *d, const struct request *request,
                          const struct sw_record *record, struct ibv_sge list[SW_MAX_SGE])
{
    const uint8_t *from = bounced(d, request, record->bounce_at);
    uint32_t count = request->len_bytes / sizeof(*list);
    uint64_t total = 0;
    if (!from || count > SW_MAX_SGE || request->len_bytes != count * sizeof(*list))
        return 0;
    memcpy(list, from, request->len_bytes);
    for (uint32_t i = 0; i < count; i++)
        total += list[i].length;
    return total == record->total_bytes ? count : 0;
}

/* Left and taken up again while there is more of the message than one step may move. */
static enum serve serve_pull(struct sw_qp *qp, struct sw_direct_qp *d,
                             const struct request *request)
{
    struct ibv_sge list[SW_MAX_SGE];
    qp->rx_goes_on = false;
    if (!can_answer(qp, d))
        return SERVE_WAIT;
    const struct sw_record record = read_whole(request);
    uint32_t count = read_list(d, request, &record, list);
    if (!count)
        return end_connection(qp, SW_NAK_INVALID);
    if (!d->serve.receive.is_taken) {
        if (!take_receive(qp, d, request))
            return serve_rnr(qp, d, request, record.rnr_retry);
        d->serve.received_bytes = 0;
    }
    if (record.total_bytes > d->serve.receive.claim.len_bytes)
        return refuse_send(qp, d, request, SW_NAK_INVALID);
    if (!sw_bind_enter(qp, d))
        return SERVE_WAIT;
    d->send.budget_bytes = PULL_BUDGET_BYTES;
    enum sw_step step = sw_pull(d, list, count);
    sw_bind_leave(d);
    qp->rx_goes_on = step == SW_STEP_BLOCKED && !d->send.budget_bytes;
    if (step == SW_STEP_FAILED)
        return refuse_send(qp, d, request, SW_NAK_OPERATIONAL);
    if (step != SW_STEP_DONE)
        return SERVE_WAIT;
    return deliver_message(qp, d, request, record.total_bytes, IBV_WC_RECV);
}

static enum serve serve_write(struct sw_qp *qp, struct sw_direct_qp *d,
                              const struct request *request)
{
    if (!can_answer(qp, d))
        return SERVE_WAIT;
    const struct sw_record record = read_whole(request);
    const uint8_t *from = bounced(d, request, record.bounce_at);
    if (!from)
        return end_connection(qp, SW_NAK_INVALID);
    const bool last = request->flags & SW_REC_LAST;
    const struct sw_pieces part = {
        .from = from, .count = 1, .len_bytes = record.total_bytes ? request->len_bytes : 0};
    enum sw_verdict verdict =
        sw_execute_write(qp, &request->message, record.rkey, record.remote_addr, &part, last);
    if (verdict != SW_ACK)
        return refuse_request(qp, d, request, verdict);
    if (!last)
        return SERVED;
    if (!(request->flags & SW_REC_IMM))
        return acknowledge_request(d);
    if (!take_receive(qp, d, request))
        return serve_rnr(qp, d, request, record.rnr_retry);
    return deliver_message(qp, d, request, record.total_bytes, IBV_WC_RECV_RDMA_WITH_IMM);
}

static enum serve serve_read(struct sw_qp *qp, struct sw_direct_qp *d,
                             const struct request *request)
{
    const struct sw_record asked = read_whole(request);
    uint32_t total = asked.total_bytes;
    uint8_t *from;
    enum sw_verdict verdict = sw_execute_check(qp, &request->message, IBV_ACCESS_REMOTE_READ,
                                               asked.rkey, asked.remote_addr, total, &from);
    if (total == 0 || verdict != SW_ACK)
        return answer_request(qp, d, verdict, 0);
    if (!sw_bind_enter(qp, d))
        return SERVE_WAIT;
    while (d->serve.read_bytes < total && sw_answer_acks(d)) {
        uint32_t len = total - d->serve.read_bytes < SW_BOUNCE_CHUNK ? total - d->serve.read_bytes
                                                                     : SW_BOUNCE_CHUNK;
        if (sw_view_is_of(asked.rkey) && !sw_fault_probe(from + d->serve.read_bytes, len)) {
            sw_bind_leave(d);
            d->serve.read_bytes = 0;
            return answer_request(qp, d, SW_NAK_ACCESS, 0);
        }
        struct sw_record *record = sw_answer_reserve(d, len);
        if (!record)
            break;
        sw_payload_copy(d->tx->response_bounce + record->bounce_at, from + d->serve.read_bytes,
                        len);
        record->kind = SW_REC_DATA;
        sw_answer_publish(d, record);
        d->serve.read_bytes += len;
    }
    sw_bind_leave(d);
    if (d->serve.read_bytes < total)
        return SERVE_WAIT;
    d->serve.read_bytes = 0;
    return SERVED;
}

static enum serve serve_atomic(struct sw_qp *qp, struct sw_direct_qp *d,
                               const struct request *request)
{
    if (!can_answer(qp, d))
        return SERVE_WAIT;
    const struct sw_record asked = read_whole(request);
    uint64_t original = 0;
    enum sw_verdict verdict =
        sw_execute_atomic(qp, &request->message, asked.opcode, asked.rkey, asked.remote_addr,
                          asked.compare_add, asked.swap, &original);
    return answer_request(qp, d, verdict, original);
}

/* Left and taken up again while the memory takes its time. */
static enum serve serve_flush(struct sw_qp *qp, struct sw_direct_qp *d,
                              const struct request *request)
{
    if (!can_answer(qp, d))
        return SERVE_WAIT;
    const struct sw_record asked = read_whole(request);
    struct sw_target_flush flush =
        sw_target_flush_of(asked.rkey, asked.remote_addr, asked.compare_add, asked.swap);
    enum sw_verdict verdict;
    if (!sw_execute_flush(qp, &request->message, flush, &d->serve.flushing, &verdict))
        return SERVE_WAIT;
    return answer_request(qp, d, verdict, 0);
}

static enum serve serve_hello(struct sw_qp *qp, struct sw_direct_qp *d)
{
    if (d->serve.greeted)
        return end_connection(qp, SW_NAK_INVALID);
    d->serve.greeted = true;
    if (qp->state == IBV_QPS_RTR)
        sw_context_event(qp->ctx, IBV_EVENT_COMM_EST, qp->owner);
    return SERVED;
}

/* Requests by key; see sw_mr_serving. */
static enum serve serve_by_key(struct sw_qp *qp, struct sw_direct_qp *d,
                               const struct request *request)
{
    uint32_t index = qp->index;
    enum serve result = SERVED;
    sw_mr_serve_begin(index);
    if (request->kind == SW_REC_WRITE)
        result = serve_write(qp, d, request);
    else if (request->kind == SW_REC_READ)
        result = serve_read(qp, d, request);
    else if (request->kind == SW_REC_FLUSH)
        result = serve_flush(qp, d, request);
    else
        result = serve_atomic(qp, d, request);
    sw_mr_serve_end(index);
    return result;
}

static bool uses_bounce(const struct request *request)
{
    return request->kind == SW_REC_SEND || request->kind == SW_REC_WRITE ||
           request->kind == SW_REC_SEND_PULL;
}

static bool wants_answer(const struct request *request)
{
    return uses_bounce(request) || request->kind == SW_REC_SEND_WHOLE ||
           request->kind == SW_REC_READ || request->kind == SW_REC_ATOMIC ||
           request->kind == SW_REC_FLUSH;
}

static enum serve serve_bye(struct sw_qp *qp, struct sw_direct_qp *d)
{
    if (!d->rules[SW_UNREACHABLE].lost)
        return end_connection(qp, SW_NAK_INVALID);
    return sw_bind_renew(qp, d) ? SERVE_ENDED : SERVED;
}

static enum serve serve_request(struct sw_qp *qp, struct sw_direct_qp *d, struct request *request)
{
    if (__builtin_expect(qp->xrcd != NULL, 0) && wants_answer(request) &&
        !sw_execute_name_srq(qp, request->slot->srq_num, &request->message))
        return answer_request(qp, d, SW_NAK_INVALID, 0);
    if (__builtin_expect(d->serve.skipping, 0)) {
        if (!(request->flags & SW_REC_FIRST) && uses_bounce(request))
            return lose_message(qp, d, request);
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
        return serve_send(qp, d, request);
    case SW_REC_WRITE:
    case SW_REC_READ:
    case SW_REC_ATOMIC:
    case SW_REC_FLUSH:
        return serve_by_key(qp, d, request);
    case SW_REC_HELLO:
        return serve_hello(qp, d);
    case SW_REC_SEND_PULL:
        return serve_pull(qp, d, request);
    case SW_REC_SEND_WHOLE:
        return serve_whole(qp, d, request);
    case SW_REC_BYE:
        return serve_bye(qp, d);
    case SW_REC_FATAL:
    case SW_REC_ANSWER:
    case SW_REC_DATA:
        break;
    }
    return end_connection(qp, request->kind == SW_REC_FATAL ? verdict_of(request) : SW_NAK_INVALID);
}

bool sw_responder_run(struct sw_qp *qp, struct sw_direct_qp *d)
{
    bool any = false;
    d->serve.is_running = true;
    for (int i = 0; i < RUN_RECORDS && !d->serve.is_over; i++) {
        const struct sw_record *slot = &d->rx->requests[d->serve.at % SW_REQUEST_SLOTS];
        if (atomic_load_explicit(&slot->seq, memory_order_acquire) != d->serve.at + 1)
            break;
        const uint8_t flags = slot->flags;
        struct request request = {slot->kind,
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
        if (request.slots < 1 || request.slots > SW_RECORD_SLOTS_MAX) {
            end_connection(qp, SW_NAK_INVALID);
            return true;
        }
        bool bounced_this = uses_bounce(&request);
        uint32_t end = slot->bounce_end;
        enum serve result = serve_request(qp, d, &request);
        if (result == SERVE_ENDED)
            return true;
        if (result == SERVE_WAIT)
            break;
        if (bounced_this) /* only now may the sender use the space again */
            d->serve.bounce_end = end;
        if (wants_answer(&request) && sw_engine_drives(qp)) /* a program that polls needs no help */
            atomic_store_explicit(&sw_direct.served, true, memory_order_relaxed);
        any = true;
        d->serve.at += request.slots;
        atomic_store_explicit(&qp->rx_expect, d->serve.at + 1, memory_order_relaxed);
        atomic_store_explicit(&qp->rx_seq, &d->rx->requests[d->serve.at % SW_REQUEST_SLOTS].seq,
                              memory_order_relaxed);
    }
    d->serve.is_running = false;
    sw_answer_tell(qp, d);
    return any;
}
