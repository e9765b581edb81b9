/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Memory for data on its way, registered once. Pieces are 4 KiB to 1 MiB, powers of two (a buddy
 * allocator), so that any transfer lies in one piece.
 */
#ifndef SW_MOVERS_POOL_H
#define SW_MOVERS_POOL_H

#include <stddef.h>
#include <stdint.h>

#include "common/pool/region.h"

enum { MOVER_POOL_SHIFT_MIN = 12, MOVER_POOL_SHIFT_MAX = 20 };

struct mover_pool {
    struct mover_region region;
    uint32_t chunks; /* of the largest size */
    uint64_t free_bytes;
    uint8_t *state; /* of each 4 KiB: order + 1 where a piece in use or free begins; 0 within */
    int32_t *next, *previous; /* of free pieces, by 4 KiB; -1 ends */
    int32_t first[MOVER_POOL_SHIFT_MAX - MOVER_POOL_SHIFT_MIN + 1];
    int32_t first_kept[MOVER_POOL_SHIFT_MAX - MOVER_POOL_SHIFT_MIN + 1];
    int32_t kept, last_kept; /* a chunk by its number; -1: none */
};

/* Returns 0 or a negative errno. */
int mover_pool_init(struct mover_pool *pool, size_t len_bytes);
void mover_pool_free(struct mover_pool *pool);

/* The size of the piece that such data lies in. */
size_t mover_pool_piece_bytes(size_t len_bytes);
/* NULL: there is no such piece now. `len_bytes` is 1 to 1 MiB. */
uint8_t *mover_pool_take(struct mover_pool *pool, size_t len_bytes);
void mover_pool_give(struct mover_pool *pool, uint8_t *piece);

/* From now on mover_pool_take() takes nothing of the next chunk: what is given back there gathers,
 * so that a large piece comes to be. One chunk at a time. */
void mover_pool_keep(struct mover_pool *pool);
/* It is for all again; nothing where none was kept. */
void mover_pool_keep_no_more(struct mover_pool *pool);
/* Takes from the kept chunk. NULL: there is no such piece in it yet. */
uint8_t *mover_pool_take_kept(struct mover_pool *pool, size_t len_bytes);

#endif
