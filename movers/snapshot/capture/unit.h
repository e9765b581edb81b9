/* SPDX-License-Identifier: BSD-2-Clause */
/* A unit of the state, as the capture reads it: from pieces of ranges, into blocks. */
#ifndef SW_SNAPSHOT_CAPTURE_UNIT_H
#define SW_SNAPSHOT_CAPTURE_UNIT_H

#include <stdbool.h>
#include <stdint.h>

#include "snapshot/capture/copier.h"
#include "snapshot/core/blocks.h"

struct snap_piece {
    const uint8_t *data;
    uint32_t bytes, offset; /* in the unit */
    uint32_t range;
};

struct snap_unit {
    const struct snap_piece *pieces; /* rising offsets, none overlap */
    uint32_t pieces_count;
    uint32_t blocks;
    bool is_remote; /* the copier's memory */
    /* How many blocks at its beginning and at its end sums tell of. All at the beginning: the
     * kernel tells nothing of it. */
    uint32_t head, tail;
    uint64_t first_sum; /* in the table of sums */
    /* What the capture knows, under its lock. */
    bool is_todo;    /* in this phase */
    bool is_running; /* a job about it has begun, in this phase, and none has ended */
    bool is_copied;  /* in this capture */
    bool is_dirty;   /* it changed behind its copy */
};

/* How memory is read. */
struct snap_reading {
    const struct snap_blocks_ops *ops;
    struct snap_blocks_key key;
    struct snap_copier *copier;
};

/* Copies it into a slot of the ring; sums has an entry for each block. 0, or a negative errno:
 * -EFAULT: a part of it is not mapped, its range in `bad_range`. */
int snap_unit_copy(const struct snap_reading *reading, const struct snap_unit *unit, void *slot,
                   struct snap_sum *sums, uint32_t *bad_range);
/* Sums blocks [first, first + count) of it alone. `scratch` has room for the unit, in the ring,
 * where it is the copier's memory. */
int snap_unit_sum(const struct snap_reading *reading, const struct snap_unit *unit, uint32_t first,
                  uint32_t count, void *scratch, struct snap_sum *sums, uint32_t *bad_range);
/* Whether a range is mapped from end to end, as far as can be told without touching it. */
bool snap_is_mapped(const void *data, uint64_t bytes);

#endif
