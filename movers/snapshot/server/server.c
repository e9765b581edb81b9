/* SPDX-License-Identifier: BSD-2-Clause */
#include "snapshot/server/server.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/serve/log.h"
#include "common/serve/origin.h"
#include "common/time/clock.h"

/* A host may have many ranks, each with a connection, and others to volumes that it reads. */
enum { READS = 16, CLIENTS_OF_ONE = MOVER_CLIENTS_MAX / 8 * 7 };

/* ---- clients ---- */

static bool server_admits(void *context, const struct sockaddr *peer)
{
    struct snap_server *server = context;
    const struct in6_addr address = mover_address_of(peer);
    return snap_rules_rights(&server->rules, &address, NULL);
}

static void tell_of(const struct snap_guest *guest, const char *what)
{
    char where[INET6_ADDRSTRLEN] = "?";
    const bool is_ipv4 = IN6_IS_ADDR_V4MAPPED(&guest->address);
    inet_ntop(is_ipv4 ? AF_INET : AF_INET6, &guest->address.s6_addr[is_ipv4 ? 12 : 0], where,
              sizeof(where));
    mover_log(MOVER_LOG_INFO, "%s %s%s%s%s", where, what, guest->volume ? " (\"" : "",
              guest->volume ? guest->volume->name : "", guest->volume ? "\")" : "");
}

/* Whether a socket could have that address here. */
static bool is_of_this_host(const struct sockaddr *peer)
{
    struct sockaddr_storage at = {.ss_family = peer->sa_family};
    const bool is_ipv4 = peer->sa_family == AF_INET;
    const socklen_t bytes = is_ipv4 ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
    memcpy(&at, peer, bytes);
    if (is_ipv4)
        ((struct sockaddr_in *)(void *)&at)->sin_port = 0;
    else
        ((struct sockaddr_in6 *)(void *)&at)->sin6_port = 0;
    const int fd = socket(peer->sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    const bool is_here = fd >= 0 && !bind(fd, (struct sockaddr *)&at, bytes);
    if (fd >= 0)
        close(fd);
    return is_here;
}

/* Each has a domain of its own, where no key of others is of use. */
static struct ibv_pd *server_client_came(void *context, struct mover_clients_place *place,
                                         struct rdma_cm_id *id)
{
    struct snap_guest *guest = calloc(1, sizeof(*guest));
    (void)context;
    if (guest)
        guest->pd = ibv_alloc_pd(id->verbs);
    if (!guest || !guest->pd) {
        free(guest);
        return NULL;
    }
    guest->number = place->number;
    guest->address = mover_address_of(rdma_get_peer_addr(id));
    guest->origin = mover_origin_of(&guest->address);
    guest->is_here = is_of_this_host(rdma_get_peer_addr(id));
    place->own = guest;
    tell_of(guest, "connects");
    return guest->pd;
}

static bool forget_writer(const struct snap_server *server, uint64_t number)
{
    bool is_any = false;
    for (uint32_t i = 0; i < SNAP_VOLUMES_MAX; i++) {
        struct snap_volume *volume = server->volumes[i];
        if (!volume || volume->client != number)
            continue;
        volume->client = 0;
        is_any = true;
    }
    return is_any;
}

static void server_client_left(void *context, struct mover_clients_place *place)
{
    struct snap_guest *guest = place->own;
    struct snap_volume *volume = guest->volume;
    /* It has not said CLOSE. It may have no right yet to the volume that it writes. */
    const bool is_writer = forget_writer(context, guest->number);
    tell_of(guest, "leaves");
    if (volume) {
        volume->users--;
        snap_grant_end(volume, guest->grant, is_writer && guest->is_here);
    } else {
        ibv_dealloc_pd(guest->pd);
    }
    place->own = NULL;
    free(guest);
}

/* ---- the server ---- */

int snap_server_start(struct snap_server *server, struct mover_loop *loop, const char *address,
                      const char *port, char *error, size_t error_bytes)
{
    server->started_ns = mover_now_ns();
    server->clients.command = "snapshot serve";
    server->clients.message_bytes = SNAP_WIRE_MESSAGE_MAX;
    server->clients.context = server;
    server->clients.answer = snap_server_answer;
    server->clients.reads = READS;
    server->clients.admits = server_admits;
    server->clients.came = server_client_came;
    server->clients.left = server_client_left;
    if (getrandom(server->instance, sizeof(server->instance), 0) != sizeof(server->instance)) {
        snprintf(error, error_bytes, "no random numbers: %s", strerror(errno));
        return -EIO;
    }
    int code = server->folder ? snap_volumes_load(server, error, error_bytes) : 0;
    if (!code)
        code = mover_clients_open(&server->clients, loop, address, port, error, error_bytes);
    server->clients.rules.of_one = CLIENTS_OF_ONE;
    return code;
}

void snap_server_end(struct snap_server *server)
{
    if (server->clients.loop)
        mover_clients_close(&server->clients);
    for (uint32_t i = 0; i < SNAP_VOLUMES_MAX; i++)
        if (server->volumes[i])
            snap_volume_end(server->volumes[i], server->volumes[i]->is_to_unlink);
    for (uint32_t i = 0; i < SNAP_VOLUMES_MAX; i++)
        if (server->volumes[i])
            snap_volume_free(server->volumes[i]);
}
