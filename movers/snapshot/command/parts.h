/* SPDX-License-Identifier: BSD-2-Clause */
/* Tensors of a snapshot, each with the items that it is made of: one, or a part of each rank. */
#ifndef SW_MOVERS_SNAPSHOT_PARTS_H
#define SW_MOVERS_SNAPSHOT_PARTS_H

#include "common/command/progress.h"
#include "sidewire/snapshot.h"

struct snap_whole {
    char name[SW_SNAP_NAME_MAX + 1], type[16];
    uint32_t dims;
    uint64_t shape[SW_SNAP_DIMS_MAX];
    uint64_t bytes;
    uint32_t first, count; /* in `numbers` */
    bool has_parts;
};

struct snap_parts {
    struct snap_whole *list;
    uint32_t count;
    uint32_t *numbers; /* of items */
};

/* Those of a rank, or of all (SNAP_ALL_RANKS of export.h). Says what does not fit; returns the exit
 * status. */
int snap_parts_find(struct snap_parts *parts, const struct sw_snap_reader *reader, uint32_t rank);
/* Reads a tensor as a whole. */
int snap_parts_read(struct sw_snap_reader *reader, const struct snap_parts *parts, uint32_t at,
                    uint8_t *into, struct mover_progress *progress);
void snap_parts_free(struct snap_parts *parts);

#endif
