/* SPDX-License-Identifier: BSD-2-Clause */
#include "pmem/server/server.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "common/serve/log.h"
#include "common/time/clock.h"

enum { BACKLOG = 64 };

static void server_take_request(void *context, const struct mover_arrival *request)
{
    pms_client_request(context, request);
}

static void server_end_client(void *context, void *client)
{
    pms_client_end(context, client);
}

int pms_server_start(struct pms_server *server, struct mover_loop *loop,
                     const struct sockaddr *listen, char *error, size_t error_bytes)
{
    server->loop = loop;
    server->started_ns = mover_now_ns();
    pms_limits_init(&server->limits);
    server->acceptor = (struct mover_acceptor){.command = "pmem serve",
                                               .backlog = BACKLOG,
                                               .context = server,
                                               .request = server_take_request,
                                               .ended = server_end_client};
    if (getrandom(server->instance, sizeof(server->instance), 0) != sizeof(server->instance)) {
        snprintf(error, error_bytes, "no random numbers: %s", strerror(errno));
        return -EIO;
    }
    return mover_acceptor_open(&server->acceptor, loop, listen, error, error_bytes);
}

void pms_server_look_at_disks(struct pms_server *server)
{
    for (uint32_t i = 0; i < server->regions_count; i++) {
        struct mover_disk *disk = &server->regions[i].memory.disk;
        if (mover_disk_look(disk)) /* once for each */
            mover_log(MOVER_LOG_ERROR,
                      "the disk of region \"%s\" has failed a write: %s. What clients wrote may be "
                      "lost, so nobody opens it any more: check the disk, then restart this server",
                      server->regions[i].name, strerror(disk->error));
    }
}

void pms_server_end(struct pms_server *server)
{
    pms_clients_end(server);
    mover_loop_call_at(server->loop, &server->sweep, 0);
    mover_acceptor_close(&server->acceptor);
    pms_grants_free(server);
}
