/* SPDX-License-Identifier: BSD-2-Clause */
/* Transfers: blocks of one side to or from as many of the other. */
#ifndef SW_MOVERS_TRANSFER_ENGINE_TRANSFER_H
#define SW_MOVERS_TRANSFER_ENGINE_TRANSFER_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/list.h"
#include "sidewire/transfer.h"
#include "transfer/core/flow.h"

struct sw_xfer_transfer {
    struct xfc_task task;
    struct list_node node;
    struct sw_xfer_peer *peer;
    struct sw_xfer_blocks *local, *remote;
    struct xfc_plan plan; /* its keys are numbers of parts */
    bool is_whole;        /* the plan is of all blocks, in their order */
    void *arg;
    uint32_t notice_bytes;
    uint8_t notice[SW_XFER_NOTICE_MAX];
};

void xfe_transfer_free(struct sw_xfer_transfer *transfer);
/* Whether none that is posted uses it. */
bool xfe_transfers_let_go(struct sw_xfer_agent *agent, const struct sw_xfer_memory *memory);

#endif
