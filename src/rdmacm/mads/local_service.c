/* SPDX-License-Identifier: BSD-2-Clause */
#include "rdmacm/mads/local_service.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fds.h"
#include "base/log.h"
#include "link/engine.h"
#include "link/engine_pause.h"
#include "rdmacm/lock.h"
#include "rdmacm/mads/local_table.h"
#include "rdmacm/mads/ports.h"
#include "wire/bytes.h"

#define ACCEPTED_AT_ONCE 1024u
#define CONNECTIONS_MAX 64u /* to services; the oldest goes */
#define LOOK_AGAIN_NS (500 * SW_NS_PER_MS)

static uint32_t connection_count;
static int process_listener = -1;
static struct listener {
    struct listener *next;
    int fd;
} * listeners;

/* ---- asking ---- */

static struct sw_local_connection *find_connection(uint64_t service_id,
                                                   const struct in6_addr *address)
{
    for (struct sw_local_connection *at = sw_local_connections(); at; at = at->next)
        if (at->is_to_service && !at->is_dead && at->service_id == service_id &&
            IN6_ARE_ADDR_EQUAL(&at->address, address))
            return at;
    return NULL;
}

static void end_oldest(void)
{
    struct sw_local_connection *oldest = NULL;
    for (struct sw_local_connection *at = sw_local_connections(); at; at = at->next)
        if (at->is_to_service && !at->is_dead)
            oldest = at;
    if (oldest)
        sw_local_connection_end(oldest);
}

static int connect_to_service(uint64_t service_id, const struct in6_addr *address,
                              struct sw_local_connection **out)
{
    int rc = -ECONNREFUSED;
    for (enum sw_cm_port_key key = SW_CM_PORT_EXACT; key <= SW_CM_PORT_ANY && rc == -ECONNREFUSED;
         key++) {
        char name[SW_NAME_BYTES];
        sw_cm_port_service(service_id, address, key, name);
        rc = sw_local_connect_and_greet(name, out);
    }
    if (rc)
        return rc;
    (*out)->is_to_service = true;
    (*out)->service_id = service_id;
    (*out)->address = *address;
    if (++connection_count > CONNECTIONS_MAX)
        end_oldest();
    return 0;
}

static int local_service_send_request(uint64_t service_id, const struct in6_addr *address,
                                      const struct sw_local_message *message)
{
    struct sw_local_connection *connection = find_connection(service_id, address);
    int rc = connection ? 0 : connect_to_service(service_id, address, &connection);
    if (rc)
        return rc;
    rc = sw_local_connection_send(connection, message);
    if (!rc && message->kind == SW_LOCAL_MAD && !connection->is_strange) {
        struct sw_local_asked asked = {.local_comm_id =
                                           sw_be32_load(message->mad + SW_MAD_HEADER_BYTES)};
        memcpy(asked.peer_gid, message->local_gid, 16);
        sw_local_connection_note_asked(connection, &asked);
    }
    return rc;
}

/* The caller is told that nobody serves, since nobody of its user does. To list the sockets of a
 * host takes up to a millisecond, so this looks twice a second at most. */
static void tell_of_stranger(uint64_t service_id, const struct in6_addr *address)
{
    static uint64_t looked_ns, told_service;
    const uint64_t now_ns = sw_clock_ns();
    uint32_t uid;
    if (service_id == told_service || (looked_ns && now_ns - looked_ns < LOOK_AGAIN_NS))
        return;
    looked_ns = now_ns;
    for (enum sw_cm_port_key key = SW_CM_PORT_EXACT; key <= SW_CM_PORT_ANY; key++) {
        char name[SW_NAME_BYTES];
        sw_cm_port_service(service_id, address, key, name);
        if (!sw_name_stranger(name, &uid))
            continue;
        told_service = service_id;
        sw_warn("port %u of this host is listened to by user %u, whose processes this user (%u) "
                "does not reach: run both as one user",
                (unsigned int)(service_id & 0xffff), uid, (unsigned int)geteuid());
        return;
    }
}

int sw_local_ask(uint64_t service_id, const struct in6_addr *address, const struct sw_cm_path *path,
                 bool is_packet, const uint8_t mad[SW_MAD_BYTES])
{
    sw_rdmacm_assert_locked();
    const struct sw_local_message message =
        sw_local_message_write(path, is_packet ? SW_LOCAL_PACKET : SW_LOCAL_MAD, mad);
    int rc = local_service_send_request(service_id, address, &message);
    if (rc == -ECONNRESET) /* just closed */
        rc = local_service_send_request(service_id, address, &message);
    if (rc == -ECONNREFUSED && !is_packet)
        tell_of_stranger(service_id, address);
    return rc;
}

void sw_local_service_forget(const struct sw_local_connection *connection)
{
    sw_rdmacm_assert_locked();
    connection_count -= connection->is_to_service;
}

/* ---- being asked ---- */

void sw_local_serve(int listener)
{
    struct listener *entry = malloc(sizeof(*entry));
    if (!entry)
        return;
    *entry = (struct listener){listeners, listener};
    listeners = entry;
    sw_engine_watch_fd(listener, SW_WATCH_CM_LISTENER);
}

void sw_local_serve_process(int listener)
{
    process_listener = listener;
    sw_local_serve(listener);
}

static void accept_from(int listener)
{
    for (uint32_t i = 0; i < ACCEPTED_AT_ONCE; i++) {
        int fd = sw_fd_own(accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK));
        if (fd < 0 && sw_accept_is_short(-errno))
            sw_engine_pause(listener, (void *)((uintptr_t)listener << 4), SW_WATCH_CM_LISTENER);
        if (fd < 0)
            break;
        struct sw_local_connection *connection = sw_local_add(fd);
        if (!connection)
            continue;
        sw_local_count_unproven(connection);
        if (listener != process_listener) {
            connection->is_reserved = true;
            connection->listener = listener;
            sw_local_greet(connection);
        }
    }
}

void sw_local_accept(int listener)
{
    sw_rdmacm_assert_locked();
    struct listener *entry = listeners; /* else it was closed, and the number is another's now */
    while (entry && entry->fd != listener)
        entry = entry->next;
    if (entry)
        accept_from(listener);
}

/* No request is lost: what has been sent is still read, the next one finds the socket closed. */
void sw_local_unserve(int listener)
{
    struct listener **at = &listeners;
    while (*at && (*at)->fd != listener)
        at = &(*at)->next;
    struct listener *entry = *at;
    if (entry)
        *at = entry->next;
    free(entry);
    shutdown(listener, SHUT_RD);
    accept_from(listener);
    sw_engine_unwatch(listener);
    close(listener);
    for (struct sw_local_connection *connection = sw_local_connections(); connection;
         connection = connection->next)
        if (connection->listener == listener) {
            shutdown(connection->fd, SHUT_RD);
            connection->listener = -1;
            if (!connection->is_judged)
                sw_local_connection_end(connection); /* it has sent nothing yet */
        }
}

void sw_local_service_fork_child(void)
{
    for (struct listener *entry = listeners; entry; entry = entry->next)
        if (entry->fd == process_listener)
            close(process_listener); /* ports.c closes the others */
    listeners = NULL;
    process_listener = -1;
    connection_count = 0;
}
