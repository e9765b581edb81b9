/* SPDX-License-Identifier: BSD-2-Clause */
#include "nvme/target/model/memory.h"

#include "nvme/target/model/queue.h"
#include "nvme/target/model/request.h"
#include "nvme/target/model/share.h"
#include "nvme/target/model/target.h"

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
    request->data = nvt_share_take(request->share, request->data_bytes, 0);
    if (!request->data)
        return false;
    request->pool_bytes = request->data_bytes;
    request->region = &thread->pool.region;
    return true;
}

/* Memory that was freed since the last feed is for those that wait already. */
static bool is_for_others(const struct nvt_queue *queue)
{
    return !list_is_empty(&queue->share->starved) ||
           (queue->thread->has_freed && !list_is_empty(&queue->thread->shares.turns));
}

bool nvt_memory_get(struct nvt_request *request)
{
    struct nvt_queue *queue = request->queue;
    if (!request->data_bytes || request->data)
        return true;
    if (is_for_own_place(request)) {
        if (take_own_place(request))
            return true;
        list_append(&queue->waiting_places, &request->wait);
    } else {
        if (!is_for_others(queue) && take_pool_piece(request))
            return true;
        nvt_share_wait(queue->share, &request->wait);
    }
    request->is_starved = true;
    return false;
}

/* Its thread looks at those that wait for its places. */
static void set_to_feed(struct nvt_queue *queue, bool is_to_feed)
{
    if (is_to_feed == queue->is_to_feed)
        return;
    queue->is_to_feed = is_to_feed;
    if (is_to_feed)
        list_append(&queue->thread->to_feed, &queue->feed);
    else
        list_remove(&queue->feed);
}

static void stop_waiting(struct nvt_request *request)
{
    struct nvt_queue *queue = request->queue;
    request->is_starved = false;
    if (!is_for_own_place(request))
        return nvt_share_stop_waiting(queue->share, &request->wait);
    list_remove(&request->wait);
    if (list_is_empty(&queue->waiting_places))
        set_to_feed(queue, false);
}

static void give_own_place(struct nvt_request *request)
{
    struct nvt_queue *queue = request->queue;
    queue->taken_places &= ~(1u << (request->data - queue->own.base) / NVT_PLACE_BYTES);
    request->has_own_place = false;
    if (!list_is_empty(&queue->waiting_places))
        set_to_feed(queue, true);
}

void nvt_memory_give_piece(struct nvt_request *request, uint8_t *piece)
{
    nvt_share_give(request->share, piece);
    request->queue->thread->has_freed = true;
}

void nvt_request_give_memory(struct nvt_request *request)
{
    if (request->is_starved) { /* the next one may want less */
        request->queue->thread->has_freed |= !is_for_own_place(request);
        stop_waiting(request);
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
    return thread->is_fed_alone = true;
}

static bool feed_places(struct nvt_thread *thread, bool is_alone)
{
    struct list_node *node;
    bool any = false;
    while ((node = list_first(&thread->to_feed))) {
        struct nvt_queue *queue = LIST_MEMBER(node, struct nvt_queue, feed);
        struct nvt_request *request =
            LIST_MEMBER(list_first(&queue->waiting_places), struct nvt_request, wait);
        if (is_put_off(request, is_alone))
            break;
        if (!take_own_place(request)) {
            set_to_feed(queue, false);
            continue;
        }
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
    struct nvt_thread *thread = request->queue->thread;
    if (!take_pool_piece(request)) {
        if (nvt_share_miss_turn(share, request->data_bytes, thread->now_ns))
            thread->has_freed = true;
        return false;
    }
    if (is_put_off(request, is_alone)) { /* nobody else takes anything until then */
        nvt_memory_give_piece(request, request->data);
        request->data = NULL;
        request->pool_bytes = 0;
        return false;
    }
    stop_waiting(request);
    nvt_share_end_turn(share);
    nvt_request_go_on(request);
    return true;
}

/* A request of the first host that finds memory. Which hosts wait may have changed by that. One
 * that misses its turn may leave memory to all: they are looked at anew. */
static bool feed_next(struct nvt_thread *thread, bool is_alone)
{
    struct nvt_share *share = nvt_shares_first(&thread->shares);
    while (share && !thread->is_fed_alone) {
        if (feed_share(share, is_alone))
            return true;
        const bool starts_anew = thread->has_freed && !thread->is_fed_alone;
        thread->has_freed &= !starts_anew;
        share = starts_anew ? nvt_shares_first(&thread->shares) : nvt_shares_next(share);
    }
    return false;
}

bool nvt_thread_feed(struct nvt_thread *thread, bool is_alone)
{
    bool any = false;
    if (!thread->has_freed && list_is_empty(&thread->to_feed))
        return false;
    thread->is_fed_alone = false;
    if (thread->has_freed) {
        thread->has_freed = false;
        while (feed_next(thread, is_alone))
            any = true;
    }
    return feed_places(thread, is_alone) || any;
}
