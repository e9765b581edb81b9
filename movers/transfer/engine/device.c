/* SPDX-License-Identifier: BSD-2-Clause */
#include "transfer/engine/device.h"

#include "common/rdma/watch.h"
#include "transfer/engine/agent.h"

struct xfe_device *xfe_device_find(struct sw_xfer_agent *agent, const struct ibv_context *verbs)
{
    for (uint32_t i = 0; i < agent->devices_count; i++)
        if (agent->devices[i].verbs == verbs)
            return &agent->devices[i];
    return NULL;
}

/* The agent's own context: that of rdma_cm is the process's, and others may read its events. */
void xfe_device_watch(struct xfe_device *device)
{
    if (device->watch)
        return;
    device->watch = ibv_open_device(device->verbs->device);
    if (!device->watch)
        return;
    if (mover_watch(device->agent->epoll_fd, device->watch->async_fd, &device->source))
        return;
    ibv_close_device(device->watch);
    device->watch = NULL;
}

void xfe_devices_free(struct sw_xfer_agent *agent)
{
    for (uint32_t i = 0; i < agent->devices_count; i++) {
        if (agent->devices[i].watch)
            ibv_close_device(agent->devices[i].watch);
        ibv_dealloc_pd(agent->devices[i].pd);
    }
}
