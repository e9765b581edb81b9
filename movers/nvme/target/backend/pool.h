/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Memory for data on its way, registered once. Pieces are 4 KiB to 1 MiB, powers of two (a buddy
 * allocator), so that any transfer lies in one piece.
 */
#ifndef SW_MOVERS_NVME_POOL_H
#define SW_MOVERS_NVME_POOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { NVT_POOL_SHIFT_MIN = 12, NVT_POOL_SHIFT_MAX = 20, NVT_REGION_DEVICES = 8 };

/* Memory that a NIC may be told to move from or to. */
struct nvt_region {
    uint8_t *base;
    size_t len_bytes;
    void *registered[NVT_REGION_DEVICES]; /* the transport's, by device */
    _Atomic bool is_pinned;               /* a NIC knows its pages by where they lie, or may */
    _Atomic uint32_t givers;              /* who gives pages back at the moment */
};

/* To give pages back: true until nvt_region_leave(). False: they are pinned. */
bool nvt_region_enter(struct nvt_region *region);
void nvt_region_leave(struct nvt_region *region);
/* They are, or may be. Waits for the threads that give pages back. */
void nvt_region_pin(struct nvt_region *region);

struct nvt_pool {
    struct nvt_region region;
    uint32_t chunks; /* of the largest size */
    uint64_t free_bytes;
    uint8_t *state; /* of each 4 KiB: order + 1 where a piece in use or free begins; 0 within */
    int32_t *next, *previous; /* of free pieces, by 4 KiB; -1 ends */
    int32_t first[NVT_POOL_SHIFT_MAX - NVT_POOL_SHIFT_MIN + 1];
    int32_t first_kept[NVT_POOL_SHIFT_MAX - NVT_POOL_SHIFT_MIN + 1];
    int32_t kept, last_kept; /* a chunk by its number; -1: none */
};

/* Returns 0 or a negative errno. */
int nvt_pool_init(struct nvt_pool *pool, size_t len_bytes);
void nvt_pool_free(struct nvt_pool *pool);

/* The size of the piece that such data lies in. */
size_t nvt_pool_piece_bytes(size_t len_bytes);
/* NULL: there is no such piece now. `len_bytes` is 1 to 1 MiB. */
uint8_t *nvt_pool_take(struct nvt_pool *pool, size_t len_bytes);
void nvt_pool_give(struct nvt_pool *pool, uint8_t *piece);

/* From now on nvt_pool_take() takes nothing of the next chunk: what is given back there gathers, so
 * that a large piece comes to be. One chunk at a time. */
void nvt_pool_keep(struct nvt_pool *pool);
/* It is for all again; nothing where none was kept. */
void nvt_pool_keep_no_more(struct nvt_pool *pool);
/* Takes from the kept chunk. NULL: there is no such piece in it yet. */
uint8_t *nvt_pool_take_kept(struct nvt_pool *pool, size_t len_bytes);

#endif
