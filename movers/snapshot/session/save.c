/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A snapshot under way, as the thread of I/O sees it. Each turn looks at the capture, at each sink
 * and at the votes of other ranks, and lets go on what can.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/base/bytes.h"
#include "common/time/clock.h"
#include "snapshot/core/digest.h"
#include "snapshot/session/session.h"
#include "snapshot/session/status.h"

void snap_save_token(const struct sw_snap *snap, uint64_t step, uint8_t token[SNAP_TOKEN_BYTES])
{
    uint8_t text[sizeof(snap->nonce) + 8], digest[SNAP_DIGEST_BYTES];
    memcpy(text, snap->nonce, sizeof(snap->nonce));
    put_le64(text + sizeof(snap->nonce), step);
    snap_digest_of(text, sizeof(text), digest);
    memcpy(token, digest, SNAP_TOKEN_BYTES);
}

static void tell_program(struct sw_snap *snap)
{
    snap->has_moved = true;
    (void)!write(snap->told_fd, &(uint64_t){1}, sizeof(uint64_t));
    pthread_cond_broadcast(&snap->changed);
}

static void __attribute__((format(printf, 3, 4)))
fail_save(struct sw_snap *snap, enum sw_snap_status status, const char *format, ...)
{
    struct snap_save *save = &snap->save;
    va_list arguments;
    if (!save->is_active || save->stage == SW_SNAP_FAILED || save->stage == SW_SNAP_DURABLE)
        return;
    if (save->stage == SW_SNAP_CAPTURING)
        snap_capture_abort(snap->capture);
    save->stage = SW_SNAP_FAILED;
    save->error.status = status;
    va_start(arguments, format);
    vsnprintf(save->error.text, sizeof(save->error.text), format, arguments);
    va_end(arguments);
    if (status == SW_SNAP_TORN)
        snap->torn++;
    else if (status == SW_SNAP_SKIPPED)
        snap->skipped++;
    else
        snap->failed++;
    tell_program(snap);
}

/* ---- the capture ---- */

/* `code`: why a range could not be read; 0: it was written to. */
static void fail_torn(struct sw_snap *snap, int code)
{
    enum { NAMED_MAX = 4 };
    uint32_t numbers[NAMED_MAX];
    char names[384] = "";
    const struct snap_index *index = &snap->save.state->index;
    const uint32_t count = snap_capture_torn(snap->capture, numbers, NAMED_MAX);
    for (uint32_t i = 0; i < count && i < NAMED_MAX; i++) {
        const size_t length = strlen(names);
        if (numbers[i] < index->ranges_count)
            snprintf(names + length, sizeof(names) - length, "%s%.80s", i ? ", " : "",
                     index->ranges[numbers[i]].name);
    }
    const char *what = code == -EFAULT ? "not there any more (unmapped, or its file got shorter)"
                       : code          ? "could not be copied"
                                       : "written between begin and gate";
    if (count > NAMED_MAX)
        fail_save(snap, SW_SNAP_TORN, "%s: %s and %u more", what, names, count - NAMED_MAX);
    else
        fail_save(snap, SW_SNAP_TORN, "%s: %s", what, names);
}

void snap_save_look(struct sw_snap *snap)
{
    struct snap_save *save = &snap->save;
    struct snap_capture_info info;
    if (!save->is_active || save->stage != SW_SNAP_CAPTURING)
        return;
    snap_capture_info_of(snap->capture, &info);
    save->copied_bytes = info.copied_bytes;
    save->gate_ns = info.gate_ns;
    save->gate_bytes = info.gate_bytes;
    switch (info.outcome) {
    case SNAP_CAPTURE_NONE:
    case SNAP_CAPTURE_UNDER_WAY:
        break;
    case SNAP_CAPTURE_CLEAN:
        save->stage = SW_SNAP_STAGED;
        save->staged_ns = info.ended_ns;
        pthread_cond_broadcast(&snap->changed);
        break;
    case SNAP_CAPTURE_TORN:
        fail_torn(snap, info.code);
        break;
    case SNAP_CAPTURE_SKIPPED:
        fail_save(snap, SW_SNAP_SKIPPED, "the gate gave it up: %" PRIu64 " bytes were left to copy",
                  info.gate_bytes);
        break;
    case SNAP_CAPTURE_LATE:
        fail_save(snap, SW_SNAP_TIMEOUT,
                  "the gate's deadline passed: %u of %u units were "
                  "copied",
                  info.units_copied, info.units);
        break;
    case SNAP_CAPTURE_ABORTED:
        fail_save(snap, SW_SNAP_LOST, "the capture was given up");
        break;
    }
}

static void take_units(struct sw_snap *snap)
{
    struct snap_save *save = &snap->save;
    const bool is_staged = save->stage == SW_SNAP_STAGED;
    bool is_waiting = false;
    if (!snap->capture)
        return;
    snap_units_give(snap);
    for (uint32_t i = 0; i < snap->held_count; i++)
        is_waiting |= snap->held[i].is_used && !snap->held[i].is_given;
    if (save->is_active && is_staged && !is_waiting)
        save->is_captured = true;
}

/* ---- the sinks ---- */

static void count_moved(struct snap_sink *sink)
{
    struct snap_save *save = &sink->snap->save;
    struct snap_store_info info;
    snap_store_info_of(sink->store, &info);
    sink->written_bytes += info.moved_bytes;
    if (info.moved_bytes > save->moved_bytes)
        save->moved_bytes = info.moved_bytes;
    if (info.changed_bytes > save->changed_bytes)
        save->changed_bytes = info.changed_bytes;
    if (save->stage == SW_SNAP_STAGED && info.flushed_ns > save->stored_ns)
        save->stored_ns = info.flushed_ns; /* the last one of the quorum */
}

static void fail_sink(struct snap_sink *sink, enum sw_snap_status status, const char *why)
{
    if (sink->is_failing)
        return;
    sink->is_failing = true;
    snap_error_at(&sink->error, status, sink->text,
                  why && *why ? why : sw_snap_status_text(status));
}

static void sink_is_prepared(void *context, enum sw_snap_status status,
                             const struct sw_snap_error *error)
{
    struct snap_sink *sink = context;
    sink->snap->has_moved = true;
    if (status) {
        fail_sink(sink, status, error ? error->text : NULL);
        return;
    }
    count_moved(sink);
    sink->stage = SNAP_SINK_PREPARED;
}

/* An abort, or something forgotten. */
static void sink_is_idle(void *context, enum sw_snap_status status,
                         const struct sw_snap_error *error)
{
    struct snap_sink *sink = context;
    sink->snap->has_moved = true;
    if (status)
        fail_sink(sink, status, error ? error->text : NULL);
    else
        sink->stage = SNAP_SINK_IDLE;
    pthread_cond_broadcast(&sink->snap->changed);
}

static void leave_save(struct snap_sink *sink)
{
    if (snap_store_is_idle(sink->store)) {
        sink->stage = SNAP_SINK_IDLE;
        return;
    }
    sink->stage = SNAP_SINK_ABORTING;
    sink->snap->has_moved = true;
    snap_store_abort(sink->store, sink_is_idle, sink);
}

/* Whether the sink itself is of no more use, or this snapshot alone. */
static bool is_fatal(const struct snap_sink *sink)
{
    const enum sw_snap_status status = sink->error.status;
    if (status != SW_SNAP_CORRUPT && status != SW_SNAP_NO_ROOM && status != SW_SNAP_INVALID)
        return true;
    return sink->stage != SNAP_SINK_WRITING && sink->stage != SNAP_SINK_PREPARING;
}

/* Its address was right when it was opened: what leads there is gone. */
static enum sw_snap_status status_of_lost(const struct snap_medium *medium)
{
    const enum sw_snap_status status = snap_status_of(medium->error);
    return status == SW_SNAP_ADDRESS ? SW_SNAP_LOST : status;
}

static void poll_sink(struct snap_sink *sink)
{
    if (!snap_sink_is_live(sink))
        return;
    snap_store_poll(sink->store);
    const struct snap_medium *medium = snap_store_medium(sink->store);
    if (medium->error)
        fail_sink(sink, status_of_lost(medium), medium->why);
    if (!sink->is_failing)
        return;
    if (medium->error || is_fatal(sink)) {
        snap_sink_drop(sink);
    } else {
        sink->is_failing = false;
        leave_save(sink);
    }
}

static void prepare_sink(struct snap_sink *sink)
{
    sink->stage = SNAP_SINK_PREPARING;
    sink->snap->has_moved = true;
    snap_store_prepare(sink->store, sink_is_prepared, sink);
}

/* What is not kept any more; or the snapshot itself, where others have not got it. In any case both
 * superblocks name the newest afterwards: one of them may be damaged later. */
static void forget_entries(struct snap_sink *sink)
{
    struct sw_snap *snap = sink->snap;
    struct snap_store_info info;
    uint32_t which = 0;
    snap_store_info_of(sink->store, &info);
    if (snap->save.stage == SW_SNAP_FAILED)
        which = info.entries_count ? 1u << (info.entries_count - 1) : 0;
    else if (info.entries_count > snap->options.keep)
        which = (uint32_t)((1ull << (info.entries_count - snap->options.keep)) - 1);
    sink->has_newest = snap->save.stage == SW_SNAP_DURABLE;
    sink->stage = which || sink->has_newest ? SNAP_SINK_FORGETTING : SNAP_SINK_IDLE;
    snap->has_moved = true;
    if (sink->stage == SNAP_SINK_FORGETTING)
        snap_store_forget(sink->store, which, sink_is_idle, sink);
}

static void advance_sink(struct snap_sink *sink)
{
    const struct snap_save *save = &sink->snap->save;
    const bool has_failed = save->stage == SW_SNAP_FAILED;
    const bool is_over = has_failed || save->stage == SW_SNAP_DURABLE;
    switch (sink->stage) {
    case SNAP_SINK_WRITING:
        if (has_failed)
            leave_save(sink);
        else if (save->is_captured && !sink->units && (!sink->snap->ranks || save->is_agreed))
            prepare_sink(sink);
        break;
    case SNAP_SINK_PREPARED:
        if (is_over)
            forget_entries(sink);
        break;
    case SNAP_SINK_GONE:
    case SNAP_SINK_OPENING:
    case SNAP_SINK_IDLE:
    case SNAP_SINK_PREPARING:
    case SNAP_SINK_ABORTING:
    case SNAP_SINK_FORGETTING:
        break;
    }
}

/* ---- the quorum, and other ranks ---- */

static bool is_taking_part(const struct snap_sink *sink)
{
    return sink->stage == SNAP_SINK_WRITING || sink->stage == SNAP_SINK_PREPARING ||
           sink->stage == SNAP_SINK_PREPARED;
}

static void fail_quorum(struct sw_snap *snap)
{
    char text[512] = "";
    enum sw_snap_status status = SW_SNAP_LOST;
    for (uint32_t i = 0; i < snap->options.sinks_count; i++) {
        const struct snap_sink *sink = &snap->sinks[i];
        const size_t length = strlen(text);
        if (is_taking_part(sink) || !sink->error.status)
            continue;
        status = sink->error.status;
        snprintf(text + length, sizeof(text) - length, "%s%s", length ? "; " : "",
                 sink->error.text);
    }
    if (snap->options.sinks_count > 1 && status != SW_SNAP_FENCED)
        status = SW_SNAP_NO_QUORUM;
    fail_save(snap, status, "%s", *text ? text : sw_snap_status_text(status));
}

static void become_durable(struct sw_snap *snap)
{
    struct snap_save *save = &snap->save;
    save->stage = SW_SNAP_DURABLE;
    save->durable_ns = mover_now_ns();
    snap->has_durable = true;
    snap->durable_step = save->step;
    snap->taken++;
    tell_program(snap);
}

static void ask_end(struct sw_snap *snap)
{
    struct snap_save *save = &snap->save;
    struct snap_vote vote = {.step = save->step,
                             .phase = SNAP_PHASE_END,
                             .status = save->stage == SW_SNAP_FAILED ? save->error.status : 0};
    snprintf(vote.why, sizeof(vote.why), "%.159s", save->error.text);
    save->is_asked = true;
    snap_ranks_ask(snap->ranks, &vote);
}

static void hear_ranks(struct sw_snap *snap)
{
    struct snap_save *save = &snap->save;
    struct snap_answer answer;
    if (!snap_ranks_answer(snap->ranks, &answer) || !save->is_active ||
        answer.mine.step != save->step)
        return;
    snap->has_moved = true;
    const bool is_good = !answer.error.status;
    if (answer.mine.phase == SNAP_PHASE_BEGIN) {
        save->is_agreed = is_good;
        save->is_answered = !is_good;
    } else {
        save->is_answered = true;
        if (is_good)
            become_durable(snap);
    }
    if (!is_good)
        fail_save(snap, SW_SNAP_OTHER_RANK, "%s", answer.error.text);
}

static void count_sinks(struct sw_snap *snap)
{
    struct snap_save *save = &snap->save;
    uint32_t parts = 0, prepared = 0;
    const bool is_over = save->stage == SW_SNAP_FAILED || save->stage == SW_SNAP_DURABLE;
    for (uint32_t i = 0; i < snap->options.sinks_count; i++) {
        parts += is_taking_part(&snap->sinks[i]);
        prepared += snap->sinks[i].stage == SNAP_SINK_PREPARED;
    }
    if (!is_over && parts < snap->options.quorum)
        fail_quorum(snap);
    const bool is_ready = prepared >= snap->options.quorum && save->stage == SW_SNAP_STAGED;
    if (!snap->ranks && is_ready)
        become_durable(snap);
    if (snap->ranks && save->is_agreed && !save->is_asked &&
        (is_ready || save->stage == SW_SNAP_FAILED))
        ask_end(snap);
}

static void end_save(struct sw_snap *snap)
{
    struct snap_save *save = &snap->save;
    if (save->stage != SW_SNAP_FAILED && save->stage != SW_SNAP_DURABLE)
        return;
    if (snap->ranks && !save->is_answered)
        return;
    for (uint32_t i = 0; i < snap->options.sinks_count; i++)
        if (snap_sink_is_live(&snap->sinks[i]) && snap->sinks[i].stage != SNAP_SINK_IDLE)
            return;
    if (snap_units_are_held(snap))
        return;
    save->is_active = false;
    snap_described_drop(save->state);
    save->state = NULL;
    pthread_cond_broadcast(&snap->changed);
}

static void save_take_turn(struct sw_snap *snap)
{
    snap_save_look(snap);
    take_units(snap);
    for (uint32_t i = 0; i < snap->options.sinks_count; i++)
        poll_sink(&snap->sinks[i]);
    if (snap->ranks)
        hear_ranks(snap);
    if (!snap->save.is_active)
        return;
    count_sinks(snap);
    for (uint32_t i = 0; i < snap->options.sinks_count; i++)
        if (snap_sink_is_live(&snap->sinks[i]))
            advance_sink(&snap->sinks[i]);
    count_sinks(snap);
    end_save(snap);
}

/* What a turn has begun or ended may let something else go on, though no descriptor tells. */
void snap_save_step(struct sw_snap *snap)
{
    enum { TURNS_MAX = 16 };
    uint32_t turns = 0;
    do {
        snap->has_moved = false;
        save_take_turn(snap);
    } while (snap->has_moved && ++turns < TURNS_MAX);
}
