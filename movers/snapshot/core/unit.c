/* SPDX-License-Identifier: BSD-2-Clause */
#include "snapshot/core/unit.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>

/* A walk over the ranges: once to count, and once to fill the tables. */
struct cut_walk {
    struct snap_cut *cut; /* its tables are NULL while counting */
    uint64_t units, pieces;
    uint64_t blocks;
};

static void add_piece(struct cut_walk *walk, struct snap_cut_piece piece)
{
    if (walk->cut->pieces != NULL)
        walk->cut->pieces[walk->pieces] = piece;
    walk->pieces++;
}

static void add_unit(struct cut_walk *walk, uint64_t first_piece, uint32_t bytes)
{
    uint32_t blocks = (uint32_t)snap_blocks_of(bytes);
    if (walk->cut->units != NULL)
        walk->cut->units[walk->units] =
            (struct snap_cut_unit){.first_piece = (uint32_t)first_piece,
                                   .pieces = (uint32_t)(walk->pieces - first_piece),
                                   .blocks = blocks};
    walk->units++;
    walk->blocks += blocks;
}

static void set_place(struct cut_walk *walk, uint32_t range, uint32_t offset)
{
    if (walk->cut->places != NULL)
        walk->cut->places[range] =
            (struct snap_cut_place){.unit = (uint32_t)walk->units, .offset = offset};
}

static void cut_large(struct cut_walk *walk, uint32_t range, uint64_t bytes)
{
    set_place(walk, range, 0);
    for (uint64_t at = 0; at < bytes;) {
        uint32_t part = walk->cut->unit_bytes;
        if (bytes - at < part)
            part = (uint32_t)(bytes - at);
        uint64_t first = walk->pieces;
        add_piece(walk, (struct snap_cut_piece){.range = range, .range_offset = at, .bytes = part});
        add_unit(walk, first, part);
        at += part;
    }
}

/* Large ranges first, then the small ones: so pieces of a unit are neighbours. */
static void walk_ranges(struct cut_walk *walk, const uint64_t *range_bytes)
{
    struct snap_cut *cut = walk->cut;
    for (uint32_t i = 0; i < cut->ranges_count && walk->units <= SNAP_UNITS_MAX; i++)
        if (range_bytes[i] >= SNAP_UNIT_SHARED_BELOW)
            cut_large(walk, i, range_bytes[i]);
    uint32_t filled = 0, end = 0; /* of the shared unit; the end of its last range */
    uint64_t first = walk->pieces;
    for (uint32_t i = 0; i < cut->ranges_count; i++) {
        uint32_t bytes = (uint32_t)range_bytes[i];
        if (range_bytes[i] == 0 || range_bytes[i] >= SNAP_UNIT_SHARED_BELOW)
            continue;
        if (filled + bytes > cut->unit_bytes) {
            add_unit(walk, first, end);
            first = walk->pieces;
            filled = 0;
        }
        set_place(walk, i, filled);
        add_piece(walk, (struct snap_cut_piece){.range = i, .unit_offset = filled, .bytes = bytes});
        end = filled + bytes;
        filled = (end + SNAP_UNIT_SHARED_ALIGN - 1) & ~(uint32_t)(SNAP_UNIT_SHARED_ALIGN - 1);
    }
    if (walk->pieces > first)
        add_unit(walk, first, end);
}

static bool allocate_tables(struct snap_cut *cut)
{
    cut->units = calloc(cut->units_count + 1u, sizeof *cut->units);
    cut->pieces = calloc(cut->pieces_count + 1u, sizeof *cut->pieces);
    cut->places = calloc(cut->ranges_count + 1u, sizeof *cut->places);
    return cut->units != NULL && cut->pieces != NULL && cut->places != NULL;
}

int snap_cut_make(struct snap_cut *cut, const uint64_t *range_bytes, uint32_t ranges_count,
                  uint32_t unit_bytes)
{
    *cut = (struct snap_cut){.unit_bytes = unit_bytes, .ranges_count = ranges_count};
    if (unit_bytes < SNAP_UNIT_BYTES_MIN || unit_bytes > SNAP_UNIT_BYTES_MAX ||
        (unit_bytes & (unit_bytes - 1)) != 0 || ranges_count > SNAP_RANGES_MAX)
        return -EINVAL;
    for (uint32_t i = 0; i < ranges_count; i++) {
        if (range_bytes[i] > (uint64_t)SNAP_UNITS_MAX * unit_bytes)
            return -EINVAL;
        cut->state_bytes += range_bytes[i];
    }
    struct cut_walk count = {.cut = cut};
    walk_ranges(&count, range_bytes);
    if (count.units > SNAP_UNITS_MAX)
        return -EINVAL;
    cut->units_count = (uint32_t)count.units;
    cut->pieces_count = (uint32_t)count.pieces;
    cut->state_blocks = count.blocks;
    if (!allocate_tables(cut)) {
        snap_cut_free(cut);
        return -ENOMEM;
    }
    struct cut_walk fill = {.cut = cut};
    walk_ranges(&fill, range_bytes);
    return 0;
}

void snap_cut_free(struct snap_cut *cut)
{
    free(cut->units);
    free(cut->pieces);
    free(cut->places);
    *cut = (struct snap_cut){0};
}
