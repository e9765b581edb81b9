/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Rings are found without a lock in a table of their own. Records of a ring are taken out under the
 * ring's lock, and delivered under the lock of the QP they are for. Lock order: CQ's poll_lock,
 * ring, groups (device/serve/mcast.c), QP.
 *
 * A QP is found through `receivers`. sw_datagram_forget() takes it out, then passes through the
 * lock of every ring: a thread that had found it is done then.
 */
#include "link/direct/datagram/receive.h"

#include "base/clock.h"
#include "base/lock.h"
#include "device/queue/ah.h"
#include "device/queue/counters.h"
#include "device/queue/cq_impl.h"
#include "device/queue/qp_impl.h"
#include "device/serve/datagram.h"
#include "device/serve/mcast.h"
#include "link/direct/process/block.h"
#include "link/direct/process/inbox.h"
#include "link/direct/process/state.h"
#include "link/engine.h"

#define POLL_RECORDS 64u   /* at most by one poll from one ring */
#define ENGINE_RECORDS 64u /* by the engine for programs that sleep: the first wakes them */
#define URGENT_RECORDS 4096u

/* Datagrams that a dead client left wait for the program to poll for so long. */
#define DEATH_GRACE_NS (100 * SW_NS_PER_MS)

#define RINGS (2u * SW_SLOT_MAX) /* a dead client's inbox may outlive the next one's beginning */

struct ring {
    _Alignas(SW_CACHELINE) struct sw_lock lock;
    _Atomic uint32_t consumed;
    _Atomic(uint8_t *) base; /* of the inbox; NULL: free. Ranges of inboxes stay readable */
    _Atomic(const struct sw_inbox *) inbox; /* looked into by the engine, which also frees it */
    uint64_t dead_ns;
};

static struct ring rings[RINGS];
static atomic_uint ring_count; /* highest index in use, plus 1 */
static atomic_uint turn;
static _Atomic(struct sw_qp *) receivers[SW_MAX_QP];

static bool is_record(uint8_t *base, uint32_t position)
{
    return atomic_load_explicit(&sw_inbox_record(base, position)->seq, memory_order_acquire) ==
           position + 1; /* pairs with the sender's release */
}

static bool ring_waits(const struct ring *ring)
{
    uint8_t *base = atomic_load_explicit(&ring->base, memory_order_acquire);
    return base && is_record(base, atomic_load_explicit(&ring->consumed, memory_order_relaxed));
}

void sw_datagram_open(struct sw_inbox *inbox)
{
    sw_mutex_assert_held(&sw_direct.lock);
    inbox->datagrams = -1;
    for (uint32_t i = 0; i < RINGS; i++) {
        struct ring *ring = &rings[i];
        if (atomic_load(&ring->base))
            continue;
        sw_lock_acquire(&ring->lock);
        atomic_store(&ring->inbox, inbox);
        ring->dead_ns = 0;
        atomic_store(&ring->consumed, 0);
        atomic_store(&ring->base, inbox->base);
        sw_lock_release(&ring->lock);
        inbox->datagrams = (int)i;
        if (i >= atomic_load(&ring_count))
            atomic_store(&ring_count, i + 1);
        return;
    }
}

void sw_datagram_close(struct sw_inbox *inbox)
{
    if (inbox->datagrams < 0)
        return;
    struct ring *ring = &rings[inbox->datagrams];
    sw_lock_acquire(&ring->lock);
    atomic_store(&ring->base, NULL);
    atomic_store(&ring->inbox, NULL);
    sw_lock_release(&ring->lock);
}

bool sw_datagram_waits(const struct sw_inbox *inbox)
{
    return inbox->datagrams >= 0 && ring_waits(&rings[inbox->datagrams]);
}

void sw_datagram_enter(struct sw_qp *qp)
{
    atomic_store(&receivers[qp->index], qp);
}

void sw_datagram_forget(struct sw_qp *qp)
{
    struct sw_qp *self = qp;
    if (!atomic_compare_exchange_strong(&receivers[qp->index], &self, NULL))
        return;
    uint32_t count = atomic_load(&ring_count);
    for (uint32_t i = 0; i < count; i++) {
        sw_lock_acquire(&rings[i].lock);
        sw_lock_release(&rings[i].lock);
    }
}

static void deliver_record(struct sw_datagram_batch *batch, uint32_t dest_qpn,
                           const struct sw_datagram *datagram)
{
    struct sw_qp *qp =
        dest_qpn == SW_MULTICAST_QPN ? NULL : atomic_load(&receivers[sw_qpn_index(dest_qpn)]);
    if (__builtin_expect(qp && qp->qpn == dest_qpn, 1)) {
        sw_datagram_batch_deliver(batch, qp, datagram);
        return;
    }
    sw_datagram_batch_end(batch);
    const union ibv_gid dgid = sw_grh_dgid(datagram->grh);
    if (dest_qpn == SW_MULTICAST_QPN)
        sw_mcast_deliver(&dgid, NULL, datagram);
    else
        sw_counter_add(sw_netdev_with_gid(&dgid), SW_RX_DROP_NO_QP);
}

/* Takes the record at `position`. The client's bytes are read once and checked, but for those that
 * only go to the program: the header and the payload. Returns the units it took, or 0 if it is
 * nonsense. */
static uint32_t receive_take_record(struct sw_datagram_batch *batch, uint8_t *base,
                                    uint32_t position)
{
    const struct sw_datagram_record *record = sw_inbox_record(base, position);
    const uint32_t rest = SW_DATAGRAM_UNITS - position % SW_DATAGRAM_UNITS;
    __builtin_prefetch(record->payload); /* a short message */
    const uint32_t size = record->size, flags = record->flags, dest_qpn = record->dest_qpn;
    const struct sw_datagram datagram = {
        .grh = record->grh,
        .payload = record->payload,
        .len_bytes = size,
        .src_qpn = record->src_qpn,
        .qkey = record->qkey,
        .imm = record->imm,
        .has_imm = flags & SW_DATAGRAM_IMM,
        .is_solicited = flags & SW_DATAGRAM_SOLICITED,
        .sl = record->sl,
    };
    atomic_signal_fence(memory_order_seq_cst); /* what is checked must not be read again */
    const bool is_skip = flags == SW_DATAGRAM_SKIP;
    const uint32_t units = is_skip ? size : sw_datagram_units(size);
    if (units > rest || flags & ~(unsigned int)SW_DATAGRAM_FLAGS)
        return 0;
    if (is_skip)
        return units;
    if (flags & SW_DATAGRAM_SKIP || size > SW_DATAGRAM_BYTES)
        return 0;
    deliver_record(batch, dest_qpn, &datagram);
    return units;
}

/* After nonsense, of which nothing tells where the next record begins: the units up to what the
 * client says it has written, if that can be. */
static uint32_t skip_nonsense(const struct sw_inbox_header *header, uint32_t at)
{
    sw_counter_add(NULL, SW_RX_DROP_MALFORMED);
    uint32_t units = atomic_load(&header->datagrams_produced) - at;
    return units >= 1 && units <= SW_DATAGRAM_UNITS ? units : 1;
}

static uint32_t queued_count(const struct sw_cq *cq)
{
    return atomic_load_explicit(&cq->tail, memory_order_relaxed) - cq->head;
}

/* Takes up to `count` records, and no more than `want` completions of `cq` (NULL: any number) ask
 * for. */
static void drain_ring(struct ring *ring, const struct sw_cq *cq, uint32_t want, uint32_t count)
{
    sw_lock_assert_held(&ring->lock);
    uint8_t *base = atomic_load(&ring->base);
    if (!base)
        return;
    struct sw_inbox_header *header = (struct sw_inbox_header *)base;
    uint32_t from = atomic_load_explicit(&ring->consumed, memory_order_relaxed), at = from;
    struct sw_datagram_batch batch = {0};
    for (; count && is_record(base, at); count--) {
        uint32_t units = receive_take_record(&batch, base, at);
        at += units ? units : skip_nonsense(header, at);
        if (cq && queued_count(cq) >= want)
            break;
    }
    sw_datagram_batch_end(&batch);
    if (at == from)
        return;
    atomic_store_explicit(&ring->consumed, at, memory_order_relaxed);
    atomic_store_explicit(&header->datagrams_consumed, at, memory_order_release);
}

void sw_datagram_receive(struct sw_cq *cq, uint32_t want)
{
    uint32_t count = atomic_load_explicit(&ring_count, memory_order_relaxed);
    uint32_t first = atomic_load_explicit(&turn, memory_order_relaxed);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t at = first + i < count ? first + i : first + i - count;
        struct ring *ring = &rings[at];
        if (!ring_waits(ring) || !sw_lock_try(&ring->lock))
            continue;
        drain_ring(ring, cq, want, POLL_RECORDS);
        sw_lock_release(&ring->lock);
        if (queued_count(cq) >= want) {
            atomic_store_explicit(&turn, at + 1 < count ? at + 1 : 0, memory_order_relaxed);
            return;
        }
    }
}

bool sw_datagram_any(void)
{
    atomic_thread_fence(memory_order_seq_cst); /* what was armed before is visible to senders */
    uint32_t count = atomic_load(&ring_count);
    for (uint32_t i = 0; i < count; i++)
        if (ring_waits(&rings[i]))
            return true;
    return false;
}

static bool serve_ring(struct ring *ring, bool armed)
{
    uint8_t *base = atomic_load(&ring->base);
    if (!base || !ring_waits(ring))
        return false;
    struct sw_inbox_header *header = (struct sw_inbox_header *)base;
    bool urgent = atomic_load(&header->datagrams_urgent);
    if (!urgent && !armed)
        return false;
    if (!sw_lock_try(&ring->lock))
        return true;
    drain_ring(ring, NULL, 0, urgent ? URGENT_RECORDS : ENGINE_RECORDS);
    bool more = ring_waits(ring);
    if (urgent && !more && atomic_load(&ring->base) == base)
        atomic_store(&header->datagrams_urgent, 0);
    sw_lock_release(&ring->lock);
    return more;
}

bool sw_datagram_serve(bool armed)
{
    bool more = false;
    uint32_t count = atomic_load(&ring_count);
    for (uint32_t i = 0; i < count; i++)
        more |= serve_ring(&rings[i], armed);
    return more;
}

uint64_t sw_datagram_bury(uint64_t now_ns)
{
    uint64_t next_ns = UINT64_MAX;
    uint32_t count = atomic_load(&ring_count);
    for (uint32_t i = 0; i < count; i++) {
        struct ring *ring = &rings[i];
        const struct sw_inbox *inbox = atomic_load(&ring->inbox);
        if (!inbox || !atomic_load(&inbox->dead) || !ring_waits(ring))
            continue;
        sw_lock_acquire(&ring->lock);
        if (!ring->dead_ns)
            ring->dead_ns = now_ns;
        if (now_ns - ring->dead_ns >= DEATH_GRACE_NS) {
            drain_ring(ring, NULL, 0, SW_DATAGRAM_UNITS);
            ring->dead_ns = now_ns; /* more can only come from a child that inherited its memory */
        }
        if (ring_waits(ring) && ring->dead_ns + DEATH_GRACE_NS < next_ns)
            next_ns = ring->dead_ns + DEATH_GRACE_NS;
        sw_lock_release(&ring->lock);
    }
    return next_ns;
}

void sw_datagram_receive_fork_child(void)
{
    for (uint32_t i = 0; i < RINGS; i++) {
        rings[i].lock = (struct sw_lock){0};
        atomic_store(&rings[i].inbox, NULL);
        atomic_store(&rings[i].base, NULL);
    }
    atomic_store(&ring_count, 0);
}
