/* SPDX-License-Identifier: BSD-2-Clause */
#include "rdmacm/mads/local_connection.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"
#include "link/direct/process/state.h"
#include "link/engine.h"
#include "rdmacm/lock.h"

#define QUEUED_MAX 16384u /* messages, of one connection */

struct sw_local_queued {
    struct sw_local_queued *next;
    struct sw_local_message message;
};

static atomic_bool step_wanted;

void sw_local_want_step(void)
{
    if (!atomic_exchange(&step_wanted, true))
        sw_engine_kick();
}

bool sw_local_wants_step(void)
{
    return atomic_load_explicit(&step_wanted, memory_order_relaxed);
}

bool sw_local_take_wish(void)
{
    return atomic_exchange(&step_wanted, false);
}

struct sw_local_connection *sw_local_connection_create(int fd)
{
    sw_rdmacm_assert_locked();
    struct sw_local_connection *connection = aligned_alloc(64, (sizeof(*connection) + 63) & ~63ull);
    if (connection)
        memset(connection, 0, sizeof(*connection));
    int rc = connection ? sw_proof_begin(&connection->proof, fd) : -ENOMEM;
    if (rc) {
        if (rc == -EPERM)
            sw_debug("connection management: a process of another user is not talked to");
        free(connection);
        close(fd);
        return NULL;
    }
    connection->proof.is_spare = sw_direct.has_packets;
    connection->fd = fd;
    connection->pid = connection->proof.pid;
    connection->listener = connection->inherited_fd = -1;
    connection->last = &connection->first;
    sw_engine_watch(fd, connection, SW_WATCH_CM);
    return connection;
}

void sw_local_connection_free(struct sw_local_connection *connection)
{
    /* A child that has just been forked may have it, too: closing it here would not end that. */
    sw_engine_unwatch(connection->fd);
    close(connection->fd);
    if (!connection->is_judged)
        sw_proof_end(&connection->proof);
    for (struct sw_local_queued *entry = connection->first, *next; entry; entry = next) {
        next = entry->next;
        free(entry);
    }
    free(connection);
}

void sw_local_connection_end(struct sw_local_connection *connection)
{
    sw_rdmacm_assert_locked();
    connection->is_dead = true;
    sw_local_want_step();
}

void sw_local_connection_note_asked(struct sw_local_connection *connection,
                                    const struct sw_local_asked *asked)
{
    connection->asked[connection->asked_count++ % SW_LOCAL_ASKED_MAX] = *asked;
}

static bool queue_message(struct sw_local_connection *connection,
                          const struct sw_local_message *message)
{
    struct sw_local_queued *entry =
        connection->queued_count < QUEUED_MAX ? malloc(sizeof(*entry)) : NULL;
    if (!entry)
        return false;
    if (!connection->first && connection->is_judged)
        sw_engine_watch_room(connection->fd, connection, SW_WATCH_CM, true);
    entry->next = NULL;
    entry->message = *message;
    *connection->last = entry;
    connection->last = &entry->next;
    connection->queued_count++;
    return true;
}

/* 0, or the errno. */
static int transmit_as_is(struct sw_local_connection *connection,
                          const struct sw_local_message *message)
{
    ssize_t done = send(connection->fd, message, sizeof(*message), MSG_DONTWAIT | MSG_NOSIGNAL);
    return done == (ssize_t)sizeof(*message) ? 0 : done < 0 ? errno : EMSGSIZE;
}

/* A stranger is told what would have been a packet to him, and nothing else. 0, or the errno. */
static int transmit_message(struct sw_local_connection *connection,
                            const struct sw_local_message *message)
{
    if (!connection->is_strange)
        return transmit_as_is(connection, message);
    if (message->kind != SW_LOCAL_MAD && message->kind != SW_LOCAL_PACKET)
        return 0;
    struct sw_local_message packet = *message;
    packet.kind = SW_LOCAL_PACKET;
    return transmit_as_is(connection, &packet);
}

int sw_local_connection_send(struct sw_local_connection *connection,
                             const struct sw_local_message *message)
{
    sw_rdmacm_assert_locked();
    int error = connection->first || !connection->is_judged ? EAGAIN
                                                            : transmit_message(connection, message);
    if (error == EAGAIN || error == ENOBUFS)
        return queue_message(connection, message) ? 0 : -EAGAIN;
    if (error)
        sw_local_connection_end(connection);
    return error ? -ECONNRESET : 0;
}

void sw_local_connection_flush(struct sw_local_connection *connection)
{
    sw_rdmacm_assert_locked();
    while (connection->first) {
        struct sw_local_queued *entry = connection->first;
        int error = transmit_message(connection, &entry->message);
        if (error == EAGAIN || error == ENOBUFS)
            return;
        if (error) {
            sw_local_connection_end(connection);
            return;
        }
        connection->first = entry->next;
        connection->queued_count--;
        free(entry);
        if (!connection->first) {
            connection->last = &connection->first;
            sw_engine_watch_room(connection->fd, connection, SW_WATCH_CM, false);
        }
    }
}
