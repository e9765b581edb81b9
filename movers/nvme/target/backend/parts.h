/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Long operations at a disk, a part at a time. Few parts of a thread are under way at once, however
 * many operations there are. Those that wait take no memory, and have turns at their disk as
 * lines.h gives them; one that nobody wants any more ends at its next turn.
 */
#ifndef SW_MOVERS_NVME_PARTS_H
#define SW_MOVERS_NVME_PARTS_H

#include <stdbool.h>
#include <stdint.h>

#include "nvme/target/backend/lines.h"

enum { NVT_PARTS_MAX = 16, NVT_PARTS_OF_ONE = 4, NVT_PART_BYTES = 256 << 10 };

struct nvt_parts {
    struct nvt_lines lines;
    uint8_t *memory;
    uint8_t *spare[NVT_PARTS_MAX]; /* places in `memory`; the first `under_way` are taken */
    uint32_t under_way;
    struct nvt_line *taken_by[NVT_PARTS_MAX]; /* by where the place lies */
};

/* Returns 0 or -ENOMEM. */
int nvt_parts_open(struct nvt_parts *parts);
void nvt_parts_close(struct nvt_parts *parts);
/* begin() is called when a part may be under way: it takes a place, or ends the operation. It
 * returns true. */
void nvt_parts_add(struct nvt_parts *parts, dev_t disk, struct nvt_io *io,
                   bool (*begin)(struct nvt_io *io));
/* For a part of at most NVT_PART_BYTES, whose data nobody wants. In begin() there always is one. */
uint8_t *nvt_parts_take(struct nvt_parts *parts);
/* The part is over. For the next one the operation is added again, behind others. */
void nvt_parts_give(struct nvt_parts *parts, uint8_t *place);

#endif
