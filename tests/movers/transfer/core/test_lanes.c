/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Transfers over several lanes, without a network: turns, what a lost lane had, messages in their
 * order, sums. A made-up peer takes what lanes give it, also late, and says whether that was right.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "tasks.h"
#include "transfer/core/flow.h"

enum { LANES = 3, DEPTH = 16, WINDOW = 40000, DRAIN = 50, TASKS = 24, REQUESTS = 128, OUTS = 5 };

struct world {
    struct xfc_flow flow;
    struct xfc_entry rings[LANES][DEPTH];
    struct list ended;
    struct xfc_plan plans[TASKS];
    struct xfc_task tasks[TASKS];
    struct xfc_step sent[LANES][DEPTH]; /* by number */
    bool is_up[LANES], is_dirty[LANES]; /* dirty: lost, and the peer has not ended its side */
    uint64_t last_tag;                  /* that the peer took */
    bool was_told[TASKS];               /* the notice of its newest post has come */
    uint64_t now;
};

static int set_up(void **state)
{
    static struct world world;
    struct world *w = &world;
    memset(w, 0, sizeof(*w));
    list_init(&w->ended);
    xfc_flow_init(&w->flow, DRAIN, &w->ended);
    for (uint32_t i = 0; i < LANES; i++) {
        xfc_flow_lane(&w->flow, i, w->rings[i], DEPTH, WINDOW);
        w->is_up[i] = true;
    }
    w->flow.outs_max = OUTS;
    w->flow.outs_kept = 1;
    *state = w;
    return tasks_make_plans(w->plans, TASKS, REQUESTS, true);
}

static int tear_down(void **state)
{
    struct world *w = *state;
    tasks_free_plans(w->plans, TASKS);
    return 0;
}

/* So many requests of 1000 bytes, each a block. Requests with even numbers may have sums. */
static struct xfc_task *post(struct world *w, int which, uint32_t requests, bool has_notice,
                             bool has_sums)
{
    struct xfc_task *task = &w->tasks[which];
    task->has_sums = has_sums;
    task->notice = has_notice ? XFC_NOTICE_WAITS : XFC_NO_NOTICE;
    task->deadline_ns = SW_XFER_NEVER;
    w->was_told[which] = false;
    tasks_post(&w->flow, task, &w->plans[which], requests, w->now);
    return task;
}

static bool give(struct world *w, uint32_t lane)
{
    struct xfc_step step;
    if (!w->is_up[lane] || !xfc_flow_next(&w->flow, lane, &step))
        return false;
    w->sent[lane][step.number % DEPTH] = step;
    return true;
}

static uint32_t give_all(struct world *w, uint32_t lane)
{
    uint32_t count = 0;
    while (give(w, lane))
        count++;
    return count;
}

static void confirm_all(struct world *w, uint32_t lane)
{
    if (xfc_flow_waits(&w->flow, lane))
        xfc_flow_confirm(&w->flow, lane, w->flow.lanes[lane].given - 1, w->now);
}

/* Requests that the lane had may still come to the peer. */
static void lose(struct world *w, uint32_t lane)
{
    w->is_up[lane] = false;
    w->is_dirty[lane] = true;
    xfc_flow_reset(&w->flow, lane, w->now);
}

/* ---- turns ---- */

static void next__a_small_one_is_not_held_up(void **state)
{
    struct world *w = *state;
    struct xfc_task *large = post(w, 0, 100, true, false);
    assert_int_equal(give_all(w, 0), DEPTH); /* the lane is full of it */
    struct xfc_task *small = post(w, 1, 2, true, false);
    uint32_t between = 0;
    while (small->state == SW_XFER_POSTED) {
        xfc_flow_confirm(&w->flow, 0, w->flow.lanes[0].confirmed, w->now);
        give_all(w, 0);
        if (small->notice == XFC_NOTICE_GIVEN)
            tasks_ack(&w->flow, small->tag, w->now);
        assert_true(++between < 100);
    }
    assert_int_equal(large->state, SW_XFER_POSTED);
    /* What was with the device, and at most one slice. */
    assert_true(large->confirmed <= DEPTH + XFC_SLICE_REQUESTS);
}

static void next__three_take_turns_by_slices(void **state)
{
    struct world *w = *state;
    uint32_t changes = 0;
    struct xfc_task *last = NULL;
    for (int i = 0; i < 3; i++)
        post(w, i, 100, false, false);
    for (int i = 0; i < 300; i++) {
        struct xfc_step step;
        assert_true(xfc_flow_next(&w->flow, 0, &step));
        changes += step.task != last;
        last = step.task;
        confirm_all(w, 0);
        /* None is ahead of another by more than a slice. */
        for (int k = 0; k < 3; k++)
            assert_true(w->tasks[k].confirmed + XFC_SLICE_REQUESTS >= step.task->confirmed);
    }
    assert_int_equal(changes, 3 * ((100 + XFC_SLICE_REQUESTS - 1) / XFC_SLICE_REQUESTS));
    for (int i = 0; i < 3; i++)
        assert_int_equal(w->tasks[i].state, SW_XFER_DONE);
}

/* ---- lanes that are lost ---- */

static void reset__nothing_is_given_again_before_the_peer_let_go(void **state)
{
    struct world *w = *state;
    struct xfc_task *task = post(w, 1, 20, false, false);
    assert_int_equal(give_all(w, 0), DEPTH);
    xfc_flow_confirm(&w->flow, 0, 3, w->now);
    lose(w, 0);
    assert_int_equal(task->stranded, DEPTH - 4);
    assert_int_equal(xfc_plan_block(task->plan, 4), SW_XFER_BLOCK_MAYBE);
    assert_int_equal(give_all(w, 1), 20 - DEPTH); /* what no lane had */
    confirm_all(w, 1);
    assert_int_equal(give_all(w, 1), 0);
    w->flow.message_lane = 1;
    xfc_flow_drop(&w->flow, 0);
    assert_int_equal(give_all(w, 1), 1);
    const struct xfc_step *step = &w->sent[1][(w->flow.lanes[1].given - 1) % DEPTH];
    struct xfc_out out;
    assert_int_equal(step->kind, XFC_DROP);
    assert_int_equal(step->first, 0);
    assert_true(xfc_flow_answered(&w->flow, step->tag, &out));
    assert_int_equal(out.first, 0);
    xfc_flow_settled(&w->flow, 0);
    assert_false(task->loose);
    assert_int_equal(give_all(w, 1), DEPTH - 4);
    confirm_all(w, 1);
    assert_int_equal(task->state, SW_XFER_DONE);
    assert_int_equal(task->bytes_done, 20000);
    assert_int_equal(xfc_plan_blocks_done(task->plan), 20);
}

/* Notices that wait for room at the peer do not keep it from being told. */
static void drop__has_room_among_messages(void **state)
{
    struct world *w = *state;
    for (int i = 0; i < OUTS + 3; i++)
        post(w, 1 + 2 * i, 0, true, false);
    assert_int_equal(give_all(w, 0), OUTS - 1);
    lose(w, 1);
    xfc_flow_drop(&w->flow, 1);
    assert_int_equal(give_all(w, 0), 1);
    const struct xfc_step *step = &w->sent[0][(w->flow.lanes[0].given - 1) % DEPTH];
    assert_int_equal(step->kind, XFC_DROP);
    assert_int_equal(step->count, 1); /* one queue pair was lost */
    assert_int_equal(give_all(w, 0), 0);
}

static void reset__cancelled_while_stranded_is_loose(void **state)
{
    struct world *w = *state;
    struct xfc_task *task = post(w, 0, 10, false, false);
    give_all(w, 2);
    lose(w, 2);
    xfc_flow_cancel(&w->flow, task, w->now);
    assert_int_equal(task->state, SW_XFER_WAS_CANCELLED);
    assert_int_equal(task->loose, 1 << 2);
    xfc_flow_settled(&w->flow, 2); /* knows nothing of it any more */
    assert_true(list_is_empty(&w->flow.tasks));
}

static void notice__waits_for_the_data_of_other_lanes(void **state)
{
    struct world *w = *state;
    struct xfc_task *task = post(w, 0, 20, true, false);
    assert_int_equal(give_all(w, 1), DEPTH);
    assert_int_equal(give_all(w, 0), 20 - DEPTH);
    assert_int_equal(task->notice, XFC_NOTICE_WAITS);
    confirm_all(w, 1);
    assert_int_equal(give_all(w, 0), 1); /* behind its own data, in the queue pair's order */
    assert_int_equal(task->notice, XFC_NOTICE_GIVEN);
}

/* B got its tag before A: so it is sent again before A. */
static void reset__tags_stay_in_order(void **state)
{
    struct world *w = *state;
    struct xfc_task *a = post(w, 0, 40, true, false), *b = post(w, 1, 1, true, false);
    while (b->notice != XFC_NOTICE_GIVEN) {
        give(w, 0);
        confirm_all(w, 0);
    }
    while (a->notice != XFC_NOTICE_GIVEN) {
        give(w, 0);
        confirm_all(w, 0);
    }
    assert_true(b->tag < a->tag);
    struct xfc_task *c = post(w, 2, 0, true, false);
    lose(w, 0);
    w->flow.message_lane = 1;
    assert_int_equal(give_all(w, 1), 3);
    assert_ptr_equal(w->sent[1][0].task, b);
    assert_ptr_equal(w->sent[1][1].task, a);
    assert_ptr_equal(w->sent[1][2].task, c);
}

/* ---- sums ---- */

static void sums__come_between_data_and_notice(void **state)
{
    struct world *w = *state;
    struct xfc_task *task = post(w, 0, 100, true, true);
    struct xfc_out out;
    uint32_t known = 0;
    for (int i = 0; i < 300 && task->state == SW_XFER_POSTED; i++) {
        if (give(w, 0)) {
            const struct xfc_step *step = &w->sent[0][(w->flow.lanes[0].given - 1) % DEPTH];
            confirm_all(w, 0);
            if (step->kind == XFC_REQUEST)
                continue;
            assert_int_equal(task->confirmed, 100);
            assert_true(xfc_flow_answered(&w->flow, step->tag, &out));
            assert_false(xfc_flow_answered(&w->flow, step->tag, &out));
            if (step->kind == XFC_SUMS) {
                assert_int_equal(out.first, known);
                known += out.count;
                for (uint32_t k = out.first; k < known; k++)
                    xfc_plan_mark(task->plan, k, true);
                xfc_flow_summed(&w->flow, task, known, SW_XFER_OK, w->now);
                continue;
            }
            assert_int_equal(known, 100);
            xfc_flow_notice_taken(&w->flow, task, w->now);
        }
    }
    assert_int_equal(task->state, SW_XFER_DONE);
}

static void sums__one_that_differs_fails_when_all_are_known(void **state)
{
    struct world *w = *state;
    struct xfc_task *task = post(w, 0, 100, true, true);
    struct xfc_out out;
    uint32_t messages = 0;
    while (task->state == SW_XFER_POSTED) {
        assert_true(give(w, 0));
        const struct xfc_step *step = &w->sent[0][(w->flow.lanes[0].given - 1) % DEPTH];
        confirm_all(w, 0);
        assert_int_not_equal(step->kind, XFC_NOTICE);
        if (step->kind != XFC_SUMS)
            continue;
        messages++;
        assert_true(xfc_flow_answered(&w->flow, step->tag, &out));
        bool is_alike = true;
        for (uint32_t k = out.first; k < out.first + out.count; k++)
            is_alike &= xfc_plan_mark(task->plan, k, k != 7);
        xfc_flow_summed(&w->flow, task, out.first + out.count,
                        is_alike ? SW_XFER_OK : SW_XFER_CORRUPT, w->now);
    }
    assert_int_equal(messages, 2);
    assert_int_equal(task->state, SW_XFER_FAILED);
    assert_int_equal(task->status, SW_XFER_CORRUPT);
    assert_int_equal(xfc_plan_block(task->plan, 7), SW_XFER_BLOCK_CORRUPT);
    assert_int_equal(xfc_plan_block(task->plan, 99), SW_XFER_BLOCK_IN_PLACE);
    assert_int_equal(xfc_plan_blocks_done(task->plan), 99);
}

/* ---- random steps ---- */

/* The peer takes what is confirmed. Nothing of a lane that was lost may matter any more. */
static void take_message(struct world *w, const struct xfc_step *step)
{
    struct xfc_out out;
    if (step->kind == XFC_NOTICE) {
        const int which = (int)(step->task - w->tasks);
        assert_int_equal(step->task->confirmed, step->task->plan->requests_count);
        assert_true(step->tag > w->last_tag || w->was_told[which]);
        if (step->tag > w->last_tag)
            w->last_tag = step->tag;
        w->was_told[which] = true;
    }
    if (!xfc_flow_answered(&w->flow, step->tag, &out))
        return;
    if (out.kind == XFC_DROP) {
        assert_false(w->is_up[out.first]);
        w->is_dirty[out.first] = false;
        xfc_flow_settled(&w->flow, out.first);
    } else if (out.task && out.kind == XFC_NOTICE) {
        xfc_flow_notice_taken(&w->flow, out.task, w->now);
    } else if (out.task) {
        for (uint32_t k = out.first; k < out.first + out.count; k++)
            xfc_plan_mark(out.task->plan, k, true);
        xfc_flow_summed(&w->flow, out.task, out.first + out.count, SW_XFER_OK, w->now);
    }
}

static void confirm_some(struct world *w, uint32_t lane)
{
    struct xfc_lane *of = &w->flow.lanes[lane];
    struct xfc_step messages[DEPTH];
    uint32_t count = 0;
    if (of->given == of->confirmed)
        return;
    const uint64_t up_to = of->confirmed + (uint64_t)rand() % (of->given - of->confirmed);
    for (uint64_t i = of->confirmed; i <= up_to; i++)
        if (w->sent[lane][i % DEPTH].kind != XFC_REQUEST)
            messages[count++] = w->sent[lane][i % DEPTH];
    xfc_flow_confirm(&w->flow, lane, up_to, w->now);
    for (uint32_t i = 0; i < count; i++)
        take_message(w, &messages[i]);
}

/* As the engine does it: a lost lane is dropped by another, or comes up again when none is. */
static void lose_or_mend(struct world *w, uint32_t lane)
{
    uint32_t others = 0, other = lane;
    for (uint32_t i = 0; i < LANES; i++)
        if (i != lane && w->is_up[i] && ++others)
            other = i;
    if (w->is_up[lane]) {
        lose(w, lane);
        if (others)
            xfc_flow_drop(&w->flow, lane);
        if (w->flow.message_lane == lane)
            w->flow.message_lane = other;
    } else if (!w->is_dirty[lane] || !others) {
        w->is_up[lane] = true;
        w->is_dirty[lane] = false;
        xfc_flow_settled(&w->flow, lane);
        if (!others)
            w->flow.message_lane = lane;
        for (uint32_t i = 0; !others && i < LANES; i++)
            if (w->is_dirty[i])
                xfc_flow_drop(&w->flow, i);
    }
}

static void random_step(struct world *w)
{
    const int which = rand() % TASKS;
    const uint32_t lane = (uint32_t)rand() % LANES;
    switch (rand() % 12) {
    case 0:
    case 1:
        if (w->tasks[which].state != SW_XFER_POSTED)
            post(w, which, (uint32_t)rand() % 80, true, which % 2 == 0);
        return;
    case 2:
        if (rand() % 4 == 0)
            xfc_flow_cancel(&w->flow, &w->tasks[which], w->now);
        return;
    case 3:
        if (rand() % 8 == 0)
            lose_or_mend(w, lane);
        return;
    case 4:
        w->now += (uint64_t)rand() % 5;
        for (uint32_t i = 0, stuck = xfc_flow_timers(&w->flow, w->now); i < LANES; i++)
            if (stuck & 1u << i && w->is_up[i])
                lose_or_mend(w, i);
        return;
    default:
        give_all(w, lane);
        confirm_some(w, lane);
    }
}

static void check_sums_of_counts(const struct world *w)
{
    uint32_t owed = 0;
    for (int k = 0; k < TASKS; k++) {
        const struct xfc_task *task = &w->tasks[k];
        uint32_t states[XFC_STRANDED + XFC_LANES_MAX] = {0}, in_lanes = 0;
        for (uint32_t i = 0; task->plan && i < task->plan->requests_count; i++)
            states[task->plan->states[i]]++;
        for (uint32_t i = 0; i < LANES; i++)
            in_lanes += task->in_lane[i];
        assert_int_equal(in_lanes, task->in_ring);
        assert_true(task->state == SW_XFER_POSTED || !task->in_ring);
        assert_true(task->state != SW_XFER_DONE || (w->was_told[k] && !task->loose));
        if (task->state != SW_XFER_POSTED)
            continue;
        assert_int_equal(states[XFC_IN_PLACE], task->confirmed);
        assert_int_equal(states[XFC_LOST], task->lost);
        owed += task->tag && task->notice == XFC_NOTICE_WAITS;
    }
    assert_int_equal(owed, w->flow.owed);
    assert_true(w->flow.outs_count <= OUTS);
}

static void lanes__random_steps_end(void **state)
{
    struct world *w = *state;
    uint32_t done = 0;
    srand(13);
    for (int i = 0; i < 200000; i++) {
        random_step(w);
        check_sums_of_counts(w);
        for (struct list_node *node; (node = list_first(&w->ended)); list_remove(node))
            done += LIST_MEMBER(node, struct xfc_task, node)->state == SW_XFER_DONE;
    }
    assert_true(done > 1000);
    /* All lanes are mended: whatever is posted ends. */
    for (int round = 0; round < 3; round++)
        for (uint32_t i = 0; i < LANES; i++)
            if (!w->is_up[i])
                lose_or_mend(w, i);
    for (int i = 0; i < 100000 && !list_is_empty(&w->flow.tasks); i++) {
        const uint32_t lane = (uint32_t)rand() % LANES;
        give_all(w, lane);
        confirm_some(w, lane);
    }
    assert_true(list_is_empty(&w->flow.tasks));
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(next__a_small_one_is_not_held_up),
        CASE(next__three_take_turns_by_slices),
        CASE(reset__nothing_is_given_again_before_the_peer_let_go),
        CASE(drop__has_room_among_messages),
        CASE(reset__cancelled_while_stranded_is_loose),
        CASE(notice__waits_for_the_data_of_other_lanes),
        CASE(reset__tags_stay_in_order),
        CASE(sums__come_between_data_and_notice),
        CASE(sums__one_that_differs_fails_when_all_are_known),
        CASE(lanes__random_steps_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
