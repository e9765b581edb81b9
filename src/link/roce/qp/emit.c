/* SPDX-License-Identifier: BSD-2-Clause */
#include "link/roce/qp/emit.h"

#include "base/clock.h"
#include "base/fault.h"
#include "base/guarded_copy.h"
#include "base/minmax.h"
#include "base/probe.h"
#include "device/memory/mr_impl.h"
#include "device/memory/view.h"
#include "link/faults/live.h"
#include "link/gather.h"
#include "link/roce/impair.h"
#include "link/roce/port/port.h"
#include "link/roce/port/tx.h"
#include "link/roce/qp/delayed_ack.h"
#include "link/roce/qp/qp.h"
#include "link/roce/qp/request.h"
#include "link/roce/qp/respond.h"
#include "link/roce/roce.h"
#include "transport/piggyback.h"
#include "wire/joint.h"

/* In one step, so that a post or a poll does not take long: four full messages at MTU 1024. */
#define EMIT_PACKETS 248u
#define MESSAGE_PACKETS 62u       /* that share a message with an ACK, ... */
#define MESSAGE_BYTES (60u << 10) /* ... and how much of them (port/tx.c) */
#define ACK_JOINT_BYTES ((uint32_t)(SW_JOINT_EACH_BYTES + SW_BTH_BYTES + SW_AETH_BYTES))
#define SEND_JOINT_BYTES ((uint32_t)(SW_JOINT_EACH_BYTES + SW_BTH_BYTES + SW_IMM_BYTES)) /* most */
#define PIECES_MAX 40u         /* of one packet: a request's elements, and to spare */
#define UNJOINED_PACKETS 1024u /* that leave by themselves once something was sent again */

/* The payload of one packet, or of a run. */
struct payload {
    struct iovec pieces[PIECES_MAX];
    bool by_view;  /* it may be taken away: each packet's is copied to `bytes` first */
    bool is_again; /* the peer may have had it, and the program have unmapped it: the same */
    struct iovec copied;
    uint8_t bytes[SW_PACKET_PAYLOAD_MAX];
};

/* The pieces of a request's bytes, those of a whole run. 0: a key does not allow it. */
static uint32_t gather_pieces(struct sw_roce_qp *r, const struct sw_emission *emission,
                              struct payload *payload)
{
    struct sw_gather gather = sw_gather_of(r->qp, emission->position + r->offset);
    uint64_t at = emission->offset;
    uint64_t left = (uint64_t)emission->packet.payload_len * emission->count;
    uint32_t count = 0;
    payload->by_view = sw_gather_has_view(&gather);
    for (; left && count < PIECES_MAX; count++) {
        uint64_t run = left;
        uint8_t *from = sw_gather_at(&gather, at, 0, &run);
        if (!from || (payload->by_view && !sw_fault_probe(from, run)))
            return 0;
        payload->pieces[count] = (struct iovec){from, run};
        at += run;
        left -= run;
    }
    return left ? 0 : count;
}

/* Points to the payload, whose keys stay good while the QP is locked. */
static bool find_payload(struct sw_roce_qp *r, const struct sw_emission *emission,
                         struct payload *payload, struct sw_outgoing *out)
{
    out->payload_bytes = emission->packet.payload_len;
    payload->by_view = payload->is_again = false;
    switch (emission->source) {
    case SW_PAYLOAD_NONE:
        return true;
    case SW_PAYLOAD_BYTES:
        payload->pieces[0] = (struct iovec){(void *)emission->bytes, out->payload_bytes};
        out->piece_count = 1;
        return true;
    case SW_PAYLOAD_REQUEST:
        out->piece_count = gather_pieces(r, emission, payload);
        return out->piece_count;
    case SW_PAYLOAD_MEMORY:
        out->piece_count = 1;
        payload->by_view = sw_view_is_of(emission->rkey);
        payload->is_again = r->responder.repeats && !payload->by_view;
        return sw_roce_read(r, emission, payload->pieces);
    }
    return false;
}

/* The pieces of the next `len_bytes`: takes them from the beginning of `*from`. */
static uint32_t cut_pieces(struct iovec **from, uint32_t len_bytes, struct iovec out[PIECES_MAX])
{
    uint32_t count = 0;
    for (uint32_t left = len_bytes; left; count++) {
        struct iovec *piece = *from;
        out[count] = (struct iovec){piece->iov_base, left < piece->iov_len ? left : piece->iov_len};
        left -= (uint32_t)out[count].iov_len;
        piece->iov_base = (uint8_t *)piece->iov_base + out[count].iov_len;
        piece->iov_len -= out[count].iov_len;
        *from += piece->iov_len == 0;
    }
    return count;
}

/* Bytes that another thread's fault shows in the place of a page must not leave, and a packet
 * cannot be taken back. False: it is lost. */
static bool copy_view(struct sw_outgoing *out, struct payload *payload)
{
    payload->copied = (struct iovec){payload->bytes, 0};
    for (uint32_t i = 0; i < out->piece_count; i++) {
        const struct iovec *piece = &out->pieces[i];
        uint8_t *to = payload->bytes + payload->copied.iov_len;
        if (payload->is_again
                ? !sw_probe_load(to, piece->iov_base, piece->iov_len)
                : !sw_guarded_copy(to, piece->iov_base, piece->iov_len, piece->iov_base))
            return false;
        payload->copied.iov_len += piece->iov_len;
    }
    out->pieces = &payload->copied;
    out->piece_count = 1;
    return true;
}

/* The packets of a run of requests; `out` has the headers of the first. */
static bool emit_add_run(const struct sw_qp *qp, struct sw_batch *batch,
                         const struct sw_emission *emission, struct sw_outgoing out,
                         uint8_t header[SW_HEADERS_MAX], struct payload *payload)
{
    struct sw_packet packet = emission->packet;
    struct iovec own[PIECES_MAX], *from = payload->pieces;
    for (uint32_t left = emission->count; left; left--) {
        sw_packet_ask(header, packet.bth.ack_req && left == 1);
        out.pieces = own;
        out.piece_count = cut_pieces(&from, packet.payload_len, own);
        if (payload->by_view && !copy_view(&out, payload))
            return false;
        sw_roce_add(qp, batch, &packet, &out);
        sw_packet_step(packet.opcode, header, packet.payload_len);
        packet.bth.psn = sw_psn_add(packet.bth.psn, 1);
    }
    return true;
}

/* Whether a packet may become part of a joint one. Faults are injected packet by packet. */
static bool may_join(const struct sw_roce_qp *r, const struct sw_emission *emission)
{
    const enum sw_packet_kind kind = (enum sw_packet_kind)emission->packet.opcode->kind;
    return r->receives && r->responder.peer_piggybacks && emission->count == 1 && !sw_faults_live &&
           r->qp->type == IBV_QPT_RC &&
           (kind == SW_PACKET_SEND || (kind == SW_PACKET_ACK && emission->joint_bytes));
}

/* Whether a packet may become one with another that needs more room than the path MTU asks for. A
 * router on the way may not have it: what is sent again, and what follows it, goes by itself. While
 * an ACK waits to leave in their message they stay segments of it: it could not follow them. The
 * first deferred packet begins a packet within the message instead. */
static bool may_be_longer(struct sw_roce_qp *r, const struct sw_emission *emission, bool ack_waits)
{
    if (emission->is_again)
        r->unjoined = UNJOINED_PACKETS;
    else if (r->unjoined)
        r->unjoined--;
    const bool is_deferred =
        emission->joint_bytes && emission->packet.opcode->kind != SW_PACKET_ACK;
    return !r->unjoined && !is_deferred && !ack_waits;
}

enum added { ADDED, ADDED_LAST_WORD, NOT_ADDED };

static enum added add_emission(struct sw_roce_qp *r, struct sw_batch *batch,
                               struct sw_emission *emission, bool ack_waits)
{
    struct payload payload;
    uint8_t header[SW_HEADERS_MAX];
    enum added result = ADDED;
    struct sw_outgoing out = {.path = &r->path,
                              .header = header,
                              .pieces = payload.pieces,
                              .begins_message = emission->begins_message,
                              .joins = may_join(r, emission),
                              .joint_bytes = emission->joint_bytes,
                              .pairs = may_be_longer(r, emission, ack_waits)};
    bool reads = emission->source == SW_PAYLOAD_MEMORY;
    if (reads)
        sw_mr_serve_begin(r->qp->index);
    if (!find_payload(r, emission, &payload, &out) ||
        ((payload.by_view || payload.is_again) && emission->count == 1 &&
         !copy_view(&out, &payload))) {
        const uint8_t refusal = sw_verdict_rules[SW_NAK_ACCESS].aeth_syndrome;
        if (!reads)
            result = NOT_ADDED;
        else if (sw_responder_unreadable(&r->responder, refusal, emission))
            result = ADDED_LAST_WORD;
        out.piece_count = out.payload_bytes = 0;
    }
    if (result != NOT_ADDED) {
        out.header_bytes =
            (uint32_t)sw_packet_encode_headers(&emission->packet, header, sizeof(header));
        if (emission->count == 1)
            sw_roce_add(r->qp, batch, &emission->packet, &out);
        else if (!emit_add_run(r->qp, batch, emission, out, header, &payload))
            result = NOT_ADDED;
    }
    if (reads)
        sw_mr_serve_end(r->qp->index);
    return result;
}

/* Whether the rate limit allows a packet, of which no more is known than its greatest length. */
static bool is_within_limit(const struct sw_qp *qp, uint64_t now_ns)
{
    uint32_t packet_bytes = qp->pacer.packet_bytes;
    return sw_pacer_allows(&qp->pacer, now_ns, packet_bytes) == packet_bytes;
}

static bool emit_next_request(struct sw_roce_qp *r, uint64_t now_ns, uint32_t most,
                              struct sw_emission *out)
{
    struct sw_qp *qp = r->qp;
    if (__builtin_expect(!qp->sq.is_paced, 1))
        return sw_requester_next_run(&r->requester, now_ns, most, out);
    r->is_limited = !is_within_limit(qp, now_ns);
    if (r->is_limited || !sw_requester_next(&r->requester, now_ns, out))
        return false;
    sw_pacer_charge(&qp->pacer, now_ns, out->packet.payload_len);
    return true;
}

bool sw_roce_only_acks(const struct sw_roce_qp *r)
{
    return sw_responder_only_acks(&r->responder) ||
           (r->delayed_acks && sw_responder_only_misses(&r->responder));
}

/* Whether the ACK leaves in `emission`, a SEND that nothing follows, and that stays within the
 * message of the kernel by it. Faults are injected by the kind of a packet: there an ACK is one. */
static bool piggybacks_ack(struct sw_roce_qp *r, uint32_t previous_bytes,
                           struct sw_emission *emission)
{
    const struct sw_packet *packet = &emission->packet;
    const bool fits = !previous_bytes || packet->payload_len + SW_PIGGYBACK_BYTES <= previous_bytes;
    if (emission->count != 1 || !fits || sw_faults_live || sw_requester_has_unsent(&r->requester) ||
        !sw_piggyback_load(&r->responder, &emission->packet))
        return false;
    if (r->delayed_acks)
        sw_backoff_succeed(&r->ack_backoff);
    r->delayed_acks = 0;
    return true;
}

/* Whether the ACK of what was executed is held by a thread that receives, and gathers what it has
 * to answer (port/tx.h). The program has polled what it is about meanwhile, and answers it: so the
 * ACK leaves with that answer, and once more by that thread. */
static bool ack_is_held(const struct sw_roce_qp *r, const struct sw_batch *batch)
{
    return __builtin_expect(r->ack_turn != 0, 0) && !sw_batch_gathers(batch) &&
           r->ack_turn == sw_batch_gather_turn() && !sw_responder_has_word(&r->responder);
}

/* The ACK of what was executed, which leaves with `count` packets. A gap is told of later. */
static enum added add_ack(struct sw_roce_qp *r, struct sw_batch *batch, uint64_t now_ns,
                          uint32_t count, uint32_t joint_bytes)
{
    struct sw_emission emission;
    const bool misses =
        sw_responder_only_misses(&r->responder) && sw_responder_has_gap(&r->responder);
    if (misses || ack_is_held(r, batch)) {
        sw_responder_ack(&r->responder, &emission);
        emission.joint_bytes = joint_bytes;
        return add_emission(r, batch, &emission, false);
    }
    if (!sw_responder_next(&r->responder, now_ns, &emission))
        return ADDED;
    if (r->delayed_acks && count)
        sw_backoff_succeed(&r->ack_backoff);
    r->delayed_acks = 0;
    if (sw_batch_gathers(batch))
        r->ack_turn = sw_batch_gather_turn();
    emission.joint_bytes = joint_bytes;
    return add_emission(r, batch, &emission, false);
}

/* What the program at the other side is told of by the packets given out so far. */
struct told {
    bool anything;
    uint32_t len_bytes; /* payload of the last packet that did */
};

static void note_told(struct told *told, const struct sw_emission *emission)
{
    const struct sw_opcode *opcode = emission->packet.opcode;
    told->anything = opcode->kind == SW_PACKET_SEND || opcode->headers & SW_HEADER_IMM;
    told->len_bytes = emission->packet.payload_len;
}

/* Whether the ACK leaves before `emission`, so that the peer has it when its program is told of
 * anything. It is the last segment of a message of the kernel or none, and so is the end of an
 * answer that is shorter than the rest of it: there the ACK ends the message before. So it does
 * where another message begins, or the rest will not fit into one. */
static bool ack_goes_before(const struct sw_roce_qp *r, const struct told *told,
                            const struct sw_emission *emission)
{
    const uint32_t left = r->requester.tail - r->requester.sent,
                   len_bytes = emission->packet.payload_len + SW_HEADERS_MAX;
    const bool is_other = told->len_bytes != emission->packet.payload_len;
    struct told next;
    if (told->anything && is_other)
        return true;
    note_told(&next, emission);
    if (!next.anything || emission->begins_message)
        return false;
    if (told->len_bytes && is_other) /* the end of a WRITE with immediate */
        return true;
    return r->delayed_acks > SW_DELAYED_ACK_RUN &&
           (left > MESSAGE_PACKETS || left > MESSAGE_BYTES / len_bytes);
}

/* What a joint packet takes of the ACK and `emission`, which may be joined by more; 0: they leave
 * apart. The ACK begins it, and is looked at first there. So the shorter end of a message leaves
 * with the rest of it, in the last segment, where the ACK would have been. */
static uint32_t joint_behind_ack(const struct sw_roce_qp *r, const struct told *told,
                                 const struct sw_emission *emission)
{
    const uint32_t len_bytes = emission->packet.payload_len;
    if (!may_join(r, emission))
        return 0;
    if (emission->joint_bytes)
        return ACK_JOINT_BYTES + emission->joint_bytes;
    return len_bytes < told->len_bytes && !emission->begins_message
               ? ACK_JOINT_BYTES + SEND_JOINT_BYTES + len_bytes + sw_packet_pad(len_bytes)
               : 0;
}

/*
 * Emits until there is nothing more to say, or enough is said: *count packets, but an ACK.
 *
 * Being the shortest, an ACK leaves in one message with what goes before it, and is looked at first
 * there. The peer may count on it: hardware would have sent it before the program could answer. So
 * it leaves with the first message that tells the peer of anything, or ahead of that.
 */
static enum added emit_packets(struct sw_roce_qp *r, struct sw_batch *batch, uint64_t now_ns,
                               uint32_t *count)
{
    struct sw_emission emission;
    struct told told = {0};
    const bool sends = r->ring && (r->qp->state == IBV_QPS_RTS || r->qp->state == IBV_QPS_SQD);
    const bool repeats = r->receives && ack_is_held(r, batch);
    bool waits = repeats || (r->receives && sw_roce_only_acks(r)), answers = r->receives && !waits;
    enum added result = ADDED;
    const bool is_first = sends && !sw_requester_has_unacked(&r->requester);
    for (; result == ADDED && *count < EMIT_PACKETS; *count += emission.count) {
        answers = answers && sw_responder_next(&r->responder, now_ns, &emission);
        if (!answers && !(sends && emit_next_request(r, now_ns, EMIT_PACKETS - *count, &emission)))
            break;
        if (is_first && !*count && emission.packet.opcode->kind == SW_PACKET_SEND)
            sw_batch_hurry(batch);
        if (waits && !answers &&
            piggybacks_ack(r, emission.begins_message ? 0 : told.len_bytes, &emission))
            waits = false;
        const uint32_t joint_bytes = waits ? joint_behind_ack(r, &told, &emission) : 0;
        if (waits && (joint_bytes || ack_goes_before(r, &told, &emission))) {
            result = add_ack(r, batch, now_ns, 1, joint_bytes);
            waits = false;
        }
        note_told(&told, &emission);
        if (result == ADDED)
            result = add_emission(r, batch, &emission, waits);
        if (result == ADDED && waits && emission.ends_deferred) {
            result = add_ack(r, batch, now_ns, 1, 0);
            waits = false;
        }
    }
    if (result != ADDED || !waits || ((r->delayed_acks || repeats) && !*count))
        return result;
    return add_ack(r, batch, now_ns, *count, 0);
}

/* Whether some of what was posted has not been sent yet, or is to be sent again: as soon as it may
 * be, without anything that has to come first. */
static bool has_unsent(const struct sw_roce_qp *r)
{
    const struct sw_requester *q = &r->requester;
    const struct sw_sq *sq = &r->qp->sq;
    return r->ring && sq->head != sq->tail && (r->posted != sq->tail || sw_requester_has_unsent(q));
}

void sw_roce_plan_timer(struct sw_roce_qp *r, bool more)
{
    struct sw_qp *qp = r->qp;
    uint64_t due_ns = more ? 0 : UINT64_MAX;
    if (r->ring && !more)
        due_ns = sw_requester_due_ns(&r->requester);
    if (r->receives) {
        uint64_t answer_ns = sw_responder_due_ns(&r->responder);
        due_ns = sw_min_u64(answer_ns, due_ns);
    }
    if (__builtin_expect(r->is_limited, 0)) {
        uint64_t limit_ns = sw_pacer_due_ns(&qp->pacer, qp->pacer.packet_bytes);
        due_ns = sw_min_u64(limit_ns, due_ns);
    }
    const bool is_stopped =
        qp->state == IBV_QPS_SQD && r->ring && sw_requester_is_drained(&r->requester);
    const bool pending = more || r->is_limited || (has_unsent(r) && !is_stopped);
    sw_roce_set_timer(qp, due_ns);
    if (atomic_load_explicit(&qp->tx_pending, memory_order_relaxed) != pending)
        atomic_store(&qp->tx_pending, pending);
    sw_qp_rest(qp, !pending && !r->is_parked);
    if (pending || due_ns != UINT64_MAX || qp->sq.head != qp->sq.tail)
        sw_roce_nudge();
}

enum sw_roce_outcome sw_roce_emit(struct sw_roce_qp *r, uint64_t now_ns)
{
    sw_lock_assert_held(&r->qp->lock);
    uint32_t count = 0;
    r->reads_due = r->is_limited = false;
    r->path.heard_ns = r->requester.heard_ns;
    struct sw_batch *batch = sw_batch_open(&sw_roce.port);
    enum added result = emit_packets(r, batch, now_ns, &count);
    if (count) /* else what another thread sends of the queue pair next could overtake it */
        sw_batch_flush(batch);
    sw_batch_close(batch);
    if (result == NOT_ADDED) /* the program took a key away from under its own request */
        return sw_roce_fail_request(r, IBV_WC_LOC_PROT_ERR);
    if (result == ADDED_LAST_WORD) {
        sw_qp_fail(r->qp, sw_verdict_rules[SW_NAK_ACCESS].responder_event);
        return SW_ROCE_DEAD;
    }
    if (r->ring && sw_roce_settle(r) == SW_ROCE_DEAD)
        return SW_ROCE_DEAD;
    if (r->is_ending && (r->responder.refusal_told || !sw_responder_has_word(&r->responder))) {
        sw_qp_fail(r->qp, r->end_event);
        return SW_ROCE_DEAD;
    }
    sw_roce_plan_timer(r, count == EMIT_PACKETS);
    return SW_ROCE_ALIVE;
}

void sw_roce_emit_ack(struct sw_roce_qp *r)
{
    sw_lock_assert_held(&r->qp->lock);
    struct sw_emission emission;
    if (!r->delayed_acks)
        return;
    r->delayed_acks = 0;
    if (!sw_responder_only_acks(&r->responder) ||
        !sw_responder_next(&r->responder, sw_clock_ns(), &emission))
        return;
    struct sw_batch *batch = sw_batch_open(&sw_roce.port);
    add_emission(r, batch, &emission, false);
    sw_batch_close(batch);
}
