/* SPDX-License-Identifier: BSD-2-Clause */
/* Where the server listens: at each port's address, also when it comes back. */
#ifndef SW_MOVERS_NVME_SERVER_RDMA_LISTENER_H
#define SW_MOVERS_NVME_SERVER_RDMA_LISTENER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/rdma/listener.h"

struct nvr_server;
struct mover_watch;
struct nvt_config_port;
struct nvt_port;

struct nvr_listener {
    struct mover_listener at;
    struct nvt_port *port;
};

/* Listens where `config` says; `error` says what is wrong. Returns 0 or a negative errno. */
int nvr_server_listen(struct nvr_server *server, const struct nvt_config_port *config, char *error,
                      size_t error_size);
/* Ends the connections that came by the port, too. */
void nvr_server_unlisten(struct nvr_server *server, uint16_t portid);
/* False while its address is away. */
bool nvr_server_is_listening(const struct nvr_server *server, const struct nvt_port *port);
/* NULL: it listens at none of that number. */
struct nvt_port *nvr_server_port(const struct nvr_server *server, uint16_t portid);
/* A ready() of the listeners' timer. */
void nvr_listeners_tick(struct mover_watch *watch);

#endif
