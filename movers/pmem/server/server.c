/* SPDX-License-Identifier: BSD-2-Clause */
#include "pmem/server/server.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "common/time/clock.h"

enum { BACKLOG = 64 };

static int server_fail_start(struct pms_server *server, char *error, size_t error_bytes,
                             const char *what)
{
    const int code = errno ? -errno : -EIO;
    snprintf(error, error_bytes, "%s: %s", what, strerror(-code));
    pms_server_end(server);
    return code;
}

static int server_fail_listen(struct pms_server *server, int code, char *error, size_t error_bytes)
{
    char name[MOVER_LISTENER_TEXT];
    mover_listener_name(&server->listener, name);
    snprintf(error, error_bytes, "cannot listen at %s: %s%s", name, strerror(-code),
             mover_listener_help(code));
    pms_server_end(server);
    return code;
}

static void server_say_listener(struct mover_listener *listener)
{
    char text[MOVER_LISTENER_SAID];
    mover_listener_say(listener, text);
    fprintf(stderr, "sidewire pmem serve: %s\n", text);
}

static void server_take_arrival(struct pms_server *server, const struct mover_arrival *arrival)
{
    struct pms_client *ended;
    if (arrival->type == RDMA_CM_EVENT_CONNECT_REQUEST)
        pms_client_request(server, arrival);
    else if (!mover_listener_take(&server->listener, arrival) &&
             (ended = mover_arrival_ended(arrival)))
        pms_client_end(server, ended);
}

static void pmem_server_take_events(struct mover_watch *watch)
{
    struct pms_server *server = watch->context;
    struct mover_arrival arrival;
    /* One, so that a client that has connected is heard before the next one asks for a place. */
    if (mover_listener_next(server->events, &arrival))
        server_take_arrival(server, &arrival);
}

static void take_tick(struct mover_watch *watch)
{
    struct pms_server *server = watch->context;
    if (mover_listener_is_due(watch->fd))
        mover_listener_tick(&server->listener);
}

static int server_watch_listener(struct pms_server *server)
{
    server->events_watch = (struct mover_watch){
        .fd = server->events->fd, .ready = pmem_server_take_events, .context = server};
    server->timer_watch =
        (struct mover_watch){.fd = mover_listener_timer(), .ready = take_tick, .context = server};
    const int rc = mover_loop_watch(server->loop, &server->events_watch);
    return rc ? rc : mover_loop_watch(server->loop, &server->timer_watch);
}

int pms_server_start(struct pms_server *server, struct mover_loop *loop,
                     const struct sockaddr *listen, char *error, size_t error_bytes)
{
    errno = 0;
    server->loop = loop;
    server->started_ns = mover_now_ns();
    server->timer_watch.fd = -1;
    pms_limits_init(&server->limits);
    if (getrandom(server->instance, sizeof(server->instance), 0) != sizeof(server->instance))
        return server_fail_start(server, error, error_bytes, "no random numbers");
    server->events = mover_listener_events();
    if (!server->events)
        return server_fail_start(server, error, error_bytes,
                                 "there is no RDMA device; a software one: sidewire pmem serve");
    if (server_watch_listener(server))
        return server_fail_start(server, error, error_bytes, "epoll");
    server->listener = (struct mover_listener){.events = server->events,
                                               .timer_fd = server->timer_watch.fd,
                                               .backlog = BACKLOG,
                                               .changed = server_say_listener};
    const int code = mover_listener_open(&server->listener, listen);
    return code ? server_fail_listen(server, code, error, error_bytes) : 0;
}

void pms_server_look_at_disks(struct pms_server *server)
{
    for (uint32_t i = 0; i < server->regions_count; i++) {
        struct mover_disk *disk = &server->regions[i].memory.disk;
        if (mover_disk_look(disk)) /* once for each */
            fprintf(stderr,
                    "sidewire pmem serve: the disk of region \"%s\" has failed a write: %s. What "
                    "clients wrote may be lost, so nobody opens it any more: check the disk, then "
                    "restart this server\n",
                    server->regions[i].name, strerror(disk->error));
    }
}

void pms_server_end(struct pms_server *server)
{
    for (uint32_t i = 0; i < PMS_CLIENTS_MAX; i++)
        if (server->clients[i])
            pms_client_end(server, server->clients[i]);
    mover_listener_close(&server->listener);
    pms_grants_free(server);
    mover_loop_call_at(server->loop, &server->sweep, 0);
    if (server->timer_watch.fd >= 0) {
        mover_loop_unwatch(server->loop, &server->timer_watch);
        close(server->timer_watch.fd);
    }
    if (server->events) {
        mover_loop_unwatch(server->loop, &server->events_watch);
        rdma_destroy_event_channel(server->events);
    }
    server->events = NULL;
    server->timer_watch.fd = -1;
}
