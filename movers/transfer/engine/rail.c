/* SPDX-License-Identifier: BSD-2-Clause */
#include "transfer/engine/rail.h"

#include <stdio.h>
#include <string.h>

#include "common/rdma/resolve.h"
#include "transfer/engine/adopt.h"
#include "transfer/engine/agent.h"
#include "transfer/engine/device.h"
#include "transfer/engine/status.h"

enum { BACKLOG = 64, RESOLVE_MS = 2000 };

static bool is_any_address(const struct sockaddr *address)
{
    if (address->sa_family == AF_INET6)
        return IN6_IS_ADDR_UNSPECIFIED(&((const struct sockaddr_in6 *)address)->sin6_addr);
    return ((const struct sockaddr_in *)address)->sin_addr.s_addr == htonl(INADDR_ANY);
}

/* A card with it would lead each peer to itself. */
static enum sw_xfer_status rail_find_address(const char *address, const char *port,
                                             struct sw_xfer_error *error,
                                             struct sockaddr_storage *out)
{
    const char *wrong = mover_resolve(address, port, 0, out);
    if (wrong)
        return xfe_fail(error, SW_XFER_ADDRESS, "%s port %s: %s", address, port, wrong);
    if (is_any_address((const struct sockaddr *)out))
        return xfe_fail(error, SW_XFER_ADDRESS,
                        "%s is no address that a card can lead to; take one of this host's that "
                        "peers reach: 'ip address' lists them",
                        address);
    return SW_XFER_OK;
}

/* A loopback address is bound to no device; what leads to it is. */
static struct ibv_context *find_verbs(struct xfe_rail *rail)
{
    const struct mover_listener *listener = &rail->listener;
    if (listener->id->verbs)
        return listener->id->verbs;
    if (rdma_create_id(NULL, &rail->anchor, NULL, RDMA_PS_TCP))
        return NULL;
    return rdma_resolve_addr(rail->anchor, NULL, (struct sockaddr *)&listener->address, RESOLVE_MS)
               ? NULL
               : rail->anchor->verbs;
}

/* A listener that listens again may do so at a new device. */
static void follow_device(struct mover_listener *listener)
{
    struct xfe_rail *rail = listener->owner;
    struct ibv_context *verbs = listener->id ? listener->id->verbs : NULL;
    const struct xfe_device *device = verbs ? xfe_device_adopt(rail->agent, verbs) : NULL;
    rail->agent->progress++;
    if (device)
        rail->device = xfe_device_index(device);
}

enum sw_xfer_status xfe_rail_start(struct sw_xfer_agent *agent, const char *address,
                                   struct sw_xfer_error *error)
{
    struct xfe_rail *rail = &agent->rails[agent->rails_count];
    const char *port = agent->options.port ? agent->options.port : "0";
    struct sockaddr_storage found;
    const enum sw_xfer_status status = rail_find_address(address, port, error, &found);
    if (status)
        return status;
    rail->agent = agent;
    rail->listener = (struct mover_listener){.events = agent->events,
                                             .timer_fd = agent->listen_fd,
                                             .backlog = BACKLOG,
                                             .owner = rail,
                                             .changed = follow_device};
    const int why = mover_listener_open(&rail->listener, (struct sockaddr *)&found);
    if (why)
        return xfe_fail(error, SW_XFER_ADDRESS, "cannot listen at %s port %s: %s%s", address, port,
                        strerror(-why), mover_listener_help(why));
    agent->rails_count++; /* so it is freed */
    struct ibv_context *verbs = find_verbs(rail);
    if (!verbs)
        return xfe_fail(error, SW_XFER_ADDRESS,
                        "%s is not the address of one RDMA device; peers need that", address);
    const struct xfe_device *device = xfe_device_adopt(agent, verbs);
    if (!device)
        return xfe_fail(error, SW_XFER_NO_MEMORY, "the RDMA device has no room");
    rail->device = xfe_device_index(device);
    return SW_XFER_OK;
}

bool xfe_rails_take(struct sw_xfer_agent *agent, const struct mover_arrival *arrival)
{
    bool any = false;
    for (uint32_t i = 0; i < agent->rails_count && !any; i++)
        any = mover_listener_take(&agent->rails[i].listener, arrival);
    return any;
}

void xfe_rails_tick(struct sw_xfer_agent *agent)
{
    if (!mover_listener_is_due(agent->listen_fd))
        return;
    for (uint32_t i = 0; i < agent->rails_count; i++)
        mover_listener_tick(&agent->rails[i].listener);
}

uint32_t sw_xfer_addresses(const struct sw_xfer_agent *agent)
{
    return agent->rails_count;
}

bool sw_xfer_listens(const struct sw_xfer_agent *agent, uint32_t address,
                     struct sw_xfer_error *text)
{
    char said[MOVER_LISTENER_SAID];
    if (xfe_is_forked(agent) || address >= agent->rails_count)
        return false;
    const struct mover_listener *listener = &agent->rails[address].listener;
    mover_listener_say(listener, said);
    xfe_fail(text, listener->id ? SW_XFER_OK : SW_XFER_ADDRESS, "%s", said);
    return listener->id;
}
