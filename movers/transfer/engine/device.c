/* SPDX-License-Identifier: BSD-2-Clause */
#include "transfer/engine/device.h"

#include "common/rdma/watch.h"
#include "common/time/clock.h"
#include "transfer/engine/agent.h"
#include "transfer/engine/lane.h"
#include "transfer/engine/memory.h"
#include "transfer/engine/peer.h"
#include "transfer/engine/source.h"

struct xfe_device *xfe_device_find(struct sw_xfer_agent *agent, const struct ibv_context *verbs)
{
    for (uint32_t i = 0; i < agent->devices_count; i++)
        if (agent->devices[i].verbs == verbs)
            return &agent->devices[i];
    return NULL;
}

static bool register_all(struct xfe_device *device)
{
    struct sw_xfer_agent *agent = device->agent;
    for (struct list_node *at = list_first(&agent->memories); at;
         at = list_after(&agent->memories, at))
        if (!xfe_memory_register(LIST_MEMBER(at, struct sw_xfer_memory, node), device))
            return false;
    return true;
}

static void unregister_all(struct xfe_device *device)
{
    struct sw_xfer_agent *agent = device->agent;
    const uint32_t index = xfe_device_index(device);
    for (struct list_node *at = list_first(&agent->memories); at;
         at = list_after(&agent->memories, at)) {
        struct sw_xfer_memory *memory = LIST_MEMBER(at, struct sw_xfer_memory, node);
        if (memory->mrs[index])
            ibv_dereg_mr(memory->mrs[index]);
        memory->mrs[index] = NULL;
    }
}

struct xfe_device *xfe_device_adopt(struct sw_xfer_agent *agent, struct ibv_context *verbs)
{
    struct ibv_device_attr attr;
    struct xfe_device *device = xfe_device_find(agent, verbs);
    if (device)
        return device;
    if (agent->devices_count == XFE_DEVICES_MAX || ibv_query_device(verbs, &attr))
        return NULL;
    const uint32_t pieces =
        attr.max_sge < XFC_PIECES_MAX ? (uint32_t)attr.max_sge : (uint32_t)XFC_PIECES_MAX;
    if (agent->devices_count && pieces < agent->pieces_max)
        return NULL; /* plans are made already */
    device = &agent->devices[agent->devices_count];
    *device = (struct xfe_device){
        .source.kind = XFE_DEVICE,
        .agent = agent,
        .verbs = verbs,
        .pd = ibv_alloc_pd(verbs),
        .reads_max = (uint32_t)attr.max_qp_init_rd_atom,
        .has_windows =
            attr.device_cap_flags & (IBV_DEVICE_MEM_WINDOW_TYPE_2A | IBV_DEVICE_MEM_WINDOW_TYPE_2B),
    };
    if (!device->pd)
        return NULL;
    if (!register_all(device)) {
        unregister_all(device);
        ibv_dealloc_pd(device->pd);
        return NULL;
    }
    if (!agent->devices_count++)
        agent->pieces_max = pieces;
    return device;
}

/* The agent's own context: that of rdma_cm is the process's, and others may read its events. */
void xfe_device_watch(struct xfe_device *device)
{
    if (device->watch)
        return;
    device->watch = ibv_open_device(device->verbs->device);
    if (!device->watch)
        return;
    if (mover_watch(device->agent->epoll_fd, device->watch->async_fd, &device->source))
        return;
    ibv_close_device(device->watch);
    device->watch = NULL;
}

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

void xfe_device_events(struct xfe_device *device)
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

void xfe_devices_free(struct sw_xfer_agent *agent)
{
    for (uint32_t i = 0; i < agent->devices_count; i++) {
        if (agent->devices[i].watch)
            ibv_close_device(agent->devices[i].watch);
        ibv_dealloc_pd(agent->devices[i].pd);
    }
}
