/* SPDX-License-Identifier: BSD-2-Clause */
#include "nvme/target/server/rdma_listener.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

#include "common/rdma/listener.h"
#include "nvme/target/model/port.h"
#include "nvme/target/server/rdma_queue.h"
#include "nvme/target/server/server.h"

enum { BACKLOG = 128 };

static void say_change(struct mover_listener *listener)
{
    const struct nvr_server *server = listener->owner;
    char text[MOVER_LISTENER_SAID];
    mover_listener_say(listener, text);
    if (server->say_listener)
        server->say_listener(!listener->id, text);
}

void nvr_listeners_tick(struct mover_watch *watch)
{
    struct nvr_server *server = watch->context;
    if (!mover_listener_is_due(watch->fd))
        return;
    for (uint32_t i = 0; i < server->listener_count; i++)
        mover_listener_tick(&server->listeners[i].at);
}

static int rdma_listener_open(struct nvr_server *server, const struct nvt_listen *at,
                              struct mover_listener *out)
{
    struct addrinfo hints = {.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV,
                             .ai_socktype = SOCK_STREAM},
                    *found = NULL;
    char service[8];
    snprintf(service, sizeof(service), "%u", at->port);
    if (getaddrinfo(at->traddr, service, &hints, &found))
        return -EINVAL;
    *out = (struct mover_listener){.events = server->events,
                                   .timer_fd = server->listen_watch.fd,
                                   .backlog = BACKLOG,
                                   .owner = server,
                                   .changed = say_change};
    int rc = mover_listener_open(out, found->ai_addr);
    freeaddrinfo(found);
    return rc;
}

int nvr_server_listen(struct nvr_server *server, const struct nvt_config_port *config, char *error,
                      size_t error_size)
{
    struct mover_listener at;
    int rc = server->listener_count == NVR_LISTENERS_MAX
                 ? -ENOSPC
                 : rdma_listener_open(server, &config->listen, &at);
    struct nvt_port *port = rc ? NULL : nvt_port_add(&server->target, config);
    if (!rc && !port) {
        mover_listener_close(&at);
        rc = -ENOMEM;
    }
    if (rc) {
        snprintf(error, error_size, "cannot listen at %s port %u: %s%s", config->listen.traddr,
                 config->listen.port, strerror(-rc), mover_listener_help(rc));
        return rc;
    }
    server->listeners[server->listener_count++] = (struct nvr_listener){at, port};
    return 0;
}

bool nvr_server_is_listening(const struct nvr_server *server, const struct nvt_port *port)
{
    for (uint32_t i = 0; i < server->listener_count; i++)
        if (server->listeners[i].port == port)
            return server->listeners[i].at.id;
    return false;
}

struct nvt_port *nvr_server_port(const struct nvr_server *server, uint16_t portid)
{
    for (uint32_t i = 0; i < server->listener_count; i++)
        if (server->listeners[i].port->id == portid)
            return server->listeners[i].port;
    return NULL;
}

void nvr_server_unlisten(struct nvr_server *server, uint16_t portid)
{
    struct nvt_port *port = nvr_server_port(server, portid);
    if (!port)
        return;
    for (uint32_t i = 0; i < server->listener_count; i++)
        if (server->listeners[i].port == port) {
            mover_listener_close(&server->listeners[i].at);
            server->listeners[i] = server->listeners[--server->listener_count];
            break;
        }
    for (uint32_t i = 0; i < NVR_QUEUES_MAX; i++)
        if (server->queues[i] && server->queues[i]->queue.port == port)
            nvr_transport.cut(&server->queues[i]->queue);
    nvt_port_remove(port);
}
