/* SPDX-License-Identifier: BSD-2-Clause */
/* Packets to queue pairs. The one a packet is for stays locked until one for another comes, so that
 * a run of packets is answered at once. */
#include "link/roce/deliver.h"

#include "base/clock.h"
#include "device/queue/ah.h"
#include "device/queue/counters.h"
#include "device/queue/cq_impl.h"
#include "link/roce/datagram.h"
#include "link/roce/impair.h"
#include "link/roce/liveness/lifeline.h"
#include "link/roce/mad.h"
#include "link/roce/port/arrival.h"
#include "link/roce/port/port.h"
#include "link/roce/port/tx.h"
#include "link/roce/qp/delayed_ack.h"
#include "link/roce/qp/identity.h"
#include "link/roce/qp/qp.h"
#include "link/roce/qp/request.h"
#include "link/roce/qp/respond.h"
#include "link/roce/roce.h"
#include "transport/piggyback.h"

#define AMID_NS (100 * SW_NS_PER_US) /* in which the next packet of a WRITE comes, mostly */
#define GATHER_BYTES (16u << 10)     /* after so many bytes the answers to them do not wait */

static struct {
    struct sw_qp *qp;  /* locked */
    uint32_t bytes;    /* that have come since answers left */
    uint32_t requests; /* among the packets of this run */
    bool is_amid;      /* the last of them is of a WRITE that has not ended: it asks for no ACK */
    bool ends;         /* the last of them ended a message, ... */
    bool completes;    /* ... a message that the program is told of */
    bool wakes;        /* the program sleeps until an event of its queue */
    uint64_t now_ns;
} current; /* under rx_lock */

/* Whether the ACK of what came may wait for the next message that the program posts. A program that
 * has polled a message usually answers it. The ACK of many packets, of packets that the program is
 * not told of, or of a message that it has to be woken for, waits only if the program has answered
 * such before. */
static bool ack_may_wait(struct sw_roce_qp *r, bool is_polled, bool wakes)
{
    if (current.completes && !is_polled && !wakes)
        return false;
    const bool answers = sw_delayed_ack_expects_echo(r, wakes, current.now_ns);
    if (current.requests > SW_DELAYED_ACK_RUN)
        return answers && current.requests <= SW_DELAYED_ACK_ECHO_RUN;
    return answers || (current.completes && is_polled);
}

void sw_roce_deliver_end(bool is_polled)
{
    sw_lock_assert_held(&sw_roce.port.rx_lock);
    struct sw_qp *qp = current.qp;
    if (!qp)
        return;
    struct sw_roce_qp *r = qp->link == &sw_roce_qp_ops ? qp->link_state : NULL;
    if (r && r->line && !r->is_met &&
        (r->requester.peer_selective || r->responder.peer_selective)) {
        r->is_met = true;
        sw_lifeline_meet(r->line);
    }
    if (current.requests)
        sw_roce.amid_until_ns = current.is_amid ? current.now_ns + AMID_NS : 0;
    const bool wakes = current.wakes && !is_polled;
    const bool may_wait =
        r && current.requests && current.ends && ack_may_wait(r, is_polled, wakes);
    if (r && !(may_wait && sw_delayed_ack_defer(r, current.requests, wakes, current.now_ns))) {
        r->delayed_acks = 0;
        qp->link->progress(qp);
    }
    sw_lock_release(&qp->lock);
    current.qp = NULL;
}

static struct sw_qp *deliver_find_qp(uint32_t qpn)
{
    struct sw_qp *qp = atomic_load_explicit(&sw_roce.qps[sw_qpn_index(qpn)], memory_order_acquire);
    return qp && qp->qpn == qpn ? qp : NULL;
}

static bool deliver_is_connected(enum ibv_qp_state state)
{
    return state == IBV_QPS_RTR || state == IBV_QPS_RTS || state == IBV_QPS_SQD ||
           state == IBV_QPS_SQE;
}

static enum sw_service deliver_service_of(enum ibv_qp_type type)
{
    return type == IBV_QPT_RC ? SW_SERVICE_RC : type == IBV_QPT_UC ? SW_SERVICE_UC : SW_SERVICE_XRC;
}

/* Whether it comes from the peer's address, and is of this connection's kind: IBTA Vol1 9.6.1.1,
 * 9.6.1.2. */
static bool matches_connection(const struct sw_roce_qp *r, const struct sw_arrival *arrival,
                               const struct sw_packet *packet)
{
    enum sw_service service = (enum sw_service)packet->opcode->service;
    return (service == SW_SERVICE_CNP || service == deliver_service_of(r->qp->type)) &&
           (packet->bth.pkey | SW_PKEY_MEMBER) == SW_PKEY_DEFAULT &&
           IN6_ARE_ADDR_EQUAL(&arrival->source, &r->path.dest) &&
           IN6_ARE_ADDR_EQUAL(&arrival->dest, &r->path.source);
}

static bool is_of_peer(struct sw_roce_qp *r, const struct sw_arrival *arrival,
                       const struct sw_packet *packet)
{
    if (packet->opcode->service == SW_SERVICE_CNP)
        return sw_roce_is_notified(r, arrival);
    return sw_roce_is_of_peer(r, arrival, packet, current.now_ns);
}

/* The ACK in a request is taken in before the request: in this order the peer has made them. */
static enum sw_roce_outcome take_piggyback(struct sw_roce_qp *r, const struct sw_packet *request)
{
    struct sw_progress progress;
    struct sw_packet ack;
    if (!r->ring || r->qp->state == IBV_QPS_RTR || !sw_piggyback_unload(request, &ack))
        return SW_ROCE_ALIVE;
    sw_requester_receive(&r->requester, &ack, current.now_ns, &progress);
    return sw_roce_take_progress(r, &progress);
}

/* Returns how many packets of the run were dealt with. */
static uint32_t deliver_connected(struct sw_qp *qp, struct sw_roce_qp *r,
                                  const struct sw_packet_run *run)
{
    const struct sw_packet *packet = &run->first;
    struct sw_progress progress;
    uint32_t count = 1;
    if (packet->opcode->service == SW_SERVICE_CNP) {
        r->counts.cnps_received++;
        if (r->ring)
            sw_requester_cnp(&r->requester, current.now_ns);
        if (r->receives)
            sw_responder_cnp(&r->responder, current.now_ns);
        return count;
    }
    const struct sw_opcode *opcode = packet->opcode;
    if (__builtin_expect(opcode->headers & SW_HEADER_PIGGYBACK, 0) &&
        take_piggyback(r, packet) == SW_ROCE_DEAD)
        return count;
    if (opcode->is_request) {
        current.ends = opcode->position & SW_LAST;
        current.is_amid = opcode->kind == SW_PACKET_WRITE && !run->ack_req;
        current.completes =
            current.ends && (opcode->kind == SW_PACKET_SEND || opcode->headers & SW_HEADER_IMM);
        if (r->receives)
            count = sw_roce_respond(r, run, current.now_ns);
        current.requests += count;
    } else if (r->ring && qp->state != IBV_QPS_RTR) {
        sw_requester_receive(&r->requester, packet, current.now_ns, &progress);
        sw_roce_take_progress(r, &progress);
    }
    return count;
}

static void keep_locked(struct sw_qp *qp)
{
    if (qp == current.qp)
        return;
    sw_roce_deliver_end(false);
    if (current.bytes >= GATHER_BYTES) {
        sw_batch_gather_flush();
        current.bytes = 0;
    }
    sw_lock_acquire(&qp->lock);
    current.qp = qp;
    current.requests = 0;
    current.wakes = atomic_load(&qp->recv_cq->pub->armed) != SW_CQ_DISARMED;
    current.now_ns = sw_clock_ns();
}

/* NULL: the packet is none of the connection's, or it has failed. */
static struct sw_roce_qp *connection_of(const struct sw_qp *qp, const struct sw_arrival *arrival,
                                        const struct sw_packet *packet)
{
    struct sw_roce_qp *r = qp->link == &sw_roce_qp_ops ? qp->link_state : NULL;
    return r && (deliver_is_connected(qp->state) || r->ended_ns) &&
                   matches_connection(r, arrival, packet)
               ? r
               : NULL;
}

static void hear_of_congestion(struct sw_roce_qp *r, const struct sw_arrival *arrival,
                               const struct sw_packet_run *run)
{
    const bool is_marked = sw_arrival_is_marked(arrival);
    if (!is_marked || !r->receives || run->first.opcode->service == SW_SERVICE_CNP)
        return;
    r->counts.marked += run->count;
    sw_responder_congested(&r->responder, current.now_ns);
}

/* All packets of it, which is then empty. Returns whether they are of a peer that is known. */
static bool deliver_run(struct sw_qp *qp, const struct sw_arrival *arrival,
                        struct sw_packet_run *run)
{
    keep_locked(qp);
    current.bytes += run->count * arrival->len_bytes;
    for (bool is_begun = false; run->count; is_begun = true) {
        struct sw_roce_qp *r = connection_of(qp, arrival, &run->first);
        if (!r) {
            sw_counter_add_many(qp->ctx->netdev, SW_RX_DROP_NO_QP, run->count);
            return is_begun;
        }
        if (!is_of_peer(r, arrival, &run->first)) {
            r->counts.astray += run->count;
            return false;
        }
        if (!is_begun)
            hear_of_congestion(r, arrival, run);
        const bool is_over = r->ended_ns, is_known = r->peer.is_known;
        const uint32_t count = deliver_connected(qp, r, run);
        sw_packet_run_skip(run, count);
        if (is_over) /* not executed, even if it is answered again */
            sw_counter_add_many(qp->ctx->netdev, SW_RX_DROP_NO_QP, count);
        if (!run->count)
            return is_known;
    }
    return false;
}

bool sw_roce_find_receiver(const struct sw_arrival *arrival, struct sw_packet *packet,
                           struct sw_qp **qp)
{
    *qp = NULL;
    if (sw_packet_decode(arrival->bytes, arrival->len_bytes, packet) != SW_PACKET_FAULT_NONE) {
        sw_port_count(&sw_roce.port, SW_PORT_RX_MALFORMED, arrival->count);
        return false;
    }
    packet->hold = arrival->hold;
    if (packet->bth.dest_qpn == SW_MAD_QPN || packet->bth.dest_qpn == SW_MULTICAST_QPN)
        return true;
    *qp = deliver_find_qp(packet->bth.dest_qpn);
    if (!*qp)
        sw_counter_add_many(NULL, SW_RX_DROP_NO_QP, arrival->count);
    return *qp;
}

bool sw_roce_deliver_passed(struct sw_qp *qp, const struct sw_arrival *arrival,
                            const struct sw_packet *packet)
{
    if (qp && !qp->rules->is_datagram) {
        struct sw_packet_run run = {.first = *packet, .count = 1, .ack_req = packet->bth.ack_req};
        return deliver_run(qp, arrival, &run);
    }
    sw_roce_deliver_end(false);
    if (qp)
        return sw_roce_deliver_datagram(qp, arrival, packet);
    if (packet->bth.dest_qpn == SW_MAD_QPN)
        sw_roce_deliver_mad(arrival, packet);
    else
        sw_roce_deliver_to_group(arrival, packet);
    return false;
}

static bool deliver_single(struct sw_qp *qp, const struct sw_arrival *arrival,
                           const struct sw_packet *packet)
{
    if (__builtin_expect(sw_faults_live != NULL, 0))
        return sw_roce_impair_received(qp, arrival, packet);
    return sw_roce_deliver_passed(qp, arrival, packet);
}

/* Packets of a run that the receiver has to look at one by one. */
static bool deliver_each(const struct sw_arrival *arrival)
{
    struct sw_packet packet;
    struct sw_qp *qp;
    struct sw_arrival single = *arrival;
    bool is_known = false;
    single.count = 1;
    for (uint32_t i = 0; i < arrival->count; i++) {
        if (sw_roce_find_receiver(&single, &packet, &qp))
            is_known |= deliver_single(qp, &single, &packet);
        single.bytes += single.len_bytes;
    }
    return is_known;
}

bool sw_roce_deliver(void *arg, const struct sw_arrival *arrival)
{
    (void)arg;
    struct sw_packet_run run;
    struct sw_qp *qp;
    if (!sw_roce_find_receiver(arrival, &run.first, &qp))
        return false;
    const uint32_t count = arrival->count, stride = arrival->len_bytes;
    const bool is_of_connection = qp && !qp->rules->is_datagram;
    if (is_of_connection && (!sw_faults_live || sw_roce_impair_spares(qp, count))) {
        run.count = count;
        run.stride_bytes = stride;
        run.ack_req = sw_packet_asks(arrival->bytes + (size_t)(count - 1) * stride);
        return deliver_run(qp, arrival, &run);
    }
    return count > 1 ? deliver_each(arrival) : deliver_single(qp, arrival, &run.first);
}
