/* SPDX-License-Identifier: BSD-2-Clause */
/* Writing records to the peer: the request ring. */
#include "link/direct/bind/record.h"

#include "base/cache_ahead.h"
#include "device/queue/qp_impl.h"
#include "link/direct/bind/connection.h"
#include "link/direct/process/block.h"

/* How far behind a record the next but one begins that is asked for: the reader looks at the next
 * one itself all the time. Only of a stream: where each message answers one of the peer's, the
 * reader has the line and looks for it, and would have to fetch it back first. */
#define AHEAD 2u

struct sw_record *sw_record_reserve(struct sw_direct_qp *d, uint32_t slots, bool fatal)
{
    /* One record stays in reserve for FATAL. */
    uint32_t limit = d->send.request_limit + (fatal ? 1 : 0);
    if (__builtin_expect((int32_t)(limit - (d->send.request_at + slots)) < 0, 0)) {
        uint32_t consumed = atomic_load_explicit(&d->rx->requests_consumed, memory_order_acquire);
        d->send.request_limit = consumed + SW_REQUEST_SLOTS - 1;
        limit = d->send.request_limit + (fatal ? 1 : 0);
        if ((int32_t)(limit - (d->send.request_at + slots)) < 0)
            return NULL;
    }
    return &d->tx->requests[d->send.request_at % SW_REQUEST_SLOTS];
}

void sw_record_publish(struct sw_direct_qp *d, struct sw_record *record, uint32_t slots, bool wakes)
{
    record->slots = (uint8_t)slots;
    atomic_store_explicit(&record->seq, d->send.request_at + 1,
                          memory_order_release); /* pairs with the responder's acquire */
    d->send.request_at += slots;
    if (d->send.served_before == d->serve.at)
        for (uint32_t i = 0; i < slots; i++)
            sw_cache_own_soon(
                &d->tx->requests[(d->send.request_at + AHEAD + i) % SW_REQUEST_SLOTS]);
    d->send.served_before = d->serve.at;
    if (wakes) {
        d->send.notify = true;
        d->send.notify_solicited |= (record->flags & SW_REC_SOLICITED) || record->verdict != SW_ACK;
    }
}

void sw_record_fatal(struct sw_direct_qp *d, enum sw_verdict verdict)
{
    struct sw_record *record = sw_record_reserve(d, 1, true);
    if (!record)
        return;
    record->kind = SW_REC_FATAL;
    record->flags = 0;
    record->verdict = (uint8_t)verdict;
    record->len_bytes = 0;
    sw_record_publish(d, record, 1, false);
}
