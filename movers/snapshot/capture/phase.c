/* SPDX-License-Identifier: BSD-2-Clause */
#include <assert.h>
#include <string.h>
#include <sys/eventfd.h>

#include "common/time/clock.h"
#include "snapshot/capture/inside.h"
#include "snapshot/capture/plant.h"

static bool is_copying(enum snap_phase phase)
{
    return phase == SNAP_PHASE_COPY || phase == SNAP_PHASE_COPY_AGAIN;
}

/* Whether a unit has a job in a phase. */
static bool takes_part(const struct snap_unit *unit, enum snap_phase phase)
{
    switch (phase) {
    case SNAP_PHASE_SUM:
    case SNAP_PHASE_LOOK_AGAIN:
        return unit->head + unit->tail > 0;
    case SNAP_PHASE_COPY:
        return true;
    case SNAP_PHASE_COPY_AGAIN:
        return unit->is_dirty;
    case SNAP_PHASE_NONE:
    case SNAP_PHASE_FORGET:
    case SNAP_PHASE_ASK:
    case SNAP_PHASE_HOLD:
        break;
    }
    return false;
}

static void end_capture(struct snap_capture *capture, enum snap_capture_outcome outcome)
{
    capture->phase = SNAP_PHASE_NONE;
    capture->round++;
    capture->todo = capture->running = 0;
    capture->pages_todo = false;
    capture->info.outcome = outcome;
    capture->info.ended_ns = mover_now_ns();
    pthread_cond_broadcast(&capture->progress);
    eventfd_write(capture->event_fd, 1);
}

void snap_phase_give_up(struct snap_capture *capture, enum snap_capture_outcome outcome)
{
    if (capture->info.outcome != SNAP_CAPTURE_UNDER_WAY)
        return;
    snap_ring_drop_queue(&capture->ring);
    end_capture(capture, outcome);
}

void snap_phase_tear(struct snap_capture *capture)
{
    for (uint32_t i = 0; i < capture->units_count; i++)
        for (uint32_t k = 0; capture->units[i].is_dirty && k < capture->units[i].pieces_count; k++)
            capture->parts[capture->units[i].pieces[k].range].is_torn = true;
    snap_phase_give_up(capture, SNAP_CAPTURE_TORN);
}

/* Between two phases nobody reads what sums are to look at. */
static void unwatch_lost(struct snap_capture *capture)
{
    for (uint32_t i = 0; i < capture->parts_count; i++)
        if (capture->parts[i].is_lost)
            snap_state_unwatch(capture, &capture->parts[i]);
}

static void enter_phase(struct snap_capture *capture, enum snap_phase phase)
{
    unwatch_lost(capture);
    capture->looks += capture->phase == SNAP_PHASE_COPY_AGAIN && phase == SNAP_PHASE_LOOK_AGAIN;
    capture->phase = phase;
    capture->round++;
    capture->cursor = 0;
    capture->todo = capture->running = 0;
    for (uint32_t i = 0; i < capture->units_count; i++) {
        struct snap_unit *unit = &capture->units[i];
        unit->is_todo = takes_part(unit, phase);
        unit->is_running = false;
        capture->todo += unit->is_todo;
    }
    capture->pages_todo =
        capture->is_by_pages &&
        (phase == SNAP_PHASE_FORGET || phase == SNAP_PHASE_ASK || phase == SNAP_PHASE_LOOK_AGAIN);
    pthread_cond_broadcast(&capture->work);
    pthread_cond_broadcast(&capture->progress);
}

/* All has been copied and looked at. */
static void settle_capture(struct snap_capture *capture)
{
    if (capture->dirty == 0)
        end_capture(capture, SNAP_CAPTURE_CLEAN);
    else if (capture->has_let_go || capture->looks >= capture->options.looks_max)
        snap_phase_tear(capture);
    else
        enter_phase(capture, capture->is_gated ? SNAP_PHASE_COPY_AGAIN : SNAP_PHASE_HOLD);
}

/* The end of the copies is the instant then, not their beginning. */
static bool looks_behind(const struct snap_capture *capture)
{
    return capture->is_copy_first && !SNAP_IS_PLANTED(SNAP_PLANT_FIRST);
}

/* Phases end when their last job has; one without jobs ends at once. */
static void advance_phases(struct snap_capture *capture)
{
    while (capture->phase != SNAP_PHASE_NONE && capture->phase != SNAP_PHASE_HOLD &&
           capture->todo == 0 && capture->running == 0 && !capture->pages_todo) {
        switch (capture->phase) {
        case SNAP_PHASE_FORGET:
            enter_phase(capture, capture->options.look == SW_SNAP_LOOK_NEVER ? SNAP_PHASE_COPY
                                                                             : SNAP_PHASE_SUM);
            break;
        case SNAP_PHASE_SUM:
            enter_phase(capture, SNAP_PHASE_COPY);
            break;
        case SNAP_PHASE_COPY:
            enter_phase(capture, looks_behind(capture) ? SNAP_PHASE_LOOK_AGAIN : SNAP_PHASE_ASK);
            break;
        case SNAP_PHASE_COPY_AGAIN:
            enter_phase(capture, SNAP_PHASE_LOOK_AGAIN);
            break;
        case SNAP_PHASE_ASK:
        case SNAP_PHASE_LOOK_AGAIN:
            settle_capture(capture);
            break;
        case SNAP_PHASE_NONE:
        case SNAP_PHASE_HOLD:
            break;
        }
    }
}

void snap_phase_begin(struct snap_capture *capture)
{
    for (uint32_t i = 0; i < capture->units_count; i++) {
        struct snap_unit *unit = &capture->units[i];
        unit->is_copied = unit->is_dirty = false;
    }
    for (uint32_t i = 0; i < capture->parts_count; i++)
        capture->parts[i].is_torn = capture->parts[i].is_let_go = false;
    capture->number++;
    capture->dirty = capture->looks = 0;
    capture->is_gated = capture->has_let_go = capture->is_copy_first = false;
    capture->wanted = capture->wanted_end = 0;
    const uint64_t state_bytes = capture->info.state_bytes;
    capture->info = (struct snap_capture_info){.outcome = SNAP_CAPTURE_UNDER_WAY,
                                               .units = capture->units_count,
                                               .state_bytes = state_bytes,
                                               .begun_ns = mover_now_ns()};
    enter_phase(capture, SNAP_PHASE_FORGET);
    advance_phases(capture);
}

void snap_phase_gate(struct snap_capture *capture)
{
    capture->is_gated = true;
    if (capture->phase == SNAP_PHASE_HOLD) {
        enter_phase(capture, SNAP_PHASE_COPY_AGAIN);
    } else if (capture->phase == SNAP_PHASE_SUM && capture->todo * 2 > capture->units_count) {
        /* The sinks get copies while the rest is still to be looked at: they need not wait until
         * all is summed. What was summed, less than half, is looked at once more. */
        capture->is_copy_first = !SNAP_IS_PLANTED(SNAP_PLANT_ALONE);
        if (capture->is_copy_first)
            enter_phase(capture, SNAP_PHASE_COPY);
    }
}

/* ---- jobs ---- */

/* A unit of the ranges that a gate waits for; UINT32_MAX: these are all done. */
static uint32_t find_wanted(struct snap_capture *capture)
{
    for (; capture->wanted < capture->wanted_end; capture->wanted++) {
        const struct snap_part *part = &capture->parts[capture->wanted];
        for (uint32_t i = 0; i < part->units_count; i++)
            if (capture->units[part->first_unit + i].is_todo)
                return part->first_unit + i;
        if (capture->phase != SNAP_PHASE_COPY)
            break; /* they are wanted again in a later phase */
    }
    return UINT32_MAX;
}

static void start_job(struct snap_capture *capture, struct snap_job *job)
{
    if (job->unit != SNAP_ALL_PAGES) {
        job->head = capture->units[job->unit].head;
        job->tail = capture->units[job->unit].tail;
    }
    capture->busy++;
}

static void plan_job(const struct snap_capture *capture, struct snap_job *job)
{
    *job = (struct snap_job){.phase = capture->phase,
                             .round = capture->round,
                             .unit = SNAP_ALL_PAGES,
                             .slot = SNAP_NO_SLOT};
}

/* False: the ring is full; with the next release it goes on. */
static bool find_slot(struct snap_capture *capture, struct snap_job *job)
{
    if (is_copying(capture->phase))
        job->slot = snap_ring_get(&capture->ring);
    return !is_copying(capture->phase) || job->slot != SNAP_NO_SLOT;
}

bool snap_phase_next(struct snap_capture *capture, struct snap_job *job)
{
    plan_job(capture, job);
    if (capture->pages_todo)
        capture->pages_todo = false;
    else {
        if (capture->todo == 0 || !find_slot(capture, job))
            return false;
        job->unit = find_wanted(capture);
        if (job->unit == UINT32_MAX) {
            while (!capture->units[capture->cursor].is_todo)
                capture->cursor++;
            job->unit = capture->cursor;
        }
        capture->units[job->unit].is_todo = false;
        capture->units[job->unit].is_running = true;
        capture->todo--;
    }
    capture->running++;
    start_job(capture, job);
    return true;
}

bool snap_phase_steal(struct snap_capture *capture, struct snap_job *job)
{
    plan_job(capture, job);
    if (capture->todo > 0 || capture->running == 0)
        return false;
    for (job->unit = 0; job->unit < capture->units_count; job->unit++)
        if (capture->units[job->unit].is_running)
            break;
    if (job->unit == capture->units_count || !find_slot(capture, job))
        return false;
    start_job(capture, job);
    return true;
}

/* Compares the blocks that sums tell of. */
static bool has_other_sums(const struct snap_capture *capture, const struct snap_job *job)
{
    const struct snap_unit *unit = &capture->units[job->unit];
    const struct snap_sum *seen = capture->seen + unit->first_sum;
    const uint32_t tail = unit->blocks - job->tail;
    if (SNAP_IS_PLANTED(SNAP_PLANT_LOOK) || SNAP_IS_PLANTED(SNAP_PLANT_EARLY))
        return false;
    return memcmp(seen, job->sums, job->head * sizeof(*seen)) != 0 ||
           memcmp(seen + tail, job->sums + tail, job->tail * sizeof(*seen)) != 0;
}

static void mark_unit(struct snap_capture *capture, uint32_t unit)
{
    capture->dirty += !capture->units[unit].is_dirty;
    capture->units[unit].is_dirty = true;
}

static void end_copy(struct snap_capture *capture, const struct snap_job *job)
{
    struct snap_unit *unit = &capture->units[job->unit];
    struct snap_slot *slot = &capture->ring.slots[job->slot];
    const uint32_t bytes = unit->blocks * SNAP_BLOCK_BYTES;
    const bool is_first = job->phase == SNAP_PHASE_COPY;
    *slot = (struct snap_slot){
        .state = slot->state, .unit = job->unit, .bytes = bytes, .is_again = unit->is_copied};
    snap_ring_queue(&capture->ring, job->slot);
    capture->info.copied_bytes += bytes;
    capture->info.changed_bytes += is_first ? 0 : bytes;
    capture->info.units_copied += is_first;
    unit->is_copied = true;
    capture->dirty -= unit->is_dirty;
    unit->is_dirty = false;
    if (is_first && !capture->is_copy_first && capture->options.look != SW_SNAP_LOOK_NEVER &&
        has_other_sums(capture, job))
        mark_unit(capture, job->unit);
    memcpy(capture->seen + unit->first_sum, job->sums, unit->blocks * sizeof(*job->sums));
    eventfd_write(capture->event_fd, 1);
}

/* The first look at a unit. */
static void end_sum(struct snap_capture *capture, const struct snap_job *job)
{
    const struct snap_unit *unit = &capture->units[job->unit];
    struct snap_sum *seen = capture->seen + unit->first_sum;
    const uint32_t tail = unit->blocks - job->tail;
    memcpy(seen, job->sums, job->head * sizeof(*seen));
    memcpy(seen + tail, job->sums + tail, job->tail * sizeof(*seen));
}

void snap_phase_mark_written(struct snap_capture *capture)
{
    for (uint32_t i = 0; i < capture->units_count; i++) {
        if (capture->written[i])
            mark_unit(capture, i);
        capture->written[i] = false;
    }
}

static bool is_late(const struct snap_capture *capture, const struct snap_job *job)
{
    return job->round != capture->round ||
           (job->unit != SNAP_ALL_PAGES && !capture->units[job->unit].is_running);
}

/* It counts, and is no failure. */
static void end_in_time(struct snap_capture *capture, const struct snap_job *job)
{
    if (job->unit == SNAP_ALL_PAGES)
        snap_phase_mark_written(capture);
    else if (is_copying(job->phase))
        end_copy(capture, job);
    else if (job->phase == SNAP_PHASE_SUM)
        end_sum(capture, job);
    else if (has_other_sums(capture, job))
        mark_unit(capture, job->unit);
}

void snap_phase_end_job(struct snap_capture *capture, const struct snap_job *job)
{
    const bool counts = !is_late(capture, job);
    assert(capture->busy > 0);
    capture->busy--;
    if (counts) {
        assert(capture->running > 0);
        capture->running--;
        if (job->unit != SNAP_ALL_PAGES)
            capture->units[job->unit].is_running = false;
    }
    if (counts && !job->code)
        end_in_time(capture, job);
    else if (job->slot != SNAP_NO_SLOT)
        snap_ring_put(&capture->ring, job->slot);
    if (counts && job->code) {
        capture->parts[job->bad_range].is_torn = true;
        capture->info.code = job->code;
        snap_phase_give_up(capture, SNAP_CAPTURE_TORN);
    }
    advance_phases(capture);
    pthread_cond_broadcast(&capture->progress);
}

bool snap_phase_has_copied(const struct snap_capture *capture, const struct snap_part *part)
{
    for (uint32_t i = 0; i < part->units_count; i++) {
        const struct snap_unit *unit = &capture->units[part->first_unit + i];
        if (!unit->is_copied)
            return false;
    }
    return true;
}

uint64_t snap_phase_left_bytes(const struct snap_capture *capture)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < capture->units_count; i++)
        if (!capture->units[i].is_copied || capture->units[i].is_dirty)
            bytes += (uint64_t)capture->units[i].blocks * SNAP_BLOCK_BYTES;
    return bytes;
}
