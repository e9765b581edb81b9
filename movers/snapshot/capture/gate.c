/* SPDX-License-Identifier: BSD-2-Clause */
/* What the program's thread does before it writes to the state. */
#include <assert.h>
#include <errno.h>

#include "common/base/minmax.h"
#include "common/time/clock.h"
#include "snapshot/capture/inside.h"
#include "snapshot/capture/plant.h"

enum { STEAL_NS = 400000 }; /* two units can be copied meanwhile */

/* False: that time is over. */
static bool gate_sleep_until(struct snap_capture *capture, uint64_t until_ns)
{
    const struct timespec until = {.tv_sec = (time_t)(until_ns / NS_PER_S),
                                   .tv_nsec = (long)(until_ns % NS_PER_S)};
    return pthread_cond_timedwait(&capture->progress, &capture->lock, &until) != ETIMEDOUT;
}

/* A job, or sleep until something has happened. The deadline gives the capture up. */
static void help_or_wait(struct snap_capture *capture, enum sw_snap_gate how, uint64_t deadline_ns)
{
    struct snap_job job;
    const uint64_t now_ns = mover_now_ns();
    if (deadline_ns == 0)
        deadline_ns = UINT64_MAX;
    if (now_ns >= deadline_ns) {
        snap_phase_give_up(capture, SNAP_CAPTURE_LATE);
        return;
    }
    if (how != SW_SNAP_WAIT) {
        if (snap_phase_next(capture, &job)) {
            snap_helper_do(capture, &capture->caller, &job);
            return;
        }
        /* A helper has less right to a processor, and may have lost it amid a unit. */
        if (!gate_sleep_until(capture, mover_min_u64(now_ns + STEAL_NS, deadline_ns)) &&
            snap_phase_steal(capture, &job))
            snap_helper_do(capture, &capture->caller, &job);
        return;
    }
    gate_sleep_until(capture, mover_min_u64(now_ns + NS_PER_S, deadline_ns));
}

static bool is_under_way(const struct snap_capture *capture)
{
    return capture->info.outcome == SNAP_CAPTURE_UNDER_WAY;
}

/* Notes when a gate came, and what was left to copy then. */
static uint64_t enter_gate(struct snap_capture *capture)
{
    if (is_under_way(capture) && capture->info.gate_ns == 0)
        capture->info.gate_bytes = snap_phase_left_bytes(capture);
    return mover_now_ns();
}

static enum snap_capture_outcome leave_gate(struct snap_capture *capture, uint64_t entered_ns)
{
    const enum snap_capture_outcome outcome = capture->info.outcome;
    capture->info.gate_ns += mover_now_ns() - entered_ns;
    pthread_mutex_unlock(&capture->lock);
    return outcome;
}

enum snap_capture_outcome snap_capture_gate(struct snap_capture *capture, enum sw_snap_gate how,
                                            uint64_t deadline_ns)
{
    if (mover_is_forked(&capture->guard))
        return SNAP_CAPTURE_NONE;
    if (SNAP_IS_PLANTED(SNAP_PLANT_GATE))
        return SNAP_CAPTURE_CLEAN;
    pthread_mutex_lock(&capture->lock);
    const uint64_t entered_ns = enter_gate(capture);
    if (how == SW_SNAP_SKIP && is_under_way(capture) && snap_phase_left_bytes(capture) > 0)
        snap_phase_give_up(capture, SNAP_CAPTURE_SKIPPED);
    if (is_under_way(capture))
        snap_phase_gate(capture);
    while (is_under_way(capture))
        help_or_wait(capture, how, deadline_ns);
    return leave_gate(capture, entered_ns);
}

/* ---- some ranges ---- */

static bool has_copied_ranges(const struct snap_capture *capture, uint32_t first, uint32_t end)
{
    for (uint32_t i = first; i < end; i++)
        if (!snap_phase_has_copied(capture, &capture->parts[i]))
            return false;
    return true;
}

/* The kernel is asked now, since what is written from here on is no fault. */
static void ask_ranges(struct snap_capture *capture, uint32_t first, uint32_t end)
{
    for (uint32_t i = first; i < end; i++) {
        struct snap_part *part = &capture->parts[i];
        if (part->span.end && !part->is_let_go)
            snap_job_ask(capture, part);
    }
    snap_phase_mark_written(capture);
}

static void let_go_ranges(struct snap_capture *capture, uint32_t first, uint32_t end)
{
    for (uint32_t i = first; i < end; i++)
        capture->parts[i].is_let_go = true;
    capture->has_let_go = true;
}

/* All these units were seen before the instant, and copied behind it as they were. True: the
 * program may write to them. Where something has changed, the instant has to be a later one: then
 * nothing may have been let go before, and all has to be copied now. */
static bool try_let_go(struct snap_capture *capture, uint32_t first, uint32_t end)
{
    if (capture->phase != SNAP_PHASE_COPY || !has_copied_ranges(capture, first, end))
        return false;
    ask_ranges(capture, first, end);
    if (capture->dirty == 0) {
        let_go_ranges(capture, first, end);
        return true;
    }
    if (capture->has_let_go)
        snap_phase_tear(capture);
    else
        capture->is_gated = true;
    return false;
}

enum snap_capture_outcome snap_capture_gate_ranges(struct snap_capture *capture,
                                                   enum sw_snap_gate how, uint32_t first,
                                                   uint32_t count, uint64_t deadline_ns)
{
    if (mover_is_forked(&capture->guard))
        return SNAP_CAPTURE_NONE;
    pthread_mutex_lock(&capture->lock);
    const uint64_t entered_ns = enter_gate(capture);
    const uint32_t end = (uint32_t)mover_min_u64((uint64_t)first + count, capture->parts_count);
    capture->wanted = first;
    capture->wanted_end = end;
    if (how == SW_SNAP_SKIP && is_under_way(capture) && !has_copied_ranges(capture, first, end))
        snap_phase_give_up(capture, SNAP_CAPTURE_SKIPPED);
    bool may_go = false;
    while (is_under_way(capture) && !may_go) {
        may_go = !capture->is_gated && try_let_go(capture, first, end);
        if (capture->phase == SNAP_PHASE_HOLD)
            snap_phase_gate(capture);
        if (is_under_way(capture) && !may_go)
            help_or_wait(capture, how, deadline_ns);
    }
    capture->wanted = capture->wanted_end = 0;
    return leave_gate(capture, entered_ns);
}
