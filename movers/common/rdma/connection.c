/* SPDX-License-Identifier: BSD-2-Clause */
#include "common/rdma/connection.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "common/rdma/watch.h"

enum { RESOLVE_MS = 2000 };

static enum mover_event note_errno(struct mover_connection *c, enum mover_event event)
{
    c->status = -errno;
    return event;
}

enum mover_event mover_connection_start(struct mover_connection *c, int epoll_fd, void *epoll_data,
                                        const struct sockaddr *source, const struct sockaddr *to)
{
    *c = (struct mover_connection){.epoll_fd = epoll_fd, .epoll_data = epoll_data};
    c->events = rdma_create_event_channel();
    if (!c->events)
        return note_errno(c, MOVER_NO_RDMA);
    if (!mover_watch(epoll_fd, c->events->fd, epoll_data) ||
        rdma_create_id(c->events, &c->id, NULL, RDMA_PS_TCP))
        return note_errno(c, MOVER_FAULT);
    if (rdma_resolve_addr(c->id, (struct sockaddr *)source, (struct sockaddr *)to, RESOLVE_MS))
        return note_errno(c, MOVER_NO_DEVICE);
    return MOVER_NOTHING;
}

int mover_connection_take(struct mover_connection *c, int epoll_fd, void *epoll_data,
                          struct rdma_cm_id *id)
{
    *c = (struct mover_connection){.epoll_fd = epoll_fd, .epoll_data = epoll_data};
    c->events = rdma_create_event_channel();
    if (!c->events || !mover_watch(epoll_fd, c->events->fd, epoll_data) ||
        rdma_migrate_id(id, c->events)) {
        const int why = -errno;
        mover_connection_destroy(c); /* without the id */
        return why;
    }
    c->id = id;
    return 0;
}

bool mover_connection_queue(struct mover_connection *c, uint32_t entries)
{
    return mover_queue_open(&c->queue, c->id->verbs, entries, c->epoll_fd, c->epoll_data);
}

static enum mover_event say_event(struct mover_connection *c, enum rdma_cm_event_type type)
{
    switch (type) {
    case RDMA_CM_EVENT_ADDR_RESOLVED:
        c->has_address = true;
        return rdma_resolve_route(c->id, RESOLVE_MS) ? note_errno(c, MOVER_NO_DEVICE)
                                                     : MOVER_NOTHING;
    case RDMA_CM_EVENT_ROUTE_RESOLVED:
        return MOVER_ROUTED;
    case RDMA_CM_EVENT_ESTABLISHED:
        c->was_up = true;
        return MOVER_UP;
    case RDMA_CM_EVENT_REJECTED:
        return MOVER_REJECTED;
    case RDMA_CM_EVENT_ADDR_ERROR:
    case RDMA_CM_EVENT_ROUTE_ERROR:
        return MOVER_NO_DEVICE;
    case RDMA_CM_EVENT_UNREACHABLE:
    case RDMA_CM_EVENT_CONNECT_ERROR:
        return MOVER_NO_ANSWER;
    case RDMA_CM_EVENT_DISCONNECTED:
    case RDMA_CM_EVENT_TIMEWAIT_EXIT:
        return MOVER_ENDED;
    case RDMA_CM_EVENT_DEVICE_REMOVAL:
        return MOVER_DEVICE_GONE;
    case RDMA_CM_EVENT_CONNECT_REQUEST:
    case RDMA_CM_EVENT_CONNECT_RESPONSE:
    case RDMA_CM_EVENT_MULTICAST_JOIN:
    case RDMA_CM_EVENT_MULTICAST_ERROR:
    case RDMA_CM_EVENT_ADDR_CHANGE:
        return MOVER_NOTHING;
    }
    return MOVER_NOTHING;
}

/* An event has to be acknowledged before its id can be destroyed, so its data is copied first. */
static void copy_private_data(struct mover_connection *c, const struct rdma_cm_event *event)
{
    const struct rdma_conn_param *param = &event->param.conn;
    c->private_bytes = 0;
    if ((event->event != RDMA_CM_EVENT_ESTABLISHED && event->event != RDMA_CM_EVENT_REJECTED) ||
        !param->private_data)
        return;
    memcpy(c->private_data, param->private_data, param->private_data_len);
    c->private_bytes = param->private_data_len;
}

/* Nobody has the address, or its host is off: a neighbour was asked for, and has not answered in
 * time. Other errors of addresses are of this host: no device leads there. */
static bool is_absent(const struct rdma_cm_event *event)
{
    return event->event == RDMA_CM_EVENT_ADDR_ERROR && event->status == -ETIMEDOUT;
}

/* Where librdmacm itself finds that an event is a failure, its status is -1, and errno says why. An
 * errno of before would be taken for it. */
static bool connection_get_event(struct mover_connection *c, struct rdma_cm_event **event)
{
    errno = 0;
    if (!c->events || rdma_get_cm_event(c->events, event))
        return false;
    c->status = (*event)->status == -1 && errno ? -errno : (*event)->status;
    return true;
}

enum mover_event mover_connection_next(struct mover_connection *c)
{
    struct rdma_cm_event *event;
    enum mover_event said = MOVER_NOTHING;
    while (said == MOVER_NOTHING && connection_get_event(c, &event)) {
        const enum rdma_cm_event_type type = event->event;
        const bool has_nobody = is_absent(event);
        copy_private_data(c, event);
        rdma_ack_cm_event(event);
        said = has_nobody ? MOVER_NO_ANSWER : say_event(c, type);
    }
    return said;
}

void mover_connection_say(const struct mover_connection *c, enum mover_event event,
                          const char *where, char text[MOVER_CONNECTION_SAID])
{
    const char *why = strerror(-c->status);
    enum { BYTES = MOVER_CONNECTION_SAID };
    assert(event >= MOVER_NO_RDMA);
    if (event == MOVER_NO_RDMA)
        snprintf(text, BYTES, "there is no RDMA device (%s); a software one: sidewire run", why);
    else if (event == MOVER_FAULT)
        snprintf(text, BYTES, "no connection can be made: %s", why);
    else if (event == MOVER_NO_DEVICE && !c->has_address)
        snprintf(text, BYTES, "no RDMA device leads to %s: %s", where, why);
    else if (event == MOVER_NO_DEVICE)
        snprintf(text, BYTES, "no route to %s: %s", where, why);
    else if (event == MOVER_NO_ANSWER && !c->has_address)
        snprintf(text, BYTES, "nobody answers at %s", where);
    else if (event == MOVER_NO_ANSWER)
        snprintf(text, BYTES, "%s does not answer", where);
    else if (event == MOVER_ENDED)
        snprintf(text, BYTES, "%s has ended the connection", where);
    else
        snprintf(text, BYTES, "the RDMA device is gone");
}

void mover_connection_destroy(struct mover_connection *c)
{
    if (c->id && c->was_up)
        rdma_disconnect(c->id);
    if (c->id && c->id->qp)
        rdma_destroy_qp(c->id);
    mover_queue_close(&c->queue);
    if (c->id)
        rdma_destroy_id(c->id);
    if (c->events)
        rdma_destroy_event_channel(c->events);
    *c = (struct mover_connection){.epoll_fd = -1};
}
