/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a queue has of this system, around the machine's part of it: a connection and its queue
 * pair, memory, descriptors. All that it needs is made when it is opened, before any data.
 */
#ifndef SW_MOVERS_NVME_HOST_QUEUE_H
#define SW_MOVERS_NVME_HOST_QUEUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <infiniband/verbs.h>

#include "common/rdma/connection.h"
#include "nvme/host/machine/queue.h"
#include "sidewire/nvme.h"

enum { NVH_RECEIVE_BYTES = 64 /* a line of cache for each response of 16 */ };

struct nvh_dhchap;

/* A SEND of a batch. */
struct nvh_send {
    struct ibv_send_wr wr;
    struct ibv_sge sges[2];
};

struct nvh_link {
    struct sw_nvme_queue queue; /* first: a handle is both */
    struct mover_connection connection;
    struct ibv_qp *qp;
    struct nvh_send sends[NVH_BATCH];
    uint32_t polls, spin_us;

    /* Commands and receives, which only this side's device touches; and the scratch. */
    void *memory;
    size_t memory_bytes;
    struct ibv_mr *memory_mr, *scratch_mr;
    uint8_t *receives;
    uint32_t receives_max, receives_missing;
    uint16_t *missing; /* receives that are to be posted again */

    int epoll_fd, timer_fd;
    struct nvh_dhchap *chap; /* NULL but while the queue authenticates */
};

static inline struct nvh_link *nvh_link_of(struct sw_nvme_queue *queue)
{
    return (struct nvh_link *)queue;
}

enum sw_nvme_status nvh_link_init(struct nvh_link *link, struct sw_nvme_controller *controller,
                                  uint16_t qid, uint32_t size);
/* Also of one that was not made, if it is zero. */
void nvh_link_free(struct nvh_link *link);
bool nvh_link_memory(struct nvh_link *link);

#endif
