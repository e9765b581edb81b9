/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * One channel for each process that any QP of ours has sent to. Lock order: QP, channel,
 * direct.lock.
 */
#include "link/direct/datagram/send.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "base/cache_ahead.h"
#include "base/clock.h"
#include "base/lock.h"
#include "device/queue/ah.h"
#include "device/queue/counters.h"
#include "device/queue/qp_impl.h"
#include "link/direct/datagram/multicast.h"
#include "link/direct/process/block.h"
#include "link/direct/process/peer.h"
#include "link/direct/process/state.h"
#include "link/direct/send/bounce.h"
#include "link/direct/send/fault_gate.h"
#include "link/engine.h"
#include "link/gather.h"
#include "link/link.h"
#include "link/roce/datagram.h"
#include "link/roce/group.h"
#include "link/roce/roce.h"

/* Bytes sent in one call; the rest goes on in later ones. */
#define RUN_BUDGET_BYTES (1u << 20)

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

enum put {
    PUT_DONE,
    PUT_DROPPED, /* and counted: the request is complete all the same */
    PUT_WAIT,
    PUT_BAD_KEY,
};

static struct channel *send_channel_of(uint32_t slot)
{
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

static void send_let_go(struct channel *channel)
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

/* READY_FAR: by packets. */
enum ready { READY, READY_WAIT, READY_NOBODY, READY_FAR };

static enum ready wait_for(const struct channel *channel, uint64_t now_ns)
{
    if (channel->far_ns)
        return READY_FAR;
    return now_ns - channel->waiting_ns < ATTACH_NS ? READY_WAIT : READY_NOBODY;
}

/* Whether the process can be written to. */
static enum ready attach_channel(struct channel *channel, uint32_t slot)
{
    uint64_t now_ns = sw_clock_ns();
    if (channel->peer && atomic_load(&channel->peer->state) == SW_PEER_DEAD)
        send_let_go(channel); /* its slot may have a new owner */
    if (!channel->peer) {
        if (now_ns < channel->nobody_ns)
            return READY_NOBODY;
        if (now_ns < channel->far_ns)
            return READY_FAR;
        channel->peer = sw_peer_get(slot);
        channel->waiting_ns = now_ns;
        if (!channel->peer)
            return READY_NOBODY;
    }
    switch (sw_peer_standing(channel->peer)) {
    case SW_STANDING_ACCEPTED:
        open_channel(channel);
        return READY;
    case SW_STANDING_REFUSED:
        send_let_go(channel);
        channel->far_ns = sw_direct.has_packets ? now_ns + FAR_NS : 0;
        channel->nobody_ns = sw_direct.has_packets ? 0 : now_ns + NOBODY_NS;
        return sw_direct.has_packets ? READY_FAR : READY_NOBODY;
    case SW_STANDING_GONE:
        send_let_go(channel);
        channel->far_ns = 0;
        channel->nobody_ns = now_ns + NOBODY_NS;
        return READY_NOBODY;
    case SW_STANDING_UNKNOWN:
        break;
    }
    return wait_for(channel, now_ns);
}

static enum ready slot_ready(struct channel *channel, uint32_t slot)
{
    if (__builtin_expect(channel->is_open, 1) &&
        atomic_load_explicit(&channel->peer->state, memory_order_acquire) == SW_PEER_READY)
        return READY;
    return attach_channel(channel, slot);
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
static void send_publish_records(struct channel *channel, uint32_t skipped, uint32_t needed)
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

static bool send_has_room(struct channel *channel, uint32_t needed)
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
                        const struct sw_wqe *wqe, const struct sw_route *route)
{
    bool has_imm = wqe->opcode == IBV_WR_SEND_WITH_IMM;
    record->size = (uint16_t)wqe->len_bytes;
    record->flags = (uint8_t)((has_imm ? SW_DATAGRAM_IMM : 0) |
                              (wqe->flags & SW_WQE_SOLICITED ? SW_DATAGRAM_SOLICITED : 0));
    record->dest_qpn = route->dest_qpn;
    record->src_qpn = qp->qpn;
    /* IBTA Vol1 10.2.5: a work request cannot use a privileged Q_Key but the QP's own. */
    record->qkey = route->qkey >> 31 ? qp->attr.qkey : route->qkey;
    record->imm = wqe->imm;
    record->sl = route->path.wc_sl;
    sw_path_grh(&route->path, wqe->len_bytes, has_imm, record->grh);
}

/* Writes the datagram; the peer is ready. */
static enum put put_datagram(struct sw_qp *qp, struct channel *channel, uint32_t position)
{
    sw_lock_assert_held(&channel->lock);
    const struct sw_wqe *wqe = sw_sq_at(&qp->sq, position);
    uint32_t skipped, before = channel->produced;
    uint32_t needed = units_needed(channel, sw_datagram_units(wqe->len_bytes), &skipped);
    if (!send_has_room(channel, needed)) {
        if (may_wait(channel))
            return PUT_WAIT;
        sw_counter_add(qp->ctx->netdev, SW_TX_DROP_STALLED);
        return PUT_DROPPED;
    }
    channel->stalled_ns = 0;
    struct sw_datagram_record *record = sw_inbox_record(channel->peer->inbox, before + skipped);
    struct sw_gather gather = sw_gather_of(qp, position);
    if (!sw_gather_out(&gather, 0, record->payload, wqe->len_bytes))
        return PUT_BAD_KEY;
    fill_record(record, qp, wqe, sw_sq_route(&qp->sq, position));
    send_publish_records(channel, skipped, needed);
    ask_ahead(channel, qp, needed);
    wake_receiver(channel, record, before);
    return PUT_DONE;
}

/* A datagram to nobody: complete all the same, unless its own keys are bad, which hardware finds
 * first. */
static enum put put_nowhere(struct sw_qp *qp, uint32_t position)
{
    struct sw_gather gather = sw_gather_of(qp, position);
    if (!sw_gather_allows(&gather, sw_sq_at(&qp->sq, position)->len_bytes))
        return PUT_BAD_KEY;
    sw_counter_add(qp->ctx->netdev, SW_TX_DROP_UNREACHABLE);
    return PUT_DROPPED;
}

static enum put put_on_wire(struct sw_qp *qp, uint32_t position)
{
    switch (sw_roce_send_datagram(qp, position)) {
    case SW_ROCE_SENT:
        return PUT_DONE;
    case SW_ROCE_BAD_KEY:
        return PUT_BAD_KEY;
    case SW_ROCE_NO_ROUTE:
        break;
    }
    return put_nowhere(qp, position);
}

static enum put put_to_slot(struct sw_qp *qp, uint32_t slot, uint32_t position)
{
    struct channel *channel = slot >= 1 && slot <= SW_SLOT_MAX ? send_channel_of(slot) : NULL;
    enum put result = PUT_DONE;
    enum ready state = READY_NOBODY;
    if (channel) {
        sw_lock_acquire(&channel->lock);
        state = slot_ready(channel, slot);
        if (state == READY)
            result = put_datagram(qp, channel, position);
        else if (state == READY_WAIT)
            result = PUT_WAIT;
        sw_lock_release(&channel->lock);
    }
    if (state == READY_FAR)
        return put_on_wire(qp, position);
    return state == READY_NOBODY ? put_nowhere(qp, position) : result;
}

/* READY_WAIT: one of the group's processes must be waited for; the others do not get it twice. */
static enum ready ready_for(uint32_t slot, uint32_t units)
{
    struct channel *channel = send_channel_of(slot);
    if (!channel)
        return READY_NOBODY;
    sw_lock_acquire(&channel->lock);
    enum ready state = slot_ready(channel, slot);
    uint32_t skipped;
    if (state == READY && !send_has_room(channel, units_needed(channel, units, &skipped)) &&
        may_wait(channel))
        state = READY_WAIT;
    sw_lock_release(&channel->lock);
    return state;
}

/* Members that refuse us are left: one packet is for all of them, and *has_far is set. */
static enum put put_to_group(struct sw_qp *qp, const union ibv_gid *gid, uint32_t position,
                             bool *has_far)
{
    uint16_t slots[SW_MULTICAST_MEMBERS];
    uint32_t count = sw_multicast_members(gid, slots), near = 0;
    uint32_t units = sw_datagram_units(sw_sq_at(&qp->sq, position)->len_bytes);
    for (uint32_t i = 0; i < count; i++) {
        const enum ready state = ready_for(slots[i], units);
        if (state == READY_WAIT)
            return PUT_WAIT;
        *has_far |= state == READY_FAR;
        if (state != READY_FAR)
            slots[near++] = slots[i];
    }
    for (uint32_t i = 0; i < near; i++) {
        enum put result = put_to_slot(qp, slots[i], position);
        if (result == PUT_BAD_KEY)
            return result;
        if (result == PUT_WAIT) /* another QP of ours took the room: not for this one again */
            sw_counter_add(qp->ctx->netdev, SW_TX_DROP_STALLED);
    }
    return PUT_DONE;
}

static bool is_to_group(const struct sw_route *route)
{
    return route->dest_qpn == SW_MULTICAST_QPN && route->path.is_multicast;
}

static void count_sent(struct sw_qp *qp, uint32_t position)
{
    qp->moved.sent_bytes += sw_sq_at(&qp->sq, position)->len_bytes;
    qp->moved.sent_packets++;
    qp->moved.sent_multicast += is_to_group(sw_sq_route(&qp->sq, position));
}

static bool is_for_wire(const struct sw_route *route)
{
    return sw_link_is_far(route) && (sw_direct.off || !is_to_group(route));
}

static enum put datagram_send_one(struct sw_qp *qp, uint32_t position)
{
    const struct sw_route *route = sw_sq_route(&qp->sq, position);
    if (is_to_group(route) && !sw_direct.off) {
        bool has_far = false;
        enum put result = put_to_group(qp, &route->path.dgid, position, &has_far);
        if (has_far)
            sw_roce_group_loop();
        if (result == PUT_DONE && (has_far || sw_roce_is_listed(qp)))
            sw_roce_send_datagram(qp, position); /* and to those on other hosts */
        return result;
    }
    if (__builtin_expect(is_for_wire(route), 0))
        return put_on_wire(qp, position);
    if (sw_direct.off)
        return put_nowhere(qp, position);
    return put_to_slot(qp, route->is_local ? sw_qpn_slot(route->dest_qpn) : 0, position);
}

static enum put start_one(struct sw_qp *qp, uint32_t position)
{
    if (__builtin_expect(!sw_fault_gates, 1) || is_for_wire(sw_sq_route(&qp->sq, position)))
        return datagram_send_one(qp,
                                 position); /* by packets, each of which is looked at by itself */
    uint32_t copies;
    if (!sw_fault_gate_datagram(qp, sw_sq_at(&qp->sq, position), position, &copies))
        return PUT_WAIT;
    enum put result = copies ? datagram_send_one(qp, position) : PUT_DONE;
    if (copies > 1 && result == PUT_DONE)
        datagram_send_one(qp, position); /* lost where there is no room now */
    return result;
}

static void fail_queue(struct sw_qp *qp, enum ibv_wc_status status)
{
    if (qp->sq.next != qp->sq.head)
        sw_sq_retire_run(qp, qp->sq.next - qp->sq.head);
    sw_qp_fail_send(qp, status);
}

/* Whether the rate limit allows a datagram now. */
static bool pace_datagram(struct sw_qp *qp, uint32_t len_bytes)
{
    return sw_pacer_allows(&qp->pacer, sw_clock_ns(), len_bytes) == len_bytes;
}

void sw_datagram_run(struct sw_qp *qp)
{
    sw_lock_assert_held(&qp->lock);
    struct sw_sq *sq = &qp->sq;
    uint64_t sent_bytes = 0;
    while (sq->next != sq->tail && qp->state == IBV_QPS_RTS && sent_bytes < RUN_BUDGET_BYTES) {
        struct sw_wqe *wqe = sw_sq_at(sq, sq->next);
        /* A message that the port cannot carry ends as it does on hardware, and not in silence as
         * IBTA Vol1 C10-93.1.1 would have it: a program wants to know. */
        if (wqe->len_bytes > qp->mtu_bytes) {
            fail_queue(qp, IBV_WC_LOC_LEN_ERR);
            return;
        }
        if (sw_sq_route(sq, sq->next)->pd_id != qp->pd_id) { /* IBTA Vol1 11.6.2 */
            fail_queue(qp, IBV_WC_LOC_QP_OP_ERR);
            return;
        }
        if (__builtin_expect(sq->is_paced, 0) && !pace_datagram(qp, wqe->len_bytes))
            break;
        enum put result = start_one(qp, sq->next);
        if (result == PUT_BAD_KEY) {
            fail_queue(qp, IBV_WC_LOC_PROT_ERR);
            return;
        }
        if (result == PUT_WAIT) {
            sched_yield(); /* to whom we wait for, who may have only the core we are polling on */
            break;
        }
        if (result == PUT_DONE)
            count_sent(qp, sq->next);
        if (__builtin_expect(sq->is_paced, 0))
            sw_pacer_charge(&qp->pacer, sw_clock_ns(), wqe->len_bytes);
        wqe->state = SW_WQE_DONE;
        sent_bytes += sizeof(struct sw_datagram_record) + wqe->len_bytes;
        sq->next++;
    }
    if (sq->next != sq->head)
        sw_sq_retire_run(qp, sq->next - sq->head);
    bool pending = sq->next != sq->tail && qp->state == IBV_QPS_RTS;
    qp->tx_goes_on = pending && sent_bytes >= RUN_BUDGET_BYTES;
    if (__builtin_expect(atomic_load_explicit(&qp->tx_pending, memory_order_relaxed) != pending,
                         0)) {
        atomic_store(&qp->tx_pending, pending);
        if (pending)
            sw_engine_nudge();
    }
}

void sw_datagram_forget_dead(void)
{
    for (uint32_t slot = 1; slot <= SW_SLOT_MAX; slot++) {
        struct channel *channel = atomic_load_explicit(&channels[slot], memory_order_acquire);
        if (!channel || !sw_lock_try(&channel->lock))
            continue; /* whoever holds it finds out, or the next call does */
        if (channel->peer && atomic_load(&channel->peer->state) == SW_PEER_DEAD)
            send_let_go(channel);
        sw_lock_release(&channel->lock);
    }
}

void sw_datagram_send_fork_child(void)
{
    for (uint32_t slot = 1; slot <= SW_SLOT_MAX; slot++)
        atomic_store(&channels[slot], NULL); /* another thread may have been inside: left alone */
}
