/* SPDX-License-Identifier: BSD-2-Clause */
/* What the target says of the requests that it executes: how many were done, and the rest in the
 * response ring. */
#include "link/direct/serve/answer.h"

#include "link/direct/bind/bind.h"
#include "link/direct/bind/connection.h"
#include "link/direct/process/block.h"
#include "link/direct/process/peer.h"
#include "link/direct/send/bounce.h"
#include "link/engine.h"

/* Consumed before the peer is told: records, and bytes of the bounce area. The rest of the area
 * always has room for the next piece, whatever it skips at the end. */
#define TELL_EVERY 64u
#define TELL_BYTES (SW_REQUEST_BOUNCE / 4)
static_assert(TELL_BYTES + 2 * SW_BOUNCE_CHUNK <= SW_REQUEST_BOUNCE, "a piece always fits");

/* A peer that says it has consumed more than was written gives no room. */
static bool is_room(uint32_t room)
{
    return room - 1 < SW_RESPONSE_SLOTS;
}

bool sw_answer_has_room(struct sw_direct_qp *d)
{
    if (__builtin_expect(!is_room(d->serve.answer_limit - d->serve.answer_at), 0))
        d->serve.answer_limit = SW_RESPONSE_SLOTS + atomic_load_explicit(&d->rx->responses_consumed,
                                                                         memory_order_acquire);
    return is_room(d->serve.answer_limit - d->serve.answer_at);
}

struct sw_record *sw_answer_reserve(struct sw_direct_qp *d, uint32_t len_bytes)
{
    if (!sw_answer_has_room(d))
        return NULL;
    struct sw_record *record = &d->tx->responses[d->serve.answer_at % SW_RESPONSE_SLOTS];
    record->flags = 0;
    record->slots = 1;
    record->verdict = SW_ACK;
    record->len_bytes = len_bytes;
    if (len_bytes) {
        uint32_t end,
            used = atomic_load_explicit(&d->rx->response_bounce_consumed, memory_order_acquire);
        int64_t offset =
            sw_area_reserve(d->serve.answer_bounce_at, used, SW_RESPONSE_BOUNCE, len_bytes, &end);
        if (offset < 0)
            return NULL;
        record->bounce_at = (uint32_t)offset;
        record->bounce_end = end;
        d->serve.answer_bounce_at = end;
    }
    return record;
}

void sw_answer_publish(struct sw_direct_qp *d, struct sw_record *record)
{
    record->imm = d->serve.acknowledged;
    atomic_store_explicit(&record->seq, d->serve.answer_at + 1, memory_order_release);
    d->serve.answer_at++;
    d->serve.wake_due = true;
}

void sw_answer_wake(struct sw_direct_qp *d)
{
    if (!d->serve.wake_due)
        return;
    d->serve.wake_due = false;
    atomic_thread_fence(memory_order_seq_cst); /* the peer arms, then has its engine look */
    if (atomic_load(&d->peer->state) == SW_PEER_READY &&
        atomic_load(&d->peer->pub->cqs[d->remote.send_cq].armed) != SW_CQ_DISARMED)
        sw_peer_ring(d->peer);
}

void sw_answer_acks(struct sw_direct_qp *d)
{
    if (!d->serve.acks_due)
        return;
    d->serve.acknowledged += d->serve.acks_due;
    d->serve.acks_due = 0;
    /* Pairs with the acquire of the collector: the answers before it are there. */
    atomic_store_explicit(&d->tx->acknowledged, d->serve.acknowledged, memory_order_release);
    d->serve.wake_due = true;
}

/* Room is given back now and then, as each time costs the peer a cache line; and where an answer is
 * told anyway. */
static bool owes_room(const struct sw_direct_qp *d)
{
    return d->serve.at - d->serve.told >= TELL_EVERY ||
           d->serve.bounce_end - d->serve.bounce_told >= TELL_BYTES;
}

void sw_answer_tell(struct sw_qp *qp, struct sw_direct_qp *d)
{
    sw_lock_assert_held(&qp->lock);
    const bool answers = d->serve.acks_due;
    bool due = answers || owes_room(d);
    if (due && sw_bind_enter(qp, d)) {
        due = false;
        sw_answer_acks(d);
        if (owes_room(d) || (answers && d->serve.bounce_end != d->serve.bounce_told)) {
            atomic_store_explicit(&d->tx->requests_consumed, d->serve.at, memory_order_release);
            atomic_store_explicit(&d->tx->request_bounce_consumed, d->serve.bounce_end,
                                  memory_order_release);
            d->serve.told = d->serve.at;
            d->serve.bounce_told = d->serve.bounce_end;
        }
        sw_bind_leave(d);
    }
    sw_answer_wake(d);
    due = (due && atomic_load(&d->peer->state) != SW_PEER_DEAD) ||
          sw_flushing_goes_on(&d->serve.flushing);
    if (atomic_load_explicit(&qp->rx_pending, memory_order_relaxed) != due) {
        atomic_store(&qp->rx_pending, due);
        if (due)
            sw_engine_nudge();
    }
}
