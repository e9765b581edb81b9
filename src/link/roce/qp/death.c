/* SPDX-License-Identifier: BSD-2-Clause */
#include "link/roce/qp/death.h"

#include "link/death.h"

#include "base/clock.h"
#include "link/roce/liveness/lifeline.h"
#include "link/roce/liveness/lifeline_impl.h"
#include "link/roce/port/port.h"
#include "link/roce/qp/life.h"
#include "link/roce/qp/qp.h"
#include "link/roce/qp/repath.h"
#include "link/roce/roce.h"

/* NULL: the QP is not connected to who is at the other end of the line. */
static struct sw_roce_qp *user_of(const struct sw_qp *qp, const struct sw_lifeline *line)
{
    struct sw_roce_qp *r = qp->link == &sw_roce_qp_ops ? qp->link_state : NULL;
    return r && r->line == line && !r->ended_ns ? r : NULL;
}

static bool has_peer_left(const struct sw_roce_qp *r)
{
    return r->left_mark && sw_roce_life_is_peers(r, r->left_mark);
}

static void death_end_with_peer(struct sw_qp *qp, const struct sw_roce_qp *r)
{
    sw_lock_assert_held(&qp->lock);
    if (!has_peer_left(r))
        sw_death_end(qp, sw_verdict_rules[SW_UNREACHABLE].requester);
}

void sw_roce_end_with_peer(struct sw_lifeline *line)
{
    sw_lock_assert_held(&sw_roce.port.rx_lock);
    sw_roce_receive_all(sw_clock_ns());
    for (uint32_t i = sw_qp_set_next(&sw_roce.listed, 0); i < SW_MAX_QP;
         i = sw_qp_set_next(&sw_roce.listed, i + 1)) {
        struct sw_qp *qp = atomic_load_explicit(&sw_roce.qps[i], memory_order_acquire);
        if (!qp)
            continue;
        sw_lock_acquire(&qp->lock);
        const struct sw_roce_qp *r = user_of(qp, line);
        if (r)
            death_end_with_peer(qp, r);
        sw_lock_release(&qp->lock);
    }
}

/* NULL: no packets come for it. */
static struct sw_qp *lock_qp(uint32_t qpn)
{
    sw_lock_assert_held(&sw_roce.port.rx_lock);
    struct sw_qp *qp = atomic_load_explicit(&sw_roce.qps[sw_qpn_index(qpn)], memory_order_acquire);
    if (!qp)
        return NULL;
    sw_lock_acquire(&qp->lock);
    if (qp->qpn == qpn)
        return qp;
    sw_lock_release(&qp->lock);
    return NULL;
}

void sw_roce_note_departure(const struct sw_lifeline_departure *departure)
{
    struct sw_qp *qp = lock_qp(departure->qpn);
    if (!qp)
        return;
    struct sw_roce_qp *r = user_of(qp, departure->line);
    if (r && qp->dest_qpn == departure->dest_qpn)
        r->left_mark = departure->mark;
    sw_lock_release(&qp->lock);
}

uint16_t sw_roce_source_port(uint32_t qpn, uint32_t dest_qpn)
{
    struct sw_qp *qp = lock_qp(qpn);
    uint16_t source_port = 0;
    if (!qp)
        return 0;
    const struct sw_roce_qp *r = qp->link == &sw_roce_qp_ops ? qp->link_state : NULL;
    if (r && qp->dest_qpn == dest_qpn)
        source_port = sw_port_source(&sw_roce.port, &r->path);
    sw_lock_release(&qp->lock);
    return source_port;
}

static enum sw_retry_peer death_peer_of(enum sw_lifeline_says says)
{
    switch (says) {
    case SW_LIFELINE_MEETS:
        return SW_RETRY_PEER_MET;
    case SW_LIFELINE_RUNS:
        return SW_RETRY_PEER_RUNS;
    case SW_LIFELINE_WAIT:
        return SW_RETRY_PEER_WAITS;
    case SW_LIFELINE_NOTHING:
    case SW_LIFELINE_DEAD:
        break;
    }
    return SW_RETRY_PEER_UNKNOWN;
}

enum sw_roce_outcome sw_roce_excuse(struct sw_roce_qp *r, uint64_t now_ns)
{
    sw_lock_assert_held(&r->qp->lock);
    struct sw_retry *retry = &r->requester.retry;
    if (!r->line || now_ns < sw_retry_due_ns(retry))
        return SW_ROCE_ALIVE;
    const uint32_t peer_port = r->peer.ports[0] ? r->peer.ports[0] : r->peer.ports[1];
    const struct sw_lifeline_miss miss = {.since_ns = retry->started_ns,
                                          .peer_port = peer_port ? (uint16_t)(peer_port - 1) : 0};
    const enum sw_lifeline_says says = sw_lifeline_ask(r->line, &miss);
    retry->peer = death_peer_of(says);
    if (says == SW_LIFELINE_WAIT)
        sw_counter_add(r->qp->ctx->netdev, SW_TIMEOUTS_EXCUSED);
    if (says != SW_LIFELINE_DEAD || r->qp->sq.head == r->qp->sq.tail || has_peer_left(r))
        return SW_ROCE_ALIVE;
    sw_death_end(r->qp, sw_verdict_rules[SW_UNREACHABLE].requester);
    return SW_ROCE_DEAD;
}

void sw_roce_ask_again(struct sw_roce_qp *r, bool is_doubted)
{
    sw_lock_assert_held(&r->qp->lock);
    const struct sw_lifeline_flow flow = {
        .qpn = r->qp->qpn,
        .dest_qpn = r->qp->dest_qpn,
        .source_port = is_doubted ? sw_port_source(&sw_roce.port, &r->path) : 0};
    if (r->line)
        sw_lifeline_ping(r->line, &flow);
}
