/* SPDX-License-Identifier: BSD-2-Clause */
/* Devices: a protection domain and a completion queue of each, and what is registered there. */
#include <fcntl.h>

#include "nvme/target/rdma.h"

enum { CQ_ENTRIES = 4096 };

/* That there is something is all that an event says: the loop polls then. */
static void acknowledge(struct nvr_watch *watch)
{
    const struct nvr_device *device = watch->context;
    struct ibv_cq *cq;
    void *context;
    while (!ibv_get_cq_event(device->channel, &cq, &context))
        ibv_ack_cq_events(cq, 1);
}

struct nvr_device *nvr_device_of(struct nvr_server *server, struct ibv_context *verbs)
{
    for (uint32_t i = 0; i < server->device_count; i++)
        if (server->devices[i].verbs == verbs)
            return &server->devices[i];
    if (server->device_count == NVT_REGION_DEVICES)
        return NULL;
    struct nvr_device *device = &server->devices[server->device_count];
    *device = (struct nvr_device){.verbs = verbs, .index = (int)server->device_count};
    struct ibv_device_attr attr;
    device->cq_entries = CQ_ENTRIES;
    if (!ibv_query_device(verbs, &attr) && attr.max_cqe < CQ_ENTRIES)
        device->cq_entries = attr.max_cqe;
    device->pd = ibv_alloc_pd(verbs);
    device->channel = ibv_create_comp_channel(verbs);
    if (device->channel)
        fcntl(device->channel->fd, F_SETFL, fcntl(device->channel->fd, F_GETFL) | O_NONBLOCK);
    if (device->pd && device->channel)
        device->cq = ibv_create_cq(verbs, device->cq_entries, device, device->channel, 0);
    device->watch = (struct nvr_watch){
        .fd = device->channel ? device->channel->fd : -1, .ready = acknowledge, .context = device};
    if (device->cq && !nvr_server_watch(server, &device->watch)) {
        server->device_count++;
        return device;
    }
    if (device->cq)
        ibv_destroy_cq(device->cq);
    if (device->channel)
        ibv_destroy_comp_channel(device->channel);
    if (device->pd)
        ibv_dealloc_pd(device->pd);
    return NULL;
}

struct ibv_mr *nvr_device_register(struct nvr_device *device, struct nvt_region *region)
{
    struct ibv_mr *mr = region->registered[device->index];
    if (mr)
        return mr;
    mr = ibv_reg_mr(device->pd, region->base, region->len_bytes, IBV_ACCESS_LOCAL_WRITE);
    if (!mr) /* memory that can only be read */
        mr = ibv_reg_mr(device->pd, region->base, region->len_bytes, 0);
    region->registered[device->index] = mr;
    return mr;
}

bool nvr_device_reserve(struct nvr_device *device, int entries)
{
    int wanted = device->cq_entries;
    while (wanted < device->cq_used + entries)
        wanted *= 2;
    if (wanted != device->cq_entries) {
        if (ibv_resize_cq(device->cq, wanted))
            return false;
        device->cq_entries = wanted;
    }
    device->cq_used += entries;
    return true;
}
