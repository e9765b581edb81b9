/* SPDX-License-Identifier: BSD-2-Clause */
/* What the responder sends: responses in the order of execution, then one ACK or NAK for the rest.
 */
#include "transport/piggyback.h"
#include "transport/responder_impl.h"
#include "wire/aeth.h"

#define CNP_PERIOD_NS 50000ull
enum { RESPONSE_OVERHEAD = 64 /* bytes of headers, for pacing */ };

static struct sw_answer *answer_at(const struct sw_responder *r, uint32_t i)
{
    return (struct sw_answer *)&r->answers[(r->answer_head + i) % SW_RESPONDER_ANSWERS];
}

static const uint8_t ACKED = SW_AETH_NO_CREDITS; /* no end-to-end flow control: 9.7.7.2 */

void sw_responder_answer(struct sw_responder *r, const struct sw_demand *demand, uint64_t original)
{
    bool reads = demand->kind == SW_DEMAND_READ;
    bool swaps = demand->kind == SW_DEMAND_CMP_SWAP || demand->kind == SW_DEMAND_FETCH_ADD;
    *answer_at(r, r->answer_count++) = (struct sw_answer){
        .kind = swaps ? SW_PACKET_ATOMIC_ACK : SW_PACKET_READ_RESPONSE,
        .syndrome = ACKED,
        .duplicate = demand->duplicate,
        .seq = demand->seq,
        .count = demand->count,
        .msn = r->msn,
        .rkey = demand->rkey,
        .addr = demand->addr,
        .len_bytes = reads ? demand->total : 0,
        .original = original,
    };
    if (demand->duplicate)
        return;
    r->outstanding++;
    r->remark = SW_REMARK_NONE; /* the response acknowledges all before it */
    r->done[r->done_next] = (struct sw_done){
        .seq = demand->seq,
        .count = demand->count,
        .rkey = demand->rkey,
        .kind = (uint8_t)demand->kind,
        .addr = demand->addr,
        .len_bytes = demand->total,
        .original = original,
    };
    r->done_next = (r->done_next + 1) % SW_RESPONDER_RD_ATOMIC_MAX;
    r->done_count += r->done_count < SW_RESPONDER_RD_ATOMIC_MAX;
}

/* Whether a request asks for what another asked for, or for a part of it: a requester asks again
 * for what is missing. */
static bool repeats_demand(const struct sw_responder *r, const struct sw_demand *demand,
                           const struct sw_done *done)
{
    const uint32_t into = demand->seq - done->seq; /* PSNs */
    const uint64_t offset = (uint64_t)into << r->mtu_shift;
    return into < done->count && demand->count <= done->count - into &&
           (uint8_t)demand->kind == done->kind && demand->rkey == done->rkey &&
           demand->addr == done->addr + offset && offset <= done->len_bytes &&
           demand->total <= done->len_bytes - offset;
}

const struct sw_done *sw_responder_done(const struct sw_responder *r,
                                        const struct sw_demand *demand)
{
    for (uint32_t i = 0; i < r->done_count; i++)
        if (repeats_demand(r, demand, &r->done[i]))
            return &r->done[i];
    return NULL;
}

void sw_responder_refuse_again(struct sw_responder *r, const struct sw_demand *demand,
                               uint8_t syndrome)
{
    sw_responder_answer(r, demand, 0);
    struct sw_answer *answer = answer_at(r, r->answer_count - 1);
    answer->kind = SW_PACKET_ACK;
    answer->syndrome = syndrome;
    answer->count = 1;
    answer->len_bytes = 0;
}

bool sw_responder_is_queued(const struct sw_responder *r, uint32_t seq)
{
    for (uint32_t i = 0; i < r->answer_count; i++) {
        const struct sw_answer *answer = answer_at(r, i);
        uint32_t from = answer->seq + answer->index;
        if (seq - from < answer->count - answer->index)
            return true;
    }
    return false;
}

static void begin_packet(const struct sw_responder *r, enum sw_packet_kind kind,
                         enum sw_position place, uint32_t seq, struct sw_emission *out)
{
    enum sw_service service =
        kind == SW_PACKET_CNP ? SW_SERVICE_CNP : (enum sw_service)r->config.service;
    const struct sw_opcode *opcode = sw_opcode_find(service, kind, place, 0);
    out->packet = (struct sw_packet){
        .opcode = opcode,
        .bth = {.opcode = opcode->number,
                .mig_req = true,
                .pkey = r->config.pkey,
                .dest_qpn = r->config.dest_qpn,
                .psn = sw_seq_psn(seq),
                .reserved6 = sw_piggyback_mark(r->peer_selective),
                .reserved7 = sw_selective_mark(r->config.offer_selective, r->config.life)},
    };
    out->source = SW_PAYLOAD_NONE;
    out->count = 1;
    out->is_again = out->begins_message = out->ends_deferred = false;
    out->joint_bytes = 0;
    out->position = out->rkey = 0;
    out->offset = out->addr = 0;
}

static void emit_cnp(struct sw_responder *r, struct sw_emission *out)
{
    r->cnp_wanted = false;
    r->counts.cnps++;
    begin_packet(r, SW_PACKET_CNP, SW_ONLY, 0, out);
    out->packet.bth.becn = true;
    out->packet.bth.mig_req = false;
    out->packet.bth.reserved6 = out->packet.bth.reserved7 = 0;
}

/* The oldest answer is out, or given up. */
static void end_answer(struct sw_responder *r)
{
    r->outstanding -= !answer_at(r, 0)->duplicate;
    r->answer_head = (r->answer_head + 1) % SW_RESPONDER_ANSWERS;
    r->answer_count--;
}

/* One packet of the oldest answer. */
static void emit_answer(struct sw_responder *r, uint64_t now_ns, struct sw_emission *out)
{
    struct sw_answer *answer = answer_at(r, 0);
    uint32_t index = answer->index++;
    bool first = index == 0, last = answer->index == answer->count;
    enum sw_position place = (enum sw_position)((first ? SW_FIRST : 0) | (last ? SW_LAST : 0));
    begin_packet(r, (enum sw_packet_kind)answer->kind, place, answer->seq + index, out);
    if (place != SW_MIDDLE)
        out->packet.aeth = (struct sw_aeth){.syndrome = answer->syndrome, .msn = answer->msn};
    out->packet.original = answer->original;
    uint64_t offset = (uint64_t)index << r->mtu_shift, left = answer->len_bytes - offset;
    if (answer->len_bytes) {
        out->source = SW_PAYLOAD_MEMORY;
        out->rkey = answer->rkey;
        out->addr = answer->addr + offset;
        out->packet.payload_len =
            (uint32_t)(left < r->config.mtu_bytes ? left : r->config.mtu_bytes);
    }
    if (r->congestion.paced)
        sw_congestion_on_send(&r->congestion, out->packet.payload_len + RESPONSE_OVERHEAD, now_ns);
    r->repeats = answer->duplicate;
    if (last)
        end_answer(r);
}

void sw_responder_ack(const struct sw_responder *r, struct sw_emission *out)
{
    begin_packet(r, SW_PACKET_ACK, SW_ONLY, r->expected - 1, out);
    out->packet.aeth = (struct sw_aeth){.syndrome = ACKED, .msn = r->msn};
}

static void emit_remark(struct sw_responder *r, struct sw_emission *out)
{
    enum sw_remark remark = r->remark;
    r->remark = SW_REMARK_NONE;
    r->refusal_told |= remark == SW_REMARK_REFUSAL;
    if (remark == SW_REMARK_ACK || (remark == SW_REMARK_GAP && !sw_responder_has_gap(r))) {
        sw_responder_ack(r, out);
        return;
    }
    uint32_t seq = remark == SW_REMARK_REFUSAL ? r->remark_seq : r->expected;
    uint8_t syndrome = sw_aeth_syndrome(SW_AETH_NAK, SW_NAK_CODE_PSN);
    if (remark == SW_REMARK_RNR)
        syndrome = sw_aeth_syndrome(SW_AETH_RNR, r->config.min_rnr_timer);
    else if (remark == SW_REMARK_REFUSAL)
        syndrome = r->refusal;
    /* A bitmap needs a packet with AETH and payload, which is a READ response; its syndrome says
     * that it is none. */
    bool mapped = remark == SW_REMARK_GAP && r->early.count;
    begin_packet(r, mapped ? SW_PACKET_READ_RESPONSE : SW_PACKET_ACK, SW_ONLY, seq, out);
    out->packet.aeth = (struct sw_aeth){.syndrome = syndrome, .msn = r->msn};
    if (mapped) {
        out->packet.payload_len = sw_early_bitmap(&r->early, r->expected, out->bytes);
        out->source = SW_PAYLOAD_BYTES;
    }
}

bool sw_responder_next(struct sw_responder *r, uint64_t now_ns, struct sw_emission *out)
{
    if (r->cnp_wanted) {
        emit_cnp(r, out);
        return true;
    }
    if (r->answer_count) {
        if (r->congestion.paced && !sw_congestion_may_send(&r->congestion, 0, now_ns))
            return false;
        emit_answer(r, now_ns, out);
        return true;
    }
    if (r->remark == SW_REMARK_NONE)
        return false;
    emit_remark(r, out);
    return true;
}

uint64_t sw_responder_due_ns(const struct sw_responder *r)
{
    if (r->config.service == SW_SERVICE_UC)
        return r->early.count ? r->gap_ns + r->config.late_ns : UINT64_MAX;
    return r->answer_count && r->congestion.paced ? sw_congestion_due_ns(&r->congestion)
                                                  : UINT64_MAX;
}

bool sw_responder_unreadable(struct sw_responder *r, uint8_t syndrome, struct sw_emission *out)
{
    const uint32_t seq = sw_seq_of(r->expected, out->packet.bth.psn);
    if (r->repeats) {
        if (!(out->packet.opcode->position & SW_LAST))
            end_answer(r); /* the rest of it would be no better */
        begin_packet(r, SW_PACKET_ACK, SW_ONLY, seq, out);
        out->packet.aeth = (struct sw_aeth){.syndrome = syndrome, .msn = r->msn};
        return false;
    }
    r->answer_count = 0;
    r->outstanding = 0;
    sw_responder_refuse(r, syndrome);
    r->remark_seq = seq;
    emit_remark(r, out);
    return true;
}

void sw_responder_congested(struct sw_responder *r, uint64_t now_ns)
{
    if (now_ns < r->cnp_next_ns)
        return;
    r->cnp_wanted = true;
    r->cnp_next_ns = now_ns + CNP_PERIOD_NS;
}

void sw_responder_cnp(struct sw_responder *r, uint64_t now_ns)
{
    if (r->answer_count)
        sw_congestion_on_cnp(&r->congestion, now_ns);
}
