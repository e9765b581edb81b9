/* SPDX-License-Identifier: BSD-2-Clause */
#include "nvme/host/machine/answer.h"

#include <assert.h>

#include "nvme/host/machine/controller.h"
#include "nvme/host/machine/queue.h"
#include "nvme/host/machine/request.h"

void nvh_finish(struct sw_nvme_queue *queue, uint32_t index)
{
    assert(index < queue->slots_max);
    struct nvh_slot *slot = &queue->slots[index];
    queue->finished += !slot->is_call;
    slot->generation++;
    if (!slot->done) {
        slot->state = NVH_DONE;
        nvh_fifo_push(&queue->done, index);
        return;
    }
    /* The slot is free before the callback, which may want one. */
    sw_nvme_done *done = slot->done;
    const struct sw_nvme_result result = slot->result;
    slot->state = NVH_FREE;
    assert(queue->free_count < queue->slots_max);
    queue->free_slots[queue->free_count++] = (uint16_t)index;
    queue->used -= !slot->is_call;
    done(result.arg, &result);
}

static void retire_slot(struct sw_nvme_queue *queue, uint32_t index)
{
    assert(queue->ring.in_flight);
    queue->ring.in_flight--;
    nvh_finish(queue, index);
}

/* The head tells how many entries the controller has taken. A head that is behind, or ahead of the
 * tail, is no reason to hang up: there are never more commands in flight than fit. */
static bool advance_head(struct sw_nvme_queue *queue, uint32_t head)
{
    struct nvh_ring *ring = &queue->ring;
    if (head >= queue->size)
        return false;
    const uint32_t taken = (head + queue->size - ring->head) % queue->size;
    const uint32_t queued = (ring->tail + queue->size - ring->head) % queue->size;
    if (taken <= queued)
        ring->head = head;
    return true;
}

void nvh_answered(struct sw_nvme_queue *queue, const struct nvf_cqe *cqe)
{
    const char *where = queue->controller->where;
    const uint32_t cid = le16toh(cqe->cid), index = cid & ((1 << NVH_CID_INDEX_BITS) - 1);
    if (index >= queue->slots_max || queue->slots[index].state != NVH_SENT ||
        queue->slots[index].answered || nvh_cid(queue, index) != cid) {
        nvh_queue_break(queue, SW_NVME_PROTOCOL,
                        "%s answers command 0x%x on queue %u, which it was not given", where, cid,
                        queue->qid);
        return;
    }
    if (!advance_head(queue, le16toh(cqe->sq_head))) {
        nvh_queue_break(queue, SW_NVME_PROTOCOL,
                        "%s says that the head of queue %u is at %u, where it cannot be", where,
                        queue->qid, le16toh(cqe->sq_head));
        return;
    }
    struct nvh_slot *slot = &queue->slots[index];
    slot->result.nvme_status = le16toh(cqe->status) >> 1;
    slot->result.status = slot->result.nvme_status ? SW_NVME_FAILED : SW_NVME_OK;
    slot->result.value = le64toh(cqe->result);
    slot->answered = true;
    if (!slot->send_pending)
        retire_slot(queue, index);
}

void nvh_send_done(struct sw_nvme_queue *queue, uint32_t send)
{
    uint32_t index;
    while (nvh_send_retire(queue, send, &index))
        if (queue->slots[index].answered)
            retire_slot(queue, index);
}

void nvh_batch_begin(struct sw_nvme_queue *queue)
{
    queue->sends.gathers = true;
}

void nvh_batch_end(struct sw_nvme_queue *queue)
{
    if (!queue->is_broken && !nvh_fifo_empty(&queue->pending))
        nvh_pending_send(queue);
    queue->sends.gathers = false;
    nvh_sends_post(queue);
    if (!queue->is_broken)
        atomic_store_explicit(&queue->controller->activity, 1, memory_order_relaxed);
}

bool nvh_queue_is_idle(const struct sw_nvme_queue *queue)
{
    return queue->used == 0 || queue->used == queue->done.tail - queue->done.head;
}

uint32_t sw_nvme_queue_take(struct sw_nvme_queue *queue, struct sw_nvme_result *results,
                            uint32_t results_max)
{
    uint32_t count = 0;
    if (nvh_is_forked(queue->controller)) /* results are the parent's to take */
        return 0;
    while (count < results_max && !nvh_fifo_empty(&queue->done)) {
        const uint32_t index = nvh_fifo_pop(&queue->done);
        results[count++] = queue->slots[index].result;
        queue->slots[index].state = NVH_FREE;
        queue->free_slots[queue->free_count++] = (uint16_t)index;
        queue->used--;
    }
    return count;
}

uint32_t sw_nvme_queue_depth(const struct sw_nvme_queue *queue)
{
    return queue->size - 1;
}

uint32_t sw_nvme_queue_used(const struct sw_nvme_queue *queue)
{
    return queue->used;
}
