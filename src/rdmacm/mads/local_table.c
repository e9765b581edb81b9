/* SPDX-License-Identifier: BSD-2-Clause */
#include "rdmacm/mads/local_table.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/fds.h"
#include "device/nic/nic.h"
#include "link/names/registry.h"
#include "rdmacm/lock.h"

#define UNPROVEN_MAX 512u
#define UNPROVEN_PARTS 4u /* and of the descriptors one in so many */

static struct sw_local_connection *connections;
static struct sw_local_connection *peers[SW_SLOT_MAX + 1];
static uint32_t unproven_count;

struct sw_local_connection *sw_local_connections(void)
{
    return connections;
}

struct sw_local_connection *sw_local_take_dead(void)
{
    sw_rdmacm_assert_locked();
    struct sw_local_connection *dead = NULL;
    for (struct sw_local_connection **at = &connections; *at;) {
        struct sw_local_connection *connection = *at;
        if (!connection->is_dead) {
            at = &connection->next;
            continue;
        }
        *at = connection->next;
        connection->next = dead;
        dead = connection;
    }
    return dead;
}

/* ---- new ones ---- */

struct sw_local_connection *sw_local_add(int fd)
{
    sw_rdmacm_assert_locked();
    struct sw_local_connection *connection = sw_local_connection_create(fd);
    if (connection) {
        connection->next = connections;
        connections = connection;
    }
    return connection;
}

void sw_local_greet(struct sw_local_connection *connection)
{
    const struct sw_local_message hello = sw_local_message_bare(SW_LOCAL_HELLO);
    sw_local_connection_send(connection, &hello);
}

int sw_local_connect(const char *name, struct sw_local_connection **out)
{
    sw_rdmacm_assert_locked();
    int fd = sw_name_connect(name);
    if (fd < 0)
        return fd;
    *out = sw_local_add(fd);
    return *out ? 0 : -ECONNREFUSED;
}

int sw_local_connect_and_greet(const char *name, struct sw_local_connection **out)
{
    int rc = sw_local_connect(name, out);
    if (!rc)
        sw_local_greet(*out);
    return rc;
}

int sw_local_connect_to_slot(uint32_t slot)
{
    char name[SW_NAME_BYTES];
    struct sw_local_connection *connection = NULL;
    sw_registry_name(slot, "cm", name);
    int rc = sw_local_connect_and_greet(name, &connection);
    if (connection) {
        connection->slot = slot;
        sw_local_make_peer(connection);
    }
    return rc;
}

/* ---- the one of a process ---- */

struct sw_local_connection *sw_local_peer(uint32_t slot)
{
    return peers[slot];
}

bool sw_local_has_peer(uint32_t slot)
{
    return peers[slot] && !peers[slot]->is_dead;
}

void sw_local_make_peer(struct sw_local_connection *connection)
{
    sw_rdmacm_assert_locked();
    peers[connection->slot] = connection;
    connection->is_peer = true;
}

void sw_local_unmake_peer(struct sw_local_connection *connection)
{
    sw_rdmacm_assert_locked();
    if (connection->slot && peers[connection->slot] == connection)
        peers[connection->slot] = NULL;
}

static bool may_carry(const struct sw_local_connection *connection, uint32_t slot)
{
    return connection->slot == slot && connection->is_judged && !connection->is_strange &&
           !connection->is_dead && !connection->hands_over && connection->inherited_fd < 0;
}

/* An answer goes back where the request came from. That one has been proven, so it is there even if
 * this process ends at once. */
struct sw_local_connection *sw_local_find(uint32_t slot)
{
    struct sw_local_connection *peer = sw_local_has_peer(slot) ? peers[slot] : NULL;
    if (peer && peer->is_judged)
        return peer;
    for (struct sw_local_connection *at = connections; at; at = at->next)
        if (may_carry(at, slot)) {
            if (!peer)
                sw_local_make_peer(at);
            return at;
        }
    return peer;
}

bool sw_local_lives(const struct sw_local_connection *old)
{
    const uint32_t slot = old->slot;
    if (!slot)
        return false;
    if (sw_local_has_peer(slot))
        return peers[slot]->pid == old->pid;
    for (struct sw_local_connection *at = connections; at; at = at->next)
        if (at->slot == slot && !at->is_dead && !at->is_to_service && !at->is_reserved) {
            sw_local_make_peer(at);
            return at->pid == old->pid;
        }
    int rc = sw_local_connect_to_slot(slot);
    return rc ? rc != -ECONNREFUSED : peers[slot]->pid == old->pid;
}

/* ---- those that have proven nothing ---- */

void sw_local_uncount_unproven(struct sw_local_connection *connection)
{
    unproven_count -= connection->is_counted;
    connection->is_counted = false;
}

/* They must not use up our descriptors: the oldest goes. */
void sw_local_count_unproven(struct sw_local_connection *connection)
{
    sw_rdmacm_assert_locked();
    struct sw_local_connection *oldest = NULL;
    unproven_count += !connection->is_counted;
    connection->is_counted = true;
    if (unproven_count <= sw_fds_share(UNPROVEN_PARTS, UNPROVEN_MAX))
        return;
    for (struct sw_local_connection *at = connections; at; at = at->next)
        if (at->is_counted)
            oldest = at;
    if (!oldest)
        return;
    sw_local_uncount_unproven(oldest);
    sw_local_connection_end(oldest);
}

/* They are the parent's. Its sockets are closed here, or it would seem to live on. */
void sw_local_table_fork_child(void)
{
    for (struct sw_local_connection *at = connections; at; at = at->next) {
        close(at->fd);
        if (!at->is_judged)
            sw_proof_end(&at->proof);
        if (at->inherited_fd >= 0)
            close(at->inherited_fd);
    }
    connections = NULL;
    unproven_count = 0;
    memset(peers, 0, sizeof(peers));
}
