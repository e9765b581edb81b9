/* SPDX-License-Identifier: BSD-2-Clause */
/* What a peer's FPDUs ask for, carried out by the rules of device/. */
#include "base/card_memory.h"
#include "device/memory/mr_impl.h"
#include "device/memory/view.h"
#include "device/serve/demand.h"
#include "link/gather.h"
#include "link/iwarp/connection.h"

/* A receive that is claimed beyond a segment still counts as posted, until just before its
 * completion can be seen. */
static void iwarp_hold_claim(struct sw_qp *qp, bool holds)
{
    if (!qp->srq && atomic_load_explicit(&qp->rq.claimed, memory_order_relaxed) != holds)
        atomic_store_explicit(&qp->rq.claimed, holds, memory_order_release);
}

static void iwarp_complete_receive(struct sw_iwarp_connection *c, const struct sw_inbound *message,
                                   uint64_t len_bytes, enum ibv_wc_opcode opcode,
                                   enum ibv_wc_status status)
{
    iwarp_hold_claim(c->qp, false);
    sw_receive_complete(c->qp, &c->receive, message, (uint32_t)len_bytes, opcode, status);
}

/* The parts of the payload that do not lie where they belong already. */
struct parts {
    uint32_t from, to;
};

static struct parts parts_of(const struct sw_iwarp_connection *c, uint32_t len_bytes)
{
    if (c->placed_from >= c->placed_to)
        return (struct parts){len_bytes, len_bytes};
    return (struct parts){c->placed_from, c->placed_to};
}

static enum sw_verdict fill_receive(struct sw_iwarp_connection *c, const struct sw_demand *demand)
{
    const struct parts parts = parts_of(c, demand->len_bytes);
    enum sw_verdict verdict =
        sw_execute_fill(&c->receive.claim, demand->offset, demand->payload, parts.from);
    if (verdict == SW_ACK && parts.to != demand->len_bytes)
        verdict = sw_execute_fill(&c->receive.claim, demand->offset + parts.to,
                                  demand->payload + parts.to, demand->len_bytes - parts.to);
    return verdict;
}

static enum sw_verdict iwarp_serve_send(struct sw_iwarp_connection *c,
                                        const struct sw_demand *demand,
                                        const struct sw_inbound *message)
{
    if (demand->first && !sw_receive_take(c->qp, &c->receive, message))
        return SW_RNR;
    if (!c->receive.is_taken)
        return SW_NAK_INVALID;
    enum sw_verdict verdict = fill_receive(c, demand);
    if (verdict == SW_ACK && demand->last)
        verdict = sw_execute_invalidate(c->qp, message, demand->inv_rkey);
    if (verdict != SW_ACK) {
        const enum ibv_wc_status status = sw_receive_refusal(c->qp, verdict);
        if (status != IBV_WC_SUCCESS)
            iwarp_complete_receive(c, message, 0, IBV_WC_RECV, status);
        return verdict;
    }
    iwarp_hold_claim(c->qp, !demand->last);
    if (demand->last)
        iwarp_complete_receive(c, message, demand->offset + demand->len_bytes, IBV_WC_RECV,
                               IBV_WC_SUCCESS);
    return SW_ACK;
}

static enum sw_verdict iwarp_serve_write(struct sw_iwarp_connection *c,
                                         const struct sw_demand *demand,
                                         const struct sw_inbound *message)
{
    const struct parts parts = parts_of(c, demand->len_bytes);
    const struct sw_pieces first = {.from = demand->payload, .count = 1, .len_bytes = parts.from};
    const struct sw_pieces rest = {
        .from = demand->payload + parts.to, .count = 1, .len_bytes = demand->len_bytes - parts.to};
    const bool is_whole = parts.from == demand->len_bytes;
    enum sw_verdict verdict = SW_ACK;
    if (demand->has_imm) {
        if (!sw_receive_take(c->qp, &c->receive, message))
            return SW_RNR;
        iwarp_complete_receive(c, message, demand->total, IBV_WC_RECV_RDMA_WITH_IMM,
                               IBV_WC_SUCCESS);
        return SW_ACK;
    }
    if (is_whole || first.len_bytes)
        verdict = sw_execute_write(c->qp, message, demand->rkey, demand->addr, &first,
                                   is_whole && demand->last);
    if (verdict == SW_ACK && rest.len_bytes)
        verdict = sw_execute_write(c->qp, message, demand->rkey, demand->addr + parts.to, &rest,
                                   demand->last);
    return verdict;
}

static enum sw_verdict iwarp_serve_demand(struct sw_iwarp_connection *c,
                                          const struct sw_demand *demand, uint64_t *original)
{
    const struct sw_inbound message = sw_demand_inbound(c->qp, demand);
    uint8_t *va;
    switch (demand->kind) {
    case SW_DEMAND_SEND:
        return iwarp_serve_send(c, demand, &message);
    case SW_DEMAND_WRITE:
        return iwarp_serve_write(c, demand, &message);
    case SW_DEMAND_READ:
        return sw_execute_check(c->qp, &message, IBV_ACCESS_REMOTE_READ, demand->rkey, demand->addr,
                                demand->total, &va);
    case SW_DEMAND_CMP_SWAP:
    case SW_DEMAND_FETCH_ADD:
    case SW_DEMAND_ATOMIC_WRITE:
        return sw_demand_atomic(c->qp, demand, &message, original);
    case SW_DEMAND_FLUSH:
        return sw_iwarp_serve_flush(c, demand, &message);
    }
    return SW_NAK_INVALID;
}

static void iwarp_count_demand(struct sw_qp *qp, const struct sw_demand *demand)
{
    if (demand->kind == SW_DEMAND_READ || demand->kind == SW_DEMAND_FLUSH)
        return;
    qp->moved.received_bytes += demand->len_bytes;
    qp->moved.received_packets++;
}

void sw_iwarp_carry_out(struct sw_iwarp_connection *c, const struct sw_demand *demand)
{
    sw_lock_assert_held(&c->qp->lock);
    struct sw_outcome outcome = {0};
    sw_mr_serve_begin(c->qp->index);
    const enum sw_verdict verdict = iwarp_serve_demand(c, demand, &outcome.original);
    sw_mr_serve_end(c->qp->index);
    if (c->parking.is_parked)
        return;
    outcome.syndrome = sw_verdict_rules[verdict].aeth_syndrome;
    if (verdict == SW_ACK) {
        iwarp_count_demand(c->qp, demand);
        if (c->is_paired && !c->is_established)
            sw_iwarp_establish(c);
    } else if (verdict != SW_RNR || !c->is_paired) {
        outcome.why = (uint8_t)sw_execute_fault_of(c->qp, demand);
        if (verdict == SW_NAK_ACCESS && outcome.why == SW_ACCESS_FAULT_NONE)
            outcome.why = SW_ACCESS_FAULT_BOUNDS; /* a good key, whose file lacks the page */
        c->was_refused = true;
        c->end_event = sw_verdict_rules[verdict].responder_event;
    }
    sw_iwarp_conclude(&c->machine, demand, &outcome);
}

/* ---- reading ahead ---- */

static uint8_t *write_place(struct sw_iwarp_connection *c, const struct sw_ddp_segment *segment,
                            uint32_t from, uint32_t len_bytes)
{
    const struct sw_inbound message = {.pd = c->qp->pd_id};
    uint8_t *va;
    if (segment->to + from < segment->to ||
        sw_execute_check(c->qp, &message, IBV_ACCESS_REMOTE_WRITE, segment->stag,
                         segment->to + from, len_bytes, &va) != SW_ACK ||
        sw_view_is_of(segment->stag)) /* which stands still from when the key was valid */
        return NULL;
    return va;
}

/* In the receive that the message has taken, or will take. */
static uint8_t *send_place(struct sw_iwarp_connection *c, const struct sw_ddp_segment *segment,
                           uint32_t from, uint32_t len_bytes)
{
    const struct sw_inbound message = {.pd = c->qp->pd_id};
    if (!c->receive.is_taken &&
        (segment->mo || c->qp->srq || !sw_receive_take(c->qp, &c->receive, &message)))
        return NULL;
    const struct sw_recv_claim *claim = &c->receive.claim;
    const uint64_t offset = (uint64_t)segment->mo + from;
    uint64_t at = offset;
    iwarp_hold_claim(c->qp, true);
    if (offset + len_bytes > claim->len_bytes)
        return NULL;
    for (uint32_t i = 0; i < claim->sge_count; i++) {
        const struct ibv_sge *sge = &claim->sges[i];
        uint8_t *va;
        if (at >= sge->length) {
            at -= sge->length;
            continue;
        }
        if (at + len_bytes > sge->length ||
            !sw_sge_resolve(claim->pd, sge, IBV_ACCESS_LOCAL_WRITE, &va) ||
            sw_view_is_of(sge->lkey))
            return NULL;
        return va + at;
    }
    return NULL;
}

/* In the elements of the oldest READ. */
static uint8_t *response_place(struct sw_iwarp_connection *c, const struct sw_ddp_segment *segment,
                               uint32_t from, uint32_t len_bytes)
{
    uint32_t position;
    uint64_t offset;
    if (!sw_iwarp_awaits(&c->machine, segment, &position, &offset))
        return NULL;
    struct sw_gather gather = sw_gather_of(c->qp, sw_iwarp_sq_position(c, position));
    uint64_t run = len_bytes;
    uint8_t *va = sw_gather_at(&gather, offset + from, IBV_ACCESS_LOCAL_WRITE, &run);
    return run == len_bytes && !sw_gather_has_view(&gather) ? va : NULL;
}

uint8_t *sw_iwarp_place_of(struct sw_iwarp_connection *c, const struct sw_ddp_segment *segment,
                           uint32_t from, uint32_t len_bytes)
{
    uint8_t *place = NULL;
    if (c->machine.paired.is_void ||
        (c->machine.paired.drops && segment->opcode->number != SW_RDMAP_READ_RESPONSE))
        return NULL;
    switch ((enum sw_rdmap_kind)segment->opcode->number) {
    case SW_RDMAP_WRITE:
        place = write_place(c, segment, from, len_bytes);
        break;
    case SW_RDMAP_READ_RESPONSE:
        place = response_place(c, segment, from, len_bytes);
        break;
    case SW_RDMAP_SEND:
    case SW_RDMAP_SEND_INV:
    case SW_RDMAP_SEND_SE:
    case SW_RDMAP_SEND_SE_INV:
        place = send_place(c, segment, from, len_bytes);
        break;
    case SW_RDMAP_READ_REQUEST:
    case SW_RDMAP_TERMINATE:
    case SW_RDMAP_IMMEDIATE:
    case SW_RDMAP_IMMEDIATE_SE:
    case SW_RDMAP_ATOMIC_REQUEST:
    case SW_RDMAP_ATOMIC_RESPONSE:
    case SW_RDMAP_FLUSH:
    case SW_RDMAP_KINDS:
        break;
    }
    return place && !sw_card_memory_has(place) ? place : NULL;
}

/* ---- answers ---- */

const uint8_t *sw_iwarp_readable(struct sw_iwarp_connection *c, uint64_t addr, uint32_t len_bytes,
                                 uint32_t rkey)
{
    const struct sw_inbound message = {.pd = c->qp->pd_id};
    uint8_t *va;
    if (sw_execute_check(c->qp, &message, IBV_ACCESS_REMOTE_READ, rkey, addr, len_bytes, &va) !=
        SW_ACK)
        return NULL;
    return va;
}

enum sw_access_fault sw_iwarp_read_fault(struct sw_iwarp_connection *c, uint64_t addr,
                                         uint32_t len_bytes, uint32_t rkey)
{
    const struct sw_demand demand = {
        .kind = SW_DEMAND_READ, .rkey = rkey, .addr = addr, .total = len_bytes};
    return sw_execute_fault_of(c->qp, &demand);
}
