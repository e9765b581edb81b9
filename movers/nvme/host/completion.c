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
#include "nvme/host/group.h"
#include "nvme/host/machine/answer.h"
#include "nvme/host/machine/controller.h"
#include "nvme/host/machine/fifo.h"
#include "nvme/host/machine/reconnect.h"
#include "nvme/host/machine/request.h"
#include "nvme/host/queue.h"

enum { POLLS_MASK = 63 };

/* ---- SENDs ---- */

void nvh_prepare_sends(struct nvh_link *link)
{
    for (uint32_t i = 0; i < NVH_BATCH; i++) {
        struct nvh_send *send = &link->sends[i];
        send->sges[0].length = NVF_SQE_BYTES;
        send->sges[0].lkey = link->memory_mr->lkey;
        send->wr = (struct ibv_send_wr){.sg_list = send->sges, .opcode = IBV_WR_SEND};
        send->wr.next = i + 1 < NVH_BATCH ? &link->sends[i + 1].wr : NULL;
    }
}

static void fill_send(struct nvh_link *link, uint32_t index, struct nvh_send *send)
{
    const struct nvh_slot *slot = &link->queue.slots[index];
    send->sges[0].addr = (uintptr_t)&link->queue.sqes[index];
    send->wr.wr_id = (uint64_t)slot->send << 32;
    send->wr.num_sge = 1;
    send->wr.send_flags = slot->send_pending ? 0 : IBV_SEND_INLINE;
    if (slot->capsule_bytes) {
        send->sges[1] = (struct ibv_sge){
            .addr = (uintptr_t)slot->data, .length = slot->capsule_bytes, .lkey = slot->lkey};
        send->wr.num_sge = 2;
    }
}

bool nvh_post_sends(struct sw_nvme_queue *queue, bool signals)
{
    struct nvh_link *link = nvh_link_of(queue);
    const uint32_t count = queue->sends.count;
    struct ibv_send_wr *bad, *last = &link->sends[count - 1].wr, *behind = last->next;
    assert(count && count <= NVH_BATCH);
    for (uint32_t i = 0; i < count; i++)
        fill_send(link, queue->sends.batch[i], &link->sends[i]);
    if (signals)
        last->send_flags |= IBV_SEND_SIGNALED;
    last->next = NULL;
    const bool is_posted = !ibv_post_send(link->qp, &link->sends[0].wr, &bad);
    last->next = behind;
    return is_posted;
}

/* ---- completions ---- */

static void handle_receive(struct nvh_link *link, const struct ibv_wc *wc)
{
    struct sw_nvme_queue *queue = &link->queue;
    const uint16_t index = (uint16_t)wc->wr_id;
    struct nvf_cqe cqe;
    memcpy(&cqe, link->receives + (size_t)index * NVH_RECEIVE_BYTES, sizeof(cqe));
    link->missing[link->receives_missing++] = index;
    if (wc->byte_len != sizeof(cqe) || wc->opcode != IBV_WC_RECV) {
        nvh_queue_break(queue, SW_NVME_PROTOCOL,
                        "%s answers on queue %u with %u bytes instead of 16",
                        queue->controller->where, queue->qid, wc->byte_len);
        return;
    }
    nvh_answered(queue, &cqe);
}

static void handle_completion(struct nvh_link *link, const struct ibv_wc *wc)
{
    struct sw_nvme_queue *queue = &link->queue;
    if (wc->status != IBV_WC_SUCCESS)
        nvh_queue_break(queue, SW_NVME_UNREACHABLE, "the connection of queue %u to %s broke: %s",
                        queue->qid, queue->controller->where, ibv_wc_status_str(wc->status));
    else if (wc->wr_id >> 63)
        handle_receive(link, wc);
    else
        nvh_send_done(queue, (uint32_t)(wc->wr_id >> 32));
}

/* Callbacks may submit: that leaves before the receives are posted again, of which there are spare
 * ones. */
static void handle_completions(struct nvh_link *link, const struct ibv_wc *wcs, int count)
{
    struct sw_nvme_queue *queue = &link->queue;
    nvh_batch_begin(queue);
    for (int i = 0; i < count && !queue->is_broken; i++)
        handle_completion(link, &wcs[i]);
    nvh_batch_end(queue);
    if (!queue->is_broken && link->receives_missing)
        nvh_post_receives(link);
}

void nvh_drain_completions(struct sw_nvme_queue *queue)
{
    struct ibv_wc wcs[NVH_BATCH];
    struct nvh_link *link = nvh_link_of(queue);
    const int count = mover_queue_poll(&link->connection.queue, NVH_BATCH, wcs);
    if (!count)
        return;
    if (count < 0)
        nvh_queue_break(queue, SW_NVME_SYSTEM, "completions cannot be read");
    handle_completions(link, wcs, count);
}

/* ---- polling and waiting ---- */

static bool needs_tending(const struct sw_nvme_queue *queue)
{
    return queue->phase != NVH_UP || queue->is_broken ||
           atomic_load_explicit(&queue->controller->epoch, memory_order_acquire) != queue->epoch;
}

uint32_t sw_nvme_queue_poll(struct sw_nvme_queue *queue)
{
    const uint32_t before = queue->finished;
    if (nvh_is_forked(queue->controller))
        return 0;
    if (queue->over)
        return nvh_group_queue_poll(queue);
    if (!needs_tending(queue)) {
        nvh_drain_completions(queue);
        if ((++nvh_link_of(queue)->polls & POLLS_MASK) && !queue->is_broken)
            return queue->finished - before;
    }
    nvh_tend(queue, mover_now_ns());
    return queue->finished - before;
}

bool nvh_queue_arm(struct nvh_link *link)
{
    struct sw_nvme_queue *queue = &link->queue;
    if (!link->connection.queue.cq || queue->is_broken)
        return !queue->is_broken;
    if (!mover_queue_rearm(&link->connection.queue)) {
        nvh_queue_break(queue, SW_NVME_SYSTEM, "no event can be asked for");
        return false;
    }
    /* A completion that came before the request makes no event. A broken queue wants tending. */
    const uint32_t before = queue->finished;
    nvh_drain_completions(queue);
    return queue->finished == before && !queue->is_broken;
}

bool sw_nvme_queue_arm(struct sw_nvme_queue *queue)
{
    struct nvh_link *link = nvh_link_of(queue);
    uint64_t expirations;
    if (nvh_is_forked(queue->controller))
        return true; /* nothing will come of it */
    if (queue->over)
        return nvh_group_queue_arm(queue);
    if (read(link->timer_fd, &expirations, sizeof(expirations)) < 0)
        expirations = 0;
    if (!nvh_fifo_empty(&queue->done) || !nvh_queue_arm(link))
        return false;
    const long nap = queue->phase == NVH_UP || queue->phase == NVH_ENDED ? NVH_NAP_NS : NVH_TEND_NS;
    const struct itimerspec spec = {.it_value = {.tv_nsec = nap}};
    queue->next_tend_ns = 0;
    return !timerfd_settime(link->timer_fd, 0, &spec, NULL);
}

void nvh_queue_sleep(struct nvh_link *link, uint64_t deadline_ns)
{
    struct sw_nvme_queue *queue = &link->queue;
    if (!nvh_queue_arm(link))
        return;
    const uint64_t now = mover_now_ns();
    const uint64_t nap = queue->phase == NVH_UP ? NVH_NAP_NS : NVH_TEND_NS;
    const uint64_t left = deadline_ns > now ? deadline_ns - now : 0, ns = mover_min_u64(left, nap);
    const struct timespec timeout = {.tv_sec = (time_t)(ns / NS_PER_S),
                                     .tv_nsec = (long)(ns % NS_PER_S)};
    struct pollfd fd = {.fd = link->epoll_fd, .events = POLLIN};
    ppoll(&fd, 1, &timeout, NULL);
    queue->next_tend_ns = 0;
}

static uint32_t spin_of(const struct sw_nvme_queue *queue)
{
    return queue->over ? ((const struct nvh_group_queue *)queue)->spin_us
                       : ((const struct nvh_link *)queue)->spin_us;
}

enum sw_nvme_status sw_nvme_queue_wait(struct sw_nvme_queue *queue, uint64_t deadline_ns)
{
    const uint32_t spin_us = spin_of(queue);
    if (nvh_is_forked(queue->controller))
        return SW_NVME_FORKED;
    if (!nvh_fifo_empty(&queue->done))
        return SW_NVME_OK;
    if (sw_nvme_queue_poll(queue))
        return SW_NVME_OK;
    if (nvh_queue_is_idle(queue))
        return SW_NVME_AGAIN;
    const bool spins_on = spin_us == SW_NVME_SPIN_FOREVER;
    const uint64_t spin_until = mover_now_ns() + spin_us * 1000ull;
    for (;;) {
        for (uint32_t i = 0; i <= POLLS_MASK; i++) {
            if (sw_nvme_queue_poll(queue))
                return SW_NVME_OK;
            if (!spin_us)
                break;
        }
        const uint64_t now = mover_now_ns();
        if (now >= deadline_ns)
            return SW_NVME_TIMEOUT;
        if (!spins_on && now >= spin_until) {
            const uint32_t before = queue->finished;
            if (queue->over)
                nvh_group_queue_sleep(queue, deadline_ns);
            else
                nvh_queue_sleep(nvh_link_of(queue), deadline_ns);
            if (queue->finished != before)
                return SW_NVME_OK;
        }
    }
}
