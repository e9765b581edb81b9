/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What is behind the handles of transfer.h. One thread at a time is in an agent; nothing here has a
 * lock. Everything that belongs to an agent hangs in one of its lists, so closing it finds all.
 *
 * An agent listens at several addresses, its rails, and meets RDMA devices there and where its
 * peers are. A peer has a lane to each rail of the other agent.
 */
#ifndef SW_MOVERS_TRANSFER_ENGINE_AGENT_H
#define SW_MOVERS_TRANSFER_ENGINE_AGENT_H

#include <stdbool.h>
#include <stdint.h>

#include <rdma/rdma_cma.h>

#include "common/base/list.h"
#include "common/rdma/fork_guard.h"
#include "sidewire/transfer.h"
#include "transfer/engine/device.h"
#include "transfer/engine/rail.h"
#include "transfer/engine/session.h"
#include "transfer/engine/source.h"

enum { XFE_DEPARTED = 256 }; /* sessions whose newest tag is remembered */

struct xfe_held;
struct xfe_origin;
struct xfe_visitor;

struct sw_xfer_agent {
    struct sw_xfer_agent_options options;
    uint8_t instance[SW_XFER_INSTANCE_BYTES];
    struct mover_fork_guard guard;
    int epoll_fd, timer_fd, listen_fd; /* listen_fd: the timer of the listeners */
    struct xfe_source events_source, timer_source;
    struct rdma_event_channel *events; /* of the listeners */
    struct xfe_rail rails[XFE_RAILS_MAX];
    uint32_t rails_count;
    struct xfe_device devices[XFE_DEVICES_MAX];
    uint32_t devices_count; /* 0 until one is known */
    uint32_t pieces_max;    /* each device takes so many */

    struct list memories, leases, peers, blocks, transfers, ended;
    struct xfe_visitor **visitors; /* visitors_slots */
    struct xfe_session *sessions;  /* options.visitors_max */
    struct xfe_origin *origins;
    uint32_t origins_count;
    uint32_t visitors_slots;
    struct xfe_session departed[XFE_DEPARTED];
    uint32_t departed_next;
    struct xfe_held *held_all;
    struct list held, held_free;
    uint64_t last_session, last_visitor;
    uint64_t lease_wake_ns; /* no lease runs out before */
    uint64_t progress;      /* counts whatever came */
    uint32_t polls;
    uint32_t held_free_count;
    bool has_more; /* a visitor has more to do than a turn */
};

static inline bool xfe_is_forked(const struct sw_xfer_agent *agent)
{
    return mover_is_forked(&agent->guard);
}

static inline uint32_t xfe_device_index(const struct xfe_device *device)
{
    return (uint32_t)(device - device->agent->devices);
}

#endif
