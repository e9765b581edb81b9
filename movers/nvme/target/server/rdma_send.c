/* SPDX-License-Identifier: BSD-2-Clause */
#include "nvme/target/server/rdma_send.h"

#include <assert.h>
#include <string.h>

#include "common/base/minmax.h"
#include "nvme/target/model/admission.h"
#include "nvme/target/model/request.h"
#include "nvme/target/server/rdma_capsule.h"
#include "nvme/target/server/rdma_device.h"
#include "nvme/target/server/rdma_queue.h"
#include "nvme/target/server/rdma_receives.h"
#include "nvme/target/server/thread.h"

enum { LINE_BYTES = 64, WARM_BYTES = 512, SIGNALED_BYTES = 1 << 20 };

static struct nvr_queue *queue_of(const struct nvt_request *request)
{
    return (struct nvr_queue *)request->queue;
}

static struct nvr_slot *rdma_send_slot_of(struct nvt_request *request)
{
    return (struct nvr_slot *)request;
}

/* ---- the lists ---- */

static void post_list(struct nvr_queue *queue)
{
    struct ibv_send_wr *first = queue->first_send, *bad;
    queue->last_send->send_flags |= IBV_SEND_SIGNALED;
    queue->first_send = queue->last_send = NULL;
    queue->silent_bytes = 0;
    /* The host may use an entry again as soon as it has the response: its receive comes first. */
    if (!nvr_receives_post(queue->receives, queue) || ibv_post_send(queue->qp, first, &bad))
        nvr_queue_fail(queue);
}

void nvr_sends_post(struct nvr_thread *thread)
{
    struct nvr_outbox *outbox = &thread->outbox;
    struct list_node *node;
    while ((node = list_first(&outbox->queues))) {
        list_remove(node);
        post_list(LIST_MEMBER(node, struct nvr_queue, sending));
    }
    outbox->count = 0;
}

void nvr_sends_drop(struct nvr_queue *queue)
{
    if (queue->first_send)
        list_remove(&queue->sending);
    queue->first_send = queue->last_send = NULL;
    if (queue->receives && queue->receives->srq) /* others wait for those it has given */
        (void)nvr_receives_post(queue->receives, queue);
}

/* The next work request of a list, with its one element. */
static struct ibv_send_wr *rdma_add_send(struct nvr_queue *queue, enum nvr_wr_kind kind,
                                         const struct nvr_slot *slot, const struct ibv_sge *sge)
{
    struct nvr_outbox *outbox = &queue->thread->outbox;
    const uint32_t at = outbox->count++;
    struct ibv_send_wr *wr = &outbox->wrs[at];
    outbox->sges[at] = *sge;
    *wr = (struct ibv_send_wr){
        .wr_id = nvr_wr_id(queue, kind, slot->number), .sg_list = &outbox->sges[at], .num_sge = 1};
    if (queue->last_send) {
        queue->last_send->next = wr;
    } else {
        list_append(&outbox->queues, &queue->sending);
        queue->first_send = wr;
    }
    queue->last_send = wr;
    return wr;
}

/* Room for a request of so many work requests. */
static void rdma_send_make_room(struct nvr_thread *thread, uint32_t count)
{
    if (thread->outbox.count + count > NVR_OUTBOX)
        nvr_sends_post(thread);
}

/* ---- requests ---- */

/* The list is posted a while later: by then the processor may have the beginning of the data at
 * hand. The processor fetches the rest by itself, as it sees which way the copy goes. */
static void warm_up(const uint8_t *data, uint32_t len_bytes)
{
    const uint32_t end = mover_min_u32(len_bytes, WARM_BYTES);
    for (uint32_t at = 0; at < end; at += LINE_BYTES)
        __builtin_prefetch(data + at);
}

/* One-sided work for the data of a request. */
static void add_data(struct nvr_queue *queue, struct nvr_slot *slot, const struct ibv_mr *mr,
                     enum nvr_wr_kind kind, enum ibv_wr_opcode opcode)
{
    const struct nvt_request *request = &slot->request;
    uint32_t left = request->data_bytes;
    uint8_t *at = request->data;
    for (uint32_t i = 0; i < request->sgl.count && left; i++) {
        const struct nvf_segment *segment = &request->sgl.segments[i];
        const uint32_t len = mover_min_u32(segment->len_bytes, left);
        const struct ibv_sge sge = {.addr = (uintptr_t)at, .length = len, .lkey = mr->lkey};
        struct ibv_send_wr *wr = rdma_add_send(queue, kind, slot, &sge);
        if (opcode == IBV_WR_RDMA_WRITE)
            warm_up(at, len);
        wr->opcode = opcode;
        wr->wr.rdma.remote_addr = segment->addr;
        wr->wr.rdma.rkey = segment->key;
        slot->sends++;
        at += len;
        left -= len;
    }
}

static void add_fetch(struct nvr_queue *queue, struct nvr_slot *slot)
{
    const struct ibv_mr *mr = nvr_device_register(queue->device, slot->request.region);
    if (!mr) {
        slot->state = NVR_SERVED;
        return nvt_request_finish(&slot->request, NVME_SC_INTERNAL);
    }
    rdma_send_make_room(queue->thread, slot->request.sgl.count);
    add_data(queue, slot, mr, NVR_WR_SILENT, IBV_WR_RDMA_READ);
    queue->last_send->wr_id = nvr_wr_id(queue, NVR_WR_FETCH, slot->number);
    queue->last_send->send_flags = IBV_SEND_SIGNALED; /* the command waits for it */
    queue->sends_free -= slot->sends;
    slot->sent = ++queue->sends_made;
}

static bool has_data(const struct nvt_request *request)
{
    return request->direction == NVT_TO_HOST && !request->status;
}

static void add_response(struct nvr_queue *queue, struct nvr_slot *slot)
{
    const struct nvt_request *request = &slot->request;
    const struct ibv_sge sge = {.addr = (uintptr_t)&slot->response,
                                .length = sizeof(slot->response),
                                .lkey = queue->response_mr->lkey};
    struct ibv_send_wr *wr = rdma_add_send(queue, NVR_WR_ANSWER, slot, &sge);
    wr->opcode = IBV_WR_SEND;
    wr->send_flags = queue->is_inline ? IBV_SEND_INLINE : 0;
    if (request->sgl.invalidates) {
        wr->opcode = IBV_WR_SEND_WITH_INV;
        wr->invalidate_rkey = request->sgl.invalidate_key;
    }
    slot->sends++;
}

static void rdma_send_add_answer(struct nvr_queue *queue, struct nvr_slot *slot)
{
    struct nvt_request *request = &slot->request;
    const struct ibv_mr *mr = NULL;
    rdma_send_make_room(queue->thread, NVF_SGL_MAX + 1);
    if (has_data(request)) {
        mr = nvr_device_register(queue->device, request->region);
        if (!mr)
            request->status = NVME_SC_INTERNAL;
    }
    if (!nvr_capsule_give(queue, &slot->capsule) ||
        (queue->receives_given < queue->depth && nvt_queue_is_proven(&queue->queue) &&
         !nvr_queue_give_receives(queue, queue->depth)))
        return nvr_queue_fail(queue);
    if (mr)
        add_data(queue, slot, mr, NVR_WR_SILENT, IBV_WR_RDMA_WRITE);
    nvt_request_response(request, &slot->response);
    add_response(queue, slot);
    if (mr)
        queue->silent_bytes += request->data_bytes;
    if (queue->silent_bytes >= SIGNALED_BYTES) {
        queue->last_send->send_flags |= IBV_SEND_SIGNALED;
        queue->silent_bytes = 0;
    }
    queue->sends_free -= slot->sends;
    slot->sent = ++queue->sends_made;
    list_append(&queue->answering, &slot->node);
}

static uint32_t sends_of(const struct nvr_slot *slot)
{
    if (slot->state == NVR_FETCHING)
        return slot->request.sgl.count;
    return (has_data(&slot->request) ? slot->request.sgl.count : 0) + 1;
}

static void add_or_block(struct nvr_queue *queue, struct nvr_slot *slot)
{
    if (!list_is_empty(&queue->blocked) || queue->sends_free < sends_of(slot))
        list_append(&queue->blocked, &slot->node);
    else if (slot->state == NVR_FETCHING)
        add_fetch(queue, slot);
    else
        rdma_send_add_answer(queue, slot);
}

static void unblock_queue(struct nvr_queue *queue)
{
    struct list_node *node;
    while ((node = list_first(&queue->blocked))) {
        struct nvr_slot *slot = LIST_MEMBER(node, struct nvr_slot, node);
        if (queue->sends_free < sends_of(slot))
            return;
        list_remove(node);
        if (slot->state == NVR_FETCHING)
            add_fetch(queue, slot);
        else
            rdma_send_add_answer(queue, slot);
    }
}

void nvr_send_fetch(struct nvt_request *request)
{
    struct nvr_queue *queue = queue_of(request);
    struct nvr_slot *slot = rdma_send_slot_of(request);
    assert(!queue->is_over); /* such a queue has no requests that could begin */
    slot->state = NVR_FETCHING;
    add_or_block(queue, slot);
}

void nvr_send_answer(struct nvt_request *request)
{
    struct nvr_queue *queue = queue_of(request);
    struct nvr_slot *slot = rdma_send_slot_of(request);
    slot->state = NVR_ANSWERING;
    queue->answers++;
    add_or_block(queue, slot);
}

/* ---- completions ---- */

/* Answers are done in the order in which they were sent. */
static void end_answers(struct nvr_queue *queue, uint32_t sent)
{
    struct list_node *node;
    while ((node = list_first(&queue->answering))) {
        struct nvr_slot *slot = LIST_MEMBER(node, struct nvr_slot, node);
        if ((int32_t)(slot->sent - sent) > 0)
            return;
        list_remove(node);
        queue->sends_free += slot->sends;
        slot->sends = 0;
        queue->answers--;
        nvt_request_end(&slot->request);
        nvr_slot_free(queue, slot);
    }
}

static void fetch_done(struct nvr_queue *queue, struct nvr_slot *slot)
{
    const bool is_for_now = nvr_slot_is_for_now(slot);
    slot->state = is_for_now ? NVR_SERVED : NVR_FETCHED;
    if (is_for_now)
        nvt_request_fetched(&slot->request, true);
    else
        list_append(&queue->thread->later, &slot->node);
}

void nvr_send_probe(struct nvr_queue *queue)
{
    struct ibv_send_wr *bad, wr = {.wr_id = nvr_wr_id(queue, NVR_WR_PROBE, 0),
                                   .opcode = IBV_WR_RDMA_WRITE,
                                   .send_flags = IBV_SEND_SIGNALED};
    if (queue->sends_free < nvr_queue_sends_max(queue))
        return;
    queue->sends_free--;
    if (ibv_post_send(queue->qp, &wr, &bad))
        nvr_queue_fail(queue);
}

void nvr_send_done(struct nvr_queue *queue, enum nvr_wr_kind kind, uint16_t index)
{
    struct nvr_slot *slot = &queue->slots[index];
    if (kind == NVR_WR_PROBE)
        queue->sends_free++;
    else
        end_answers(queue, slot->sent);
    if (kind == NVR_WR_FETCH) {
        queue->sends_free += slot->sends;
        slot->sends = 0;
        fetch_done(queue, slot);
    }
    if (!list_is_empty(&queue->blocked))
        unblock_queue(queue);
}
