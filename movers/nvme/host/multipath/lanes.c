/* SPDX-License-Identifier: BSD-2-Clause */
#include "nvme/host/multipath/lanes.h"

#include <assert.h>
#include <stdlib.h>

#include <nvme/types.h>

#include "common/time/units.h"
#include "nvme/host/machine/answer.h"
#include "nvme/host/machine/controller.h"
#include "nvme/host/machine/memory.h"
#include "nvme/host/machine/request.h"

enum { TRIES_MAX = 16, CODE = 0x7ff, TYPE_PATH = 3 };

static void count_one(_Atomic uint64_t *count)
{
    atomic_store_explicit(count, atomic_load_explicit(count, memory_order_relaxed) + 1,
                          memory_order_relaxed);
}

static uint32_t held_index(const struct nvh_lanes *lanes, const struct nvh_held *held)
{
    return (uint32_t)(held - lanes->held);
}

static void end_held(struct nvh_held *held, enum sw_nvme_status status, uint16_t nvme_status,
                     uint64_t value)
{
    struct nvh_lanes *lanes = held->lanes;
    const uint32_t index = held_index(lanes, held);
    struct sw_nvme_result *result = &lanes->queue.slots[index].result;
    assert(held->state != NVH_HELD_FREE);
    if (held->is_again) {
        lanes->again--;
        lanes->has_room = true;
    }
    held->state = NVH_HELD_FREE;
    result->status = status;
    result->nvme_status = nvme_status;
    result->value = value;
    nvh_finish(&lanes->queue, index);
}

/* It was never anywhere: its caller is told, and gets no result. */
static void forget_held(struct nvh_held *held)
{
    struct sw_nvme_queue *queue = &held->lanes->queue;
    const uint32_t index = held_index(held->lanes, held);
    held->state = NVH_HELD_FREE;
    queue->slots[index].state = NVH_FREE;
    queue->free_slots[queue->free_count++] = (uint16_t)index;
    queue->used--;
}

/* What is to be said of a request that is nowhere under way. */
static void fail_held(struct nvh_held *held)
{
    if (held->state == NVH_HELD_PARKED)
        held->lanes->parked--;
    const bool may_have = held->is_again;
    if (may_have)
        count_one(&held->lanes->lanes[held->path].counts.maybe_done);
    end_held(held, may_have ? SW_NVME_MAYBE_DONE : SW_NVME_NOT_DONE, 0, 0);
}

/* ---- the choice of a lane ---- */

static int lanes_find(struct nvh_lanes *lanes, uint32_t nsid)
{
    if (lanes->last_ns < 0 || lanes->last_nsid != nsid) {
        lanes->last_ns = nvh_paths_find(lanes->paths, nsid);
        lanes->last_nsid = nsid;
    }
    return lanes->last_ns;
}

/* The lane's queue is up for the controller that the path was checked with. */
static bool lane_is_up(const struct nvh_lane *lane, const struct nvh_path *path)
{
    const struct sw_nvme_queue *queue = lane->queue;
    return queue && queue->phase == NVH_UP && !queue->is_broken &&
           atomic_load_explicit(&path->used, memory_order_acquire) == queue->epoch + 1ull;
}

static int choose_lane(struct nvh_lanes *lanes, int ns, uint32_t excluded)
{
    struct nvh_choice choices[NVH_PATHS_MAX];
    const uint32_t count = lanes->paths->count;
    for (uint32_t i = 0; i < count; i++) {
        const struct nvh_path *path = &lanes->paths->paths[i];
        const bool is_up = !(excluded >> i & 1) && lane_is_up(&lanes->lanes[i], path);
        choices[i] = (struct nvh_choice){.ana = is_up ? nvh_path_ana(path, ns) : 0,
                                         .in_flight = is_up ? lanes->lanes[i].queue->used : 0,
                                         .distance = lanes->lanes[i].distance};
    }
    return nvh_choose(lanes->policy, choices, count, &lanes->turn);
}

static bool changes_blocks(enum nvh_kind kind)
{
    return kind == NVH_WRITE || kind == NVH_ZEROES || kind == NVH_DSM;
}

/* A trim has its ranges in its data: it counts as all of the namespace. */
static bool held_overlap(const struct nvh_held *a, const struct nvh_held *b)
{
    if (a->io.nsid != b->io.nsid)
        return false;
    return a->kind == NVH_DSM || b->kind == NVH_DSM ||
           (a->io.lba < b->io.lba + b->io.blocks && b->io.lba < a->io.lba + a->io.blocks);
}

/* Behind one that may have happened and is to happen once more. */
static bool waits_behind(const struct nvh_lanes *lanes, const struct nvh_held *held)
{
    if (!lanes->again || held->is_again || !changes_blocks(held->kind))
        return false;
    for (uint32_t i = 0; i < lanes->queue.slots_max; i++) {
        const struct nvh_held *other = &lanes->held[i];
        if (other->state != NVH_HELD_FREE && other->is_again && held_overlap(held, other))
            return true;
    }
    return false;
}

/* Sends a request. AGAIN: it has to wait. Others: it can never be sent. */
static enum sw_nvme_status route_held(struct nvh_held *held)
{
    struct nvh_lanes *lanes = held->lanes;
    uint32_t excluded = 0;
    int path;
    if (waits_behind(lanes, held))
        return SW_NVME_AGAIN;
    held->ns = lanes_find(lanes, held->io.nsid);
    while ((path = choose_lane(lanes, held->ns, excluded)) >= 0) {
        const struct nvh_path *p = &lanes->paths->paths[path];
        held->path = (uint32_t)path;
        held->epoch = lanes->lanes[path].queue->epoch;
        held->changes = held->ns < 0 ? 0 : atomic_load(&p->namespaces[held->ns].changes);
        held->state = NVH_HELD_SENT;
        held->since_ns = 0;
        const enum sw_nvme_status status = lanes->port->submit(lanes, (uint32_t)path, held);
        if (!status) {
            count_one(&lanes->lanes[path].counts.requests);
            return SW_NVME_OK;
        }
        held->state = NVH_HELD_WAITS;
        if (status != SW_NVME_UNREACHABLE)
            return status;
        excluded |= 1u << path;
    }
    if (!held->since_ns)
        held->since_ns = lanes->port->now_ns();
    return SW_NVME_AGAIN;
}

static void let_wait(struct nvh_held *held)
{
    held->state = NVH_HELD_WAITS;
    nvh_fifo_push(&held->lanes->queue.pending, held_index(held->lanes, held));
}

static enum sw_nvme_status lanes_check_memory(const struct nvh_lanes *lanes, enum nvh_kind kind,
                                              const struct sw_nvme_io *io)
{
    const struct sw_nvme_mem *mem = io->mem;
    if (kind == NVH_FLUSH || kind == NVH_ZEROES)
        return SW_NVME_OK;
    if (!mem || mem->controller != lanes->queue.controller)
        return SW_NVME_NOT_REGISTERED;
    const uintptr_t first = (uintptr_t)io->data, start = (uintptr_t)mem->data;
    return first < start || first - start > mem->bytes || io->bytes > mem->bytes - (first - start)
               ? SW_NVME_NOT_REGISTERED
               : SW_NVME_OK;
}

static enum sw_nvme_status lanes_take(struct sw_nvme_queue *queue, enum nvh_kind kind,
                                      const struct sw_nvme_io *io, const struct sw_nvme_resv *resv)
{
    struct nvh_lanes *lanes = (struct nvh_lanes *)queue;
    if (nvh_is_forked(queue->controller))
        return SW_NVME_FORKED;
    if (atomic_load(&queue->controller->state) == SW_NVME_DEAD || lanes->is_closing)
        return SW_NVME_UNREACHABLE;
    const enum sw_nvme_status status = lanes_check_memory(lanes, kind, io);
    if (status)
        return status;
    const int taken = nvh_slot_take(queue, false);
    if (taken < 0)
        return SW_NVME_AGAIN;
    struct nvh_held *held = &lanes->held[taken];
    *held = (struct nvh_held){.lanes = lanes, .io = *io, .kind = kind, .state = NVH_HELD_WAITS};
    if (resv)
        held->resv = *resv;
    queue->slots[taken].done = io->done;
    queue->slots[taken].result.arg = io->arg;
    const enum sw_nvme_status sent =
        nvh_fifo_empty(&queue->pending) ? route_held(held) : SW_NVME_AGAIN;
    if (sent == SW_NVME_AGAIN)
        let_wait(held);
    else if (sent)
        forget_held(held);
    return sent == SW_NVME_AGAIN ? SW_NVME_OK : sent;
}

bool nvh_lanes_init(struct nvh_lanes *lanes, struct sw_nvme_controller *controller,
                    const struct nvh_port *queue_port, const struct nvh_lanes_port *port,
                    struct nvh_paths *paths, uint32_t size)
{
    *lanes = (struct nvh_lanes){.paths = paths, .port = port, .last_ns = NVH_NO_NAMESPACE};
    if (!nvh_queue_init(&lanes->queue, controller, queue_port, 0, size))
        return false;
    lanes->queue.phase = NVH_UP;
    lanes->queue.over = lanes_take;
    lanes->held = calloc(lanes->queue.slots_max, sizeof(*lanes->held));
    for (uint32_t i = 0; lanes->held && i < lanes->queue.slots_max; i++)
        lanes->held[i].lanes = lanes;
    return lanes->held;
}

/* ---- what came of it ---- */

static void park_held(struct nvh_held *held)
{
    struct nvh_lanes *lanes = held->lanes;
    count_one(&lanes->lanes[held->path].counts.held);
    lanes->again += !held->is_again;
    lanes->parked++;
    held->is_again = true;
    held->state = NVH_HELD_PARKED;
    held->since_ns = lanes->port->now_ns();
}

static void move_held(struct nvh_held *held)
{
    count_one(&held->lanes->lanes[held->path].counts.moved);
    held->lanes->has_room = true;
    let_wait(held);
}

/* Errors of a path, which say that the command has not been carried out. */
static bool is_of_path(struct nvh_held *held, const struct sw_nvme_result *result)
{
    enum { PERSISTENT_LOSS = 1, TRANSITION = 3 };
    const uint32_t code = result->nvme_status & CODE, detail = code & 0xff;
    if (result->status != SW_NVME_FAILED || code >> 8 != TYPE_PATH || held->tries == TRIES_MAX)
        return false;
    if (detail >= PERSISTENT_LOSS && detail <= TRANSITION)
        held->lanes->port->closed(held->lanes, held->path, held->ns);
    else
        held->tries++;
    return true;
}

void nvh_lanes_done(struct nvh_held *held, const struct sw_nvme_result *result)
{
    struct nvh_lanes *lanes = held->lanes;
    assert(held->state == NVH_HELD_SENT);
    lanes->has_room = lanes->has_room || !nvh_fifo_empty(&lanes->queue.pending);
    const bool is_lost = result->status == SW_NVME_NOT_DONE || result->status == SW_NVME_MAYBE_DONE;
    if (lanes->is_closing || (!is_lost && !is_of_path(held, result)))
        return end_held(held, result->status, result->nvme_status, result->value);
    if (result->status != SW_NVME_MAYBE_DONE)
        return move_held(held);
    switch (held->kind) {
    case NVH_READ:
    case NVH_COMPARE:
    case NVH_FLUSH:
    case NVH_RESV_REPORT: /* to do these twice is to do them once */
        return move_held(held);
    case NVH_WRITE:
    case NVH_ZEROES:
    case NVH_DSM:
        return park_held(held);
    case NVH_RESV_REGISTER:
    case NVH_RESV_ACQUIRE:
    case NVH_RESV_RELEASE: /* their effect depends on what was there before */
        count_one(&lanes->lanes[held->path].counts.maybe_done);
        return end_held(held, SW_NVME_MAYBE_DONE, 0, 0);
    }
}

/* ---- later ---- */

static bool held_has_waited(const struct nvh_lanes *lanes, const struct nvh_held *held,
                            uint64_t now_ns)
{
    return held->since_ns && lanes->patience_s >= 0 && now_ns > held->since_ns &&
           now_ns - held->since_ns > (uint64_t)lanes->patience_s * NS_PER_S;
}

static void settle_parked(struct nvh_lanes *lanes, uint64_t now_ns)
{
    for (uint32_t i = 0; i < lanes->queue.slots_max && lanes->parked; i++) {
        struct nvh_held *held = &lanes->held[i];
        if (held->state != NVH_HELD_PARKED)
            continue;
        switch (lanes->port->proof(lanes, held, now_ns)) {
        case NVH_PROOF_HERE:
            lanes->parked--;
            held->since_ns = 0;
            move_held(held);
            break;
        case NVH_PROOF_NEVER:
            fail_held(held);
            break;
        case NVH_PROOF_MISSING:
            if (held_has_waited(lanes, held, now_ns))
                fail_held(held);
            break;
        }
    }
}

/* Each that waits is looked at once: one whose namespace has no path does not stop others. */
static void route_waiting(struct nvh_lanes *lanes, uint64_t now_ns)
{
    struct nvh_fifo *pending = &lanes->queue.pending;
    for (uint32_t left = pending->tail - pending->head; left; left--) {
        struct nvh_held *held = &lanes->held[nvh_fifo_pop(pending)];
        const enum sw_nvme_status status = route_held(held);
        if (status && status != SW_NVME_AGAIN)
            end_held(held, status, 0, 0);
        if (status != SW_NVME_AGAIN)
            continue;
        if (held_has_waited(lanes, held, now_ns))
            fail_held(held);
        else
            let_wait(held);
    }
}

void nvh_lanes_look(struct nvh_lanes *lanes, uint64_t now_ns)
{
    lanes->version = atomic_load(&lanes->paths->version);
    lanes->has_room = false;
    if (lanes->parked)
        settle_parked(lanes, now_ns);
    if (!nvh_fifo_empty(&lanes->queue.pending))
        route_waiting(lanes, now_ns);
}

void nvh_lanes_fail(struct nvh_lanes *lanes)
{
    /* A callback may submit, so only what is there now is looked at. */
    struct nvh_fifo *pending = &lanes->queue.pending;
    for (uint32_t left = pending->tail - pending->head; left; left--)
        fail_held(&lanes->held[nvh_fifo_pop(pending)]);
    for (uint32_t i = 0; i < lanes->queue.slots_max && lanes->parked; i++)
        if (lanes->held[i].state == NVH_HELD_PARKED)
            fail_held(&lanes->held[i]);
}
