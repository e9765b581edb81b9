/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The loop of the target. While there is work it polls; when there has been none for a while, it
 * asks to be woken and sleeps.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "nvme/target/rdma.h"

enum { URING_ENTRIES = 512, EVENTS_EVERY = 256, DRAIN_MS = 3000, CONNECT_MS = 10000 };
#define NS_PER_US 1000ull
#define NS_PER_MS 1000000ull

static uint64_t now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static bool watch(struct nvr_server *server, int fd)
{
    struct epoll_event event = {.events = EPOLLIN};
    return !epoll_ctl(server->epoll_fd, EPOLL_CTL_ADD, fd, &event);
}

void nvr_pool_register(struct nvr_server *server)
{
    if (server->is_pool_known || !server->uring.wants_buffers)
        return;
    server->is_pool_known = true;
    struct nvt_region *region = &server->target.pool.region;
    const struct iovec buffer = {region->base, region->len_bytes};
    nvt_uring_register(&server->uring, &buffer, 1);
    region->fixed_buffer = server->uring.buffers ? 0 : -1;
}

int nvr_server_open(struct nvr_server *server, const struct nvr_settings *settings)
{
    memset(server, 0, sizeof(*server));
    server->settings = *settings;
    server->epoll_fd = server->stop_fd = server->memory_fd = -1;
    list_init(&server->ending);
    int rc = nvt_target_init(&server->target, &nvr_transport, settings->pool_bytes,
                             settings->in_capsule_bytes);
    if (!rc)
        rc = nvt_uring_open(&server->uring, URING_ENTRIES);
    if (rc)
        return rc;
    server->target.now_ns = now();
    server->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    server->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    server->events = rdma_create_event_channel();
    if (!server->events || server->epoll_fd < 0 || server->stop_fd < 0)
        return errno ? -errno : -ENODEV;
    const int flags = fcntl(server->events->fd, F_GETFL);
    if (fcntl(server->events->fd, F_SETFL, flags | O_NONBLOCK) ||
        !watch(server, server->events->fd) || !watch(server, server->stop_fd) ||
        !watch(server, server->uring.event_fd))
        return -errno;
    return 0;
}

static void take_events(struct nvr_server *server)
{
    struct rdma_cm_event *event;
    while (!rdma_get_cm_event(server->events, &event)) {
        struct rdma_cm_event copy = *event;
        char data[256];
        /* Who asks may have to be refused, which ends its ID: the event is acknowledged first. */
        if (event->event == RDMA_CM_EVENT_CONNECT_REQUEST && event->param.conn.private_data_len) {
            const size_t len = event->param.conn.private_data_len;
            memcpy(data, event->param.conn.private_data, len < sizeof(data) ? len : sizeof(data));
            copy.param.conn.private_data = data;
        }
        rdma_ack_cm_event(event);
        nvr_connection_event(server, &copy);
    }
}

/* Queues that are to end, once their answers have been said, and those that have ended. */
static void sweep(struct nvr_server *server, uint64_t now_ns)
{
    struct list_node *next;
    for (struct list_node *node = list_first(&server->ending); node; node = next) {
        next = list_after(&server->ending, node);
        struct nvr_queue *queue = LIST_MEMBER(node, struct nvr_queue, node);
        if (queue->is_over && !queue->queue.under_way)
            nvr_queue_free(queue);
        else if (!queue->is_over && (!queue->answers || now_ns >= queue->close_by_ns)) {
            nvr_queue_end(queue); /* ends no other queue, but may list more */
            next = list_first(&server->ending);
        }
    }
}

/* Who connects and then asks for no controller keeps nothing here. */
static void cut_silent(struct nvr_server *server, uint64_t now_ns)
{
    for (uint32_t i = 0; i < NVR_QUEUES_MAX && server->queue_count; i++) {
        struct nvr_queue *queue = server->queues[i];
        if (queue && !queue->queue.ctrl && now_ns > queue->created_ns + CONNECT_MS * NS_PER_MS)
            nvr_transport.cut(&queue->queue);
    }
}

static bool poll_once(struct nvr_server *server)
{
    bool any = false;
    for (uint32_t i = 0; i < server->device_count; i++)
        any = nvr_device_poll(server, &server->devices[i]) || any;
    any = nvt_uring_submit(&server->uring) || any;
    return nvt_uring_reap(&server->uring) || any;
}

static void acknowledge(struct nvr_device *device)
{
    struct ibv_cq *cq;
    void *context;
    if (!ibv_get_cq_event(device->channel, &cq, &context))
        ibv_ack_cq_events(cq, 1);
}

static void drain_eventfd(int fd)
{
    uint64_t count;
    while (read(fd, &count, sizeof(count)) > 0)
        ;
}

/* Sleeps until something comes, or until_ns. */
static void sleep_until(struct nvr_server *server, uint64_t now_ns, uint64_t until_ns)
{
    struct epoll_event events[8];
    for (uint32_t i = 0; i < server->device_count; i++)
        if (ibv_req_notify_cq(server->devices[i].cq, 0))
            return;
    if (poll_once(server)) /* what came before the request to be woken */
        return;
    const int timeout_ms = until_ns > now_ns ? (int)((until_ns - now_ns) / NS_PER_MS) + 1 : 0;
    const int count = epoll_wait(server->epoll_fd, events, 8, timeout_ms);
    for (uint32_t i = 0; i < server->device_count && count > 0; i++)
        acknowledge(&server->devices[i]);
    drain_eventfd(server->uring.event_fd);
}

static void close_listeners(struct nvr_server *server)
{
    for (uint32_t i = 0; i < server->listener_count; i++)
        rdma_destroy_id(server->listeners[i]);
    server->listener_count = 0;
}

/* Says to all hosts that it is over; what is under way is answered first. */
static void cut_all(struct nvr_server *server)
{
    for (uint32_t i = 0; i < NVR_QUEUES_MAX; i++)
        if (server->queues[i])
            nvr_transport.cut(&server->queues[i]->queue);
}

/* What is not of the data path: connections, and the wish to stop. */
static void look_around(struct nvr_server *server, uint64_t *stop_ns)
{
    uint64_t asked;
    take_events(server);
    if (*stop_ns || read(server->stop_fd, &asked, sizeof(asked)) <= 0)
        return;
    *stop_ns = server->target.now_ns + DRAIN_MS * NS_PER_MS;
    close_listeners(server);
    cut_all(server);
}

void nvr_server_run(struct nvr_server *server)
{
    uint64_t busy_ns = now(), tick_ns = 0, stop_ns = 0;
    uint32_t turns = 0;
    while (!stop_ns || (server->queue_count && server->target.now_ns < stop_ns)) {
        const uint64_t now_ns = now();
        server->target.now_ns = now_ns;
        const bool any = poll_once(server);
        if (any)
            busy_ns = now_ns;
        if (!list_is_empty(&server->ending))
            sweep(server, now_ns);
        if (now_ns >= tick_ns) {
            tick_ns = nvt_target_tick(&server->target, now_ns);
            cut_silent(server, now_ns);
        }
        const bool is_idle = !any && now_ns - busy_ns >= server->settings.spin_us * NS_PER_US;
        if (is_idle || ++turns % EVENTS_EVERY == 0)
            look_around(server, &stop_ns);
        if (is_idle && list_is_empty(&server->ending))
            sleep_until(server, now_ns, tick_ns);
    }
}

void nvr_server_stop(struct nvr_server *server)
{
    const uint64_t one = 1;
    const ssize_t rc = write(server->stop_fd, &one, sizeof(one));
    (void)rc;
}

void nvr_server_close(struct nvr_server *server)
{
    close_listeners(server);
    for (uint32_t i = 0; i < NVR_QUEUES_MAX; i++)
        if (server->queues[i])
            nvr_queue_end(server->queues[i]);
    const uint64_t end_ns = now() + DRAIN_MS * NS_PER_MS; /* of backends */
    while (server->queue_count && now() < end_ns) {
        poll_once(server);
        sweep(server, now());
    }
    nvt_target_free(&server->target);
    nvt_uring_close(&server->uring);
    for (uint32_t i = 0; i < server->device_count; i++) {
        ibv_destroy_cq(server->devices[i].cq);
        ibv_destroy_comp_channel(server->devices[i].channel);
        ibv_dealloc_pd(server->devices[i].pd);
    }
    if (server->events)
        rdma_destroy_event_channel(server->events);
    if (server->epoll_fd >= 0)
        close(server->epoll_fd);
    if (server->stop_fd >= 0)
        close(server->stop_fd);
    if (server->memory_fd >= 0)
        close(server->memory_fd);
}
