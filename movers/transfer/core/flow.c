/* SPDX-License-Identifier: BSD-2-Clause */
/* Tasks: posted, sorted by what they have to give, ended. */
#include "transfer/core/flow.h"

#include <assert.h>
#include <string.h>

static struct xfc_task *flow_task_of(struct list_node *node)
{
    return LIST_MEMBER(node, struct xfc_task, node);
}

static uint32_t requests_of(const struct xfc_task *task)
{
    return task->plan ? task->plan->requests_count : 0;
}

static uint32_t sums_of(const struct xfc_task *task)
{
    return task->has_sums ? task->plan->sums_count : 0;
}

void xfc_flow_init(struct xfc_flow *flow, uint64_t drain_ns, struct list *ended)
{
    *flow = (struct xfc_flow){.drain_ns = drain_ns, .wake_ns = UINT64_MAX, .ended = ended};
    list_init(&flow->tasks);
    list_init(&flow->turns);
    list_init(&flow->talkers);
}

void xfc_flow_lane(struct xfc_flow *flow, uint32_t lane, struct xfc_entry *ring, uint32_t depth,
                   uint64_t window_bytes)
{
    assert(lane < XFC_LANES_MAX && depth);
    flow->lanes[lane] =
        (struct xfc_lane){.ring = ring, .depth = depth, .window_bytes = window_bytes};
}

static void set_wake(struct xfc_flow *flow, uint64_t at_ns)
{
    if (at_ns < flow->wake_ns)
        flow->wake_ns = at_ns;
}

/* ---- what a task has to give ---- */

static bool has_requests(const struct xfc_task *task)
{
    return task->lost || task->cursor < requests_of(task);
}

/* Sums once all data is given, the notice once all sums are known. */
static bool has_message(const struct xfc_task *task)
{
    if (has_requests(task) || task->stranded)
        return false;
    return task->sums_given < sums_of(task) ||
           (task->notice == XFC_NOTICE_WAITS && task->sums_known == sums_of(task) &&
            !task->is_corrupt);
}

void xfc_flow_sort(struct xfc_flow *flow, struct xfc_task *task)
{
    const bool goes_on = task->state == SW_XFER_POSTED && task->ending == XFC_GOES_ON;
    const bool gives = goes_on && has_requests(task), talks = goes_on && has_message(task);
    if (task->turn.next) {
        if (task->is_talking ? talks : gives)
            return;
        list_remove(&task->turn);
    }
    task->is_talking = talks;
    if (gives)
        list_append(&flow->turns, &task->turn);
    else if (talks)
        list_append(&flow->talkers, &task->turn);
}

void xfc_flow_post(struct xfc_flow *flow, struct xfc_task *task, uint64_t now_ns)
{
    assert(task->state != SW_XFER_POSTED && !task->turn.next);
    task->state = SW_XFER_POSTED;
    task->status = SW_XFER_OK;
    task->ending = XFC_GOES_ON;
    task->is_corrupt = task->is_talking = false;
    task->cursor = task->lost = task->lost_from = task->stranded = task->confirmed = 0;
    task->in_ring = task->sums_given = task->sums_known = task->loose = 0;
    memset(task->in_lane, 0, sizeof(task->in_lane));
    task->tag = task->bytes_done = 0;
    task->posted_ns = now_ns;
    task->ended_ns = 0;
    if (task->plan)
        xfc_plan_restart(task->plan);
    list_append(&flow->tasks, &task->node);
    xfc_flow_sort(flow, task);
    set_wake(flow, task->deadline_ns);
}

/* ---- ends ---- */

/* Nothing points to a task that has ended. */
static void forget_task(struct xfc_flow *flow, struct xfc_task *task)
{
    for (uint32_t i = 0; i < XFC_LANES_MAX; i++)
        if (flow->lanes[i].slice == task)
            flow->lanes[i].slice = NULL;
    for (uint32_t i = 0; flow->outs_count && i < XFC_OUT_MAX; i++)
        if (flow->outs[i].task == task)
            flow->outs[i].task = NULL;
    if (task->notice == XFC_NOTICE_WAITS && task->tag)
        flow->owed--;
}

static void end_task(struct xfc_flow *flow, struct xfc_task *task, enum sw_xfer_state state,
                     enum sw_xfer_status status, uint64_t now_ns)
{
    assert(!task->in_ring && task->state == SW_XFER_POSTED);
    forget_task(flow, task);
    list_remove(&task->node);
    list_append(flow->ended, &task->node);
    task->state = state;
    task->status = status;
    task->ended_ns = now_ns;
    xfc_flow_sort(flow, task);
}

static bool flow_is_done(const struct xfc_task *task)
{
    return task->confirmed == requests_of(task) && task->sums_known == sums_of(task) &&
           !task->is_corrupt && (task->notice == XFC_NO_NOTICE || task->notice == XFC_NOTICE_TAKEN);
}

/* A task that was all done is done, asked to end or not. */
void xfc_flow_end_if_quiet(struct xfc_flow *flow, struct xfc_task *task, uint64_t now_ns)
{
    if (task->in_ring)
        return;
    if (flow_is_done(task))
        return end_task(flow, task, SW_XFER_DONE, SW_XFER_OK, now_ns);
    switch (task->ending) {
    case XFC_GOES_ON:
        return;
    case XFC_CANCEL:
        return end_task(flow, task, SW_XFER_WAS_CANCELLED, SW_XFER_CANCELLED, now_ns);
    case XFC_DEADLINE:
        return end_task(flow, task, SW_XFER_FAILED, SW_XFER_DEADLINE, now_ns);
    case XFC_FAULT:
        return end_task(flow, task, SW_XFER_FAILED, task->status, now_ns);
    }
}

static void ask_to_end(struct xfc_flow *flow, struct xfc_task *task, enum xfc_ending ending,
                       uint64_t now_ns)
{
    if (task->state != SW_XFER_POSTED || task->ending != XFC_GOES_ON)
        return;
    task->ending = ending;
    task->drain_ns = now_ns + flow->drain_ns;
    set_wake(flow, task->drain_ns);
    xfc_flow_sort(flow, task);
    xfc_flow_end_if_quiet(flow, task, now_ns);
}

void xfc_flow_cancel(struct xfc_flow *flow, struct xfc_task *task, uint64_t now_ns)
{
    ask_to_end(flow, task, XFC_CANCEL, now_ns);
}

void xfc_flow_fail_all(struct xfc_flow *flow, enum sw_xfer_status status, uint64_t now_ns)
{
    struct list_node *at;
    while ((at = list_first(&flow->tasks)))
        end_task(flow, flow_task_of(at), SW_XFER_FAILED, status, now_ns);
}

static uint32_t lanes_of(const struct xfc_task *task)
{
    uint32_t lanes = 0;
    for (uint32_t i = 0; i < XFC_LANES_MAX; i++)
        lanes |= task->in_lane[i] ? 1u << i : 0;
    return lanes;
}

uint32_t xfc_flow_timers(struct xfc_flow *flow, uint64_t now_ns)
{
    uint32_t stuck = 0;
    struct list_node *next;
    if (now_ns < flow->wake_ns)
        return 0;
    flow->wake_ns = UINT64_MAX;
    for (struct list_node *at = list_first(&flow->tasks); at; at = next) {
        struct xfc_task *task = flow_task_of(at);
        next = list_after(&flow->tasks, at);
        if (task->ending != XFC_GOES_ON) {
            stuck |= now_ns >= task->drain_ns ? lanes_of(task) : 0;
            set_wake(flow, task->drain_ns);
        } else if (now_ns >= task->deadline_ns) {
            ask_to_end(flow, task, XFC_DEADLINE, now_ns);
        } else {
            set_wake(flow, task->deadline_ns);
        }
    }
    return stuck;
}
