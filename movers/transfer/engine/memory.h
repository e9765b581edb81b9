/* SPDX-License-Identifier: BSD-2-Clause */
/* Memory that transfers may use: registered for this side alone. Leases let peers in. */
#ifndef SW_MOVERS_TRANSFER_ENGINE_MEMORY_H
#define SW_MOVERS_TRANSFER_ENGINE_MEMORY_H

#include <stdbool.h>
#include <stdint.h>

#include <infiniband/verbs.h>

#include "common/base/list.h"
#include "common/rdma/memory.h"
#include "sidewire/transfer.h"
#include "transfer/engine/device.h"

struct sw_xfer_memory {
    struct list_node node;
    struct sw_xfer_agent *agent;
    enum sw_xfer_memory_kind kind;
    struct mover_memory at;
    struct ibv_mr *mrs[XFE_DEVICES_MAX]; /* NULL until the device is known */
    bool is_doubtful; /* a peer that was stopped amid an access may still store to its pages */
    uint32_t uses;
};

/* Once the device is known. */
bool xfe_memory_register(struct sw_xfer_memory *memory, struct xfe_device *device);
/* Deregisters all of it, which no transfer uses, and registers it anew. False: that would not help,
 * or did not succeed. */
bool xfe_memory_renew(struct sw_xfer_memory *memory);
void xfe_memory_free(struct sw_xfer_memory *memory);

#endif
