/* SPDX-License-Identifier: BSD-2-Clause */
#include "common/rdma/dial.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "common/rdma/busy.h"
#include "common/rdma/resolve.h"
#include "common/time/deadline.h"

enum { TIMEOUT_MS = 10000, AGAIN_MS = 100 };

/* False: the time is over. */
static bool dial_wait(const struct mover_dial *dial, uint64_t until_ns)
{
    struct epoll_event event;
    const int ms = mover_ms_until(until_ns, mover_now_ns(), TIMEOUT_MS);
    const int count = epoll_wait(dial->epoll_fd, &event, 1, ms);
    return count > 0 || mover_now_ns() < until_ns;
}

static enum mover_event dial_ask_peer(struct mover_dial *dial, char *error)
{
    if (dial->routed(dial->context, &dial->connection) &&
        !rdma_connect(dial->connection.id, &dial->param))
        return MOVER_NOTHING;
    snprintf(error, MOVER_CONNECTION_SAID, "the RDMA device has no room for a queue: %s",
             strerror(errno));
    return MOVER_FAULT;
}

/* UP, or what has ended it. */
static enum mover_event dial_try(struct mover_dial *dial, const struct sockaddr *to,
                                 uint64_t until_ns, char *error)
{
    enum mover_event event =
        mover_connection_start(&dial->connection, dial->epoll_fd, NULL, NULL, to);
    while (event < MOVER_UP) {
        if (event == MOVER_ROUTED)
            event = dial_ask_peer(dial, error);
        if (event == MOVER_NOTHING)
            event = mover_connection_next(&dial->connection);
        if (event == MOVER_NOTHING && !dial_wait(dial, until_ns))
            event = MOVER_NO_ANSWER;
    }
    return event;
}

static bool dial_is_rejected(const struct mover_dial *dial, enum mover_event event,
                             const uint8_t reason[sizeof(mover_busy)])
{
    return event == MOVER_REJECTED && dial->connection.private_bytes >= sizeof(mover_busy) &&
           !memcmp(dial->connection.private_data, reason, sizeof(mover_busy));
}

static bool dial_is_busy(const struct mover_dial *dial, enum mover_event event)
{
    return dial_is_rejected(dial, event, mover_busy);
}

static void dial_close(struct mover_dial *dial)
{
    struct mover_connection *connection = &dial->connection;
    if (connection->was_up)
        rdma_disconnect(connection->id);
    connection->was_up = false;
    if (connection->id && connection->id->qp)
        rdma_destroy_qp(connection->id);
    if (dial->closed)
        dial->closed(dial->context);
    mover_connection_destroy(connection);
}

static bool dial_connect(struct mover_dial *dial, const struct sockaddr *to, const char *where,
                         char error[MOVER_CONNECTION_SAID])
{
    const int timeout_ms = dial->timeout_ms ? dial->timeout_ms : TIMEOUT_MS;
    const uint64_t until_ns = mover_now_ns() + (uint64_t)timeout_ms * NS_PER_MS;
    *error = 0;
    dial->is_absent = false;
    enum mover_event event = dial_try(dial, to, until_ns, error);
    while (dial_is_busy(dial, event) && mover_now_ns() < until_ns) {
        dial_close(dial);
        poll(NULL, 0, AGAIN_MS);
        event = dial_try(dial, to, until_ns, error);
    }
    if (event == MOVER_UP)
        return true;
    const bool is_denied = dial_is_rejected(dial, event, mover_denied);
    dial->is_absent = event == MOVER_REJECTED && !is_denied && !dial_is_busy(dial, event);
    if (dial_is_busy(dial, event))
        snprintf(error, MOVER_CONNECTION_SAID, "there is no place left at %s", where);
    else if (is_denied)
        snprintf(error, MOVER_CONNECTION_SAID,
                 "no permission: the rules of %s let nobody in from here", where);
    else if (dial->is_absent)
        snprintf(error, MOVER_CONNECTION_SAID, "nobody serves at %s, or it takes no more", where);
    else if (!*error)
        mover_connection_say(&dial->connection, event, where, error);
    return false;
}

bool mover_dial(struct mover_dial *dial, const char *address, const char *port,
                char error[MOVER_CONNECTION_SAID])
{
    struct sockaddr_storage to;
    char where[300];
    assert(dial->routed);
    const char *wrong = mover_resolve_peer(address, port, &to);
    if (wrong) {
        snprintf(error, MOVER_CONNECTION_SAID, "%s, port %s: %s", address, port, wrong);
        return false;
    }
    snprintf(where, sizeof(where), "%s port %s", address, port);
    dial->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    const bool is_up =
        dial->epoll_fd >= 0 && dial_connect(dial, (struct sockaddr *)&to, where, error);
    if (dial->epoll_fd < 0)
        snprintf(error, MOVER_CONNECTION_SAID, "epoll: %s", strerror(errno));
    else if (!is_up)
        mover_hang_up(dial);
    return is_up;
}

int mover_dial_poll(struct mover_dial *dial, struct ibv_wc *wc, int timeout_ms)
{
    const uint64_t until_ns = mover_now_ns() + (uint64_t)timeout_ms * NS_PER_MS;
    for (;;) {
        const int count = mover_queue_poll(&dial->connection.queue, 1, wc);
        if (count)
            return count;
        if (mover_connection_next(&dial->connection) != MOVER_NOTHING)
            return -1;
        if (mover_queue_arm(&dial->connection.queue) && !dial_wait(dial, until_ns))
            return 0;
    }
}

void mover_hang_up(struct mover_dial *dial)
{
    dial_close(dial);
    if (dial->epoll_fd >= 0)
        close(dial->epoll_fd);
    dial->epoll_fd = -1;
}
