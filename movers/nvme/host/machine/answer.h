/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What has come: completions of SENDs, answers of the controller, and requests that end by them.
 * Bytes of the controller are checked here; whatever it sends wrongly ends the queue.
 */
#ifndef SW_MOVERS_NVME_HOST_ANSWER_H
#define SW_MOVERS_NVME_HOST_ANSWER_H

#include <stdbool.h>
#include <stdint.h>

#include "nvme/wire/fabrics.h"
#include "sidewire/nvme.h"

/* Around what one look at the completion queue has found. Callbacks may submit: that leaves at the
 * end of the batch. */
void nvh_batch_begin(struct sw_nvme_queue *queue);
void nvh_batch_end(struct sw_nvme_queue *queue);
/* The SEND of that number is done, and all before it. */
void nvh_send_done(struct sw_nvme_queue *queue, uint32_t send);
void nvh_answered(struct sw_nvme_queue *queue, const struct nvf_cqe *cqe);
void nvh_finish(struct sw_nvme_queue *queue, uint32_t index);
/* Nothing can end any more: all that is there are results that wait to be taken. */
bool nvh_queue_is_idle(const struct sw_nvme_queue *queue);

#endif
