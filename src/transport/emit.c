/* SPDX-License-Identifier: BSD-2-Clause */
/* What the requester sends: new packets within its limits, and lost ones again. */
#include <string.h>

#include "transport/requester_impl.h"

#include "base/minmax.h"
#include "transport/piggyback.h"
#include "wire/joint.h"

enum {
    ASK_EVERY = 32, /* packets: an answer is asked for at least this often */
    PIECE_MIN = 16, /* response packets that a READ request asks for, as far as it may choose */
    PIECE_MAX = 128,
    REQUEST_OVERHEAD = 64, /* bytes of headers, for pacing */
    SEND_HEADERS = SW_BTH_BYTES + SW_IMM_BYTES + SW_PIGGYBACK_BYTES, /* the longest, of RC */
};

static enum sw_packet_kind emit_kind_of(const struct sw_request *request)
{
    static const uint8_t kinds[] = {
        [SW_REQUEST_SEND] = SW_PACKET_SEND,
        [SW_REQUEST_WRITE] = SW_PACKET_WRITE,
        [SW_REQUEST_READ] = SW_PACKET_READ_REQUEST,
        [SW_REQUEST_CMP_SWAP] = SW_PACKET_CMP_SWAP,
        [SW_REQUEST_FETCH_ADD] = SW_PACKET_FETCH_ADD,
        [SW_REQUEST_ATOMIC_WRITE] = SW_PACKET_ATOMIC_WRITE,
        [SW_REQUEST_FLUSH] = SW_PACKET_FLUSH,
    };
    return (enum sw_packet_kind)kinds[request->kind];
}

/* The opcode and BTH of the packet at `seq`, which begins or ends a message as `place` says. */
static void fill_bth(struct sw_requester *r, const struct sw_request *request, uint32_t seq,
                     enum sw_position place, struct sw_emission *out)
{
    struct sw_packet *packet = &out->packet;
    uint16_t extra = 0;
    if (place & SW_LAST && request->flags & (SW_REQUEST_IMM | SW_REQUEST_INV))
        extra = request->flags & SW_REQUEST_IMM ? SW_HEADER_IMM : SW_HEADER_IETH;
    packet->opcode =
        sw_opcode_find((enum sw_service)r->config.service, emit_kind_of(request), place, extra);
    packet->bth = (struct sw_bth){
        .opcode = packet->opcode->number,
        .solicited = place & SW_LAST && request->flags & SW_REQUEST_SOLICITED,
        .mig_req = true,
        .pkey = r->config.pkey,
        .dest_qpn = r->config.dest_qpn,
        .psn = sw_seq_psn(seq),
        .reserved6 = sw_piggyback_mark(r->peer_selective),
        .reserved7 = sw_selective_mark(r->config.offer_selective, r->config.life),
    };
    packet->imm_be = extra == SW_HEADER_IMM ? request->imm_or_key : 0;
    packet->inv_rkey = extra == SW_HEADER_IETH ? request->imm_or_key : 0;
    packet->srq_num = request->srq_num;
}

/*
 * A packet of a SEND or WRITE.
 *
 * Only packets of one length leave the kernel in one message, and arrive in one. A WRITE First is
 * longer than what follows it, so among ourselves a long WRITE goes as a sequence of short ones,
 * as many as it would have packets anyway. The kernel and hardware have more to do for a message
 * than for a packet: they get First, Middle and Last. So does what ends in a completion there,
 * which tells the length of the whole.
 */
static void fill_data(struct sw_requester *r, const struct sw_request *request, uint32_t seq,
                      struct sw_emission *out)
{
    uint32_t index = seq - request->seq;
    uint32_t offset = index << r->mtu_shift, left = request->len_bytes - offset;
    enum sw_position place = (enum sw_position)((index == 0 ? SW_FIRST : 0) |
                                                (index + 1 == request->count ? SW_LAST : 0));
    if (request->is_split)
        place = SW_ONLY;
    fill_bth(r, request, seq, place, out);
    out->offset = offset;
    out->packet.payload_len = sw_min_u32(left, r->config.mtu_bytes);
    out->source = out->packet.payload_len ? SW_PAYLOAD_REQUEST : SW_PAYLOAD_NONE;
    if (place & SW_FIRST && request->kind == SW_REQUEST_WRITE)
        out->packet.reth = (struct sw_reth){.addr = request->remote_addr + offset,
                                            .rkey = request->rkey,
                                            .len_bytes = request->is_split ? out->packet.payload_len
                                                                           : request->len_bytes};
}

/* A READ request for [seq, seq+count), or any other that fits one packet and has an answer. */
static void fill_answered(struct sw_requester *r, const struct sw_request *request, uint32_t seq,
                          uint32_t count, struct sw_emission *out)
{
    struct sw_packet *packet = &out->packet;
    fill_bth(r, request, seq, SW_ONLY, out);
    uint32_t offset = (seq - request->seq) << r->mtu_shift, left = request->len_bytes - offset;
    if (request->kind == SW_REQUEST_READ && count < request->count - (seq - request->seq))
        left = count << r->mtu_shift;
    packet->reth = (struct sw_reth){
        .addr = request->remote_addr + offset, .rkey = request->rkey, .len_bytes = left};
    packet->flush_type = request->flush_type;
    packet->atomic = (struct sw_atomic_eth){
        .addr = request->remote_addr,
        .rkey = request->rkey,
        .compare = request->compare_add,
        .swap_add = request->kind == SW_REQUEST_FETCH_ADD ? request->compare_add : request->swap};
    if (request->kind == SW_REQUEST_ATOMIC_WRITE) {
        packet->reth.len_bytes = packet->payload_len = SW_ATOMIC_WRITE_BYTES;
        out->source = SW_PAYLOAD_BYTES;
        memcpy(out->bytes, &request->compare_add, SW_ATOMIC_WRITE_BYTES);
    }
}

static void fill_packet(struct sw_requester *r, uint32_t position, uint32_t seq, uint32_t count,
                        struct sw_emission *out)
{
    const struct sw_request *request = sw_requester_at(r, position);
    out->packet = (struct sw_packet){0};
    out->source = SW_PAYLOAD_NONE;
    out->count = 1;
    out->is_again = out->begins_message = out->ends_deferred = false;
    out->joint_bytes = 0;
    out->position = position;
    out->offset = 0;
    if (sw_request_is_answered(request))
        fill_answered(r, request, seq, count, out);
    else
        fill_data(r, request, seq, out);
}

/* After how many packets an answer is asked for: so that the window opens before it is full. */
static uint32_t ask_every(const struct sw_requester *r)
{
    uint32_t window = sw_congestion_window(&r->congestion);
    return sw_min_u32(window / 2, ASK_EVERY);
}

/* Asks for an answer at the end of requests, and now and then. The packets are already counted as
 * sent. */
static void ask_for_ack(struct sw_requester *r, bool ends_request, struct sw_emission *out)
{
    uint32_t window = sw_congestion_window(&r->congestion), sent = sw_flight_out(&r->flight);
    r->unasked += out->count;
    out->packet.bth.ack_req =
        r->config.service != SW_SERVICE_UC && (ends_request || r->unasked >= ask_every(r) ||
                                               sent >= window || sw_flight_room(&r->flight) == 0);
    if (out->packet.bth.ack_req)
        r->unasked = 0;
}

static bool may_send(struct sw_requester *r, uint32_t out, uint64_t now_ns)
{
    if (sw_congestion_may_send(&r->congestion, out, now_ns))
        return true;
    uint64_t pace = sw_congestion_due_ns(&r->congestion);
    if (pace > now_ns)
        r->paced_ns = pace;
    return false;
}

static bool emit_again(struct sw_requester *r, uint64_t now_ns, struct sw_emission *out)
{
    struct sw_flight *f = &r->flight;
    uint32_t seq = sw_flight_first_lost(f), count = 1;
    /* The oldest waits for no window: what fills it may have been dropped by the peer for want of
     * just this one. */
    if (!may_send(r, seq == f->una ? 0 : sw_flight_out(f), now_ns))
        return false;
    uint32_t position = sw_requester_find(r, seq);
    if (sw_requester_at(r, position)->kind == SW_REQUEST_READ) {
        /* From the gap to the end of the gap; of a plain peer, to where the request had ended. */
        uint32_t end = sw_read_track_span(&r->reads, seq).end;
        while (seq + count != end && (!r->peer_selective || sw_flight_bit(f->lost, seq + count)))
            count++;
    }
    fill_packet(r, position, seq, count, out);
    out->is_again = true;
    sw_flight_resend(f, seq, count, now_ns);
    r->counts.resent++;
    const struct sw_request *request = sw_requester_at(r, position);
    ask_for_ack(r, sw_request_is_answered(request) || seq + 1 == request->seq + request->count,
                out);
    if (f->lost_count == 0) {
        out->packet.bth.ack_req = true; /* the end of what is sent again */
        r->unasked = 0;
    }
    return true;
}

/* How many response packets the READ may ask for now; 0: it has to wait. */
static uint32_t piece_of(struct sw_requester *r, const struct sw_request *request, uint64_t now_ns)
{
    struct sw_flight *f = &r->flight;
    uint32_t left = request->count - (f->next - request->seq);
    uint32_t out = sw_flight_out(f), window = sw_congestion_window(&r->congestion);
    uint32_t open = window > out ? window - out : 0, room = sw_flight_room(f);
    uint32_t least = sw_min_u32(left, PIECE_MIN);
    if (open < least && out == 0)
        open = least; /* the window is smaller than any reasonable piece */
    uint32_t piece = sw_min_u32(left, PIECE_MAX);
    piece = sw_min_u32(piece, open);
    piece = sw_min_u32(piece, room);
    if (piece >= least)
        return piece;
    r->congestion.limited_ns = now_ns;
    return 0;
}

/* Whether the request at `sent`, nothing of which is out, may begin. */
static bool emit_may_begin(const struct sw_requester *r, const struct sw_request *request)
{
    if (r->paused || request->kind == SW_REQUEST_LOCAL)
        return false;
    return !(request->flags & SW_REQUEST_FENCE) || r->reads.count == 0;
}

/* How many of the packets of a SEND or WRITE from `seq` on are alike and may go now. */
static uint32_t run_of(const struct sw_requester *r, const struct sw_request *request, uint32_t seq,
                       uint32_t most)
{
    const uint32_t index = seq - request->seq, left = request->count - index;
    const uint32_t whole = (request->len_bytes >> r->mtu_shift) - index; /* not cut short */
    const uint32_t window = sw_congestion_window(&r->congestion), out = sw_flight_out(&r->flight);
    const bool begins = index == 0 && !request->is_split;
    uint32_t alike = request->is_split ? sw_min_u32(left, whole) : left - 1;
    if (begins || sw_congestion_spaces(&r->congestion) || out >= window ||
        r->unasked >= ask_every(r))
        return 1;
    alike =
        sw_min_u32(sw_min_u32(alike, most), sw_min_u32(window - out, ask_every(r) - r->unasked));
    alike = sw_min_u32(alike, sw_flight_room(&r->flight));
    return alike ? alike : 1;
}

static bool emit_new(struct sw_requester *r, uint64_t now_ns, uint32_t most,
                     struct sw_emission *out)
{
    struct sw_flight *f = &r->flight;
    if (r->sent == r->tail)
        return false;
    struct sw_request *request = sw_requester_at(r, r->sent);
    const bool answered = sw_request_is_answered(request);
    if (f->next == request->seq && !emit_may_begin(r, request))
        return false;
    if (answered && r->reads.count >= r->config.max_rd_atomic)
        return false;
    if (sw_flight_room(f) == 0 || !may_send(r, sw_flight_out(f), now_ns))
        return false;
    uint32_t seq = f->next, count = 1;
    if (request->kind == SW_REQUEST_READ && (count = piece_of(r, request, now_ns)) == 0)
        return false;
    if (seq == request->seq)
        request->is_split = r->peer_selective && request->kind == SW_REQUEST_WRITE &&
                            !(request->flags & SW_REQUEST_IMM) && request->count > 1;
    fill_packet(r, r->sent, seq, count, out);
    if (!answered)
        count = out->count = run_of(r, request, seq, most);
    sw_flight_send(f, count, now_ns);
    if (answered)
        sw_read_track_push(&r->reads, seq, count);
    ask_for_ack(r, answered || f->next == request->seq + request->count, out);
    if (request->count == 1)
        sw_deferred_note(&r->deferred, request, now_ns);
    if (f->next == request->seq + request->count)
        r->sent++;
    if (r->config.service == SW_SERVICE_UC) {
        sw_flight_advance(f, f->next); /* nothing will be heard of it */
        r->done = r->sent;
    } else {
        sw_retry_start(&r->retry, now_ns);
    }
    return true;
}

/* Defers the next request, if it stands between two longer packets that are alike. */
static void defer_next(struct sw_requester *r, uint64_t now_ns)
{
    const uint32_t out = sw_flight_out(&r->flight);
    const struct sw_request *request = sw_requester_at(r, r->sent);
    if (r->tail - r->sent < 2 || !r->peer_selective || !emit_may_begin(r, request) ||
        !sw_deferred_wants(&r->deferred, request, sw_requester_at(r, r->sent + 1), now_ns) ||
        sw_flight_room(&r->flight) < 2 || out + 2 > sw_congestion_window(&r->congestion) ||
        sw_congestion_spaces(&r->congestion))
        return;
    sw_deferred_push(&r->deferred, r->sent++);
    sw_flight_defer(&r->flight, now_ns);
    sw_retry_start(&r->retry, now_ns);
}

/* What a joint packet of those that wait needs at most, and of the one that follows them. */
static uint32_t joint_bytes(struct sw_requester *r)
{
    const struct sw_deferred *d = &r->deferred;
    const uint32_t headers = SW_JOINT_EACH_BYTES + SEND_HEADERS;
    uint32_t bytes = 0, longest = 0;
    for (uint32_t i = 0; i < d->count; i++) {
        const uint32_t position = d->positions[(d->first + i) % SW_DEFERRED_MAX],
                       len_bytes = sw_requester_at(r, position)->len_bytes;
        bytes += headers + len_bytes + sw_packet_pad(len_bytes);
        longest = sw_max_u32(len_bytes, longest);
    }
    return bytes + headers + longest + sw_packet_pad(longest);
}

/* The next of those that were deferred, but for what has been sent again since. */
static bool emit_deferred(struct sw_requester *r, uint64_t now_ns, struct sw_emission *out)
{
    struct sw_flight *f = &r->flight;
    const bool is_first = r->deferred.is_open;
    const uint32_t all_bytes = is_first ? joint_bytes(r) : 0;
    while (r->deferred.count) {
        const uint32_t position = sw_deferred_pop(&r->deferred);
        const struct sw_request *request = sw_requester_at(r, position);
        const uint32_t seq = request->seq;
        if (position - r->done >= r->sent - r->done || !sw_flight_has(f, seq) ||
            sw_flight_bit(f->acked, seq) || sw_flight_bit(f->again, seq))
            continue;
        fill_packet(r, position, seq, 1, out);
        /* The peer is told of them at once, and answers them at once, not the first one alone. */
        out->begins_message = is_first;
        out->ends_deferred = !r->deferred.count;
        out->joint_bytes = all_bytes;
        sw_flight_send_deferred(f, seq, now_ns);
        ask_for_ack(r, true, out);
        r->counts.deferred++;
        return true;
    }
    return false;
}

/* New packets, and those deferred once what they wait for is out. */
static bool emit_next(struct sw_requester *r, uint64_t now_ns, uint32_t most,
                      struct sw_emission *out)
{
    struct sw_deferred *d = &r->deferred;
    defer_next(r, now_ns);
    const bool goes_on = d->count && r->sent != r->tail &&
                         emit_may_begin(r, sw_requester_at(r, r->sent)) &&
                         sw_deferred_goes_on(d, sw_requester_at(r, r->sent), now_ns);
    if (d->count && !goes_on && emit_deferred(r, now_ns, out))
        return true;
    return emit_new(r, now_ns, most, out) || emit_deferred(r, now_ns, out);
}

bool sw_requester_next_run(struct sw_requester *r, uint64_t now_ns, uint32_t most,
                           struct sw_emission *out)
{
    if (r->dead || now_ns < r->rnr_until_ns)
        return false;
    r->rnr_until_ns = 0;
    r->paced_ns = SW_RETRY_NEVER;
    struct sw_flight *f = &r->flight;
    if (r->refused != SW_FAILURE_NONE &&
        (f->lost_count == 0 || !sw_seq_is_before(sw_flight_first_lost(f), r->refused_seq)))
        return false; /* nothing from there on may be executed any more */
    bool sent = f->lost_count ? emit_again(r, now_ns, out) : emit_next(r, now_ns, most, out);
    if (sent) {
        uint32_t bytes = out->count * (out->packet.payload_len + REQUEST_OVERHEAD);
        r->counts.packets += out->count;
        sw_congestion_on_send(&r->congestion, bytes, now_ns);
    }
    return sent;
}
