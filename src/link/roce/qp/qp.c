/* SPDX-License-Identifier: BSD-2-Clause */
/* A connection's life, and what drives it. */
#include "link/roce/qp/qp.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "link/engine.h"
#include "link/roce/liveness/lifeline.h"
#include "link/roce/port/arrival.h"
#include "link/roce/port/path.h"
#include "link/roce/port/port.h"
#include "link/roce/qp/account.h"
#include "link/roce/qp/closed_qp.h"
#include "link/roce/qp/death.h"
#include "link/roce/qp/delayed_ack.h"
#include "link/roce/qp/emit.h"
#include "link/roce/qp/fallback.h"
#include "link/roce/qp/life.h"
#include "link/roce/qp/repath.h"
#include "link/roce/qp/request.h"
#include "link/roce/qp/respond.h"
#include "link/roce/roce.h"

#define LATE_NS (4 * SW_NS_PER_MS) /* an unreliable connection's packets may pass each other */

static int qp_aim_path(struct sw_roce_qp *r)
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
    const uint32_t headers =
        (r->path.is_ipv4 ? SW_IPV4_BYTES : SW_IPV6_BYTES) + (uint32_t)SW_UDP_BYTES;
    r->path.datagram_max = info.mtu_bytes > headers ? info.mtu_bytes - headers : 0;
    return rc ? rc : sw_port_aim(&sw_roce.port, &r->path);
}

static uint8_t qp_service_of(enum ibv_qp_type type)
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
        .service = qp_service_of(qp->type),
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
        .service = qp_service_of(qp->type),
        .timeout = qp->attr.timeout,
        .patience_min_ns = UNREACHABLE_MIN_NS,
        .retry_cnt = qp->attr.retry_cnt,
        .rnr_retry = qp->attr.rnr_retry,
        .max_rd_atomic = qp->attr.max_rd_atomic ? qp->attr.max_rd_atomic : 1,
        .offer_selective = qp->type != IBV_QPT_UC,
        .life = r->life.own,
    };
    sw_requester_init(&r->requester, &config, r->ring, qp->sq.mask + 1);
    r->posted = 0;
}

static int roce_connect_qp(struct sw_qp *qp)
{
    sw_lock_assert_held(&qp->lock);
    int rc = sw_roce_open(true);
    if (rc)
        return rc;
    struct sw_roce_qp *r = calloc(1, sizeof(*r));
    if (!r)
        return -ENOMEM;
    r->qp = qp;
    rc = qp_aim_path(r);
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

/* Nobody asks for what this process sends to itself, as a peer does by its lifeline. The kernel may
 * bring it to another process of this host, one that does not run, and another path's to the next
 * one. */
void sw_roce_claim_own_flow(struct sw_qp *qp, uint64_t now_ns)
{
    struct sw_port *port = &sw_roce.port;
    struct sw_roce_qp *r = qp->link_state;
    sw_lock_assert_held(&port->rx_lock);
    sw_lock_assert_held(&qp->lock);
    if (!r || r->ended_ns || !r->ring || now_ns < sw_retry_due_ns(&r->requester.retry) ||
        !sw_lifeline_is_self(&r->path, sw_qpn_slot(qp->dest_qpn)))
        return;
    const struct sw_arrival flow = {.source = r->path.source,
                                    .dest = r->path.dest,
                                    .ifindex = r->path.ifindex,
                                    .source_port = sw_port_source(port, &r->path)};
    r->has_own_flow = sw_port_claim_flow(port, &flow, now_ns) || sw_port_has_flow(port, &flow);
}

static void take_another_path(struct sw_roce_qp *r, uint64_t now_ns)
{
    const struct sw_requester *q = &r->requester;
    if (r->qp->type == IBV_QPT_UC || r->has_own_flow)
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
        r->posted != qp->sq.tail || sw_requester_has_unsent(q) ||
        sw_requester_due_ns(q) <= atomic_load_explicit(&sw_roce.heard_ns, memory_order_relaxed);
    const bool says = r->receives && sw_responder_has_word(&r->responder) &&
                      !(r->delayed_acks && sw_roce_only_acks(r));
    return !sends && !says;
}

/* `now_ns` 0: the clock is read if need be. */
static void drive_at(struct sw_qp *qp, uint64_t now_ns)
{
    struct sw_roce_qp *r = qp->link_state;
    struct sw_progress progress;
    if (!r)
        return;
    if (only_waits(r)) {
        sw_roce_plan_timer(r, false);
        return;
    }
    now_ns = now_ns ? now_ns : sw_clock_ns();
    if (sw_roce_unpark(r, now_ns) == SW_ROCE_DEAD)
        return;
    /* An answer that waits to be received is no silence, however long this process had no
     * processor: a thread that finds a timer run out receives first (roce.c). */
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
        if (misses && !r->peer.is_known)
            sw_roce_miss_answer(r, now_ns);
    }
    take_another_path(r, now_ns);
    if (r->ring && sw_roce_feed(r) == SW_ROCE_DEAD)
        return;
    if (sw_roce_emit(r, now_ns) != SW_ROCE_DEAD && misses)
        sw_roce_ask_again(r, is_doubted);
}

static void roce_drive_qp(struct sw_qp *qp)
{
    drive_at(qp, 0);
}

static void post_sends(struct sw_qp *qp)
{
    struct sw_roce_qp *r = qp->link_state;
    const uint64_t now_ns = sw_clock_ns();
    sw_roce_note_post(now_ns);
    if (r)
        sw_delayed_ack_note_echo(r, now_ns);
    drive_at(qp, now_ns);
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
    if (!r->peer.is_known)
        sw_roce_begin_sending(r);
}

void sw_roce_leave_peer(struct sw_roce_qp *r)
{
    struct sw_qp *qp = r->qp;
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
}

static void roce_disconnect_qp(struct sw_qp *qp)
{
    sw_lock_assert_held(&qp->lock);
    struct sw_roce_qp *r = qp->link_state;
    if (!r)
        return;
    sw_roce_stop_calling(r);
    sw_roce_emit_ack(r);
    sw_roce_leave_peer(r);
    qp->link_state = sw_closed_qp_of(r, sw_clock_ns());
    sw_roce_bury(r);
}

static void qp_read_traffic(struct sw_qp *qp, struct sw_traffic *out)
{
    *out = (struct sw_traffic){0}; /* qp->moved is kept up to date */
    if (qp->link_state)
        sw_roce_account(qp->link_state);
}

const struct sw_qp_ops sw_roce_qp_ops = {
    .connect = roce_connect_qp,
    .disconnect = roce_disconnect_qp,
    .changed = take_attributes,
    .send = post_sends,
    .progress = roce_drive_qp,
    .traffic = qp_read_traffic,
    .by_packets = true,
};
