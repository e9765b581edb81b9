/* SPDX-License-Identifier: BSD-2-Clause */
/* What rdma_cm says of connections. */
#ifndef SW_MOVERS_NVME_SERVER_RDMA_CONNECTION_H
#define SW_MOVERS_NVME_SERVER_RDMA_CONNECTION_H

struct mover_arrival;
struct nvr_server;

void nvr_connection_event(struct nvr_server *server, const struct mover_arrival *arrival);

#endif
