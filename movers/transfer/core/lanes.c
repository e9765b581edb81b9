/* SPDX-License-Identifier: BSD-2-Clause */
/* What lanes are given, and what becomes of it. */
#include <assert.h>
#include <string.h>

#include "transfer/core/flow.h"

static struct xfc_task *lanes_task_of(struct list_node *node)
{
    return LIST_MEMBER(node, struct xfc_task, node);
}

static struct xfc_task *task_of_turn(struct list_node *node)
{
    return LIST_MEMBER(node, struct xfc_task, turn);
}

static void enter_ring(struct xfc_lane *lane, uint32_t number, const struct xfc_step *step)
{
    const uint32_t bytes = step->request ? step->request->bytes : 0;
    assert(lane->given - lane->confirmed < lane->depth);
    lane->ring[lane->given % lane->depth] = (struct xfc_entry){
        .task = step->task, .bytes = bytes, .request = step->first, .kind = step->kind};
    lane->given++;
    lane->bytes_given += bytes;
    if (step->task) {
        step->task->in_ring++;
        step->task->in_lane[number]++;
    }
}

/* ---- messages ---- */

static void lanes_fill_message(struct xfc_flow *flow, struct xfc_step *step)
{
    struct xfc_out *out = flow->outs;
    assert(flow->outs_count < XFC_OUT_MAX);
    while (out->tag)
        out++;
    *out = (struct xfc_out){.tag = step->tag,
                            .kind = step->kind,
                            .task = step->task,
                            .first = step->first,
                            .count = step->count};
    step->buffer = (uint32_t)(out - flow->outs);
    flow->outs_count++;
}

/* Its data may be with another lane, which does not wait for this one. */
static bool is_behind_data(const struct xfc_task *task, uint32_t lane)
{
    return task->in_ring == task->in_lane[lane];
}

/* Tags come to the peer in their order, so an old one goes before any new one. */
static struct xfc_task *find_owed(const struct xfc_flow *flow)
{
    struct xfc_task *oldest = NULL;
    for (struct list_node *at = list_first(&flow->tasks); at; at = list_after(&flow->tasks, at)) {
        struct xfc_task *task = lanes_task_of(at);
        if (task->notice == XFC_NOTICE_WAITS && task->tag && (!oldest || task->tag < oldest->tag))
            oldest = task;
    }
    return oldest;
}

/* The first task that has a message and whose turn it is. */
static struct xfc_task *find_talker(const struct xfc_flow *flow, uint32_t lane)
{
    const struct xfc_task *owed = flow->owed ? find_owed(flow) : NULL;
    for (struct list_node *at = list_first(&flow->talkers); at;
         at = list_after(&flow->talkers, at)) {
        struct xfc_task *task = task_of_turn(at);
        const bool has_sums = task->has_sums && task->sums_given < task->plan->sums_count;
        if (is_behind_data(task, lane) && (has_sums || !owed || task == owed))
            return task;
    }
    return NULL;
}

static bool next_message(struct xfc_flow *flow, uint32_t lane, struct xfc_step *step)
{
    if (flow->outs_count >= flow->outs_max)
        return false;
    if (flow->drops) {
        step->kind = XFC_DROP;
        step->first = (uint32_t)__builtin_ctz(flow->drops);
        step->count = flow->lanes[step->first].resets;
        step->tag = ++flow->last_tag;
        flow->drops &= flow->drops - 1;
        lanes_fill_message(flow, step);
        return true;
    }
    if (flow->outs_count + flow->outs_kept >= flow->outs_max)
        return false;
    struct xfc_task *task = find_talker(flow, lane);
    if (!task)
        return false;
    step->task = task;
    if (task->has_sums && task->sums_given < task->plan->sums_count) {
        const uint32_t left = task->plan->sums_count - task->sums_given;
        step->kind = XFC_SUMS;
        step->first = task->sums_given;
        step->count = left < XFC_SUMS_PER_MESSAGE ? left : XFC_SUMS_PER_MESSAGE;
        step->tag = ++flow->last_tag;
        task->sums_given += step->count;
    } else {
        step->kind = XFC_NOTICE;
        flow->owed -= task->tag != 0;
        if (!task->tag)
            task->tag = ++flow->last_tag;
        step->tag = task->tag;
        task->notice = XFC_NOTICE_GIVEN;
    }
    lanes_fill_message(flow, step);
    return true;
}

/* ---- requests ---- */

/* The next task's slice, where this one is used up. */
static struct xfc_task *find_slice(struct xfc_flow *flow, struct xfc_lane *lane)
{
    struct xfc_task *task = lane->slice;
    if (task && task->turn.next && !task->is_talking && lane->slice_requests && lane->slice_bytes)
        return task;
    struct list_node *at = list_first(&flow->turns);
    lane->slice = at ? task_of_turn(at) : NULL;
    lane->slice_requests = XFC_SLICE_REQUESTS;
    lane->slice_bytes = XFC_SLICE_BYTES;
    if (at) { /* to the end, so that other lanes serve others */
        list_remove(at);
        list_append(&flow->turns, at);
    }
    return lane->slice;
}

static uint32_t find_request(const struct xfc_task *task)
{
    uint32_t at = task->cursor;
    if (task->lost)
        for (at = task->lost_from; task->plan->states[at] != XFC_LOST; at++)
            ;
    return at;
}

static bool lanes_next_request(struct xfc_flow *flow, struct xfc_lane *lane, struct xfc_step *step)
{
    struct xfc_task *task = find_slice(flow, lane);
    if (!task)
        return false;
    const uint32_t at = find_request(task);
    assert(at < task->plan->requests_count); /* it is in line for having one to give */
    const struct xfc_request *request = &task->plan->requests[at];
    if (lane->bytes_given && lane->bytes_given + request->bytes > lane->window_bytes)
        return false;
    step->kind = XFC_REQUEST;
    step->task = task;
    step->request = request;
    step->first = at;
    if (task->lost) {
        task->lost--;
        task->lost_from = at + 1;
    } else {
        task->cursor++;
    }
    task->plan->states[at] = XFC_GIVEN;
    lane->slice_requests--;
    lane->slice_bytes -= request->bytes < lane->slice_bytes ? request->bytes : lane->slice_bytes;
    return true;
}

bool xfc_flow_next(struct xfc_flow *flow, uint32_t number, struct xfc_step *step)
{
    struct xfc_lane *lane = &flow->lanes[number];
    if (lane->given - lane->confirmed == lane->depth)
        return false;
    *step = (struct xfc_step){.number = lane->given};
    if (!(number == flow->message_lane && next_message(flow, number, step)) &&
        !lanes_next_request(flow, lane, step))
        return false;
    enter_ring(lane, number, step);
    if (step->task)
        xfc_flow_sort(flow, step->task);
    return true;
}

/* ---- what becomes of them ---- */

void xfc_flow_confirm(struct xfc_flow *flow, uint32_t number, uint64_t up_to, uint64_t now_ns)
{
    struct xfc_lane *lane = &flow->lanes[number];
    assert(up_to < lane->given);
    while (lane->confirmed <= up_to) {
        const struct xfc_entry *entry = &lane->ring[lane->confirmed++ % lane->depth];
        struct xfc_task *task = entry->task;
        lane->bytes_given -= entry->bytes;
        lane->bytes_done += entry->bytes;
        if (!task)
            continue;
        if (entry->kind == XFC_REQUEST) {
            task->plan->states[entry->request] = XFC_IN_PLACE;
            task->bytes_done += entry->bytes;
            task->confirmed++;
        }
        task->in_ring--;
        task->in_lane[number]--;
        xfc_flow_end_if_quiet(flow, task, now_ns);
    }
}

void xfc_flow_refused(struct xfc_flow *flow, uint32_t number, uint64_t which,
                      enum sw_xfer_status status, uint64_t now_ns)
{
    struct xfc_lane *lane = &flow->lanes[number];
    assert(which < lane->given);
    if (which > lane->confirmed)
        xfc_flow_confirm(flow, number, which - 1, now_ns);
    struct xfc_task *task = lane->ring[which % lane->depth].task;
    if (!task)
        return;
    task->ending = XFC_FAULT;
    task->status = status;
    task->drain_ns = now_ns + flow->drain_ns; /* for what other lanes have of it */
    if (task->drain_ns < flow->wake_ns)
        flow->wake_ns = task->drain_ns;
    xfc_flow_sort(flow, task);
}

static void empty_ring(struct xfc_lane *lane, uint32_t number)
{
    while (lane->given > lane->confirmed) {
        const struct xfc_entry *entry = &lane->ring[--lane->given % lane->depth];
        struct xfc_task *task = entry->task;
        if (task && entry->kind == XFC_REQUEST) {
            task->plan->states[entry->request] = (uint8_t)(XFC_STRANDED + number);
            task->stranded++;
        }
    }
    lane->bytes_given = 0;
    lane->slice = NULL;
    lane->resets++;
}

/* Messages without an answer are sent again: they went by this lane. */
static void take_back_messages(struct xfc_flow *flow)
{
    for (uint32_t i = 0; i < XFC_OUT_MAX; i++) {
        struct xfc_out *out = &flow->outs[i];
        if (out->tag && out->kind == XFC_DROP)
            flow->drops |= 1u << out->first;
        if (out->tag && out->task && out->kind == XFC_SUMS)
            out->task->sums_given = out->task->sums_known;
        if (out->tag && out->task && out->kind == XFC_NOTICE) {
            out->task->notice = XFC_NOTICE_WAITS;
            flow->owed++;
        }
        out->tag = 0;
        out->task = NULL;
    }
    flow->outs_count = 0;
}

void xfc_flow_reset(struct xfc_flow *flow, uint32_t number, uint64_t now_ns)
{
    struct list_node *next;
    empty_ring(&flow->lanes[number], number);
    if (number == flow->message_lane)
        take_back_messages(flow);
    for (struct list_node *at = list_first(&flow->tasks); at; at = next) {
        struct xfc_task *task = lanes_task_of(at);
        next = list_after(&flow->tasks, at);
        /* A device executes nothing behind what it has refused. */
        if (task->in_lane[number] && task->ending != XFC_FAULT)
            task->loose |= 1u << number;
        task->in_ring -= task->in_lane[number];
        task->in_lane[number] = 0;
        xfc_flow_sort(flow, task);
        xfc_flow_end_if_quiet(flow, task, now_ns);
    }
}

static void find_stranded(struct xfc_task *task, uint32_t number)
{
    for (uint32_t i = 0; task->stranded && i < task->cursor; i++) {
        if (task->plan->states[i] != XFC_STRANDED + number)
            continue;
        task->plan->states[i] = XFC_LOST;
        task->stranded--;
        if (!task->lost++ || i < task->lost_from)
            task->lost_from = i;
    }
}

void xfc_flow_settled(struct xfc_flow *flow, uint32_t number)
{
    flow->drops &= ~(1u << number);
    for (struct list_node *at = list_first(&flow->tasks); at; at = list_after(&flow->tasks, at)) {
        struct xfc_task *task = lanes_task_of(at);
        find_stranded(task, number);
        task->loose &= ~(1u << number);
        xfc_flow_sort(flow, task);
    }
}

void xfc_flow_drop(struct xfc_flow *flow, uint32_t number)
{
    assert(number < XFC_LANES_MAX);
    flow->drops |= 1u << number;
}

/* ---- answers ---- */

bool xfc_flow_answered(struct xfc_flow *flow, uint64_t tag, struct xfc_out *answered)
{
    for (uint32_t i = 0; tag && i < XFC_OUT_MAX; i++) {
        struct xfc_out *out = &flow->outs[i];
        if (out->tag != tag)
            continue;
        *answered = *out;
        out->tag = 0;
        out->task = NULL;
        flow->outs_count--;
        return true;
    }
    return false;
}

void xfc_flow_notice_taken(struct xfc_flow *flow, struct xfc_task *task, uint64_t now_ns)
{
    assert(task->state == SW_XFER_POSTED && task->notice == XFC_NOTICE_GIVEN);
    task->notice = XFC_NOTICE_TAKEN;
    xfc_flow_end_if_quiet(flow, task, now_ns);
}

void xfc_flow_summed(struct xfc_flow *flow, struct xfc_task *task, uint32_t known,
                     enum sw_xfer_status status, uint64_t now_ns)
{
    assert(task->state == SW_XFER_POSTED && known <= task->sums_given);
    task->sums_known = known;
    if (status == SW_XFER_CORRUPT) {
        task->is_corrupt = true;
        status = known < task->plan->sums_count ? SW_XFER_OK : status;
    } else if (!status && task->is_corrupt && known == task->plan->sums_count) {
        status = SW_XFER_CORRUPT;
    }
    if (status && task->ending == XFC_GOES_ON) {
        task->ending = XFC_FAULT;
        task->status = status;
        task->drain_ns = now_ns + flow->drain_ns;
        if (task->drain_ns < flow->wake_ns)
            flow->wake_ns = task->drain_ns;
    }
    xfc_flow_sort(flow, task);
    xfc_flow_end_if_quiet(flow, task, now_ns);
}
