/* SPDX-License-Identifier: BSD-2-Clause */
#include "nvme/host/machine/queue.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nvme/host/machine/controller.h"
#include "nvme/host/machine/request.h"

static bool make_fifo(struct nvh_fifo *fifo, uint32_t entries)
{
    uint32_t room = 1;
    while (room < entries)
        room *= 2;
    *fifo = (struct nvh_fifo){.at = calloc(room, sizeof(*fifo->at)), .mask = room - 1};
    return fifo->at;
}

bool nvh_queue_init(struct sw_nvme_queue *queue, struct sw_nvme_controller *controller,
                    const struct nvh_port *port, uint16_t qid, uint32_t size)
{
    assert(size >= 2 && size <= NVH_QUEUE_MAX);
    memset(queue, 0, sizeof(*queue));
    queue->controller = controller;
    queue->port = port;
    queue->qid = qid;
    queue->size = queue->slots_max = size;
    queue->epoch = atomic_load(&controller->epoch);
    queue->slots = calloc(queue->slots_max, sizeof(*queue->slots));
    queue->free_slots = calloc(queue->slots_max, sizeof(*queue->free_slots));
    queue->order = calloc(queue->slots_max, sizeof(*queue->order));
    if (!queue->slots || !queue->free_slots || !queue->order ||
        !make_fifo(&queue->pending, queue->slots_max) ||
        !make_fifo(&queue->done, queue->slots_max) ||
        !make_fifo(&queue->sends.pending, queue->slots_max))
        return false;
    for (uint32_t i = 0; i < queue->slots_max; i++)
        queue->free_slots[i] = (uint16_t)(queue->slots_max - 1 - i);
    queue->free_count = queue->slots_max;
    return true;
}

void nvh_queue_clear(struct sw_nvme_queue *queue)
{
    free(queue->slots);
    free(queue->free_slots);
    free(queue->order);
    free(queue->pending.at);
    free(queue->done.at);
    free(queue->sends.pending.at);
}

/* The first reason counts: what follows it is its consequence. */
void nvh_queue_break(struct sw_nvme_queue *queue, enum sw_nvme_status status, const char *format,
                     ...)
{
    assert(status != SW_NVME_OK);
    if (queue->is_broken)
        return;
    queue->is_broken = true;
    queue->error = (struct sw_nvme_error){.status = status};
    va_list args;
    va_start(args, format);
    vsnprintf(queue->error.text, sizeof(queue->error.text), format, args);
    va_end(args);
}

void nvh_link_up(struct sw_nvme_queue *queue)
{
    queue->link_is_up = true;
}

void nvh_link_ended(struct sw_nvme_queue *queue)
{
    nvh_auth_cut(queue);
    nvh_queue_break(queue, SW_NVME_UNREACHABLE, "%s has ended the connection of queue %u",
                    queue->controller->where, queue->qid);
}
