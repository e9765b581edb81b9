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

enum { URING_ENTRIES = 512, EVENTS_MAX = 16, LOOK_US = 200, DRAIN_MS = 3000, CONNECT_MS = 10000 };

/* While a disk works at few requests, hosts wait, and the next thing comes from it. The fastest
 * ones answer within this; for others a core that polls only keeps the kernel from hearing them.
 * With more under way something comes so often that to sleep and to wake costs more. */
enum { DISK_SPIN_US = 20, DISK_FEW = 4 };

/* Turns of the loop for each look at the clock, which takes as long as a turn in vain. */
enum { TURNS = 16 };

#define NS_PER_US 1000ull
#define NS_PER_MS 1000000ull

static uint64_t now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

int nvr_server_watch(struct nvr_server *server, struct nvr_watch *watch)
{
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = watch};
    return epoll_ctl(server->epoll_fd, EPOLL_CTL_ADD, watch->fd, &event) ? -errno : 0;
}

void nvr_server_unwatch(struct nvr_server *server, struct nvr_watch *watch)
{
    epoll_ctl(server->epoll_fd, EPOLL_CTL_DEL, watch->fd, NULL);
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

static void take_events(struct nvr_watch *watch)
{
    struct nvr_server *server = watch->context;
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

static void drain_eventfd(struct nvr_watch *watch)
{
    uint64_t count;
    const ssize_t rc = read(watch->fd, &count, sizeof(count));
    (void)rc;
}

int nvr_server_open(struct nvr_server *server, const struct nvr_settings *settings)
{
    memset(server, 0, sizeof(*server));
    server->settings = *settings;
    server->epoll_fd = server->memory_fd = -1;
    list_init(&server->ending);
    int rc = nvt_target_init(&server->target, &nvr_transport, settings->pool_bytes);
    if (!rc)
        rc = nvt_uring_open(&server->uring, URING_ENTRIES);
    if (rc)
        return rc;
    server->target.now_ns = now();
    server->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    server->events = rdma_create_event_channel();
    if (!server->events || server->epoll_fd < 0)
        return errno ? -errno : -ENODEV;
    server->cm_watch =
        (struct nvr_watch){.fd = server->events->fd, .ready = take_events, .context = server};
    server->uring_watch = (struct nvr_watch){.fd = server->uring.event_fd, .ready = drain_eventfd};
    const int flags = fcntl(server->events->fd, F_GETFL);
    if (fcntl(server->events->fd, F_SETFL, flags | O_NONBLOCK))
        return -errno;
    rc = nvr_server_watch(server, &server->cm_watch);
    return rc ? rc : nvr_server_watch(server, &server->uring_watch);
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
        else if (!queue->is_over && (!queue->answers || now_ns >= queue->close_by_ns) &&
                 nvr_queue_drain(queue, now_ns)) {
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

/* What is not of the data path: connections, signals, commands. Waits until there is something,
 * or timeout_ms have passed. */
static void look_around(struct nvr_server *server, int timeout_ms)
{
    struct epoll_event events[EVENTS_MAX];
    const int count = epoll_wait(server->epoll_fd, events, EVENTS_MAX, timeout_ms);
    for (int i = 0; i < count; i++) {
        struct nvr_watch *watch = events[i].data.ptr;
        watch->ready(watch);
    }
}

/* Sleeps until something comes, or until_ns. */
static void sleep_until(struct nvr_server *server, uint64_t now_ns, uint64_t until_ns)
{
    for (uint32_t i = 0; i < server->device_count; i++)
        if (ibv_req_notify_cq(server->devices[i].cq, 0))
            return;
    if (poll_once(server)) /* what came before the request to be woken */
        return;
    look_around(server, until_ns > now_ns ? (int)((until_ns - now_ns) / NS_PER_MS) + 1 : 0);
}

static void close_listeners(struct nvr_server *server)
{
    for (uint32_t i = 0; i < server->listener_count; i++)
        rdma_destroy_id(server->listeners[i].id);
    server->listener_count = 0;
}

/* Says to all hosts that it is over; what is under way is answered first. */
void nvr_server_stop(struct nvr_server *server)
{
    if (server->stop_ns)
        return;
    server->stop_ns = now() + DRAIN_MS * NS_PER_MS;
    close_listeners(server);
    for (uint32_t i = 0; i < NVR_QUEUES_MAX; i++)
        if (server->queues[i])
            nvr_transport.cut(&server->queues[i]->queue);
}

static bool is_over(const struct nvr_server *server)
{
    return server->stop_ns && (!server->queue_count || server->target.now_ns >= server->stop_ns);
}

/* How long it polls in vain before it sleeps. */
static uint64_t spin_ns(const struct nvr_server *server)
{
    const uint64_t us = server->settings.spin_us;
    const uint32_t under_way = nvt_uring_under_way(&server->uring);
    const bool waits_for_disk = under_way && under_way <= DISK_FEW;
    return (waits_for_disk && us > DISK_SPIN_US ? DISK_SPIN_US : us) * NS_PER_US;
}

void nvr_server_run(struct nvr_server *server)
{
    uint64_t busy_ns = now(), tick_ns = 0, look_ns = 0;
    while (!is_over(server)) {
        const uint64_t now_ns = now();
        server->target.now_ns = now_ns;
        bool any = false;
        for (int i = 0; i < TURNS; i++)
            any = poll_once(server) || any;
        if (any)
            busy_ns = now_ns;
        if (!list_is_empty(&server->ending))
            sweep(server, now_ns);
        if (now_ns >= tick_ns) {
            tick_ns = nvt_target_tick(&server->target, now_ns);
            cut_silent(server, now_ns);
        }
        const bool is_idle = !any && now_ns - busy_ns >= spin_ns(server);
        if (is_idle && list_is_empty(&server->ending)) {
            sleep_until(server, now_ns, tick_ns);
        } else if (is_idle || now_ns >= look_ns) {
            look_around(server, 0);
            look_ns = now_ns + LOOK_US * NS_PER_US;
        }
    }
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
    for (uint32_t i = 0; i < server->device_count; i++)
        nvr_device_close(&server->devices[i]);
    if (server->events)
        rdma_destroy_event_channel(server->events);
    if (server->epoll_fd >= 0)
        close(server->epoll_fd);
    if (server->memory_fd >= 0)
        close(server->memory_fd);
}
