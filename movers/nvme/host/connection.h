/* SPDX-License-Identifier: BSD-2-Clause */
/* What this protocol says on the connection of a queue: NVMe RDMA Transport 1.0, 3.2. */
#ifndef SW_MOVERS_NVME_HOST_CONNECTION_H
#define SW_MOVERS_NVME_HOST_CONNECTION_H

#include <stdbool.h>
#include <stdint.h>

#include "sidewire/nvme.h"

bool nvh_link_start(struct sw_nvme_queue *queue, uint64_t now_ns);
void nvh_link_step(struct sw_nvme_queue *queue);
/* Nothing touches the memory of the queue's requests when this returns. */
void nvh_link_destroy(struct sw_nvme_queue *queue);
bool nvh_post_receives(struct sw_nvme_queue *queue);

#endif
