/* SPDX-License-Identifier: BSD-2-Clause */
/* Devices that an agent meets: at its addresses, and where its peers are. */
#ifndef SW_MOVERS_TRANSFER_ENGINE_ADOPT_H
#define SW_MOVERS_TRANSFER_ENGINE_ADOPT_H

#include <infiniband/verbs.h>

#include "sidewire/transfer.h"

struct xfe_device;

/* All memory is registered with each device that an agent meets. NULL: it has no room. */
struct xfe_device *xfe_device_adopt(struct sw_xfer_agent *agent, struct ibv_context *verbs);

#endif
