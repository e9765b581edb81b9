/* SPDX-License-Identifier: BSD-2-Clause */
#include "device/queue/cq.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "device/memory/buffer.h"
#include "device/nic/nic.h"
#include "device/queue/cq_impl.h"
#include "device/queue/qp_impl.h"
#include "device/rules/device_limits.h"

static uint32_t ring_size(int cqe)
{
    uint32_t size = 16;
    while (size < (uint32_t)cqe)
        size <<= 1;
    return size;
}

int sw_cq_create(struct sw_context *ctx, int cqe, sw_cq_notify_fn notify, void *owner,
                 struct sw_cq **out)
{
    return sw_cq_create_in(ctx, NULL, cqe, notify, owner, out);
}

int sw_cq_create_in(struct sw_context *ctx, struct sw_pd *pd, int cqe, sw_cq_notify_fn notify,
                    void *owner, struct sw_cq **out)
{
    if (cqe < 1 || cqe > SW_MAX_CQE)
        return -EINVAL;
    struct sw_cq *cq = aligned_alloc(SW_CACHELINE, sizeof(*cq));
    uint32_t size = ring_size(cqe);
    struct sw_cqe *ring = sw_buffer_alloc(pd, size * sizeof(*ring), SW_BUFFER_CQ);
    if (!cq || !ring)
        goto no_memory;
    memset(cq, 0, sizeof(*cq));

    pthread_mutex_lock(&sw_nic.lock);
    int index = sw_nic_claim_cq();
    pthread_mutex_unlock(&sw_nic.lock);
    if (index < 0)
        goto no_memory;
    cq->ring = ring;
    cq->mask = size - 1;
    cq->capacity = size;
    cq->ctx = ctx;
    cq->pd = pd;
    if (pd)
        sw_pd_ref(pd);
    cq->index = (uint32_t)index;
    cq->pub = &sw_nic.pub->cqs[index];
    atomic_store(&cq->pub->armed, SW_CQ_DISARMED);
    cq->notify = notify;
    cq->owner = owner;
    *out = cq;
    return 0;

no_memory:
    free(cq);
    sw_buffer_free(ring);
    return -ENOMEM;
}

int sw_cq_destroy(struct sw_cq *cq)
{
    if (atomic_load(&cq->refs))
        return -EBUSY;
    sw_cq_moderate(cq, 0, 0);
    sw_cq_await_events(cq);
    pthread_mutex_lock(&sw_nic.lock);
    sw_nic_release_cq(cq->index);
    pthread_mutex_unlock(&sw_nic.lock);
    free(cq->qps);
    sw_buffer_free(cq->times_ns);
    sw_buffer_free(cq->ring);
    if (cq->pd)
        sw_pd_unref(cq->pd);
    free(cq);
    return 0;
}

int sw_cq_entries(const struct sw_cq *cq)
{
    return (int)cq->capacity;
}

static uint64_t *new_times(struct sw_cq *cq, uint32_t entries)
{
    return sw_buffer_alloc(cq->pd, entries * sizeof(uint64_t), SW_BUFFER_CQ);
}

int sw_cq_resize(struct sw_cq *cq, int cqe)
{
    if (cqe < 1 || cqe > SW_MAX_CQE)
        return -EINVAL;
    uint32_t size = ring_size(cqe);
    struct sw_cqe *ring = sw_buffer_alloc(cq->pd, size * sizeof(*ring), SW_BUFFER_CQ);
    uint64_t *times_ns = cq->times_ns ? new_times(cq, size) : NULL;
    if (!ring || (cq->times_ns && !times_ns)) {
        sw_buffer_free(ring);
        return -ENOMEM;
    }
    struct sw_cqe *old = ring;
    uint64_t *old_times = times_ns;
    int rc = -EINVAL;
    sw_lock_acquire(&cq->poll_lock);
    sw_lock_acquire(&cq->push_lock);
    uint32_t tail = atomic_load(&cq->tail);
    if (tail - cq->head <= (uint32_t)cqe) {
        for (uint32_t i = cq->head; i != tail; i++) {
            ring[i & (size - 1)] = cq->ring[i & cq->mask];
            if (times_ns)
                times_ns[i & (size - 1)] = cq->times_ns[i & cq->mask];
        }
        old = cq->ring;
        old_times = cq->times_ns;
        cq->ring = ring;
        cq->times_ns = times_ns;
        cq->mask = size - 1;
        cq->capacity = size;
        rc = 0;
    }
    sw_lock_release(&cq->push_lock);
    sw_lock_release(&cq->poll_lock);
    sw_buffer_free(old);
    sw_buffer_free(old_times);
    return rc;
}

int sw_cq_keep_times(struct sw_cq *cq)
{
    cq->times_ns = new_times(cq, cq->capacity);
    return cq->times_ns ? 0 : -ENOMEM;
}

void sw_cq_ignore_overrun(struct sw_cq *cq)
{
    cq->ignore_overrun = true;
}

static int pop_completions(struct sw_cq *cq, int max, struct ibv_wc *wc)
{
    uint32_t head = cq->head;
    uint32_t queued = atomic_load_explicit(&cq->tail, memory_order_acquire) - head;
    int count = queued < (uint32_t)max ? (int)queued : max;
    for (int i = 0; i < count; i++, head++) {
        const struct sw_cqe *cqe = &cq->ring[head & cq->mask];
        wc[i] = cqe->wc;
        if (cqe->qp)
            atomic_store_explicit(&cqe->qp->sq.polled, cqe->sq_index, memory_order_release);
    }
    cq->head = head;
    atomic_store_explicit(&cq->head_seen, head, memory_order_release);
    return count;
}

static bool get_lock(struct sw_lock *lock, bool waits)
{
    if (!waits)
        return sw_lock_try(lock);
    sw_lock_acquire(lock);
    return true;
}

static void count_look(struct sw_cq *cq)
{
    const uint32_t looks = atomic_load_explicit(&cq->looks, memory_order_relaxed);
    atomic_store_explicit(&cq->looks, looks + 1, memory_order_relaxed);
}

/* Drives the attached QPs that have work until enough is queued: the whole round if need be, and
 * going on from the last one served, so that a busy QP does not starve others. Work that another
 * thread is about to do here can be had with the next poll, unless the CQ is armed: then there may
 * be none before the program sleeps. */
static void drive_members(struct sw_cq *cq, int want)
{
    sw_lock_assert_held(&cq->poll_lock);
    const bool is_last_look =
        atomic_load_explicit(&cq->pub->armed, memory_order_relaxed) != SW_CQ_DISARMED;
    if (cq->datagram_qps)
        sw_nic.link->receive(cq, (uint32_t)want);
    if (__builtin_expect(atomic_load_explicit(&cq->wired, memory_order_relaxed) ||
                             atomic_load_explicit(&sw_nic.wired, memory_order_relaxed),
                         0)) {
        sw_nic.link->poll(is_last_look);
        if (atomic_load_explicit(&cq->tail, memory_order_relaxed) != cq->head)
            return;
        if (is_last_look)
            sw_nic.link->mind();
    }
    count_look(cq);
    /* With thousands of queue pairs that rest, to look at each would be what a poll does. */
    uint32_t count = atomic_load_explicit(&cq->awake, memory_order_relaxed) ? cq->qp_count : 0;
    bool in_vain = false;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t at = cq->turn + i;
        at = at >= count ? at - count : at;
        struct sw_qp *qp = cq->qps[at];
        const enum sw_qp_polls polls = sw_qp_polls_link(qp);
        in_vain |= polls == SW_QP_POLLS_IN_VAIN;
        if ((!sw_qp_has_work(qp) && polls == SW_QP_POLLS_NOT) || !get_lock(&qp->lock, is_last_look))
            continue;
        qp->link->progress(qp);
        const bool goes_on = sw_qp_goes_on(qp);
        sw_lock_release(&qp->lock);
        if (goes_on && is_last_look)
            sw_nic.link->kick(); /* the program is about to sleep */
        if (atomic_load_explicit(&cq->tail, memory_order_relaxed) != cq->head) {
            cq->turn = at + 1 >= count ? 0 : at + 1;
            return;
        }
    }
    if (__builtin_expect(in_vain, 0) && !is_last_look)
        sched_yield(); /* to the peer, perhaps */
}

int sw_cq_poll(struct sw_cq *cq, int max, struct ibv_wc *wc)
{
    sw_lock_acquire(&cq->poll_lock);
    int count = pop_completions(cq, max, wc);
    if (count < max) {
        drive_members(cq, max - count);
        count += pop_completions(cq, max - count, wc + count);
    }
    sw_lock_release(&cq->poll_lock);
    if (count == 0 && __builtin_expect(sw_cq_is_overrun(cq), 0))
        return -1;
    return count;
}

int sw_cq_poll_timed(struct sw_cq *cq, int max, struct ibv_wc *wc, uint64_t *times_ns)
{
    sw_lock_acquire(&cq->poll_lock);
    uint32_t from = cq->head;
    int count = pop_completions(cq, max, wc);
    if (count == 0) {
        drive_members(cq, max);
        from = cq->head; /* a QP that fails or is reset takes entries along */
        count = pop_completions(cq, max, wc);
    }
    for (int i = 0; i < count; i++)
        times_ns[i] = cq->times_ns ? cq->times_ns[(from + (uint32_t)i) & cq->mask] : 0;
    sw_lock_release(&cq->poll_lock);
    return count == 0 && sw_cq_is_overrun(cq) ? -1 : count;
}

int sw_cq_req_notify(struct sw_cq *cq, bool solicited_only)
{
    uint32_t armed = atomic_load(&cq->pub->armed);
    if (armed == SW_CQ_DISARMED)
        atomic_store(&cq->armed_at, atomic_load(&cq->tail));
    /* Arming for any completion stays in force when solicited-only is asked for as well. */
    if (!solicited_only || armed != SW_CQ_ARMED_ANY)
        atomic_store(&cq->pub->armed, solicited_only ? SW_CQ_ARMED_SOLICITED : SW_CQ_ARMED_ANY);
    /* A message that came before a peer could see the flag waits undelivered in its ring: let the
     * engine look, so that a program that does not poll again is woken too. */
    sw_lock_acquire(&cq->poll_lock);
    bool waiting = cq->datagram_qps && sw_nic.link->has_datagrams();
    const uint32_t count = atomic_load(&cq->awake) ? cq->qp_count : 0;
    for (uint32_t i = 0; i < count && !waiting; i++)
        waiting = sw_qp_has_work(cq->qps[i]);
    sw_lock_release(&cq->poll_lock);
    if (waiting || atomic_load_explicit(&sw_nic.unminded, memory_order_relaxed))
        sw_nic.link->kick();
    return 0;
}

struct sw_cqe *sw_cq_overflowed(struct sw_cq *cq)
{
    if (!cq->ignore_overrun && !atomic_exchange(&cq->overflow, true)) {
        atomic_store(&sw_nic.overran, true);
        sw_nic.link->kick(); /* the engine tells the program, and takes the CQ's QPs to ERR */
    }
    return NULL;
}

void sw_cq_complete_recv(struct sw_cq *cq, const struct ibv_wc *wc, bool solicited)
{
    sw_cq_lock(cq);
    struct sw_cqe *cqe = sw_cq_reserve(cq);
    if (cqe) {
        cqe->wc = *wc;
        cqe->qp = NULL;
        sw_cq_publish(cq);
    }
    sw_cq_unlock(cq, solicited || wc->status != IBV_WC_SUCCESS);
}

void sw_cq_tell_overflow(struct sw_cq *cq)
{
    if (sw_cq_is_overrun(cq) && !atomic_exchange(&cq->overflow_told, true))
        sw_context_event(cq->ctx, IBV_EVENT_CQ_ERR, cq->owner);
}

int sw_cq_attach(struct sw_cq *cq, struct sw_qp *qp)
{
    int rc = 0;
    atomic_fetch_add(&cq->refs, 1);
    sw_lock_acquire(&cq->poll_lock);
    for (uint32_t i = 0; i < cq->qp_count; i++)
        if (cq->qps[i] == qp)
            goto done;
    if (cq->qp_count == cq->qp_room) {
        uint32_t room = cq->qp_room ? cq->qp_room * 2 : 8;
        struct sw_qp **qps = realloc(cq->qps, room * sizeof(*qps));
        if (!qps) {
            rc = -ENOMEM;
            goto done;
        }
        cq->qps = qps;
        cq->qp_room = room;
    }
    cq->qps[cq->qp_count++] = qp;
    atomic_fetch_add(&cq->awake, 1);
    cq->datagram_qps += qp->rules->is_datagram && qp->recv_cq == cq;
done:
    sw_lock_release(&cq->poll_lock);
    if (rc)
        atomic_fetch_sub(&cq->refs, 1);
    return rc;
}

static void take_out(struct sw_cq *cq, uint32_t qpn, bool keeps_received)
{
    sw_lock_assert_held(&cq->poll_lock);
    sw_lock_acquire(&cq->push_lock);
    uint32_t tail = atomic_load(&cq->tail), kept = tail;
    /* Compact towards the tail's end: walk backwards, keep others. */
    for (uint32_t i = tail; i != cq->head; i--) {
        struct sw_cqe *cqe = &cq->ring[(i - 1) & cq->mask];
        if (cqe->wc.qp_num == qpn && !(keeps_received && sw_cq_has_received(&cqe->wc)))
            continue;
        cq->ring[--kept & cq->mask] = *cqe;
        if (cq->times_ns)
            cq->times_ns[kept & cq->mask] = cq->times_ns[(i - 1) & cq->mask];
    }
    cq->head = kept;
    atomic_store(&cq->head_seen, kept);
    sw_lock_release(&cq->push_lock);
}

void sw_cq_purge(struct sw_cq *cq, uint32_t qpn)
{
    take_out(cq, qpn, false);
}

void sw_cq_detach(struct sw_cq *cq, struct sw_qp *qp)
{
    sw_lock_acquire(&cq->poll_lock);
    for (uint32_t i = 0; i < cq->qp_count; i++) {
        if (cq->qps[i] == qp) {
            cq->qps[i] = cq->qps[--cq->qp_count];
            atomic_fetch_sub(&cq->awake, 1); /* as it is at its end */
            cq->datagram_qps -= qp->rules->is_datagram && qp->recv_cq == cq;
            break;
        }
    }
    cq->turn = 0;
    take_out(cq, sw_qp_num(qp), true);
    sw_lock_release(&cq->poll_lock);
    atomic_fetch_sub(&cq->refs, 1);
}
