/* SPDX-License-Identifier: BSD-2-Clause */
/* A queue over several paths: its lanes, their polls, and how it sleeps. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "common/base/minmax.h"
#include "common/time/clock.h"
#include "nvme/host/controller.h"
#include "nvme/host/group.h"
#include "nvme/host/machine/answer.h"
#include "nvme/host/machine/reconnect.h"
#include "nvme/host/numa.h"

enum { POLLS_MASK = 63, REOPEN_MS = 100 };

static struct nvh_group_queue *group_queue_of(struct sw_nvme_queue *queue)
{
    return (struct nvh_group_queue *)queue;
}

/* ---- the machine's port ---- */

static void lane_done(void *arg, const struct sw_nvme_result *result)
{
    nvh_lanes_done(arg, result);
}

static enum sw_nvme_status lane_submit(struct nvh_lanes *lanes, uint32_t path,
                                       struct nvh_held *held)
{
    struct sw_nvme_queue *queue = lanes->lanes[path].queue;
    struct sw_nvme_io io = held->io;
    io.done = lane_done;
    io.arg = held;
    if (io.mem)
        io.mem = ((struct nvh_group_mem *)io.mem)->of_path[path];
    switch (held->kind) {
    case NVH_READ:
        return sw_nvme_read(queue, &io);
    case NVH_WRITE:
        return sw_nvme_write(queue, &io);
    case NVH_COMPARE:
        return sw_nvme_compare(queue, &io);
    case NVH_ZEROES:
        return sw_nvme_write_zeroes(queue, &io);
    case NVH_FLUSH:
        return sw_nvme_flush(queue, &io);
    case NVH_DSM:
        return sw_nvme_dsm(queue, &io);
    case NVH_RESV_REGISTER:
        return sw_nvme_resv_register(queue, &io, &held->resv);
    case NVH_RESV_ACQUIRE:
        return sw_nvme_resv_acquire(queue, &io, &held->resv);
    case NVH_RESV_RELEASE:
        return sw_nvme_resv_release(queue, &io, &held->resv);
    case NVH_RESV_REPORT:
        return sw_nvme_resv_report(queue, &io);
    }
    return SW_NVME_INVALID;
}

static void lane_closed(struct nvh_lanes *lanes, uint32_t path, int ns)
{
    struct nvh_group *group = ((struct nvh_group_queue *)lanes)->group;
    pthread_mutex_lock(&group->lock);
    nvh_path_closed(&group->machine, path, ns);
    pthread_mutex_unlock(&group->lock);
}

static enum nvh_proof lane_proof(struct nvh_lanes *lanes, const struct nvh_held *held,
                                 uint64_t now_ns)
{
    struct nvh_group *group = ((struct nvh_group_queue *)lanes)->group;
    pthread_mutex_lock(&group->lock);
    const enum nvh_proof proof =
        nvh_paths_proof(&group->machine, held->path, held->epoch, held->ns, held->changes, now_ns);
    pthread_mutex_unlock(&group->lock);
    return proof;
}

static const struct nvh_lanes_port lanes_port = {
    .now_ns = mover_now_ns, .submit = lane_submit, .closed = lane_closed, .proof = lane_proof};

/* ---- lanes ---- */

static void lane_open(struct nvh_group_queue *queue, uint32_t path)
{
    struct nvh_lane *lane = &queue->lanes.lanes[path];
    struct sw_nvme_controller *c = queue->group->paths[path].controller;
    struct epoll_event event = {.events = EPOLLIN};
    if (sw_nvme_queue_start(c, 0, NULL, &lane->queue))
        return;
    lane->distance = nvh_numa_distance(nvh_host_of(c)->verbs);
    epoll_ctl(queue->epoll_fd, EPOLL_CTL_ADD, sw_nvme_queue_fd(lane->queue), &event);
}

/* Opens lanes of paths that can be used, and closes those whose first connection failed. */
static void tend_lanes(struct nvh_group_queue *queue, uint64_t now_ns)
{
    if (now_ns < queue->next_open_ns)
        return;
    for (uint32_t i = 0; i < queue->group->count; i++) {
        struct nvh_lane *lane = &queue->lanes.lanes[i];
        if (lane->queue && lane->queue->phase == NVH_ENDED) {
            sw_nvme_queue_close(lane->queue);
            lane->queue = NULL;
            queue->next_open_ns = now_ns + REOPEN_MS * NS_PER_MS;
        } else if (!lane->queue && atomic_load(&queue->group->machine.paths[i].used)) {
            lane_open(queue, i);
            if (!lane->queue)
                queue->next_open_ns = now_ns + REOPEN_MS * NS_PER_MS;
        }
    }
}

static void tend_group_queue(struct nvh_group_queue *queue, uint64_t now_ns)
{
    struct nvh_group *group = queue->group;
    struct nvh_lanes *lanes = &queue->lanes;
    const bool is_due = now_ns >= queue->next_tend_ns;
    if (!is_due && !nvh_lanes_stirs(lanes))
        return;
    if (is_due && !pthread_mutex_trylock(&group->lock)) {
        nvh_group_look(group, now_ns);
        pthread_mutex_unlock(&group->lock);
    }
    queue->next_tend_ns = is_due ? now_ns + NVH_TEND_NS : queue->next_tend_ns;
    tend_lanes(queue, now_ns);
    nvh_lanes_look(lanes, now_ns);
    if (atomic_load(&group->controller.state) == SW_NVME_DEAD)
        nvh_lanes_fail(lanes);
}

uint32_t nvh_group_queue_poll(struct sw_nvme_queue *queue)
{
    struct nvh_group_queue *own = group_queue_of(queue);
    const uint32_t before = queue->finished;
    for (uint32_t i = 0; i < own->group->count; i++)
        if (own->lanes.lanes[i].queue)
            sw_nvme_queue_poll(own->lanes.lanes[i].queue);
    if (nvh_lanes_stirs(&own->lanes) || !(++own->polls & POLLS_MASK) || !own->next_tend_ns)
        tend_group_queue(own, mover_now_ns());
    return queue->finished - before;
}

/* ---- sleep ---- */

/* Something is under way that no completion of a lane tells of. */
static bool is_unsettled(struct nvh_group_queue *queue)
{
    bool unsettled = queue->lanes.parked || !nvh_fifo_empty(&queue->lanes.queue.pending);
    for (uint32_t i = 0; i < queue->group->count && !unsettled; i++) {
        const struct nvh_lane *lane = &queue->lanes.lanes[i];
        const bool is_used = atomic_load(&queue->group->machine.paths[i].used);
        unsettled = is_used && (!lane->queue || lane->queue->phase != NVH_UP);
    }
    return unsettled;
}

bool nvh_group_queue_arm(struct sw_nvme_queue *queue)
{
    struct nvh_group_queue *own = group_queue_of(queue);
    uint64_t expirations;
    if (read(own->timer_fd, &expirations, sizeof(expirations)) < 0)
        expirations = 0;
    const uint32_t before = queue->finished;
    bool is_armed = nvh_fifo_empty(&queue->done);
    for (uint32_t i = 0; i < own->group->count && is_armed; i++)
        if (own->lanes.lanes[i].queue)
            is_armed = sw_nvme_queue_arm(own->lanes.lanes[i].queue);
    if (!is_armed || queue->finished != before || nvh_lanes_stirs(&own->lanes))
        return false;
    const struct itimerspec spec = {
        .it_value = {.tv_nsec = is_unsettled(own) ? NVH_TEND_NS : NVH_NAP_NS}};
    own->next_tend_ns = 0;
    return !timerfd_settime(own->timer_fd, 0, &spec, NULL);
}

void nvh_group_queue_sleep(struct sw_nvme_queue *queue, uint64_t deadline_ns)
{
    struct nvh_group_queue *own = group_queue_of(queue);
    if (!nvh_group_queue_arm(queue))
        return;
    const uint64_t now = mover_now_ns();
    const uint64_t left = deadline_ns > now ? deadline_ns - now : 0;
    const uint64_t ns = mover_min_u64(left, NVH_NAP_NS);
    const struct timespec timeout = {.tv_nsec = (long)ns};
    struct pollfd fd = {.fd = own->epoll_fd, .events = POLLIN};
    ppoll(&fd, 1, &timeout, NULL);
    own->next_tend_ns = 0;
}

/* ---- life ---- */

static void free_group_queue(struct nvh_group_queue *queue)
{
    if (queue->epoll_fd >= 0)
        close(queue->epoll_fd);
    if (queue->timer_fd >= 0)
        close(queue->timer_fd);
    nvh_queue_clear(&queue->lanes.queue);
    free(queue->lanes.held);
    free(queue);
}

static bool open_descriptors(struct nvh_group_queue *queue)
{
    struct epoll_event event = {.events = EPOLLIN};
    queue->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    queue->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    return queue->epoll_fd >= 0 && queue->timer_fd >= 0 &&
           !epoll_ctl(queue->epoll_fd, EPOLL_CTL_ADD, queue->timer_fd, &event);
}

/* How many queues there may be is what each path has granted. */
static bool enter_queue(struct nvh_group *group, struct nvh_group_queue *queue)
{
    uint32_t open = 0;
    pthread_mutex_lock(&group->lock);
    for (const struct nvh_group_queue *other = group->queues; other; other = other->next)
        open++;
    const bool has_room = open < group->controller.info.nr_io_queues;
    if (has_room) {
        queue->next = group->queues;
        group->queues = queue;
    }
    pthread_mutex_unlock(&group->lock);
    return has_room;
}

enum sw_nvme_status nvh_group_queue_start(struct sw_nvme_controller *controller, uint32_t spin_us,
                                          struct sw_nvme_error *error, struct sw_nvme_queue **out)
{
    struct nvh_group *group = nvh_group_of(controller);
    struct nvh_group_queue *queue = calloc(1, sizeof(*queue));
    if (!queue)
        return nvh_error(error, SW_NVME_NO_MEMORY, "no memory for a queue");
    const uint32_t size = controller->info.queue_size;
    queue->epoll_fd = queue->timer_fd = -1;
    if (size < 2 ||
        !nvh_lanes_init(&queue->lanes, controller, &nvh_system_port, &lanes_port, &group->machine,
                        size) ||
        !open_descriptors(queue)) {
        free_group_queue(queue);
        return nvh_error(error, SW_NVME_NO_MEMORY, "no memory for a queue of %u", size);
    }
    const struct sw_nvme_options *options = &controller->options;
    const int32_t fast = options->fast_io_fail_tmo_s, all = options->ctrl_loss_tmo_s;
    queue->lanes.policy = options->iopolicy;
    queue->lanes.patience_s = fast >= 0 && (all < 0 || fast < all) ? fast : all;
    queue->group = group;
    queue->spin_us = spin_us;
    if (!enter_queue(group, queue)) {
        free_group_queue(queue);
        return nvh_error(error, SW_NVME_INVALID,
                         "the controllers have granted %u I/O queues, and all are in use",
                         controller->info.nr_io_queues);
    }
    *out = &queue->lanes.queue;
    return SW_NVME_OK;
}

/* A lane of each path that can be used is up: all of them (1), one at least (0), none (-1). */
static int lanes_up(struct nvh_group_queue *queue)
{
    uint32_t up = 0, used = 0;
    for (uint32_t i = 0; i < queue->group->count; i++) {
        const struct nvh_lane *lane = &queue->lanes.lanes[i];
        used += atomic_load(&queue->group->machine.paths[i].used) != 0;
        up += lane->queue && lane->queue->phase == NVH_UP;
    }
    return !up ? -1 : up >= used;
}

enum sw_nvme_status nvh_group_queue_open(struct sw_nvme_controller *controller, uint32_t spin_us,
                                         struct sw_nvme_error *error, struct sw_nvme_queue **out)
{
    enum { OTHERS_MS = 1000 };
    struct sw_nvme_queue *queue;
    const enum sw_nvme_status status = nvh_group_queue_start(controller, spin_us, error, &queue);
    if (status)
        return status;
    const uint64_t start = mover_now_ns();
    const uint64_t most_ns = controller->options.connect_timeout_ms * NS_PER_MS;
    uint64_t waited = 0;
    int up = -1;
    while (up < (waited < OTHERS_MS * NS_PER_MS) && waited < most_ns &&
           sw_nvme_state_of(controller) != SW_NVME_DEAD) {
        group_queue_of(queue)->next_tend_ns = 0;
        nvh_group_queue_poll(queue);
        up = lanes_up(group_queue_of(queue));
        if (up < 1)
            nvh_group_queue_sleep(queue, mover_now_ns() + NVH_TEND_NS);
        waited = mover_now_ns() - start;
    }
    if (up >= 0) {
        *out = queue;
        return SW_NVME_OK;
    }
    sw_nvme_queue_close(queue);
    return nvh_error(error, SW_NVME_TIMEOUT, "no path of %s connected a queue in %u ms",
                     controller->where, controller->options.connect_timeout_ms);
}

static void add_totals(struct nvh_lane_counts *totals, const struct nvh_lane_counts *counts)
{
    atomic_fetch_add(&totals->requests, atomic_load(&counts->requests));
    atomic_fetch_add(&totals->moved, atomic_load(&counts->moved));
    atomic_fetch_add(&totals->held, atomic_load(&counts->held));
    atomic_fetch_add(&totals->maybe_done, atomic_load(&counts->maybe_done));
}

static void leave_queue(struct nvh_group *group, struct nvh_group_queue *queue)
{
    struct nvh_group_queue **at = &group->queues;
    while (*at != queue)
        at = &(*at)->next;
    *at = queue->next;
    for (uint32_t i = 0; i < group->count; i++)
        add_totals(&group->paths[i].totals, &queue->lanes.lanes[i].counts);
}

void nvh_group_queue_close(struct sw_nvme_queue *queue)
{
    struct nvh_group_queue *own = group_queue_of(queue);
    struct nvh_group *group = own->group;
    const bool is_forked = nvh_is_forked(&group->controller); /* then it has this thread alone */
    own->lanes.is_closing = true;
    for (uint32_t i = 0; i < group->count; i++)
        sw_nvme_queue_close(own->lanes.lanes[i].queue);
    if (!is_forked) {
        nvh_lanes_fail(&own->lanes);
        pthread_mutex_lock(&group->lock);
    }
    leave_queue(group, own);
    if (!is_forked)
        pthread_mutex_unlock(&group->lock);
    free_group_queue(own);
}
