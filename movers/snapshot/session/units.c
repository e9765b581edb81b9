/* SPDX-License-Identifier: BSD-2-Clause */
/* Units on their way from the ring to the sinks. A place of the ring is free again when each sink
 * that is live has what was in it. */
#include <assert.h>

#include "snapshot/session/session.h"
#include "snapshot/session/status.h"

static void give_back(struct sw_snap *snap, struct snap_held *held)
{
    held->is_used = false;
    snap_capture_release(snap->capture, held->captured.slot);
}

static void unit_ended(struct snap_store_unit *unit, enum sw_snap_status status)
{
    const struct snap_held_context *context = unit->context;
    struct snap_sink *sink = context->sink;
    struct snap_held *held = context->held;
    assert(held->under_way && sink->units);
    sink->units--;
    sink->snap->has_moved = true;
    if (status && !sink->is_failing && sink->stage == SNAP_SINK_WRITING) {
        sink->is_failing = true;
        const struct snap_medium *medium = snap_store_medium(sink->store);
        const char *why = medium->error ? medium->why : snap_store_failure(sink->store);
        snap_error_at(&sink->error, status, sink->text, *why ? why : sw_snap_status_text(status));
    }
    if (!--held->under_way)
        give_back(sink->snap, held);
}

/* An earlier copy of the unit has to be over on all sinks. */
static bool has_earlier(const struct sw_snap *snap, const struct snap_held *held)
{
    for (uint32_t i = 0; i < snap->held_count; i++) {
        const struct snap_held *other = &snap->held[i];
        if (other != held && other->is_used && other->is_given &&
            other->captured.unit == held->captured.unit)
            return true;
    }
    return false;
}

static void give_unit(struct sw_snap *snap, struct snap_held *held)
{
    struct snap_sink *to[SW_SNAP_SINKS_MAX];
    uint32_t count = 0;
    for (uint32_t i = 0; i < snap->options.sinks_count; i++)
        if (snap->sinks[i].stage == SNAP_SINK_WRITING && !snap->sinks[i].is_failing)
            to[count++] = &snap->sinks[i];
    held->is_given = true;
    held->under_way = count;
    snap->has_moved = true;
    if (!count)
        give_back(snap, held);
    for (uint32_t i = 0; i < count; i++) {
        struct snap_store_unit *unit = &held->units[i];
        held->contexts[i] = (struct snap_held_context){.held = held, .sink = to[i]};
        *unit = (struct snap_store_unit){.number = held->captured.unit,
                                         .data = held->captured.data,
                                         .sums = held->captured.sums,
                                         .done = unit_ended,
                                         .context = &held->contexts[i]};
        to[i]->units++;
        snap_store_unit(to[i]->store, unit);
    }
}

static void give_waiting(struct sw_snap *snap)
{
    for (uint32_t i = 0; i < snap->held_count; i++) {
        struct snap_held *held = &snap->held[i];
        if (held->is_used && !held->is_given && !has_earlier(snap, held))
            give_unit(snap, held);
    }
}

/* A copy that waits is of no use once a later one is there. */
static void drop_outdated(struct sw_snap *snap, uint32_t unit)
{
    for (uint32_t i = 0; i < snap->held_count; i++) {
        struct snap_held *held = &snap->held[i];
        if (held->is_used && !held->is_given && held->captured.unit == unit)
            give_back(snap, held);
    }
}

void snap_units_give(struct sw_snap *snap)
{
    struct snap_captured captured;
    bool is_again = false;
    for (uint32_t i = 0; i < snap->held_count; i++)
        is_again |= snap->held[i].is_used && !snap->held[i].is_given;
    if (is_again)
        give_waiting(snap);
    while (snap_capture_take(snap->capture, &captured)) {
        struct snap_held *held = &snap->held[captured.slot];
        assert(captured.slot < snap->held_count && !held->is_used);
        if (captured.is_again)
            drop_outdated(snap, captured.unit);
        held->captured = captured;
        held->is_used = true;
        held->is_given = false;
        if (!captured.is_again || !has_earlier(snap, held))
            give_unit(snap, held);
    }
}

bool snap_units_are_held(const struct sw_snap *snap)
{
    for (uint32_t i = 0; i < snap->held_count; i++)
        if (snap->held[i].is_used)
            return true;
    return false;
}
