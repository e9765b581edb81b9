/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Capsules that have come: each lies in the receive that it came by, until its command is answered.
 * Where receives are shared, a queue keeps no more of them than are left for others, and all hosts
 * at one address three times that. Further capsules are copied, and their receives are for the next
 * ones at once. Hosts at one address have three times as many copies as are left for others. A
 * queue that has sent more than that ends: it would hold what others need to be heard.
 */
#ifndef SW_MOVERS_NVME_SERVER_RDMA_CAPSULE_H
#define SW_MOVERS_NVME_SERVER_RDMA_CAPSULE_H

#include <stdbool.h>
#include <stdint.h>

struct nvr_queue;
struct nvt_request;
struct nvt_share;

/* What a host has sent: in a receive, or copied from there. */
struct nvr_capsule {
    uint8_t *copy; /* [len_bytes], NULL: in the receive */
    struct nvt_share
        *share; /* whose copy it is; NULL: the one that its queue may have at any time */
    uint16_t receive, len_bytes;
    bool is_there;
};

/* One has come: receive and len_bytes are set. False: there is no place for it. */
bool nvr_capsule_take(struct nvr_queue *queue, struct nvr_capsule *capsule);
/* It is not needed any more; nothing where it has been given. False: the device refuses. */
bool nvr_capsule_give(struct nvr_queue *queue, struct nvr_capsule *capsule);
/* The command, and the data that came with it. */
void nvr_capsule_place(const struct nvr_queue *queue, const struct nvr_capsule *capsule,
                       struct nvt_request *request);

#endif
