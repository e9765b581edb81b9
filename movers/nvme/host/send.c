/* SPDX-License-Identifier: BSD-2-Clause */
#include "nvme/host/send.h"

#include "nvme/host/fifo.h"
#include "nvme/host/queue.h"
#include "nvme/host/request.h"

static bool can_send(struct sw_nvme_queue *queue)
{
    /* Without a command in flight the controller has taken all: so a head that it never moves
     * costs speed, and nothing hangs. */
    if (!queue->in_flight)
        queue->sq_head = queue->sq_tail;
    const uint32_t next = queue->sq_tail + 1 == queue->size ? 0 : queue->sq_tail + 1;
    const uint32_t sends = (queue->sends_posted - queue->sends_retired) & NVH_SENDS_MASK;
    return next != queue->sq_head && sends < queue->sends_max;
}

void nvh_sends_post(struct sw_nvme_queue *queue)
{
    struct nvh_send_list *list = &queue->list;
    if (!list->count || queue->is_broken)
        return;
    struct ibv_send_wr *bad, *last = &list->wrs[list->count - 1];
    /* Nobody reports an unsignaled SEND. An inline one needs no report, but room in the queue. */
    if (!list->is_inline || queue->unsignaled >= queue->size / 2) {
        last->send_flags |= IBV_SEND_SIGNALED;
        queue->unsignaled = 0;
    }
    last->next = NULL;
    list->count = 0;
    list->is_inline = true;
    if (ibv_post_send(queue->qp, list->wrs, &bad))
        nvh_queue_break(queue, SW_NVME_SYSTEM, "a command cannot be sent");
}

static void host_add_send(struct sw_nvme_queue *queue, uint32_t index)
{
    struct nvh_send_list *list = &queue->list;
    const struct nvh_slot *slot = &queue->slots[index];
    struct ibv_send_wr *wr = &list->wrs[list->count];
    struct ibv_sge *sges = &list->sges[2 * list->count];
    sges[0] = (struct ibv_sge){.addr = (uintptr_t)&queue->sqes[index],
                               .length = NVF_SQE_BYTES,
                               .lkey = queue->memory_mr->lkey};
    if (slot->capsule_bytes)
        sges[1] = (struct ibv_sge){
            .addr = (uintptr_t)slot->data, .length = slot->capsule_bytes, .lkey = slot->lkey};
    *wr = (struct ibv_send_wr){
        .wr_id = (uint64_t)slot->send << 32,
        .next = wr + 1,
        .sg_list = sges,
        .num_sge = slot->capsule_bytes ? 2 : 1,
        .opcode = IBV_WR_SEND,
        .send_flags = slot->send_pending ? 0 : IBV_SEND_INLINE,
    };
    list->count++;
    list->is_inline = list->is_inline && !slot->send_pending;
}

static void send_slot(struct sw_nvme_queue *queue, uint32_t index)
{
    struct nvh_slot *slot = &queue->slots[index];
    queue->sqes[index].cid = htole16((uint16_t)nvh_cid(queue, index));
    queue->sends_posted = (queue->sends_posted + 1) & NVH_SENDS_MASK;
    queue->unsignaled++;
    slot->state = NVH_SENT;
    slot->answered = false;
    slot->was_sent = true;
    slot->send = queue->sends_posted;
    slot->send_pending = NVF_SQE_BYTES + slot->capsule_bytes > queue->inline_bytes;
    slot->sent_ns = queue->tick_ns;
    if (slot->send_pending)
        nvh_fifo_push(&queue->sending, index);
    queue->sq_tail = queue->sq_tail + 1 == queue->size ? 0 : queue->sq_tail + 1;
    queue->in_flight++;
    host_add_send(queue, index);
    if (!queue->gathers || queue->list.count == NVH_BATCH)
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
    queue->sends_retired = send;
    if (nvh_fifo_empty(&queue->sending))
        return false;
    *index = queue->sending.at[queue->sending.head & queue->sending.mask];
    if (((send - queue->slots[*index].send) & NVH_SENDS_MASK) > NVH_SENDS_MASK / 2)
        return false;
    nvh_fifo_pop(&queue->sending);
    queue->slots[*index].send_pending = false;
    return true;
}
