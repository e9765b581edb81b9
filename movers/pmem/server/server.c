/* SPDX-License-Identifier: BSD-2-Clause */
#include "pmem/server/server.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
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

static int server_watch_fd(const struct pms_server *server, int fd)
{
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = (void *)server};
    return epoll_ctl(server->epoll_fd, EPOLL_CTL_ADD, fd, &event);
}

int pms_server_start(struct pms_server *server, const struct sockaddr *listen, char *error,
                     size_t error_bytes)
{
    errno = 0;
    server->started_ns = mover_now_ns();
    pms_limits_init(&server->limits);
    server->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (getrandom(server->instance, sizeof(server->instance), 0) != sizeof(server->instance))
        return server_fail_start(server, error, error_bytes, "no random numbers");
    server->events = mover_listener_events();
    if (!server->events)
        return server_fail_start(server, error, error_bytes,
                                 "there is no RDMA device; a software one: sidewire pmem serve");
    server->timer_fd = mover_listener_timer();
    if (server->epoll_fd < 0 || server_watch_fd(server, server->events->fd) ||
        server_watch_fd(server, server->timer_fd))
        return server_fail_start(server, error, error_bytes, "epoll");
    server->listener = (struct mover_listener){.events = server->events,
                                               .timer_fd = server->timer_fd,
                                               .backlog = BACKLOG,
                                               .changed = server_say_listener};
    const int code = mover_listener_open(&server->listener, listen);
    return code ? server_fail_listen(server, code, error, error_bytes) : 0;
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

static void pmem_server_take_events(struct pms_server *server)
{
    struct mover_arrival arrival;
    /* One, so that a client that has connected is heard before the next one asks for a place. */
    if (mover_listener_next(server->events, &arrival))
        server_take_arrival(server, &arrival);
    if (mover_listener_is_due(server->timer_fd))
        mover_listener_tick(&server->listener);
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

/* One at a time: what one does may free the source of the next. */
int pms_server_run(struct pms_server *server, int stop_fd)
{
    struct epoll_event stop = {.events = EPOLLIN, .data.ptr = NULL}, event;
    if (epoll_ctl(server->epoll_fd, EPOLL_CTL_ADD, stop_fd, &stop))
        return -errno;
    uint64_t swept_ns = 0;
    for (;;) {
        const int pause_ms = pms_places_pause_ms(server);
        const int count = epoll_wait(server->epoll_fd, &event, 1, pause_ms);
        if (pause_ms >= 0 && mover_now_ns() - swept_ns >= (uint64_t)pause_ms * 1000000) {
            /* The wait may have been for one that ends now: it is begun anew. */
            swept_ns = mover_now_ns();
            pms_places_sweep(server);
            continue;
        }
        if (count < 1)
            continue;
        if (!event.data.ptr)
            return 0;
        if (event.data.ptr == server)
            pmem_server_take_events(server);
        else
            pms_client_ready(server, event.data.ptr);
    }
}

void pms_server_end(struct pms_server *server)
{
    for (uint32_t i = 0; i < PMS_CLIENTS_MAX; i++)
        if (server->clients[i])
            pms_client_end(server, server->clients[i]);
    mover_listener_close(&server->listener);
    pms_grants_free(server);
    if (server->events)
        rdma_destroy_event_channel(server->events);
    if (server->epoll_fd >= 0)
        close(server->epoll_fd);
    if (server->timer_fd >= 0)
        close(server->timer_fd);
    server->events = NULL;
    server->epoll_fd = server->timer_fd = -1;
}
