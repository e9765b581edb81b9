/* SPDX-License-Identifier: BSD-2-Clause */
#include "transfer/engine/lease.h"

#include <string.h>

#include "transfer/engine/agent.h"
#include "transfer/engine/memory.h"

int xfe_lease_access(const struct sw_xfer_lease *lease)
{
    return (lease->rights & SW_XFER_MAY_READ ? IBV_ACCESS_REMOTE_READ : 0) |
           (lease->rights & SW_XFER_MAY_WRITE ? IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE
                                              : 0);
}

uint32_t xfe_lease_key(const struct sw_xfer_lease *lease, uint32_t rail)
{
    const uint32_t device = lease->memory->agent->rails[rail].device;
    if (sw_xfer_lease_is_window(lease))
        return lease->window_keys[rail];
    return lease->mrs[device] ? lease->mrs[device]->rkey : 0;
}

bool sw_xfer_lease_is_granted(const struct sw_xfer_lease *lease)
{
    for (uint32_t i = 0; i < XFE_DEVICES_MAX; i++)
        if (lease->mrs[i])
            return true;
    return sw_xfer_lease_is_window(lease);
}

bool sw_xfer_lease_is_window(const struct sw_xfer_lease *lease)
{
    return lease->windows[0];
}

/* ---- its windows ---- */

void xfe_lease_free_windows(struct sw_xfer_lease *lease)
{
    for (uint32_t i = 0; i < XFE_RAILS_MAX; i++)
        if (lease->windows[i])
            ibv_dealloc_mw(lease->windows[i]);
    memset(lease->windows, 0, sizeof(lease->windows));
    lease->bound = 0;
}

bool xfe_leases_have_windows(const struct sw_xfer_agent *agent, uint64_t visitor)
{
    for (struct list_node *at = list_first(&agent->leases); at;
         at = list_after(&agent->leases, at)) {
        const struct sw_xfer_lease *lease = xfe_lease_at(at);
        if (lease->visitor == visitor && sw_xfer_lease_is_window(lease))
            return true;
    }
    return false;
}

void xfe_leases_of_lane_end(struct sw_xfer_agent *agent, uint64_t visitor, uint32_t lane)
{
    for (struct list_node *at = list_first(&agent->leases); at;
         at = list_after(&agent->leases, at)) {
        struct sw_xfer_lease *lease = xfe_lease_at(at);
        if (lease->visitor == visitor)
            lease->bound &= ~(1u << lane);
    }
}

void xfe_leases_of_visitor_end(struct sw_xfer_agent *agent, uint64_t visitor)
{
    for (struct list_node *at = list_first(&agent->leases); at;
         at = list_after(&agent->leases, at)) {
        struct sw_xfer_lease *lease = xfe_lease_at(at);
        if (lease->visitor == visitor)
            xfe_lease_free_windows(lease);
    }
}
