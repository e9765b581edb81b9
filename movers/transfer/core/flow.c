/* SPDX-License-Identifier: BSD-2-Clause */
#include "transfer/core/flow.h"

#include <assert.h>

static struct xfc_task *task_of(struct list_node *node)
{
    return LIST_MEMBER(node, struct xfc_task, node);
}

static uint32_t requests_of(const struct xfc_task *task)
{
    return task->plan ? task->plan->requests_count : 0;
}

void xfc_flow_init(struct xfc_flow *flow, struct xfc_entry *ring, uint32_t depth,
                   uint64_t window_bytes, uint64_t drain_ns, struct list *ended)
{
    *flow = (struct xfc_flow){.ring = ring,
                              .depth = depth,
                              .window_bytes = window_bytes,
                              .drain_ns = drain_ns,
                              .wake_ns = UINT64_MAX,
                              .ended = ended};
    list_init(&flow->tasks);
}

static void set_wake(struct xfc_flow *flow, uint64_t at_ns)
{
    if (at_ns < flow->wake_ns)
        flow->wake_ns = at_ns;
}

void xfc_flow_post(struct xfc_flow *flow, struct xfc_task *task, uint64_t now_ns)
{
    assert(task->state != SW_XFER_POSTED);
    task->state = SW_XFER_POSTED;
    task->status = SW_XFER_OK;
    task->ending = XFC_GOES_ON;
    task->given = task->confirmed = task->given_most = task->in_ring = 0;
    task->tag = task->bytes_done = 0;
    task->posted_ns = now_ns;
    task->ended_ns = 0;
    task->is_loose = false;
    list_append(&flow->tasks, &task->node);
    if (!flow->sending)
        flow->sending = &task->node;
    set_wake(flow, task->deadline_ns);
}

static void end_task(struct xfc_flow *flow, struct xfc_task *task, enum sw_xfer_state state,
                     enum sw_xfer_status status, uint64_t now_ns)
{
    assert(!task->in_ring && task->state == SW_XFER_POSTED);
    if (flow->sending == &task->node)
        flow->sending = list_after(&flow->tasks, &task->node);
    list_remove(&task->node);
    list_append(flow->ended, &task->node);
    task->state = state;
    task->status = status;
    task->ended_ns = now_ns;
}

static bool is_done(const struct xfc_task *task)
{
    return task->confirmed == requests_of(task) &&
           (task->notice == XFC_NO_NOTICE || task->notice == XFC_NOTICE_TAKEN);
}

/* How a task ends of which nothing is in the ring. What was all done is done, asked to end or
 * not. */
static void end_as_asked(struct xfc_flow *flow, struct xfc_task *task, uint64_t now_ns)
{
    if (is_done(task))
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

static void end_if_quiet(struct xfc_flow *flow, struct xfc_task *task, uint64_t now_ns)
{
    if (task->in_ring || (task->ending == XFC_GOES_ON && !is_done(task)))
        return;
    end_as_asked(flow, task, now_ns);
}

static bool has_more(const struct xfc_task *task)
{
    return task->ending == XFC_GOES_ON &&
           (task->given < requests_of(task) || task->notice == XFC_NOTICE_WAITS);
}

static void enter_ring(struct xfc_flow *flow, const struct xfc_step *step)
{
    const uint32_t bytes = step->request ? step->request->bytes : 0;
    flow->ring[flow->given % flow->depth] =
        (struct xfc_entry){.task = step->task, .bytes = bytes, .is_notice = !step->request};
    flow->given++;
    flow->bytes_given += bytes;
    step->task->in_ring++;
}

bool xfc_flow_next(struct xfc_flow *flow, struct xfc_step *step)
{
    while (flow->sending && !has_more(task_of(flow->sending)))
        flow->sending = list_after(&flow->tasks, flow->sending);
    if (!flow->sending || flow->given - flow->confirmed == flow->depth)
        return false;
    struct xfc_task *task = task_of(flow->sending);
    *step = (struct xfc_step){.task = task, .number = flow->given};
    if (task->given < requests_of(task)) {
        const struct xfc_request *request = &task->plan->requests[task->given];
        if (flow->bytes_given && flow->bytes_given + request->bytes > flow->window_bytes)
            return false;
        step->request = request;
        if (++task->given > task->given_most)
            task->given_most = task->given;
    } else {
        if (flow->notices_out >= flow->notices_max)
            return false;
        if (!task->tag)
            task->tag = ++flow->last_tag;
        task->notice = XFC_NOTICE_GIVEN;
        flow->notices_out++;
    }
    enter_ring(flow, step);
    return true;
}

void xfc_flow_confirm(struct xfc_flow *flow, uint64_t number, uint64_t now_ns)
{
    assert(number < flow->given);
    while (flow->confirmed <= number) {
        const struct xfc_entry *entry = &flow->ring[flow->confirmed++ % flow->depth];
        struct xfc_task *task = entry->task;
        flow->bytes_given -= entry->bytes;
        task->bytes_done += entry->bytes;
        task->confirmed += !entry->is_notice;
        task->in_ring--;
        end_if_quiet(flow, task, now_ns);
    }
}

void xfc_flow_refused(struct xfc_flow *flow, uint64_t number, enum sw_xfer_status status,
                      uint64_t now_ns)
{
    if (number > flow->confirmed)
        xfc_flow_confirm(flow, number - 1, now_ns);
    struct xfc_task *task = flow->ring[number % flow->depth].task;
    task->ending = XFC_FAULT;
    task->status = status;
}

bool xfc_flow_acked(struct xfc_flow *flow, uint64_t tag, uint64_t now_ns)
{
    if (!flow->notices_out || tag > flow->last_tag)
        return false;
    flow->notices_out--;
    for (struct list_node *at = list_first(&flow->tasks); at; at = list_after(&flow->tasks, at)) {
        struct xfc_task *task = task_of(at);
        if (task->tag != tag || task->notice != XFC_NOTICE_GIVEN)
            continue;
        task->notice = XFC_NOTICE_TAKEN;
        end_if_quiet(flow, task, now_ns);
        return true;
    }
    return true; /* of a task that ended before */
}

static void ask_to_end(struct xfc_flow *flow, struct xfc_task *task, enum xfc_ending ending,
                       uint64_t now_ns)
{
    if (task->state != SW_XFER_POSTED || task->ending != XFC_GOES_ON)
        return;
    task->ending = ending;
    task->drain_ns = now_ns + flow->drain_ns;
    set_wake(flow, task->drain_ns);
    end_if_quiet(flow, task, now_ns);
}

void xfc_flow_cancel(struct xfc_flow *flow, struct xfc_task *task, uint64_t now_ns)
{
    ask_to_end(flow, task, XFC_CANCEL, now_ns);
}

void xfc_flow_reset(struct xfc_flow *flow, uint64_t now_ns)
{
    struct list_node *next;
    flow->given = flow->confirmed;
    flow->bytes_given = 0;
    flow->notices_out = 0;
    for (struct list_node *at = list_first(&flow->tasks); at; at = next) {
        struct xfc_task *task = task_of(at);
        next = list_after(&flow->tasks, at);
        /* A device executes nothing behind what it has refused. */
        if (task->in_ring && task->ending != XFC_FAULT)
            task->is_loose = true;
        task->in_ring = 0;
        task->given = task->confirmed;
        if (task->notice == XFC_NOTICE_GIVEN)
            task->notice = XFC_NOTICE_WAITS;
        end_as_asked(flow, task, now_ns);
    }
    flow->sending = list_first(&flow->tasks);
}

void xfc_flow_settled(struct xfc_flow *flow)
{
    for (struct list_node *at = list_first(&flow->tasks); at; at = list_after(&flow->tasks, at))
        task_of(at)->is_loose = false;
}

void xfc_flow_fail_all(struct xfc_flow *flow, enum sw_xfer_status status, uint64_t now_ns)
{
    struct list_node *at;
    while ((at = list_first(&flow->tasks)))
        end_task(flow, task_of(at), SW_XFER_FAILED, status, now_ns);
}

bool xfc_flow_timers(struct xfc_flow *flow, uint64_t now_ns)
{
    bool is_stuck = false;
    struct list_node *next;
    if (now_ns < flow->wake_ns)
        return false;
    flow->wake_ns = UINT64_MAX;
    for (struct list_node *at = list_first(&flow->tasks); at; at = next) {
        struct xfc_task *task = task_of(at);
        next = list_after(&flow->tasks, at);
        if (task->ending != XFC_GOES_ON) {
            is_stuck = is_stuck || now_ns >= task->drain_ns;
            set_wake(flow, task->drain_ns);
        } else if (now_ns >= task->deadline_ns) {
            ask_to_end(flow, task, XFC_DEADLINE, now_ns);
        } else {
            set_wake(flow, task->deadline_ns);
        }
    }
    return is_stuck;
}
