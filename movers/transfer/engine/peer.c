/* SPDX-License-Identifier: BSD-2-Clause */
#include "transfer/engine/peer.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/minmax.h"
#include "common/rdma/memory.h"
#include "common/time/clock.h"
#include "transfer/engine/agent.h"
#include "transfer/engine/device.h"
#include "transfer/engine/lane.h"
#include "transfer/engine/send.h"
#include "transfer/engine/source.h"
#include "transfer/engine/status.h"

enum { RETRY_MS = 500, RETRY_DOUBLED_MAX = 4, ROUNDS = 16 };

/* ---- the end ---- */

static void set_gone(struct sw_xfer_peer *peer, enum sw_xfer_status status)
{
    for (uint32_t i = 0; i < peer->lanes_count; i++)
        xfe_lane_drop(&peer->lanes[i]);
    peer->state = SW_XFER_GONE;
    peer->has_more = false;
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

/* ---- lanes among each other ---- */

/* One that is in that state; NULL: none. */
static struct xfe_lane *peer_find_lane(const struct sw_xfer_peer *peer, enum xfe_lane_state state)
{
    for (uint32_t i = 0; i < peer->lanes_count; i++)
        if (peer->lanes[i].state == state)
            return &peer->lanes[i];
    return NULL;
}

/* Another one asks the peer to end its side, and has the messages from now on. */
void xfe_peer_lane_down(struct xfe_lane *lane)
{
    struct sw_xfer_peer *peer = lane->peer;
    const struct xfe_lane *other = peer_find_lane(peer, XFE_UP);
    if (!other) {
        peer->state = SW_XFER_CONNECTING;
        return;
    }
    if (peer->flow.message_lane == lane->index)
        peer->flow.message_lane = other->index;
    if (lane->is_dirty)
        xfc_flow_drop(&peer->flow, lane->index);
}

void xfe_peer_lane_lost(struct xfe_lane *lane, enum sw_xfer_status status, const char *what)
{
    struct sw_xfer_peer *peer = lane->peer;
    xfe_lane_drop(lane);
    lane->retry_ns = mover_now_ns() + (RETRY_MS * NS_PER_MS << lane->failures);
    lane->failures += lane->failures < RETRY_DOUBLED_MAX;
    if (!peer_find_lane(peer, XFE_UP) && !peer_find_lane(peer, XFE_CONNECTING))
        return xfe_peer_gone(peer, status, "%s: %s", lane->where, what);
    xfe_peer_lane_down(lane);
}

/* Also those of our own rails: a lane may come from another now, as its own port is down. */
static void watch_devices(struct xfe_lane *lane)
{
    struct sw_xfer_agent *agent = lane->peer->agent;
    xfe_device_watch(lane->device);
    for (uint32_t i = 0; i < agent->rails_count; i++)
        xfe_device_watch(&agent->devices[agent->rails[i].device]);
}

/* Up again, but from another rail than its own, whose port came back: that is tried some times. */
static void plan_return(struct xfe_lane *lane)
{
    const bool is_due = xfe_lane_is_away(lane) && lane->home_tries;
    lane->home_ns =
        is_due ? mover_now_ns() + (RETRY_MS * NS_PER_MS << (XFE_HOME_TRIES - lane->home_tries)) : 0;
    lane->home_tries -= is_due;
}

/* The request for a connection has made the peer end its side of the earlier one. */
void xfe_peer_lane_up(struct xfe_lane *lane)
{
    struct sw_xfer_peer *peer = lane->peer;
    const bool is_first = !peer_find_lane(peer, XFE_UP);
    lane->state = XFE_UP;
    lane->connections++;
    lane->failures = 0;
    lane->is_dirty = false;
    plan_return(lane);
    xfc_flow_settled(&peer->flow, lane->index);
    if (is_first)
        peer->flow.message_lane = lane->index;
    for (uint32_t i = 0; is_first && i < peer->lanes_count; i++) {
        if (!peer->lanes[i].is_dirty)
            continue;
        peer->lanes[i].dirty_ns = mover_now_ns(); /* it could not be asked before */
        xfc_flow_drop(&peer->flow, i);
    }
    if (peer->lanes_count > 1)
        watch_devices(lane);
    peer->state = SW_XFER_LIVE;
    peer->was_live = true;
    xfe_peer_push(peer);
}

/* ---- what is given, what has come ---- */

bool xfe_peer_waits(const struct sw_xfer_peer *peer)
{
    for (uint32_t i = 0; i < peer->lanes_count; i++)
        if (xfc_flow_waits(&peer->flow, i))
            return true;
    return false;
}

void xfe_peer_push(struct sw_xfer_peer *peer)
{
    const uint32_t rounds = peer->lanes_count > 1 ? ROUNDS : 1;
    peer->has_more = true;
    for (uint32_t round = 0; peer->has_more && round < rounds; round++) {
        peer->has_more = false;
        for (uint32_t i = 0; i < peer->lanes_count; i++)
            if (peer->lanes[i].state == XFE_UP && !peer->lanes[i].has_broken)
                peer->has_more |= xfe_send_push(&peer->lanes[i]);
    }
}

void xfe_peer_poll(struct sw_xfer_peer *peer)
{
    for (uint32_t i = 0; i < peer->lanes_count; i++)
        xfe_send_poll(&peer->lanes[i]);
    if (peer->state == SW_XFER_LIVE)
        xfe_peer_push(peer);
}

/* ---- timers ---- */

/* The lane would be down meanwhile, so another one has to be up. */
static bool can_return(const struct xfe_lane *lane)
{
    const struct sw_xfer_peer *peer = lane->peer;
    if (!lane->home_ns || lane->state != XFE_UP)
        return false;
    for (uint32_t i = 0; i < peer->lanes_count; i++)
        if (i != lane->index && peer->lanes[i].state == XFE_UP)
            return true;
    return false;
}

/* When the next thing is due of a lane; UINT64_MAX: none. */
static uint64_t due_of(const struct xfe_lane *lane)
{
    const struct sw_xfer_peer *peer = lane->peer;
    const uint64_t stall_ns = peer->agent->options.stall_timeout_ms * NS_PER_MS;
    const bool is_live = peer->state == SW_XFER_LIVE;
    uint64_t due = UINT64_MAX;
    if (lane->state == XFE_CONNECTING)
        due = lane->connect_deadline_ns;
    else if (lane->state == XFE_UP && lane->has_broken)
        due = 0;
    else if (lane->state == XFE_UP && xfc_flow_waits(&peer->flow, lane->index))
        due = lane->progress_ns + stall_ns;
    else if (lane->state == XFE_DOWN && is_live)
        due = lane->retry_ns;
    if (can_return(lane) && lane->home_ns < due)
        due = lane->home_ns;
    if (is_live && lane->is_dirty && lane->dirty_ns + stall_ns < due)
        due = lane->dirty_ns + stall_ns;
    return due;
}

static void peer_run_timer(struct xfe_lane *lane, uint64_t now_ns)
{
    struct sw_xfer_peer *peer = lane->peer;
    const uint32_t stall_ms = peer->agent->options.stall_timeout_ms;
    char what[48];
    if (now_ns <= due_of(lane))
        return;
    if (lane->is_dirty && peer->state == SW_XFER_LIVE &&
        now_ns > lane->dirty_ns + stall_ms * NS_PER_MS)
        return xfe_peer_gone(peer, SW_XFER_PEER_GONE, "%s: it has not ended a lost lane for %u ms",
                             lane->where, stall_ms);
    switch (lane->state) {
    case XFE_CONNECTING:
        return xfe_lane_try_next(lane, SW_XFER_PEER_GONE, "it does not answer");
    case XFE_DOWN:
        return xfe_lane_start(lane);
    case XFE_UP:
        if (lane->has_broken || (can_return(lane) && now_ns > lane->home_ns))
            return xfe_lane_restart(lane);
        snprintf(what, sizeof(what), "it has confirmed nothing for %u ms", stall_ms);
        return xfe_peer_lane_lost(lane, SW_XFER_PEER_GONE, what);
    }
}

void xfe_peer_timers(struct sw_xfer_peer *peer, uint64_t now_ns)
{
    const uint32_t stuck = xfc_flow_timers(&peer->flow, now_ns);
    for (uint32_t i = 0; i < peer->lanes_count && peer->state != SW_XFER_GONE; i++)
        if (stuck & 1u << i && peer->lanes[i].state == XFE_UP)
            xfe_lane_restart(&peer->lanes[i]);
        else
            peer_run_timer(&peer->lanes[i], now_ns);
}

uint64_t xfe_peer_wake_ns(const struct sw_xfer_peer *peer)
{
    uint64_t wake = peer->flow.wake_ns;
    for (uint32_t i = 0; i < peer->lanes_count && peer->state != SW_XFER_GONE; i++) {
        wake = mover_min_u64(wake, due_of(&peer->lanes[i]));
    }
    return wake;
}

/* ---- handles ---- */

static bool make_lane(struct sw_xfer_peer *peer, uint32_t index)
{
    const struct sw_xfer_agent_options *options = &peer->agent->options;
    struct xfe_lane *lane = &peer->lanes[index];
    struct xfc_entry *ring = calloc(options->queue_depth, sizeof(*ring));
    lane->source.kind = XFE_LANE;
    lane->peer = peer;
    lane->index = index;
    lane->connection.epoll_fd = -1;
    lane->scratch = mover_pages(sizeof(*lane->scratch));
    xfc_flow_lane(&peer->flow, index, ring, options->queue_depth, options->window_bytes);
    return ring && lane->scratch;
}

static struct sw_xfer_peer *make_peer(struct sw_xfer_agent *agent, const struct xfw_card *card)
{
    struct sw_xfer_peer *peer = calloc(1, sizeof(*peer));
    bool is_fine = peer;
    if (!peer)
        return NULL;
    peer->agent = agent;
    peer->card = *card;
    peer->session = ++agent->last_session;
    xfc_flow_init(&peer->flow, agent->options.drain_timeout_ms * NS_PER_MS, &agent->ended);
    const uint32_t lanes = card->version == XFW_VERSION_RAILS ? card->addresses_count : 1;
    peer->lanes = calloc(lanes, sizeof(*peer->lanes));
    peer->lanes_count = peer->lanes ? lanes : 0;
    for (uint32_t i = 0; i < lanes; i++)
        is_fine = is_fine && peer->lanes && make_lane(peer, i);
    list_append(&agent->peers, &peer->node);
    if (is_fine)
        return peer;
    xfe_peer_free(peer);
    return NULL;
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
    struct sw_xfer_peer *peer = make_peer(agent, &got);
    if (!peer)
        return xfe_fail(error, SW_XFER_NO_MEMORY, "out of memory");
    for (uint32_t i = 0; i < peer->lanes_count; i++) /* so none is the last while others start */
        peer->lanes[i].state = XFE_CONNECTING;
    for (uint32_t i = 0; i < peer->lanes_count && peer->state != SW_XFER_GONE; i++)
        xfe_lane_start(&peer->lanes[i]);
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

uint32_t sw_xfer_peer_rails(const struct sw_xfer_peer *peer, struct sw_xfer_rail *rails,
                            uint32_t rails_max)
{
    for (uint32_t i = 0; i < peer->lanes_count && i < rails_max; i++) {
        const struct xfe_lane *lane = &peer->lanes[i];
        rails[i] = (struct sw_xfer_rail){.is_up = lane->state == XFE_UP,
                                         .connections = lane->connections,
                                         .bytes = peer->flow.lanes[i].bytes_done};
        memcpy(rails[i].address, lane->where, sizeof(rails[i].address));
    }
    return peer->lanes_count;
}

void xfe_peer_free(struct sw_xfer_peer *peer)
{
    list_remove(&peer->node);
    for (uint32_t i = 0; i < peer->lanes_count; i++)
        if (peer->lanes[i].peer) /* it was made */
            xfe_lane_free(&peer->lanes[i]);
    free(peer->lanes);
    free(peer);
}

enum sw_xfer_status sw_xfer_peer_release(struct sw_xfer_peer *peer)
{
    if (peer->uses)
        return SW_XFER_BUSY;
    xfe_peer_free(peer);
    return SW_XFER_OK;
}
