/* SPDX-License-Identifier: BSD-2-Clause */
/* What the program asks while a snapshot is under way: may it write, how far is it, is it there. */
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/time/clock.h"
#include "snapshot/session/session.h"
#include "snapshot/session/status.h"

/* Whether the gate has anything to wait for, and how many ranges there are. Else, how the snapshot
 * has failed, once. */
static bool must_gate(struct sw_snap *snap, enum sw_snap_status *status, uint32_t *ranges)
{
    *status = SW_SNAP_OK;
    snap_session_lock(snap);
    *ranges = snap->save.state ? snap->save.state->cut.ranges_count : 0;
    const bool is_due = snap->save.is_gate_due;
    const bool is_capturing = snap->save.is_active && snap->save.stage == SW_SNAP_CAPTURING;
    if (is_due && !is_capturing) {
        snap->save.is_gate_due = false;
        if (snap->save.stage == SW_SNAP_FAILED)
            *status = snap->save.error.status;
    }
    snap_session_unlock(snap);
    return is_due && is_capturing;
}

static enum sw_snap_status gate_ended(struct sw_snap *snap, enum snap_capture_outcome outcome)
{
    enum sw_snap_status status = SW_SNAP_OK;
    snap_session_lock(snap);
    snap_save_look(snap);
    if (outcome != SNAP_CAPTURE_UNDER_WAY) {
        snap->save.is_gate_due = false;
        if (snap->save.stage == SW_SNAP_FAILED)
            status = snap->save.error.status;
    }
    snap_session_unlock(snap);
    snap_session_wake(snap);
    return status;
}

static bool is_gate(enum sw_snap_gate how)
{
    return how == SW_SNAP_WAIT || how == SW_SNAP_HELP || how == SW_SNAP_SKIP;
}

enum sw_snap_status sw_snap_gate(struct sw_snap *snap, enum sw_snap_gate how, uint64_t deadline_ns)
{
    enum sw_snap_status status;
    uint32_t ranges;
    if (mover_is_forked(&snap->guard))
        return SW_SNAP_FORKED;
    if (!is_gate(how))
        return SW_SNAP_INVALID;
    if (!must_gate(snap, &status, &ranges))
        return status;
    return gate_ended(snap, snap_capture_gate(snap->capture, how, deadline_ns));
}

enum sw_snap_status sw_snap_gate_ranges(struct sw_snap *snap, enum sw_snap_gate how, uint32_t first,
                                        uint32_t count, uint64_t deadline_ns)
{
    enum sw_snap_status status;
    uint32_t ranges;
    if (mover_is_forked(&snap->guard))
        return SW_SNAP_FORKED;
    if (!is_gate(how))
        return SW_SNAP_INVALID;
    if (!must_gate(snap, &status, &ranges))
        return status;
    if (first > ranges || count > ranges - first)
        return SW_SNAP_INVALID;
    return gate_ended(snap,
                      snap_capture_gate_ranges(snap->capture, how, first, count, deadline_ns));
}

static void sink_info(struct snap_sink *sink, struct sw_snap_sink_info *info)
{
    struct snap_store_info store;
    snprintf(info->sink, sizeof(info->sink), "%.127s", sink->text);
    info->is_live = snap_sink_is_live(sink);
    info->has_newest = sink->has_newest || sink->stage == SNAP_SINK_PREPARED;
    info->written_bytes = sink->written_bytes;
    info->error = sink->error;
    if (!info->is_live)
        return;
    snap_store_info_of(sink->store, &store);
    info->bytes = store.blocks * SNAP_BLOCK_BYTES;
    info->free_bytes = store.free_blocks * SNAP_BLOCK_BYTES;
    snprintf(info->note, sizeof(info->note), "%s", snap_store_medium(sink->store)->note);
}

void sw_snap_info_of(struct sw_snap *snap, struct sw_snap_info *info)
{
    uint64_t count;
    memset(info, 0, sizeof(*info));
    if (mover_is_forked(&snap->guard)) {
        info->stage = SW_SNAP_FAILED;
        snap_error_plain(&info->error, SW_SNAP_FORKED);
        return;
    }
    snap_session_lock(snap);
    const struct snap_save *save = &snap->save;
    (void)!read(snap->told_fd, &count, sizeof(count));
    snap_save_look(snap);
    info->stage = snap->has_begun ? save->stage : SW_SNAP_IDLE;
    info->error = save->error;
    info->step = save->step;
    info->durable_step = snap->durable_step;
    info->has_durable = snap->has_durable;
    info->state_bytes = snap->state ? snap->state->bytes : 0;
    info->copied_bytes = save->copied_bytes;
    info->changed_bytes = save->changed_bytes;
    info->moved_bytes = save->moved_bytes;
    info->begun_ns = save->begun_ns;
    info->staged_ns = save->staged_ns;
    info->stored_ns = save->stored_ns;
    info->durable_ns = save->durable_ns;
    info->gate_ns = save->gate_ns;
    info->gate_bytes = save->gate_bytes;
    info->taken = snap->taken;
    info->failed = snap->failed;
    info->skipped = snap->skipped;
    info->torn = snap->torn;
    info->sinks_count = snap->options.sinks_count;
    for (uint32_t i = 0; i < info->sinks_count; i++)
        sink_info(&snap->sinks[i], &info->sinks[i]);
    snap_session_unlock(snap);
}

/* Durable, and a sink that has it does not clean up any more: the next one may begin. */
static bool sinks_settled(const struct sw_snap *snap)
{
    for (uint32_t i = 0; i < snap->options.sinks_count; i++)
        if (snap->sinks[i].stage == SNAP_SINK_PREPARED ||
            snap->sinks[i].stage == SNAP_SINK_FORGETTING)
            return false;
    return true;
}

static bool stage_has_come(const struct sw_snap *snap, enum sw_snap_stage stage)
{
    const enum sw_snap_stage now = snap->has_begun ? snap->save.stage : SW_SNAP_IDLE;
    if (stage == SW_SNAP_IDLE)
        return snap_session_is_idle(snap);
    if (now == SW_SNAP_FAILED)
        return true;
    if (stage == SW_SNAP_DURABLE)
        return now == SW_SNAP_DURABLE && sinks_settled(snap);
    return now == SW_SNAP_STAGED || now == SW_SNAP_DURABLE;
}

enum sw_snap_status sw_snap_wait(struct sw_snap *snap, enum sw_snap_stage stage,
                                 uint64_t deadline_ns, struct sw_snap_error *error)
{
    const struct timespec until = {.tv_sec = (time_t)(deadline_ns / NS_PER_S),
                                   .tv_nsec = (long)(deadline_ns % NS_PER_S)};
    enum sw_snap_status status = SW_SNAP_OK;
    struct sw_snap_error why = {0};
    if (error)
        *error = why;
    if (mover_is_forked(&snap->guard))
        return snap_error_plain(error, SW_SNAP_FORKED);
    if (stage != SW_SNAP_IDLE && stage != SW_SNAP_STAGED && stage != SW_SNAP_DURABLE)
        return snap_error_set(error, SW_SNAP_INVALID, "that stage cannot be waited for");
    snap_session_lock(snap);
    if (!snap->has_begun && stage != SW_SNAP_IDLE)
        status = snap_error_set(&why, SW_SNAP_AGAIN, "no snapshot was begun");
    while (!status && !stage_has_come(snap, stage)) {
        const int code = deadline_ns ? pthread_cond_timedwait(&snap->changed, &snap->lock, &until)
                                     : pthread_cond_wait(&snap->changed, &snap->lock);
        snap_save_look(snap);
        if (code && !stage_has_come(snap, stage))
            status = snap_error_plain(&why, SW_SNAP_TIMEOUT);
    }
    if (!status && stage != SW_SNAP_IDLE && snap->save.stage == SW_SNAP_FAILED) {
        why = snap->save.error;
        status = why.status;
    }
    snap_session_unlock(snap);
    if (status && error)
        *error = why;
    return status;
}

int sw_snap_fd(const struct sw_snap *snap)
{
    return snap->told_fd;
}
