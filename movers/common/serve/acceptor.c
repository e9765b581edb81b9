/* SPDX-License-Identifier: BSD-2-Clause */
#include "common/serve/acceptor.h"

#include <assert.h>
#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/rdma/resolve.h"
#include "common/serve/log.h"
#include "common/serve/origin.h"

static void acceptor_take_event(struct mover_watch *watch)
{
    struct mover_acceptor *acceptor = watch->context;
    struct mover_arrival arrival;
    void *ended;
    /* One in a turn, so that a client that has connected is heard before the next one asks. */
    if (!mover_listener_next(acceptor->listener.events, &arrival))
        return;
    if (arrival.type == RDMA_CM_EVENT_CONNECT_REQUEST)
        acceptor->request(acceptor->context, &arrival);
    else if (!mover_listener_take(&acceptor->listener, &arrival) &&
             (ended = mover_arrival_ended(&arrival)))
        acceptor->ended(acceptor->context, ended);
}

static void acceptor_tick(struct mover_watch *watch)
{
    struct mover_acceptor *acceptor = watch->context;
    if (mover_listener_is_due(watch->fd))
        mover_listener_tick(&acceptor->listener);
}

static void acceptor_say(struct mover_listener *listener)
{
    char text[MOVER_LISTENER_SAID];
    mover_listener_say(listener, text);
    mover_log(listener->id ? MOVER_LOG_WARNING : MOVER_LOG_ERROR, "%s", text);
}

static int acceptor_fail(struct mover_acceptor *acceptor, int code, char *error, size_t error_bytes)
{
    char name[MOVER_LISTENER_TEXT];
    mover_listener_name(&acceptor->listener, name);
    snprintf(error, error_bytes, "cannot listen at %s: %s%s", name, strerror(-code),
             mover_listener_help(code));
    mover_acceptor_close(acceptor);
    return code;
}

int mover_acceptor_open(struct mover_acceptor *acceptor, struct mover_loop *loop,
                        const struct sockaddr *address, char *error, size_t error_bytes)
{
    assert(acceptor->request && acceptor->ended && acceptor->backlog > 0);
    errno = 0;
    acceptor->loop = loop;
    acceptor->timer = (struct mover_watch){.fd = -1, .ready = acceptor_tick, .context = acceptor};
    acceptor->listener = (struct mover_listener){.events = mover_listener_events(),
                                                 .backlog = acceptor->backlog,
                                                 .owner = acceptor,
                                                 .changed = acceptor_say};
    if (!acceptor->listener.events) {
        const int code = errno ? -errno : -ENODEV;
        snprintf(error, error_bytes, "there is no RDMA device; a software one: sidewire %s: %s",
                 acceptor->command, strerror(-code));
        acceptor->loop = NULL;
        return code;
    }
    acceptor->events = (struct mover_watch){
        .fd = acceptor->listener.events->fd, .ready = acceptor_take_event, .context = acceptor};
    acceptor->timer.fd = acceptor->listener.timer_fd = mover_listener_timer();
    int code = acceptor->timer.fd < 0 ? -errno : mover_loop_watch(loop, &acceptor->events);
    if (!code)
        code = mover_loop_watch(loop, &acceptor->timer);
    if (!code)
        code = mover_listener_open(&acceptor->listener, address);
    return code ? acceptor_fail(acceptor, code, error, error_bytes) : 0;
}

int mover_acceptor_open_at(struct mover_acceptor *acceptor, struct mover_loop *loop,
                           const char *address, const char *port, char *error, size_t error_bytes)
{
    struct sockaddr_storage at;
    const char *wrong = mover_resolve(address, port, AI_PASSIVE, &at);
    if (wrong) {
        snprintf(error, error_bytes, "%s, port %s: %s", address ? address : "all addresses", port,
                 wrong);
        return -EINVAL;
    }
    return mover_acceptor_open(acceptor, loop, (struct sockaddr *)&at, error, error_bytes);
}

void mover_acceptor_refuse(struct mover_acceptor *acceptor, struct rdma_cm_id *id, const char *why,
                           const void *data, size_t bytes)
{
    char where[INET6_ADDRSTRLEN];
    mover_address_name(rdma_get_peer_addr(id), where);
    mover_log_told(&acceptor->told, MOVER_LOG_WARNING, "refused %s: %s", where, why);
    rdma_reject(id, data, (uint8_t)bytes);
    rdma_destroy_id(id);
}

void mover_acceptor_close(struct mover_acceptor *acceptor)
{
    if (!acceptor->loop)
        return;
    mover_listener_close(&acceptor->listener);
    mover_loop_unwatch(acceptor->loop, &acceptor->events);
    mover_loop_unwatch(acceptor->loop, &acceptor->timer);
    if (acceptor->timer.fd >= 0)
        close(acceptor->timer.fd);
    rdma_destroy_event_channel(acceptor->listener.events);
    acceptor->loop = NULL;
}
