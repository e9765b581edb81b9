/* SPDX-License-Identifier: BSD-2-Clause */
/* restore: what one rank has saved comes back into files, as save took it from them. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "snapshot/command/export.h"
#include "snapshot/command/output.h"

struct restore {
    struct snap_remote remote;
    const char *file, *small_file;
    struct snap_raws raws;
    uint64_t step;
    uint32_t rank;
    bool repairs;
    struct sw_snap_entry entry;
    struct mover_progress progress;
};

static void restore_file(struct argp_state *state, void *arguments, char *text)
{
    struct restore *restore = arguments;
    if (restore->file)
        argp_error(state, "there is more than one file");
    restore->file = text;
}

static void restore_check(struct argp_state *state, void *arguments)
{
    const struct restore *restore = arguments;
    if (!restore->file && !restore->raws.count && !restore->small_file)
        argp_error(state, "where to? FILE, --raw NAME=FILE or --small FILE");
}

static const struct mover_option options[] = {
    {"raw", 0, "NAME=FILE", 0, "The bytes of that name, into a file; as often as needed", 1,
     snap_take_raw, offsetof(struct restore, raws)},
    {"small", 0, "FILE", 0, "The small state, into a file", 1,
     MOVER_TO(struct restore, small_file)},
    {"step", 0, "N", 0, "Which one (the newest that is whole)", 1, MOVER_TO(struct restore, step)},
    {"rank", 0, "R", 0, "Whose (0)", 1, MOVER_TO(struct restore, rank)},
    {"repair", 0, NULL, 0,
     "What is damaged on a sink is written again from another; no program may be saving there", 1,
     MOVER_TO(struct restore, repairs)},
    {0},
};

static int restore_raw(struct restore *restore, const struct snap_raw *raw)
{
    struct snap_output output;
    struct sw_snap_item item;
    uint32_t number;
    if (sw_snap_find(restore->remote.reader, restore->rank, raw->name, &number) ||
        sw_snap_item_of(restore->remote.reader, number, &item))
        return mover_fail("rank %u has no \"%s\"", restore->rank, raw->name);
    const int code = snap_output_open(&output, raw->file, item.bytes);
    if (code)
        return code;
    return snap_output_close(&output, snap_output_item(restore->remote.reader, &item, number,
                                                       output.data, &restore->progress));
}

static int restore_all(struct restore *restore)
{
    int code = MOVER_DONE;
    if (restore->rank >= restore->entry.world)
        return mover_fail("there is no rank %u: the snapshot is of %u", restore->rank,
                          restore->entry.world);
    for (uint32_t i = 0; !code && i < restore->raws.count; i++)
        code = restore_raw(restore, &restore->raws.list[i]);
    if (!code && restore->small_file)
        code = snap_output_small(restore->remote.reader, restore->rank, restore->small_file);
    if (!code && restore->file)
        code = snap_export_file(restore->remote.reader, &restore->entry, restore->rank,
                                restore->file, &restore->progress);
    return code;
}

int snap_restore(int argc, char **argv)
{
    static const struct mover_usage usage = {
        .words = "[FILE]",
        .about = "Writes what a rank has saved into a safetensors FILE, or as bytes into files.",
        .own = {.rows = options, .word = restore_file, .check = restore_check},
        .shared = &snap_remote_options};
    static struct restore restore = {.step = MOVER_NOT_GIVEN};
    snap_remote_parse(&usage, argc, argv, &restore);
    int code = snap_remote_choose(&restore.remote, restore.step, restore.repairs, &restore.entry);
    if (code)
        return code;
    mover_progress_begin(&restore.progress, restore.entry.bytes / restore.entry.world,
                         !restore.remote.is_json && isatty(STDERR_FILENO));
    code = restore_all(&restore);
    mover_progress_end(&restore.progress);
    sw_snap_reader_close(restore.remote.reader);
    if (code)
        return code;
    if (restore.remote.is_json)
        return mover_print_json(json_pack("{so si sI}", "step", snap_json_step(restore.entry.step),
                                          "ranks", (int)restore.entry.world, "bytes",
                                          (json_int_t)restore.progress.done_bytes));
    printf("step %" PRIu64 ", %" PRIu64 " bytes\n", restore.entry.step,
           restore.progress.done_bytes);
    return mover_finish_output();
}
