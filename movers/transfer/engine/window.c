/* SPDX-License-Identifier: BSD-2-Clause */
#include "transfer/engine/window.h"

#include <errno.h>

#include "common/time/clock.h"
#include "transfer/engine/agent.h"
#include "transfer/engine/device.h"
#include "transfer/engine/lease.h"
#include "transfer/engine/memory.h"
#include "transfer/engine/message.h"
#include "transfer/engine/visitor.h"

enum { WINDOW_MS = 500 };

/* Posts a request that has to do with a window, and waits for its completion. -EOPNOTSUPP: the
 * device takes none; -EPIPE: its queue pair is of no use any more. */
static int post_window(struct xfe_visitor *visitor, struct ibv_send_wr *wr)
{
    struct ibv_send_wr *bad;
    const uint64_t deadline_ns = sw_xfer_deadline_ms(WINDOW_MS);
    bool is_fine = true;
    wr->wr_id = XFE_WINDOW_WR;
    visitor->window_done = false;
    if (ibv_post_send(visitor->id->qp, wr, &bad))
        return -EOPNOTSUPP;
    while (is_fine && !visitor->window_done && mover_now_ns() < deadline_ns)
        is_fine = xfe_messages_take(visitor);
    return is_fine && visitor->window_done ? 0 : -EPIPE;
}

/* A window is of one queue pair. Where there may be another lane to go on with, that of a lane
 * which is made anew has to be bound before the peer may send, which iWARP does not allow. */
static bool can_bind(const struct sw_xfer_agent *agent, const struct xfe_device *device)
{
    return device->has_windows &&
           (agent->rails_count == 1 || device->verbs->device->transport_type == IBV_TRANSPORT_IB);
}

static bool alloc_windows(struct sw_xfer_lease *lease)
{
    const struct sw_xfer_agent *agent = lease->memory->agent;
    for (uint32_t i = 0; i < agent->rails_count; i++) {
        const struct xfe_device *device = &agent->devices[agent->rails[i].device];
        lease->windows[i] =
            can_bind(agent, device) ? ibv_alloc_mw(device->pd, IBV_MW_TYPE_2) : NULL;
        if (!lease->windows[i])
            return false;
        lease->window_keys[i] = ibv_inc_rkey(lease->windows[i]->rkey);
    }
    return true;
}

/* The card is out already, so it is the same key for each queue pair of the lane. */
static int bind_window(struct sw_xfer_lease *lease, struct xfe_visitor *visitor)
{
    const struct sw_xfer_agent *agent = lease->memory->agent;
    const uint32_t lane = visitor->lane;
    struct ibv_send_wr wr = {
        .opcode = IBV_WR_BIND_MW,
        .bind_mw = {.mw = lease->windows[lane],
                    .rkey = lease->window_keys[lane],
                    .bind_info = {.mr = lease->memory->mrs[agent->rails[lane].device],
                                  .addr = lease->address,
                                  .length = lease->bytes,
                                  .mw_access_flags =
                                      (unsigned)xfe_lease_access(lease) &
                                      (IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE)}},
    };
    const int code = post_window(visitor, &wr);
    if (!code)
        lease->bound |= 1u << lane;
    return code;
}

void xfe_windows_end(struct sw_xfer_lease *lease)
{
    struct sw_xfer_agent *agent = lease->memory->agent;
    for (uint32_t i = 0; i < agent->rails_count; i++) {
        struct xfe_visitor *visitor = xfe_visitor_at(agent, lease->visitor, i);
        struct ibv_send_wr wr = {.opcode = IBV_WR_LOCAL_INV,
                                 .invalidate_rkey = lease->window_keys[i]};
        if (!visitor || !(lease->bound & 1u << i))
            continue;
        /* Where it cannot be done, the queue pair goes; windows go with it. */
        if (post_window(visitor, &wr))
            xfe_visitor_end(visitor);
    }
    xfe_lease_free_windows(lease);
}

int xfe_windows_grant(struct sw_xfer_lease *lease, uint64_t number)
{
    struct sw_xfer_agent *agent = lease->memory->agent;
    int code = alloc_windows(lease) ? 0 : -EOPNOTSUPP;
    lease->visitor = number;
    for (uint32_t i = 0; !code && i < agent->rails_count; i++) {
        struct xfe_visitor *visitor = xfe_visitor_at(agent, number, i);
        code = visitor ? bind_window(lease, visitor) : 0;
        if (code == -EPIPE) {
            xfe_visitor_end(visitor);
            code = 0; /* its lane is made anew */
        }
    }
    if (!code && lease->bound)
        return 0;
    xfe_windows_end(lease);
    lease->visitor = 0;
    return code ? code : -EPIPE;
}

bool xfe_windows_bind(struct xfe_visitor *visitor)
{
    const struct sw_xfer_agent *agent = visitor->agent;
    for (struct list_node *at = list_first(&agent->leases); at;
         at = list_after(&agent->leases, at)) {
        struct sw_xfer_lease *lease = xfe_lease_at(at);
        if (lease->visitor == visitor->session->number && sw_xfer_lease_is_window(lease) &&
            bind_window(lease, visitor))
            return false;
    }
    return true;
}
