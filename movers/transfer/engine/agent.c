/* SPDX-License-Identifier: BSD-2-Clause */
#include "transfer/engine/agent.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "transfer/engine/blocks.h"
#include "transfer/engine/device.h"
#include "transfer/engine/lease.h"
#include "transfer/engine/memory.h"
#include "transfer/engine/notice.h"
#include "transfer/engine/origin.h"
#include "transfer/engine/peer.h"
#include "transfer/engine/rail.h"
#include "transfer/engine/source.h"
#include "transfer/engine/status.h"
#include "transfer/engine/transfer.h"
#include "transfer/engine/visitor.h"

void sw_xfer_agent_options_init(struct sw_xfer_agent_options *options)
{
    *options = (struct sw_xfer_agent_options){.visitors_max = 64,
                                              .notices_max = 1024,
                                              .queue_depth = 256,
                                              .window_bytes = 8 << 20,
                                              .connect_timeout_ms = 5000,
                                              .stall_timeout_ms = 10000,
                                              .drain_timeout_ms = 50,
                                              .spin_us = 50};
}

static bool are_options(const struct sw_xfer_agent_options *o)
{
    return o->visitors_max && o->visitors_max <= 1024 && o->notices_max &&
           o->notices_max <= 65536 && o->queue_depth >= 64 && o->queue_depth <= 8192 &&
           o->window_bytes && (o->address || !o->rails[0]);
}

static bool agent_watch_fd(struct sw_xfer_agent *agent, int fd, struct xfe_source *source)
{
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = source};
    return fd >= 0 && !epoll_ctl(agent->epoll_fd, EPOLL_CTL_ADD, fd, &event);
}

static bool make_inside(struct sw_xfer_agent *agent)
{
    agent->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    agent->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    agent->listen_fd = mover_listener_timer();
    agent->visitors = calloc(agent->visitors_slots, sizeof(struct xfe_visitor *));
    agent->sessions = calloc(agent->options.visitors_max, sizeof(*agent->sessions));
    return mover_fork_guard_open(&agent->guard) && xfe_origins_make(agent) &&
           agent->epoll_fd >= 0 && agent_watch_fd(agent, agent->timer_fd, &agent->timer_source) &&
           agent->visitors && agent->sessions && xfe_notices_make(agent) &&
           getrandom(agent->instance, sizeof(agent->instance), 0) == sizeof(agent->instance);
}

static enum sw_xfer_status open_events(struct sw_xfer_agent *agent, struct sw_xfer_error *error)
{
    agent->events = mover_listener_events();
    if (!agent->events)
        return xfe_fail(error, SW_XFER_ADDRESS,
                        "there is no RDMA device; a software one: sidewire run");
    if (!agent_watch_fd(agent, agent->events->fd, &agent->events_source) ||
        !agent_watch_fd(agent, agent->listen_fd, &agent->events_source))
        return xfe_fail(error, SW_XFER_SYSTEM, "epoll: %s", strerror(errno));
    return SW_XFER_OK;
}

static enum sw_xfer_status agent_start_listening(struct sw_xfer_agent *agent,
                                                 struct sw_xfer_error *error)
{
    const struct sw_xfer_agent_options *options = &agent->options;
    enum sw_xfer_status status = open_events(agent, error);
    if (!status)
        status = xfe_rail_start(agent, options->address, error);
    for (uint32_t i = 0; !status && i < SW_XFER_ADDRESSES_MAX - 1 && options->rails[i]; i++)
        status = xfe_rail_start(agent, options->rails[i], error);
    return status;
}

enum sw_xfer_status sw_xfer_agent_open(const struct sw_xfer_agent_options *options,
                                       struct sw_xfer_error *error, struct sw_xfer_agent **out)
{
    if (!are_options(options))
        return xfe_fail(error, SW_XFER_INVALID,
                        "a number of the options is out of its bounds, or there is no "
                        "first address");
    struct sw_xfer_agent *agent = calloc(1, sizeof(*agent));
    if (!agent)
        return xfe_fail(error, SW_XFER_NO_MEMORY, "out of memory");
    agent->options = *options;
    agent->epoll_fd = agent->timer_fd = agent->listen_fd = -1;
    agent->events_source.kind = XFE_EVENTS;
    agent->timer_source.kind = XFE_TIMER;
    agent->lease_wake_ns = UINT64_MAX;
    agent->visitors_slots = options->visitors_max * (options->rails[0] ? XFE_RAILS_MAX : 1);
    struct list *const lists[] = {&agent->memories, &agent->leases,    &agent->peers,
                                  &agent->blocks,   &agent->transfers, &agent->ended,
                                  &agent->held,     &agent->held_free};
    for (size_t i = 0; i < sizeof(lists) / sizeof(*lists); i++)
        list_init(lists[i]);
    enum sw_xfer_status status = SW_XFER_OK;
    if (!make_inside(agent))
        status = xfe_fail(error, SW_XFER_NO_MEMORY, "out of memory or descriptors");
    if (!status && options->address)
        status = agent_start_listening(agent, error);
    agent->options.address = agent->options.port = NULL; /* the caller's */
    memset(agent->options.rails, 0, sizeof(agent->options.rails));
    if (status) {
        sw_xfer_agent_close(agent);
        return status;
    }
    *out = agent;
    return SW_XFER_OK;
}

void sw_xfer_agent_instance(const struct sw_xfer_agent *agent,
                            uint8_t instance[SW_XFER_INSTANCE_BYTES])
{
    memcpy(instance, agent->instance, SW_XFER_INSTANCE_BYTES);
}

/* Queue pairs first: once they are gone nothing is touched any more. */
static void free_members(struct sw_xfer_agent *agent)
{
    struct list_node *at;
    for (at = list_first(&agent->peers); at; at = list_after(&agent->peers, at))
        if (!xfe_is_forked(agent))
            xfe_peer_gone(LIST_MEMBER(at, struct sw_xfer_peer, node), SW_XFER_CANCELLED, "closed");
    while ((at = list_first(&agent->transfers)))
        xfe_transfer_free(LIST_MEMBER(at, struct sw_xfer_transfer, node));
    while ((at = list_first(&agent->blocks)))
        xfe_blocks_free(LIST_MEMBER(at, struct sw_xfer_blocks, node));
    while ((at = list_first(&agent->leases)))
        sw_xfer_lease_release(LIST_MEMBER(at, struct sw_xfer_lease, node));
    while ((at = list_first(&agent->peers)))
        xfe_peer_free(LIST_MEMBER(at, struct sw_xfer_peer, node));
    while ((at = list_first(&agent->memories)))
        xfe_memory_free(LIST_MEMBER(at, struct sw_xfer_memory, node));
}

void sw_xfer_agent_close(struct sw_xfer_agent *agent)
{
    const bool is_ours = !xfe_is_forked(agent);
    if (agent->visitors)
        xfe_visitors_end(agent);
    free_members(agent);
    for (uint32_t i = 0; is_ours && i < agent->rails_count; i++)
        mover_listener_close(&agent->rails[i].listener);
    if (is_ours)
        xfe_devices_free(agent);
    for (uint32_t i = 0; is_ours && i < agent->rails_count; i++)
        if (agent->rails[i].anchor)
            rdma_destroy_id(agent->rails[i].anchor);
    if (is_ours && agent->events)
        rdma_destroy_event_channel(agent->events);
    if (agent->epoll_fd >= 0)
        close(agent->epoll_fd);
    if (agent->timer_fd >= 0)
        close(agent->timer_fd);
    if (agent->listen_fd >= 0)
        close(agent->listen_fd);
    mover_fork_guard_close(&agent->guard);
    free(agent->visitors);
    free(agent->sessions);
    free(agent->origins);
    free(agent->held_all);
    free(agent);
}
