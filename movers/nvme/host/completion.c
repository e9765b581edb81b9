/* SPDX-License-Identifier: BSD-2-Clause */
#include "nvme/host/completion.h"

#include <assert.h>
#include <poll.h>
#include <string.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "common/base/minmax.h"
#include "common/time/clock.h"
#include "nvme/host/connection.h"
#include "nvme/host/controller.h"
#include "nvme/host/fifo.h"
#include "nvme/host/queue.h"
#include "nvme/host/reconnect.h"
#include "nvme/host/request.h"
#include "nvme/host/send.h"

enum { POLLS_MASK = 63 };

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
    queue->in_flight--;
    nvh_finish(queue, index);
}

/* The head tells how many entries the controller has taken. A head that is behind, or ahead of the
 * tail, is no reason to hang up: there are never more commands in flight than fit. */
static bool advance_head(struct sw_nvme_queue *queue, uint32_t head)
{
    if (head >= queue->size)
        return false;
    const uint32_t taken = (head + queue->size - queue->sq_head) % queue->size;
    const uint32_t queued = (queue->sq_tail + queue->size - queue->sq_head) % queue->size;
    if (taken <= queued)
        queue->sq_head = head;
    return true;
}

static void handle_answer(struct sw_nvme_queue *queue, const struct nvf_cqe *cqe)
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

static void handle_receive(struct sw_nvme_queue *queue, const struct ibv_wc *wc)
{
    const uint16_t index = (uint16_t)wc->wr_id;
    struct nvf_cqe cqe;
    memcpy(&cqe, queue->receives + (size_t)index * NVH_RECEIVE_BYTES, sizeof(cqe));
    queue->missing[queue->receives_missing++] = index;
    if (wc->byte_len != sizeof(cqe) || wc->opcode != IBV_WC_RECV) {
        nvh_queue_break(queue, SW_NVME_PROTOCOL,
                        "%s answers on queue %u with %u bytes instead of 16",
                        queue->controller->where, queue->qid, wc->byte_len);
        return;
    }
    handle_answer(queue, &cqe);
}

static void handle_send(struct sw_nvme_queue *queue, const struct ibv_wc *wc)
{
    const uint32_t send = (uint32_t)(wc->wr_id >> 32);
    uint32_t index;
    while (nvh_send_retire(queue, send, &index))
        if (queue->slots[index].answered)
            retire_slot(queue, index);
}

static void handle_completion(struct sw_nvme_queue *queue, const struct ibv_wc *wc)
{
    if (wc->status != IBV_WC_SUCCESS)
        nvh_queue_break(queue, SW_NVME_UNREACHABLE, "the connection of queue %u to %s broke: %s",
                        queue->qid, queue->controller->where, ibv_wc_status_str(wc->status));
    else if (wc->wr_id >> 63)
        handle_receive(queue, wc);
    else
        handle_send(queue, wc);
}

/* Callbacks may submit: that leaves before the receives are posted again, of which there are spare
 * ones. */
static void handle_completions(struct sw_nvme_queue *queue, const struct ibv_wc *wcs, int count)
{
    queue->gathers = true;
    for (int i = 0; i < count && !queue->is_broken; i++)
        handle_completion(queue, &wcs[i]);
    if (!queue->is_broken && !nvh_fifo_empty(&queue->pending))
        nvh_pending_send(queue);
    queue->gathers = false;
    nvh_sends_post(queue);
    if (!queue->is_broken && queue->receives_missing)
        nvh_post_receives(queue);
}

uint32_t nvh_queue_drain(struct sw_nvme_queue *queue)
{
    struct ibv_wc wcs[NVH_BATCH];
    const uint32_t before = queue->finished;
    const int count = ibv_poll_cq(queue->connection.queue.cq, NVH_BATCH, wcs);
    if (!count)
        return 0;
    if (count < 0)
        nvh_queue_break(queue, SW_NVME_SYSTEM, "completions cannot be read");
    handle_completions(queue, wcs, count);
    if (!queue->is_broken)
        atomic_store_explicit(&queue->controller->activity, 1, memory_order_relaxed);
    return queue->finished - before;
}

static bool needs_tending(const struct sw_nvme_queue *queue)
{
    return queue->phase != NVH_UP || queue->is_broken ||
           atomic_load_explicit(&queue->controller->epoch, memory_order_acquire) != queue->epoch;
}

uint32_t sw_nvme_queue_poll(struct sw_nvme_queue *queue)
{
    uint32_t count = 0;
    if (!needs_tending(queue)) {
        count = nvh_queue_drain(queue);
        if ((++queue->polls & POLLS_MASK) && !queue->is_broken)
            return count;
    }
    return count + nvh_tend(queue, mover_now_ns());
}

bool nvh_queue_arm(struct sw_nvme_queue *queue)
{
    struct ibv_cq *cq = queue->connection.queue.cq;
    if (!cq || queue->is_broken)
        return !queue->is_broken;
    mover_queue_drain(&queue->connection.queue);
    if (ibv_req_notify_cq(cq, 0)) {
        nvh_queue_break(queue, SW_NVME_SYSTEM, "no event can be asked for");
        return false;
    }
    /* A completion that came before the request makes no event. A broken queue wants tending. */
    return !nvh_queue_drain(queue) && !queue->is_broken;
}

bool sw_nvme_queue_arm(struct sw_nvme_queue *queue)
{
    uint64_t expirations;
    if (read(queue->timer_fd, &expirations, sizeof(expirations)) < 0)
        expirations = 0;
    if (!nvh_fifo_empty(&queue->done) || !nvh_queue_arm(queue))
        return false;
    const long nap = queue->phase == NVH_UP || queue->phase == NVH_ENDED ? NVH_NAP_NS : NVH_TEND_NS;
    const struct itimerspec spec = {.it_value = {.tv_nsec = nap}};
    queue->next_tend_ns = 0;
    return !timerfd_settime(queue->timer_fd, 0, &spec, NULL);
}

void nvh_queue_sleep(struct sw_nvme_queue *queue, uint64_t deadline_ns)
{
    if (!nvh_queue_arm(queue))
        return;
    const uint64_t now = mover_now_ns();
    const uint64_t nap = queue->phase == NVH_UP ? NVH_NAP_NS : NVH_TEND_NS;
    const uint64_t left = deadline_ns > now ? deadline_ns - now : 0, ns = mover_min_u64(left, nap);
    const struct timespec timeout = {.tv_sec = (time_t)(ns / NS_PER_S),
                                     .tv_nsec = (long)(ns % NS_PER_S)};
    struct pollfd fd = {.fd = queue->epoll_fd, .events = POLLIN};
    ppoll(&fd, 1, &timeout, NULL);
    queue->next_tend_ns = 0;
}

/* Nothing can end any more: all that is there are results that wait to be taken. */
static bool is_idle(const struct sw_nvme_queue *queue)
{
    return queue->used == 0 || queue->used == queue->done.tail - queue->done.head;
}

enum sw_nvme_status sw_nvme_queue_wait(struct sw_nvme_queue *queue, uint64_t deadline_ns)
{
    if (!nvh_fifo_empty(&queue->done))
        return SW_NVME_OK;
    if (sw_nvme_queue_poll(queue))
        return SW_NVME_OK;
    if (is_idle(queue))
        return SW_NVME_AGAIN;
    const bool spins_on = queue->spin_us == SW_NVME_SPIN_FOREVER;
    const uint64_t spin_until = mover_now_ns() + queue->spin_us * 1000ull;
    for (;;) {
        for (uint32_t i = 0; i <= POLLS_MASK; i++) {
            if (sw_nvme_queue_poll(queue))
                return SW_NVME_OK;
            if (!queue->spin_us)
                break;
        }
        const uint64_t now = mover_now_ns();
        if (now >= deadline_ns)
            return SW_NVME_TIMEOUT;
        if (!spins_on && now >= spin_until) {
            const uint32_t before = queue->finished;
            nvh_queue_sleep(queue, deadline_ns);
            if (queue->finished != before)
                return SW_NVME_OK;
        }
    }
}

uint32_t sw_nvme_queue_take(struct sw_nvme_queue *queue, struct sw_nvme_result *results,
                            uint32_t results_max)
{
    uint32_t count = 0;
    while (count < results_max && !nvh_fifo_empty(&queue->done)) {
        const uint32_t index = nvh_fifo_pop(&queue->done);
        results[count++] = queue->slots[index].result;
        queue->slots[index].state = NVH_FREE;
        queue->free_slots[queue->free_count++] = (uint16_t)index;
        queue->used--;
    }
    return count;
}
