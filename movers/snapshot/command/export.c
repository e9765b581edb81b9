/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A snapshot as a file of safetensors. A tensor of which several ranks have a part, by `at` and
 * `whole`, is put together: the parts have to cover it once. Names that are the same tensor as
 * another (tied weights) stand in the metadata, since the format has no two names for the same
 * bytes.
 */
#include "snapshot/command/export.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "snapshot/command/command.h"
#include "snapshot/command/output.h"
#include "snapshot/command/parts.h"
#include "snapshot/command/safetensors.h"
#include "snapshot/core/type.h"

struct exporting {
    struct sw_snap_reader *reader;
    const struct sw_snap_entry *entry;
    uint32_t rank;
    struct mover_progress *progress;
    struct snap_parts parts;
    struct snap_tensors tensors;
};

/* {alias: name} from the small state of rank 0, where that is JSON with a member "tied"; else
 * NULL. */
static json_t *read_tied(const struct exporting *exporting)
{
    const uint32_t rank = exporting->rank == SNAP_ALL_RANKS ? 0 : exporting->rank;
    size_t length = 0;
    char *text;
    json_t *tied = NULL, *small;
    if (sw_snap_small(exporting->reader, rank, NULL, 0, &length, NULL) || !length ||
        !(text = malloc(length)))
        return NULL;
    if (!sw_snap_small(exporting->reader, rank, text, length, &length, NULL) &&
        (small = json_loadb(text, length, JSON_REJECT_DUPLICATES, NULL))) {
        tied = json_incref(json_object_get(small, "tied"));
        json_decref(small);
    }
    free(text);
    return tied;
}

/* What the header says beside the tensors. */
static json_t *make_metadata(const struct exporting *exporting)
{
    char step[24], token[33];
    const char *alias;
    json_t *name, *metadata, *tied = read_tied(exporting);
    mover_hex(exporting->entry->token, token);
    snprintf(step, sizeof(step), "%" PRIu64, exporting->entry->step);
    metadata = json_object();
    json_object_set_new(metadata, "sidewire.step", json_string(step));
    json_object_set_new(metadata, "sidewire.token", json_string(token));
    json_object_foreach(tied, alias, name) if (json_is_string(name))
        json_object_set(metadata, alias, name);
    json_decref(tied);
    return metadata;
}

/* A tensor of the file; one without a shape, or of a type that the format does not have, is a list
 * of its elements, or bytes. */
static void name_tensor(struct snap_tensor *tensor, const struct snap_whole *whole, uint32_t from)
{
    const uint32_t element = snap_type_bytes(whole->type);
    *tensor = (struct snap_tensor){.from = from, .bytes = whole->bytes, .dims = whole->dims};
    memcpy(tensor->name, whole->name, sizeof(tensor->name));
    memcpy(tensor->type, element ? whole->type : "U8", element ? sizeof(tensor->type) : 3);
    memcpy(tensor->shape, whole->shape, sizeof(tensor->shape));
    if (element && (whole->dims || whole->bytes == element))
        return;
    tensor->dims = 1;
    tensor->shape[0] = whole->bytes / (element && !(whole->bytes % element) ? element : 1);
    if (element && whole->bytes % element)
        memcpy(tensor->type, "U8", 3);
}

static int lay_file(struct exporting *exporting, struct snap_output *output, const char *path)
{
    struct snap_tensors *tensors = &exporting->tensors;
    tensors->list = calloc(exporting->parts.count + 1, sizeof(*tensors->list));
    if (!tensors->list)
        return mover_fail("no memory");
    tensors->count = exporting->parts.count;
    for (uint32_t i = 0; i < tensors->count; i++) {
        name_tensor(&tensors->list[i], &exporting->parts.list[i], i);
        if (!strcmp(tensors->list[i].name, "__metadata__"))
            return mover_fail("safetensors has no tensor __metadata__: 'sidewire snapshot restore "
                              "--raw __metadata__=FILE' writes its bytes");
    }
    snap_tensors_lay(tensors);
    json_t *metadata = make_metadata(exporting);
    uint8_t *header = snap_tensors_header(tensors, metadata);
    json_decref(metadata);
    if (!header)
        return mover_fail("the header of %u tensors cannot be written", tensors->count);
    const int code = snap_output_open(output, path, tensors->data_at + tensors->data_bytes);
    if (!code)
        memcpy(output->data, header, tensors->data_at);
    free(header);
    return code;
}

static int fill_file(struct exporting *exporting, struct snap_output *output)
{
    int code = MOVER_DONE;
    for (uint32_t i = 0; !code && i < exporting->tensors.count; i++) {
        const struct snap_tensor *tensor = &exporting->tensors.list[i];
        code = snap_parts_read(exporting->reader, &exporting->parts, tensor->from,
                               output->data + exporting->tensors.data_at + tensor->offset,
                               exporting->progress);
    }
    return code;
}

int snap_export_file(struct sw_snap_reader *reader, const struct sw_snap_entry *entry,
                     uint32_t rank, const char *path, struct mover_progress *progress)
{
    struct exporting exporting = {
        .reader = reader, .entry = entry, .rank = rank, .progress = progress};
    struct snap_output output = {.fd = -1};
    int code = snap_parts_find(&exporting.parts, reader, rank);
    if (!code)
        code = lay_file(&exporting, &output, path);
    if (!code)
        code = snap_output_close(&output, fill_file(&exporting, &output));
    snap_tensors_free(&exporting.tensors);
    snap_parts_free(&exporting.parts);
    return code;
}

/* ---- the command ---- */

struct export
{
    struct snap_remote remote;
    const char *file;
    uint64_t step, rank;
};

static const struct mover_option options[] = {
    {"step", 0, "N", 0, "Which one (the newest that is whole)", 1, MOVER_TO(struct export, step)},
    {"rank", 0, "R", 0, "Of this rank alone (of all)", 1, MOVER_TO(struct export, rank)},
    {0},
};

int snap_export(int argc, char **argv)
{
    static const struct mover_usage usage = {
        .words = "FILE",
        .about = "Writes a snapshot as safetensors. Tensors of which ranks have parts are put "
                 "together.",
        .own = {.rows = options,
                .only_word = "FILE",
                .only_word_at = offsetof(struct export, file)},
        .shared = &snap_remote_options};
    static struct export export = {.step = MOVER_NOT_GIVEN, .rank = MOVER_NOT_GIVEN};
    struct sw_snap_entry entry;
    struct mover_progress progress;
    snap_remote_parse(&usage, argc, argv, &export);
    int code = snap_remote_choose(&export.remote, export.step, false, &entry);
    if (code)
        return code;
    if (export.rank != MOVER_NOT_GIVEN && export.rank >= entry.world)
        return mover_fail("there is no rank %" PRIu64 ": the snapshot is of %u", export.rank,
                          entry.world);
    mover_progress_begin(&progress, entry.bytes, !export.remote.is_json && isatty(STDERR_FILENO));
    code =
        snap_export_file(export.remote.reader, &entry,
                         export.rank == MOVER_NOT_GIVEN ? SNAP_ALL_RANKS : (uint32_t) export.rank,
                         export.file, &progress);
    mover_progress_end(&progress);
    sw_snap_reader_close(export.remote.reader);
    if (code)
        return code;
    if (export.remote.is_json)
        return mover_print_json(json_pack("{so si sI}", "step", snap_json_step(entry.step), "ranks",
                                          (int)entry.world, "bytes",
                                          (json_int_t)progress.done_bytes));
    printf("step %" PRIu64 ", %" PRIu64 " bytes\n", entry.step, progress.done_bytes);
    return mover_finish_output();
}
