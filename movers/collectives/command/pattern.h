/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What ranks contribute, and what comes of it by the definition of docs/collectives.md, in plain C
 * that has nothing of the library's folds. Values cancel, so that each other order of a sum gives
 * other bits; minima and maxima have NaNs and both zeros among them. They repeat after a prime
 * number of elements.
 *
 * Where sums may have any order, values are small whole numbers: then no order gives other bits.
 */
#ifndef SW_COLLECTIVES_PATTERN_H
#define SW_COLLECTIVES_PATTERN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sidewire/coll.h"

enum { CO_TILE_ELEMENTS = 4099, CO_ELEMENT_MAX = 8 };

struct co_tile {
    bool is_any_order;     /* set before */
    const uint32_t *order; /* set before, for sums of all: whose contribution comes where */
    size_t element;        /* bytes */
    uint8_t bytes[CO_TILE_ELEMENTS * CO_ELEMENT_MAX];
};

/* The contribution of a rank. */
void co_tile_of_rank(struct co_tile *tile, enum sw_coll_type type, enum sw_coll_op op,
                     uint32_t rank);
/* The result of those of all `size` ranks. */
void co_tile_of_all(struct co_tile *tile, enum sw_coll_type type, enum sw_coll_op op,
                    uint32_t size);
/* Elements first, first + 1, ... of the endless row of this tile. */
void co_tile_spread(const struct co_tile *tile, uint64_t first, uint64_t count, void *to);
/* How many elements are not those. */
uint64_t co_tile_differs(const struct co_tile *tile, uint64_t first, uint64_t count,
                         const void *from);

#endif
