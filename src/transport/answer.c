/* SPDX-License-Identifier: BSD-2-Clause */
/* What the requester makes of acknowledgements and responses. IBTA Vol1 9.7.5.1 ff. */
#include "base/minmax.h"
#include "transport/requester_impl.h"
#include "wire/aeth.h"
#include "wire/bytes.h"

/* Hints a Sidewire responder may give beside a NAK: bit i is the packet at the NAK's PSN + 1 + i.
 */
struct bitmap {
    const uint8_t *bytes;
    uint32_t bits;
};

/* Marks what needs no answer of its own in [from, to) as arrived. */
static void mark_arrived(struct sw_requester *r, uint32_t from, uint32_t to, uint64_t now_ns)
{
    uint32_t position = from == to ? 0 : sw_requester_find(r, from);
    for (uint32_t seq = from; seq != to; position++) {
        const struct sw_request *request = sw_requester_at(r, position);
        uint32_t end = sw_seq_min(request->seq + request->count, to);
        for (; seq != end; seq++)
            if (!sw_request_is_answered(request))
                sw_flight_ack(&r->flight, seq, now_ns);
    }
}

/*
 * The peer has executed everything before `to`. A request that needs an answer of its own is
 * complete only with that, so the line moves up to the first such request without one; beyond it
 * arrivals are marked one by one. Packets that the peer merely keeps (a NAK's bitmap) move nothing:
 * they are not executed, and may still be refused.
 */
static void settle_until(struct sw_requester *r, uint32_t to, uint64_t now_ns)
{
    struct sw_flight *f = &r->flight;
    uint32_t una = f->una, position = r->done, executed = sw_seq_max(r->settled, to);
    while (una != f->next) {
        const struct sw_request *request = sw_requester_at(r, position);
        uint32_t end = request->seq + request->count, limit = sw_seq_min(end, f->next);
        if (!sw_request_is_answered(request) && sw_seq_is_before(una, executed))
            una = sw_seq_min(limit, executed);
        else if (sw_request_is_answered(request) && f->acked_count)
            while (una != limit && sw_flight_bit(f->acked, una))
                una++;
        if (una != end)
            break;
        position++;
    }
    r->done = position;
    if (una != f->una) {
        sw_flight_note_arrival(f, una - 1, now_ns);
        sw_flight_advance(f, una);
        sw_read_track_settle(&r->reads, una);
    }
    uint32_t from = sw_seq_max(r->settled, una);
    if (sw_seq_is_before(from, to))
        mark_arrived(r, from, to, now_ns);
    r->settled = sw_seq_max(executed, una);
}

/* The answer to the packet at `seq` came, which was sent once only: how long it took. */
static uint64_t measure_rtt(struct sw_requester *r, uint32_t seq, uint64_t now_ns)
{
    const struct sw_flight *f = &r->flight;
    if (sw_flight_bit(f->again, seq) || sw_flight_bit(f->acked, seq))
        return 0; /* Karn: whose answer it is cannot be told */
    uint32_t ticks = sw_flight_tick(now_ns) - f->sent_at[seq % SW_FLIGHT_PACKETS];
    uint64_t rtt = sw_flight_ticks_ns(ticks) + 1;
    sw_retry_measure(&r->retry, rtt, now_ns);
    r->heard_ns = now_ns > rtt + SW_FLIGHT_TICK_NS ? now_ns - rtt - SW_FLIGHT_TICK_NS : 0;
    return rtt;
}

/* Whether the packet at una, sent again, cannot have been answered yet since: so what came is the
 * answer to the first one, which was not lost. */
static bool was_not_lost(const struct sw_requester *r, uint64_t now_ns)
{
    const struct sw_flight *f = &r->flight;
    if (!sw_flight_bit(f->again, f->una))
        return sw_flight_bit(f->lost, f->una);
    uint32_t since = sw_flight_tick(now_ns) - f->sent_at[f->una % SW_FLIGHT_PACKETS];
    return sw_flight_ticks_ns(since) < r->retry.min_ns / 2;
}

/* How well the path keeps the order, from what comes in at the oldest gap. */
static void learn_order(struct sw_requester *r, bool hasty)
{
    const uint32_t rtt = sw_flight_tick(r->retry.srtt_ns);
    r->reorders = true;
    uint32_t patience = r->patience ? r->patience : sw_flight_tick(r->retry.min_ns / 4) + 1;
    if (hasty)
        patience *= 2;
    r->patience = sw_min_u32(patience, rtt);
}

/* What was settled, by one answer. */
struct gain {
    uint32_t una, acked, newest;
    bool gap;   /* there was one at una, and something that was sent later had arrived */
    bool hasty; /* una was taken for lost and was not */
    bool again;
};

static struct gain gain_begin(const struct sw_requester *r, uint64_t now_ns)
{
    const struct sw_flight *f = &r->flight;
    return (struct gain){.una = f->una,
                         .acked = f->acked_count,
                         .newest = f->newest,
                         .gap = sw_flight_is_overtaken(f),
                         .again = f->again_count && sw_flight_bit(f->again, f->una),
                         .hasty = (f->lost_count | f->again_count) != 0 && was_not_lost(r, now_ns)};
}

static void gain_end(struct sw_requester *r, const struct gain *before, uint64_t rtt_ns,
                     uint64_t now_ns)
{
    struct sw_flight *f = &r->flight;
    uint32_t packets = f->una + f->acked_count - before->una - before->acked;
    bool moved = f->una != before->una;
    if (packets == 0 && !moved)
        return;
    if (moved && before->gap && (before->hasty || !before->again))
        learn_order(r, before->hasty);
    if (r->suspects && moved && before->hasty)
        sw_congestion_undo_timeout(&r->congestion);
    r->suspects = false;
    /* Between gaps nothing is measured exactly, but what arrived last tells of the queue. */
    if (rtt_ns == 0 && f->newest != before->newest)
        rtt_ns = sw_flight_ticks_ns(f->newest_rtt);
    sw_retry_progress(&r->retry, f->una != f->next, now_ns);
    if (packets)
        sw_congestion_on_ack(&r->congestion, packets, rtt_ns, r->retry.min_ns, now_ns);
}

/* Whether the response of this PSN has come: a refusal is about a duplicate then. */
static bool answer_has_come(const struct sw_requester *r, uint32_t seq)
{
    return sw_flight_bit(r->flight.acked, seq) &&
           sw_request_is_answered(sw_requester_at(r, sw_requester_find(r, seq)));
}

/* A refusal holds once everything before it is settled: its answers may still be on their way. */
static void answer_note_refusal(struct sw_requester *r, uint32_t seq, enum sw_failure failure,
                                uint8_t syndrome)
{
    if (r->refused != SW_FAILURE_NONE && !sw_seq_is_before(seq, r->refused_seq))
        return;
    r->refused = failure;
    r->refused_seq = seq;
    r->refused_syndrome = syndrome;
    sw_flight_unack(&r->flight, seq);
}

static void receive_rnr(struct sw_requester *r, uint32_t seq, uint8_t timer, uint64_t now_ns)
{
    if (now_ns < r->rnr_until_ns)
        return; /* a copy */
    r->counts.rnr_naks++;
    uint64_t resume_ns = now_ns + sw_rnr_timer_ns(timer);
    if (!sw_retry_rnr(&r->retry, resume_ns)) {
        answer_note_refusal(r, seq, SW_FAILURE_RNR_RETRY, 0);
        return;
    }
    r->rnr_until_ns = resume_ns;
    sw_flight_unack(&r->flight, seq);
    sw_flight_lose_all(&r->flight, seq); /* it drops what follows as well: 9.7.5.2.8 */
}

/* The peer keeps what came after the gap, and says what. */
static void receive_bitmap(struct sw_requester *r, uint32_t seq, struct bitmap map, uint64_t now_ns)
{
    struct sw_flight *f = &r->flight;
    for (uint32_t i = 0; i < map.bits && sw_flight_has(f, seq + 1 + i); i++) {
        uint32_t early = seq + 1 + i;
        if (!(map.bytes[i / 8] >> i % 8 & 1) || sw_flight_bit(f->acked, early))
            continue;
        const struct sw_request *request =
            r->reads.count ? sw_requester_at(r, sw_requester_find(r, early)) : NULL;
        if (!request || !sw_request_is_answered(request)) {
            sw_flight_ack(f, early, now_ns);
            continue;
        }
        /* A READ that waits there for its turn: not lost, its time begins now. */
        uint32_t end = sw_read_track_span(&r->reads, early).end;
        sw_flight_note_arrival(f, early, now_ns);
        f->seen = sw_seq_max(f->seen, early);
        for (uint32_t at = early; at != end; at++)
            f->sent_at[at % SW_FLIGHT_PACKETS] = sw_flight_tick(now_ns);
    }
}

/* The packet at `seq` was still missing when this NAK left: if it was sent again longer ago than a
 * round trip takes, that is lost, too. (Later packets may tell nothing, if the peer has no room to
 * keep them.)
 */
static void receive_still_missing(struct sw_requester *r, uint32_t seq, uint64_t now_ns)
{
    struct sw_flight *f = &r->flight;
    uint32_t since = sw_flight_tick(now_ns) - f->sent_at[seq % SW_FLIGHT_PACKETS];
    if (sw_flight_has(f, seq) && sw_flight_bit(f->again, seq) && r->retry.srtt_ns &&
        sw_flight_ticks_ns(since) > r->retry.srtt_ns + 4 * r->retry.var_ns)
        sw_flight_lose(f, seq);
}

enum { GAPS_FLOOR_FACTOR = 4, SELECTIVE_FLOOR_FACTOR = 8 };

/* A gap, of which no more is known than where it begins: all from there on (go-back-N). */
static void receive_gap(struct sw_requester *r, uint32_t seq, uint64_t now_ns)
{
    struct sw_flight *f = &r->flight;
    if (!sw_flight_has(f, seq) || sw_flight_bit(f->lost, seq))
        return;
    uint32_t since = sw_flight_tick(now_ns) - f->sent_at[seq % SW_FLIGHT_PACKETS];
    if (sw_flight_bit(f->again, seq) && sw_flight_ticks_ns(since) < r->retry.min_ns / 2)
        return; /* said before what was sent again can have arrived */
    uint32_t before = f->lost_count;
    r->deferred.is_refused = true; /* if that was it: a peer of our own keeps what it can */
    sw_flight_lose_all(f, seq);
    sw_congestion_on_loss(&r->congestion, f->lost_count - before, now_ns);
    sw_requester_set_floor(r, GAPS_FLOOR_FACTOR); /* so this path loses */
}

static void receive_ack(struct sw_requester *r, const struct sw_packet *packet, uint32_t seq,
                        uint64_t now_ns)
{
    struct gain before = gain_begin(r, now_ns);
    uint8_t syndrome = packet->aeth.syndrome, value = sw_aeth_value_of(syndrome);
    enum sw_aeth_class class = sw_aeth_class_of(syndrome);
    if (class == SW_AETH_RESERVED)
        return;
    bool ack = class == SW_AETH_ACK, gap = class == SW_AETH_NAK && value == SW_NAK_CODE_PSN;
    struct bitmap map = {packet->payload, r->peer_selective && gap ? packet->payload_len * 8 : 0};
    const bool refuses = class == SW_AETH_NAK && !gap && !answer_has_come(r, seq);
    uint64_t rtt_ns = ack ? measure_rtt(r, seq, now_ns) : 0;
    r->counts.naks += class == SW_AETH_NAK;
    r->counts.gaps += gap;
    if (map.bits)
        receive_bitmap(r, seq, map, now_ns);
    settle_until(r, ack ? seq + 1 : seq, now_ns); /* a NAK acknowledges what is before it */
    gain_end(r, &before, rtt_ns, now_ns);
    if (class == SW_AETH_RNR)
        receive_rnr(r, seq, value, now_ns);
    else if (gap && map.bits)
        receive_still_missing(r, seq, now_ns);
    else if (gap)
        receive_gap(r, seq, now_ns);
    else if (refuses)
        answer_note_refusal(r, seq, SW_FAILURE_NAK, syndrome);
}

/* A READ response packet: its bytes go where its PSN says, in whatever order they come. */
static void receive_response(struct sw_requester *r, const struct sw_packet *packet, uint32_t seq,
                             uint64_t now_ns, struct sw_progress *out)
{
    struct sw_flight *f = &r->flight;
    uint32_t position = sw_requester_find(r, seq);
    const struct sw_request *request = sw_requester_at(r, position);
    bool atomic = packet->opcode->kind == SW_PACKET_ATOMIC_ACK;
    bool swaps = request->kind == SW_REQUEST_CMP_SWAP || request->kind == SW_REQUEST_FETCH_ADD;
    uint32_t index = seq - request->seq, offset = index << r->mtu_shift, expected = 0;
    if (request->kind == SW_REQUEST_READ) {
        expected = request->len_bytes - offset;
        expected = sw_min_u32(expected, r->config.mtu_bytes);
    }
    if (!sw_request_is_answered(request) || atomic != swaps || packet->payload_len != expected) {
        answer_note_refusal(r, seq, SW_FAILURE_BAD_RESPONSE, 0);
        return;
    }
    if (sw_flight_bit(f->acked, seq))
        return;
    struct gain before = gain_begin(r, now_ns);
    uint64_t rtt = index == 0 ? measure_rtt(r, seq, now_ns) : 0;
    if (atomic || expected) {
        out->places = true;
        out->place_position = position;
        out->place_offset = atomic ? 0 : offset;
        out->place_len = atomic ? sizeof(out->value) : expected;
        out->place_bytes = atomic ? NULL : packet->payload;
        out->value = packet->original;
    }
    sw_flight_ack(f, seq, now_ns);
    settle_until(r, seq, now_ns); /* it acknowledges all requests before it: 9.7.5.1.2 */
    gain_end(r, &before, rtt, now_ns);
}

/* Only what answers something that is on its way shows what the peer speaks. */
static void answer_learn_dialect(struct sw_requester *r, const struct sw_packet *packet)
{
    if (r->peer_selective || !r->config.offer_selective ||
        !sw_selective_is_marked(packet->bth.reserved7))
        return;
    r->peer_selective = true;
    /* The loss of a tail is found by a probe; silence is a peer without a processor rather. */
    sw_requester_set_floor(r, SELECTIVE_FLOOR_FACTOR);
}

bool sw_requester_awaits(const struct sw_requester *r, uint32_t psn)
{
    return sw_flight_has(&r->flight, sw_seq_of(r->flight.una, psn));
}

/* A FLUSH may take longer than the timers of the QP: a disk is busy. A Sidewire peer who is asked
 * for it again says once more what he had acknowledged before it. */
static bool says_in_work(const struct sw_requester *r, const struct sw_packet *packet, uint32_t seq)
{
    const struct sw_flight *f = &r->flight;
    return r->peer_selective && f->una != f->next && seq == f->una - 1 &&
           packet->opcode->kind == SW_PACKET_ACK &&
           sw_aeth_class_of(packet->aeth.syndrome) == SW_AETH_ACK &&
           sw_requester_at(r, sw_requester_find(r, f->una))->kind == SW_REQUEST_FLUSH;
}

void sw_requester_receive(struct sw_requester *r, const struct sw_packet *packet, uint64_t now_ns,
                          struct sw_progress *out)
{
    *out = (struct sw_progress){.done = r->done};
    if (r->dead || r->config.service == SW_SERVICE_UC)
        return;
    uint32_t seq = sw_seq_of(r->flight.una, packet->bth.psn);
    if (!sw_flight_has(&r->flight, seq)) {
        r->counts.stale++; /* settled long ago, or never sent: 9.7.5.1.1 */
        if (says_in_work(r, packet, seq))
            sw_retry_hear(&r->retry, now_ns);
        return;
    }
    answer_learn_dialect(r, packet);
    bool has_aeth = packet->opcode->headers & SW_HEADER_AETH;
    enum sw_aeth_class class = sw_aeth_class_of(packet->aeth.syndrome);
    switch ((enum sw_packet_kind)packet->opcode->kind) {
    case SW_PACKET_ACK:
        receive_ack(r, packet, seq, now_ns);
        break;
    case SW_PACKET_READ_RESPONSE:
    case SW_PACKET_ATOMIC_ACK:
        if (!has_aeth || class == SW_AETH_ACK)
            receive_response(r, packet, seq, now_ns, out);
        else if (r->peer_selective)
            receive_ack(r, packet, seq, now_ns); /* a NAK with a bitmap */
        break;
    case SW_PACKET_SEND:
    case SW_PACKET_WRITE:
    case SW_PACKET_READ_REQUEST:
    case SW_PACKET_CMP_SWAP:
    case SW_PACKET_FETCH_ADD:
    case SW_PACKET_FLUSH:
    case SW_PACKET_ATOMIC_WRITE:
    case SW_PACKET_CNP:
        break;
    }
    if (r->flight.seen != r->flight.una)
        sw_requester_find_lost(r, now_ns);
    else
        r->overdue_ns = SW_RETRY_NEVER;
    out->done = r->done;
    if (r->refused != SW_FAILURE_NONE && !sw_seq_is_before(r->flight.una, r->refused_seq))
        sw_requester_fail(r, r->refused, r->refused_syndrome, out);
}
