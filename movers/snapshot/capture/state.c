/* SPDX-License-Identifier: BSD-2-Clause */
/* What the state is: ranges, cut into the pieces of units. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/minmax.h"
#include "snapshot/capture/inside.h"

void snap_state_free(struct snap_capture *capture)
{
    free(capture->parts);
    free(capture->pieces);
    free(capture->units);
    free(capture->seen);
    free(capture->written);
    capture->parts = NULL;
    capture->pieces = NULL;
    capture->units = NULL;
    capture->seen = NULL;
    capture->written = NULL;
    capture->parts_count = capture->units_count = 0;
    capture->is_by_pages = false;
    capture->info.state_bytes = 0;
}

/* Units that a range touches; 0: it lies wrong. */
static uint64_t units_of_range(const struct snap_capture_range *range, uint32_t unit_bytes)
{
    if (range->offset >= unit_bytes || range->bytes > (uint64_t)SNAP_UNITS_MAX * unit_bytes)
        return 0;
    const uint64_t count = (range->offset + range->bytes + unit_bytes - 1) / unit_bytes;
    return (count > 1 && range->offset) || range->unit + count > SNAP_UNITS_MAX ? 0 : count;
}

static int count_pieces(struct snap_capture *capture, const struct snap_capture_range *ranges,
                        uint32_t ranges_count, uint64_t *pieces_count, uint32_t *bad)
{
    uint64_t units = 0;
    *pieces_count = 0;
    for (uint32_t i = 0; i < ranges_count; i++) {
        if (ranges[i].bytes == 0)
            continue;
        const uint64_t count = units_of_range(&ranges[i], capture->options.unit_bytes);
        if (count == 0) {
            *bad = i;
            return -EINVAL;
        }
        *pieces_count += count;
        units = mover_max_u64(units, ranges[i].unit + count);
    }
    capture->units_count = (uint32_t)units;
    return 0;
}

static int allocate_state(struct snap_capture *capture, uint32_t ranges_count, uint64_t pieces)
{
    capture->parts_count = ranges_count;
    capture->parts = calloc(ranges_count + 1u, sizeof(*capture->parts));
    capture->pieces = calloc(pieces + 1, sizeof(*capture->pieces));
    capture->units = calloc(capture->units_count + 1u, sizeof(*capture->units));
    capture->written = calloc(capture->units_count + 1u, sizeof(*capture->written));
    return capture->parts && capture->pieces && capture->units && capture->written ? 0 : -ENOMEM;
}

/* Each unit gets as much room for pieces as it has; ranges come in rising offsets. */
static void place_units(struct snap_capture *capture)
{
    uint64_t first = 0;
    for (uint32_t i = 0; i < capture->parts_count; i++)
        for (uint32_t k = 0; k < capture->parts[i].units_count; k++)
            capture->units[capture->parts[i].first_unit + k].pieces_count++;
    for (uint32_t i = 0; i < capture->units_count; i++) {
        capture->units[i].pieces = capture->pieces + first;
        first += capture->units[i].pieces_count;
        capture->units[i].pieces_count = 0;
    }
}

/* False: it overlaps one before, or comes before it. */
static bool place_piece(struct snap_unit *unit, struct snap_piece piece)
{
    struct snap_piece *pieces = (struct snap_piece *)unit->pieces;
    const struct snap_piece *before = unit->pieces_count ? &pieces[unit->pieces_count - 1] : NULL;
    if (before && before->offset + before->bytes > piece.offset)
        return false;
    pieces[unit->pieces_count++] = piece;
    unit->blocks = (uint32_t)snap_blocks_of(piece.offset + piece.bytes);
    unit->head = unit->blocks;
    return true;
}

static bool cut_part(struct snap_capture *capture, uint32_t range, uint32_t offset)
{
    const struct snap_part *part = &capture->parts[range];
    const uint32_t unit_bytes = capture->options.unit_bytes;
    uint64_t at = 0;
    for (uint32_t i = 0; i < part->units_count; i++) {
        const uint32_t room = i ? unit_bytes : unit_bytes - offset;
        const uint32_t bytes = (uint32_t)mover_min_u64(part->bytes - at, room);
        if (!place_piece(&capture->units[part->first_unit + i],
                         (struct snap_piece){.data = part->data + at,
                                             .bytes = bytes,
                                             .offset = i ? 0 : offset,
                                             .range = range}))
            return false;
        at += bytes;
    }
    return true;
}

/* ---- what the kernel watches ---- */

void snap_state_unwatch(struct snap_capture *capture, struct snap_part *part)
{
    part->span = (struct snap_span){0};
    part->is_lost = false;
    for (uint32_t i = 0; i < part->units_count; i++) {
        struct snap_unit *unit = &capture->units[part->first_unit + i];
        unit->head = unit->blocks;
        unit->tail = 0;
    }
}

/* Whether no other range has a part of its units. */
static bool has_own_units(const struct snap_capture *capture, const struct snap_part *part)
{
    for (uint32_t i = 0; i < part->units_count; i++) {
        const struct snap_unit *unit = &capture->units[part->first_unit + i];
        if (unit->pieces_count != 1 || unit->pieces[0].offset)
            return false;
    }
    return true;
}

/* Sums tell of the blocks alone that have bytes of pages which are not watched: less than a page
 * at the beginning, and less than one at the end. */
static void watch_part(struct snap_capture *capture, struct snap_part *part,
                       const struct snap_plain *plain)
{
    const struct snap_span span = snap_pages_span(part->data, part->bytes);
    if (part->bytes < SNAP_UNIT_SHARED_BELOW || !has_own_units(capture, part) ||
        capture->units[part->first_unit].is_remote || !snap_plain_has(plain, span) ||
        snap_pages_watch(&capture->pages, span))
        return;
    part->span = span;
    capture->is_by_pages = true;
    for (uint32_t i = 0; i < part->units_count; i++)
        capture->units[part->first_unit + i].head = 0;
    const uintptr_t data = (uintptr_t)part->data;
    struct snap_unit *first = &capture->units[part->first_unit];
    struct snap_unit *last = first + part->units_count - 1;
    first->head = span.first > data;
    const uint64_t unwatched = data + part->bytes - span.end;
    if (unwatched == 0)
        return;
    const uint64_t in_last = part->bytes - (uint64_t)(last - first) * capture->options.unit_bytes;
    if (unwatched > in_last) /* the page before belongs to the unit before */
        last[-1].tail = 1;
    const uint64_t from = unwatched > in_last ? 0 : in_last - unwatched;
    last->tail = last->blocks - (uint32_t)(from / SNAP_BLOCK_BYTES);
    if (last == first && last->tail + last->head > last->blocks)
        last->tail = last->blocks - last->head;
}

static void watch_state(struct snap_capture *capture)
{
    struct snap_plain plain;
    if (capture->options.look != SW_SNAP_LOOK_PAGES)
        return;
    snap_pages_close(&capture->pages); /* what was watched is not any more */
    if (snap_pages_open(&capture->pages) || snap_plain_read(&plain))
        return;
    for (uint32_t i = 0; i < capture->parts_count; i++)
        if (capture->parts[i].units_count)
            watch_part(capture, &capture->parts[i], &plain);
    snap_plain_free(&plain);
}

static int fill_state(struct snap_capture *capture, const struct snap_capture_range *ranges,
                      uint32_t *bad)
{
    struct snap_copier *copier = capture->options.copier;
    for (uint32_t i = 0; i < capture->parts_count; i++)
        capture->parts[i] = (struct snap_part){
            .data = ranges[i].data,
            .bytes = ranges[i].bytes,
            .first_unit = ranges[i].bytes ? ranges[i].unit : 0,
            .units_count = ranges[i].bytes
                               ? (uint32_t)units_of_range(&ranges[i], capture->options.unit_bytes)
                               : 0};
    place_units(capture);
    for (uint32_t i = 0; i < capture->parts_count; i++) {
        const struct snap_part *part = &capture->parts[i];
        const bool is_remote =
            part->bytes && copier && copier->ops->has(copier, part->data, part->bytes);
        *bad = i;
        if (!is_remote && part->bytes && !snap_is_mapped(part->data, part->bytes))
            return -EFAULT;
        if (!cut_part(capture, i, ranges[i].offset))
            return -EINVAL;
        for (uint32_t k = 0; k < part->units_count; k++) {
            struct snap_unit *unit = &capture->units[part->first_unit + k];
            if (unit->pieces_count > 1 && unit->is_remote != is_remote)
                return -EINVAL; /* a unit is of one kind */
            unit->is_remote = is_remote;
        }
        capture->info.state_bytes += part->bytes;
    }
    return 0;
}

int snap_state_make(struct snap_capture *capture, const struct snap_capture_range *ranges,
                    uint32_t ranges_count, uint32_t *bad)
{
    uint64_t pieces_count, blocks = 0;
    int code = count_pieces(capture, ranges, ranges_count, &pieces_count, bad);
    if (code == 0)
        code = allocate_state(capture, ranges_count, pieces_count);
    if (code == 0)
        code = fill_state(capture, ranges, bad);
    for (uint32_t i = 0; i < capture->units_count && code == 0; i++) {
        capture->units[i].first_sum = blocks;
        blocks += capture->units[i].blocks;
        if (capture->units[i].pieces_count == 0)
            code = -EINVAL; /* units are counted without gaps */
    }
    if (code == 0) {
        capture->seen = calloc(blocks + 1, sizeof(*capture->seen));
        code = capture->seen ? 0 : -ENOMEM;
    }
    if (code == 0)
        watch_state(capture);
    else
        snap_state_free(capture);
    return code;
}
