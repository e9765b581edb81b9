/* SPDX-License-Identifier: BSD-2-Clause */
/* The send queue of datagrams: each to a process of this host, to a group, or onto the wire. */
#include "link/direct/datagram/send.h"

#include <sched.h>

#include "base/clock.h"
#include "base/minmax.h"
#include "device/queue/ah.h"
#include "device/queue/counters.h"
#include "device/queue/qp_impl.h"
#include "link/direct/datagram/channel.h"
#include "link/direct/datagram/multicast.h"
#include "link/direct/process/block.h"
#include "link/direct/process/state.h"
#include "link/direct/send/fault_gate.h"
#include "link/engine.h"
#include "link/gather.h"
#include "link/link.h"

/* Bytes sent in one call; the rest goes on in later ones. */
#define RUN_BUDGET_BYTES (1u << 20)
/* And datagrams before they are queued, each of some hundred nanoseconds. */
#define AHEAD_MOST 1024u

/* A datagram to nobody: complete all the same, unless its own keys are bad, which hardware finds
 * first. */
static enum sw_channel_put put_nowhere(struct sw_qp *qp, uint32_t position)
{
    struct sw_gather gather = sw_gather_of(qp, position);
    if (!sw_gather_allows(&gather, sw_sq_at(&qp->sq, position)->len_bytes))
        return SW_PUT_BAD_KEY;
    sw_counter_add(qp->ctx->netdev, SW_TX_DROP_UNREACHABLE);
    return SW_PUT_DROPPED;
}

/* What becomes of a datagram that was to leave by packets. */
static enum sw_channel_put put_of_sent(struct sw_qp *qp, uint32_t position, enum sw_link_sent sent)
{
    if (sent != SW_LINK_BUSY)
        qp->given = 0;
    switch (sent) {
    case SW_LINK_SENT:
        return SW_PUT_DONE;
    case SW_LINK_BAD_KEY:
        return SW_PUT_BAD_KEY;
    case SW_LINK_BUSY:
        return SW_PUT_WAIT;
    case SW_LINK_NO_ROUTE:
        break;
    }
    return put_nowhere(qp, position);
}

static enum sw_channel_put put_on_wire(struct sw_qp *qp, uint32_t position)
{
    return put_of_sent(qp, position, sw_link_send_far(qp, position));
}

static enum sw_channel_put put_to_slot(struct sw_qp *qp, uint32_t slot, uint32_t position)
{
    const struct sw_wqe *wqe = sw_sq_at(&qp->sq, position);
    const struct sw_route *route = sw_sq_route(&qp->sq, position);
    const struct sw_gather gather = sw_gather_of(qp, position);
    const struct sw_datagram_out out = {
        .bytes = &gather,
        .path = &route->path,
        .len_bytes = wqe->len_bytes,
        .dest_qpn = route->dest_qpn,
        .qkey = route->qkey,
        .imm = wqe->imm,
        .has_imm = wqe->opcode == IBV_WR_SEND_WITH_IMM,
        .is_solicited = wqe->flags & SW_WQE_SOLICITED,
    };
    const enum sw_channel_put put = sw_channel_put(qp, slot, &out);
    if (put == SW_PUT_FAR)
        return put_on_wire(qp, position);
    return put == SW_PUT_NOBODY ? put_nowhere(qp, position) : put;
}

/* Members that refuse us are left: one packet is for all of them, and *has_far is set. */
static enum sw_channel_put put_to_group(struct sw_qp *qp, const union ibv_gid *gid,
                                        uint32_t position, bool *has_far)
{
    uint16_t slots[SW_MULTICAST_MEMBERS];
    uint32_t count = sw_multicast_members(gid, slots), near = 0;
    uint32_t units = sw_datagram_units(sw_sq_at(&qp->sq, position)->len_bytes);
    for (uint32_t i = 0; i < count; i++) {
        const enum sw_channel_state state = sw_channel_ready(slots[i], units);
        if (state == SW_CHANNEL_WAIT)
            return SW_PUT_WAIT;
        *has_far |= state == SW_CHANNEL_FAR;
        if (state != SW_CHANNEL_FAR)
            slots[near++] = slots[i];
    }
    for (uint32_t i = 0; i < near; i++) {
        enum sw_channel_put result = put_to_slot(qp, slots[i], position);
        if (result == SW_PUT_BAD_KEY)
            return result;
        if (result == SW_PUT_WAIT) /* another QP of ours took the room: not for this one again */
            sw_counter_add(qp->ctx->netdev, SW_TX_DROP_STALLED);
    }
    return SW_PUT_DONE;
}

/* Without the direct link: where the kernel brings no packet to members on this host. */
static enum sw_channel_put give_to_group(struct sw_qp *qp, const union ibv_gid *gid,
                                         uint32_t position)
{
    uint16_t slots[SW_MULTICAST_MEMBERS];
    const uint32_t count = sw_multicast_members(gid, slots);
    return put_of_sent(qp, position, sw_link_give_to_group(qp, position, slots, count));
}

static bool is_to_group(const struct sw_route *route)
{
    return route->dest_qpn == SW_MULTICAST_QPN && route->path.is_multicast;
}

static void count_sent(struct sw_qp *qp, uint32_t len_bytes, bool is_multicast)
{
    qp->moved.sent_bytes += len_bytes;
    qp->moved.sent_packets++;
    qp->moved.sent_multicast += is_multicast;
}

static bool is_for_wire(const struct sw_route *route)
{
    return sw_link_is_far(route->is_local) && (sw_direct.off || !is_to_group(route));
}

static enum sw_channel_put datagram_send_one(struct sw_qp *qp, uint32_t position)
{
    const struct sw_route *route = sw_sq_route(&qp->sq, position);
    if (is_to_group(route) && !sw_direct.off) {
        bool has_far = false;
        enum sw_channel_put result = put_to_group(qp, &route->path.dgid, position, &has_far);
        if (result == SW_PUT_DONE)
            sw_link_send_to_group(qp, position, has_far);
        return result;
    }
    if (is_to_group(route) && sw_direct.has_packets && !sw_link_group_travels(qp, &route->path))
        return give_to_group(qp, &route->path.dgid, position);
    if (__builtin_expect(is_for_wire(route), 0))
        return put_on_wire(qp, position);
    if (sw_direct.off)
        return put_nowhere(qp, position);
    return put_to_slot(qp, route->is_local ? sw_qpn_slot(route->dest_qpn) : 0, position);
}

static enum sw_channel_put start_one(struct sw_qp *qp, uint32_t position)
{
    if (__builtin_expect(!sw_fault_gates, 1) || is_for_wire(sw_sq_route(&qp->sq, position)))
        return datagram_send_one(qp,
                                 position); /* by packets, each of which is looked at by itself */
    uint32_t copies;
    if (!sw_fault_gate_datagram(qp, sw_sq_at(&qp->sq, position), position, &copies))
        return SW_PUT_WAIT;
    enum sw_channel_put result = copies ? datagram_send_one(qp, position) : SW_PUT_DONE;
    if (copies > 1 && result == SW_PUT_DONE)
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
        enum sw_channel_put result = start_one(qp, sq->next);
        if (result == SW_PUT_BAD_KEY) {
            fail_queue(qp, IBV_WC_LOC_PROT_ERR);
            return;
        }
        if (result == SW_PUT_WAIT) {
            sched_yield(); /* to whom we wait for, who may have only the core we are polling on */
            break;
        }
        if (result == SW_PUT_DONE)
            count_sent(qp, wqe->len_bytes, is_to_group(sw_sq_route(sq, sq->next)));
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

/* One that is not queued yet: in one element, and to a process that is there. */
static bool send_ahead(struct sw_qp *qp, const struct ibv_send_wr *wr)
{
    struct sw_ah *ah = (struct sw_ah *)wr->wr.ud.ah;
    const uint32_t dest_qpn = wr->wr.ud.remote_qpn;
    if (!sw_sq_may_skip(&qp->sq, wr) || wr->sg_list->length > qp->mtu_bytes || !ah ||
        ah->pd_id != qp->pd_id || dest_qpn == SW_MULTICAST_QPN || !sw_ah_is_local(ah) ||
        sw_link_is_far(true))
        return false;
    const bool has_imm = wr->opcode == IBV_WR_SEND_WITH_IMM;
    const struct sw_gather gather = sw_gather_posted(qp, wr);
    const struct sw_datagram_out out = {
        .bytes = &gather,
        .path = &ah->path,
        .len_bytes = wr->sg_list->length,
        .dest_qpn = dest_qpn,
        .qkey = wr->wr.ud.remote_qkey,
        .imm = has_imm ? wr->imm_data : 0,
        .has_imm = has_imm,
        .is_solicited = wr->send_flags & IBV_SEND_SOLICITED,
    };
    if (!gather.inline_bytes || !sw_channel_put_now(qp, sw_qpn_slot(dest_qpn), &out))
        return false;
    count_sent(qp, out.len_bytes, false);
    return true;
}

uint32_t sw_datagram_ahead(struct sw_qp *qp, const struct ibv_send_wr *wr, uint32_t most)
{
    sw_lock_assert_held(&qp->lock);
    uint32_t sent = 0;
    if (sw_direct.off)
        return 0;
    for (most = sw_min_u32(most, AHEAD_MOST); sent < most && wr && send_ahead(qp, wr); sent++)
        wr = wr->next;
    return sent;
}
