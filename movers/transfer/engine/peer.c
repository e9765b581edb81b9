/* SPDX-License-Identifier: BSD-2-Clause */
/* Peers: connecting, live, gone, and the timers between. */
#include <arpa/inet.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "transfer/engine/engine.h"

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

static void drop_queue(struct sw_xfer_peer *peer)
{
    mover_connection_destroy(&peer->connection);
    peer->has_stash = peer->has_more = peer->has_broken = false;
    xfc_flow_reset(&peer->flow, 0, mover_now_ns());
    peer->agent->progress++;
}

static void set_gone(struct sw_xfer_peer *peer, enum sw_xfer_status status)
{
    drop_queue(peer);
    peer->state = SW_XFER_GONE;
    peer->error.status = status;
    xfc_flow_fail_all(&peer->flow, peer->was_live ? SW_XFER_PEER_GONE : status, mover_now_ns());
}

void xfe_peer_gone(struct sw_xfer_peer *peer, enum sw_xfer_status status, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(peer->error.text, sizeof(peer->error.text), format, args);
    va_end(args);
    set_gone(peer, status);
}

/* To the address of the card whose turn it is. */
static void start_connection(struct sw_xfer_peer *peer)
{
    struct sw_xfer_agent *agent = peer->agent;
    const struct xfw_address *at = &peer->card.addresses[peer->address_at];
    const struct sockaddr_storage to = sockaddr_of(at);
    struct sockaddr_storage from = agent->address;
    char text[INET6_ADDRSTRLEN] = "?";
    inet_ntop(to.ss_family, at->bytes, text, sizeof(text));
    snprintf(peer->where, sizeof(peer->where), "%s port %u", text, at->port);
    if (from.ss_family == AF_INET6)
        ((struct sockaddr_in6 *)&from)->sin6_port = 0;
    else
        ((struct sockaddr_in *)&from)->sin_port = 0;
    peer->state = SW_XFER_CONNECTING;
    peer->connect_deadline_ns = sw_xfer_deadline_ms(agent->options.connect_timeout_ms);
    const bool has_source = agent->listener && from.ss_family == to.ss_family;
    const int code = mover_connection_start(&peer->connection, agent->epoll_fd, &peer->source,
                                            has_source ? (const struct sockaddr *)&from : NULL,
                                            (const struct sockaddr *)&to);
    if (code == -ENODEV)
        xfe_peer_gone(peer, SW_XFER_ADDRESS,
                      "there is no RDMA device; a software one: sidewire run");
    else if (code)
        xfe_peer_gone(peer, SW_XFER_ADDRESS, "no RDMA device leads to %s: %s", peer->where,
                      strerror(-code));
}

/* The other addresses of the card, then none. */
static void try_next(struct sw_xfer_peer *peer, enum sw_xfer_status status, const char *what)
{
    if (++peer->address_at == peer->card.addresses_count)
        return xfe_peer_gone(peer, status, "%s: %s", peer->where, what);
    drop_queue(peer);
    start_connection(peer);
}

static bool make_queue(struct sw_xfer_peer *peer)
{
    struct sw_xfer_agent *agent = peer->agent;
    struct mover_connection *connection = &peer->connection;
    struct ibv_qp_init_attr attr = {
        .cap = {.max_send_wr = agent->options.queue_depth,
                .max_recv_wr = XFE_CREDITS,
                .max_send_sge = agent->pieces_max,
                .max_recv_sge = 1},
        .qp_type = IBV_QPT_RC,
    };
    if (!peer->scratch_mr)
        peer->scratch_mr =
            ibv_reg_mr(agent->pd, peer->scratch, sizeof(*peer->scratch), IBV_ACCESS_LOCAL_WRITE);
    if (!peer->scratch_mr ||
        !mover_connection_queue(connection, agent->options.queue_depth + XFE_CREDITS))
        return false;
    attr.send_cq = attr.recv_cq = connection->cq;
    return !rdma_create_qp(connection->id, agent->pd, &attr) && xfe_send_post_receives(peer);
}

static void send_request(struct sw_xfer_peer *peer)
{
    struct sw_xfer_agent *agent = peer->agent;
    struct xfw_connect hello = {.layout = agent->options.layout, .session = peer->session};
    uint8_t bytes[XFW_CONNECT_BYTES];
    if (!xfe_agent_adopt(agent, peer->connection.id->verbs))
        return xfe_peer_gone(peer, SW_XFER_ADDRESS,
                             "%s is reached by another RDMA device than that of the agent, or the "
                             "device has no room",
                             peer->where);
    if (!make_queue(peer))
        return xfe_peer_gone(peer, SW_XFER_NO_MEMORY, "the RDMA device has no room for a queue: %s",
                             strerror(errno));
    memcpy(hello.called, peer->card.instance, sizeof(hello.called));
    memcpy(hello.calling, agent->instance, sizeof(hello.calling));
    xfw_put_connect(bytes, &hello);
    struct rdma_conn_param param = {
        .private_data = bytes,
        .private_data_len = sizeof(bytes),
        .initiator_depth = (uint8_t)(agent->reads_max < READS_MAX ? agent->reads_max : READS_MAX),
        .retry_count = RETRIES,
        .rnr_retry_count = RETRIES,
    };
    if (rdma_connect(peer->connection.id, &param))
        xfe_peer_gone(peer, SW_XFER_SYSTEM, "connect to %s: %s", peer->where, strerror(errno));
}

static void take_answer(struct sw_xfer_peer *peer)
{
    struct xfw_accept accept;
    if (!xfw_get_accept(peer->connection.private_data, peer->connection.private_bytes, &accept))
        return xfe_peer_gone(peer, SW_XFER_PROTOCOL, "%s does not speak this protocol",
                             peer->where);
    if (memcmp(accept.instance, peer->card.instance, sizeof(accept.instance)) != 0)
        return xfe_peer_gone(peer, SW_XFER_INSTANCE, "another instance is at %s now", peer->where);
    peer->flow.outs_max = accept.notices < XFE_CREDITS ? accept.notices : XFE_CREDITS;
    peer->abilities = accept.abilities;
    peer->notice_bytes_max = accept.notice_bytes_max;
    peer->state = SW_XFER_LIVE;
    peer->was_live = true;
    xfc_flow_settled(&peer->flow, 0);
    xfe_send_push(peer);
}

static void explain_refusal(struct sw_xfer_peer *peer)
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
        xfw_get_reject(peer->connection.private_data, peer->connection.private_bytes);
    if (!reason)
        return try_next(peer, SW_XFER_PEER_GONE, "nobody is there");
    xfe_peer_gone(peer, why[reason].status, "%s refuses: %s", peer->where, why[reason].text);
}

static void take_event(struct sw_xfer_peer *peer, enum mover_event event)
{
    peer->agent->progress++;
    switch (event) {
    case MOVER_NOTHING:
        return;
    case MOVER_ROUTED:
        return send_request(peer);
    case MOVER_UP:
        return take_answer(peer);
    case MOVER_REJECTED:
        return explain_refusal(peer);
    case MOVER_NO_DEVICE:
        return try_next(peer, SW_XFER_ADDRESS, "no RDMA device leads there");
    case MOVER_NO_ANSWER:
        return try_next(peer, SW_XFER_PEER_GONE, "it does not answer");
    case MOVER_ENDED:
        return xfe_peer_gone(peer, SW_XFER_PEER_GONE, "%s has ended the connection", peer->where);
    case MOVER_DEVICE_GONE:
        return xfe_peer_gone(peer, SW_XFER_SYSTEM, "the RDMA device is gone");
    }
}

void xfe_peer_events(struct sw_xfer_peer *peer)
{
    enum mover_event event;
    mover_connection_drain(&peer->connection);
    while (peer->connection.events &&
           (event = mover_connection_next(&peer->connection)) != MOVER_NOTHING) {
        /* What was answered before the end counts: look for it first. */
        if (event == MOVER_ENDED && peer->state == SW_XFER_LIVE)
            xfe_send_poll(peer);
        if (peer->connection.events)
            take_event(peer, event);
    }
}

void xfe_peer_restart(struct sw_xfer_peer *peer)
{
    drop_queue(peer);
    peer->address_at = 0;
    start_connection(peer);
}

void xfe_peer_timers(struct sw_xfer_peer *peer, uint64_t now_ns)
{
    const struct sw_xfer_agent_options *options = &peer->agent->options;
    const bool is_stuck = xfc_flow_timers(&peer->flow, now_ns);
    if (peer->state == SW_XFER_CONNECTING && now_ns > peer->connect_deadline_ns)
        return try_next(peer, SW_XFER_PEER_GONE, "it does not answer");
    if (peer->state != SW_XFER_LIVE)
        return;
    if (is_stuck || peer->has_broken)
        return xfe_peer_restart(peer);
    if (xfc_flow_waits(&peer->flow, 0) &&
        now_ns > peer->progress_ns + options->stall_timeout_ms * XFE_MS)
        xfe_peer_gone(peer, SW_XFER_PEER_GONE, "%s has confirmed nothing for %u ms", peer->where,
                      options->stall_timeout_ms);
}

uint64_t xfe_peer_wake_ns(const struct sw_xfer_peer *peer)
{
    uint64_t wake = peer->flow.wake_ns;
    if (peer->state == SW_XFER_CONNECTING && peer->connect_deadline_ns < wake)
        wake = peer->connect_deadline_ns;
    const uint64_t stall = peer->progress_ns + peer->agent->options.stall_timeout_ms * XFE_MS;
    if (peer->state == SW_XFER_LIVE && xfc_flow_waits(&peer->flow, 0) && stall < wake)
        wake = stall;
    return peer->has_broken ? 0 : wake;
}

enum sw_xfer_status sw_xfer_connect(struct sw_xfer_agent *agent, const void *card,
                                    size_t card_bytes, struct sw_xfer_error *error,
                                    struct sw_xfer_peer **out)
{
    struct xfw_card got;
    if (xfe_is_forked(agent))
        return xfe_fail(error, SW_XFER_FORKED, "%s", sw_xfer_status_text(SW_XFER_FORKED));
    const enum sw_xfer_status status = xfw_get_card(card, card_bytes, &got);
    if (status)
        return xfe_fail(error, status, "%s", sw_xfer_status_text(status));
    if (got.layout && agent->options.layout && got.layout != agent->options.layout)
        return xfe_fail(error, SW_XFER_LAYOUT, "%s", sw_xfer_status_text(SW_XFER_LAYOUT));
    struct sw_xfer_peer *peer = calloc(1, sizeof(*peer));
    struct xfc_entry *ring = calloc(agent->options.queue_depth, sizeof(*ring));
    if (peer)
        peer->scratch = xfe_pages(sizeof(*peer->scratch));
    if (!peer || !ring || !peer->scratch) {
        if (peer)
            free(peer->scratch);
        free(peer);
        free(ring);
        return xfe_fail(error, SW_XFER_NO_MEMORY, "out of memory");
    }
    peer->source.kind = XFE_PEER;
    peer->agent = agent;
    peer->card = got;
    peer->session = ++agent->last_session;
    xfc_flow_init(&peer->flow, agent->options.drain_timeout_ms * XFE_MS, &agent->ended);
    xfc_flow_lane(&peer->flow, 0, ring, agent->options.queue_depth, agent->options.window_bytes);
    list_append(&agent->peers, &peer->node);
    start_connection(peer);
    *out = peer;
    return SW_XFER_OK;
}

enum sw_xfer_peer_state sw_xfer_peer_state_of(const struct sw_xfer_peer *peer)
{
    return peer->state;
}

void sw_xfer_peer_error(const struct sw_xfer_peer *peer, struct sw_xfer_error *error)
{
    *error = peer->error;
}

void xfe_peer_free(struct sw_xfer_peer *peer)
{
    list_remove(&peer->node);
    if (!xfe_is_forked(peer->agent)) {
        mover_connection_destroy(&peer->connection);
        if (peer->scratch_mr)
            ibv_dereg_mr(peer->scratch_mr);
    }
    free(peer->flow.lanes[0].ring);
    free(peer->scratch);
    free(peer);
}

enum sw_xfer_status sw_xfer_peer_release(struct sw_xfer_peer *peer)
{
    if (peer->uses)
        return SW_XFER_BUSY;
    xfe_peer_free(peer);
    return SW_XFER_OK;
}
