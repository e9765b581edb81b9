/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The right of peers to reach memory: windows of type 2 for one visitor, one for each rail, or
 * registrations. Either are over when the device says so, and not before.
 */
#ifndef SW_MOVERS_TRANSFER_ENGINE_LEASE_H
#define SW_MOVERS_TRANSFER_ENGINE_LEASE_H

#include <stdbool.h>
#include <stdint.h>

#include <infiniband/verbs.h>

#include "common/base/list.h"
#include "sidewire/transfer.h"
#include "transfer/engine/device.h"
#include "transfer/engine/rail.h"
#include "transfer/wire/card.h"

struct sw_xfer_lease {
    struct list_node node;
    struct sw_xfer_memory *memory;
    char name[XFW_NAME_BYTES];
    uint64_t address, bytes, deadline_ns, visitor;
    uint32_t rights;
    struct ibv_mr *mrs[XFE_DEVICES_MAX];   /* these or the windows while it is granted */
    struct ibv_mw *windows[XFE_RAILS_MAX]; /* of each rail, for the visitor's lane there */
    uint32_t window_keys[XFE_RAILS_MAX];   /* the same each time that a lane is made anew */
    uint32_t bound;                        /* lanes whose queue pair has its window: bits */
};

static inline struct sw_xfer_lease *xfe_lease_at(struct list_node *node)
{
    return LIST_MEMBER(node, struct sw_xfer_lease, node);
}

/* What a device has to allow for its rights. */
int xfe_lease_access(const struct sw_xfer_lease *lease);
/* By which a peer that comes to this rail names it. */
uint32_t xfe_lease_key(const struct sw_xfer_lease *lease, uint32_t rail);
/* Their queue pairs are gone. */
void xfe_lease_free_windows(struct sw_xfer_lease *lease);
/* The visitor has no lane any more: its windows end. */
void xfe_leases_of_visitor_end(struct sw_xfer_agent *agent, uint64_t visitor);
/* One of its lanes has no queue pair any more. */
void xfe_leases_of_lane_end(struct sw_xfer_agent *agent, uint64_t visitor, uint32_t lane);
bool xfe_leases_have_windows(const struct sw_xfer_agent *agent, uint64_t visitor);

#endif
