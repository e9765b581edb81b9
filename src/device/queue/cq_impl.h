/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Inside of completion queues, for device/ and links.
 *
 * The ring has many producers (any thread completing work, under push_lock) and one consumer at a
 * time (under poll_lock). Messages of peers do not enter it until somebody drives the QP:
 * sw_cq_poll() does so for the QPs attached to the CQ.
 */
#ifndef SW_DEVICE_QUEUE_CQ_IMPL_H
#define SW_DEVICE_QUEUE_CQ_IMPL_H

#include "base/clock.h"
#include "base/lock.h"
#include "device/nic/context_impl.h"
#include "device/queue/cq.h"
#include "device/rules/pub.h"

struct sw_qp;

/* One queued completion. `qp` is set for send completions: polling it frees the send queue up to
 * `sq_index`. */
struct sw_cqe {
    struct ibv_wc wc;
    struct sw_qp *qp;
    uint32_t sq_index;
    uint32_t pad;
};
static_assert(sizeof(struct sw_cqe) == 64, "one cache line");

struct sw_cq {
    struct sw_lock poll_lock;
    uint32_t head;             /* next to poll; written under poll_lock */
    uint32_t turn;             /* where the search for QPs with work goes on */
    _Atomic uint32_t looks;    /* polls that drove the QPs; written under poll_lock */
    _Atomic uint32_t qp_count; /* written under poll_lock */
    uint32_t qp_room;
    uint32_t datagram_qps; /* attached ones that receive datagrams here */
    atomic_uint wired;     /* attached ones that receive from other hosts */
    atomic_uint awake;     /* attached ones that may have work: sw_qp_rest() */
    struct sw_qp **qps;    /* attached, under poll_lock; once per attachment */

    _Alignas(SW_CACHELINE) struct sw_lock push_lock;
    _Atomic uint32_t tail; /* next to fill; written under push_lock */
    uint32_t mask;
    struct sw_cqe *ring;
    uint32_t capacity; /* what the program was granted; the ring may be larger */
    atomic_bool overflow, overflow_told;
    bool ignore_overrun;
    uint64_t *times_ns; /* when each entry of the ring was filled; NULL: nobody asked */

    _Alignas(SW_CACHELINE) struct sw_context *ctx;
    struct sw_pub_cq *pub;
    uint32_t index; /* in the public table */
    sw_cq_notify_fn notify;
    void *owner;
    atomic_uint refs;
    struct sw_pd *pd;           /* whose allocator its memory came from, or NULL */
    _Atomic uint32_t head_seen; /* head as of the last poll, for the producers' overflow check */

    /* Moderation: cq_moderation.c. Its members of the list are under nic.lock. */
    _Atomic uint32_t moderate_count; /* completions that make an event; 0: the first does */
    _Atomic uint64_t moderate_ns;
    _Atomic uint32_t armed_at;   /* tail when the CQ was armed */
    atomic_uint events_held;     /* threads that are about to fire its event: cq_events.c */
    _Atomic uint64_t fire_at_ns; /* when the event comes whatever the count; 0: none is due */
    bool is_moderated;
    struct sw_cq *moderated_next;
};

static inline bool sw_cq_is_overrun(const struct sw_cq *cq)
{
    return atomic_load_explicit(&cq->overflow, memory_order_relaxed);
}

/* Sends the event about it, once. With a QP of the CQ locked that fails next, so that a program
 * that hears of the event and then asks for the QP's state finds ERR. */
void sw_cq_tell_overflow(struct sw_cq *cq);

/* The CQ is armed for what was pushed: fires the event unless moderation holds it back. push_lock
 * need not be held. */
void sw_cq_fire(struct sw_cq *cq);
/* Fires the event if the CQ is armed. */
void sw_cq_fire_now(struct sw_cq *cq);

/* Completions of this thread fire no event until it releases them. */
void sw_cq_hold_events(void);
bool sw_cq_release_events(void); /* whether there were any */
bool sw_cq_has_held(void);       /* whether this thread holds any */
/* Returns when no thread holds one of the CQ. */
void sw_cq_await_events(const struct sw_cq *cq);

/* Whether moderation holds the event back; if so, it has seen to it that it comes in time. */
bool sw_cq_moderation_holds(struct sw_cq *cq);
/* Fires the events whose time has come. When to call again; UINT64_MAX: when kicked. The engine
 * does it. */
uint64_t sw_cq_moderation_step(uint64_t now_ns);

/* Reserves the next entry, or NULL on overflow. Between lock and unlock any number may be pushed.
 */
static inline void sw_cq_lock(struct sw_cq *cq)
{
    sw_lock_acquire(&cq->push_lock);
}
struct sw_cqe *sw_cq_overflowed(struct sw_cq *cq);

/* How many entries can be reserved; more while it is polled. */
static inline uint32_t sw_cq_room(const struct sw_cq *cq)
{
    sw_lock_assert_held(&cq->push_lock);
    const uint32_t used = atomic_load_explicit(&cq->tail, memory_order_relaxed) -
                          atomic_load_explicit(&cq->head_seen, memory_order_acquire);
    return used < cq->capacity ? cq->capacity - used : 0;
}

static inline struct sw_cqe *sw_cq_reserve(struct sw_cq *cq)
{
    sw_lock_assert_held(&cq->push_lock);
    uint32_t tail = atomic_load_explicit(&cq->tail, memory_order_relaxed);
    if (__builtin_expect(
            tail - atomic_load_explicit(&cq->head_seen, memory_order_acquire) >= cq->capacity, 0))
        return sw_cq_overflowed(cq);
    return &cq->ring[tail & cq->mask];
}
static inline void sw_cq_publish(struct sw_cq *cq)
{
    uint32_t tail = atomic_load_explicit(&cq->tail, memory_order_relaxed);
    if (__builtin_expect(cq->times_ns != NULL, 0))
        cq->times_ns[tail & cq->mask] = sw_clock_ns();
    atomic_store_explicit(&cq->tail, tail + 1,
                          memory_order_release); /* pairs with the poller's acquire */
}

/* Ends the pushes begun by sw_cq_lock(); fires the event if armed. `solicited`: one of the pushed
 * was solicited or an error. */
static inline void sw_cq_unlock(struct sw_cq *cq, bool solicited)
{
    sw_lock_release(&cq->push_lock);
    if (cq->notify) /* the entry is visible before the flag is read; sw_cq_req_notify() does it the
                       other way round */
        atomic_thread_fence(memory_order_seq_cst);
    uint32_t armed = atomic_load_explicit(&cq->pub->armed, memory_order_relaxed);
    if (__builtin_expect(armed != SW_CQ_DISARMED, 0) && sw_cq_is_armed_for(armed, solicited))
        sw_cq_fire(cq);
}

/* Pushes the completion of a receive. */
void sw_cq_complete_recv(struct sw_cq *cq, const struct ibv_wc *wc, bool solicited);

/* QPs attach themselves for driving; one QP may attach twice (send and receive on one CQ counts
 * once here). -ENOMEM. */
int sw_cq_attach(struct sw_cq *cq, struct sw_qp *qp);
/* Detaches and removes the QP's queued completions, but those of messages that came. */
void sw_cq_detach(struct sw_cq *cq, struct sw_qp *qp);
/* Removes the queued completions of a QP number (reset). poll_lock must be held. */
void sw_cq_purge(struct sw_cq *cq, uint32_t qpn);

#endif
