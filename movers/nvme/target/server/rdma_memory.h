/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Memory that hosts send to: a file in memory instead of private memory. A software NIC in user
 * space lets peers on this machine write to such a file directly. It cannot do so with private
 * memory, which io_uring may hold on to.
 */
#ifndef SW_MOVERS_NVME_SERVER_RDMA_MEMORY_H
#define SW_MOVERS_NVME_SERVER_RDMA_MEMORY_H

#include <stddef.h>

struct nvr_server;

/* Memory that is registered for hosts to send to. NULL: there is none. */
void *nvr_memory_map(struct nvr_server *server, size_t len_bytes);
void nvr_memory_unmap(void *memory, size_t len_bytes);

#endif
