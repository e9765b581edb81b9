/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The memory of one side of the integrity test: buffers of every kind a program may register, each
 * inside a larger block whose bytes around the region serve as guards. Regions start and end at odd
 * places and are registered anew now and then.
 */
#ifndef SW_TESTS_INTEGRITY_ARENA_H
#define SW_TESTS_INTEGRITY_ARENA_H

#include "verbs_util/pair.h"

#define ARENA_BUFS 8

/* Where region r of a buffer lies in its block: the same on both sides, from the plan. */
struct extent {
    uint32_t start, len_bytes;
};

struct arena {
    uint8_t *blocks[ARENA_BUFS];
    /* Two regions a buffer: [1] is [0] but for its last third, so they overlap and share pages. */
    struct ibv_mr *mrs[ARENA_BUFS][2];
};

uint32_t arena_block_bytes(int buf);
const char *arena_kind(int buf);
void arena_open(struct arena *arena);
void arena_close(struct arena *arena);
void arena_register(struct arena *arena, struct vu_dev *dev, int buf, struct extent extent);
void arena_unregister(struct arena *arena, int buf);

#endif
