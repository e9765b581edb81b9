/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The state, cut into units: what is copied, looked at and stored at once.
 *
 * A range of 64 KiB or more has units of its own, one after another, each of `unit_bytes` but for
 * the last one. Smaller ranges share units: each begins at a multiple of 64 bytes. A unit consists
 * of whole blocks; what no range fills is zero.
 */
#ifndef SW_SNAPSHOT_UNIT_H
#define SW_SNAPSHOT_UNIT_H

#include <stdint.h>

#include "snapshot/core/medium.h"

enum {
    SNAP_UNIT_BYTES_MIN = 1 << 20,
    SNAP_UNIT_BYTES_MAX = 4 << 20,
    SNAP_UNIT_BLOCKS_MAX = SNAP_UNIT_BYTES_MAX / SNAP_BLOCK_BYTES,
    SNAP_UNIT_SHARED_BELOW = 64 << 10, /* ranges below share units */
    SNAP_UNIT_SHARED_ALIGN = 64,
    SNAP_UNITS_MAX = 1 << 22,
    SNAP_RANGES_MAX = 65536
};

/* A part of a range that lies in a unit. */
struct snap_cut_piece {
    uint32_t range;
    uint32_t unit_offset;
    uint64_t range_offset;
    uint32_t bytes;
};

struct snap_cut_unit {
    uint32_t first_piece, pieces; /* rising unit_offset */
    uint32_t blocks;
};

/* Where a range begins; ranges of 0 bytes say 0 and 0. */
struct snap_cut_place {
    uint32_t unit, offset;
};

struct snap_cut {
    uint32_t unit_bytes;
    uint32_t units_count, pieces_count, ranges_count;
    uint64_t state_bytes;  /* of all ranges */
    uint64_t state_blocks; /* of all units */
    struct snap_cut_unit *units;
    struct snap_cut_piece *pieces; /* those of a unit are neighbours */
    struct snap_cut_place *places; /* of each range */
};

/* `unit_bytes` is a power of two of SNAP_UNIT_BYTES_MIN to _MAX. 0; -EINVAL: that is not so, or
 * there are too many ranges or units; -ENOMEM. */
int snap_cut_make(struct snap_cut *cut, const uint64_t *range_bytes, uint32_t ranges_count,
                  uint32_t unit_bytes);
void snap_cut_free(struct snap_cut *cut);

static inline uint64_t snap_blocks_of(uint64_t bytes)
{
    return bytes / SNAP_BLOCK_BYTES + (bytes % SNAP_BLOCK_BYTES != 0);
}

#endif
