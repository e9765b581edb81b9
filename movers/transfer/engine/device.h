/* SPDX-License-Identifier: BSD-2-Clause */
/* The RDMA devices that an agent has met. */
#ifndef SW_MOVERS_TRANSFER_ENGINE_DEVICE_H
#define SW_MOVERS_TRANSFER_ENGINE_DEVICE_H

#include <stdbool.h>
#include <stdint.h>

#include <infiniband/verbs.h>

#include "sidewire/transfer.h"
#include "transfer/engine/source.h"

enum { XFE_DEVICES_MAX = 4 };

struct xfe_device {
    struct xfe_source source;
    struct sw_xfer_agent *agent;
    struct ibv_context *verbs;
    struct ibv_context *watch; /* for the events of its ports alone; NULL: not watched */
    struct ibv_pd *pd;
    uint32_t reads_max;
    bool has_windows;
};

/* Finds a device that was adopted; NULL: none. */
struct xfe_device *xfe_device_find(struct sw_xfer_agent *agent, const struct ibv_context *verbs);
/* Wakes the agent from now on when its ports come and go, if it can: xfe_ports_events(). */
void xfe_device_watch(struct xfe_device *device);
void xfe_devices_free(struct sw_xfer_agent *agent);

static inline bool xfe_device_is_iwarp(const struct xfe_device *device)
{
    return device->verbs->device->transport_type == IBV_TRANSPORT_IWARP;
}

#endif
