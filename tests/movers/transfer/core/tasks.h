/* SPDX-License-Identifier: BSD-2-Clause */
/* Tasks for tests of the machine of transfers. */
#ifndef SW_TESTS_MOVERS_TRANSFER_TASKS_H
#define SW_TESTS_MOVERS_TRANSFER_TASKS_H

#include "transfer/core/flow.h"

/* Plans of so many requests each. Plans with even numbers have room for sums, if any has. */
static inline int tasks_make_plans(struct xfc_plan *plans, int count, uint32_t requests,
                                   bool has_sums)
{
    for (int i = 0; i < count; i++)
        if (!xfc_plan_make(&plans[i], requests, 4, has_sums && i % 2 == 0))
            return -1;
    return 0;
}

static inline void tasks_free_plans(struct xfc_plan *plans, int count)
{
    for (int i = 0; i < count; i++)
        xfc_plan_free(&plans[i]);
}

/* WRITEs of 1000 bytes, so many, each a block. The other fields of the task are set before. It may
 * have been posted before, and have ended. */
static inline void tasks_post(struct xfc_flow *flow, struct xfc_task *task, struct xfc_plan *plan,
                              uint32_t requests, uint64_t now_ns)
{
    xfc_plan_clear(plan);
    for (uint32_t i = 0; i < requests; i++) {
        const struct xfc_pair pair = {.local = 8192 * i, .remote = 8192 * i, .bytes = 1000};
        xfc_plan_add(plan, &pair);
    }
    if (task->node.next)
        list_remove(&task->node);
    task->plan = plan;
    task->op = SW_XFER_WRITE;
    xfc_flow_post(flow, task, now_ns);
}

/* The peer acknowledges a notice. False: none with this tag was out. */
static inline bool tasks_ack(struct xfc_flow *flow, uint64_t tag, uint64_t now_ns)
{
    struct xfc_out out;
    if (!xfc_flow_answered(flow, tag, &out))
        return false;
    if (out.task)
        xfc_flow_notice_taken(flow, out.task, now_ns);
    return true;
}

#endif
