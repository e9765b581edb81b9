/* SPDX-License-Identifier: BSD-2-Clause */
/* A handle is opened, told what the state is, and closed. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <unistd.h>

#include "common/serve/thread.h"
#include "snapshot/session/options.h"
#include "snapshot/session/session.h"
#include "snapshot/session/status.h"

/* ---- open ---- */

static void name_writer(struct sw_snap *snap)
{
    char host[24] = "?";
    gethostname(host, sizeof(host) - 1);
    host[sizeof(host) - 1] = 0;
    snprintf(snap->writer, sizeof(snap->writer), "%s %.16s %d", host, program_invocation_short_name,
             (int)getpid());
}

/* What needs no sink. */
static enum sw_snap_status session_open_parts(struct sw_snap *snap, struct sw_snap_error *error)
{
    pthread_condattr_t by_clock;
    pthread_mutex_init(&snap->door, NULL);
    pthread_mutex_init(&snap->lock, NULL);
    pthread_condattr_init(&by_clock);
    pthread_condattr_setclock(&by_clock, CLOCK_MONOTONIC);
    pthread_cond_init(&snap->changed, &by_clock);
    pthread_condattr_destroy(&by_clock);
    snap->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    snap->told_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (snap->wake_fd < 0 || snap->told_fd < 0)
        return snap_error_set(error, SW_SNAP_SYSTEM, "no descriptors: %s", strerror(errno));
    if (!mover_fork_guard_open(&snap->guard))
        return snap_error_plain(error, SW_SNAP_NO_MEMORY);
    if (getrandom(snap->nonce, sizeof(snap->nonce), 0) != sizeof(snap->nonce) ||
        getrandom(&snap->seed, sizeof(snap->seed), 0) != sizeof(snap->seed))
        return snap_error_set(error, SW_SNAP_SYSTEM, "no random numbers: %s", strerror(errno));
    name_writer(snap);
    for (uint32_t i = 0; i < snap->options.sinks_count; i++) {
        snap->sinks[i].snap = snap;
        snap->sinks[i].text = snap_sink_text(snap->options.sinks[i], snap->options.rank);
        if (!snap->sinks[i].text)
            return snap_error_plain(error, SW_SNAP_NO_MEMORY);
    }
    return SW_SNAP_OK;
}

/* Opens all that can be opened. Those whose volume is to be made wait for describe, unless the
 * options say how large it is. OK: a quorum is there, or may be. */
static enum sw_snap_status open_sinks(struct sw_snap *snap, struct sw_snap_error *error)
{
    struct sw_snap_error first = {0};
    uint32_t there = 0;
    bool has_seed = false;
    for (uint32_t i = 0; i < snap->options.sinks_count; i++) {
        struct snap_sink *sink = &snap->sinks[i];
        struct snap_store *store = NULL;
        struct sw_snap_error why = {0};
        struct snap_store_info info;
        const enum sw_snap_status status =
            snap_sink_open(sink, snap->options.volume_bytes, snap->options.take_over, &store, &why);
        snap_sink_opened(sink, store, &why);
        sink->is_missing &= !snap->options.volume_bytes;
        there += !status || sink->is_missing;
        if (status && !sink->is_missing && !first.status)
            first = why;
        if (status || has_seed)
            continue;
        snap_store_info_of(store, &info);
        snap->seed = info.seed;
        has_seed = true;
    }
    if (there >= snap->options.quorum)
        return SW_SNAP_OK;
    return snap_error_set(error, first.status, "%s", first.text);
}

static enum sw_snap_status open_capture(struct sw_snap *snap, struct sw_snap_error *error)
{
    const struct snap_capture_options options = {
        .ring_bytes = snap->options.ring_bytes,
        .unit_bytes = snap->options.unit_bytes,
        .helpers = snap->options.helpers,
        .looks_max = snap->options.looks_max,
        .look = snap->options.look,
        .seed = snap->seed,
    };
    struct snap_capture_info info;
    const int result = snap_capture_open(&options, &snap->capture);
    if (result)
        return snap_error_set(error, snap_status_of(result), "no ring of %llu bytes: %s",
                              (unsigned long long)options.ring_bytes, strerror(-result));
    snap->ring = snap_capture_ring(snap->capture, &snap->ring_bytes);
    snap_capture_info_of(snap->capture, &info);
    snap->held_count = info.slots;
    snap->held = calloc(info.slots, sizeof(*snap->held));
    return snap->held ? SW_SNAP_OK : snap_error_plain(error, SW_SNAP_NO_MEMORY);
}

/* The sinks that were opened before there was a ring. */
static enum sw_snap_status share_ring(struct sw_snap *snap, struct sw_snap_error *error)
{
    for (uint32_t i = 0; i < snap->options.sinks_count; i++) {
        struct snap_sink *sink = &snap->sinks[i];
        if (!snap_sink_is_live(sink))
            continue;
        struct snap_medium *medium = snap_store_medium(sink->store);
        const int result = medium->ops->use(medium, snap->ring, snap->ring_bytes);
        if (result)
            return snap_error_set(error, snap_status_of(result), "%.200s cannot use the ring: %s",
                                  sink->text, strerror(-result));
    }
    return SW_SNAP_OK;
}

static enum sw_snap_status session_open_all(struct sw_snap *snap, struct sw_snap_error *error)
{
    struct sw_snap_error mine = {0};
    enum sw_snap_status status = session_open_parts(snap, error);
    if (status)
        return status;
    status = open_sinks(snap, &mine);
    if (!status)
        status = open_capture(snap, &mine);
    if (!status)
        status = share_ring(snap, &mine);
    if (snap->options.world > 1) {
        const enum sw_snap_status met =
            snap_ranks_open(&snap->options, snap->wake_fd, &mine, snap->nonce, error, &snap->ranks);
        status = status ? status : met;
    }
    if (mine.status)
        return snap_error_set(error, mine.status, "%s", mine.text);
    if (status)
        return status;
    if (mover_thread_start(&snap->thread, snap_session_run, snap))
        return snap_error_set(error, SW_SNAP_SYSTEM, "no thread for the sinks");
    snap->has_thread = true;
    return SW_SNAP_OK;
}

enum sw_snap_status sw_snap_open(const struct sw_snap_options *options, struct sw_snap_error *error,
                                 struct sw_snap **snap)
{
    struct sw_snap_error why = {0};
    *snap = NULL;
    if (error)
        *error = why;
    else
        error = &why;
    struct sw_snap *made = calloc(1, sizeof(*made));
    if (!made)
        return snap_error_plain(error, SW_SNAP_NO_MEMORY);
    made->wake_fd = made->told_fd = -1;
    enum sw_snap_status status = snap_options_take(&made->options, options, error);
    if (status) {
        free(made);
        return status;
    }
    status = session_open_all(made, error);
    if (status)
        sw_snap_close(made);
    else
        *snap = made;
    return status;
}

/* ---- close ---- */

static void free_session(struct sw_snap *snap)
{
    for (uint32_t i = 0; i < snap->options.sinks_count; i++)
        free(snap->sinks[i].text);
    if (snap->wake_fd >= 0)
        close(snap->wake_fd);
    if (snap->told_fd >= 0)
        close(snap->told_fd);
    snap_described_drop(snap->save.state);
    snap_described_drop(snap->state);
    mover_fork_guard_close(&snap->guard);
    snap_options_free(&snap->options);
    free(snap->held);
    free(snap);
}

void sw_snap_close(struct sw_snap *snap)
{
    if (!snap)
        return;
    if (mover_is_forked(&snap->guard)) {
        /* Stores, threads and the communicator are the parent's: they are left as they are. */
        snap_capture_close(snap->capture);
        snap_ranks_forget(snap->ranks);
        free_session(snap);
        return;
    }
    if (snap->has_thread)
        snap_session_settle(snap);
    snap_session_lock(snap);
    snap->is_closing = true;
    if (snap->capture)
        snap_capture_abort(snap->capture);
    snap_session_unlock(snap);
    if (snap->has_opener)
        pthread_join(snap->opener, NULL);
    if (snap->has_thread) {
        snap_session_wake(snap);
        pthread_join(snap->thread, NULL);
    }
    snap_ranks_close(snap->ranks);
    for (uint32_t i = 0; i < snap->options.sinks_count; i++)
        snap_sink_drop(&snap->sinks[i]);
    if (snap->capture)
        snap_capture_close(snap->capture);
    pthread_cond_destroy(&snap->changed);
    pthread_mutex_destroy(&snap->lock);
    pthread_mutex_destroy(&snap->door);
    free_session(snap);
}

/* ---- describe ---- */

/* Makes the volumes that are not there, without the lock. */
static enum sw_snap_status make_missing(struct sw_snap *snap, struct sw_snap_error *error)
{
    for (uint32_t i = 0; i < snap->options.sinks_count; i++) {
        struct snap_sink *sink = &snap->sinks[i];
        struct snap_store *store = NULL;
        struct sw_snap_error why = {0};
        snap_session_lock(snap);
        const bool is_wanted = sink->stage == SNAP_SINK_GONE && sink->is_missing;
        const uint64_t bytes = snap_sink_volume_bytes(snap);
        if (is_wanted)
            sink->stage = SNAP_SINK_OPENING;
        snap_session_unlock(snap);
        if (!is_wanted)
            continue;
        snap_sink_open(sink, bytes, snap->options.take_over, &store, &why);
        snap_session_lock(snap);
        snap_sink_opened(sink, store, &why);
        snap_session_unlock(snap);
        snap_session_wake(snap);
    }
    struct sw_snap_error first = {0};
    snap_session_lock(snap);
    const uint32_t live = snap_sinks_live(snap, &first);
    snap_session_unlock(snap);
    if (live >= snap->options.quorum)
        return SW_SNAP_OK;
    return snap_error_set(error, first.status ? first.status : SW_SNAP_LOST, "%s", first.text);
}

enum sw_snap_status sw_snap_describe(struct sw_snap *snap, const struct sw_snap_range *ranges,
                                     uint32_t ranges_count, struct sw_snap_error *error)
{
    struct snap_described *state;
    if (error)
        *error = (struct sw_snap_error){0};
    if (mover_is_forked(&snap->guard))
        return snap_error_plain(error, SW_SNAP_FORKED);
    enum sw_snap_status status =
        snap_described_make(ranges, ranges_count, snap->options.unit_bytes, error, &state);
    if (status)
        return status;
    snap_session_lock(snap);
    if (snap->save.is_active && snap->save.stage == SW_SNAP_CAPTURING)
        status = snap_error_set(error, SW_SNAP_BUSY, "a snapshot is being captured");
    else
        status = snap_described_capture(state, ranges, snap->capture, error);
    if (status) {
        snap_described_drop(state);
    } else {
        snap_described_drop(snap->state);
        snap->state = state;
    }
    snap_session_unlock(snap);
    return status ? status : make_missing(snap, error);
}
