/* SPDX-License-Identifier: BSD-2-Clause */
/* SENDs to the device, completions from it, and waiting for them. */
#ifndef SW_MOVERS_NVME_HOST_COMPLETION_H
#define SW_MOVERS_NVME_HOST_COMPLETION_H

#include <stdbool.h>
#include <stdint.h>

#include "nvme/host/queue.h"
#include "sidewire/nvme.h"

/* Those of the machine's port. */
bool nvh_post_sends(struct sw_nvme_queue *queue, bool signals);
void nvh_drain_completions(struct sw_nvme_queue *queue);

/* For a new queue pair: what all SENDs have in common is filled in once. */
void nvh_prepare_sends(struct nvh_link *link);
/* Asks for an event at the next completion. False: requests have ended meanwhile. */
bool nvh_queue_arm(struct nvh_link *link);
/* Sleeps until something may have happened, at most until the deadline. */
void nvh_queue_sleep(struct nvh_link *link, uint64_t deadline_ns);

#endif
