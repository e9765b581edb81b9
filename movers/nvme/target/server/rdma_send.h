/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a queue sends: READs of data, and answers, which are WRITEs of data and the SEND of a
 * response. They gather in a list for each queue pair, which is posted once a turn of the loop has
 * handled all that came. The device then has one call for many answers, and only the last of a list
 * is signaled: it tells that those before it are done, too. Where they have much data, some between
 * are, so that one sees a slow host take them.
 */
#ifndef SW_MOVERS_NVME_SERVER_RDMA_SEND_H
#define SW_MOVERS_NVME_SERVER_RDMA_SEND_H

#include <stdint.h>

#include <infiniband/verbs.h>

#include "common/base/list.h"
#include "nvme/target/server/rdma_queue.h"
#include "nvme/target/server/rdma_receives.h"
#include "nvme/wire/sgl.h"

enum { NVR_OUTBOX = 128 }; /* work requests that wait for the end of a turn */

/* Work requests that leave at the end of the turn: a list for each queue that has some. */
struct nvr_outbox {
    struct list queues;
    uint32_t count;
    struct ibv_send_wr wrs[NVR_OUTBOX];
    struct ibv_sge sges[NVR_OUTBOX];
};

/* Work requests that may be under way: the data and response of each slot, and one of the most
 * pieces. */
static inline uint32_t nvr_queue_sends_max(const struct nvr_queue *queue)
{
    return 2 * queue->slot_count + NVF_SGL_MAX;
}

void nvr_send_fetch(struct nvt_request *request);
void nvr_send_answer(struct nvt_request *request);
/* Asks the host's device, not the host, whether it is there, if nothing else is on its way that
 * would tell: by a WRITE of no bytes. A queue whose probe has no answer fails. */
void nvr_send_probe(struct nvr_queue *queue);
/* A completion of a READ, of an answer or of a probe. */
void nvr_send_done(struct nvr_queue *queue, enum nvr_wr_kind kind, uint16_t index);
/* Posts what all queues of the thread have to send. */
void nvr_sends_post(struct nvr_thread *thread);
/* The queue sends nothing any more. */
void nvr_sends_drop(struct nvr_queue *queue);

#endif
