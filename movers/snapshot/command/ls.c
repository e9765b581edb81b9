/* SPDX-License-Identifier: BSD-2-Clause */
/* ls: what is there. prune: what is there no more. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "common/command/table.h"
#include "snapshot/command/command.h"

/* All entries, newest first; to be freed. NULL: no memory. */
static struct sw_snap_entry *list_entries(const struct snap_remote *remote, uint32_t *count)
{
    *count = sw_snap_list(remote->reader, NULL, 0);
    struct sw_snap_entry *entries = calloc(*count + 1, sizeof(*entries));
    if (entries)
        sw_snap_list(remote->reader, entries, *count);
    return entries;
}

static json_t *row_of(const struct sw_snap_entry *entry)
{
    char token[33], taken[32] = "?";
    const time_t at = (time_t)entry->taken_at;
    struct tm parts;
    mover_hex(entry->token, token);
    if (gmtime_r(&at, &parts)) /* a stranger's volume may have any year */
        strftime(taken, sizeof(taken), "%Y-%m-%dT%H:%M:%SZ", &parts);
    return json_pack("{so ss si sI ss si si sb}", "step", snap_json_step(entry->step), "token",
                     token, "ranks", (int)entry->world, "bytes", (json_int_t)entry->bytes,
                     "taken_at", taken, "copies", (int)entry->copies, "partial",
                     (int)entry->damaged, "is_whole", entry->is_whole);
}

int snap_ls(int argc, char **argv)
{
    static const struct mover_usage usage = {
        .about = "Lists the snapshots that sinks have, newest first.",
        .shared = &snap_remote_options};
    static const struct mover_column columns[] = {
        {"STEP", "step", .width = 12},      {"RANKS", "ranks", .width = 5},
        {"BYTES", "bytes", .width = 16},    {"COPIES", "copies", .width = 6},
        {"PARTIAL", "partial", .width = 7}, {"TAKEN", "taken_at", .width = -20, .gap = 1},
        {"WHOLE", NULL, .gap = 1},          {0}};
    static struct snap_remote remote;
    struct mover_table table;
    uint32_t count;
    snap_remote_parse(&usage, argc, argv, &remote);
    const int code = snap_remote_open(&remote, false);
    if (code)
        return code;
    struct sw_snap_entry *entries = list_entries(&remote, &count);
    if (!entries)
        return mover_fail("no memory");
    mover_table_open(&table, columns, remote.is_json);
    for (uint32_t i = 0; i < count; i++)
        mover_table_add(&table, entries[i].is_whole ? "yes" : "no", row_of(&entries[i]));
    free(entries);
    sw_snap_reader_close(remote.reader);
    return mover_table_close(&table, json_pack("{so}", "snapshots", table.rows));
}

/* ---- prune ---- */

struct prune {
    struct snap_remote remote;
    uint64_t step;
    uint32_t keep;
};

static void prune_check(struct argp_state *state, void *arguments)
{
    const struct prune *prune = arguments;
    if ((prune->step == MOVER_NOT_GIVEN) == (prune->keep == 0))
        argp_error(state, "either --step or --keep is needed, which is 1 at least");
}

static const struct mover_option prune_options[] = {
    {"step", 0, "N", 0, "The snapshot of this step", 1, MOVER_TO(struct prune, step)},
    {"keep", 0, "N", 0, "All but so many of the newest that are whole", 1,
     MOVER_TO(struct prune, keep)},
    {0},
};

/* Behind the last whole one that is kept, or not whole: that is known only where all sinks were
 * read. */
static bool is_to_go(const struct prune *prune, const struct sw_snap_entry *entry, uint32_t newer)
{
    if (!prune->keep)
        return entry->step == prune->step;
    return entry->is_whole ? newer >= prune->keep : !prune->remote.leaves_out;
}

static bool ls_has_step(const uint64_t *steps, uint32_t count, uint64_t step)
{
    for (uint32_t i = 0; i < count; i++)
        if (steps[i] == step)
            return true;
    return false;
}

/* Which steps go, each once. One of the same step as one that stays, stays with it: both have the
 * same name. `spared` counts those that stay because a sink was left out. */
static uint32_t pick_steps(const struct prune *prune, const struct sw_snap_entry *entries,
                           uint32_t count, uint64_t *steps, uint32_t *spared)
{
    uint64_t *stay = steps + count;
    uint32_t picked = 0, staying = 0, whole = 0;
    *spared = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (!is_to_go(prune, &entries[i], whole))
            stay[staying++] = entries[i].step;
        *spared += prune->keep && !entries[i].is_whole && prune->remote.leaves_out;
        whole += entries[i].is_whole;
    }
    whole = 0;
    for (uint32_t i = 0; i < count; i++) {
        const uint64_t step = entries[i].step;
        if (is_to_go(prune, &entries[i], whole) && !ls_has_step(stay, staying, step) &&
            !ls_has_step(steps, picked, step))
            steps[picked++] = step;
        whole += entries[i].is_whole;
    }
    return picked;
}

static int forget_steps(struct prune *prune, const uint64_t *steps, uint32_t count)
{
    struct sw_snap_error error;
    json_t *forgotten = json_array();
    int code = MOVER_DONE;
    for (uint32_t i = 0; i < count; i++) {
        if (sw_snap_forget(prune->remote.reader, steps[i], &error))
            code = mover_fail("step %" PRIu64 ": %s", steps[i], error.text);
        else if (!prune->remote.is_json)
            printf("step %" PRIu64 " is forgotten\n", steps[i]);
        else
            json_array_append_new(forgotten, snap_json_step(steps[i]));
    }
    if (prune->remote.is_json) {
        const int printed = mover_print_json(json_pack("{so}", "forgotten", forgotten));
        return code ? code : printed;
    }
    json_decref(forgotten);
    return code ? code : mover_finish_output();
}

int snap_prune(int argc, char **argv)
{
    static const struct mover_usage usage = {
        .about = "Forgets snapshots on all sinks. No program may be saving there.",
        .own = {.rows = prune_options, .check = prune_check},
        .shared = &snap_remote_options};
    static struct prune prune = {.step = MOVER_NOT_GIVEN};
    uint32_t count;
    snap_remote_parse(&usage, argc, argv, &prune);
    int code = snap_remote_open(&prune.remote, true);
    if (code)
        return code;
    struct sw_snap_entry *entries = list_entries(&prune.remote, &count);
    uint64_t *steps = calloc(2 * (size_t)count + 1, sizeof(*steps));
    if (!entries || !steps)
        code = mover_fail("no memory");
    uint32_t spared = 0;
    const uint32_t picked = code ? 0 : pick_steps(&prune, entries, count, steps, &spared);
    if (!code && !picked && prune.step != MOVER_NOT_GIVEN)
        code = mover_fail("there is no snapshot of step %" PRIu64, prune.step);
    if (!code)
        code = forget_steps(&prune, steps, picked);
    if (!code && spared)
        code = mover_fail("%u that seem not to be whole stay, since a sink was left out", spared);
    free(entries);
    free(steps);
    sw_snap_reader_close(prune.remote.reader);
    return code;
}
