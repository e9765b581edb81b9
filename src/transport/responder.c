/* SPDX-License-Identifier: BSD-2-Clause */
/* What comes in: expected, duplicate, early or malformed. What goes out is in respond.c. */
#include "transport/responder.h"

#include <assert.h>
#include <string.h>

#include "transport/piggyback.h"
#include "transport/responder_impl.h"
#include "wire/aeth.h"

#define MESSAGE_MAX (1ull << 31)
enum {
    TELL_EVERY = 4, /* early packets, while the peer knows of the gap already */
    LATE_MAX = 256, /* packets that an unreliable connection keeps behind a gap */
};

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

static enum sw_demand_kind demand_kind(enum sw_packet_kind kind)
{
    static const uint8_t kinds[] = {
        [SW_PACKET_SEND] = SW_DEMAND_SEND,
        [SW_PACKET_WRITE] = SW_DEMAND_WRITE,
        [SW_PACKET_READ_REQUEST] = SW_DEMAND_READ,
        [SW_PACKET_CMP_SWAP] = SW_DEMAND_CMP_SWAP,
        [SW_PACKET_FETCH_ADD] = SW_DEMAND_FETCH_ADD,
        [SW_PACKET_FLUSH] = SW_DEMAND_FLUSH,
        [SW_PACKET_ATOMIC_WRITE] = SW_DEMAND_ATOMIC_WRITE,
    };
    return (enum sw_demand_kind)kinds[kind];
}

/* How many PSNs a request takes. */
static uint32_t count_of(const struct sw_responder *r, const struct sw_packet *packet)
{
    if (packet->opcode->kind != SW_PACKET_READ_REQUEST || packet->reth.len_bytes == 0)
        return 1;
    return ((packet->reth.len_bytes - 1) >> r->mtu_shift) + 1;
}

/* Says what the packet asks for; whether it may is for is_legal(). */
static void describe_demand(const struct sw_responder *r, const struct sw_packet *packet,
                            uint32_t seq, struct sw_demand *out)
{
    uint16_t headers = packet->opcode->headers;
    *out = (struct sw_demand){
        .kind = demand_kind((enum sw_packet_kind)packet->opcode->kind),
        .first = packet->opcode->position & SW_FIRST,
        .last = packet->opcode->position & SW_LAST,
        .has_imm = headers & SW_HEADER_IMM,
        .has_inv = headers & SW_HEADER_IETH,
        .solicited = packet->bth.solicited,
        .imm_be = packet->imm_be,
        .inv_rkey = packet->inv_rkey,
        .srq_num = packet->srq_num,
        .flush_type = packet->flush_type,
        .payload = packet->payload,
        .len_bytes = packet->payload_len,
        .pieces = 1,
        .seq = seq,
        .count = count_of(r, packet),
        .ack_req = packet->bth.ack_req,
    };
    if (headers & SW_HEADER_RETH) {
        out->addr = packet->reth.addr;
        out->rkey = packet->reth.rkey;
        out->total = packet->reth.len_bytes;
    } else if (headers & SW_HEADER_ATOMIC) {
        bool adds = out->kind == SW_DEMAND_FETCH_ADD;
        out->addr = packet->atomic.addr;
        out->rkey = packet->atomic.rkey;
        out->total = sizeof(uint64_t);
        out->compare_add = adds ? packet->atomic.swap_add : packet->atomic.compare;
        out->swap = adds ? 0 : packet->atomic.swap_add;
    } else if (!out->first) {
        out->addr = r->addr + r->offset;
        out->rkey = r->rkey;
        out->total = r->total;
        out->offset = r->offset;
    }
    if (out->kind == SW_DEMAND_ATOMIC_WRITE && out->len_bytes == SW_ATOMIC_WRITE_BYTES)
        memcpy(&out->compare_add, out->payload, SW_ATOMIC_WRITE_BYTES);
}

/* Whether the packet is in its place, and as long as it has to be: 9.7.4.1.2 ff. */
static bool is_legal(const struct sw_responder *r, const struct sw_demand *d)
{
    const uint32_t parts = d->last ? 1 : d->pieces; /* of this message */
    uint64_t mtu = r->config.mtu_bytes, end = d->offset + (uint64_t)d->len_bytes * parts;
    if (d->first == r->under_way || (!d->first && (uint8_t)d->kind != r->kind))
        return false;
    switch (d->kind) {
    case SW_DEMAND_WRITE:
        if (d->total > MESSAGE_MAX || end > d->total || (d->last && end != d->total))
            return false;
        break;
    case SW_DEMAND_SEND:
        if (end > MESSAGE_MAX)
            return false;
        break;
    case SW_DEMAND_READ:
        return d->total <= MESSAGE_MAX;
    case SW_DEMAND_ATOMIC_WRITE:
        return d->total == SW_ATOMIC_WRITE_BYTES && d->len_bytes == SW_ATOMIC_WRITE_BYTES;
    case SW_DEMAND_CMP_SWAP:
    case SW_DEMAND_FETCH_ADD:
    case SW_DEMAND_FLUSH:
        return true;
    }
    if (!d->last)
        return d->len_bytes == mtu;
    return d->len_bytes <= mtu && (d->first || d->len_bytes > 0);
}

static bool is_answered(enum sw_demand_kind kind)
{
    return kind != SW_DEMAND_SEND && kind != SW_DEMAND_WRITE;
}

static bool admit_expected(struct sw_responder *r, const struct sw_packet *packet,
                           struct sw_demand *out)
{
    describe_demand(r, packet, r->expected, out);
    bool room = !is_answered(out->kind) || r->outstanding < r->config.max_dest_rd_atomic;
    if (is_legal(r, out) && room) {
        /* A requester that asks for more at once is at fault; one that asks often for the same has
         * to wait until it has been answered. */
        return !is_answered(out->kind) || r->answer_count < SW_RESPONDER_ANSWERS;
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
    describe_demand(r, packet, seq, out);
    out->duplicate = true;
    if (!is_answered(out->kind)) {
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

/* Whether an unreliable peer that goes back in its PSNs was connected again, rather than that the
 * path delivers late or twice: it begins where it said it would, or after a silence, or goes on
 * from there. */
static bool has_begun_anew(struct sw_responder *r, const struct sw_packet *packet, uint32_t seq,
                           uint64_t now_ns)
{
    const uint64_t late_ns = 1000000, silence_ns = 100 * late_ns;
    enum { RUN = 8 };
    const uint64_t silent_ns = now_ns - r->heard_ns;
    const bool at_first = packet->bth.psn == (r->config.first_psn & SW_PSN_MASK);
    r->late_run = seq == r->late_next ? r->late_run + 1 : 1;
    r->late_next = seq + 1;
    return packet->opcode->position & SW_FIRST &&
           (silent_ns >= silence_ns || (at_first && silent_ns >= late_ns) || r->late_run > RUN);
}

/* A path of software may let packets of one flow pass each other by some microseconds, as a wire
 * never does. What came early waits for that long, unless it is too much. */
static bool keep_unreliable(struct sw_responder *r, const struct sw_packet *packet, uint32_t seq,
                            uint64_t now_ns)
{
    const bool is_first = r->early.count == 0;
    if (sw_early_has(&r->early, r->expected, seq)) {
        r->counts.duplicates++;
        return true;
    }
    const bool is_kept = sw_early_keep(&r->early, r->expected, seq, packet);
    r->counts.early++;
    r->counts.kept += is_kept;
    if (is_first)
        r->gap_ns = now_ns;
    r->gives_up = !is_first && (!is_kept || r->early.count >= LATE_MAX);
    if (is_first || r->gives_up)
        r->gap_end = r->early.end;
    return is_kept || !is_first; /* one too many is as good as lost */
}

/* A message of which something is missing is lost; the next one begins wherever it begins:
 * 9.8.2.2.1. */
static bool admit_unreliable(struct sw_responder *r, const struct sw_packet *packet, uint32_t seq,
                             uint64_t now_ns, struct sw_demand *out)
{
    /* Late, or twice: it would be delivered out of order, and no older one is waited for. */
    if (sw_seq_is_before(seq, r->expected) && r->expected - seq <= SW_FLIGHT_PACKETS &&
        !has_begun_anew(r, packet, seq, now_ns)) {
        r->counts.duplicates++;
        return false;
    }
    if (sw_seq_is_before(r->expected, seq) && keep_unreliable(r, packet, seq, now_ns))
        return false;
    if (seq != r->expected)
        sw_early_clear(&r->early); /* of a life that is over */
    r->heard_ns = now_ns;
    r->late_run = 0;
    if (seq != r->expected || packet->opcode->position & SW_FIRST)
        r->under_way = false;
    r->expected = seq;
    describe_demand(r, packet, seq, out);
    if (is_legal(r, out))
        return true;
    r->counts.malformed += out->first || r->under_way; /* else the rest of a lost message */
    r->under_way = false;
    r->expected = seq + 1;
    return false;
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
    const enum sw_demand_kind kind = demand_kind((enum sw_packet_kind)packet->opcode->kind);
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

static enum sw_place place_of(const struct sw_responder *r, const struct sw_packet *packet,
                              uint32_t seq)
{
    struct sw_demand demand;
    if (seq == r->expected)
        return SW_PLACE_EXPECTED;
    if (sw_seq_is_before(r->expected, seq))
        return seq - r->expected < reach_of(r) ? SW_PLACE_EARLY : SW_PLACE_ASTRAY;
    /* READs may take any number of PSNs. */
    describe_demand(r, packet, seq, &demand);
    const bool is_known = is_answered(demand.kind) ? sw_responder_done(r, &demand) != NULL
                                                   : r->expected - seq <= reach_of(r);
    return is_known ? SW_PLACE_DUPLICATE : SW_PLACE_ASTRAY;
}

enum sw_place sw_responder_place(const struct sw_responder *r, const struct sw_packet *packet)
{
    return place_of(r, packet, sw_seq_of(r->expected, packet->bth.psn));
}

/* Only what is expected shows what the peer speaks: any other packet may be a stranger's. */
static void learn_dialect(struct sw_responder *r, const struct sw_packet *packet)
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
    const enum sw_place place = place_of(r, packet, seq);
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
        learn_dialect(r, packet);
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
    return !r->dead && admit_unreliable(r, packet, seq, now_ns, out);
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
    describe_demand(r, &run->first, r->expected, out);
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
    return is_legal(r, out);
}

bool sw_responder_admit_early_run(struct sw_responder *r, struct sw_demand *out)
{
    struct sw_packet_run run;
    if (r->dead || !r->early.count || !sw_early_run(&r->early, r->expected, &run))
        return false;
    describe_run(r, &run, out);
    r->drained = is_legal(r, out);
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
        r->config.service == SW_SERVICE_UC || place_of(r, packet, seq) != SW_PLACE_EARLY)
        return;
    r->counts.packets++;
    if (sw_early_keep(&r->early, r->expected, seq, packet))
        r->counts.kept++;
    else if (r->peer_selective && !sw_early_has(&r->early, r->expected, seq))
        r->missed = sw_seq_max(r->missed, seq + 1); /* asked for again as soon as it is expected */
}

static void conclude_unreliable(struct sw_responder *r, const struct sw_demand *demand, bool lost)
{
    r->expected = demand->seq + 1;
    r->under_way = !lost && !demand->last;
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
        conclude_unreliable(r, demand, class != SW_AETH_ACK);
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
        if (!is_answered(demand->kind))
            note_rest(r, demand);
        if (is_answered(demand->kind))
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

void sw_responder_tick(struct sw_responder *r, uint64_t now_ns)
{
    if (r->config.service != SW_SERVICE_UC || now_ns < sw_responder_due_ns(r))
        return;
    r->gap_ns = now_ns;
    /* What came behind a later gap waits for as long once more, at most. */
    r->gives_up = sw_seq_is_before(sw_early_first(&r->early, r->expected), r->gap_end);
    if (!r->gives_up)
        r->gap_end = r->early.end;
}

/* The next of what is kept, if it is expected or what is missing before it is given up. */
static bool early_unreliable(struct sw_responder *r, struct sw_packet *out)
{
    if (sw_early_take(&r->early, r->expected, out))
        return true;
    if (!r->gives_up)
        return false;
    const uint32_t next = r->early.count ? sw_early_first(&r->early, r->expected) : r->gap_end;
    r->gives_up = sw_seq_is_before(next, r->gap_end);
    if (!r->gives_up) {
        r->gap_end = r->early.end;
        return false;
    }
    r->expected = next;
    r->under_way = false;
    return sw_early_take(&r->early, next, out);
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
        return early_unreliable(r, out);
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
