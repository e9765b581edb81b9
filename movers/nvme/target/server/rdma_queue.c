/* SPDX-License-Identifier: BSD-2-Clause */
#include "nvme/target/server/rdma_queue.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/time/clock.h"
#include "nvme/target/model/ctrl.h"
#include "nvme/target/model/port.h"
#include "nvme/target/model/queue.h"
#include "nvme/target/model/request.h"
#include "nvme/target/server/rdma_capsule.h"
#include "nvme/target/server/rdma_device.h"
#include "nvme/target/server/rdma_memory.h"
#include "nvme/target/server/rdma_receives.h"
#include "nvme/target/server/rdma_send.h"
#include "nvme/target/server/server.h"

enum { WC_BATCH = 32, PAGE_BYTES = 4096, CLOSE_MS = 1000, LAST_RECEIVE_MS = 200 };

/* Until the host has proved itself. */
enum { FIRST_RECEIVES = 4 };

void nvr_queue_fail(struct nvr_queue *queue)
{
    queue->is_closing = true;
    queue->close_by_ns = 0; /* at the end of this turn of the loop */
    if (!queue->is_listed)
        list_append(&queue->thread->ending, &queue->node);
    queue->is_listed = queue->thread->wants_wake = true;
}

static void rdma_cut_queue(struct nvt_queue *base)
{
    struct nvr_queue *queue = (struct nvr_queue *)base;
    if (queue->is_listed)
        return;
    queue->is_closing = queue->is_listed = true;
    queue->close_by_ns = mover_now_ns() + CLOSE_MS * 1000000ull;
    queue->thread->wants_wake = true;
    list_append(&queue->thread->ending, &queue->node);
}

static void rdma_drop_queue(struct nvt_queue *base)
{
    nvr_queue_fail((struct nvr_queue *)base);
}

const struct nvt_transport nvr_transport = {.fetch = nvr_send_fetch,
                                            .answer = nvr_send_answer,
                                            .cut = rdma_cut_queue,
                                            .drop = rdma_drop_queue,
                                            .forget = nvr_region_forget};

/* ---- completions ---- */

bool nvr_slot_is_for_now(const struct nvr_slot *slot)
{
    const struct nvr_queue *queue = (const struct nvr_queue *)slot->request.queue;
    return queue->server->is_alone || nvt_request_is_shared(&queue->queue, &slot->request.sqe);
}

static void begin_capsule(struct nvr_queue *queue, const struct nvr_capsule *capsule)
{
    struct nvr_slot *slot = LIST_MEMBER(list_first(&queue->free_slots), struct nvr_slot, node);
    list_remove(&slot->node);
    nvt_request_clear(&slot->request);
    slot->state = NVR_SERVED;
    slot->capsule = *capsule;
    nvr_capsule_place(queue, capsule, &slot->request);
    slot->request.queue = &queue->queue;
    if (nvr_slot_is_for_now(slot))
        return nvt_request_begin(&queue->queue, &slot->request);
    slot->state = NVR_LATER;
    list_append(&queue->thread->later, &slot->node);
}

void nvr_queue_run_later(struct nvr_thread *thread)
{
    struct list_node *node;
    while ((node = list_first(&thread->later))) {
        struct nvr_slot *slot = LIST_MEMBER(node, struct nvr_slot, node);
        const bool has_begun = slot->state == NVR_FETCHED;
        list_remove(node);
        slot->state = NVR_SERVED;
        if (has_begun)
            nvt_request_fetched(&slot->request, true);
        else
            nvt_request_begin(slot->request.queue, &slot->request);
    }
}

/* A shared receive, at once: no answer takes it along. */
static void rdma_queue_give_back(struct nvr_receives *receives, uint16_t index)
{
    (void)(nvr_receive_give(receives, NULL, index) && nvr_receives_post(receives, NULL));
}

static void capsule_received(struct nvr_queue *queue, uint16_t receive, uint32_t len_bytes)
{
    struct nvr_capsule capsule = {.receive = receive, .len_bytes = (uint16_t)len_bytes};
    /* No command, or more of them than it said: that is no NVMe host. */
    if (len_bytes < NVF_SQE_BYTES || queue->held_count == queue->depth ||
        !nvr_capsule_take(queue, &capsule)) {
        if (queue->receives->srq)
            rdma_queue_give_back(queue->receives, receive);
        return nvr_queue_fail(queue);
    }
    if (!list_is_empty(&queue->free_slots) && !queue->held_count)
        return begin_capsule(queue, &capsule);
    queue->held[(queue->held_first + queue->held_count) % queue->depth] = capsule;
    queue->held_count++;
}

void nvr_slot_free(struct nvr_queue *queue, struct nvr_slot *slot)
{
    slot->state = NVR_FREE;
    list_append(&queue->free_slots, &slot->node);
    if (!queue->held_count)
        return;
    const uint32_t at = queue->held_first;
    queue->held_first = (at + 1) % queue->depth;
    queue->held_count--;
    begin_capsule(queue, &queue->held[at]);
}

/* A shared receive: only the queue pair's number says whose command it is. */
static void complete_shared(struct nvr_device *device, const struct ibv_wc *wc)
{
    struct nvr_receives *receives = device->shared[wc->wr_id % NVR_SHARED_MAX];
    const uint16_t index = (uint16_t)(wc->wr_id >> 32);
    struct nvr_queue *queue = nvr_device_queue(device, wc->qp_num);
    if (queue && wc->status == IBV_WC_SUCCESS)
        return capsule_received(queue, index, wc->byte_len);
    rdma_queue_give_back(receives, index);
    if (queue)
        nvr_queue_fail(queue);
}

bool nvr_device_poll(struct nvr_server *server, struct nvr_device *device)
{
    struct ibv_wc wcs[WC_BATCH];
    const int count = mover_queue_poll(&device->queue, WC_BATCH, wcs);
    for (int i = 0; i < count; i++) {
        const uint64_t id = wcs[i].wr_id;
        if ((enum nvr_wr_kind)(id >> 48) == NVR_WR_SHARED) {
            complete_shared(device, &wcs[i]);
            continue;
        }
        struct nvr_queue *queue = server->queues[id % NVR_QUEUES_MAX];
        if (!queue || queue->generation != (uint16_t)(id >> 16) || queue->is_over)
            continue; /* of a queue that has ended */
        if (wcs[i].status != IBV_WC_SUCCESS)
            nvr_queue_fail(queue);
        else if ((enum nvr_wr_kind)(id >> 48) == NVR_WR_RECEIVE)
            capsule_received(queue, (uint16_t)(id >> 32), wcs[i].byte_len);
        else
            nvr_send_done(queue, (enum nvr_wr_kind)(id >> 48), (uint16_t)(id >> 32));
    }
    if (count > 0)
        device->has_polled = true;
    return count > 0;
}

/* ---- beginning and end ---- */

static size_t own_offset(const struct nvr_queue *queue)
{
    return (queue->slot_count * sizeof(struct nvr_slot) + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
}

/* Its own places for data lie behind them. */
static size_t slots_bytes(const struct nvr_queue *queue)
{
    return own_offset(queue) + nvt_places_bytes(queue->queue.qid);
}

static void place_own(struct nvr_queue *queue)
{
    struct mover_region *own = &queue->queue.own;
    const size_t offset = own_offset(queue);
    own->base = (uint8_t *)queue->slots + offset;
    own->len_bytes = nvt_places_bytes(queue->queue.qid);
    own->registered[queue->device->index] = queue->response_mr;
}

static bool rdma_queue_make_memory(struct nvr_queue *queue)
{
    struct nvr_server *server = queue->server;
    const uint32_t in_capsule_bytes = queue->queue.qid ? queue->queue.port->in_capsule_bytes : 0;
    if (queue->queue.qid)
        queue->receives = nvr_receives_shared(server, queue->device, in_capsule_bytes);
    if (!queue->receives)
        queue->receives =
            nvr_receives_create(server, queue->device, queue->depth, in_capsule_bytes);
    queue->slots = nvr_memory_map(server, slots_bytes(queue));
    queue->held = calloc(queue->depth, sizeof(*queue->held));
    if (!queue->receives || !queue->slots || !queue->held)
        return false;
    queue->response_mr =
        ibv_reg_mr(queue->device->pd, queue->slots, slots_bytes(queue), IBV_ACCESS_LOCAL_WRITE);
    for (uint32_t i = 0; i < queue->slot_count; i++) {
        queue->slots[i].number = (uint16_t)i;
        list_append(&queue->free_slots, &queue->slots[i].node);
    }
    place_own(queue);
    return queue->response_mr;
}

/* The responses inline, if the device can. */
static bool rdma_queue_create_qp(struct nvr_queue *queue, struct rdma_cm_id *id)
{
    struct nvr_device *device = queue->device;
    struct ibv_srq *srq = queue->receives->srq;
    struct ibv_qp_init_attr attr = {.srq = srq,
                                    .cap = {.max_send_wr = queue->sends_free,
                                            .max_recv_wr = srq ? 0 : queue->depth,
                                            .max_send_sge = 1,
                                            .max_recv_sge = srq                                 ? 0
                                                            : queue->receives->in_capsule_bytes ? 2
                                                                                                : 1,
                                            .max_inline_data = sizeof(struct nvf_cqe)}};
    queue->is_inline = mover_queue_make_qp(&device->queue, id, device->pd, &attr);
    attr.cap.max_inline_data = 0;
    return queue->is_inline || mover_queue_make_qp(&device->queue, id, device->pd, &attr);
}

static bool rdma_queue_make_qp(struct nvr_queue *queue, struct rdma_cm_id *id)
{
    struct nvr_device *device = queue->device;
    struct ibv_srq *srq = queue->receives->srq;
    if (!rdma_queue_create_qp(queue, id))
        return false;
    queue->qp = id->qp;
    if (srq) {
        queue->receives_given = queue->depth; /* they are others' */
        queue->next_by_qpn = device->by_qpn[queue->qp->qp_num % NVR_QPN_CHAINS];
        device->by_qpn[queue->qp->qp_num % NVR_QPN_CHAINS] = queue;
        return true;
    }
    return nvr_queue_give_receives(queue, FIRST_RECEIVES);
}

/* Gives receives up to `count`. The others wait until the host has proved itself: until then it has
 * one command at a time. */
bool nvr_queue_give_receives(struct nvr_queue *queue, uint32_t count)
{
    for (; queue->receives_given < count && queue->receives_given < queue->depth;
         queue->receives_given++)
        if (!nvr_receive_give(queue->receives, queue, (uint16_t)queue->receives_given))
            return false;
    return nvr_receives_post(queue->receives, queue);
}

static void forget_qpn(struct nvr_queue *queue)
{
    struct nvr_queue **at = &queue->device->by_qpn[queue->qp->qp_num % NVR_QPN_CHAINS];
    while (*at && *at != queue)
        at = &(*at)->next_by_qpn;
    if (*at)
        *at = queue->next_by_qpn;
}

static bool take_number(struct nvr_server *server, struct nvr_queue *queue)
{
    for (uint16_t i = 0; i < NVR_QUEUES_MAX; i++)
        if (!server->queues[i]) {
            server->queues[i] = queue;
            server->queue_count++;
            queue->number = i;
            queue->generation = ++server->generation;
            return true;
        }
    return false;
}

uint16_t nvr_queue_check(const struct nvf_cm_req *req)
{
    const uint32_t host_sends = le16toh(req->host_sends),
                   host_receives = le16toh(req->host_receives);
    if (le16toh(req->format))
        return NVF_CM_FORMAT;
    if (le16toh(req->qid) >= NVT_QUEUES_MAX)
        return NVF_CM_QID;
    if (!host_sends || host_sends >= NVT_DEPTH_MAX)
        return NVF_CM_HSQSIZE;
    return host_receives ? 0 : NVF_CM_HRQSIZE;
}

/* That with the fewest I/O queues. The first one has more to do than they. */
struct nvr_thread *nvr_thread_choose(const struct nvr_server *server, uint16_t qid)
{
    struct nvr_thread *best = &server->threads[0];
    for (uint32_t i = 1; i < server->thread_count && qid; i++)
        if (server->threads[i].io_queues <= best->io_queues)
            best = &server->threads[i];
    return best;
}

struct nvr_queue *nvr_queue_create(struct nvr_server *server, struct nvt_port *port,
                                   struct rdma_cm_id *id, const struct nvf_cm_req *req)
{
    struct nvr_thread *thread = nvr_thread_choose(server, le16toh(req->qid));
    struct nvr_device *device = nvr_device_of(thread, id->verbs);
    struct nvr_queue *queue = device ? calloc(1, sizeof(*queue)) : NULL;
    if (!queue)
        return NULL;
    const uint32_t depth = le16toh(req->host_sends) + 1u;
    queue->queue = (struct nvt_queue){.target = &server->target,
                                      .thread = thread->base,
                                      .port = port,
                                      .qid = le16toh(req->qid),
                                      .depth = (uint16_t)depth};
    nvt_port_hold(port);
    queue->server = server;
    queue->thread = thread;
    queue->created_ns = server->target.now_ns;
    queue->device = device;
    queue->id = id;
    queue->depth = depth;
    queue->slot_count = depth + NVR_SPARE_SLOTS;
    queue->sends_free = nvr_queue_sends_max(queue);
    if (queue->queue.qid)
        nvr_pool_register(thread);
    nvt_queue_init(&queue->queue);
    list_init(&queue->free_slots);
    list_init(&queue->blocked);
    list_init(&queue->answering);
    if (!nvr_device_reserve(device, (int)nvr_queue_sends_max(queue))) {
        nvt_port_release(port);
        free(queue);
        return NULL;
    }
    thread->io_queues += queue->queue.qid > 0;
    if (!take_number(server, queue) || !rdma_queue_make_memory(queue) ||
        !rdma_queue_make_qp(queue, id)) {
        if (queue->qp)
            forget_qpn(queue);
        queue->qp = NULL;
        if (id->qp)
            rdma_destroy_qp(id);
        queue->id = NULL; /* whoever asked refuses it */
        nvr_queue_end(queue);
        return NULL;
    }
    return queue;
}

/* Shared receives that its commands have used, for others. */
static void rdma_queue_give_all_back(struct nvr_queue *queue)
{
    for (uint32_t i = 0; queue->slots && i < queue->slot_count; i++)
        (void)nvr_capsule_give(queue, &queue->slots[i].capsule);
    for (; queue->held_count; queue->held_count--) {
        (void)nvr_capsule_give(queue, &queue->held[queue->held_first]);
        queue->held_first = (queue->held_first + 1) % queue->depth;
    }
    (void)nvr_receives_post(queue->receives, NULL);
}

void nvr_queue_free(struct nvr_queue *queue)
{
    struct nvr_server *server = queue->server;
    nvt_queue_forget(&queue->queue);
    if (queue->receives && queue->receives->srq)
        rdma_queue_give_all_back(queue);
    else if (queue->receives)
        nvr_receives_free(queue->receives);
    if (queue->response_mr)
        ibv_dereg_mr(queue->response_mr);
    if (queue->slots)
        nvr_memory_unmap(queue->slots, slots_bytes(queue));
    free(queue->held);
    if (queue->is_listed)
        list_remove(&queue->node);
    queue->device->cq_used -= (int)nvr_queue_sends_max(queue);
    if (server->queues[queue->number] == queue) {
        server->queues[queue->number] = NULL;
        server->queue_count--;
        /* It may wait for the last to end, and a host for that of a controller (reset.h). */
        server->threads[0].wants_wake = true;
    }
    queue->thread->io_queues -= queue->queue.qid > 0;
    nvt_port_release(queue->queue.port);
    free(queue);
}

/* When a queue pair is destroyed, a shared receive that it has taken is lost, unless its completion
 * was seen. The device says when there will be no more. */
bool nvr_queue_drain(struct nvr_queue *queue, uint64_t now_ns)
{
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
    if (!queue->receives || !queue->receives->srq)
        return true;
    if (!queue->is_draining) {
        ibv_modify_qp(queue->qp, &attr, IBV_QP_STATE);
        queue->is_draining = true;
        queue->drain_by_ns = now_ns + LAST_RECEIVE_MS * NS_PER_MS;
    }
    if (!queue->is_drained && now_ns < queue->drain_by_ns)
        return false;
    for (int i = 0; i < queue->device->cq_entries / WC_BATCH; i++)
        if (!nvr_device_poll(queue->server, queue->device))
            break;
    return true;
}

/* A request that waits for its host ends; one that a backend has, or that waits for memory or an
 * event, is the model's. None begins meanwhile: memory that is given back feeds requests later. */
static void end_slot(struct nvr_slot *slot)
{
    const enum nvr_slot_state state = slot->state;
    if (state == NVR_FREE || state == NVR_SERVED)
        return;
    slot->state = NVR_FREE;
    if (state == NVR_LATER || state == NVR_FETCHED)
        list_remove(&slot->node);
    if (state == NVR_FETCHING || state == NVR_FETCHED)
        nvt_request_fetched(&slot->request, false);
    else if (state == NVR_ANSWERING)
        nvt_request_end(&slot->request);
}

void nvr_queue_end(struct nvr_queue *queue)
{
    if (queue->is_over)
        return;
    queue->is_over = queue->queue.is_gone = true;
    nvr_sends_drop(queue);
    if (queue->qp)
        forget_qpn(queue);
    if (queue->id) {
        if (queue->is_established)
            rdma_disconnect(queue->id);
        rdma_destroy_qp(queue->id); /* from here on no NIC touches its memory */
        rdma_destroy_id(queue->id);
        queue->id = NULL;
    }
    for (uint32_t i = 0; queue->slots && i < queue->slot_count; i++)
        end_slot(&queue->slots[i]);
    if (nvt_queue_gone(&queue->queue))
        return nvr_queue_free(queue);
    if (!queue->is_listed) /* backends have something under way: looked at again by the loop */
        list_append(&queue->thread->ending, &queue->node);
    queue->is_listed = true;
}
