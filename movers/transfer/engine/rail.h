/* SPDX-License-Identifier: BSD-2-Clause */
/* Rails: the addresses at which an agent listens, and the devices behind them. */
#ifndef SW_MOVERS_TRANSFER_ENGINE_RAIL_H
#define SW_MOVERS_TRANSFER_ENGINE_RAIL_H

#include <stdbool.h>
#include <stdint.h>

#include <rdma/rdma_cma.h>

#include "common/rdma/listener.h"
#include "sidewire/transfer.h"

enum { XFE_RAILS_MAX = SW_XFER_ADDRESSES_MAX };

struct xfe_rail {
    struct sw_xfer_agent *agent;
    struct mover_listener listener;
    struct rdma_cm_id *anchor; /* holds the device where the listener does not; else NULL */
    uint32_t device;
};

/* Listens at one more address. */
enum sw_xfer_status xfe_rail_start(struct sw_xfer_agent *agent, const char *address,
                                   struct sw_xfer_error *error);
/* The event was a listener's own. */
bool xfe_rails_take(struct sw_xfer_agent *agent, const struct mover_arrival *arrival);
/* Listens again where an address is back. */
void xfe_rails_tick(struct sw_xfer_agent *agent);

#endif
