/* SPDX-License-Identifier: BSD-2-Clause */
#include "nvme/target/model/admission.h"

#include <string.h>

#include "nvme/target/model/authenticate.h"
#include "nvme/target/model/ctrl.h"
#include "nvme/target/model/queue.h"
#include "nvme/target/model/target.h"

/* Controllers whose hosts have yet to prove themselves: of one address, and in all. */
enum { UNPROVEN_OF_ADDRESS = 32, UNPROVEN_MAX = 256 };

/* How many times what is free: three quarters of the table for one address alone. */
enum { TIMES_FREE = 3 };

struct census {
    const char *address;
    uint32_t all, of_address, unproven, unproven_of_address;
    struct nvt_ctrl *oldest, *oldest_of_address; /* unproven */
};

bool nvt_queue_is_proven(const struct nvt_queue *queue)
{
    return queue->ctrl && !nvt_auth_is_due(queue);
}

static void note_older(struct nvt_ctrl **oldest, struct nvt_ctrl *ctrl)
{
    if (!*oldest || ctrl->serial < (*oldest)->serial)
        *oldest = ctrl;
}

/* Controllers that are ending are not counted: they make room already. */
static void count_ctrl(struct nvt_ctrl *ctrl, void *arg)
{
    struct census *census = arg;
    const bool is_of_address = !strcmp(ctrl->host_address, census->address);
    if (ctrl->is_ending)
        return;
    census->all++;
    census->of_address += is_of_address;
    if (ctrl->queues[0] && nvt_queue_is_proven(ctrl->queues[0]))
        return;
    census->unproven++;
    note_older(&census->oldest, ctrl);
    if (!is_of_address)
        return;
    census->unproven_of_address++;
    note_older(&census->oldest_of_address, ctrl);
}

static bool let_oldest_go(struct nvt_ctrl *ctrl)
{
    if (ctrl)
        nvt_ctrl_cut(ctrl);
    return ctrl;
}

bool nvt_ctrl_is_admitted(struct nvt_target *target, const struct nvt_queue *queue)
{
    struct census census = {.address = queue->host_address};
    nvt_target_each_ctrl(target, count_ctrl, &census);
    if (census.all >= NVT_CTRLS_MAX)
        return let_oldest_go(census.oldest);
    if (census.of_address && census.of_address + 1 > TIMES_FREE * (NVT_CTRLS_MAX - census.all - 1))
        return let_oldest_go(census.oldest_of_address);
    if (queue->auth && census.unproven_of_address >= UNPROVEN_OF_ADDRESS)
        return let_oldest_go(census.oldest_of_address);
    if (queue->auth && census.unproven >= UNPROVEN_MAX)
        return let_oldest_go(census.oldest);
    return true;
}

/* ---- I/O queues ---- */

/* The oldest of those that have yet to prove themselves, and are not cut already. */
static struct nvt_queue *oldest_pending(const struct nvt_ctrl *ctrl)
{
    struct list_node *node = list_first(&ctrl->pending);
    while (node && LIST_MEMBER(node, struct nvt_queue, pending)->is_cut)
        node = list_after(&ctrl->pending, node);
    return node ? LIST_MEMBER(node, struct nvt_queue, pending) : NULL;
}

/* Its number is for the host of the controller, not for another that says it is that. */
void nvt_ctrl_take_queue(struct nvt_ctrl *ctrl, struct nvt_queue *queue)
{
    queue->ctrl = ctrl;
    queue->instance = ctrl->instance;
    queue->ctrl_serial = ctrl->serial;
    queue->host_id = ctrl->host_id;
    memcpy(queue->host_nqn, ctrl->host_nqn, sizeof(queue->host_nqn));
    queue->has_proven = !nvt_auth_is_due(queue);
    if (!queue->qid || !nvt_auth_is_due(queue)) {
        ctrl->queues[queue->qid] = queue;
        return;
    }
    struct nvt_queue *oldest = ctrl->pending_count >= NVT_QUEUES_MAX ? oldest_pending(ctrl) : NULL;
    if (oldest)
        nvt_ctrl_cut_queue(oldest);
    queue->is_pending = true;
    list_append(&ctrl->pending, &queue->pending);
    ctrl->pending_count++;
}

void nvt_ctrl_forget_pending(struct nvt_queue *queue)
{
    if (!queue->is_pending)
        return;
    queue->is_pending = false;
    list_remove(&queue->pending);
    queue->ctrl->pending_count--;
}

void nvt_ctrl_note_proven(struct nvt_queue *queue)
{
    struct nvt_ctrl *ctrl = queue->ctrl;
    queue->has_proven = true;
    if (!queue->is_pending)
        return;
    if (ctrl->queues[queue->qid]) /* another connection of the same host was faster */
        return nvt_ctrl_cut_queue(queue);
    nvt_ctrl_forget_pending(queue);
    ctrl->queues[queue->qid] = queue;
}
