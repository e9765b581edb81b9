/* SPDX-License-Identifier: BSD-2-Clause */
/* A connection's life, and what its machines want sent. */
#include "link/roce/qp/qp.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "device/memory/mr_impl.h"
#include "device/memory/view.h"
#include "link/engine.h"
#include "link/gather.h"
#include "link/roce/impair.h"
#include "link/roce/liveness/lifeline.h"
#include "link/roce/port/path.h"
#include "link/roce/port/port.h"
#include "link/roce/port/tx.h"
#include "link/roce/qp/account.h"
#include "link/roce/qp/closed_qp.h"
#include "link/roce/qp/death.h"
#include "link/roce/qp/delayed_ack.h"
#include "link/roce/qp/life.h"
#include "link/roce/qp/repath.h"
#include "link/roce/qp/request.h"
#include "link/roce/qp/respond.h"
#include "link/roce/roce.h"
#include "wire/ib_time.h"

/* In one step, so that a post or a poll does not take long: four full messages at MTU 1024. */
#define EMIT_PACKETS 248u
#define PIECES_MAX 40u             /* of one packet: a request's elements, and to spare */
#define LATE_NS (4 * SW_NS_PER_MS) /* an unreliable connection's packets may pass each other */

static int aim_path(struct sw_roce_qp *r)
{
    enum { CAPABLE = 2 }; /* ECN, RFC 3168: routers may mark instead of drop */
    const struct ibv_ah_attr *ah = &r->qp->attr.ah_attr;
    struct sw_netdev *dev = r->qp->ctx->netdev;
    struct sw_netdev_info info;
    struct sw_gid own;
    if (!sw_netdev_gid(dev, ah->grh.sgid_index, &own) || !own.valid)
        return -EINVAL;
    sw_netdev_read(dev, &info);
    r->path.traffic_class = (uint8_t)((ah->grh.traffic_class & ~3u) | CAPABLE);
    r->path.hop_limit = ah->grh.hop_limit > 1 ? ah->grh.hop_limit : 0;
    r->path.sender = sw_roce_life_source(r->qp);
    int rc = sw_roce_path_set(&r->path, own.gid.raw, ah->grh.dgid.raw, info.ifindex);
    return rc ? rc : sw_port_aim(&sw_roce.port, &r->path);
}

static uint8_t service_of(enum ibv_qp_type type)
{
    return type == IBV_QPT_RC ? SW_SERVICE_RC : type == IBV_QPT_UC ? SW_SERVICE_UC : SW_SERVICE_XRC;
}

static uint32_t mtu_of(const struct sw_qp *qp)
{
    enum ibv_mtu mtu = qp->attr.path_mtu;
    return 128u << (mtu >= IBV_MTU_256 && mtu <= IBV_MTU_4096 ? mtu : IBV_MTU_1024);
}

static void init_responder(struct sw_roce_qp *r)
{
    const struct sw_qp *qp = r->qp;
    const struct sw_responder_config config = {
        .qpn = qp->qpn,
        .dest_qpn = qp->dest_qpn,
        .first_psn = qp->attr.rq_psn,
        .mtu_bytes = mtu_of(qp),
        .pkey = SW_PKEY_DEFAULT,
        .service = service_of(qp->type),
        .min_rnr_timer = qp->attr.min_rnr_timer,
        .max_dest_rd_atomic = qp->attr.max_dest_rd_atomic,
        .offer_selective = qp->type != IBV_QPT_UC,
        .life = r->life.own,
        .late_ns = qp->type == IBV_QPT_UC ? LATE_NS : 0,
    };
    sw_responder_init(&r->responder, &config, &sw_roce.pool);
}

/* Nobody is given up before this: the peer is a program among others, which hardware is not. */
#define UNREACHABLE_MIN_NS (500 * SW_NS_PER_MS)

static uint8_t timeout_of(const struct ibv_qp_attr *attr)
{
    uint8_t timeout = attr->timeout;
    while (timeout && sw_ib_time_ns(timeout) * (attr->retry_cnt + 1u) < UNREACHABLE_MIN_NS)
        timeout++;
    return timeout;
}

/* Once the send side's attributes are known: with RTS. */
static void init_requester(struct sw_roce_qp *r)
{
    const struct sw_qp *qp = r->qp;
    const struct sw_requester_config config = {
        .qpn = qp->qpn,
        .dest_qpn = qp->dest_qpn,
        .first_psn = qp->attr.sq_psn,
        .mtu_bytes = mtu_of(qp),
        .pkey = SW_PKEY_DEFAULT,
        .service = service_of(qp->type),
        .timeout = timeout_of(&qp->attr),
        .retry_cnt = qp->attr.retry_cnt,
        .rnr_retry = qp->attr.rnr_retry,
        .max_rd_atomic = qp->attr.max_rd_atomic ? qp->attr.max_rd_atomic : 1,
        .offer_selective = qp->type != IBV_QPT_UC,
        .life = r->life.own,
    };
    sw_requester_init(&r->requester, &config, r->ring, qp->sq.mask + 1);
    r->posted = 0;
}

static int connect_qp(struct sw_qp *qp)
{
    sw_lock_assert_held(&qp->lock);
    int rc = sw_roce_open(true);
    if (rc)
        return rc;
    struct sw_roce_qp *r = calloc(1, sizeof(*r));
    if (!r)
        return -ENOMEM;
    r->qp = qp;
    rc = aim_path(r);
    if (rc)
        goto failed;
    sw_roce_life_begin(r);
    if (qp->type != IBV_QPT_XRC_RECV) {
        r->ring = calloc(qp->sq.mask + 1, sizeof(*r->ring));
        if (!r->ring) {
            rc = -ENOMEM;
            goto failed;
        }
        init_requester(r);
    }
    r->receives = qp->type != IBV_QPT_XRC_SEND;
    if (r->receives)
        init_responder(r);
    if (qp->type != IBV_QPT_UC) /* which a death changes nothing for */
        r->line = sw_lifeline_join(&r->path, sw_qpn_slot(qp->dest_qpn));
    qp->link_state = r;
    sw_roce_list(qp);
    sw_qp_publish(qp, qp->state);
    char text[SW_ROCE_ADDRESS_TEXT];
    sw_info("QP 0x%x: RoCEv2 to QP 0x%x at %s, path MTU %u", qp->qpn, qp->dest_qpn,
            sw_roce_address_text(&r->path.dest, text), mtu_of(qp));
    return 0;

failed:
    free(r->ring);
    free(r);
    return rc;
}

/* Whether memory that can be taken away is there: before the kernel gets its address. */
static bool is_there(const struct sw_gather *gather, const uint8_t *from, uint64_t len_bytes)
{
    for (uint32_t i = 0; i < gather->sge_count; i++)
        if (sw_view_is_of(gather->sges[i].lkey))
            return sw_fault_probe(from, len_bytes);
    return true;
}

/* The pieces of a request's bytes, those of a whole run. 0: a key does not allow it. */
static uint32_t gather_pieces(struct sw_roce_qp *r, const struct sw_emission *emission,
                              struct iovec pieces[PIECES_MAX])
{
    struct sw_gather gather = sw_gather_of(r->qp, emission->position + r->offset);
    uint64_t at = emission->offset;
    uint64_t left = (uint64_t)emission->packet.payload_len * emission->count;
    uint32_t count = 0;
    for (; left && count < PIECES_MAX; count++) {
        uint64_t run = left;
        uint8_t *from = sw_gather_at(&gather, at, 0, &run);
        if (!from || !is_there(&gather, from, run))
            return 0;
        pieces[count] = (struct iovec){from, run};
        at += run;
        left -= run;
    }
    return left ? 0 : count;
}

/* Points to the payload, which nobody may take away while the QP is locked. */
static bool find_payload(struct sw_roce_qp *r, const struct sw_emission *emission,
                         struct iovec pieces[PIECES_MAX], struct sw_outgoing *out)
{
    out->payload_bytes = emission->packet.payload_len;
    switch (emission->source) {
    case SW_PAYLOAD_NONE:
        return true;
    case SW_PAYLOAD_BYTES:
        pieces[0] = (struct iovec){(void *)emission->bytes, out->payload_bytes};
        out->piece_count = 1;
        return true;
    case SW_PAYLOAD_REQUEST:
        out->piece_count = gather_pieces(r, emission, pieces);
        return out->piece_count;
    case SW_PAYLOAD_MEMORY:
        out->piece_count = 1;
        return sw_roce_read(r, emission, pieces);
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

/* The packets of a run; `out` has the headers of the first, and the pieces of all. */
static void add_run(const struct sw_qp *qp, struct sw_batch *batch,
                    const struct sw_emission *emission, struct sw_outgoing out,
                    uint8_t header[SW_HEADERS_MAX], struct iovec pieces[PIECES_MAX])
{
    struct sw_packet packet = emission->packet;
    struct iovec own[PIECES_MAX], *from = pieces;
    out.pieces = own;
    for (uint32_t left = emission->count; left; left--) {
        sw_packet_ask(header, packet.bth.ack_req && left == 1);
        out.piece_count = cut_pieces(&from, packet.payload_len, own);
        sw_roce_add(qp, batch, &packet, &out);
        sw_packet_step(packet.opcode, header, packet.payload_len);
        packet.bth.psn = sw_psn_add(packet.bth.psn, 1);
    }
}

enum added { ADDED, ADDED_LAST_WORD, NOT_ADDED };

static enum added add_emission(struct sw_roce_qp *r, struct sw_batch *batch,
                               struct sw_emission *emission)
{
    struct iovec pieces[PIECES_MAX];
    uint8_t header[SW_HEADERS_MAX];
    enum added result = ADDED;
    struct sw_outgoing out = {.path = &r->path, .header = header, .pieces = pieces};
    bool reads = emission->source == SW_PAYLOAD_MEMORY;
    if (reads)
        sw_mr_serve_begin(r->qp->index);
    if (!find_payload(r, emission, pieces, &out)) {
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
        if (emission->count > 1)
            add_run(r->qp, batch, emission, out, header, pieces);
        else
            sw_roce_add(r->qp, batch, &emission->packet, &out);
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

static bool next_request(struct sw_roce_qp *r, uint64_t now_ns, uint32_t most,
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

/* Emits until there is nothing more to say, or enough is said: *count packets, but an ACK. */
static enum added emit_packets(struct sw_roce_qp *r, struct sw_batch *batch, uint64_t now_ns,
                               uint32_t *count)
{
    struct sw_emission emission;
    const bool sends = r->ring && (r->qp->state == IBV_QPS_RTS || r->qp->state == IBV_QPS_SQD);
    const bool waits = r->receives && sw_responder_only_acks(&r->responder);
    bool answers = r->receives && !waits;
    for (; *count < EMIT_PACKETS; *count += emission.count) {
        answers = answers && sw_responder_next(&r->responder, now_ns, &emission);
        if (!answers && !(sends && next_request(r, now_ns, EMIT_PACKETS - *count, &emission)))
            break;
        enum added result = add_emission(r, batch, &emission);
        if (result != ADDED)
            return result;
    }
    /* Being the shortest, an ACK leaves in one message with what goes before it. */
    if (!waits || (r->delayed_acks && !*count) ||
        !sw_responder_next(&r->responder, now_ns, &emission))
        return ADDED;
    if (r->delayed_acks && *count)
        r->doubts = 0;
    r->delayed_acks = 0;
    return add_emission(r, batch, &emission);
}

/* Whether some of what was posted has not been sent yet, or is to be sent again: as soon as it may
 * be, without anything that has to come first. */
static bool has_unsent(const struct sw_roce_qp *r)
{
    const struct sw_requester *q = &r->requester;
    const struct sw_sq *sq = &r->qp->sq;
    return r->ring && sq->head != sq->tail &&
           (r->posted != sq->tail || q->sent != q->tail || q->flight.lost_count);
}

/* When somebody must look again, if the program does not. What only waits for the peer has a timer,
 * and is looked at by nobody before. */
static void plan_timer(struct sw_roce_qp *r, bool more)
{
    struct sw_qp *qp = r->qp;
    uint64_t due_ns = more ? 0 : UINT64_MAX;
    if (r->ring && !more)
        due_ns = sw_requester_due_ns(&r->requester);
    if (r->receives) {
        uint64_t answer_ns = sw_responder_due_ns(&r->responder);
        due_ns = answer_ns < due_ns ? answer_ns : due_ns;
    }
    if (__builtin_expect(r->is_limited, 0)) {
        uint64_t limit_ns = sw_pacer_due_ns(&qp->pacer, qp->pacer.packet_bytes);
        due_ns = limit_ns < due_ns ? limit_ns : due_ns;
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
    plan_timer(r, count == EMIT_PACKETS);
    return SW_ROCE_ALIVE;
}

static void take_another_path(struct sw_roce_qp *r, uint64_t now_ns)
{
    const struct sw_requester *q = &r->requester;
    if (r->qp->type == IBV_QPT_UC)
        return;
    const struct sw_responder *p = &r->responder;
    const bool unanswered =
        r->ring && sw_repath_unanswered(&r->repath, q->counts.timeouts, q->flight.una, &q->retry);
    if (!unanswered &&
        !sw_repath_unheard(&r->repath, p->counts.duplicates, p->expected, &q->retry, now_ns))
        return;
    r->path.sender = sw_roce_life_source(r->qp);
    sw_port_aim(&sw_roce.port, &r->path);
    sw_debug("QP 0x%x: no answers, another source port", r->qp->qpn);
}

/* Nothing to do but to wait for the peer: what most polls find. */
static bool only_waits(const struct sw_roce_qp *r)
{
    const struct sw_requester *q = &r->requester;
    const struct sw_qp *qp = r->qp;
    if (qp->state != IBV_QPS_RTS || r->is_parked || r->has_bad || !r->ring)
        return false;
    const bool sends =
        r->posted != qp->sq.tail || q->sent != q->tail || q->flight.lost_count ||
        sw_requester_due_ns(q) <= atomic_load_explicit(&sw_roce.heard_ns, memory_order_relaxed);
    const bool says = r->receives && sw_responder_has_word(&r->responder) &&
                      !(r->delayed_acks && sw_responder_only_acks(&r->responder));
    return !sends && !says;
}

static void drive_qp(struct sw_qp *qp)
{
    struct sw_roce_qp *r = qp->link_state;
    struct sw_progress progress;
    if (!r)
        return;
    if (only_waits(r)) {
        plan_timer(r, false);
        return;
    }
    uint64_t now_ns = sw_clock_ns();
    if (sw_roce_unpark(r, now_ns) == SW_ROCE_DEAD)
        return;
    /* An answer that waits to be received is no silence, however long this process had no
     * processor: who finds a timer run out receives first (roce.c). */
    uint64_t due_ns = r->ring ? sw_requester_due_ns(&r->requester) : UINT64_MAX;
    bool misses = false, is_doubted = false;
    if (due_ns <= atomic_load_explicit(&sw_roce.heard_ns, memory_order_relaxed)) {
        misses = now_ns >= sw_retry_due_ns(&r->requester.retry);
        is_doubted = misses && sw_repath_is_doubted(&r->repath, r->requester.flight.una);
        if (sw_roce_excuse(r, now_ns) == SW_ROCE_DEAD)
            return;
        sw_requester_tick(&r->requester, now_ns, &progress);
        if (sw_roce_take_progress(r, &progress) == SW_ROCE_DEAD)
            return;
    }
    take_another_path(r, now_ns);
    if (r->ring && sw_roce_feed(r) == SW_ROCE_DEAD)
        return;
    if (sw_roce_emit(r, now_ns) != SW_ROCE_DEAD && misses)
        sw_roce_ask_again(r, is_doubted);
}

static void post_sends(struct sw_qp *qp)
{
    struct sw_roce_qp *r = qp->link_state;
    const uint64_t now_ns = sw_clock_ns();
    sw_roce_note_post(now_ns);
    if (r)
        sw_delayed_ack_note_echo(r, now_ns);
    drive_qp(qp);
}

/* What was flushed in SQE: the one that failed, and all that followed. */
static void leave_behind(struct sw_roce_qp *r)
{
    const uint32_t tail = r->qp->sq.tail;
    sw_requester_abandon(&r->requester);
    r->has_bad = false;
    r->posted = tail;
    r->offset = tail - r->requester.tail;
}

/* RTS: the machine that was made with RTR did not know it all yet. */
static void take_attributes(struct sw_qp *qp)
{
    sw_lock_assert_held(&qp->lock);
    struct sw_roce_qp *r = qp->link_state;
    if (!r)
        return;
    r->responder.config.min_rnr_timer = qp->attr.min_rnr_timer;
    if (!r->ring)
        return;
    if (r->posted == 0 && qp->sq.tail == 0)
        init_requester(r);
    if (qp->type == IBV_QPT_UC && sw_requester_done(&r->requester) + r->offset != qp->sq.head)
        leave_behind(r);
    sw_requester_pause(&r->requester, qp->state == IBV_QPS_SQD);
}

/* The peer's message was good, whatever becomes of this QP: hardware would have said so by now. */
static void send_delayed_ack(struct sw_roce_qp *r)
{
    struct sw_emission emission;
    if (!r->delayed_acks)
        return;
    r->delayed_acks = 0;
    if (!sw_responder_only_acks(&r->responder) ||
        !sw_responder_next(&r->responder, sw_clock_ns(), &emission))
        return;
    struct sw_batch *batch = sw_batch_open(&sw_roce.port);
    add_emission(r, batch, &emission);
    sw_batch_close(batch);
}

static void disconnect_qp(struct sw_qp *qp)
{
    sw_lock_assert_held(&qp->lock);
    struct sw_roce_qp *r = qp->link_state;
    if (!r)
        return;
    send_delayed_ack(r);
    sw_qp_rest(qp, false);
    sw_qp_publish(qp, IBV_QPS_RESET);
    if (qp->state == IBV_QPS_ERR)
        sw_roce_drop_claim(r);
    sw_roce_account(r);
    sw_flushing_drop(&r->flushing);
    sw_roce_life_end(r);
    if (r->line)
        sw_lifeline_leave(r->line, qp->qpn, qp->dest_qpn, sw_selective_mark(true, r->life.own));
    r->line = NULL;
    qp->link_state = sw_closed_qp_of(r, sw_clock_ns());
    sw_roce_bury(r);
}

static void read_traffic(struct sw_qp *qp, struct sw_traffic *out)
{
    *out = (struct sw_traffic){0}; /* qp->moved is kept up to date */
    if (qp->link_state)
        sw_roce_account(qp->link_state);
}

const struct sw_qp_ops sw_roce_qp_ops = {
    .connect = connect_qp,
    .disconnect = disconnect_qp,
    .changed = take_attributes,
    .send = post_sends,
    .progress = drive_qp,
    .traffic = read_traffic,
    .by_packets = true,
};
