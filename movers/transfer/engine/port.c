/* SPDX-License-Identifier: BSD-2-Clause */
#include "transfer/engine/port.h"

#include "common/time/clock.h"
#include "transfer/engine/agent.h"
#include "transfer/engine/device.h"
#include "transfer/engine/lane.h"
#include "transfer/engine/peer.h"
#include "transfer/engine/rail.h"

static bool is_at_port(const struct xfe_lane *lane, const struct xfe_device *device, int port)
{
    return lane->state == XFE_UP && lane->device == device &&
           (!port || lane->connection.id->port_num == port);
}

/* Where there is no other, the device goes on trying: the port may come back soon. */
static bool has_other_way(const struct xfe_lane *lane)
{
    const struct sw_xfer_peer *peer = lane->peer;
    for (uint32_t i = 0; i < peer->lanes_count; i++)
        if (i != lane->index && peer->lanes[i].state == XFE_UP)
            return true;
    return false;
}

static void lose_port(struct xfe_device *device, int port)
{
    struct list *peers = &device->agent->peers;
    for (struct list_node *at = list_first(peers); at; at = list_after(peers, at)) {
        struct sw_xfer_peer *peer = LIST_MEMBER(at, struct sw_xfer_peer, node);
        for (uint32_t i = 0; i < peer->lanes_count; i++)
            if (is_at_port(&peer->lanes[i], device, port) && has_other_way(&peer->lanes[i]))
                xfe_peer_lane_lost(&peer->lanes[i], SW_XFER_PEER_GONE, "the port here is down");
    }
}

/* Lanes that are down may have tried another device last. Lanes that were made anew from another
 * rail while theirs was away come back to it: a port is up a little before packets pass. */
static void gain_port(const struct xfe_device *device)
{
    struct list *peers = &device->agent->peers;
    for (struct list_node *at = list_first(peers); at; at = list_after(peers, at)) {
        struct sw_xfer_peer *peer = LIST_MEMBER(at, struct sw_xfer_peer, node);
        for (uint32_t i = 0; i < peer->lanes_count; i++) {
            struct xfe_lane *lane = &peer->lanes[i];
            const struct xfe_rail *home = xfe_lane_home(lane);
            lane->retry_ns = lane->failures = 0;
            if (!home || home->device != xfe_device_index(device))
                continue;
            lane->home_tries = XFE_HOME_TRIES;
            lane->home_ns = xfe_lane_is_away(lane) ? mover_now_ns() : 0;
        }
    }
}

void xfe_ports_events(struct xfe_device *device)
{
    struct ibv_async_event event;
    while (!ibv_get_async_event(device->watch, &event)) {
        const int port = event.element.port_num;
        ibv_ack_async_event(&event);
        device->agent->progress++;
        if (event.event_type == IBV_EVENT_PORT_ERR)
            lose_port(device, port);
        else if (event.event_type == IBV_EVENT_DEVICE_FATAL)
            lose_port(device, 0);
        else if (event.event_type == IBV_EVENT_PORT_ACTIVE)
            gain_port(device);
    }
}
