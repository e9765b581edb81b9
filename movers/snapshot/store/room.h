/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Which blocks of a volume are in use, and which are given out next. Data come from the low end,
 * leaves and roots from the high one, so that neither cuts up the room of the other.
 */
#ifndef SW_SNAPSHOT_ROOM_H
#define SW_SNAPSHOT_ROOM_H

#include <stdbool.h>
#include <stdint.h>

struct snap_room {
    uint64_t blocks, free_blocks;
    uint64_t words;
    uint64_t *taken;    /* a bit for each block */
    uint64_t low, high; /* words where the next search begins */
};

int snap_room_open(struct snap_room *room, uint64_t blocks); /* 0 or -ENOMEM; superblocks taken */
void snap_room_close(struct snap_room *room);
void snap_room_clear(struct snap_room *room);

/* A free run from the low end, of up to `want` blocks; returns how many: 0 if the volume is full.
 * A run that is there as a whole is preferred, near the one before. */
uint64_t snap_room_take(struct snap_room *room, uint64_t want, uint64_t *block);
/* A run of that length near the high end, or false. */
bool snap_room_take_run(struct snap_room *room, uint64_t blocks, uint64_t *block);
void snap_room_give(struct snap_room *room, uint64_t block, uint64_t blocks);

/* A set of blocks of a volume: those of a snapshot. */
void snap_marks_add(uint64_t *marks, uint64_t block, uint64_t blocks);
/* Takes all blocks of the set. */
void snap_room_add(struct snap_room *room, const uint64_t *marks);

#endif
