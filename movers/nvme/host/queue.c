/* SPDX-License-Identifier: BSD-2-Clause */
#include "nvme/host/queue.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "common/time/clock.h"
#include "nvme/host/completion.h"
#include "nvme/host/connection.h"
#include "nvme/host/controller.h"
#include "nvme/host/reconnect.h"
#include "nvme/host/request.h"
#include "nvme/host/send.h"

enum { FORGETS_MS = 2000 }; /* how long a target may take to see that a queue has gone */

static bool make_fifo(struct nvh_fifo *fifo, uint32_t entries)
{
    uint32_t room = 1;
    while (room < entries)
        room *= 2;
    *fifo = (struct nvh_fifo){.at = calloc(room, sizeof(*fifo->at)), .mask = room - 1};
    return fifo->at;
}

static bool make_descriptors(struct sw_nvme_queue *queue)
{
    queue->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    queue->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    struct epoll_event event = {.events = EPOLLIN};
    return queue->epoll_fd >= 0 && queue->timer_fd >= 0 &&
           !epoll_ctl(queue->epoll_fd, EPOLL_CTL_ADD, queue->timer_fd, &event);
}

static bool queue_make_memory(struct sw_nvme_queue *queue)
{
    const size_t sqes = (size_t)queue->slots_max * NVF_SQE_BYTES;
    queue->memory_bytes = sqes + (size_t)queue->receives_max * NVH_RECEIVE_BYTES;
    queue->memory =
        mmap(NULL, queue->memory_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    queue->scratch =
        mmap(NULL, NVH_SCRATCH_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (queue->memory == MAP_FAILED || queue->scratch == MAP_FAILED)
        return false;
    queue->sqes = queue->memory;
    queue->receives = (uint8_t *)queue->memory + sqes;
    return true;
}

enum sw_nvme_status nvh_queue_init(struct sw_nvme_controller *controller,
                                   struct sw_nvme_queue *queue, uint16_t qid, uint32_t size)
{
    *queue = (struct sw_nvme_queue){
        .controller = controller,
        .qid = qid,
        .size = size,
        .slots_max = size,
        .receives_max = size + NVH_BATCH,
        .epoch = atomic_load(&controller->epoch),
        .epoll_fd = -1,
        .timer_fd = -1,
        .memory = MAP_FAILED,
        .scratch = MAP_FAILED,
    };
    queue->slots = calloc(queue->slots_max, sizeof(*queue->slots));
    queue->free_slots = calloc(queue->slots_max, sizeof(*queue->free_slots));
    queue->order = calloc(queue->slots_max, sizeof(*queue->order));
    queue->missing = calloc(queue->receives_max, sizeof(*queue->missing));
    if (!queue->slots || !queue->free_slots || !queue->order || !queue->missing ||
        !make_fifo(&queue->pending, queue->slots_max) ||
        !make_fifo(&queue->done, queue->slots_max) ||
        !make_fifo(&queue->sending, queue->slots_max) || !queue_make_memory(queue)) {
        nvh_queue_free(queue);
        return SW_NVME_NO_MEMORY;
    }
    if (!make_descriptors(queue)) {
        nvh_queue_free(queue);
        return SW_NVME_SYSTEM;
    }
    for (uint32_t i = 0; i < queue->slots_max; i++)
        queue->free_slots[i] = (uint16_t)(queue->slots_max - 1 - i);
    queue->free_count = queue->slots_max;
    return SW_NVME_OK;
}

bool nvh_queue_memory(struct sw_nvme_queue *queue)
{
    struct ibv_pd *pd = queue->controller->pd;
    if (!queue->memory_mr)
        queue->memory_mr =
            ibv_reg_mr(pd, queue->memory, queue->memory_bytes, IBV_ACCESS_LOCAL_WRITE);
    if (!queue->scratch_mr)
        queue->scratch_mr =
            ibv_reg_mr(pd, queue->scratch, NVH_SCRATCH_BYTES,
                       IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE);
    return queue->memory_mr && queue->scratch_mr;
}

void nvh_queue_free(struct sw_nvme_queue *queue)
{
    nvh_link_destroy(queue);
    if (queue->memory_mr)
        ibv_dereg_mr(queue->memory_mr);
    if (queue->scratch_mr)
        ibv_dereg_mr(queue->scratch_mr);
    if (queue->memory != MAP_FAILED)
        munmap(queue->memory, queue->memory_bytes);
    if (queue->scratch != MAP_FAILED)
        munmap(queue->scratch, NVH_SCRATCH_BYTES);
    if (queue->epoll_fd >= 0)
        close(queue->epoll_fd);
    if (queue->timer_fd >= 0)
        close(queue->timer_fd);
    free(queue->slots);
    free(queue->free_slots);
    free(queue->missing);
    free(queue->order);
    free(queue->pending.at);
    free(queue->done.at);
    free(queue->sending.at);
    *queue = (struct sw_nvme_queue){
        .epoll_fd = -1, .timer_fd = -1, .memory = MAP_FAILED, .scratch = MAP_FAILED};
}

/* The first reason counts: what follows it is its consequence. */
void nvh_queue_break(struct sw_nvme_queue *queue, enum sw_nvme_status status, const char *format,
                     ...)
{
    if (queue->is_broken)
        return;
    queue->is_broken = true;
    queue->error = (struct sw_nvme_error){.status = status};
    va_list args;
    va_start(args, format);
    vsnprintf(queue->error.text, sizeof(queue->error.text), format, args);
    va_end(args);
}

/* The queue's ID, 0 where all are in use. */
static uint16_t take_qid(struct sw_nvme_controller *c, uint32_t *size)
{
    uint16_t found = 0;
    pthread_mutex_lock(&c->lock);
    for (uint32_t i = 0; i < c->info.nr_io_queues && !found; i++) {
        if (!(c->queue_ids >> i & 1)) {
            c->queue_ids |= 1ull << i;
            found = (uint16_t)(i + 1);
        }
    }
    *size = c->info.queue_size;
    if (found)
        atomic_fetch_add(&c->queues, 1);
    pthread_mutex_unlock(&c->lock);
    return found;
}

static void return_qid(struct sw_nvme_controller *c, uint16_t qid)
{
    pthread_mutex_lock(&c->lock);
    c->queue_ids &= ~(1ull << (qid - 1));
    atomic_fetch_sub(&c->queues, 1);
    pthread_mutex_unlock(&c->lock);
}

enum sw_nvme_status sw_nvme_queue_start(struct sw_nvme_controller *controller, uint32_t spin_us,
                                        struct sw_nvme_error *error, struct sw_nvme_queue **out)
{
    uint32_t size;
    const uint16_t qid = take_qid(controller, &size);
    if (!qid)
        return nvh_error(error, SW_NVME_INVALID,
                         "the controller has granted %u I/O queues, and all are in use",
                         controller->info.nr_io_queues);
    struct sw_nvme_queue *queue = malloc(sizeof(*queue));
    const enum sw_nvme_status status =
        queue ? nvh_queue_init(controller, queue, qid, size) : SW_NVME_NO_MEMORY;
    if (status) {
        free(queue);
        return_qid(controller, qid);
        return nvh_error(error, status, "no memory for a queue of %u: %s", size, strerror(errno));
    }
    queue->spin_us = spin_us;
    *out = queue;
    return SW_NVME_OK;
}

/* Whether the controller is gone, or is not even tried again before the deadline; and why. */
static bool is_given_up(struct sw_nvme_controller *c, uint64_t deadline_ns,
                        struct sw_nvme_error *why)
{
    pthread_mutex_lock(&c->lock);
    const uint32_t state = atomic_load(&c->state);
    const bool is_late = state == SW_NVME_LOST && c->next_try_ns >= deadline_ns;
    const bool is_over = state == SW_NVME_DEAD || is_late;
    if (is_over)
        *why = c->error;
    pthread_mutex_unlock(&c->lock);
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
            nvh_queue_sleep(queue, deadline);
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
    struct sw_nvme_controller *controller = queue->controller;
    const uint16_t qid = queue->qid;
    queue->phase = NVH_ENDED;
    nvh_queue_down(queue, false);
    nvh_queue_free(queue);
    free(queue);
    return_qid(controller, qid);
}

uint32_t sw_nvme_queue_depth(const struct sw_nvme_queue *queue)
{
    return queue->size - 1;
}

uint32_t sw_nvme_queue_used(const struct sw_nvme_queue *queue)
{
    return queue->used;
}

int sw_nvme_queue_fd(const struct sw_nvme_queue *queue)
{
    return queue->epoll_fd;
}
