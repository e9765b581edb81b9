/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Indices of a table drawn so that a stranger cannot foresee them, few pages are touched, and none
 * comes again soon: from a random block on, block by block, each in random order. So an index that
 * is drawn costs as much memory as one that is counted, give or take a block.
 */
#ifndef SW_DEVICE_NIC_DRAW_H
#define SW_DEVICE_NIC_DRAW_H

#include <stdint.h>

#define SW_DRAW_BLOCK 32u

struct sw_draw {
    uint32_t limit;               /* of the table, a multiple of the block; a power of two */
    uint32_t next;                /* how many have been drawn, and where it began */
    uint8_t order[SW_DRAW_BLOCK]; /* of the block at `next` */
};

void sw_draw_start(struct sw_draw *draw, uint32_t limit);
uint32_t sw_draw(struct sw_draw *draw);

/* So many draws bring each index at least once. */
static inline uint32_t sw_draw_all(const struct sw_draw *draw)
{
    return draw->limit + SW_DRAW_BLOCK;
}

/* The last index of the block that an index is in. */
static inline uint32_t sw_draw_block_last(uint32_t index)
{
    return index | (SW_DRAW_BLOCK - 1);
}

#endif
