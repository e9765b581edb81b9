/* SPDX-License-Identifier: BSD-2-Clause */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "snapshot/session/options.h"
#include "snapshot/session/status.h"

enum { SINK_BYTES_MAX = 4096 };

static const char rank_word[] = "{rank}";

void sw_snap_options_init(struct sw_snap_options *options)
{
    *options = (struct sw_snap_options){
        .ring_bytes = 256 << 20,
        .unit_bytes = 2 << 20,
        .helpers = 1,
        .keep = 2,
        .look = SW_SNAP_LOOK_SUMS,
        .looks_max = 2,
        .connect_timeout_ms = 5000,
        .stall_timeout_ms = 10000,
        .rank_timeout_ms = 60000,
    };
}

char *snap_sink_text(const char *sink, uint32_t rank)
{
    const char *at = strstr(sink, rank_word);
    char *text = NULL;
    if (!at)
        return strdup(sink);
    if (asprintf(&text, "%.*s%u%s", (int)(at - sink), sink, rank, at + strlen(rank_word)) < 0)
        return NULL;
    return text;
}

static enum sw_snap_status check_sinks(const struct sw_snap_options *given,
                                       struct sw_snap_error *error)
{
    if (!given->sinks || !given->sinks_count || given->sinks_count > SW_SNAP_SINKS_MAX)
        return snap_error_set(error, SW_SNAP_INVALID, "there are %u sinks; 1 to %d are possible",
                              given->sinks ? given->sinks_count : 0, SW_SNAP_SINKS_MAX);
    if (given->quorum > given->sinks_count)
        return snap_error_set(error, SW_SNAP_INVALID, "a quorum of %u of %u sinks", given->quorum,
                              given->sinks_count);
    for (uint32_t i = 0; i < given->sinks_count; i++) {
        const char *sink = given->sinks[i];
        if (!sink || !*sink || strlen(sink) > SINK_BYTES_MAX)
            return snap_error_set(error, SW_SNAP_INVALID, "sink %u has no text, or a too long one",
                                  i);
        if (given->world > 1 && !strstr(sink, rank_word))
            return snap_error_set(error, SW_SNAP_INVALID,
                                  "%.256s: several ranks need a sink each, by {rank} in its name",
                                  sink);
        for (uint32_t before = 0; before < i; before++)
            if (!strcmp(sink, given->sinks[before]))
                return snap_error_set(error, SW_SNAP_INVALID, "%.256s is there twice", sink);
    }
    return SW_SNAP_OK;
}

static enum sw_snap_status check_limits(const struct sw_snap_options *given,
                                        struct sw_snap_error *error)
{
    const uint32_t unit = given->unit_bytes;
    if (unit < 1 << 20 || unit > 4 << 20 || (unit & (unit - 1)))
        return snap_error_set(error, SW_SNAP_INVALID, "a unit has 1, 2 or 4 MiB, not %u bytes",
                              unit);
    if (given->ring_bytes < 2 * (uint64_t)unit)
        return snap_error_set(error, SW_SNAP_INVALID, "the ring has no room for two units");
    if (!given->helpers || given->helpers > 16)
        return snap_error_set(error, SW_SNAP_INVALID, "there are 1 to 16 helpers, not %u",
                              given->helpers);
    if (!given->keep || given->keep > 30)
        return snap_error_set(error, SW_SNAP_INVALID, "1 to 30 snapshots are kept, not %u",
                              given->keep);
    if (given->world > SW_SNAP_RANKS_MAX ||
        (given->world ? given->rank >= given->world : given->rank != 0))
        return snap_error_set(error, SW_SNAP_INVALID, "rank %u of %u; there are up to %d",
                              given->rank, given->world, SW_SNAP_RANKS_MAX);
    if (given->look != SW_SNAP_LOOK_SUMS && given->look != SW_SNAP_LOOK_PAGES &&
        given->look != SW_SNAP_LOOK_NEVER)
        return snap_error_set(error, SW_SNAP_INVALID, "there is no such look");
    return SW_SNAP_OK;
}

enum sw_snap_status snap_options_take(struct sw_snap_options *options,
                                      const struct sw_snap_options *given,
                                      struct sw_snap_error *error)
{
    enum sw_snap_status status = check_sinks(given, error);
    if (!status)
        status = check_limits(given, error);
    if (status)
        return status;
    *options = *given;
    options->quorum = given->quorum ? given->quorum : given->sinks_count;
    options->world = given->world ? given->world : 1;
    char **sinks = calloc(SW_SNAP_SINKS_MAX, sizeof(*sinks));
    bool is_good = sinks != NULL;
    for (uint32_t i = 0; is_good && i < given->sinks_count; i++)
        is_good = (sinks[i] = strdup(given->sinks[i])) != NULL;
    options->sinks = (const char *const *)sinks;
    options->local = given->local ? strdup(given->local) : NULL;
    options->meet = given->meet ? strdup(given->meet) : NULL;
    if (is_good && !options->local == !given->local && !options->meet == !given->meet)
        return SW_SNAP_OK;
    snap_options_free(options);
    return snap_error_plain(error, SW_SNAP_NO_MEMORY);
}

void snap_options_free(struct sw_snap_options *options)
{
    for (uint32_t i = 0; options->sinks && i < SW_SNAP_SINKS_MAX; i++)
        free((void *)(uintptr_t)options->sinks[i]);
    free((void *)(uintptr_t)options->sinks);
    free((void *)(uintptr_t)options->local);
    free((void *)(uintptr_t)options->meet);
    *options = (struct sw_snap_options){0};
}
