/* SPDX-License-Identifier: BSD-2-Clause */
#include "nvme/target/server/server.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "common/serve/thread.h"
#include "common/time/clock.h"
#include "nvme/target/model/namespace.h"
#include "nvme/target/server/rdma_connection.h"

enum { URING_ENTRIES = 512, DRAIN_MS = 3000, LEAVE_MS = 5 };

/* Compare takes two pieces of the largest size. */
#define POOL_MIN ((size_t)2 << MOVER_POOL_SHIFT_MAX)

int nvr_server_watch(struct nvr_server *server, struct mover_watch *watch)
{
    return mover_loop_watch(&server->threads[0].loop, watch);
}

/* That a backend has asked for buffers is known to the first one's ring. */
void nvr_pool_register(struct nvr_thread *thread)
{
    if (thread->is_pool_known || !thread->server->threads[0].uring.wants_buffers)
        return;
    thread->is_pool_known = true;
    const struct mover_region *region = &thread->base->pool.region;
    mover_ring_register(&thread->uring.calls, region->base, region->len_bytes);
}

static void target_take_events(struct mover_watch *watch)
{
    struct nvr_server *server = watch->context;
    struct mover_arrival arrival;
    while (mover_listener_next(server->events, &arrival))
        nvr_connection_event(server, &arrival);
}

/* ---- threads ---- */

static int open_thread(struct nvr_server *server, struct nvr_thread *thread)
{
    thread->server = server;
    thread->pace.spin_us = server->settings.spin_us;
    thread->loop.epoll_fd = thread->wake_watch.fd = -1;
    list_init(&thread->ending);
    list_init(&thread->later);
    list_init(&thread->outbox.queues);
    thread->base = &server->target.threads[thread - server->threads];
    int rc = nvt_uring_open(&thread->uring, URING_ENTRIES);
    if (rc)
        return rc;
    thread->base->uring = &thread->uring;
    thread->base->now_ns = mover_now_ns();
    thread->uring_watch = (struct mover_watch){
        .fd = thread->uring.event_fd, .is_own = true, .ready = nvr_watch_drain};
    thread->wake_watch = (struct mover_watch){
        .fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), .is_own = true, .ready = nvr_watch_drain};
    if (thread->wake_watch.fd < 0)
        return -errno;
    rc = mover_loop_open(&thread->loop);
    if (!rc)
        rc = mover_loop_watch(&thread->loop, &thread->uring_watch);
    return rc ? rc : mover_loop_watch(&thread->loop, &thread->wake_watch);
}

static void close_thread(struct nvr_thread *thread)
{
    for (uint32_t i = 0; i < thread->device_count; i++)
        nvr_device_close(&thread->devices[i]);
    nvt_uring_close(&thread->uring);
    mover_loop_close(&thread->loop);
    if (thread->wake_watch.fd >= 0)
        close(thread->wake_watch.fd);
}

static void *run_thread(void *arg)
{
    nvr_thread_run(arg);
    return NULL;
}

/* Those beside the program's own. */
static int server_start_threads(struct nvr_server *server)
{
    int rc = 0;
    for (uint32_t i = 1; i < server->thread_count && !rc; i++) {
        struct nvr_thread *thread = &server->threads[i];
        rc = -mover_thread_start(&thread->id, run_thread, thread);
        thread->is_started = !rc;
    }
    return rc;
}

static void end_threads(struct nvr_server *server)
{
    atomic_store_explicit(&server->is_done, true, memory_order_release);
    for (uint32_t i = 1; i < server->thread_count; i++)
        if (server->threads[i].is_started) {
            (void)eventfd_write(server->threads[i].wake_watch.fd, 1);
            pthread_join(server->threads[i].id, NULL);
        }
    server->is_alone = true;
}

/* ---- beginning ---- */

static int open_threads(struct nvr_server *server)
{
    const uint32_t count = server->settings.threads ? server->settings.threads : 1;
    size_t pool_bytes = server->settings.pool_bytes / count;
    if (count > 1 && pool_bytes < POOL_MIN)
        pool_bytes = POOL_MIN;
    server->threads = calloc(count, sizeof(*server->threads));
    int rc =
        server->threads ? nvt_target_init(&server->target, &nvr_transport, pool_bytes) : -ENOMEM;
    for (uint32_t i = 0; i < count && !rc; i++) {
        if (i)
            rc = nvt_target_add_thread(&server->target, pool_bytes);
        if (!rc) {
            server->thread_count++;
            rc = open_thread(server, &server->threads[i]);
        }
    }
    return rc;
}

int nvr_server_open(struct nvr_server *server, const struct nvr_settings *settings)
{
    memset(server, 0, sizeof(*server));
    server->settings = *settings;
    server->memory_fd = server->listen_watch.fd = -1;
    server->is_alone = true;
    pthread_mutex_init(&server->register_lock, NULL);
    nvt_gate_init(&server->gate, settings->threads);
    int rc = open_threads(server);
    if (!rc)
        rc = nvt_worker_open(&server->worker);
    if (rc)
        return rc;
    server->target.worker = &server->worker;
    server->target.now_ns = mover_now_ns();
    server->events = mover_listener_events();
    if (!server->events)
        return errno ? -errno : -ENODEV;
    server->cm_watch = (struct mover_watch){
        .fd = server->events->fd, .ready = target_take_events, .context = server};
    server->listen_watch = (struct mover_watch){
        .fd = mover_listener_timer(), .ready = nvr_listeners_tick, .context = server};
    server->worker_watch = (struct mover_watch){
        .fd = server->worker.event_fd, .is_own = true, .ready = nvr_watch_drain};
    rc = nvr_server_watch(server, &server->cm_watch);
    if (!rc)
        rc = nvr_server_watch(server, &server->listen_watch);
    if (!rc)
        rc = nvr_server_watch(server, &server->worker_watch);
    return rc;
}

/* ---- the end ---- */

static void close_listeners(struct nvr_server *server)
{
    for (uint32_t i = 0; i < server->listener_count; i++)
        mover_listener_close(&server->listeners[i].at);
    server->listener_count = 0;
}

/* Says to all hosts that it is over; what is under way is answered first. */
void nvr_server_stop(struct nvr_server *server)
{
    if (server->stop_ns)
        return;
    server->stop_ns = mover_now_ns() + DRAIN_MS * NS_PER_MS;
    close_listeners(server);
    for (uint32_t i = 0; i < NVR_QUEUES_MAX; i++)
        if (server->queues[i])
            nvr_transport.cut(&server->queues[i]->queue);
}

int nvr_server_run(struct nvr_server *server)
{
    server->is_alone = server->thread_count == 1;
    server->is_running = true;
    const int rc = server_start_threads(server);
    if (!rc)
        nvr_thread_run(&server->threads[0]);
    end_threads(server);
    return rc;
}

/* A library that has threads of its own may write to the pool until its operations end. */
static bool server_is_awaited(const struct nvr_server *server)
{
    for (uint32_t i = 0; i < server->thread_count; i++)
        if (server->threads[i].uring.awaited)
            return true;
    return false;
}

/* What backends still have to write, however long it takes: a target that is killed meanwhile loses
 * nothing, but leaves it to the next one. */
static void leave_backends(struct nvr_server *server)
{
    nvt_namespace_remove_slow(&server->target);
    while (list_first(&server->target.leaving)) {
        struct pollfd ready = {.fd = server->threads[0].uring.event_fd, .events = POLLIN};
        for (uint32_t i = 0; i < server->thread_count; i++)
            nvr_thread_drain(&server->threads[i]);
        nvt_namespace_sweep(&server->target);
        (void)poll(&ready, 1, LEAVE_MS);
        nvr_watch_drain(&server->threads[0].uring_watch);
    }
}

bool nvr_server_close(struct nvr_server *server)
{
    close_listeners(server);
    for (uint32_t i = 0; i < NVR_QUEUES_MAX; i++)
        if (server->queues[i])
            nvr_queue_end(server->queues[i]);
    const uint64_t end_ns = mover_now_ns() + DRAIN_MS * NS_PER_MS; /* of backends */
    while (server->queue_count && mover_now_ns() < end_ns)
        for (uint32_t i = 0; i < server->thread_count; i++)
            nvr_thread_drain(&server->threads[i]);
    leave_backends(server);
    if (server_is_awaited(server))
        return false;
    if (server->target.worker)
        nvt_worker_close(&server->worker);
    nvt_target_free(&server->target);
    /* Until then their threads may wake ours. */
    if (!nvt_backends_settle(DRAIN_MS))
        return false;
    for (uint32_t i = server->thread_count; i > 0; i--)
        close_thread(&server->threads[i - 1]);
    if (server->events)
        rdma_destroy_event_channel(server->events);
    if (server->listen_watch.fd >= 0)
        close(server->listen_watch.fd);
    if (server->memory_fd >= 0)
        close(server->memory_fd);
    nvt_gate_free(&server->gate);
    pthread_mutex_destroy(&server->register_lock);
    free(server->threads);
    return true;
}
