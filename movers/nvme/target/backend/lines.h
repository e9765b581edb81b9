/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Places that few operations have at a time: workers of io_uring, memory. Each disk has a line of
 * operations that wait for one, with turns as slices.h gives them. A disk has at most half of the
 * places that other disks leave, so one that hangs leaves some to others; where they want more than
 * there are, disks take turns.
 */
#ifndef SW_MOVERS_NVME_LINES_H
#define SW_MOVERS_NVME_LINES_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "nvme/target/backend/slices.h"

struct nvt_line; /* of a disk */

struct nvt_lines {
    struct list all;
    uint32_t places, taken; /* of all disks */
    uint32_t of_one;        /* places that one disk may have, at most */
    struct nvt_line *turn;  /* whose operations begin at the moment; NULL: none do */
};

void nvt_lines_open(struct nvt_lines *lines, uint32_t places, uint32_t of_one);
void nvt_lines_close(struct nvt_lines *lines);
/*
 * begin() is called when there is a place: it takes it, or ends the operation, and returns true.
 * `is_held`: the operation has memory, and begin() ends it where nobody wants it any more. False:
 * no memory.
 */
bool nvt_lines_add(struct nvt_lines *lines, dev_t disk, struct nvt_io *io,
                   bool (*begin)(struct nvt_io *io), bool is_held);
/* In begin(). */
struct nvt_line *nvt_lines_take(struct nvt_lines *lines);
void nvt_lines_give(struct nvt_lines *lines, struct nvt_line *line);
/* Operations that wait, and that nobody wants any more, end now: at a disk that hangs they have no
 * turn. */
void nvt_lines_end_unwanted(struct nvt_lines *lines);
/* Whether it waits, in a line or for a slice. */
bool nvt_lines_has(const struct nvt_io *io);
/* It waits, and nobody wants it any more: it ends now. The others are not looked at. */
void nvt_lines_end_io(struct nvt_io *io);

#endif
