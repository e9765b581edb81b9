/* SPDX-License-Identifier: BSD-2-Clause */
/* Requests that the target executes: the last rung of the ladder, and messages to shared receive
 * queues. */
#include "link/direct/send/bounce.h"

#include <sidewire/flush.h>
#include <string.h>

#include "base/guarded_copy.h"
#include "device/memory/mr_impl.h"
#include "device/queue/qp_impl.h"
#include "link/direct/bind/bind.h"
#include "link/direct/bind/connection.h"
#include "link/direct/bind/lane.h"
#include "link/direct/bind/record.h"
#include "link/direct/bind/record_payload.h"
#include "link/direct/bind/step.h"
#include "link/direct/process/block.h"
#include "link/direct/process/state.h"
#include "link/direct/send/pull.h"
#include "link/direct/send/record_head.h"
#include "link/gather.h"

/* With `len` bytes, which is all of it or a piece. */
static struct sw_record *begin_record(struct sw_direct_qp *d, const struct sw_wqe *wqe,
                                      enum sw_record_kind kind, uint32_t len)
{
    struct sw_record *record = sw_record_reserve(d, 1, false);
    if (!record)
        return NULL;
    struct sw_record_head head = sw_record_head_queued(wqe);
    head.len_bytes = len;
    sw_record_head_write(record, kind, SW_ACK, &head);
    record->remote_addr = wqe->remote_addr;
    record->rkey = wqe->rkey;
    record->total_bytes = wqe->len_bytes;
    record->opcode = wqe->opcode;
    record->srq_num = wqe->srq_num;
    return record;
}

enum sw_step sw_bounce_ask(struct sw_direct_qp *d, struct sw_wqe *wqe, enum sw_record_kind kind)
{
    struct sw_record *record = begin_record(d, wqe, kind, 0);
    if (!record)
        return SW_STEP_BLOCKED;
    record->compare_add = wqe->compare_add;
    record->swap = wqe->swap;
    sw_record_publish(d, record, 1, false);
    d->send.answers_due++;
    d->send.reads_due++;
    return SW_STEP_SENT;
}

/* The same, with `len` bytes of the bounce area, which count as used from here on. */
static struct sw_record *begin_with_bytes(struct sw_qp *qp, struct sw_direct_qp *d,
                                          struct sw_wqe *wqe, enum sw_record_kind kind,
                                          uint32_t len)
{
    uint32_t end,
        consumed = atomic_load_explicit(&d->rx->request_bounce_consumed, memory_order_acquire);
    int64_t offset = sw_area_reserve(d->send.bounce_at, consumed, SW_REQUEST_BOUNCE, len, &end);
    struct sw_record *record = offset < 0 ? NULL : begin_record(d, wqe, kind, len);
    if (!record)
        return NULL;
    record->bounce_at = (uint32_t)offset;
    record->bounce_end = end;
    record->rnr_retry = qp->attr.rnr_retry;
    d->send.bounce_at = end;
    return record;
}

/* One piece of a SEND or WRITE. */
static enum sw_step bounce_send_piece(struct sw_qp *qp, struct sw_direct_qp *d, struct sw_wqe *wqe,
                                      uint32_t position, enum sw_record_kind kind)
{
    uint32_t len = wqe->len_bytes - wqe->done_bytes;
    if (len > SW_BOUNCE_CHUNK)
        len = SW_BOUNCE_CHUNK;
    if (qp->sq.is_paced && len > d->send.budget_bytes)
        len = (uint32_t)d->send.budget_bytes;
    if (!len && wqe->done_bytes != wqe->len_bytes)
        return SW_STEP_BLOCKED;
    uint32_t bounce_at = d->send.bounce_at;
    struct sw_record *record = begin_with_bytes(qp, d, wqe, kind, len);
    if (!record)
        return SW_STEP_BLOCKED;
    struct sw_gather gather = sw_gather_of(qp, position);
    for (uint32_t done = 0; done < len;) {
        uint64_t run = len - done;
        const uint8_t *from = sw_gather_at(&gather, wqe->done_bytes + done, 0, &run);
        if (!from ||
            !sw_guarded_copy(d->tx->request_bounce + record->bounce_at + done, from, run, from)) {
            d->send.bounce_at =
                bounce_at; /* found again and again while earlier requests are out */
            return sw_step_local_error(d, IBV_WC_LOC_PROT_ERR);
        }
        done += (uint32_t)run;
    }
    bool first = !wqe->via_ring, last = wqe->done_bytes + len == wqe->len_bytes;
    record->flags |= (first ? SW_REC_FIRST : 0) | (last ? SW_REC_LAST : 0);
    record->remote_addr += wqe->done_bytes;
    wqe->done_bytes += len;
    wqe->via_ring = 1;
    if (qp->sq.is_paced)
        d->send.budget_bytes -= len;
    sw_record_publish(d, record, 1, last && (kind == SW_REC_SEND || record->flags & SW_REC_IMM));
    return last ? SW_STEP_SENT : SW_STEP_DONE;
}

/* A long SEND: where its bytes are, for the target to fetch. */
static enum sw_step bounce_send_list(struct sw_qp *qp, struct sw_direct_qp *d, struct sw_wqe *wqe,
                                     uint32_t position)
{
    const struct ibv_sge *sges = sw_sq_sges(&qp->sq, position);
    uint32_t len = wqe->sge_count * (uint32_t)sizeof(*sges);
    for (uint32_t i = 0; i < wqe->sge_count; i++) {
        uint8_t *va;
        if (!sw_sge_resolve(qp->pd_id, &sges[i], 0, &va))
            return sw_step_local_error(d, IBV_WC_LOC_PROT_ERR);
    }
    struct sw_record *record = begin_with_bytes(qp, d, wqe, SW_REC_SEND_PULL, len);
    if (!record)
        return SW_STEP_BLOCKED;
    memcpy(d->tx->request_bounce + record->bounce_at, sges, len);
    record->flags |= SW_REC_FIRST | SW_REC_LAST;
    sw_record_publish(d, record, 1, true);
    return SW_STEP_SENT;
}

/* An unreliable request that takes a receive, unless the target finds that its key is not valid any
 * more. Until it is answered, nobody knows which receive the next one takes. */
static bool may_be_lost(const struct sw_direct_qp *d, const struct sw_wqe *wqe)
{
    return d->rules[SW_NAK_ACCESS].lost && d->remote.rq_entries &&
           (wqe->opcode == IBV_WR_SEND_WITH_INV || wqe->opcode == IBV_WR_RDMA_WRITE_WITH_IMM);
}

static void await_verdict(struct sw_direct_qp *d, const struct sw_wqe *wqe)
{
    if (may_be_lost(d, wqe)) {
        d->send.in_doubt = true;
        d->send.recv_posted = d->send.recv_used; /* has the next one look */
    }
}

enum sw_step sw_send_whole(struct sw_qp *qp, struct sw_direct_qp *d, const struct sw_gather *gather,
                           const struct sw_record_head *head, uint32_t srq_num)
{
    const uint32_t len_bytes = head->len_bytes;
    uint32_t slots = sw_record_slots(len_bytes, SW_WHOLE_FIRST);
    struct sw_record *record = sw_record_reserve(d, slots, false);
    if (!record)
        return SW_STEP_BLOCKED;
    if (!sw_record_fill(d, record, gather, len_bytes, SW_WHOLE_FIRST))
        return sw_step_local_error(d, IBV_WC_LOC_PROT_ERR);
    sw_record_head_write(record, SW_REC_SEND_WHOLE, SW_ACK, head);
    record->flags |= SW_REC_FIRST | SW_REC_LAST;
    record->rnr_retry = qp->attr.rnr_retry;
    record->srq_num = srq_num;
    sw_record_publish(d, record, slots, true);
    d->send.answers_due++;
    d->send.recv_used++;
    return SW_STEP_SENT;
}

static enum sw_step send_whole(struct sw_qp *qp, struct sw_direct_qp *d, struct sw_wqe *wqe,
                               uint32_t position)
{
    const struct sw_gather gather = sw_gather_of(qp, position);
    const struct sw_record_head head = sw_record_head_queued(wqe);
    const enum sw_step step = sw_send_whole(qp, d, &gather, &head, wqe->srq_num);
    if (step == SW_STEP_SENT)
        await_verdict(d, wqe);
    return step;
}

static bool is_atomic(const struct sw_wqe *wqe)
{
    return wqe->opcode == IBV_WR_ATOMIC_CMP_AND_SWP || wqe->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
}

enum sw_step sw_bounce_start(struct sw_qp *qp, struct sw_direct_qp *d, struct sw_wqe *wqe,
                             uint32_t position)
{
    if (!sw_direct.modes.ring && d->remote.rq_entries)
        return SW_STEP_BLOCKED;
    if (wqe->opcode == IBV_WR_RDMA_READ)
        return sw_bounce_ask(d, wqe, SW_REC_READ);
    if (is_atomic(wqe) || wqe->opcode == IBV_WR_ATOMIC_WRITE)
        return sw_bounce_ask(d, wqe, SW_REC_ATOMIC);
    bool write = wqe->opcode == IBV_WR_RDMA_WRITE || wqe->opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
    enum sw_step step;
    if (!write && !wqe->via_ring && wqe->len_bytes <= SW_WHOLE_BYTES)
        return send_whole(qp, d, wqe, position);
    if (!write && !wqe->via_ring && sw_pull_suits(qp, d, position))
        step = bounce_send_list(qp, d, wqe, position);
    else
        do
            step = bounce_send_piece(qp, d, wqe, position, write ? SW_REC_WRITE : SW_REC_SEND);
        while (step == SW_STEP_DONE);
    if (step == SW_STEP_SENT) {
        d->send.answers_due++;
        d->send.recv_used += wqe->opcode != IBV_WR_RDMA_WRITE;
        await_verdict(d, wqe);
    }
    return step;
}

/* The request that the next answer is for: the oldest one sent, or the one of which pieces are on
 * their way (the target may refuse it before it has them all). All before `position` are done. */
static struct sw_wqe *next_answered(struct sw_qp *qp, uint32_t *position)
{
    for (; *position != qp->sq.next; ++*position) {
        struct sw_wqe *wqe = sw_sq_at(&qp->sq, *position);
        if (wqe->state == SW_WQE_SENT)
            return wqe;
    }
    return sw_bounce_sending(qp) ? sw_sq_at(&qp->sq, qp->sq.next) : NULL;
}

static bool scatter_answer(struct sw_qp *qp, uint32_t position, uint64_t offset,
                           const uint8_t *from, uint64_t len_bytes)
{
    struct sw_gather gather = sw_gather_of(qp, position);
    return sw_gather_in(&gather, offset, from, len_bytes);
}

/* Whether it can be the (next) answer to this request. */
static bool answers_request(const struct sw_record *answer, const struct sw_wqe *wqe)
{
    bool is_read = wqe->opcode == IBV_WR_RDMA_READ;
    uint32_t len = answer->len_bytes;
    if (answer->kind == SW_REC_ANSWER)
        return !is_read || wqe->len_bytes == 0;
    return answer->kind == SW_REC_DATA && is_read && len > 0 &&
           len <= wqe->len_bytes - wqe->done_bytes && len <= SW_RESPONSE_BOUNCE &&
           answer->bounce_at <= SW_RESPONSE_BOUNCE - len;
}

/* Applies one answer to the request it belongs to; false: that request failed. */
static bool apply_answer(struct sw_qp *qp, struct sw_direct_qp *d, const struct sw_record *answer,
                         struct sw_wqe *wqe, uint32_t position)
{
    bool lost = answer->verdict < SW_VERDICT_COUNT && d->rules[answer->verdict].lost;
    if (answer->verdict != SW_ACK && !lost) {
        bool known =
            answer->verdict < SW_VERDICT_COUNT && sw_verdict_rules[answer->verdict].requester_fatal;
        /* The target decided: it knows. Not if that was one that stands in for it. */
        sw_step_local_error(d, known ? sw_verdict_rules[answer->verdict].requester
                                     : IBV_WC_BAD_RESP_ERR);
        if (known && d->xrc.lane_state == SW_LANE_OPEN)
            d->send.fail_verdict = (enum sw_verdict)answer->verdict;
        return false;
    }
    if (wqe->state != SW_WQE_SENT) { /* done before it was sent? */
        sw_step_local_error(d, IBV_WC_BAD_RESP_ERR);
        return false;
    }
    bool is_read = wqe->opcode == IBV_WR_RDMA_READ, good = true, last = true;
    if (!answers_request(answer, wqe)) {
        sw_step_local_error(d, IBV_WC_BAD_RESP_ERR);
        return false;
    }
    if (answer->kind == SW_REC_DATA) {
        uint32_t len = answer->len_bytes;
        good = scatter_answer(qp, position, wqe->done_bytes,
                              d->rx->response_bounce + answer->bounce_at, len);
        wqe->done_bytes += good ? len : 0;
        last = wqe->done_bytes == wqe->len_bytes;
    } else if (is_atomic(wqe)) {
        uint64_t original = answer->compare_add;
        good = scatter_answer(qp, position, 0, (const uint8_t *)&original, 8);
        is_read = true;
    } else if (wqe->opcode == IBV_WR_ATOMIC_WRITE || wqe->opcode == IBV_WR_FLUSH) {
        is_read = true; /* counted as one: see sw_bounce_ask() */
    }
    if (!good) {
        sw_step_local_error(d, IBV_WC_LOC_PROT_ERR);
        return false;
    }
    if (last) {
        wqe->state = SW_WQE_DONE;
        d->send.answers_due--;
        d->send.reads_due -= is_read;
        d->send.recv_used -= lost && d->remote.rq_entries && wqe->opcode != IBV_WR_RDMA_WRITE;
        if (may_be_lost(d, wqe))
            d->send.in_doubt = false;
    }
    return true;
}

/* Completes the oldest requests that are done, at most so many: plain messages, until another
 * request is next. Returns how many. */
static uint32_t apply_plain_acks(struct sw_qp *qp, struct sw_direct_qp *d, uint32_t most,
                                 uint32_t *position)
{
    enum { PLAIN = 1u << IBV_WR_SEND | 1u << IBV_WR_SEND_WITH_IMM };
    uint32_t count = 0;
    for (; count < most && *position != qp->sq.next; ++*position) {
        struct sw_wqe *wqe = sw_sq_at(&qp->sq, *position);
        if (wqe->state != SW_WQE_SENT)
            continue;
        if (!(PLAIN >> wqe->opcode & 1))
            break;
        wqe->state = SW_WQE_DONE;
        count++;
    }
    d->send.answers_due -= count;
    return count;
}

/* The target says that it has done so many requests, ever, of which nothing else is to be said.
 * False: one of them failed. */
static bool apply_acks(struct sw_qp *qp, struct sw_direct_qp *d, uint32_t acknowledged,
                       uint32_t *position)
{
    static const struct sw_record ack = {.kind = SW_REC_ANSWER, .verdict = SW_ACK};
    uint32_t left = acknowledged - d->send.acknowledged;
    d->send.acknowledged = acknowledged;
    for (left -= apply_plain_acks(qp, d, left, position); left; left--) {
        struct sw_wqe *wqe = next_answered(qp, position);
        if (!wqe || is_atomic(wqe)) { /* more than were sent, or without its value */
            sw_step_local_error(d, IBV_WC_BAD_RESP_ERR);
            return false;
        }
        if (!apply_answer(qp, d, &ack, wqe, *position))
            return false;
    }
    return true;
}

/* Gives the target the room of its answers back, not after each of them. */
#define TELL_ANSWERS 16u

static void tell_consumed(struct sw_qp *qp, struct sw_direct_qp *d, const uint32_t *bounce_end)
{
    if ((!bounce_end && d->send.response_at - d->send.response_told < TELL_ANSWERS) ||
        !sw_bind_enter(qp, d))
        return;
    d->send.response_told = d->send.response_at;
    atomic_store_explicit(&d->tx->responses_consumed, d->send.response_at, memory_order_release);
    if (bounce_end)
        atomic_store_explicit(&d->tx->response_bounce_consumed, *bounce_end, memory_order_release);
    sw_bind_leave(d);
}

static bool is_answered(const struct sw_direct_qp *d)
{
    const struct sw_record *slot = &d->rx->responses[d->send.response_at % SW_RESPONSE_SLOTS];
    return atomic_load_explicit(&slot->seq, memory_order_acquire) == d->send.response_at + 1;
}

/* A copy of the next answer, if it has come. */
static bool copy_answer(const struct sw_direct_qp *d, struct sw_record *out)
{
    if (!is_answered(d))
        return false;
    memcpy((void *)out, (const void *)&d->rx->responses[d->send.response_at % SW_RESPONSE_SLOTS],
           sizeof(*out));
    atomic_signal_fence(memory_order_seq_cst); /* what was checked must not be read again */
    return true;
}

/* A record says how many requests were done before it, so these end first. Where none has come, the
 * count says it. A record that comes meanwhile may belong before a part of that count: a reader
 * that sees the count sees the record, too. */
bool sw_bounce_collect(struct sw_qp *qp, struct sw_direct_qp *d)
{
    const uint32_t before = d->send.response_at, acknowledged = d->send.acknowledged;
    uint32_t bounce_end = 0, position = qp->sq.head;
    bool good = true, bounced = false;
    /* A bound, should the peer write answers as fast as they are read. */
    while (good && (d->send.answers_due || sw_bounce_sending(qp)) &&
           d->send.response_at - before < SW_RESPONSE_SLOTS) {
        struct sw_record answer;
        const bool has_come = copy_answer(d, &answer);
        const uint32_t count =
            has_come ? answer.imm
                     : atomic_load_explicit(&d->rx->acknowledged, memory_order_acquire);
        if (count != d->send.acknowledged) {
            if (has_come || !is_answered(d))
                good = apply_acks(qp, d, count, &position);
            continue;
        }
        struct sw_wqe *wqe = has_come ? next_answered(qp, &position) : NULL;
        if (!wqe)
            break;
        good = apply_answer(qp, d, &answer, wqe, position);
        if (answer.kind == SW_REC_DATA) {
            bounce_end = answer.bounce_end;
            bounced = true;
        }
        d->send.response_at++;
    }
    if (d->send.response_at != before || d->send.acknowledged != acknowledged)
        d->send.stalled_ns = 0;
    if (d->send.response_at != before)
        tell_consumed(qp, d, bounced ? &bounce_end : NULL);
    return good;
}
