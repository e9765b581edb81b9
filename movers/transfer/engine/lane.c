/* SPDX-License-Identifier: BSD-2-Clause */
#include "transfer/engine/lane.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/minmax.h"
#include "common/time/clock.h"
#include "transfer/engine/adopt.h"
#include "transfer/engine/agent.h"
#include "transfer/engine/device.h"
#include "transfer/engine/notice.h"
#include "transfer/engine/peer.h"
#include "transfer/engine/send.h"

enum { RETRIES = 7, READS_MAX = 16 };

static struct sockaddr_storage sockaddr_of(const struct xfw_address *from)
{
    struct sockaddr_storage to = {.ss_family = from->family == 6 ? AF_INET6 : AF_INET};
    if (from->family == 6) {
        struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)&to;
        in6->sin6_port = htons(from->port);
        memcpy(&in6->sin6_addr, from->bytes, 16);
    } else {
        struct sockaddr_in *in = (struct sockaddr_in *)&to;
        in->sin_port = htons(from->port);
        memcpy(&in->sin_addr, from->bytes, 4);
    }
    return to;
}

/* ---- its beginning and its end ---- */

/* The address of the lane's own rail, where that is of the peer's family. False: the route
 * decides. */
static bool lane_find_source(const struct xfe_lane *lane, uint16_t family,
                             struct sockaddr_storage *from)
{
    const struct sw_xfer_agent *agent = lane->peer->agent;
    if (!agent->rails_count)
        return false;
    *from = agent->rails[(lane->index + lane->source_at) % agent->rails_count].listener.address;
    if (from->ss_family == AF_INET6)
        ((struct sockaddr_in6 *)from)->sin6_port = 0;
    else
        ((struct sockaddr_in *)from)->sin_port = 0;
    return from->ss_family == family;
}

static void connect_lane(struct xfe_lane *lane)
{
    struct sw_xfer_agent *agent = lane->peer->agent;
    const struct xfw_address *at = &lane->peer->card.addresses[lane->address_at];
    const struct sockaddr_storage to = sockaddr_of(at);
    struct sockaddr_storage from;
    char text[INET6_ADDRSTRLEN] = "?";
    inet_ntop(to.ss_family, at->bytes, text, sizeof(text));
    snprintf(lane->where, sizeof(lane->where), "%s port %u", text, at->port);
    const bool has_source = lane_find_source(lane, to.ss_family, &from);
    lane->state = XFE_CONNECTING;
    lane->connect_deadline_ns = sw_xfer_deadline_ms(agent->options.connect_timeout_ms);
    const enum mover_event event = mover_connection_start(
        &lane->connection, agent->epoll_fd, &lane->source,
        has_source ? (const struct sockaddr *)&from : NULL, (const struct sockaddr *)&to);
    if (event == MOVER_NO_RDMA)
        xfe_peer_gone(lane->peer, SW_XFER_ADDRESS,
                      "there is no RDMA device; a software one: sidewire run");
    else if (event)
        xfe_lane_try_next(lane, SW_XFER_ADDRESS, "no RDMA device leads there");
}

void xfe_lane_start(struct xfe_lane *lane)
{
    lane->address_at = lane->index;
    lane->source_at = 0;
    connect_lane(lane);
}

void xfe_lane_try_next(struct xfe_lane *lane, enum sw_xfer_status status, const char *what)
{
    const struct sw_xfer_peer *peer = lane->peer;
    if (++lane->source_at >= peer->agent->rails_count) {
        lane->source_at = 0;
        /* With several lanes each has its address; else one after the other is tried. */
        if (peer->lanes_count > 1 || ++lane->address_at == peer->card.addresses_count)
            return xfe_peer_lane_lost(lane, status, what);
    }
    xfe_lane_drop(lane);
    connect_lane(lane);
}

void xfe_lane_drop(struct xfe_lane *lane)
{
    struct xfc_flow *flow = &lane->peer->flow;
    const bool was_up = lane->state == XFE_UP;
    mover_connection_destroy(&lane->connection);
    lane->has_broken = false;
    lane->state = XFE_DOWN;
    xfc_flow_reset(flow, lane->index, mover_now_ns());
    lane->peer->agent->progress++;
    if (!was_up)
        return;
    lane->is_dirty = true;
    lane->dirty_ns = mover_now_ns();
    lane->dirty_resets = flow->lanes[lane->index].resets;
}

void xfe_lane_free(struct xfe_lane *lane)
{
    if (!xfe_is_forked(lane->peer->agent)) {
        mover_connection_destroy(&lane->connection);
        if (lane->scratch_mr)
            ibv_dereg_mr(lane->scratch_mr);
        free(lane->scratch);
    } /* else the parent's device has these pages, which a child may lack */
    free(lane->peer->flow.lanes[lane->index].ring);
}

/* ---- its request, and the answer ---- */

static bool register_scratch(struct xfe_lane *lane)
{
    if (lane->scratch_mr && lane->scratch_device == lane->device)
        return true;
    if (lane->scratch_mr && ibv_dereg_mr(lane->scratch_mr))
        return false;
    lane->scratch_device = lane->device;
    lane->scratch_mr =
        ibv_reg_mr(lane->device->pd, lane->scratch, sizeof(*lane->scratch), IBV_ACCESS_LOCAL_WRITE);
    return lane->scratch_mr;
}

static bool lane_make_queue(struct xfe_lane *lane)
{
    const struct sw_xfer_agent *agent = lane->peer->agent;
    struct mover_connection *connection = &lane->connection;
    const uint32_t proofs = xfe_lane_is_iwarp(lane) ? agent->options.queue_depth : 0;
    const struct ibv_qp_init_attr attr = {
        .cap = {.max_send_wr = agent->options.queue_depth + proofs,
                .max_recv_wr = XFE_CREDITS,
                .max_send_sge = agent->pieces_max,
                .max_recv_sge = 1},
    };
    return register_scratch(lane) &&
           mover_connection_queue(connection, agent->options.queue_depth + XFE_CREDITS) &&
           mover_queue_make_qp(&connection->queue, connection->id, lane->device->pd, &attr) &&
           xfe_send_post_receives(lane);
}

static void lane_send_request(struct xfe_lane *lane)
{
    struct sw_xfer_peer *peer = lane->peer;
    struct sw_xfer_agent *agent = peer->agent;
    struct xfw_connect hello = {.layout = agent->options.layout,
                                .session = peer->session,
                                .lane = (uint8_t)lane->index,
                                .count = (uint8_t)lane->connections};
    uint8_t bytes[XFW_CONNECT_BYTES];
    lane->device = xfe_device_adopt(agent, lane->connection.id->verbs);
    if (!lane->device || !lane_make_queue(lane))
        return xfe_peer_lane_lost(lane, SW_XFER_NO_MEMORY,
                                  lane->device ? "the RDMA device here has no room for a queue"
                                               : "the RDMA device here has no room");
    memcpy(hello.called, peer->card.instance, sizeof(hello.called));
    memcpy(hello.calling, agent->instance, sizeof(hello.calling));
    xfw_put_connect(bytes, &hello);
    const uint32_t reads = lane->device->reads_max;
    struct rdma_conn_param param = {
        .private_data = bytes,
        .private_data_len = sizeof(bytes),
        .initiator_depth = (uint8_t)(reads < READS_MAX ? reads : READS_MAX),
        .retry_count = RETRIES,
        .rnr_retry_count = RETRIES,
    };
    if (rdma_connect(lane->connection.id, &param))
        xfe_lane_try_next(lane, SW_XFER_SYSTEM, strerror(errno));
}

static void lane_take_answer(struct xfe_lane *lane)
{
    struct sw_xfer_peer *peer = lane->peer;
    struct xfw_accept accept;
    if (!xfw_get_accept(lane->connection.private_data, lane->connection.private_bytes, &accept))
        return xfe_peer_gone(peer, SW_XFER_PROTOCOL, "%s does not speak this protocol",
                             lane->where);
    if (memcmp(accept.instance, peer->card.instance, sizeof(accept.instance)) != 0)
        return xfe_peer_gone(peer, SW_XFER_INSTANCE, "another instance is at %s now", lane->where);
    peer->flow.outs_max = mover_min_u32(accept.notices, XFE_CREDITS);
    peer->flow.outs_kept = peer->lanes_count > 1 && peer->flow.outs_max > 1;
    peer->abilities = accept.abilities;
    peer->notice_bytes_max = accept.notice_bytes_max;
    xfe_peer_lane_up(lane);
}

static void lane_explain_refusal(struct xfe_lane *lane)
{
    static const struct {
        enum sw_xfer_status status;
        const char *text;
    } why[] = {
        [XFW_REASON_VERSION] = {SW_XFER_VERSION, "it speaks another version of the protocol"},
        [XFW_REASON_MALFORMED] = {SW_XFER_PROTOCOL, "it does not understand the request"},
        [XFW_REASON_INSTANCE] = {SW_XFER_INSTANCE,
                                 "another instance than that of the card is there"},
        [XFW_REASON_LAYOUT] = {SW_XFER_LAYOUT, "it lays its blocks out in another way"},
        [XFW_REASON_MANY] = {SW_XFER_REFUSED, "it has too many visitors"},
        [XFW_REASON_MEMORY] = {SW_XFER_REFUSED, "its RDMA device has no room for this peer"},
    };
    const enum xfw_reason reason =
        xfw_get_reject(lane->connection.private_data, lane->connection.private_bytes);
    if (!reason)
        return xfe_lane_try_next(
            lane, SW_XFER_PEER_GONE,
            "nobody is there: its agent has ended, and a new one makes a new card");
    if (lane->peer->lanes_count > 1 && why[reason].status == SW_XFER_REFUSED)
        return xfe_peer_lane_lost(lane, SW_XFER_REFUSED, why[reason].text); /* others may do */
    xfe_peer_gone(lane->peer, why[reason].status, "%s refuses: %s", lane->where, why[reason].text);
}

static void lane_take_event(struct xfe_lane *lane, enum mover_event event)
{
    lane->peer->agent->progress++;
    switch (event) {
    case MOVER_NOTHING:
        return;
    case MOVER_ROUTED:
        return lane_send_request(lane);
    case MOVER_UP:
        return lane_take_answer(lane);
    case MOVER_REJECTED:
        return lane_explain_refusal(lane);
    case MOVER_NO_RDMA:
    case MOVER_FAULT:
    case MOVER_NO_DEVICE:
        return xfe_lane_try_next(lane, SW_XFER_ADDRESS, "no RDMA device leads there");
    case MOVER_NO_ANSWER:
        return xfe_lane_try_next(lane, SW_XFER_PEER_GONE, "it does not answer");
    case MOVER_ENDED:
        return xfe_peer_lane_lost(lane, SW_XFER_PEER_GONE, "it has ended the connection");
    case MOVER_DEVICE_GONE:
        return xfe_peer_lane_lost(lane, SW_XFER_SYSTEM, "the RDMA device here is gone");
    }
}

void xfe_lane_events(struct xfe_lane *lane)
{
    enum mover_event event;
    mover_queue_drain(&lane->connection.queue);
    while (lane->connection.events &&
           (event = mover_connection_next(&lane->connection)) != MOVER_NOTHING) {
        /* Requests that were answered before the end count: look for their answers first. */
        if (event == MOVER_ENDED && lane->state == XFE_UP)
            xfe_send_poll(lane);
        if (lane->connection.events)
            lane_take_event(lane, event);
    }
    xfe_peer_push(lane->peer);
}

void xfe_lane_restart(struct xfe_lane *lane)
{
    xfe_lane_drop(lane);
    xfe_peer_lane_down(lane);
    xfe_lane_start(lane);
}
