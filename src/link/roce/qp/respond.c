/* SPDX-License-Identifier: BSD-2-Clause */
/* What a peer's packets ask for, carried out by the rules of device/. */
#include "link/roce/qp/respond.h"

#include "base/fault.h"
#include "device/memory/mr_impl.h"
#include "device/memory/view.h"
#include "device/rules/target.h"
#include "device/serve/demand.h"
#include "link/engine.h"
#include "link/roce/impair.h"
#include "link/roce/qp/announce.h"
#include "link/roce/qp/closed_qp.h"
#include "link/roce/qp/emit.h"
#include "link/roce/qp/qp.h"
#include "link/roce/roce.h"

#define LONG_BYTES (48u << 10) /* of a WRITE: it comes in several messages of the kernel */
#define LONG_LASTS 8u          /* shorter ones until they are expected to be short */

/* A receive that is claimed beyond a packet still counts as posted, until just before its
 * completion can be seen. */
static void roce_hold_claim(struct sw_roce_qp *r, bool holds)
{
    _Atomic uint32_t *claimed = &r->qp->rq.claimed;
    if (!r->qp->srq && !r->qp->xrcd && atomic_load_explicit(claimed, memory_order_relaxed) != holds)
        atomic_store_explicit(claimed, holds, memory_order_release);
}

static void roce_complete_receive(struct sw_roce_qp *r, const struct sw_inbound *message,
                                  uint64_t len_bytes, enum ibv_wc_opcode opcode,
                                  enum ibv_wc_status status)
{
    roce_hold_claim(r, false);
    sw_receive_complete(r->qp, &r->receive, message, (uint32_t)len_bytes, opcode, status);
    sw_announce_message(&r->announce);
}

static enum sw_verdict respond_refuse_send(struct sw_roce_qp *r, const struct sw_inbound *message,
                                           enum sw_verdict verdict)
{
    const enum ibv_wc_status status = sw_receive_refusal(r->qp, verdict);
    if (status != IBV_WC_SUCCESS)
        roce_complete_receive(r, message, 0, IBV_WC_RECV, status);
    return verdict;
}

static bool respond_take_receive(struct sw_roce_qp *r, const struct sw_inbound *message)
{
    return (r->receive.is_taken || !sw_roce_withholds(r->qp)) &&
           sw_receive_take(r->qp, &r->receive, message);
}

/* The middle of a message. A part of it may be there when it turns out to be in vain: nobody is
 * told of the receive before it is complete. */
static enum sw_verdict serve_middles(struct sw_roce_qp *r, const struct sw_demand *demand)
{
    uint64_t offset = demand->offset;
    const uint8_t *from = demand->payload;
    enum sw_verdict verdict = sw_target_check_room(r->receive.claim.len_bytes, offset,
                                                   (uint64_t)demand->pieces * demand->len_bytes);
    for (uint32_t i = 0; i < demand->pieces && verdict == SW_ACK; i++) {
        verdict = sw_execute_fill(&r->receive.claim, offset, from, demand->len_bytes);
        offset += demand->len_bytes;
        from += demand->stride_bytes;
    }
    return verdict;
}

static enum sw_verdict roce_serve_send(struct sw_roce_qp *r, const struct sw_demand *demand,
                                       const struct sw_inbound *message)
{
    if (demand->first && !respond_take_receive(r, message))
        return SW_RNR;
    if (!r->receive.is_taken)
        return SW_NAK_INVALID;
    if (demand->pieces > 1)
        return serve_middles(r, demand);
    const enum sw_verdict verdict = sw_receive_place(r->qp, &r->receive, message, demand);
    if (verdict != SW_ACK)
        return respond_refuse_send(r, message, verdict);
    if (!demand->last)
        return SW_ACK;
    roce_complete_receive(r, message, demand->offset + demand->len_bytes, IBV_WC_RECV,
                          IBV_WC_SUCCESS);
    return SW_ACK;
}

/* The whole range is looked at first, so that a WRITE that goes too far does nothing at all. */
static enum sw_verdict roce_serve_write(struct sw_roce_qp *r, const struct sw_demand *demand,
                                        const struct sw_inbound *message)
{
    struct sw_qp *qp = r->qp;
    uint8_t *va;
    enum sw_verdict verdict = SW_ACK;
    const struct sw_pieces pieces = {.from = demand->payload,
                                     .stride_bytes = demand->stride_bytes,
                                     .count = demand->pieces,
                                     .len_bytes = demand->len_bytes};
    if (demand->first && !demand->last)
        verdict = sw_execute_check(qp, message, IBV_ACCESS_REMOTE_WRITE, demand->rkey, demand->addr,
                                   demand->total, &va);
    if (verdict == SW_ACK && demand->has_imm && demand->last && !respond_take_receive(r, message))
        return SW_RNR; /* nothing is written then: 9.7.4.1.6 comes before 9.7.4.1.7 */
    if (verdict == SW_ACK)
        verdict = sw_execute_write(qp, message, demand->rkey, demand->addr, &pieces, demand->last);
    if (verdict != SW_ACK || !demand->last || !demand->has_imm)
        return verdict;
    roce_complete_receive(r, message, demand->total, IBV_WC_RECV_RDMA_WITH_IMM, IBV_WC_SUCCESS);
    return SW_ACK;
}

/* Goes on with a FLUSH, which may take its time; the peer's next packets wait behind it. */
static enum sw_verdict respond_serve_flush(struct sw_roce_qp *r, const struct sw_demand *demand,
                                           const struct sw_inbound *message)
{
    const struct sw_target_flush flush = sw_demand_flush(demand);
    enum sw_verdict verdict = SW_ACK;
    bool was_parked = r->is_parked;
    r->is_parked = !sw_execute_flush(r->qp, message, flush, &r->flushing, &verdict);
    if (r->is_parked && !was_parked) {
        r->parked = *demand;
        atomic_store(&r->qp->rx_pending, true);
        sw_qp_rest(r->qp, false);
        sw_engine_nudge();
    } else if (!r->is_parked && was_parked) {
        atomic_store(&r->qp->rx_pending, false);
    }
    return verdict;
}

static enum sw_verdict serve_by_key(struct sw_roce_qp *r, const struct sw_demand *demand,
                                    const struct sw_inbound *message, uint64_t *original)
{
    uint8_t *va;
    switch (demand->kind) {
    case SW_DEMAND_SEND:
        return roce_serve_send(r, demand, message);
    case SW_DEMAND_WRITE:
        return roce_serve_write(r, demand, message);
    case SW_DEMAND_READ:
        return sw_execute_check(r->qp, message, IBV_ACCESS_REMOTE_READ, demand->rkey, demand->addr,
                                demand->total, &va);
    case SW_DEMAND_CMP_SWAP:
    case SW_DEMAND_FETCH_ADD:
    case SW_DEMAND_ATOMIC_WRITE:
        return sw_demand_atomic(r->qp, demand, message, original);
    case SW_DEMAND_FLUSH:
        return respond_serve_flush(r, demand, message);
    }
    return SW_NAK_INVALID;
}

/* A long WRITE comes in parts, of which those that a peer of ours sends are WRITEs by themselves.
 * The last one asks for an ACK, and is short. */
static void note_length(struct sw_roce_qp *r, const struct sw_demand *demand)
{
    r->served_bytes += demand->len_bytes * demand->pieces;
    if (r->served_bytes >= LONG_BYTES)
        r->served_long = LONG_LASTS;
    else if (demand->ack_req && r->served_long)
        r->served_long--;
    r->served_bytes = demand->ack_req ? 0 : r->served_bytes;
    atomic_store_explicit(&sw_roce.signs.serves_long, r->served_long, memory_order_relaxed);
}

static enum sw_verdict roce_serve_demand(struct sw_roce_qp *r, const struct sw_demand *demand,
                                         uint64_t now_ns, uint64_t *original)
{
    struct sw_qp *qp = r->qp;
    struct sw_inbound message = sw_demand_inbound(qp, demand);
    if (qp->xrcd && !sw_execute_name_srq(qp, demand->srq_num, &message))
        return SW_NAK_INVALID;
    if (demand->kind == SW_DEMAND_SEND)
        return roce_serve_send(r, demand, &message); /* takes no access by key */
    const bool is_attended = atomic_load_explicit(&sw_roce.is_attended, memory_order_relaxed);
    if (!sw_announce_request(&r->announce, is_attended, now_ns)) {
        note_length(r, demand);
        atomic_store_explicit(&sw_roce.signs.served_ns, now_ns, memory_order_relaxed);
    }
    sw_mr_serve_begin(qp->index); /* see sw_mr_serving */
    enum sw_verdict verdict = serve_by_key(r, demand, &message, original);
    sw_mr_serve_end(qp->index);
    return verdict;
}

static void roce_count_demand(struct sw_roce_qp *r, const struct sw_demand *demand)
{
    if (demand->kind == SW_DEMAND_READ || demand->kind == SW_DEMAND_FLUSH)
        return;
    bool is_word = demand->kind == SW_DEMAND_CMP_SWAP || demand->kind == SW_DEMAND_FETCH_ADD;
    r->qp->moved.received_bytes +=
        is_word ? sizeof(uint64_t) : (uint64_t)demand->len_bytes * demand->pieces;
    r->qp->moved.received_packets += demand->pieces;
}

/* A refusal ends the connection, but not before it has been told, after the answers to READs that
 * are due before it. */
static enum sw_roce_outcome respond_end_connection(struct sw_roce_qp *r, enum sw_verdict verdict,
                                                   uint64_t now_ns)
{
    sw_lock_assert_held(&r->qp->lock);
    r->is_ending = true;
    r->end_event = sw_verdict_rules[verdict].responder_event;
    return sw_roce_emit(r, now_ns);
}

static enum sw_roce_outcome respond_carry_out(struct sw_roce_qp *r, const struct sw_demand *demand,
                                              uint64_t now_ns)
{
    uint64_t original = 0;
    /* A READ sees nothing of what came after it. */
    if (r->reads_due && demand->kind != SW_DEMAND_READ && sw_roce_emit(r, now_ns) == SW_ROCE_DEAD)
        return SW_ROCE_DEAD;
    enum sw_verdict verdict = roce_serve_demand(r, demand, now_ns, &original);
    roce_hold_claim(r, r->receive.is_taken);
    if (r->is_parked)
        return SW_ROCE_ALIVE;
    const struct sw_verdict_rule *rule = &sw_verdict_rules_of(r->qp->type)[verdict];
    struct sw_outcome outcome = {
        .syndrome = sw_verdict_rules[verdict].aeth_syndrome,
        .dead = rule->responder_fatal && !demand->duplicate,
        .original = original,
    };
    if (verdict == SW_ACK && !demand->duplicate)
        roce_count_demand(r, demand);
    r->counts.rnrs_sent += verdict == SW_RNR && !rule->lost;
    r->reads_due |= demand->kind == SW_DEMAND_READ;
    sw_responder_conclude(&r->responder, demand, &outcome);
    return outcome.dead ? respond_end_connection(r, verdict, now_ns) : SW_ROCE_ALIVE;
}

/* All of a run at once. Returns how many packets were dealt with; 0: they have to be taken one by
 * one, so that each gets its due, and nothing has changed but memory that was theirs to change. */
static uint32_t carry_out_run(struct sw_roce_qp *r, const struct sw_demand *demand, uint64_t now_ns)
{
    const struct sw_outcome done = {.syndrome = sw_verdict_rules[SW_ACK].aeth_syndrome};
    uint64_t original;
    if (r->reads_due && sw_roce_emit(r, now_ns) == SW_ROCE_DEAD)
        return 1;
    if (roce_serve_demand(r, demand, now_ns, &original) != SW_ACK)
        return 0;
    roce_count_demand(r, demand);
    sw_responder_conclude(&r->responder, demand, &done);
    return demand->pieces;
}

/* Refused by the machine itself: the packet is out of place. */
static bool was_refused(const struct sw_roce_qp *r)
{
    return r->responder.dead && r->responder.remark == SW_REMARK_REFUSAL;
}

/* Carries out what had come before its turn, as far as it is expected now. */
static enum sw_roce_outcome carry_out_early(struct sw_roce_qp *r, uint64_t now_ns)
{
    struct sw_demand demand;
    struct sw_packet early;
    while (!r->is_parked) {
        if (!r->reads_due && sw_responder_admit_early_run(&r->responder, &demand) &&
            carry_out_run(r, &demand, now_ns))
            continue;
        if (!sw_responder_early(&r->responder, &early))
            break;
        if (sw_responder_admit(&r->responder, &early, now_ns, &demand) &&
            respond_carry_out(r, &demand, now_ns) == SW_ROCE_DEAD)
            return SW_ROCE_DEAD;
    }
    return SW_ROCE_ALIVE;
}

/* What follows from packets, the first of which has been dealt with. */
static enum sw_roce_outcome carry_on(struct sw_roce_qp *r, bool was_dead, uint64_t now_ns)
{
    if (carry_out_early(r, now_ns) == SW_ROCE_DEAD)
        return SW_ROCE_DEAD;
    return !was_dead && was_refused(r) ? respond_end_connection(r, SW_NAK_INVALID, now_ns)
                                       : SW_ROCE_ALIVE;
}

/* With rx_lock held where anything waits behind it. */
static enum sw_roce_outcome unpark_request(struct sw_roce_qp *r, uint64_t now_ns)
{
    const bool was_dead = r->responder.dead;
    const struct sw_demand demand = r->parked;
    if (respond_carry_out(r, &demand, now_ns) == SW_ROCE_DEAD)
        return SW_ROCE_DEAD;
    const bool goes_on = !r->is_parked && r->responder.early.count;
    return goes_on ? carry_on(r, was_dead, now_ns) : SW_ROCE_ALIVE;
}

enum sw_roce_outcome sw_roce_unpark(struct sw_roce_qp *r, uint64_t now_ns)
{
    sw_lock_assert_held(&r->qp->lock);
    if (__builtin_expect(!r->is_parked, 1))
        return SW_ROCE_ALIVE;
    if (!r->responder.early.count)
        return unpark_request(r, now_ns);
    if (!sw_lock_try(&sw_roce.port.rx_lock))
        return SW_ROCE_ALIVE; /* somebody receives; the engine looks again soon */
    const enum sw_roce_outcome outcome = unpark_request(r, now_ns);
    sw_lock_release(&sw_roce.port.rx_lock);
    return outcome;
}

static void respond_to_one(struct sw_roce_qp *r, const struct sw_packet *packet, uint64_t now_ns)
{
    struct sw_demand demand;
    const bool was_dead = r->responder.dead;
    if (sw_responder_admit(&r->responder, packet, now_ns, &demand) &&
        respond_carry_out(r, &demand, now_ns) == SW_ROCE_DEAD)
        return;
    carry_on(r, was_dead, now_ns);
}

/* Returns how many of its packets were dealt with; 0: they have to be taken one by one. */
static uint32_t respond_to_run(struct sw_roce_qp *r, const struct sw_packet_run *run,
                               uint64_t now_ns)
{
    struct sw_demand demand;
    if (sw_responder_admit_run(&r->responder, run, &demand))
        return carry_out_run(r, &demand, now_ns);
    const bool was_dead = r->responder.dead;
    const uint32_t kept = sw_responder_keep_run(&r->responder, run);
    if (kept)
        carry_on(r, was_dead, now_ns);
    return kept;
}

uint32_t sw_roce_respond(struct sw_roce_qp *r, const struct sw_packet_run *run, uint64_t now_ns)
{
    struct sw_qp *qp = r->qp;
    uint32_t count = 0;
    if (__builtin_expect(!r->greeted, 0) && r->peer.is_known) {
        r->greeted = true;
        if (qp->state == IBV_QPS_RTR)
            sw_context_event(qp->ctx, IBV_EVENT_COMM_EST, qp->owner);
    }
    if (__builtin_expect(r->is_parked, 0)) {
        if (unpark_request(r, now_ns) == SW_ROCE_DEAD)
            return 1;
        if (r->is_parked) {
            sw_responder_keep_behind(&r->responder, &run->first);
            return 1;
        }
    }
    if (__builtin_expect(r->ended_ns != 0, 0))
        sw_closed_qp_age(r, now_ns);
    if (run->count > 1)
        count = respond_to_run(r, run, now_ns);
    if (count)
        return count;
    respond_to_one(r, &run->first, now_ns);
    return 1;
}

void sw_roce_run_gaps(struct sw_roce_qp *r, uint64_t now_ns)
{
    const uint64_t heard_ns = atomic_load_explicit(&sw_roce.heard_ns, memory_order_relaxed);
    if (!r)
        return;
    sw_lock_assert_held(&r->qp->lock);
    if (r->qp->type != IBV_QPT_UC || sw_responder_due_ns(&r->responder) > heard_ns)
        return;
    sw_responder_tick(&r->responder, now_ns);
    carry_out_early(r, now_ns);
}

bool sw_roce_read(struct sw_roce_qp *r, const struct sw_emission *emission, struct iovec *out)
{
    sw_lock_assert_held(&r->qp->lock);
    struct sw_inbound message = {.pd = r->qp->pd_id};
    uint8_t *va;
    uint32_t len_bytes = emission->packet.payload_len;
    if (r->qp->xrcd) /* of which SRQ it was has been checked */
        message.pd = sw_nic.pub->mrs[sw_key_index(emission->rkey)].pd;
    if (sw_execute_check(r->qp, &message, IBV_ACCESS_REMOTE_READ, emission->rkey, emission->addr,
                         len_bytes, &va) != SW_ACK ||
        (sw_view_is_of(emission->rkey) && !sw_fault_probe(va, len_bytes)))
        return false;
    *out = (struct iovec){va, len_bytes};
    if (r->responder.repeats) /* counters tell what is moved, however often it is sent */
        return true;
    r->qp->moved.sent_bytes += len_bytes;
    r->qp->moved.sent_packets++;
    return true;
}

void sw_roce_drop_claim(struct sw_roce_qp *r)
{
    sw_lock_assert_held(&r->qp->lock);
    roce_hold_claim(r, false);
    sw_receive_flush(r->qp, &r->receive);
}
