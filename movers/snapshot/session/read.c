/* SPDX-License-Identifier: BSD-2-Clause */
/* The bytes of what was chosen: from the nearest copy, block by block from the next where that one
 * is damaged. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "snapshot/session/reader.h"
#include "snapshot/session/status.h"

static enum sw_snap_status check_chosen(const struct sw_snap_reader *reader,
                                        struct sw_snap_error *error)
{
    if (mover_is_forked(&reader->guard))
        return snap_error_plain(error, SW_SNAP_FORKED);
    return reader->is_chosen ? SW_SNAP_OK
                             : snap_error_set(error, SW_SNAP_INVALID, "no snapshot was chosen");
}

/* Damaged copies of a rank get the bytes of the good ones. What goes wrong with it is no failure of
 * the read. */
static void repair_rank(struct sw_snap_reader *reader, uint32_t rank)
{
    struct snap_store *stores[SW_SNAP_SINKS_MAX];
    const struct snap_scrub_options how = {.repairs = true};
    struct snap_scrub_report report;
    struct sw_snap_error error;
    uint32_t count = 0;
    bool is_damaged = false;
    for (uint32_t i = 0; i < reader->volumes_count; i++)
        if (reader->volumes[i].rank == rank) {
            stores[count++] = reader->volumes[i].store;
            is_damaged |= reader->volumes[i].is_damaged;
        }
    if (!is_damaged || !reader->options.may_write || count < 2)
        return;
    snap_scrub(stores, count, &how, &report, &error);
    for (uint32_t i = 0; i < reader->volumes_count; i++) {
        struct snap_volume *volume = &reader->volumes[i];
        if (volume->rank != rank)
            continue;
        volume->is_damaged = false;
        snap_store_info_of(volume->store, &volume->info);
    }
}

enum sw_snap_status sw_snap_small(struct sw_snap_reader *reader, uint32_t rank, void *bytes,
                                  size_t capacity, size_t *length, struct sw_snap_error *error)
{
    if (error)
        *error = (struct sw_snap_error){0};
    enum sw_snap_status status = check_chosen(reader, error);
    if (status)
        return status;
    if (rank >= reader->chosen.entry.world)
        return snap_error_set(error, SW_SNAP_NOT_FOUND, "there is no rank %u", rank);
    status = snap_error_set(error, SW_SNAP_CORRUPT,
                            "step %" PRIu64 ": the small state of rank %u is damaged in all copies",
                            reader->chosen.entry.step, rank);
    for (uint32_t i = 0; i < reader->volumes_count; i++) {
        struct snap_volume *volume = &reader->volumes[i];
        const void *small;
        size_t small_bytes;
        if (volume->rank != rank || !volume->image)
            continue;
        if (snap_image_small(volume->image, &small, &small_bytes)) {
            volume->is_damaged = true;
            continue;
        }
        if (error)
            *error = (struct sw_snap_error){0};
        *length = small_bytes;
        if (!bytes)
            return SW_SNAP_OK;
        if (small_bytes > capacity)
            return snap_error_set(error, SW_SNAP_INVALID, "it has %zu bytes", small_bytes);
        if (small_bytes)
            memcpy(bytes, small, small_bytes);
        return SW_SNAP_OK;
    }
    return status;
}

/* The spans of one rank, and how the last copy failed that was asked. */
struct reading {
    struct sw_snap_reader *reader;
    uint32_t rank, count;
    struct snap_span *spans;
    struct sw_snap_error error;
};

/* Asks a copy; what it could not read stays in the list. */
static void read_copy(struct reading *reading, struct snap_volume *volume)
{
    uint32_t left = 0;
    struct sw_snap_error why = {0};
    const enum sw_snap_status status =
        snap_image_read(volume->image, reading->spans, reading->count, &why);
    if (!status) {
        reading->count = 0;
        return;
    }
    if (status == SW_SNAP_CORRUPT)
        volume->is_damaged = true;
    for (uint32_t i = 0; i < reading->count; i++)
        if (reading->spans[i].status)
            reading->spans[left++] = reading->spans[i];
    reading->count = left;
    snap_error_at(&reading->error, status, volume->text, why.text);
}

static enum sw_snap_status read_rank(struct reading *reading, struct sw_snap_error *error)
{
    struct sw_snap_reader *reader = reading->reader;
    for (uint32_t i = 0; i < reader->volumes_count && reading->count; i++)
        if (reader->volumes[i].rank == reading->rank && reader->volumes[i].image)
            read_copy(reading, &reader->volumes[i]);
    if (!reading->count)
        return SW_SNAP_OK;
    const struct snap_span *bad = &reading->spans[0];
    if (bad->status != SW_SNAP_CORRUPT)
        return snap_error_set(error, bad->status, "%s", reading->error.text);
    return snap_error_set(error, SW_SNAP_CORRUPT,
                          "step %" PRIu64 ", rank %u: bytes from %" PRIu64
                          " of %.255s are damaged in all copies",
                          reader->chosen.entry.step, reading->rank, bad->bad_offset,
                          reader->indices[reading->rank]->ranges[bad->range].name);
}

static enum sw_snap_status check_piece(const struct sw_snap_reader *reader,
                                       const struct sw_snap_piece *piece,
                                       struct sw_snap_error *error)
{
    struct sw_snap_item item;
    if (sw_snap_item_of(reader, piece->number, &item))
        return snap_error_set(error, SW_SNAP_NOT_FOUND, "there is no item %u", piece->number);
    if (piece->offset > item.bytes || piece->bytes > item.bytes - piece->offset)
        return snap_error_set(error, SW_SNAP_INVALID, "%.255s ends at %" PRIu64 " bytes", item.name,
                              item.bytes);
    if (piece->bytes && !piece->into)
        return snap_error_set(error, SW_SNAP_INVALID, "a piece of %.255s goes nowhere", item.name);
    return SW_SNAP_OK;
}

static uint32_t collect_spans(const struct sw_snap_reader *reader, uint32_t rank,
                              const struct sw_snap_piece *pieces, uint32_t pieces_count,
                              struct snap_span *spans)
{
    const uint32_t first = reader->firsts[rank], end = reader->firsts[rank + 1];
    uint32_t count = 0;
    for (uint32_t i = 0; i < pieces_count; i++)
        if (pieces[i].number >= first && pieces[i].number < end && pieces[i].bytes)
            spans[count++] = (struct snap_span){.range = pieces[i].number - first,
                                                .offset = pieces[i].offset,
                                                .bytes = pieces[i].bytes,
                                                .into = pieces[i].into};
    return count;
}

enum sw_snap_status sw_snap_read(struct sw_snap_reader *reader, const struct sw_snap_piece *pieces,
                                 uint32_t pieces_count, struct sw_snap_error *error)
{
    if (error)
        *error = (struct sw_snap_error){0};
    enum sw_snap_status status = check_chosen(reader, error);
    for (uint32_t i = 0; !status && i < pieces_count; i++)
        status = check_piece(reader, &pieces[i], error);
    if (status)
        return status;
    struct snap_span *spans = calloc((size_t)pieces_count + 1, sizeof(*spans));
    if (!spans)
        return snap_error_plain(error, SW_SNAP_NO_MEMORY);
    for (uint32_t rank = 0; !status && rank < reader->chosen.entry.world; rank++) {
        struct reading reading = {.reader = reader, .rank = rank, .spans = spans};
        reading.count = collect_spans(reader, rank, pieces, pieces_count, spans);
        if (!reading.count)
            continue;
        status = read_rank(&reading, error);
        repair_rank(reader, rank);
    }
    free(spans);
    return status;
}
