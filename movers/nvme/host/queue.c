/* SPDX-License-Identifier: BSD-2-Clause */
#include "nvme/host/queue.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "common/time/clock.h"
#include "nvme/host/completion.h"
#include "nvme/host/controller.h"
#include "nvme/host/group.h"
#include "nvme/host/machine/reconnect.h"
#include "nvme/host/secrets.h"

enum { FORGETS_MS = 2000 }; /* how long a target may take to see that a queue has gone */

static bool make_descriptors(struct nvh_link *link)
{
    link->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    link->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    struct epoll_event event = {.events = EPOLLIN};
    return link->epoll_fd >= 0 && link->timer_fd >= 0 &&
           !epoll_ctl(link->epoll_fd, EPOLL_CTL_ADD, link->timer_fd, &event);
}

static void *map_pages(size_t bytes)
{
    void *mapped = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return mapped == MAP_FAILED ? NULL : mapped;
}

static bool queue_make_memory(struct nvh_link *link)
{
    const size_t sqes = (size_t)link->queue.slots_max * NVF_SQE_BYTES;
    link->memory_bytes = sqes + (size_t)link->receives_max * NVH_RECEIVE_BYTES;
    link->memory = map_pages(link->memory_bytes);
    link->queue.scratch = map_pages(NVH_SCRATCH_BYTES);
    link->missing = calloc(link->receives_max, sizeof(*link->missing));
    if (!link->memory || !link->queue.scratch || !link->missing)
        return false;
    link->queue.sqes = link->memory;
    link->receives = (uint8_t *)link->memory + sqes;
    return true;
}

enum sw_nvme_status nvh_link_init(struct nvh_link *link, struct sw_nvme_controller *controller,
                                  uint16_t qid, uint32_t size)
{
    *link = (struct nvh_link){
        .receives_max = size + NVH_BATCH,
        .connection = {.epoll_fd = -1},
        .epoll_fd = -1,
        .timer_fd = -1,
    };
    if (!nvh_queue_init(&link->queue, controller, &nvh_system_port, qid, size) ||
        !queue_make_memory(link)) {
        nvh_link_free(link);
        return SW_NVME_NO_MEMORY;
    }
    if (!make_descriptors(link)) {
        nvh_link_free(link);
        return SW_NVME_SYSTEM;
    }
    return SW_NVME_OK;
}

bool nvh_link_memory(struct nvh_link *link)
{
    struct ibv_pd *pd = nvh_host_of(link->queue.controller)->pd;
    if (!link->memory_mr)
        link->memory_mr = ibv_reg_mr(pd, link->memory, link->memory_bytes, IBV_ACCESS_LOCAL_WRITE);
    if (!link->scratch_mr)
        link->scratch_mr =
            ibv_reg_mr(pd, link->queue.scratch, NVH_SCRATCH_BYTES,
                       IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE);
    if (link->scratch_mr)
        link->queue.scratch_key = link->scratch_mr->rkey;
    return link->memory_mr && link->scratch_mr;
}

static void queue_free_device(struct nvh_link *link)
{
    nvh_link_end(&link->queue);
    if (link->memory_mr)
        ibv_dereg_mr(link->memory_mr);
    if (link->scratch_mr)
        ibv_dereg_mr(link->scratch_mr);
    if (link->memory)
        munmap(link->memory, link->memory_bytes);
    if (link->queue.scratch)
        munmap(link->queue.scratch, NVH_SCRATCH_BYTES);
}

void nvh_link_free(struct nvh_link *link)
{
    if (!link->queue.port) /* it was never made */
        return;
    if (nvh_is_forked(link->queue.controller))
        nvh_secrets_end(&link->queue); /* the rest is the parent's, also the place of the pages */
    else
        queue_free_device(link);
    if (link->epoll_fd >= 0)
        close(link->epoll_fd);
    if (link->timer_fd >= 0)
        close(link->timer_fd);
    free(link->missing);
    nvh_queue_clear(&link->queue);
    *link = (struct nvh_link){.epoll_fd = -1, .timer_fd = -1};
}

/* The queue's ID, 0 where all are in use. */
static uint16_t take_qid(struct nvh_host *host, uint32_t *size)
{
    uint16_t found = 0;
    pthread_mutex_lock(&host->lock);
    for (uint32_t i = 0; i < host->controller.info.nr_io_queues && !found; i++) {
        if (!(host->queue_ids >> i & 1)) {
            host->queue_ids |= 1ull << i;
            found = (uint16_t)(i + 1);
        }
    }
    *size = host->controller.info.queue_size;
    if (found)
        atomic_fetch_add(&host->queues, 1);
    pthread_mutex_unlock(&host->lock);
    return found;
}

static void return_qid(struct nvh_host *host, uint16_t qid)
{
    const bool is_forked = nvh_is_forked(&host->controller); /* then it has this thread alone */
    if (!is_forked)
        pthread_mutex_lock(&host->lock);
    host->queue_ids &= ~(1ull << (qid - 1));
    atomic_fetch_sub(&host->queues, 1);
    if (!is_forked)
        pthread_mutex_unlock(&host->lock);
}

enum sw_nvme_status sw_nvme_queue_start(struct sw_nvme_controller *controller, uint32_t spin_us,
                                        struct sw_nvme_error *error, struct sw_nvme_queue **out)
{
    uint32_t size;
    struct nvh_host *host = nvh_host_of(controller);
    if (nvh_is_forked(controller))
        return nvh_error(error, SW_NVME_FORKED, "%s", sw_nvme_status_text(SW_NVME_FORKED));
    if (controller->group)
        return nvh_group_queue_start(controller, spin_us, error, out);
    const uint16_t qid = take_qid(host, &size);
    if (!qid)
        return nvh_error(error, SW_NVME_INVALID,
                         "the controller has granted %u I/O queues, and all are in use",
                         controller->info.nr_io_queues);
    struct nvh_link *link = malloc(sizeof(*link));
    const enum sw_nvme_status status =
        link ? nvh_link_init(link, controller, qid, size) : SW_NVME_NO_MEMORY;
    if (status) {
        free(link);
        return_qid(host, qid);
        return nvh_error(error, status, "no memory for a queue of %u: %s", size, strerror(errno));
    }
    link->spin_us = spin_us;
    *out = &link->queue;
    return SW_NVME_OK;
}

/* Whether the controller is gone, or is not even tried again before the deadline; and why. */
static bool is_given_up(struct sw_nvme_controller *c, uint64_t deadline_ns,
                        struct sw_nvme_error *why)
{
    pthread_mutex_lock(&nvh_host_of(c)->lock);
    const uint32_t state = atomic_load(&c->state);
    const bool is_late = state == SW_NVME_LOST && c->next_try_ns >= deadline_ns;
    const bool is_over = state == SW_NVME_DEAD || is_late;
    if (is_over)
        *why = c->error;
    pthread_mutex_unlock(&nvh_host_of(c)->lock);
    return is_over;
}

static enum sw_nvme_status open_once(struct sw_nvme_controller *controller, uint32_t spin_us,
                                     struct sw_nvme_error *error, struct sw_nvme_queue **out)
{
    struct sw_nvme_queue *queue;
    const enum sw_nvme_status status = sw_nvme_queue_start(controller, spin_us, error, &queue);
    if (status)
        return status;
    const uint64_t deadline = mover_now_ns() + controller->options.connect_timeout_ms * NS_PER_MS;
    struct sw_nvme_error why = {0};
    while (queue->phase != NVH_UP && queue->phase != NVH_ENDED && mover_now_ns() < deadline &&
           !is_given_up(controller, deadline, &why)) {
        sw_nvme_queue_poll(queue);
        if (queue->phase != NVH_UP && queue->phase != NVH_ENDED)
            nvh_queue_sleep(nvh_link_of(queue), deadline);
    }
    if (queue->phase == NVH_UP) {
        *out = queue;
        return SW_NVME_OK;
    }
    if (queue->error.status)
        why = queue->error;
    if (!why.status)
        nvh_error(&why, SW_NVME_TIMEOUT, "%s did not connect queue %u in %u ms", controller->where,
                  queue->qid, controller->options.connect_timeout_ms);
    sw_nvme_queue_close(queue);
    if (error)
        *error = why;
    return why.status;
}

enum sw_nvme_status sw_nvme_queue_open(struct sw_nvme_controller *controller, uint32_t spin_us,
                                       struct sw_nvme_error *error, struct sw_nvme_queue **out)
{
    enum { STATUS = 0x7ff, PAUSE_US = 20000 };
    const uint64_t give_up_ns = mover_now_ns() + FORGETS_MS * NS_PER_MS;
    struct sw_nvme_error why = {0};
    enum sw_nvme_status status;
    if (controller->group && !nvh_is_forked(controller))
        return nvh_group_queue_open(controller, spin_us, error, out);
    /* A target may still have the queue of this number that was closed just now. */
    while ((status = open_once(controller, spin_us, &why, out)) == SW_NVME_FAILED &&
           (why.nvme_status & STATUS) == NVME_SC_CMD_SEQ_ERROR && mover_now_ns() < give_up_ns)
        usleep(PAUSE_US);
    if (status && error)
        *error = why;
    return status;
}

void sw_nvme_queue_close(struct sw_nvme_queue *queue)
{
    if (!queue)
        return;
    if (queue->over)
        return nvh_group_queue_close(queue);
    struct nvh_host *host = nvh_host_of(queue->controller);
    const uint16_t qid = queue->qid;
    if (!nvh_is_forked(queue->controller)) {
        queue->phase = NVH_ENDED;
        nvh_queue_down(queue, false);
    }
    nvh_link_free(nvh_link_of(queue));
    free(queue);
    return_qid(host, qid);
}

int sw_nvme_queue_fd(const struct sw_nvme_queue *queue)
{
    return queue->over ? ((const struct nvh_group_queue *)queue)->epoll_fd
                       : ((const struct nvh_link *)queue)->epoll_fd;
}
