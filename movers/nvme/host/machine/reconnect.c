/* SPDX-License-Identifier: BSD-2-Clause */
#include "nvme/host/machine/reconnect.h"

#include <stdlib.h>

#include "common/time/units.h"
#include "nvme/host/machine/answer.h"
#include "nvme/host/machine/controller.h"
#include "nvme/host/machine/fifo.h"
#include "nvme/host/machine/keepalive.h"
#include "nvme/host/machine/queue.h"
#include "nvme/host/machine/request.h"
#include "nvme/host/machine/setup.h"

enum { SCAN_MS = 100 };

static int compare_numbers(const void *left, const void *right)
{
    const uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;
    return (a > b) - (a < b);
}

/* All that is to be sent (again), in the order of submission. */
static void rebuild_pending(struct sw_nvme_queue *queue)
{
    uint64_t *order = queue->order; /* number and slot: a number has 54 bits to count in */
    uint32_t count = 0;
    for (uint32_t i = 0; i < queue->slots_max; i++) {
        if (queue->slots[i].state == NVH_PENDING)
            order[count++] = queue->slots[i].number << NVH_CID_INDEX_BITS | i;
    }
    qsort(order, count, sizeof(*order), compare_numbers);
    queue->pending.head = queue->pending.tail = 0;
    for (uint32_t i = 0; i < count; i++)
        nvh_fifo_push(&queue->pending, order[i] & (NVH_QUEUE_MAX - 1));
}

static void drop_slot(struct sw_nvme_queue *queue, uint32_t index)
{
    struct nvh_slot *slot = &queue->slots[index];
    slot->state = NVH_FREE;
    slot->generation++;
    queue->free_slots[queue->free_count++] = (uint16_t)index;
}

static void fail_slot(struct sw_nvme_queue *queue, uint32_t index)
{
    struct nvh_slot *slot = &queue->slots[index];
    if (slot->answered) /* the answer was there, and counts */
        return nvh_finish(queue, index);
    slot->result.status = slot->was_sent ? SW_NVME_MAYBE_DONE : SW_NVME_NOT_DONE;
    slot->result.nvme_status = 0;
    nvh_finish(queue, index);
}

static void fail_pending(struct sw_nvme_queue *queue)
{
    /* A callback may submit, so only what is there now is looked at. */
    const uint32_t end = queue->pending.tail;
    while (queue->pending.head != end)
        fail_slot(queue, nvh_fifo_pop(&queue->pending));
}

void nvh_link_end(struct sw_nvme_queue *queue)
{
    nvh_auth_stop(queue);
    queue->port->end(queue);
    queue->link_is_up = false;
}

void nvh_queue_down(struct sw_nvme_queue *queue, bool replays)
{
    uint16_t ended[NVH_QUEUE_MAX];
    uint32_t count = 0;
    nvh_link_end(queue);
    queue->is_broken = false;
    if (queue->phase != NVH_ENDED)
        queue->phase = NVH_DOWN;
    queue->ring.in_flight = 0;
    for (uint32_t i = 0; i < queue->slots_max; i++) {
        struct nvh_slot *slot = &queue->slots[i];
        if (slot->state == NVH_SENT || slot->state == NVH_PENDING) {
            if (slot->is_call) {
                drop_slot(queue, i);
                continue;
            }
            slot->send_pending = false;
            const bool waits = slot->state == NVH_PENDING;
            if (replays && !queue->controller->is_path &&
                (waits || (slot->replays && !slot->answered))) {
                slot->state = NVH_PENDING;
            } else {
                slot->state = NVH_SENT;
                ended[count++] = (uint16_t)i;
            }
        }
    }
    rebuild_pending(queue);
    for (uint32_t i = 0; i < count; i++)
        fail_slot(queue, ended[i]);
}

static void lose_locked(struct sw_nvme_controller *c, const struct sw_nvme_error *error,
                        uint64_t since_ns)
{
    const uint64_t now = c->admin->port->now_ns();
    const uint64_t delay = c->options.reconnect_delay_s * NS_PER_S;
    const bool is_first = !atomic_exchange(&c->was_lost, true);
    c->error = *error;
    c->setup.stage = NVH_SETUP_LINK;
    c->setup.waits = false;
    c->setup.next_ns = 0;
    if (is_first)
        atomic_store(&c->lost_ns, since_ns ? since_ns : now);
    c->next_try_ns = now + delay;
    const bool ends = (!c->was_live && !c->is_path) || c->gives_up || !c->options.ctrl_loss_tmo_s;
    atomic_store(&c->state, ends ? SW_NVME_DEAD : SW_NVME_LOST);
    atomic_fetch_add(&c->epoch, 1);
}

void nvh_lose(struct sw_nvme_controller *controller, uint32_t epoch,
              const struct sw_nvme_error *error, uint64_t since_ns)
{
    controller->admin->port->lock(controller);
    if (atomic_load(&controller->epoch) == epoch && atomic_load(&controller->state) != SW_NVME_DEAD)
        lose_locked(controller, error, since_ns);
    controller->admin->port->unlock(controller);
}

static void scan_timeouts(struct sw_nvme_queue *queue, uint64_t now_ns)
{
    if (now_ns < queue->next_scan_ns)
        return;
    queue->next_scan_ns = now_ns + SCAN_MS * NS_PER_MS;
    const uint32_t limit_ms = queue->controller->options.io_timeout_ms;
    for (uint32_t i = 0; i < queue->slots_max && !queue->is_broken; i++) {
        const struct nvh_slot *slot = &queue->slots[i];
        if (slot->state == NVH_SENT && !slot->is_endless &&
            now_ns - slot->sent_ns > limit_ms * NS_PER_MS)
            nvh_queue_break(queue, SW_NVME_UNREACHABLE,
                            "%s left command 0x%x on queue %u without an answer for %u ms",
                            queue->controller->where, nvh_cid(queue, i), queue->qid, limit_ms);
    }
}

/* What links and Connect have in common for all queues. */
static void step_connection(struct sw_nvme_queue *queue, uint64_t now_ns)
{
    queue->port->look(queue);
    if (queue->is_broken)
        return;
    if (queue->phase == NVH_LINKING && queue->link_is_up)
        nvh_connect_send(queue);
    if (queue->phase == NVH_CONNECTING)
        queue->port->drain(queue);
    if (queue->phase != NVH_UP && now_ns > queue->link_deadline_ns)
        nvh_queue_break(queue, SW_NVME_UNREACHABLE, "%s did not answer for %u ms",
                        queue->controller->where, queue->controller->options.connect_timeout_ms);
}

static void give_up_late(struct sw_nvme_controller *c, uint64_t now_ns)
{
    const int32_t tmo = c->options.ctrl_loss_tmo_s;
    if (atomic_load(&c->state) == SW_NVME_LOST && tmo >= 0 &&
        now_ns - atomic_load(&c->lost_ns) > (uint64_t)tmo * NS_PER_S) {
        atomic_store(&c->state, SW_NVME_DEAD);
        atomic_fetch_add(&c->epoch, 1);
    }
}

static void start_link(struct sw_nvme_queue *queue, uint64_t now_ns)
{
    queue->link_deadline_ns = now_ns + queue->controller->options.connect_timeout_ms * NS_PER_MS;
    if (!queue->tries_since_ns)
        queue->tries_since_ns = now_ns;
    queue->port->start(queue);
    if (!queue->is_broken)
        queue->phase = NVH_LINKING;
}

static void step_admin(struct sw_nvme_controller *c, uint64_t now_ns)
{
    struct sw_nvme_queue *admin = c->admin;
    admin->tick_ns = now_ns;
    switch (admin->phase) {
    case NVH_DOWN:
        if (now_ns >= c->next_try_ns)
            start_link(admin, now_ns);
        return;
    case NVH_LINKING:
    case NVH_CONNECTING:
        step_connection(admin, now_ns);
        return;
    case NVH_UP:
        admin->port->look(admin);
        if (!admin->is_broken)
            admin->port->drain(admin);
        if (!admin->is_broken)
            scan_timeouts(admin, now_ns);
        if (!admin->is_broken)
            nvh_setup_step(c, now_ns);
        if (!admin->is_broken && atomic_load(&c->state) == SW_NVME_LIVE)
            nvh_keep_alive(c, now_ns);
        return;
    case NVH_ENDED:
        return;
    }
}

void nvh_admin_tend(struct sw_nvme_controller *controller, uint64_t now_ns)
{
    struct sw_nvme_controller *c = controller;
    struct sw_nvme_queue *admin = c->admin;
    if (admin->epoch == atomic_load(&c->epoch) && atomic_load(&c->state) != SW_NVME_DEAD) {
        give_up_late(c, now_ns);
        step_admin(c, now_ns);
        if (admin->is_broken && admin->epoch == atomic_load(&c->epoch))
            lose_locked(c, &admin->error, 0);
    }
    if (admin->epoch != atomic_load(&c->epoch)) {
        nvh_queue_down(admin, false);
        admin->epoch = atomic_load(&c->epoch);
    }
}

static void start_queue(struct sw_nvme_queue *queue, uint64_t now_ns)
{
    struct sw_nvme_controller *c = queue->controller;
    queue->port->lock(c);
    const bool is_live = atomic_load(&c->state) == SW_NVME_LIVE;
    queue->epoch = atomic_load(&c->epoch);
    queue->cntlid = c->info.cntlid;
    queue->port->unlock(c);
    if (is_live)
        start_link(queue, now_ns);
}

static void step_queue(struct sw_nvme_queue *queue, uint64_t now_ns)
{
    struct sw_nvme_controller *c = queue->controller;
    const uint32_t state = atomic_load(&c->state);
    switch (queue->phase) {
    case NVH_DOWN:
        if (state == SW_NVME_LIVE) {
            start_queue(queue, now_ns);
        } else if (state == SW_NVME_LOST && c->options.fast_io_fail_tmo_s >= 0 &&
                   now_ns - atomic_load(&c->lost_ns) >
                       (uint64_t)c->options.fast_io_fail_tmo_s * NS_PER_S) {
            fail_pending(queue);
        }
        return;
    case NVH_LINKING:
    case NVH_CONNECTING:
        step_connection(queue, now_ns);
        return;
    case NVH_UP:
        queue->port->look(queue);
        if (!queue->is_broken)
            scan_timeouts(queue, now_ns);
        return;
    case NVH_ENDED:
        return;
    }
}

/* A queue that was never live takes nothing with it. */
static void end_first_try(struct sw_nvme_queue *queue)
{
    queue->phase = NVH_ENDED;
    nvh_queue_down(queue, false);
}

void nvh_tend(struct sw_nvme_queue *queue, uint64_t now_ns)
{
    struct sw_nvme_controller *c = queue->controller;
    const bool is_well =
        queue->phase == NVH_UP && !queue->is_broken && atomic_load(&c->epoch) == queue->epoch;
    queue->tick_ns = now_ns;
    if (is_well && now_ns < queue->next_tend_ns)
        return;
    queue->next_tend_ns = now_ns + NVH_TEND_NS;
    if (queue->port->try_lock(c)) {
        nvh_admin_tend(c, now_ns);
        queue->port->unlock(c);
    }
    if (atomic_load(&c->epoch) == queue->epoch && !queue->is_broken)
        step_queue(queue, now_ns);
    if (queue->is_broken && queue->phase != NVH_ENDED) {
        if (queue->was_live)
            nvh_lose(c, queue->epoch, &queue->error, queue->tries_since_ns);
        else
            end_first_try(queue);
    }
    if (atomic_load(&c->epoch) != queue->epoch) {
        const bool is_dead = atomic_load(&c->state) == SW_NVME_DEAD;
        if (is_dead) {
            queue->port->lock(c);
            queue->error = c->error;
            queue->port->unlock(c);
            queue->phase = NVH_ENDED;
        }
        nvh_queue_down(queue, !is_dead);
        queue->epoch = atomic_load(&c->epoch);
    }
}
