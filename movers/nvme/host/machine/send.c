/* SPDX-License-Identifier: BSD-2-Clause */
#include "nvme/host/machine/send.h"

#include <assert.h>

#include "nvme/host/machine/fifo.h"
#include "nvme/host/machine/queue.h"
#include "nvme/host/machine/request.h"

void nvh_sends_init(struct sw_nvme_queue *queue, uint32_t inline_bytes)
{
    struct nvh_sends *sends = &queue->sends;
    sends->posted = sends->retired = sends->unsignaled = 0;
    sends->pending.head = sends->pending.tail = 0;
    sends->count = 0;
    sends->is_inline = true;
    sends->max = nvh_sends_max(queue);
    sends->inline_bytes = inline_bytes;
    queue->ring.head = queue->ring.tail = 0;
}

uint32_t nvh_sends_max(const struct sw_nvme_queue *queue)
{
    return 2 * queue->size + NVH_BATCH;
}

static bool can_send(struct sw_nvme_queue *queue)
{
    struct nvh_ring *ring = &queue->ring;
    /* Without a command in flight the controller has taken all: so a head that it never moves
     * costs speed, and nothing hangs. */
    if (!ring->in_flight)
        ring->head = ring->tail;
    const uint32_t next = ring->tail + 1 == queue->size ? 0 : ring->tail + 1;
    const uint32_t sends = (queue->sends.posted - queue->sends.retired) & NVH_SENDS_MASK;
    return next != ring->head && sends < queue->sends.max;
}

void nvh_sends_post(struct sw_nvme_queue *queue)
{
    struct nvh_sends *sends = &queue->sends;
    if (!sends->count || queue->is_broken)
        return;
    /* Nobody reports an unsignaled SEND. An inline one needs no report, but room in the queue. */
    const bool signals = !sends->is_inline || sends->unsignaled >= queue->size / 2;
    if (signals)
        sends->unsignaled = 0;
    const bool is_posted = queue->port->send(queue, signals);
    sends->count = 0;
    sends->is_inline = true;
    if (!is_posted)
        nvh_queue_break(queue, SW_NVME_SYSTEM, "a command cannot be sent");
}

static void send_slot(struct sw_nvme_queue *queue, uint32_t index)
{
    struct nvh_slot *slot = &queue->slots[index];
    struct nvh_sends *sends = &queue->sends;
    assert(sends->count < NVH_BATCH);
    queue->sqes[index].cid = htole16((uint16_t)nvh_cid(queue, index));
    sends->posted = (sends->posted + 1) & NVH_SENDS_MASK;
    sends->unsignaled++;
    slot->state = NVH_SENT;
    slot->answered = false;
    slot->was_sent = true;
    slot->send = sends->posted;
    slot->send_pending = NVF_SQE_BYTES + slot->capsule_bytes > sends->inline_bytes;
    slot->sent_ns = queue->tick_ns;
    if (slot->send_pending)
        nvh_fifo_push(&sends->pending, index);
    queue->ring.tail = queue->ring.tail + 1 == queue->size ? 0 : queue->ring.tail + 1;
    queue->ring.in_flight++;
    sends->batch[sends->count++] = (uint16_t)index;
    sends->is_inline = sends->is_inline && !slot->send_pending;
    if (!sends->gathers || sends->count == NVH_BATCH)
        nvh_sends_post(queue);
}

void nvh_slot_submit(struct sw_nvme_queue *queue, uint32_t index)
{
    const bool may_send =
        !queue->is_broken && (queue->slots[index].is_call ||
                              (queue->phase == NVH_UP && nvh_fifo_empty(&queue->pending)));
    if (may_send && can_send(queue)) {
        send_slot(queue, index);
        return;
    }
    queue->slots[index].state = NVH_PENDING;
    nvh_fifo_push(&queue->pending, index);
}

void nvh_pending_send(struct sw_nvme_queue *queue)
{
    while (queue->phase == NVH_UP && !queue->is_broken && !nvh_fifo_empty(&queue->pending) &&
           can_send(queue))
        send_slot(queue, nvh_fifo_pop(&queue->pending));
}

bool nvh_send_retire(struct sw_nvme_queue *queue, uint32_t send, uint32_t *index)
{
    struct nvh_sends *sends = &queue->sends;
    sends->retired = send;
    if (nvh_fifo_empty(&sends->pending))
        return false;
    *index = sends->pending.at[sends->pending.head & sends->pending.mask];
    if (((send - queue->slots[*index].send) & NVH_SENDS_MASK) > NVH_SENDS_MASK / 2)
        return false;
    nvh_fifo_pop(&sends->pending);
    queue->slots[*index].send_pending = false;
    return true;
}
