/* SPDX-License-Identifier: BSD-2-Clause */
#include "link/direct/serve/serve_run.h"

#include "base/minmax.h"
#include "device/queue/qp_impl.h"
#include "link/direct/bind/record_payload.h"
#include "link/direct/serve/serve.h"

/* Under one lock: who posts receives waits for it. */
#define TOGETHER 16u

/* Of the record, read once: the peer could change it. */
struct short_message {
    struct sw_inbound inbound;
    uint32_t len_bytes, slots, srq_num;
};

/* False: none is there, or it is another kind. */
static inline bool read_next(const struct sw_qp *qp, const struct sw_direct_qp *d,
                             struct short_message *out)
{
    const struct sw_record *slot = &d->rx->requests[d->serve.at % SW_REQUEST_SLOTS];
    if (atomic_load_explicit(&slot->seq, memory_order_acquire) != d->serve.at + 1)
        return false;
    const uint8_t kind = slot->kind, flags = slot->flags;
    out->len_bytes = slot->len_bytes;
    out->slots = slot->slots;
    out->srq_num = qp->xrcd ? slot->srq_num : 0;
    out->inbound.imm = slot->imm;
    out->inbound.has_imm = flags & SW_REC_IMM;
    out->inbound.is_solicited = flags & SW_REC_SOLICITED;
    atomic_signal_fence(memory_order_seq_cst); /* what is checked must not be read again */
    return kind == SW_REC_SEND_WHOLE && !(flags & SW_REC_INV) && out->len_bytes <= SW_WHOLE_BYTES &&
           out->slots == sw_record_slots(out->len_bytes, SW_WHOLE_FIRST);
}

static inline bool serve_one(const struct sw_qp *qp, struct sw_direct_qp *d,
                             struct sw_receive_run *run, const struct short_message *message)
{
    uint8_t *to = sw_receive_run_at(run, message->len_bytes);
    if (!to || !sw_record_copy(d, to, message->len_bytes, SW_WHOLE_FIRST))
        return false;
    sw_receive_run_complete(qp, run, &message->inbound, message->len_bytes);
    sw_serve_acknowledge(d);
    d->serve.at += message->slots;
    return true;
}

uint32_t sw_serve_together(struct sw_qp *qp, struct sw_direct_qp *d, uint32_t most)
{
    sw_lock_assert_held(&qp->lock);
    struct short_message message = {.inbound = {.pd = qp->pd_id}};
    struct sw_receive_run run;
    /* Where answers are due, they are looked for before each record. */
    if (d->send.answers_due || d->serve.receive.is_taken || d->serve.skipping ||
        !read_next(qp, d, &message) || !sw_serve_can_answer(qp, d))
        return 0;
    const uint32_t srq_num = message.srq_num;
    if (qp->xrcd && !sw_execute_name_srq(qp, srq_num, &message.inbound))
        return 0;
    struct sw_srq *srq = qp->xrcd ? message.inbound.srq : qp->srq;
    if (!srq)
        return 0;
    uint32_t served = 0;
    most = sw_min_u32(most, TOGETHER);
    sw_receive_run_begin(qp, srq, &run);
    while (served < most && message.srq_num == srq_num && serve_one(qp, d, &run, &message)) {
        served++;
        if (!read_next(qp, d, &message))
            break;
    }
    sw_receive_run_end(&run);
    if (served)
        d->serve.rnr_ns = 0;
    return served;
}
