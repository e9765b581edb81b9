/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Sinks come and go: one that is lost is closed, and a thread tries to open it again when the next
 * snapshot begins, so that neither the program nor the other sinks wait for it. It has a part in
 * the snapshot after that.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/serve/thread.h"
#include "snapshot/session/session.h"
#include "snapshot/session/status.h"

enum { SMALL_BYTES_EXPECTED = 4 << 20 };

uint64_t snap_sink_volume_bytes(const struct sw_snap *snap)
{
    if (snap->options.volume_bytes)
        return snap->options.volume_bytes;
    if (!snap->state)
        return 0;
    return snap_store_bytes_for(&snap->state->cut, snap->state->index_bytes, SMALL_BYTES_EXPECTED,
                                snap->options.keep + 1);
}

enum sw_snap_status snap_sink_open(struct snap_sink *sink, uint64_t bytes, bool take_over,
                                   struct snap_store **store, struct sw_snap_error *error)
{
    const struct sw_snap *snap = sink->snap;
    const struct snap_medium_options how = {
        .is_writable = true,
        .take_over = take_over,
        .bytes = bytes,
        .writer = snap->writer,
        .local = snap->options.local,
        .connect_timeout_ms = snap->options.connect_timeout_ms,
        .stall_timeout_ms = snap->options.stall_timeout_ms,
    };
    const struct snap_store_options options = {
        .is_writable = true,
        .rank = snap->options.rank,
        .world = snap->options.world,
        .seed = snap->seed,
        .writer = snap->writer,
        .timeout_ms = snap->options.stall_timeout_ms,
    };
    struct snap_medium *medium;
    char why[256] = "";
    struct sw_snap_error open_error = {0};
    int result = snap_medium_open(sink->text, &how, why, sizeof(why), &medium);
    sink->is_missing = result == -ENOENT;
    if (result)
        return snap_error_at(error, snap_status_of(result), sink->text,
                             *why ? why : strerror(-result));
    if (snap->ring && (result = medium->ops->use(medium, snap->ring, snap->ring_bytes))) {
        medium->ops->close(medium);
        return snap_error_set(error, snap_status_of(result), "%.200s cannot use the ring: %s",
                              sink->text, strerror(-result));
    }
    const enum sw_snap_status status = snap_store_open(medium, &options, &open_error, store);
    if (!status)
        return SW_SNAP_OK;
    return snap_error_at(error, status, sink->text, open_error.text);
}

void snap_sink_opened(struct snap_sink *sink, struct snap_store *store,
                      const struct sw_snap_error *error)
{
    sink->store = store;
    sink->stage = store ? SNAP_SINK_IDLE : SNAP_SINK_GONE;
    sink->is_failing = false;
    sink->units = 0;
    sink->error = store ? (struct sw_snap_error){0} : *error;
}

void snap_sink_drop(struct snap_sink *sink)
{
    struct snap_store *store = sink->store;
    if (!store)
        return;
    /* What is under way comes back by its callbacks, which have no medium to look at then. */
    sink->stage = SNAP_SINK_GONE;
    snap_store_close(store);
    sink->store = NULL;
    sink->stage = SNAP_SINK_GONE;
    sink->is_failing = false;
    sink->has_newest = false;
}

uint32_t snap_sinks_live(struct sw_snap *snap, struct sw_snap_error *error)
{
    uint32_t live = 0;
    for (uint32_t i = 0; i < snap->options.sinks_count; i++) {
        struct snap_sink *sink = &snap->sinks[i];
        if (snap_sink_is_live(sink) && !sink->is_failing)
            live++;
        else if (error && (!error->status || sink->error.status == SW_SNAP_FENCED) &&
                 sink->error.status)
            *error = sink->error;
    }
    return live;
}

/* A sink that another program has taken over would have to be taken from it again: never. */
static bool may_reopen(const struct snap_sink *sink)
{
    return sink->stage == SNAP_SINK_GONE && sink->error.status != SW_SNAP_FENCED;
}

static void *reopen_sinks(void *context)
{
    struct sw_snap *snap = context;
    for (uint32_t i = 0; i < snap->options.sinks_count; i++) {
        struct snap_sink *sink = &snap->sinks[i];
        struct snap_store *store = NULL;
        struct sw_snap_error error = {0};
        snap_session_lock(snap);
        const bool is_wanted = sink->stage == SNAP_SINK_OPENING && !snap->is_closing;
        const uint64_t bytes = snap_sink_volume_bytes(snap);
        snap_session_unlock(snap);
        if (is_wanted)
            snap_sink_open(sink, bytes, false, &store, &error);
        else
            snap_error_set(&error, SW_SNAP_LOST, "%.200s was not opened again", sink->text);
        snap_session_lock(snap);
        if (sink->stage == SNAP_SINK_OPENING)
            snap_sink_opened(sink, store, &error);
        snap_session_unlock(snap);
    }
    snap_session_lock(snap);
    snap->is_opening = false;
    snap_session_wake(snap);
    pthread_cond_broadcast(&snap->changed);
    snap_session_unlock(snap);
    return NULL;
}

void snap_sinks_reopen(struct sw_snap *snap)
{
    uint32_t count = 0;
    if (snap->is_opening || snap->is_closing)
        return;
    for (uint32_t i = 0; i < snap->options.sinks_count; i++)
        if (may_reopen(&snap->sinks[i])) {
            snap->sinks[i].stage = SNAP_SINK_OPENING;
            count++;
        }
    if (!count)
        return;
    if (snap->has_opener)
        pthread_join(snap->opener, NULL); /* it has ended: is_opening is false */
    snap->has_opener = snap->is_opening = !mover_thread_start(&snap->opener, reopen_sinks, snap);
    for (uint32_t i = 0; !snap->is_opening && i < snap->options.sinks_count; i++)
        if (snap->sinks[i].stage == SNAP_SINK_OPENING)
            snap->sinks[i].stage = SNAP_SINK_GONE;
}
