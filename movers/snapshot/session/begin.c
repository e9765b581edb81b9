/* SPDX-License-Identifier: BSD-2-Clause */
/* A snapshot begins: room on the sinks first, then the capture, then the votes of other ranks. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "common/time/clock.h"
#include "snapshot/session/session.h"
#include "snapshot/session/status.h"

enum {
    DRAIN_MS = 20,    /* for what a snapshot leaves that has failed */
    FORGET_MS = 1000, /* for sinks that are told to forget what is not kept: two flushes */
    RANKS_MS = 1000,  /* for ranks that begin this step, but did not begin the one before */
};

/* The last one is durable, and told; no sink gets it any more. A program that begins another one
 * then has done nothing wrong. */
static bool is_only_forgetting(const struct sw_snap *snap)
{
    for (uint32_t i = 0; i < snap->options.sinks_count; i++) {
        const enum snap_sink_stage stage = snap->sinks[i].stage;
        if (stage == SNAP_SINK_WRITING || stage == SNAP_SINK_PREPARING)
            return false;
    }
    return snap->save.stage == SW_SNAP_DURABLE;
}

static bool is_forgetting(const struct sw_snap *snap)
{
    bool is_any = false;
    for (uint32_t i = 0; i < snap->options.sinks_count; i++)
        is_any |= snap->sinks[i].stage == SNAP_SINK_FORGETTING ||
                  snap->sinks[i].stage == SNAP_SINK_PREPARED;
    return is_any && snap->save.stage == SW_SNAP_DURABLE;
}

static struct timespec time_in_ms(uint32_t wait_ms)
{
    const uint64_t until_ns = mover_now_ns() + wait_ms * NS_PER_MS;
    return (struct timespec){.tv_sec = (time_t)(until_ns / NS_PER_S),
                             .tv_nsec = (long)(until_ns % NS_PER_S)};
}

void snap_session_settle(struct sw_snap *snap)
{
    const struct timespec until = time_in_ms(FORGET_MS);
    snap_session_lock(snap);
    while (is_forgetting(snap))
        if (pthread_cond_timedwait(&snap->changed, &snap->lock, &until))
            break;
    snap_session_unlock(snap);
}

static bool wait_idle(struct sw_snap *snap)
{
    if (snap_session_is_idle(snap))
        return true;
    const bool is_voting = snap->ranks && !snap->save.is_agreed;
    uint32_t wait_ms = is_voting ? RANKS_MS : DRAIN_MS;
    if (snap->save.is_active && !is_voting && snap->save.stage != SW_SNAP_FAILED) {
        if (!is_only_forgetting(snap))
            return false;
        wait_ms = FORGET_MS;
    }
    const struct timespec until = time_in_ms(wait_ms);
    while (!snap_session_is_idle(snap))
        if (pthread_cond_timedwait(&snap->changed, &snap->lock, &until))
            break;
    return snap_session_is_idle(snap);
}

static void vote_begin(struct sw_snap *snap, uint64_t step, const struct sw_snap_error *error)
{
    struct snap_vote vote = {.step = step, .phase = SNAP_PHASE_BEGIN};
    if (!snap->ranks)
        return;
    if (error) {
        vote.status = error->status;
        snprintf(vote.why, sizeof(vote.why), "%.159s", error->text);
    }
    snap_ranks_ask(snap->ranks, &vote);
}

static enum sw_snap_status check_begin(const struct sw_snap *snap,
                                       const struct sw_snap_point *point,
                                       struct sw_snap_error *error)
{
    if (!snap->state)
        return snap_error_set(error, SW_SNAP_INVALID, "the state was not described yet");
    if (!point || (point->small_bytes && !point->small))
        return snap_error_set(error, SW_SNAP_INVALID, "there is no point, or no small state");
    if (point->small_bytes > SNAP_SMALL_BYTES_MAX)
        return snap_error_set(error, SW_SNAP_INVALID, "small state has up to 16 MiB, not %u bytes",
                              point->small_bytes);
    if (snap->has_begun && point->step <= snap->save.step)
        return snap_error_set(error, SW_SNAP_INVALID,
                              "step %" PRIu64 " does not come after step %" PRIu64, point->step,
                              snap->save.step);
    return SW_SNAP_OK;
}

/* A clock may be put back, and a program may go on from an older step: what is begun later is newer
 * all the same, by the time and then by the step. */
static uint64_t time_after(const struct sw_snap *snap, uint64_t step)
{
    uint64_t at = (uint64_t)time(NULL);
    for (uint32_t i = 0; i < snap->options.sinks_count; i++) {
        struct snap_store_info info;
        if (!snap_sink_is_live(&snap->sinks[i]))
            continue;
        snap_store_info_of(snap->sinks[i].store, &info);
        if (!info.entries_count)
            continue;
        const struct snap_entry *last = &info.entries[info.entries_count - 1];
        if (at <= last->taken_at)
            at = last->taken_at + (step <= last->step && last->taken_at < UINT64_MAX);
    }
    return at;
}

/* Room on all sinks that are there. A sink without it has no part in this snapshot. */
static enum sw_snap_status reserve_on_sinks(struct sw_snap *snap, const struct sw_snap_point *point,
                                            struct sw_snap_error *error)
{
    struct sw_snap_error first = {0};
    uint32_t reserved = 0;
    struct snap_plan plan = {.step = point->step,
                             .taken_at = time_after(snap, point->step),
                             .cut = &snap->state->cut,
                             .index = &snap->state->index,
                             .small = point->small,
                             .small_bytes = point->small_bytes,
                             .seed = snap->seed};
    snap_save_token(snap, point->step, plan.token);
    if (snap_sinks_live(snap, &first) < snap->options.quorum)
        return snap_error_set(error, first.status ? first.status : SW_SNAP_LOST, "%s", first.text);
    for (uint32_t i = 0; i < snap->options.sinks_count; i++) {
        struct snap_sink *sink = &snap->sinks[i];
        struct sw_snap_error why = {0};
        if (!snap_sink_is_live(sink) || sink->is_failing)
            continue;
        sink->has_newest = false;
        const enum sw_snap_status status = snap_store_begin(sink->store, &plan, &why);
        if (!status) {
            sink->stage = SNAP_SINK_WRITING;
            sink->error = (struct sw_snap_error){0};
            reserved++;
            continue;
        }
        snap_error_at(&sink->error, status, sink->text, why.text);
        if (!first.status)
            first = sink->error;
    }
    if (reserved >= snap->options.quorum)
        return SW_SNAP_OK;
    return snap_error_set(error, first.status, "%s", first.text);
}

static enum sw_snap_status begin_capture(struct sw_snap *snap, struct sw_snap_error *error)
{
    uint32_t bad = 0;
    const struct snap_index *index = &snap->state->index;
    const int result = snap_capture_begin(snap->capture, &bad);
    if (!result)
        return SW_SNAP_OK;
    if (result == -EFAULT)
        return snap_error_set(error, SW_SNAP_INVALID, "%s is not mapped any more",
                              bad < index->ranges_count ? index->ranges[bad].name : "?");
    return snap_error_set(error, result == -EBUSY ? SW_SNAP_BUSY : snap_status_of(result),
                          "the capture does not begin: %s", strerror(-result));
}

/* The snapshot that has begun; or, where `error` is set, that could not: sinks that have begun it
 * give it up. */
static void enter_save(struct sw_snap *snap, uint64_t step, const struct sw_snap_error *error)
{
    snap->save = (struct snap_save){.is_active = true,
                                    .step = step,
                                    .stage = SW_SNAP_CAPTURING,
                                    .state = snap->state,
                                    .begun_ns = mover_now_ns()};
    snap->save.state->references++;
    snap->has_begun = true;
    if (error->status) {
        snap->save.stage = SW_SNAP_FAILED;
        snap->save.error = *error;
        snap->failed++;
        vote_begin(snap, step, error);
    } else {
        snap->save.is_gate_due = true;
        vote_begin(snap, step, NULL);
    }
    snap_sinks_reopen(snap);
    snap_session_wake(snap);
}

enum sw_snap_status sw_snap_begin(struct sw_snap *snap, const struct sw_snap_point *point,
                                  struct sw_snap_error *error)
{
    struct sw_snap_error why = {0};
    if (error)
        *error = why;
    if (mover_is_forked(&snap->guard))
        return snap_error_plain(error, SW_SNAP_FORKED);
    snap_session_lock(snap);
    enum sw_snap_status status = check_begin(snap, point, &why);
    if (!status && !wait_idle(snap))
        status =
            snap_error_set(&why, SW_SNAP_BUSY,
                           "the snapshot of step %" PRIu64 " is still under way", snap->save.step);
    if (!status) {
        status = reserve_on_sinks(snap, point, &why);
        if (!status)
            status = begin_capture(snap, &why);
        enter_save(snap, point->step, &why);
    }
    snap_session_unlock(snap);
    if (status && error)
        *error = why;
    return status;
}
