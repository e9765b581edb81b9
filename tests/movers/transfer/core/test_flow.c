/* SPDX-License-Identifier: BSD-2-Clause */
/* The machine of transfers without a network: a made-up queue pair executes, refuses or dies. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "tasks.h"
#include "transfer/core/flow.h"

enum { DEPTH = 16, WINDOW = 4000, DRAIN = 50, TASKS = 24, NOTICES = 3 };

struct world {
    struct xfc_flow flow;
    struct xfc_entry ring[DEPTH];
    struct list ended;
    struct xfc_plan plans[TASKS];
    struct xfc_task tasks[TASKS];
    struct xfc_step sent[DEPTH]; /* by number */
    uint64_t now;
};

static int set_up(void **state)
{
    static struct world world;
    struct world *w = &world;
    memset(w, 0, sizeof(*w));
    list_init(&w->ended);
    xfc_flow_init(&w->flow, DRAIN, &w->ended);
    xfc_flow_lane(&w->flow, 0, w->ring, DEPTH, WINDOW);
    w->flow.outs_max = NOTICES;
    *state = w;
    return tasks_make_plans(w->plans, TASKS, 64, false);
}

static int tear_down(void **state)
{
    struct world *w = *state;
    tasks_free_plans(w->plans, TASKS);
    return 0;
}

/* A task of so many requests of 1000 bytes. */
static struct xfc_task *post(struct world *w, int which, uint32_t requests, bool has_notice,
                             uint64_t deadline_ns)
{
    struct xfc_task *task = &w->tasks[which];
    task->notice = has_notice ? XFC_NOTICE_WAITS : XFC_NO_NOTICE;
    task->deadline_ns = deadline_ns;
    tasks_post(&w->flow, task, &w->plans[which], requests, w->now);
    return task;
}

static uint32_t give_all(struct world *w)
{
    struct xfc_step step;
    uint32_t count = 0;
    while (xfc_flow_next(&w->flow, 0, &step)) {
        w->sent[step.number % DEPTH] = step;
        count++;
    }
    return count;
}

static bool take_ack(struct world *w, uint64_t tag)
{
    return tasks_ack(&w->flow, tag, w->now);
}

static void next__keeps_window_and_order(void **state)
{
    struct world *w = *state;
    struct xfc_task *one = post(w, 0, 6, false, SW_XFER_NEVER);
    struct xfc_task *two = post(w, 1, 1, false, SW_XFER_NEVER);
    assert_int_equal(give_all(w), 4); /* 4000 bytes */
    assert_int_equal(one->cursor, 4);
    xfc_flow_confirm(&w->flow, 0, 1, w->now);
    assert_int_equal(one->bytes_done, 2000);
    assert_int_equal(give_all(w), 2);
    assert_int_equal(two->cursor, 0);
    xfc_flow_confirm(&w->flow, 0, 5, w->now);
    assert_int_equal(one->state, SW_XFER_DONE);
    assert_int_equal(give_all(w), 1);
    xfc_flow_confirm(&w->flow, 0, 6, w->now);
    assert_int_equal(two->state, SW_XFER_DONE);
    assert_ptr_equal(list_first(&w->ended), &one->node);
    assert_true(list_is_empty(&w->flow.tasks));
}

static void acked__done_needs_both(void **state)
{
    struct world *w = *state;
    struct xfc_task *task = post(w, 0, 1, true, SW_XFER_NEVER);
    assert_int_equal(give_all(w), 2);
    assert_int_equal(w->sent[1].kind, XFC_NOTICE);
    assert_int_equal(task->tag, 1);
    assert_true(take_ack(w, 1)); /* before its own completion was seen */
    assert_int_equal(task->state, SW_XFER_POSTED);
    xfc_flow_confirm(&w->flow, 0, 1, w->now);
    assert_int_equal(task->state, SW_XFER_DONE);
    assert_false(take_ack(w, 1)); /* nothing is out any more */
}

static void next__notices_have_credits(void **state)
{
    struct world *w = *state;
    for (int i = 0; i < NOTICES + 2; i++)
        post(w, i, 0, true, SW_XFER_NEVER);
    assert_int_equal(give_all(w), NOTICES);
    xfc_flow_confirm(&w->flow, 0, NOTICES - 1, w->now);
    assert_int_equal(give_all(w), 0);
    assert_true(take_ack(w, 1));
    assert_int_equal(give_all(w), 1);
    assert_false(take_ack(w, 99)); /* was never sent */
}

static void cancel__waits_for_what_was_given(void **state)
{
    struct world *w = *state;
    struct xfc_task *task = post(w, 0, 6, true, SW_XFER_NEVER);
    struct xfc_task *waits = post(w, 1, 1, false, SW_XFER_NEVER);
    give_all(w);
    xfc_flow_cancel(&w->flow, task, w->now);
    xfc_flow_cancel(&w->flow, waits, w->now);
    assert_int_equal(waits->state, SW_XFER_WAS_CANCELLED); /* nothing of it was given */
    assert_int_equal(task->state, SW_XFER_POSTED);
    assert_int_equal(give_all(w), 0);
    xfc_flow_confirm(&w->flow, 0, 3, w->now);
    assert_int_equal(task->state, SW_XFER_WAS_CANCELLED);
    assert_false(task->loose);
}

static void timers__deadline_ends_one_then_the_drain_is_over(void **state)
{
    struct world *w = *state;
    struct xfc_task *task = post(w, 0, 2, false, 100);
    struct xfc_task *other = post(w, 1, 2, false, SW_XFER_NEVER);
    give_all(w);
    assert_false(xfc_flow_timers(&w->flow, 99));
    assert_false(xfc_flow_timers(&w->flow, 100));
    assert_int_equal(task->state, SW_XFER_POSTED);
    assert_int_equal(w->flow.wake_ns, 100 + DRAIN);
    assert_true(xfc_flow_timers(&w->flow, 100 + DRAIN));
    xfc_flow_reset(&w->flow, 0, w->now);
    assert_int_equal(task->state, SW_XFER_FAILED);
    assert_int_equal(task->status, SW_XFER_DEADLINE);
    assert_true(task->loose);
    assert_int_equal(other->state, SW_XFER_POSTED);
    assert_int_equal(give_all(w), 0); /* the peer may still take what went before */
    xfc_flow_settled(&w->flow, 0);
    assert_int_equal(give_all(w), 2); /* the other's, once more */
    xfc_flow_confirm(&w->flow, 0, w->flow.lanes[0].given - 1, w->now);
    assert_int_equal(other->state, SW_XFER_DONE);
    assert_false(other->loose);
}

static void refused__ends_its_task_alone(void **state)
{
    struct world *w = *state;
    struct xfc_task *first = post(w, 0, 1, false, SW_XFER_NEVER);
    struct xfc_task *bad = post(w, 1, 2, false, SW_XFER_NEVER);
    struct xfc_task *last = post(w, 2, 1, false, SW_XFER_NEVER);
    assert_int_equal(give_all(w), 4);
    xfc_flow_refused(&w->flow, 0, 1, SW_XFER_DENIED, w->now);
    assert_int_equal(first->state, SW_XFER_DONE);
    xfc_flow_reset(&w->flow, 0, w->now);
    assert_int_equal(bad->state, SW_XFER_FAILED);
    assert_int_equal(bad->status, SW_XFER_DENIED);
    assert_false(bad->loose);
    assert_int_equal(xfc_plan_block(bad->plan, 1), SW_XFER_BLOCK_MAYBE);
    assert_int_equal(last->state, SW_XFER_POSTED);
}

static void reset__a_notice_keeps_its_tag(void **state)
{
    struct world *w = *state;
    struct xfc_task *task = post(w, 0, 1, true, SW_XFER_NEVER);
    give_all(w);
    xfc_flow_confirm(&w->flow, 0, 1, w->now);
    assert_int_equal(task->state, SW_XFER_POSTED);
    xfc_flow_reset(&w->flow, 0, w->now);
    assert_int_equal(give_all(w), 1); /* its data is in place */
    assert_int_equal(task->tag, 1);
    post(w, 1, 0, true, SW_XFER_NEVER);
    give_all(w);
    assert_int_equal(w->tasks[1].tag, 2);
}

static void fail_all__leaves_none(void **state)
{
    struct world *w = *state;
    for (int i = 0; i < 4; i++)
        post(w, i, 3, true, SW_XFER_NEVER);
    give_all(w);
    xfc_flow_reset(&w->flow, 0, w->now);
    xfc_flow_fail_all(&w->flow, SW_XFER_PEER_GONE, w->now);
    for (int i = 0; i < 4; i++)
        assert_int_equal(w->tasks[i].status, SW_XFER_PEER_GONE);
    assert_true(list_is_empty(&w->flow.tasks));
    assert_int_equal(give_all(w), 0);
}

/* One random step. */
static void step(struct world *w)
{
    const int which = rand() % TASKS;
    struct xfc_task *task = &w->tasks[which];
    switch (rand() % 10) {
    case 0:
    case 1:
    case 2:
        if (task->state != SW_XFER_POSTED)
            post(w, which, 1 + (uint32_t)rand() % 20, rand() % 2,
                 rand() % 3 ? SW_XFER_NEVER : w->now + (uint64_t)rand() % 300);
        return;
    case 3:
        xfc_flow_cancel(&w->flow, task, w->now);
        return;
    case 4:
        if (xfc_flow_waits(&w->flow, 0) && rand() % 10 == 0) {
            const uint64_t at =
                w->flow.lanes[0].confirmed +
                (uint64_t)rand() % (w->flow.lanes[0].given - w->flow.lanes[0].confirmed);
            xfc_flow_refused(&w->flow, 0, at, SW_XFER_DENIED, w->now);
            xfc_flow_reset(&w->flow, 0, w->now);
            xfc_flow_settled(&w->flow, 0);
        }
        return;
    case 5:
        if (w->flow.outs_count && task->notice == XFC_NOTICE_GIVEN)
            assert_true(take_ack(w, task->tag) || task->state != SW_XFER_POSTED);
        return;
    case 6:
        w->now += (uint64_t)rand() % 60;
        if (xfc_flow_timers(&w->flow, w->now)) {
            xfc_flow_reset(&w->flow, 0, w->now);
            xfc_flow_settled(&w->flow, 0);
        }
        return;
    default:
        give_all(w);
        if (xfc_flow_waits(&w->flow, 0))
            xfc_flow_confirm(&w->flow, 0,
                             w->flow.lanes[0].confirmed +
                                 (uint64_t)rand() %
                                     (w->flow.lanes[0].given - w->flow.lanes[0].confirmed),
                             w->now);
    }
}

/* Random steps: no task ends with entries in the ring, windows hold, and all end at last. */
static void flow__random_steps_end(void **state)
{
    struct world *w = *state;
    srand(11);
    for (int i = 0; i < 300000; i++) {
        step(w);
        uint32_t in_ring = 0;
        for (int k = 0; k < TASKS; k++) {
            const struct xfc_task *task = &w->tasks[k];
            in_ring += task->in_ring;
            assert_true(task->state == SW_XFER_POSTED || !task->in_ring);
            if (task->state == SW_XFER_DONE) {
                assert_int_equal(task->confirmed, task->plan->requests_count);
                assert_true(task->notice == XFC_NO_NOTICE || task->notice == XFC_NOTICE_TAKEN);
                assert_int_equal(task->bytes_done, task->plan->bytes);
            }
            assert_true(task->confirmed + task->lost + task->stranded <= task->cursor);
        }
        assert_int_equal(in_ring, w->flow.lanes[0].given - w->flow.lanes[0].confirmed);
        assert_true(w->flow.lanes[0].bytes_given <= WINDOW && w->flow.outs_count <= NOTICES);
    }
    for (int k = 0; k < TASKS; k++)
        xfc_flow_cancel(&w->flow, &w->tasks[k], w->now);
    assert_true(list_is_empty(&w->flow.tasks) || xfc_flow_timers(&w->flow, w->now + DRAIN));
    xfc_flow_reset(&w->flow, 0, w->now);
    assert_true(list_is_empty(&w->flow.tasks));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(next__keeps_window_and_order, set_up, tear_down),
        cmocka_unit_test_setup_teardown(acked__done_needs_both, set_up, tear_down),
        cmocka_unit_test_setup_teardown(next__notices_have_credits, set_up, tear_down),
        cmocka_unit_test_setup_teardown(cancel__waits_for_what_was_given, set_up, tear_down),
        cmocka_unit_test_setup_teardown(timers__deadline_ends_one_then_the_drain_is_over, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(refused__ends_its_task_alone, set_up, tear_down),
        cmocka_unit_test_setup_teardown(reset__a_notice_keeps_its_tag, set_up, tear_down),
        cmocka_unit_test_setup_teardown(fail_all__leaves_none, set_up, tear_down),
        cmocka_unit_test_setup_teardown(flow__random_steps_end, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
