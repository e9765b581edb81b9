/* SPDX-License-Identifier: BSD-2-Clause */
/* Packets to queue pairs. The one a packet is for stays locked until one for another comes, so that
 * a run of packets is answered at once. */
#include "base/clock.h"
#include "device/ah.h"
#include "device/counters.h"
#include "link/roce/mad.h"
#include "link/roce/roce.h"

enum { CONGESTED = 3 }; /* RFC 3168: a router has marked it */

static struct {
    struct sw_qp *qp;  /* locked */
    uint32_t requests; /* among the packets of this run */
    bool ends;         /* the last of them ended a message, ... */
    bool completes;    /* ... a message that the program is told of */
    uint64_t now_ns;
} current; /* under rx_lock */

void sw_roce_deliver_end(bool is_polled)
{
    struct sw_qp *qp = current.qp;
    if (!qp)
        return;
    struct sw_roce_qp *r = qp->link == &sw_roce_qp_ops ? qp->link_state : NULL;
    bool may_wait = r && current.requests == 1 && current.ends;
    if (may_wait)
        may_wait = current.completes ? is_polled : sw_roce_expects_echo(r, current.now_ns);
    if (r && !(may_wait && sw_roce_leave_unsaid(r, current.now_ns))) {
        r->unsaid = 0;
        qp->link->progress(qp);
    }
    sw_lock_release(&qp->lock);
    current.qp = NULL;
}

static struct sw_qp *find(uint32_t qpn)
{
    struct sw_qp *qp = atomic_load_explicit(&sw_roce.qps[sw_qpn_index(qpn)], memory_order_acquire);
    return qp && qp->qpn == qpn ? qp : NULL;
}

static bool is_connected(enum ibv_qp_state state)
{
    return state == IBV_QPS_RTR || state == IBV_QPS_RTS || state == IBV_QPS_SQD ||
           state == IBV_QPS_SQE;
}

static enum sw_service service_of(enum ibv_qp_type type)
{
    return type == IBV_QPT_RC ? SW_SERVICE_RC : type == IBV_QPT_UC ? SW_SERVICE_UC : SW_SERVICE_XRC;
}

/* Whether it is from the peer, and of this connection's kind: IBTA Vol1 9.6.1.1, 9.6.1.2. */
static bool belongs(struct sw_roce_qp *r, const struct sw_arrival *arrival,
                    const struct sw_packet *packet)
{
    enum sw_service service = (enum sw_service)packet->opcode->service;
    return (service == SW_SERVICE_CNP || service == service_of(r->qp->type)) &&
           (packet->bth.pkey | SW_PKEY_MEMBER) == SW_PKEY_DEFAULT &&
           IN6_ARE_ADDR_EQUAL(&arrival->source, &r->path.dest) &&
           IN6_ARE_ADDR_EQUAL(&arrival->dest, &r->path.source) &&
           !sw_roce_life_is_over(r, packet->bth.reserved7, current.now_ns);
}

/* Over UC one side alone may be connected again. A peer that counts from its first PSN again would
 * be taken for a late copy of itself; but it comes from another source port. */
static void meet(struct sw_roce_qp *r, const struct sw_arrival *arrival,
                 const struct sw_packet *packet)
{
    const bool is_other = r->peer_port && r->peer_port != arrival->source_port;
    if (is_other && r->qp->type == IBV_QPT_UC && packet->opcode->position & SW_FIRST &&
        packet->bth.psn == r->responder.config.first_psn)
        sw_responder_begin_anew(&r->responder);
    r->peer_port = arrival->source_port;
}

static void deliver_connected(struct sw_qp *qp, struct sw_roce_qp *r,
                              const struct sw_arrival *arrival, const struct sw_packet *packet)
{
    struct sw_progress progress;
    if (packet->opcode->service == SW_SERVICE_CNP) {
        r->counts.cnps_received++;
        if (r->ring)
            sw_requester_cnp(&r->requester, current.now_ns);
        if (r->receives)
            sw_responder_cnp(&r->responder, current.now_ns);
        return;
    }
    if ((arrival->traffic_class & CONGESTED) == CONGESTED && r->receives) {
        r->counts.marked++;
        sw_responder_congested(&r->responder, current.now_ns);
    }
    const struct sw_opcode *opcode = packet->opcode;
    if (opcode->is_request) {
        current.requests++;
        current.ends = opcode->position & SW_LAST;
        current.completes =
            current.ends && (opcode->kind == SW_PACKET_SEND || opcode->headers & SW_HEADER_IMM);
        meet(r, arrival, packet);
        if (r->receives)
            sw_roce_respond(r, packet, current.now_ns);
    } else if (r->ring && qp->state != IBV_QPS_RTR) {
        sw_requester_receive(&r->requester, packet, current.now_ns, &progress);
        sw_roce_take_progress(r, &progress);
    }
}

bool sw_roce_find_receiver(const struct sw_arrival *arrival, struct sw_packet *packet,
                           struct sw_qp **qp)
{
    *qp = NULL;
    if (sw_packet_decode(arrival->bytes, arrival->len_bytes, packet) != SW_PACKET_FAULT_NONE) {
        sw_port_count(&sw_roce.port, SW_PORT_RX_MALFORMED, 1);
        return false;
    }
    if (packet->bth.dest_qpn == SW_MAD_QPN || packet->bth.dest_qpn == SW_MULTICAST_QPN)
        return true;
    *qp = find(packet->bth.dest_qpn);
    if (!*qp)
        sw_counter_add(NULL, SW_RX_DROP_NO_QP);
    return *qp;
}

void sw_roce_deliver_passed(struct sw_qp *qp, const struct sw_arrival *arrival,
                            const struct sw_packet *packet)
{
    if (qp != current.qp)
        sw_roce_deliver_end(false);
    if (!qp) {
        if (packet->bth.dest_qpn == SW_MAD_QPN)
            sw_roce_deliver_mad(arrival, packet);
        else
            sw_roce_deliver_to_group(arrival, packet);
        return;
    }
    if (qp->rules->is_datagram) {
        sw_roce_deliver_datagram(qp, arrival, packet);
        return;
    }
    if (!current.qp) {
        sw_lock_acquire(&qp->lock);
        current.qp = qp;
        current.requests = 0;
        current.now_ns = sw_clock_ns();
    }
    struct sw_roce_qp *r = qp->link == &sw_roce_qp_ops ? qp->link_state : NULL;
    if (!r || !is_connected(qp->state) || !belongs(r, arrival, packet))
        sw_counter_add(qp->ctx->netdev, SW_RX_DROP_NO_QP);
    else
        deliver_connected(qp, r, arrival, packet);
}

void sw_roce_deliver(void *arg, const struct sw_arrival *arrival)
{
    (void)arg;
    struct sw_packet packet;
    struct sw_qp *qp;
    if (!sw_roce_find_receiver(arrival, &packet, &qp))
        return;
    if (__builtin_expect(sw_faults_live != NULL, 0))
        sw_roce_impair_received(qp, arrival, &packet);
    else
        sw_roce_deliver_passed(qp, arrival, &packet);
}
