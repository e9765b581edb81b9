/* SPDX-License-Identifier: BSD-2-Clause */
/* save: files are mapped, and are the state. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/command/progress.h"
#include "snapshot/command/command.h"
#include "snapshot/command/safetensors.h"

enum { TICK_MS = 100 };

struct save {
    struct snap_remote remote;
    const char *file, *small_file;
    struct snap_raws raws;
    uint64_t step, ring_bytes, unit_bytes, volume_bytes;
    struct snap_tensors tensors;
    struct sw_snap_range *ranges;
    uint32_t ranges_count;
    uint64_t bytes;
    struct sw_snap *snap;
};

static void save_take_file(struct argp_state *state, void *arguments, char *text)
{
    struct save *save = arguments;
    if (save->file)
        argp_error(state, "there is more than one file");
    save->file = text;
}

static void save_check(struct argp_state *state, void *arguments)
{
    const struct save *save = arguments;
    if (!save->file && !save->raws.count)
        argp_error(state, "what is saved? FILE, or --raw NAME=FILE");
    if (save->unit_bytes > UINT32_MAX)
        argp_error(state, "a unit has 1M, 2M or 4M");
}

static const struct mover_option options[] = {
    {"raw", 0, "NAME=FILE", 0, "The bytes of a file, under a name; as often as needed", 1,
     snap_take_raw, offsetof(struct save, raws)},
    {"small", 0, "FILE", 0, "Small state: position, random states; up to 16M", 1,
     MOVER_TO(struct save, small_file)},
    {"step", 0, "N", 0, "Its number (one more than the newest that is there)", 1,
     MOVER_TO(struct save, step)},
    {"quorum", 0, "N", 0, "So many sinks make it durable (all)", 2,
     MOVER_TO(struct save, remote.options.quorum)},
    {"keep", 0, "N", 0, "So many snapshots stay, 1-30 (2)", 2,
     MOVER_TO(struct save, remote.options.keep)},
    {"size", 'S', "BYTES", 0, "Of a volume that is made (enough for those that are kept)", 2,
     MOVER_TO(struct save, volume_bytes)},
    {"ring", 0, "BYTES", 0, "Memory for copies (256M)", 2, MOVER_TO(struct save, ring_bytes)},
    {"unit", 0, "BYTES", 0, "Of a copy: 1M, 2M or 4M (2M)", 2, MOVER_TO(struct save, unit_bytes)},
    {"helpers", 0, "N", 0, "Threads that copy, 1-16 (1)", 2,
     MOVER_TO(struct save, remote.options.helpers)},
    {"take-over", 0, NULL, 0, "Another program that saves there is fenced", 2,
     MOVER_TO(struct save, remote.options.take_over)},
    {"rank", 0, "R", 0, "Which rank this one is, of --ranks", 3,
     MOVER_TO(struct save, remote.options.rank)},
    {"ranks", 0, "N", 0, "How many ranks save this step (1)", 3,
     MOVER_TO(struct save, remote.options.world)},
    {"meet", 0, "HOST:PORT", 0, "Where rank 0 waits for the others (as the launcher says)", 3,
     MOVER_TO(struct save, remote.options.meet)},
    {0},
};

/* ---- the state ---- */

/* NULL: it is empty, or was not mapped, which `code` says. */
static void *save_map_file(const char *path, uint64_t *bytes, int *code)
{
    struct stat st;
    void *data = NULL;
    /* Without O_NONBLOCK a pipe would be waited for. */
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    *bytes = 0;
    *code = MOVER_DONE;
    if (fd < 0 || fstat(fd, &st)) {
        *code = mover_fail("%s: %s", path, strerror(errno));
    } else if (!S_ISREG(st.st_mode)) {
        *code = mover_fail("%s is no regular file; it could not be mapped", path);
    } else if (st.st_size) {
        *bytes = (uint64_t)st.st_size;
        data = mmap(NULL, *bytes, PROT_READ, MAP_PRIVATE, fd, 0);
        if (data == MAP_FAILED) {
            data = NULL;
            *code = mover_fail("%s: %s", path, strerror(errno));
        }
    }
    if (fd >= 0)
        close(fd);
    return data;
}

static int add_tensors(struct save *save)
{
    char why[512];
    uint64_t bytes;
    int code;
    uint8_t *file = save_map_file(save->file, &bytes, &code);
    if (code)
        return code;
    if (!snap_tensors_read(&save->tensors, file, bytes, why, sizeof(why)))
        return mover_fail("%s: %s", save->file, why);
    save->ranges = calloc(save->tensors.count + save->raws.count + 1, sizeof(*save->ranges));
    if (!save->ranges)
        return mover_fail("no memory");
    for (uint32_t i = 0; i < save->tensors.count; i++) {
        const struct snap_tensor *tensor = &save->tensors.list[i];
        struct sw_snap_range *range = &save->ranges[save->ranges_count++];
        *range = (struct sw_snap_range){.name = tensor->name,
                                        .data = file + save->tensors.data_at + tensor->offset,
                                        .bytes = tensor->bytes,
                                        .type = tensor->type,
                                        .dims = tensor->dims};
        memcpy(range->shape, tensor->shape, sizeof(range->shape));
        save->bytes += tensor->bytes;
    }
    return MOVER_DONE;
}

static int add_raws(struct save *save)
{
    if (!save->ranges)
        save->ranges = calloc(save->raws.count + 1, sizeof(*save->ranges));
    if (!save->ranges)
        return mover_fail("no memory");
    for (uint32_t i = 0; i < save->raws.count; i++) {
        struct sw_snap_range *range = &save->ranges[save->ranges_count++];
        int code;
        *range = (struct sw_snap_range){.name = save->raws.list[i].name};
        range->data = save_map_file(save->raws.list[i].file, &range->bytes, &code);
        if (code)
            return code;
        save->bytes += range->bytes;
    }
    return MOVER_DONE;
}

/* ---- the snapshot ---- */

/* One more than the newest that is there; where nothing is there yet, 0. The sinks are this
 * program's already: so no other one adds a step behind this look. No rank can be ahead, since none
 * writes a snapshot before all ranks have begun it. */
static int choose_step(struct save *save)
{
    struct sw_snap_reader *reader;
    struct sw_snap_error error;
    struct sw_snap_entry entry;
    struct sw_snap_options reads = save->remote.options;
    if (save->step != MOVER_NOT_GIVEN)
        return MOVER_DONE;
    save->step = 0;
    reads.rank = reads.world = 0;
    reads.quorum = 0;
    if (sw_snap_reader_open(&reads, &error, &reader))
        return MOVER_DONE;
    const bool is_there = sw_snap_list(reader, &entry, 1);
    sw_snap_reader_close(reader);
    if (is_there && entry.step == UINT64_MAX)
        return mover_fail("the newest snapshot has the largest step, %" PRIu64 ": give --step",
                          entry.step);
    if (is_there)
        save->step = entry.step + 1;
    return MOVER_DONE;
}

static int begin_save(struct save *save)
{
    struct sw_snap_error error;
    struct sw_snap_point point = {0};
    uint64_t small_bytes = 0;
    int code = MOVER_DONE;
    if (save->small_file)
        point.small = save_map_file(save->small_file, &small_bytes, &code);
    if (code)
        return code;
    if (small_bytes > UINT32_MAX)
        return mover_fail("%s is too long for small state", save->small_file);
    point.small_bytes = (uint32_t)small_bytes;
    if (sw_snap_open(&save->remote.options, &error, &save->snap) ||
        sw_snap_describe(save->snap, save->ranges, save->ranges_count, &error))
        return mover_fail("%s", error.text);
    code = choose_step(save);
    if (code)
        return code;
    point.step = save->step;
    if (sw_snap_begin(save->snap, &point, &error))
        return mover_fail("%s", error.text);
    sw_snap_gate(save->snap, SW_SNAP_HELP, 0);
    return MOVER_DONE;
}

static int wait_durable(struct save *save, struct sw_snap_info *info)
{
    struct mover_progress progress;
    struct sw_snap_error error;
    enum sw_snap_status status;
    mover_progress_begin(&progress, save->bytes, !save->remote.is_json && isatty(STDERR_FILENO));
    do {
        status = sw_snap_wait(save->snap, SW_SNAP_DURABLE, sw_snap_deadline_ms(TICK_MS), &error);
        sw_snap_info_of(save->snap, info);
        mover_progress_at(&progress,
                          info->moved_bytes < save->bytes ? info->moved_bytes : save->bytes);
    } while (status == SW_SNAP_TIMEOUT && info->stage != SW_SNAP_FAILED);
    mover_progress_end(&progress);
    if (status)
        return mover_fail("%s", error.text);
    /* Sinks beyond the quorum get it, too. */
    sw_snap_wait(save->snap, SW_SNAP_IDLE, 0, NULL);
    sw_snap_info_of(save->snap, info);
    return MOVER_DONE;
}

static int tell_saved(const struct save *save, const struct sw_snap_info *info)
{
    json_t *sinks = json_array();
    for (uint32_t i = 0; i < info->sinks_count; i++)
        json_array_append_new(
            sinks, json_pack("{ss sb sI ss ss}", "sink", info->sinks[i].sink, "has_it",
                             info->sinks[i].has_newest, "bytes_free",
                             (json_int_t)info->sinks[i].free_bytes, "error",
                             info->sinks[i].error.status ? info->sinks[i].error.text : "", "note",
                             info->sinks[i].note));
    const double seconds = (double)(info->durable_ns - info->begun_ns) / 1e9;
    if (save->remote.is_json)
        return mover_print_json(json_pack(
            "{so sI sI sI sf so}", "step", snap_json_step(info->step), "bytes",
            (json_int_t)info->state_bytes, "changed_bytes", (json_int_t)info->changed_bytes,
            "moved_bytes", (json_int_t)info->moved_bytes, "seconds", seconds, "sinks", sinks));
    json_decref(sinks);
    printf("step %" PRIu64 ": %" PRIu64 " bytes, %" PRIu64 " moved, durable in %.1f ms\n",
           info->step, info->state_bytes, info->moved_bytes, seconds * 1e3);
    for (uint32_t i = 0; i < info->sinks_count; i++)
        if (*info->sinks[i].note)
            printf("%s: %s\n", info->sinks[i].sink, info->sinks[i].note);
    for (uint32_t i = 0; i < info->sinks_count; i++)
        if (!info->sinks[i].has_newest)
            mover_fail("it is not in %s", info->sinks[i].error.status ? info->sinks[i].error.text
                                                                      : info->sinks[i].sink);
    return mover_finish_output();
}

/* Bytes of a mapped file that is not so long any more. */
static void end_at_bus_error(int signal)
{
    static const char text[] = "sidewire snapshot save: a file got shorter, or could not be read, "
                               "while it was saved; nothing counts of it: save it again\n";
    (void)signal;
    (void)!write(STDERR_FILENO, text, sizeof(text) - 1);
    _exit(MOVER_FAILED);
}

int snap_save(int argc, char **argv)
{
    static const struct mover_usage usage = {
        .words = "[FILE]",
        .about = "Saves the tensors of a safetensors FILE, or any files, as a snapshot, and ends "
                 "when it is durable.",
        .own = {.rows = options, .word = save_take_file, .check = save_check},
        .shared = &snap_remote_options};
    static struct save save = {
        .step = MOVER_NOT_GIVEN, .ring_bytes = 256 << 20, .unit_bytes = 2 << 20};
    struct sw_snap_info info;
    snap_remote_parse(&usage, argc, argv, &save);
    signal(SIGBUS, end_at_bus_error);
    save.remote.options.ring_bytes = save.ring_bytes;
    save.remote.options.unit_bytes = (uint32_t)save.unit_bytes;
    save.remote.options.volume_bytes = save.volume_bytes;
    int code = save.file ? add_tensors(&save) : MOVER_DONE;
    if (!code)
        code = add_raws(&save);
    if (code)
        return code;
    code = begin_save(&save);
    if (!code)
        code = wait_durable(&save, &info);
    if (!code)
        code = tell_saved(&save, &info);
    sw_snap_close(save.snap);
    return code;
}
