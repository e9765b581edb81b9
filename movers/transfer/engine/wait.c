/* SPDX-License-Identifier: BSD-2-Clause */
/* Polling and sleeping. */
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "common/time/clock.h"
#include "common/time/deadline.h"
#include "transfer/engine/agent.h"
#include "transfer/engine/arrival.h"
#include "transfer/engine/device.h"
#include "transfer/engine/grant.h"
#include "transfer/engine/lane.h"
#include "transfer/engine/message.h"
#include "transfer/engine/peer.h"
#include "transfer/engine/port.h"
#include "transfer/engine/source.h"
#include "transfer/engine/status.h"
#include "transfer/engine/transfer.h"

enum { SOURCES_MAX = 64, POLLS_PER_LOOK = 16, LONGEST_MS = 60000 };

static struct sw_xfer_peer *wait_peer_of(struct list_node *node)
{
    return LIST_MEMBER(node, struct sw_xfer_peer, node);
}

/* One at a time: what one does may free the source of the next. */
static void take_sources(struct sw_xfer_agent *agent)
{
    struct epoll_event event;
    uint64_t expirations;
    for (int i = 0; i < SOURCES_MAX && epoll_wait(agent->epoll_fd, &event, 1, 0) > 0; i++) {
        struct xfe_source *source = event.data.ptr;
        switch (source->kind) {
        case XFE_EVENTS:
            xfe_arrivals_take(agent);
            break;
        case XFE_TIMER:
            if (read(agent->timer_fd, &expirations, sizeof(expirations)) < 0)
                agent->progress++; /* somebody else has read it */
            break;
        case XFE_LANE:
            xfe_lane_events((struct xfe_lane *)source);
            break;
        case XFE_DEVICE:
            xfe_ports_events((struct xfe_device *)source);
            break;
        case XFE_VISITOR:
            xfe_messages_ready((struct xfe_visitor *)source);
            break;
        }
    }
}

/* Descriptors cost a system call, so an agent that moves data looks at them now and then. */
void sw_xfer_poll(struct sw_xfer_agent *agent)
{
    bool is_busy = false;
    if (xfe_is_forked(agent))
        return;
    const uint64_t now = mover_now_ns();
    for (struct list_node *at = list_first(&agent->peers); at; at = list_after(&agent->peers, at)) {
        struct sw_xfer_peer *peer = wait_peer_of(at);
        xfe_peer_poll(peer);
        xfe_peer_timers(peer, now);
        is_busy = is_busy || xfe_peer_waits(peer);
    }
    xfe_grants_timers(agent, now);
    xfe_messages_go_on(agent);
    if (!is_busy || ++agent->polls % POLLS_PER_LOOK == 0)
        take_sources(agent);
}

int sw_xfer_fd(const struct sw_xfer_agent *agent)
{
    return agent->epoll_fd;
}

/* False: it has something to do already. */
static bool arm_peer(struct sw_xfer_peer *peer)
{
    if (peer->has_more)
        return false;
    for (uint32_t i = 0; i < peer->lanes_count; i++)
        if (!mover_queue_arm(&peer->lanes[i].connection.queue))
            return false;
    return true;
}

static void set_timer(struct sw_xfer_agent *agent, uint64_t at_ns)
{
    struct itimerspec spec = {.it_value = {.tv_sec = 0}};
    if (at_ns != UINT64_MAX) {
        spec.it_value.tv_sec = (time_t)(at_ns / 1000000000);
        spec.it_value.tv_nsec = (long)(at_ns % 1000000000);
    }
    timerfd_settime(agent->timer_fd, TFD_TIMER_ABSTIME, &spec, NULL);
}

bool sw_xfer_arm(struct sw_xfer_agent *agent)
{
    uint64_t wake = agent->lease_wake_ns;
    if (xfe_is_forked(agent))
        return true;
    if (agent->has_more)
        return false;
    for (struct list_node *at = list_first(&agent->peers); at; at = list_after(&agent->peers, at)) {
        struct sw_xfer_peer *peer = wait_peer_of(at);
        if (!arm_peer(peer))
            return false;
        const uint64_t peer_wake = xfe_peer_wake_ns(peer);
        if (peer_wake < wake)
            wake = peer_wake;
    }
    if (wake <= mover_now_ns())
        return false;
    set_timer(agent, wake);
    return true;
}

/* Sleeps until something comes or the deadline passes. */
static void nap_agent(struct sw_xfer_agent *agent, uint64_t deadline_ns)
{
    struct epoll_event event;
    const int ms = mover_ms_until(deadline_ns, mover_now_ns(), LONGEST_MS);
    if (ms && sw_xfer_arm(agent))
        epoll_wait(agent->epoll_fd, &event, 1, ms);
}

enum sw_xfer_status sw_xfer_run_once(struct sw_xfer_agent *agent, uint64_t deadline_ns)
{
    if (xfe_is_forked(agent))
        return SW_XFER_FORKED;
    const uint64_t before = agent->progress;
    sw_xfer_poll(agent);
    if (agent->progress != before)
        return SW_XFER_OK;
    nap_agent(agent, deadline_ns);
    sw_xfer_poll(agent);
    return agent->progress == before && mover_now_ns() >= deadline_ns ? SW_XFER_TIMEOUT
                                                                      : SW_XFER_OK;
}

/* Polls for a while after the last thing that came, then sleeps. */
static void wait_a_bit(struct sw_xfer_agent *agent, uint64_t deadline_ns, uint64_t *spin_until_ns,
                       uint64_t *seen)
{
    const uint64_t now = mover_now_ns();
    if (agent->progress != *seen)
        *spin_until_ns = now + agent->options.spin_us * 1000ull;
    *seen = agent->progress;
    if (now >= *spin_until_ns)
        nap_agent(agent, deadline_ns);
}

enum sw_xfer_status sw_xfer_wait(struct sw_xfer_transfer *transfer, uint64_t deadline_ns)
{
    struct sw_xfer_agent *agent = transfer->peer->agent;
    uint64_t spin_until_ns = 0, seen = agent->progress - 1;
    if (xfe_is_forked(agent))
        return SW_XFER_FORKED;
    for (;;) {
        sw_xfer_poll(agent);
        switch (transfer->task.state) {
        case SW_XFER_PREPARED:
            return SW_XFER_INVALID;
        case SW_XFER_DONE:
            return SW_XFER_OK;
        case SW_XFER_FAILED:
        case SW_XFER_WAS_CANCELLED:
            return transfer->task.status;
        case SW_XFER_POSTED:
            break;
        }
        if (mover_now_ns() >= deadline_ns)
            return SW_XFER_TIMEOUT;
        wait_a_bit(agent, deadline_ns, &spin_until_ns, &seen);
    }
}

enum sw_xfer_status sw_xfer_peer_wait(struct sw_xfer_peer *peer, uint64_t deadline_ns,
                                      struct sw_xfer_error *error)
{
    struct sw_xfer_agent *agent = peer->agent;
    if (xfe_is_forked(agent))
        return xfe_fail(error, SW_XFER_FORKED, "%s", sw_xfer_status_text(SW_XFER_FORKED));
    for (;;) {
        sw_xfer_poll(agent);
        if (peer->state == SW_XFER_LIVE)
            return SW_XFER_OK;
        if (peer->state == SW_XFER_GONE)
            return xfe_fail(error, peer->error.status, "%s", peer->error.text);
        if (mover_now_ns() >= deadline_ns)
            return xfe_fail(error, SW_XFER_TIMEOUT, "%s", sw_xfer_status_text(SW_XFER_TIMEOUT));
        nap_agent(agent, deadline_ns);
    }
}
