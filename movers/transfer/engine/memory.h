/* SPDX-License-Identifier: BSD-2-Clause */
/* Memory that transfers may use: registered for this side alone. Leases let peers in. */
#ifndef SW_MOVERS_TRANSFER_ENGINE_MEMORY_H
#define SW_MOVERS_TRANSFER_ENGINE_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <infiniband/verbs.h>

#include "common/base/list.h"
#include "sidewire/transfer.h"
#include "transfer/engine/device.h"

struct sw_xfer_memory {
    struct list_node node;
    struct sw_xfer_agent *agent;
    enum sw_xfer_memory_kind kind;
    void *data;       /* NULL: not seen by the processor */
    uint64_t address; /* as requests name its first byte */
    uint64_t bytes;
    void *mapped; /* of a file */
    uint64_t mapped_bytes;
    int fd;                              /* of a DMA buffer or a file to read, ours; -1 */
    uint64_t fd_offset;                  /* in it */
    struct ibv_mr *mrs[XFE_DEVICES_MAX]; /* NULL until the device is known */
    bool is_writable;
    bool is_doubtful; /* a peer that was stopped amid an access may still store to its pages */
    uint32_t uses;
};

/* Zeros, on pages of their own: what is registered shares none with the heap. NULL: no memory. */
void *xfe_pages(size_t bytes);
/* Once the device is known. */
bool xfe_memory_register(struct sw_xfer_memory *memory, struct xfe_device *device);
/* A registration of a part of it that peers can reach. */
struct ibv_mr *xfe_memory_share(const struct sw_xfer_memory *memory,
                                const struct xfe_device *device, uint64_t offset, uint64_t bytes,
                                int access);
/* Deregisters all of it, and registers it anew. False: it is in use, or that would not help. */
bool xfe_memory_renew(struct sw_xfer_memory *memory);
void xfe_memory_free(struct sw_xfer_memory *memory);

#endif
