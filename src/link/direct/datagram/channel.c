/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * One channel for each process that any QP of ours has sent to. Lock order: QP, channel,
 * direct.lock.
 */
#include "link/direct/datagram/channel.h"

#include <stdlib.h>

#include "base/cache_ahead.h"
#include "base/clock.h"
#include "base/lock.h"
#include "device/queue/ah.h"
#include "device/queue/counters.h"
#include "device/queue/qp_impl.h"
#include "link/direct/process/block.h"
#include "link/direct/process/peer.h"
#include "link/direct/process/state.h"
#include "link/gather.h"

/* Units of the next record that are asked for at most. */
#define AHEAD_UNITS 4u

/* How long sends wait for a process that is there to let us attach (it may get no processor);
 * later ones are dropped until it has. And how long nothing is tried again where none is there. */
#define ATTACH_NS (5 * SW_NS_PER_S)
#define NOBODY_NS (10 * SW_NS_PER_MS)

/* How long a process that refuses us is taken to be there. Packets go on while that is asked
 * again. */
#define FAR_NS (250 * SW_NS_PER_MS)

/* A full ring: after this long without progress the receiver's engine takes what its program does
 * not, and after that we drop until something moves. A program that polls is given time, as it may
 * only have lost its core. */
#define URGENT_NS (50 * SW_NS_PER_MS)
#define STUCK_NS (200 * SW_NS_PER_MS)

struct channel {
    struct sw_lock lock;
    struct sw_peer *peer; /* held; NULL: not looked for, not there, or refused */
    bool is_open;         /* the peer is ready and the positions are its ring's */
    uint32_t produced;
    uint64_t heard;      /* datagrams received when the last one was sent */
    uint32_t limit;      /* first position that may not be written yet */
    uint64_t waiting_ns; /* since when the attachment is awaited; 0: it is not */
    uint64_t nobody_ns;  /* until when nobody is there */
    uint64_t far_ns;     /* until when packets serve, as they refuse each other; 0: they do not */
    uint64_t stalled_ns; /* since when the ring is full; 0: it is not */
    uint32_t stalled_at; /* limit at that time */
    bool is_stuck;
};

static _Atomic(struct channel *) channels[SW_SLOT_MAX + 1];

/* NULL: no such slot, or no memory. */
static struct channel *channel_of(uint32_t slot)
{
    if (slot < 1 || slot > SW_SLOT_MAX)
        return NULL;
    struct channel *channel = atomic_load_explicit(&channels[slot], memory_order_acquire);
    if (channel)
        return channel;
    struct channel *fresh = calloc(1, sizeof(*fresh));
    if (!fresh)
        return NULL;
    if (atomic_compare_exchange_strong(&channels[slot], &channel, fresh))
        return fresh;
    free(fresh);
    return channel;
}

static void channel_let_go(struct channel *channel)
{
    sw_peer_put(channel->peer);
    channel->peer = NULL;
    channel->is_open = false;
    channel->waiting_ns = 0;
}

static struct sw_inbox_header *header_of(const struct channel *channel)
{
    return channel->peer->inbox;
}

static void open_channel(struct channel *channel)
{
    const struct sw_inbox_header *header = header_of(channel);
    channel->produced = atomic_load(&header->datagrams_produced);
    channel->limit = atomic_load(&header->datagrams_consumed) + SW_DATAGRAM_UNITS;
    channel->is_open = true;
    channel->is_stuck = false;
    channel->waiting_ns = channel->stalled_ns = channel->far_ns = 0;
}

static enum sw_channel_state wait_for(const struct channel *channel, uint64_t now_ns)
{
    if (channel->far_ns)
        return SW_CHANNEL_FAR;
    return now_ns - channel->waiting_ns < ATTACH_NS ? SW_CHANNEL_WAIT : SW_CHANNEL_NOBODY;
}

/* Whether the process can be written to. */
static enum sw_channel_state attach_channel(struct channel *channel, uint32_t slot)
{
    uint64_t now_ns = sw_clock_ns();
    if (channel->peer && atomic_load(&channel->peer->state) == SW_PEER_DEAD)
        channel_let_go(channel); /* its slot may have a new owner */
    if (!channel->peer) {
        if (now_ns < channel->nobody_ns)
            return SW_CHANNEL_NOBODY;
        if (now_ns < channel->far_ns)
            return SW_CHANNEL_FAR;
        channel->peer = sw_peer_get(slot);
        channel->waiting_ns = now_ns;
        if (!channel->peer)
            return SW_CHANNEL_NOBODY;
    }
    switch (sw_peer_standing(channel->peer)) {
    case SW_STANDING_ACCEPTED:
        open_channel(channel);
        return SW_CHANNEL_READY;
    case SW_STANDING_REFUSED:
        channel_let_go(channel);
        channel->far_ns = sw_direct.has_packets ? now_ns + FAR_NS : 0;
        channel->nobody_ns = sw_direct.has_packets ? 0 : now_ns + NOBODY_NS;
        return sw_direct.has_packets ? SW_CHANNEL_FAR : SW_CHANNEL_NOBODY;
    case SW_STANDING_GONE:
        channel_let_go(channel);
        channel->far_ns = 0;
        channel->nobody_ns = now_ns + NOBODY_NS;
        return SW_CHANNEL_NOBODY;
    case SW_STANDING_UNKNOWN:
        break;
    }
    return wait_for(channel, now_ns);
}

static bool is_open(const struct channel *channel)
{
    return __builtin_expect(channel->is_open, 1) &&
           atomic_load_explicit(&channel->peer->state, memory_order_acquire) == SW_PEER_READY;
}

static enum sw_channel_state slot_ready(struct channel *channel, uint32_t slot)
{
    return is_open(channel) ? SW_CHANNEL_READY : attach_channel(channel, slot);
}

/* What a record takes at the present position, with what it must skip before. */
static uint32_t units_needed(const struct channel *channel, uint32_t units, uint32_t *skipped)
{
    uint32_t rest = SW_DATAGRAM_UNITS - channel->produced % SW_DATAGRAM_UNITS;
    *skipped = units > rest ? rest : 0;
    return *skipped + units;
}

/* Makes what was written from the present position on valid: the record at `skipped` units from
 * there, and before it the one that skips them. */
static void channel_publish_records(struct channel *channel, uint32_t skipped, uint32_t needed)
{
    void *base = channel->peer->inbox;
    uint32_t at = channel->produced, next = at + needed;
    atomic_store_explicit(&sw_inbox_record(base, next)->seq, next, memory_order_relaxed);
    if (skipped) {
        atomic_store_explicit(&sw_inbox_record(base, at + skipped)->seq, at + skipped + 1,
                              memory_order_release);
        struct sw_datagram_record *skip = sw_inbox_record(base, at);
        skip->size = (uint16_t)skipped;
        skip->flags = SW_DATAGRAM_SKIP;
    }
    atomic_store_explicit(&sw_inbox_record(base, at)->seq, at + 1,
                          memory_order_release); /* pairs with the receiver's acquire */
    channel->produced = next;
    atomic_store_explicit(&header_of(channel)->datagrams_produced, next, memory_order_relaxed);
}

/* As sw_record_publish() does, and only of a stream. */
static void ask_ahead(struct channel *channel, const struct sw_qp *qp, uint32_t needed)
{
    if (channel->heard == qp->moved.received_packets)
        for (uint32_t i = 1; i <= needed && i <= AHEAD_UNITS; i++)
            sw_cache_own_soon(sw_inbox_datagram(channel->peer->inbox, channel->produced + i));
    channel->heard = qp->moved.received_packets;
}

static bool channel_has_room(struct channel *channel, uint32_t needed)
{
    /* One unit more, for what tells the reader that nothing follows. */
    if (__builtin_expect((int32_t)(channel->limit - channel->produced - needed) > 0, 1))
        return true;
    channel->limit =
        atomic_load_explicit(&header_of(channel)->datagrams_consumed, memory_order_acquire) +
        SW_DATAGRAM_UNITS;
    return (int32_t)(channel->limit - channel->produced - needed) > 0;
}

/* The ring is full: whether to wait on. */
static bool may_wait(struct channel *channel)
{
    uint64_t now_ns = sw_clock_ns();
    if (!channel->stalled_ns || channel->stalled_at != channel->limit) {
        channel->stalled_ns = now_ns;
        channel->stalled_at = channel->limit;
        channel->is_stuck = false;
    }
    if (channel->is_stuck)
        return false;
    if (now_ns - channel->stalled_ns >= URGENT_NS &&
        !atomic_exchange(&header_of(channel)->datagrams_urgent, 1))
        sw_peer_ring(channel->peer);
    channel->is_stuck = now_ns - channel->stalled_ns >= STUCK_NS;
    return !channel->is_stuck;
}

/* Wakes the process where somebody sleeps until the datagram comes. */
static void wake_receiver(struct channel *channel, const struct sw_datagram_record *record,
                          uint32_t before)
{
    atomic_thread_fence(memory_order_seq_cst); /* sw_cq_req_notify() arms, then looks at the ring */
    const struct sw_pub *pub = channel->peer->pub;
    if (record->dest_qpn == SW_MULTICAST_QPN) {
        /* For any number of QPs: rung unless the one before has not been taken either. */
        if (atomic_load(&header_of(channel)->datagrams_consumed) == before)
            sw_peer_ring(channel->peer);
        return;
    }
    const struct sw_pub_qp *dest = &pub->qps[sw_qpn_index(record->dest_qpn)];
    uint32_t cq = SW_PUB_GET(dest->recv_cq);
    if (cq >= SW_MAX_CQ)
        return;
    uint32_t armed = atomic_load_explicit(&pub->cqs[cq].armed, memory_order_relaxed);
    if (sw_cq_is_armed_for(armed, record->flags & SW_DATAGRAM_SOLICITED))
        sw_peer_ring(channel->peer);
}

static void fill_record(struct sw_datagram_record *record, const struct sw_qp *qp,
                        const struct sw_datagram_out *out)
{
    record->size = (uint16_t)out->len_bytes;
    record->flags = (uint8_t)((out->has_imm ? SW_DATAGRAM_IMM : 0) |
                              (out->is_solicited ? SW_DATAGRAM_SOLICITED : 0));
    record->dest_qpn = out->dest_qpn;
    record->src_qpn = qp->qpn;
    record->qkey = sw_qp_sent_qkey(qp, out->qkey);
    record->imm = out->imm;
    record->sl = out->path->wc_sl;
    sw_path_grh(out->path, out->len_bytes, out->has_imm, record->grh);
}

/* Writes the datagram, for which there is room. False: a key does not allow it. */
static bool write_datagram(struct sw_qp *qp, struct channel *channel,
                           const struct sw_datagram_out *out, uint32_t skipped, uint32_t needed)
{
    sw_lock_assert_held(&channel->lock);
    const uint32_t before = channel->produced;
    struct sw_datagram_record *record = sw_inbox_record(channel->peer->inbox, before + skipped);
    if (!sw_gather_out(out->bytes, 0, record->payload, out->len_bytes))
        return false;
    channel->stalled_ns = 0;
    fill_record(record, qp, out);
    channel_publish_records(channel, skipped, needed);
    ask_ahead(channel, qp, needed);
    wake_receiver(channel, record, before);
    return true;
}

/* Where the peer is ready. */
static enum sw_channel_put put_datagram(struct sw_qp *qp, struct channel *channel,
                                        const struct sw_datagram_out *out)
{
    uint32_t skipped;
    uint32_t needed = units_needed(channel, sw_datagram_units(out->len_bytes), &skipped);
    if (!channel_has_room(channel, needed)) {
        if (may_wait(channel))
            return SW_PUT_WAIT;
        sw_counter_add(qp->ctx->netdev, SW_TX_DROP_STALLED);
        return SW_PUT_DROPPED;
    }
    return write_datagram(qp, channel, out, skipped, needed) ? SW_PUT_DONE : SW_PUT_BAD_KEY;
}

enum sw_channel_put sw_channel_put(struct sw_qp *qp, uint32_t slot,
                                   const struct sw_datagram_out *out)
{
    static const enum sw_channel_put ends[] = {
        [SW_CHANNEL_WAIT] = SW_PUT_WAIT,
        [SW_CHANNEL_NOBODY] = SW_PUT_NOBODY,
        [SW_CHANNEL_FAR] = SW_PUT_FAR,
    };
    struct channel *channel = channel_of(slot);
    if (!channel)
        return SW_PUT_NOBODY;
    sw_lock_acquire(&channel->lock);
    const enum sw_channel_state state = slot_ready(channel, slot);
    const enum sw_channel_put put =
        state == SW_CHANNEL_READY ? put_datagram(qp, channel, out) : ends[state];
    sw_lock_release(&channel->lock);
    return put;
}

bool sw_channel_put_now(struct sw_qp *qp, uint32_t slot, const struct sw_datagram_out *out)
{
    bool put = false;
    struct channel *channel = channel_of(slot);
    if (!channel || !sw_lock_try(&channel->lock))
        return false;
    if (is_open(channel)) {
        uint32_t skipped;
        const uint32_t needed = units_needed(channel, sw_datagram_units(out->len_bytes), &skipped);
        put =
            channel_has_room(channel, needed) && write_datagram(qp, channel, out, skipped, needed);
    }
    sw_lock_release(&channel->lock);
    return put;
}

enum sw_channel_state sw_channel_ready(uint32_t slot, uint32_t units)
{
    struct channel *channel = channel_of(slot);
    if (!channel)
        return SW_CHANNEL_NOBODY;
    sw_lock_acquire(&channel->lock);
    enum sw_channel_state state = slot_ready(channel, slot);
    uint32_t skipped;
    if (state == SW_CHANNEL_READY &&
        !channel_has_room(channel, units_needed(channel, units, &skipped)) && may_wait(channel))
        state = SW_CHANNEL_WAIT;
    sw_lock_release(&channel->lock);
    return state;
}

void sw_channel_forget_dead(void)
{
    for (uint32_t slot = 1; slot <= SW_SLOT_MAX; slot++) {
        struct channel *channel = atomic_load_explicit(&channels[slot], memory_order_acquire);
        if (!channel || !sw_lock_try(&channel->lock))
            continue; /* whoever holds it finds out, or the next call does */
        if (channel->peer && atomic_load(&channel->peer->state) == SW_PEER_DEAD)
            channel_let_go(channel);
        sw_lock_release(&channel->lock);
    }
}

void sw_channel_fork_child(void)
{
    for (uint32_t slot = 1; slot <= SW_SLOT_MAX; slot++)
        atomic_store(&channels[slot], NULL); /* another thread may have been inside: left alone */
}
