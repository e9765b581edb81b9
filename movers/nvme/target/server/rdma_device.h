/* SPDX-License-Identifier: BSD-2-Clause */
/* Devices: a protection domain and a completion queue of each, and what is registered there. */
#ifndef SW_MOVERS_NVME_SERVER_RDMA_DEVICE_H
#define SW_MOVERS_NVME_SERVER_RDMA_DEVICE_H

#include <stdbool.h>
#include <stdint.h>

#include <infiniband/verbs.h>

#include "common/rdma/queue.h"
#include "common/serve/loop.h"

enum {
    NVR_SHARED_MAX = 8, /* lots of shared receives of a device: one for each in-capsule size */
    NVR_QPN_CHAINS = 256,
};

struct nvr_queue;
struct nvr_receives;
struct nvr_thread;
struct mover_region;

/* A device, as one thread has it. */
struct nvr_device {
    struct mover_watch watch, async_watch; /* of the queue; of the device's events: the first's */
    struct nvr_thread *thread;
    struct ibv_context *verbs;
    struct ibv_pd *pd; /* the first thread's */
    struct mover_queue queue;
    bool is_armed, has_polled; /* the queue; some completion since then */
    int cq_entries, cq_used, index;
    struct nvr_receives *shared[NVR_SHARED_MAX];
    uint32_t shared_count;
    bool has_no_srq;
    struct nvr_queue *by_qpn[NVR_QPN_CHAINS]; /* those whose receives are shared */
};

/* The device of an ID; NULL: it cannot be used. */
struct nvr_device *nvr_device_of(struct nvr_thread *thread, struct ibv_context *verbs);
/* The next completion wakes the thread. False: the device refuses. */
bool nvr_device_arm(struct nvr_device *device);
struct ibv_mr *nvr_device_register(struct nvr_device *device, struct mover_region *region);
void nvr_region_forget(struct mover_region *region); /* by all devices */
bool nvr_device_reserve(struct nvr_device *device, int entries);
/* NULL: none of that number shares receives. */
struct nvr_queue *nvr_device_queue(struct nvr_device *device, uint32_t qpn);
void nvr_device_close(struct nvr_device *device);

#endif
