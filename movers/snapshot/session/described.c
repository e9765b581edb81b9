/* SPDX-License-Identifier: BSD-2-Clause */
/* The state, as it was described. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "snapshot/session/session.h"
#include "snapshot/session/status.h"

static enum sw_snap_status check_ranges(const struct sw_snap_range *ranges, uint32_t ranges_count,
                                        struct sw_snap_error *error)
{
    if (!ranges && ranges_count)
        return snap_error_set(error, SW_SNAP_INVALID, "there are no ranges");
    if (ranges_count > SNAP_RANGES_MAX)
        return snap_error_set(error, SW_SNAP_INVALID, "%u ranges; up to %d are possible",
                              ranges_count, SNAP_RANGES_MAX);
    for (uint32_t i = 0; i < ranges_count; i++) {
        if (!ranges[i].name)
            return snap_error_set(error, SW_SNAP_INVALID, "range %u has no name", i);
        if (!ranges[i].data && ranges[i].bytes)
            return snap_error_set(error, SW_SNAP_INVALID, "%s: its data are at no address",
                                  ranges[i].name);
        if (ranges[i].dims > SW_SNAP_DIMS_MAX)
            return snap_error_set(error, SW_SNAP_INVALID, "%s: up to %d dimensions are possible",
                                  ranges[i].name, SW_SNAP_DIMS_MAX);
    }
    return SW_SNAP_OK;
}

static int cut_ranges(struct snap_described *state, const struct sw_snap_range *ranges,
                      uint32_t ranges_count, uint32_t unit_bytes)
{
    uint64_t *bytes = calloc(ranges_count + 1, sizeof(*bytes));
    if (!bytes)
        return -ENOMEM;
    for (uint32_t i = 0; i < ranges_count; i++)
        bytes[i] = ranges[i].bytes;
    const int result = snap_cut_make(&state->cut, bytes, ranges_count, unit_bytes);
    free(bytes);
    return result;
}

/* A range without a type is a list of bytes. */
static struct sw_snap_range *with_types(const struct sw_snap_range *ranges, uint32_t ranges_count)
{
    struct sw_snap_range *typed = calloc(ranges_count + 1, sizeof(*typed));
    for (uint32_t i = 0; typed && i < ranges_count; i++) {
        typed[i] = ranges[i];
        if (typed[i].type)
            continue;
        typed[i].type = "U8";
        typed[i].dims = 1;
        memset(typed[i].shape, 0, sizeof(typed[i].shape));
        memset(typed[i].at, 0, sizeof(typed[i].at));
        memset(typed[i].whole, 0, sizeof(typed[i].whole));
        typed[i].shape[0] = ranges[i].bytes;
    }
    return typed;
}

enum sw_snap_status snap_described_make(const struct sw_snap_range *ranges, uint32_t ranges_count,
                                        uint32_t unit_bytes, struct sw_snap_error *error,
                                        struct snap_described **state)
{
    enum sw_snap_status status = check_ranges(ranges, ranges_count, error);
    if (status)
        return status;
    struct snap_described *made = calloc(1, sizeof(*made));
    struct sw_snap_range *typed = with_types(ranges, ranges_count);
    char why[256] = "", *text = NULL;
    size_t text_bytes = 0;
    int result = made && typed ? cut_ranges(made, ranges, ranges_count, unit_bytes) : -ENOMEM;
    if (!result)
        result = snap_index_make(&made->index, typed, &made->cut, why, sizeof(why));
    if (!result)
        result = snap_index_print(&made->index, &text, &text_bytes);
    free(text);
    free(typed);
    if (!result) {
        made->references = 1;
        made->index_bytes = text_bytes;
        made->bytes = made->cut.state_bytes;
        *state = made;
        return SW_SNAP_OK;
    }
    snap_described_drop(made);
    if (result == -ENOMEM)
        return snap_error_plain(error, SW_SNAP_NO_MEMORY);
    if (result == -E2BIG)
        return snap_error_set(error, SW_SNAP_INVALID, "the index of %u ranges is above 64 MiB",
                              ranges_count);
    return snap_error_set(error, SW_SNAP_INVALID, "%s", *why ? why : "there are too many units");
}

void snap_described_drop(struct snap_described *state)
{
    if (!state || (state->references && --state->references))
        return;
    snap_index_free(&state->index);
    snap_cut_free(&state->cut);
    free(state);
}

enum sw_snap_status snap_described_capture(const struct snap_described *state,
                                           const struct sw_snap_range *ranges,
                                           struct snap_capture *capture,
                                           struct sw_snap_error *error)
{
    const uint32_t count = state->cut.ranges_count;
    struct snap_capture_range *list = calloc(count + 1, sizeof(*list));
    uint32_t bad = 0;
    if (!list)
        return snap_error_plain(error, SW_SNAP_NO_MEMORY);
    for (uint32_t i = 0; i < count; i++)
        list[i] = (struct snap_capture_range){.data = ranges[i].data,
                                              .bytes = ranges[i].bytes,
                                              .unit = state->cut.places[i].unit,
                                              .offset = state->cut.places[i].offset};
    const int result = snap_capture_describe(capture, list, count, &bad);
    free(list);
    switch (-result) {
    case 0:
        return SW_SNAP_OK;
    case EBUSY:
        return snap_error_set(error, SW_SNAP_BUSY, "a snapshot is being captured");
    case ENOMEM:
        return snap_error_plain(error, SW_SNAP_NO_MEMORY);
    case EFAULT:
        return snap_error_set(error, SW_SNAP_INVALID, "%s: its %" PRIu64 " bytes are not mapped",
                              bad < count ? ranges[bad].name : "?",
                              bad < count ? ranges[bad].bytes : 0);
    default:
        return snap_error_set(error, SW_SNAP_INVALID, "%s: %s",
                              bad < count ? ranges[bad].name : "?", strerror(-result));
    }
}
