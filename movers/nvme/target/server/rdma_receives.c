/* SPDX-License-Identifier: BSD-2-Clause */
#include "nvme/target/server/rdma_receives.h"

#include <stdlib.h>

#include "nvme/target/server/rdma_device.h"
#include "nvme/target/server/rdma_memory.h"
#include "nvme/target/server/rdma_queue.h"
#include "nvme/target/server/server.h"

enum { SHARED_MIN = 32 }; /* of a thread */

static uint64_t shared_wr_id(const struct nvr_receives *receives, uint16_t index)
{
    return (uint64_t)NVR_WR_SHARED << 48 | (uint64_t)index << 32 | receives->number;
}

uint64_t nvr_wr_id(const struct nvr_queue *queue, enum nvr_wr_kind kind, uint16_t index)
{
    return (uint64_t)kind << 48 | (uint64_t)index << 32 | (uint64_t)queue->generation << 16 |
           queue->number;
}

/* The work request of one, where it is used: a copy would be read before it is written. `sges` has
 * room for two. */
static void fill_receive_wr(const struct nvr_receives *receives, const struct nvr_queue *queue,
                            uint16_t index, struct ibv_sge *sges, struct ibv_recv_wr *wr)
{
    sges[0].addr = (uintptr_t)(receives->capsules + index * NVF_SQE_BYTES);
    sges[0].length = NVF_SQE_BYTES;
    sges[0].lkey = receives->capsule_mr->lkey;
    if (receives->in_capsule_bytes) {
        const struct ibv_mr *mr = receives->data_region.registered[receives->device->index];
        sges[1].addr = (uintptr_t)(receives->data + (size_t)index * receives->in_capsule_bytes);
        sges[1].length = receives->in_capsule_bytes;
        sges[1].lkey = mr->lkey;
    }
    wr->wr_id =
        receives->srq ? shared_wr_id(receives, index) : nvr_wr_id(queue, NVR_WR_RECEIVE, index);
    wr->next = NULL;
    wr->sg_list = sges;
    wr->num_sge = receives->in_capsule_bytes ? 2 : 1;
}

bool nvr_receives_post(struct nvr_receives *receives, const struct nvr_queue *queue)
{
    struct ibv_recv_wr wrs[NVR_GIVEN_MAX], *bad;
    struct ibv_sge sges[2 * NVR_GIVEN_MAX];
    const uint32_t count = receives->given_count;
    if (!count)
        return true;
    for (uint32_t i = 0; i < count; i++) {
        fill_receive_wr(receives, queue, receives->given[i], &sges[2 * i], &wrs[i]);
        if (i)
            wrs[i - 1].next = &wrs[i];
    }
    receives->given_count = 0;
    return (receives->srq ? ibv_post_srq_recv(receives->srq, wrs, &bad)
                          : ibv_post_recv(queue->qp, wrs, &bad)) == 0;
}

bool nvr_receive_give(struct nvr_receives *receives, const struct nvr_queue *queue, uint16_t index)
{
    receives->given[receives->given_count++] = index;
    return receives->given_count < NVR_GIVEN_MAX || nvr_receives_post(receives, queue);
}

static bool rdma_receives_make_memory(struct nvr_server *server, struct nvr_receives *receives)
{
    const size_t capsule_bytes = (size_t)receives->count * NVF_SQE_BYTES;
    const size_t data_bytes = (size_t)receives->count * receives->in_capsule_bytes;
    receives->capsules = nvr_memory_map(server, capsule_bytes);
    if (receives->capsules)
        receives->capsule_mr = ibv_reg_mr(receives->device->pd, receives->capsules, capsule_bytes,
                                          IBV_ACCESS_LOCAL_WRITE);
    if (!receives->capsule_mr || !data_bytes)
        return receives->capsule_mr;
    receives->data = nvr_memory_map(server, data_bytes);
    receives->data_region = (struct mover_region){.base = receives->data, .len_bytes = data_bytes};
    return receives->data && nvr_device_register(receives->device, &receives->data_region);
}

struct nvr_receives *nvr_receives_create(struct nvr_server *server, struct nvr_device *device,
                                         uint32_t count, uint32_t in_capsule_bytes)
{
    struct nvr_receives *receives = calloc(1, sizeof(*receives));
    if (!receives)
        return NULL;
    if (!nvr_device_reserve(device, (int)count)) {
        free(receives);
        return NULL;
    }
    *receives = (struct nvr_receives){
        .device = device, .count = count, .in_capsule_bytes = in_capsule_bytes};
    if (rdma_receives_make_memory(server, receives))
        return receives;
    nvr_receives_free(receives);
    return NULL;
}

void nvr_receives_free(struct nvr_receives *receives)
{
    if (receives->srq)
        ibv_destroy_srq(receives->srq);
    if (receives->capsule_mr)
        ibv_dereg_mr(receives->capsule_mr);
    nvr_region_forget(&receives->data_region);
    if (receives->capsules)
        nvr_memory_unmap(receives->capsules, (size_t)receives->count * NVF_SQE_BYTES);
    if (receives->data)
        nvr_memory_unmap(receives->data, (size_t)receives->count * receives->in_capsule_bytes);
    receives->device->cq_used -= (int)receives->count;
    free(receives);
}

static uint32_t shared_count(const struct nvr_server *server, const struct nvr_device *device)
{
    struct ibv_device_attr attr;
    uint32_t count = server->settings.shared_receives / server->thread_count;
    if (count < SHARED_MIN)
        count = SHARED_MIN;
    if (ibv_query_device(device->verbs, &attr) || attr.max_srq <= 0 || attr.max_srq_sge < 2)
        return 0;
    return count < (uint32_t)attr.max_srq_wr ? count : (uint32_t)attr.max_srq_wr;
}

static struct nvr_receives *create_shared(struct nvr_server *server, struct nvr_device *device,
                                          uint32_t in_capsule_bytes)
{
    const uint32_t count = shared_count(server, device);
    struct nvr_receives *receives =
        count ? nvr_receives_create(server, device, count, in_capsule_bytes) : NULL;
    if (!receives)
        return NULL;
    struct ibv_srq_init_attr attr = {.attr = {.max_wr = count, .max_sge = 2}};
    receives->number = (uint16_t)device->shared_count;
    receives->srq = ibv_create_srq(device->pd, &attr);
    bool is_posted = receives->srq;
    for (uint32_t i = 0; is_posted && i < count; i++)
        is_posted = nvr_receive_give(receives, NULL, (uint16_t)i);
    if (is_posted && nvr_receives_post(receives, NULL))
        return receives;
    nvr_receives_free(receives);
    return NULL;
}

struct nvr_receives *nvr_receives_shared(struct nvr_server *server, struct nvr_device *device,
                                         uint32_t in_capsule_bytes)
{
    if (!server->settings.shared_receives || device->has_no_srq)
        return NULL;
    for (uint32_t i = 0; i < device->shared_count; i++)
        if (device->shared[i]->in_capsule_bytes == in_capsule_bytes)
            return device->shared[i];
    if (device->shared_count == NVR_SHARED_MAX)
        return NULL;
    struct nvr_receives *receives = create_shared(server, device, in_capsule_bytes);
    if (receives)
        device->shared[device->shared_count++] = receives;
    else if (!device->shared_count)
        device->has_no_srq = true;
    return receives;
}
