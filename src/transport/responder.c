/* SPDX-License-Identifier: BSD-2-Clause */
/* What comes in: expected, duplicate, early or malformed; of unreliable peers in unreliable.c. What
 * goes out is in respond.c. */
#include "transport/responder.h"

#include <assert.h>
#include <string.h>

#include "transport/piggyback.h"
#include "transport/responder_impl.h"
#include "wire/aeth.h"

enum { TELL_EVERY = 4 }; /* early packets, while the peer knows of the gap already */

void sw_responder_init(struct sw_responder *r, const struct sw_responder_config *config,
                       struct sw_early_pool *pool)
{
    uint32_t mtu = config->mtu_bytes;
    assert(mtu >= 256 && mtu <= 4096 && (mtu & (mtu - 1)) == 0);
    assert(config->max_dest_rd_atomic <= SW_RESPONDER_RD_ATOMIC_MAX);
    memset(r, 0, sizeof(*r));
    r->config = *config;
    r->expected = r->missed = config->first_psn & SW_PSN_MASK;
    r->mtu_shift = (uint8_t)__builtin_ctz(mtu);
    const struct sw_congestion_config congestion = {
        .packet_bytes = mtu, .window_max = SW_FLIGHT_PACKETS, .rate_max = config->rate_max};
    sw_congestion_init(&r->congestion, &congestion);
    const bool keeps = config->service == SW_SERVICE_UC ? config->late_ns : config->offer_selective;
    sw_early_init(&r->early, keeps ? pool : NULL);
}

void sw_responder_release(struct sw_responder *r)
{
    sw_early_clear(&r->early);
}

bool sw_responder_outlive(struct sw_responder *r)
{
    if (r->config.service == SW_SERVICE_UC || (r->dead && !r->refusal))
        return false;
    r->dead = true;
    r->answer_count = r->outstanding = 0;
    r->refusal_told = r->refusal;
    if (!r->refusal)
        r->remark = SW_REMARK_NONE;
    sw_early_init(&r->early, NULL);
    return true;
}

void sw_responder_forget(struct sw_responder *r)
{
    r->forgot = true;
}

void sw_responder_begin_anew(struct sw_responder *r)
{
    sw_early_clear(&r->early);
    r->expected = r->config.first_psn & SW_PSN_MASK;
    r->under_way = false;
}

/* What to say once the answers are out; it replaces what was to be said. */
static void set_remark(struct sw_responder *r, enum sw_remark remark)
{
    r->remark = remark;
    r->remark_seq = r->expected;
}

void sw_responder_refuse(struct sw_responder *r, uint8_t syndrome)
{
    set_remark(r, SW_REMARK_REFUSAL);
    r->refusal = syndrome;
    r->dead = true;
}

static bool admit_expected(struct sw_responder *r, const struct sw_packet *packet,
                           struct sw_demand *out)
{
    sw_demand_describe(r, packet, r->expected, out);
    bool room = !sw_demand_is_answered(out->kind) || r->outstanding < r->config.max_dest_rd_atomic;
    if (sw_demand_is_legal(r, out) && room) {
        /* A requester that asks for more at once is at fault; one that asks often for the same has
         * to wait until it has been answered. */
        return !sw_demand_is_answered(out->kind) || r->answer_count < SW_RESPONDER_ANSWERS;
    }
    r->counts.malformed++;
    sw_responder_refuse(r, sw_aeth_syndrome(SW_AETH_NAK, SW_NAK_CODE_INVALID_REQUEST));
    return false;
}

/* A request that has been executed. It is not executed again, but for what only looks: 9.7.4.1.1.
 */
static bool admit_duplicate(struct sw_responder *r, const struct sw_packet *packet, uint32_t seq,
                            struct sw_demand *out)
{
    r->counts.duplicates++;
    sw_demand_describe(r, packet, seq, out);
    out->duplicate = true;
    if (!sw_demand_is_answered(out->kind)) {
        if (r->remark == SW_REMARK_NONE)
            set_remark(r, SW_REMARK_ACK);
        return false;
    }
    const struct sw_done *done = sw_responder_done(r, out);
    if (!done || r->answer_count == SW_RESPONDER_ANSWERS || sw_responder_is_queued(r, seq))
        return false;
    if (out->kind == SW_DEMAND_READ || out->kind == SW_DEMAND_FLUSH)
        return true;
    sw_responder_answer(r, out, done->original);
    return false;
}

/* Something before it is missing: one NAK, then silence (9.7.5.2.2), except that a Sidewire peer is
 * told of what comes now and then. */
static void admit_early(struct sw_responder *r, const struct sw_packet *packet, uint32_t seq)
{
    if (r->rnr_told)
        return; /* sent before the peer knew; it sends them again: 9.7.5.2.8 */
    r->counts.early++;
    bool kept = r->peer_selective && sw_early_keep(&r->early, r->expected, seq, packet);
    r->counts.kept += kept;
    if (r->peer_selective && !kept)
        r->missed = sw_seq_max(r->missed, seq + 1);
    r->untold += kept;
    bool again = r->peer_selective && (packet->bth.ack_req || r->untold >= TELL_EVERY);
    if (!r->gap_told || again) {
        set_remark(r, SW_REMARK_GAP);
        r->gap_told = true;
        r->untold = 0;
    }
}

/* Dead by a refusal. That may have been lost, and so may have been answers before it: once it has
 * been said these are given again, so that what was done ends as it would have without a loss.
 * Nothing is executed any more. */
static bool admit_after_refusal(struct sw_responder *r, const struct sw_packet *packet,
                                struct sw_demand *out)
{
    const uint32_t seq = sw_seq_of(r->expected, packet->bth.psn);
    const bool recalls = r->refusal_told && !r->forgot;
    r->remark = SW_REMARK_REFUSAL;
    if (!recalls || !sw_seq_is_before(seq, r->remark_seq) || !admit_duplicate(r, packet, seq, out))
        return false;
    if (out->kind == SW_DEMAND_READ)
        return true;
    sw_responder_answer(r, out, 0); /* a FLUSH: nothing that it waited for can have come since */
    return false;
}

/* Ended by its program, which may have been told of what came just before. The ACK of that may be
 * lost, so it is said again. But what only looks at memory is not done again: that is the
 * program's from the end on. */
static void repeat_ack(struct sw_responder *r, const struct sw_packet *packet, enum sw_place place)
{
    struct sw_demand demand;
    const enum sw_demand_kind kind = sw_demand_kind_of((enum sw_packet_kind)packet->opcode->kind);
    if (!r->forgot && place == SW_PLACE_DUPLICATE && kind != SW_DEMAND_READ &&
        kind != SW_DEMAND_FLUSH)
        admit_duplicate(r, packet, sw_seq_of(r->expected, packet->bth.psn), &demand);
}

/* How far from what is expected a PSN may be that the peer has sent. A Sidewire requester has so
 * many on their way, with those that its READs take. */
static uint32_t reach_of(const struct sw_responder *r)
{
    return r->peer_selective ? SW_FLIGHT_PACKETS : SW_RESPONDER_REACH_PLAIN;
}

static enum sw_place responder_place_of(const struct sw_responder *r,
                                        const struct sw_packet *packet, uint32_t seq)
{
    struct sw_demand demand;
    if (seq == r->expected)
        return SW_PLACE_EXPECTED;
    if (sw_seq_is_before(r->expected, seq))
        return seq - r->expected < reach_of(r) ? SW_PLACE_EARLY : SW_PLACE_ASTRAY;
    /* READs may take any number of PSNs. */
    sw_demand_describe(r, packet, seq, &demand);
    const bool is_known = sw_demand_is_answered(demand.kind) ? sw_responder_done(r, &demand) != NULL
                                                             : r->expected - seq <= reach_of(r);
    return is_known ? SW_PLACE_DUPLICATE : SW_PLACE_ASTRAY;
}

enum sw_place sw_responder_place(const struct sw_responder *r, const struct sw_packet *packet)
{
    return responder_place_of(r, packet, sw_seq_of(r->expected, packet->bth.psn));
}

/* Only what is expected shows what the peer speaks: any other packet may be a stranger's. */
static void responder_learn_dialect(struct sw_responder *r, const struct sw_packet *packet)
{
    if (!r->config.offer_selective || !sw_selective_is_marked(packet->bth.reserved7))
        return;
    r->peer_selective = true;
    r->peer_piggybacks = packet->bth.reserved6 == SW_PIGGYBACK_MARK;
}

static bool admit_reliable(struct sw_responder *r, const struct sw_packet *packet,
                           struct sw_demand *out)
{
    const uint32_t seq = sw_seq_of(r->expected, packet->bth.psn);
    const enum sw_place place = responder_place_of(r, packet, seq);
    if (place == SW_PLACE_ASTRAY) {
        r->counts.astray++;
        return false;
    }
    if (r->dead && r->refusal)
        return admit_after_refusal(r, packet, out);
    if (r->dead) {
        repeat_ack(r, packet, place);
        return false;
    }
    switch (place) {
    case SW_PLACE_EXPECTED:
        responder_learn_dialect(r, packet);
        return admit_expected(r, packet, out);
    case SW_PLACE_DUPLICATE:
        return admit_duplicate(r, packet, seq, out);
    case SW_PLACE_EARLY:
        admit_early(r, packet, seq);
        break;
    case SW_PLACE_ASTRAY:
        break;
    }
    return false;
}

bool sw_responder_admit(struct sw_responder *r, const struct sw_packet *packet, uint64_t now_ns,
                        struct sw_demand *out)
{
    if (!packet->opcode->is_request || packet->opcode->service != r->config.service)
        return false;
    r->counts.packets++;
    if (r->config.service != SW_SERVICE_UC)
        return admit_reliable(r, packet, out);
    const uint32_t seq = sw_seq_of(r->expected, packet->bth.psn);
    return !r->dead && sw_unreliable_admit(r, packet, seq, now_ns, out);
}

/* Nothing is kept, missing, or to be said but that all is well: a packet that is expected changes
 * no more than it asks for, and sw_responder_early() has nothing to say behind it. */
static bool is_undisturbed(const struct sw_responder *r)
{
    return !r->dead && !r->drained && !r->early.count &&
           !sw_seq_is_before(r->expected, r->missed) &&
           (r->remark == SW_REMARK_NONE || r->remark == SW_REMARK_ACK);
}

static void describe_run(const struct sw_responder *r, const struct sw_packet_run *run,
                         struct sw_demand *out)
{
    sw_demand_describe(r, &run->first, r->expected, out);
    out->pieces = out->count = run->count;
    out->stride_bytes = run->stride_bytes;
    out->ack_req = run->ack_req;
}

bool sw_responder_admit_run(const struct sw_responder *r, const struct sw_packet_run *run,
                            struct sw_demand *out)
{
    const struct sw_packet *first = &run->first;
    const bool tells = r->config.offer_selective && !r->peer_selective &&
                       sw_selective_is_marked(first->bth.reserved7);
    if (tells || !is_undisturbed(r) || r->config.service == SW_SERVICE_UC ||
        first->opcode->service != r->config.service || first->bth.psn != sw_seq_psn(r->expected))
        return false;
    describe_run(r, run, out);
    return sw_demand_is_legal(r, out);
}

bool sw_responder_admit_early_run(struct sw_responder *r, struct sw_demand *out)
{
    struct sw_packet_run run;
    if (r->dead || !r->early.count || !sw_early_run(&r->early, r->expected, &run))
        return false;
    describe_run(r, &run, out);
    r->drained = sw_demand_is_legal(r, out);
    return r->drained;
}

uint32_t sw_responder_keep_run(struct sw_responder *r, const struct sw_packet_run *run)
{
    const uint32_t seq = sw_seq_of(r->expected, run->first.bth.psn);
    if (r->dead || !r->peer_selective || r->config.service == SW_SERVICE_UC ||
        run->first.opcode->service != r->config.service || !sw_seq_is_before(r->expected, seq) ||
        seq + run->count - r->expected > SW_FLIGHT_PACKETS)
        return 0;
    struct sw_packet_run rest = *run;
    for (; rest.count; sw_packet_run_skip(&rest, 1))
        admit_early(r, &rest.first, seq + run->count - rest.count);
    r->counts.packets += run->count;
    return run->count;
}

void sw_responder_keep_behind(struct sw_responder *r, const struct sw_packet *packet)
{
    const uint32_t seq = sw_seq_of(r->expected, packet->bth.psn);
    if (r->dead || !packet->opcode->is_request || packet->opcode->service != r->config.service ||
        r->config.service == SW_SERVICE_UC)
        return;
    if (seq == r->expected && r->peer_selective && r->remark == SW_REMARK_NONE)
        set_remark(r, SW_REMARK_ACK); /* of what was before it: see answer.c */
    if (responder_place_of(r, packet, seq) != SW_PLACE_EARLY)
        return;
    r->counts.packets++;
    if (sw_early_keep(&r->early, r->expected, seq, packet))
        r->counts.kept++;
    else if (r->peer_selective && !sw_early_has(&r->early, r->expected, seq))
        r->missed = sw_seq_max(r->missed, seq + 1); /* asked for again as soon as it is expected */
}

/* What is left of the message, the last one of a run. */
static void note_rest(struct sw_responder *r, const struct sw_demand *demand)
{
    const uint64_t before = (uint64_t)(demand->pieces - 1) * demand->len_bytes;
    r->kind = (uint8_t)demand->kind;
    r->rkey = demand->rkey;
    r->addr = demand->addr - demand->offset + (demand->last ? before : 0);
    r->offset = demand->offset + demand->len_bytes + (demand->last ? 0 : before);
    r->total = demand->total;
}

static void advance_expected(struct sw_responder *r, const struct sw_demand *demand)
{
    uint32_t from = r->expected;
    r->expected += demand->count;
    r->missed = sw_seq_max(r->missed, r->expected); /* not left too far behind to compare */
    if (r->early.count)
        sw_early_drop(&r->early, from, sw_seq_min(r->expected, r->early.end));
    r->under_way = !demand->last;
    r->gap_told = r->rnr_told = false;
    if (demand->last)
        r->msn = (r->msn + demand->pieces) & SW_PSN_MASK;
    if (demand->pieces > 1) /* admit() has counted a single one */
        r->counts.packets += demand->pieces;
}

void sw_responder_conclude(struct sw_responder *r, const struct sw_demand *demand,
                           const struct sw_outcome *outcome)
{
    enum sw_aeth_class class = sw_aeth_class_of(outcome->syndrome);
    if (outcome->dead && !demand->duplicate)
        r->dead = true;
    if (r->config.service == SW_SERVICE_UC) {
        note_rest(r, demand);
        sw_unreliable_conclude(r, demand, class != SW_AETH_ACK);
        return;
    }
    if (demand->duplicate) {
        if (class == SW_AETH_ACK)
            sw_responder_answer(r, demand, 0);
        else if (class == SW_AETH_NAK)
            sw_responder_refuse_again(r, demand, outcome->syndrome);
        return;
    }
    switch (class) {
    case SW_AETH_ACK:
        advance_expected(r, demand);
        if (!sw_demand_is_answered(demand->kind))
            note_rest(r, demand);
        if (sw_demand_is_answered(demand->kind))
            sw_responder_answer(r, demand, outcome->original);
        else if (demand->ack_req || r->remark == SW_REMARK_GAP)
            set_remark(r, SW_REMARK_ACK);
        else if (r->remark == SW_REMARK_RNR)
            r->remark = SW_REMARK_NONE;
        break;
    case SW_AETH_RNR:
        set_remark(r, SW_REMARK_RNR);
        r->rnr_told = true;
        break;
    case SW_AETH_NAK:
    case SW_AETH_RESERVED:
        sw_responder_refuse(r, outcome->syndrome);
        break;
    }
}

bool sw_responder_early(struct sw_responder *r, struct sw_packet *out)
{
    if (!r->early.pool)
        return false;
    if (r->dead) {
        sw_early_clear(&r->early);
        return false;
    }
    if (r->config.service == SW_SERVICE_UC)
        return sw_unreliable_early(r, out);
    if (sw_early_take(&r->early, r->expected, out)) {
        r->drained = true;
        return true;
    }
    if (r->drained && r->remark == SW_REMARK_NONE)
        set_remark(r, SW_REMARK_ACK); /* what was kept is now executed */
    r->drained = false;
    bool missing = r->early.count || sw_seq_is_before(r->expected, r->missed);
    if (missing && !r->gap_told && !r->rnr_told) { /* the next gap */
        set_remark(r, SW_REMARK_GAP);
        r->gap_told = true;
        r->untold = 0;
    }
    return false;
}
