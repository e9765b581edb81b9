/* SPDX-License-Identifier: BSD-2-Clause */
/* Lists of blocks, each within its memory or its region: checked here, trusted afterwards. */
#ifndef SW_MOVERS_TRANSFER_ENGINE_BLOCKS_H
#define SW_MOVERS_TRANSFER_ENGINE_BLOCKS_H

#include <stdint.h>

#include "common/base/list.h"
#include "sidewire/transfer.h"
#include "transfer/engine/rail.h"

struct xfe_block {
    uint64_t address, bytes;
    uint32_t part;
};

struct sw_xfer_blocks {
    struct list_node node;
    struct sw_xfer_agent *agent;
    struct sw_xfer_peer *peer; /* NULL: local */
    struct sw_xfer_memory **memories;
    uint32_t (*keys)[XFE_RAILS_MAX]; /* of a peer's parts, for each lane */
    uint32_t parts, rights;
    struct xfe_block *all;
    uint32_t count;
    uint64_t requests; /* that they become at most */
    uint32_t uses;
};

void xfe_blocks_free(struct sw_xfer_blocks *blocks);

#endif
