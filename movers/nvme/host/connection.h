/* SPDX-License-Identifier: BSD-2-Clause */
/* What this protocol says on the connection of a queue: NVMe RDMA Transport 1.0, 3.2. */
#ifndef SW_MOVERS_NVME_HOST_CONNECTION_H
#define SW_MOVERS_NVME_HOST_CONNECTION_H

#include <stdbool.h>

#include "nvme/host/queue.h"
#include "sidewire/nvme.h"

/* Those of the machine's port. */
void nvh_connection_start(struct sw_nvme_queue *queue);
void nvh_connection_look(struct sw_nvme_queue *queue);
void nvh_connection_end(struct sw_nvme_queue *queue);

bool nvh_post_receives(struct nvh_link *link);

#endif
