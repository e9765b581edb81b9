/* SPDX-License-Identifier: BSD-2-Clause */
#include "link/direct/serve/serve_run.h"

#include "base/minmax.h"
#include "device/queue/qp_impl.h"
#include "link/direct/bind/record_payload.h"
#include "link/direct/serve/serve.h"

/* Fields of the record, read once: the peer could change it. */
struct short_message {
    struct sw_inbound inbound;
    uint32_t len_bytes, slots, srq_num;
    uint8_t kind;
};

static inline uint32_t first_bytes_of(uint8_t kind)
{
    return kind == SW_REC_SEND_INLINE ? SW_INLINE_FIRST : SW_WHOLE_FIRST;
}

/* False: none is there, or it is another kind. */
static inline bool read_next(const struct sw_qp *qp, const struct sw_direct_qp *d,
                             struct short_message *out)
{
    const struct sw_record *slot = &d->rx->requests[d->serve.at % SW_REQUEST_SLOTS];
    if (atomic_load_explicit(&slot->seq, memory_order_acquire) != d->serve.at + 1)
        return false;
    const uint8_t flags = slot->flags;
    out->kind = slot->kind;
    out->len_bytes = slot->len_bytes;
    out->slots = slot->slots;
    out->srq_num = qp->xrcd ? slot->srq_num : 0;
    out->inbound.imm = slot->imm;
    out->inbound.has_imm = flags & SW_REC_IMM;
    out->inbound.is_solicited = flags & SW_REC_SOLICITED;
    atomic_signal_fence(memory_order_seq_cst); /* what is checked must not be read again */
    const uint32_t first_bytes = first_bytes_of(out->kind);
    return (out->kind == SW_REC_SEND_INLINE || out->kind == SW_REC_SEND_WHOLE) &&
           !(flags & SW_REC_INV) &&
           out->len_bytes <= first_bytes + (SW_RECORD_SLOTS_MAX - 1) * SW_MORE_BYTES &&
           out->slots == sw_record_slots(out->len_bytes, first_bytes);
}

static inline bool direct_serve_one(const struct sw_qp *qp, struct sw_direct_qp *d,
                                    struct sw_receive_run *run, const struct short_message *message)
{
    uint8_t *to = sw_receive_run_at(run, message->len_bytes);
    if (!to || !sw_record_copy(d, to, message->len_bytes, first_bytes_of(message->kind)))
        return false;
    sw_receive_run_complete(qp, run, &message->inbound, message->len_bytes);
    if (message->kind == SW_REC_SEND_WHOLE)
        sw_serve_acknowledge(d);
    d->serve.at += message->slots;
    return true;
}

/* Whether the first of a run, and what follows it, may be served so. `srq`: where it takes its
 * receive. */
static bool can_begin(struct sw_qp *qp, struct sw_direct_qp *d, struct short_message *first,
                      struct sw_srq **srq)
{
    /* Where answers are due, they are looked for before each record. */
    if (d->send.answers_due || d->serve.receive.is_taken || d->serve.skipping ||
        !read_next(qp, d, first))
        return false;
    if (first->kind == SW_REC_SEND_INLINE) {
        *srq = NULL; /* it was matched with a receive of our own */
        return !qp->srq && !qp->xrcd;
    }
    if (!sw_serve_can_answer(qp, d) ||
        (qp->xrcd && !sw_execute_name_srq(qp, first->srq_num, &first->inbound)))
        return false;
    *srq = qp->xrcd ? first->inbound.srq : qp->srq;
    return *srq;
}

uint32_t sw_serve_together(struct sw_qp *qp, struct sw_direct_qp *d, uint8_t kind, uint32_t most)
{
    sw_lock_assert_held(&qp->lock);
    struct short_message message = {.inbound = {.pd = qp->pd_id}};
    struct sw_receive_run run;
    struct sw_srq *srq;
    if (!can_begin(qp, d, &message, &srq) || message.kind != kind)
        return 0;
    const uint32_t srq_num = message.srq_num;
    uint32_t served = 0;
    most = sw_min_u32(most, SW_RECEIVE_RUN_MOST);
    sw_receive_run_begin(qp, srq, &run);
    while (served < most && message.kind == kind && message.srq_num == srq_num &&
           direct_serve_one(qp, d, &run, &message)) {
        served++;
        if (!read_next(qp, d, &message))
            break;
    }
    sw_receive_run_end(&run);
    if (served)
        d->serve.rnr_ns = 0;
    return served;
}
