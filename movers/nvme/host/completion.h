/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Completions: what the device reports, what the controller answers, and waiting for both. Bytes
 * of the controller are checked here; whatever it sends wrongly ends the queue.
 */
#ifndef SW_MOVERS_NVME_HOST_COMPLETION_H
#define SW_MOVERS_NVME_HOST_COMPLETION_H

#include <stdbool.h>
#include <stdint.h>

#include "sidewire/nvme.h"

uint32_t nvh_queue_drain(struct sw_nvme_queue *queue);
void nvh_finish(struct sw_nvme_queue *queue, uint32_t index);
/* Asks for an event at the next completion. False: requests have ended meanwhile. */
bool nvh_queue_arm(struct sw_nvme_queue *queue);
/* Sleeps until something may have happened, at most until the deadline. */
void nvh_queue_sleep(struct sw_nvme_queue *queue, uint64_t deadline_ns);

#endif
