/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Memory for the data of requests. Small ones of the admin queue, Connect and authentication have
 * places of their queue's own, so that they wait behind nobody else. All others have pieces of the
 * thread's pool, by the share of their host.
 */
#include "nvme/target/model.h"

static bool is_for_own_place(const struct nvt_request *request)
{
    const struct nvt_queue *queue = request->queue;
    return (!queue->qid || request->sqe.opcode == NVF_OPCODE) &&
           request->data_bytes <= NVT_PLACE_BYTES;
}

static bool take_own_place(struct nvt_request *request)
{
    struct nvt_queue *queue = request->queue;
    const uint32_t place = (uint32_t)__builtin_ctz(~queue->taken_places);
    if (place * (size_t)NVT_PLACE_BYTES >= queue->own.len_bytes)
        return false;
    queue->taken_places |= 1u << place;
    request->has_own_place = true;
    request->data = queue->own.base + place * (size_t)NVT_PLACE_BYTES;
    request->region = &queue->own;
    return true;
}

static bool take_pool_piece(struct nvt_request *request)
{
    struct nvt_thread *thread = request->queue->thread;
    request->share = request->queue->share;
    request->data = nvt_share_take(request->share, &thread->pool, request->data_bytes, 0);
    if (!request->data)
        return false;
    request->pool_bytes = request->data_bytes;
    request->region = &thread->pool.region;
    return true;
}

bool nvt_memory_get(struct nvt_request *request)
{
    struct nvt_queue *queue = request->queue;
    if (!request->data_bytes || request->data)
        return true;
    if (is_for_own_place(request)) {
        if (take_own_place(request))
            return true;
        list_append(&queue->thread->waiting_places, &request->wait);
    } else {
        if (list_is_empty(&queue->share->starved) && take_pool_piece(request))
            return true;
        nvt_share_wait(&queue->thread->shares, queue->share, &request->wait);
    }
    request->is_starved = true;
    return false;
}

static void stop_waiting(struct nvt_request *request)
{
    request->is_starved = false;
    if (is_for_own_place(request))
        list_remove(&request->wait);
    else
        nvt_share_stop_waiting(request->queue->share, &request->wait);
}

static void give_own_place(struct nvt_request *request)
{
    struct nvt_queue *queue = request->queue;
    queue->taken_places &= ~(1u << (request->data - queue->own.base) / NVT_PLACE_BYTES);
    queue->thread->has_freed = true;
    request->has_own_place = false;
}

void nvt_memory_give_piece(struct nvt_request *request, uint8_t *piece)
{
    struct nvt_thread *thread = request->queue->thread;
    nvt_share_give(request->share, &thread->pool, piece);
    thread->has_freed = true;
}

void nvt_request_give_memory(struct nvt_request *request)
{
    if (request->is_starved) { /* the next one may want less */
        stop_waiting(request);
        request->queue->thread->has_freed = true;
    }
    if (request->has_own_place)
        give_own_place(request);
    if (request->pool_bytes)
        nvt_memory_give_piece(request, request->data);
    request->pool_bytes = 0;
    request->data = NULL;
}

/* ---- those that wait ---- */

/* Another thread must not see what it does. Then it waits until they stand still. */
static bool is_put_off(struct nvt_request *request, bool is_alone)
{
    struct nvt_thread *thread = request->queue->thread;
    if (is_alone || nvt_request_is_shared(request->queue, &request->sqe))
        return false;
    thread->has_freed = thread->is_fed_alone = true;
    return true;
}

static bool feed_places(struct nvt_thread *thread, bool is_alone)
{
    struct list_node *next;
    bool any = false;
    for (struct list_node *node = list_first(&thread->waiting_places); node; node = next) {
        struct nvt_request *request = LIST_MEMBER(node, struct nvt_request, wait);
        next = list_after(&thread->waiting_places, node);
        if (is_put_off(request, is_alone) || !take_own_place(request))
            continue;
        stop_waiting(request);
        nvt_request_go_on(request);
        any = true;
    }
    return any;
}

static bool feed_share(struct nvt_share *share, bool is_alone)
{
    struct list_node *node = list_first(&share->starved);
    struct nvt_request *request = LIST_MEMBER(node, struct nvt_request, wait);
    if (is_put_off(request, is_alone) || !take_pool_piece(request))
        return false;
    stop_waiting(request);
    nvt_request_go_on(request);
    return true;
}

/* A request of each host. Which hosts wait may change meanwhile. */
static bool feed_shares(struct nvt_shares *shares, bool is_alone)
{
    bool any = false;
    uint32_t count = 0;
    struct list_node *node = list_first(&shares->turns);
    for (; node; node = list_after(&shares->turns, node))
        count++;
    for (; count && (node = list_first(&shares->turns)); count--) {
        list_remove(node);
        list_append(&shares->turns, node);
        any = feed_share(LIST_MEMBER(node, struct nvt_share, turn), is_alone) || any;
    }
    return any;
}

bool nvt_thread_feed(struct nvt_thread *thread, bool is_alone)
{
    if (!thread->has_freed)
        return false;
    thread->has_freed = thread->is_fed_alone = false;
    bool any = feed_places(thread, is_alone);
    while (feed_shares(&thread->shares, is_alone))
        any = true;
    return any;
}
