/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Receives: an SQE each, and the data that may come with it. Shared ones (SRQ) bound the memory by
 * what comes at the same time instead of by what could come.
 */
#ifndef SW_MOVERS_NVME_SERVER_RDMA_RECEIVES_H
#define SW_MOVERS_NVME_SERVER_RDMA_RECEIVES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <infiniband/verbs.h>

#include "common/pool/pool.h"

enum { NVR_GIVEN_MAX = 16 }; /* receives that are posted in one list */

struct nvr_device;
struct nvr_queue;
struct nvr_server;

/*
 * Work requests name their queue by number and generation, so that a completion of one that is gone
 * is known for what it is.
 */
enum nvr_wr_kind {
    NVR_WR_RECEIVE,
    NVR_WR_SHARED,
    NVR_WR_FETCH,
    NVR_WR_ANSWER,
    NVR_WR_SILENT,
    NVR_WR_PROBE
};

/* Receives for what hosts send: of one queue, or of all I/O queues of a device. */
struct nvr_receives {
    struct nvr_device *device;
    struct ibv_srq *srq; /* NULL: of one queue */
    uint32_t count, in_capsule_bytes;
    uint16_t number;          /* shared: in the device's */
    uint8_t *capsules, *data; /* [count * 64], [count * in_capsule_bytes] */
    struct ibv_mr *capsule_mr;
    struct mover_region data_region;
    uint32_t taken;                /* by capsules that lie in them */
    size_t copied_bytes;           /* of capsules that do not, since their queue has too many */
    uint16_t given[NVR_GIVEN_MAX]; /* those that are to be posted again */
    uint32_t given_count;
};

uint64_t nvr_wr_id(const struct nvr_queue *queue, enum nvr_wr_kind kind, uint16_t index);
/* Makes the receives of one queue. NULL: no memory, or the device refuses. */
struct nvr_receives *nvr_receives_create(struct nvr_server *server, struct nvr_device *device,
                                         uint32_t count, uint32_t in_capsule_bytes);
void nvr_receives_free(struct nvr_receives *receives);
/* The receives that all I/O queues of a thread with that in-capsule size share. NULL: each has to
 * have its own. */
struct nvr_receives *nvr_receives_shared(struct nvr_server *server, struct nvr_device *device,
                                         uint32_t in_capsule_bytes);
/* It is to be posted again: by nvr_receives_post(), or now where many are. Shared ones are posted
 * for any host that sends next; `queue` may be NULL. False: the device refuses. */
bool nvr_receive_give(struct nvr_receives *receives, const struct nvr_queue *queue, uint16_t index);
bool nvr_receives_post(struct nvr_receives *receives, const struct nvr_queue *queue);

#endif
