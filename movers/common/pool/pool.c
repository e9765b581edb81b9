/* SPDX-License-Identifier: BSD-2-Clause */
#include "common/pool/pool.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "common/base/minmax.h"

enum { ORDERS = MOVER_POOL_SHIFT_MAX - MOVER_POOL_SHIFT_MIN + 1, IN_USE = 0x80 };

/* The head of the list that a free piece is on. */
static int32_t *first_of_list(struct mover_pool *pool, int32_t at, int order)
{
    return at >> (ORDERS - 1) == pool->kept ? &pool->first_kept[order] : &pool->first[order];
}

static void push_block(struct mover_pool *pool, int32_t at, int order)
{
    int32_t *first = first_of_list(pool, at, order);
    pool->state[at] = (uint8_t)(order + 1);
    pool->previous[at] = -1;
    pool->next[at] = *first;
    if (pool->next[at] >= 0)
        pool->previous[pool->next[at]] = at;
    *first = at;
}

static void unlink_piece(struct mover_pool *pool, int32_t at, int order)
{
    if (pool->previous[at] >= 0)
        pool->next[pool->previous[at]] = pool->next[at];
    else
        *first_of_list(pool, at, order) = pool->next[at];
    if (pool->next[at] >= 0)
        pool->previous[pool->next[at]] = pool->previous[at];
    pool->state[at] = 0;
}

int mover_pool_init(struct mover_pool *pool, size_t len_bytes)
{
    const size_t chunk = (size_t)1 << MOVER_POOL_SHIFT_MAX;
    len_bytes = (len_bytes + chunk - 1) / chunk * chunk;
    const size_t pages = len_bytes >> MOVER_POOL_SHIFT_MIN;
    *pool = (struct mover_pool){.chunks = (uint32_t)(len_bytes / chunk),
                                .free_bytes = len_bytes,
                                .kept = -1,
                                .last_kept = -1};
    void *base = mmap(NULL, len_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED)
        return -errno;
    pool->region = (struct mover_region){.base = base, .len_bytes = len_bytes};
    pool->state = calloc(pages, sizeof(*pool->state));
    pool->next = calloc(pages, sizeof(*pool->next));
    pool->previous = calloc(pages, sizeof(*pool->previous));
    if (!pool->state || !pool->next || !pool->previous) {
        mover_pool_free(pool);
        return -ENOMEM;
    }
    for (int order = 0; order < ORDERS; order++)
        pool->first[order] = pool->first_kept[order] = -1;
    for (uint32_t i = pool->chunks; i > 0; i--)
        push_block(pool, (int32_t)((i - 1) << (ORDERS - 1)), ORDERS - 1);
    return 0;
}

void mover_pool_free(struct mover_pool *pool)
{
    if (pool->region.base)
        munmap(pool->region.base, pool->region.len_bytes);
    free(pool->state);
    free(pool->next);
    free(pool->previous);
    *pool = (struct mover_pool){0};
}

static int order_of(size_t len_bytes)
{
    int order = 0;
    while (((size_t)1 << (MOVER_POOL_SHIFT_MIN + order)) < len_bytes)
        order++;
    return order;
}

size_t mover_pool_piece_bytes(size_t len_bytes)
{
    return (size_t)1 << (MOVER_POOL_SHIFT_MIN + order_of(len_bytes));
}

static uint8_t *take_block(struct mover_pool *pool, const int32_t *first, size_t len_bytes)
{
    const int wanted = order_of(len_bytes);
    int order = wanted;
    assert(wanted < ORDERS);
    while (order < ORDERS && first[order] < 0)
        order++;
    if (order == ORDERS)
        return NULL;
    const int32_t at = first[order];
    unlink_piece(pool, at, order);
    while (order > wanted) {
        order--;
        push_block(pool, at + (1 << order), order);
    }
    pool->state[at] = (uint8_t)(IN_USE | (order + 1));
    pool->free_bytes -= (size_t)1 << (MOVER_POOL_SHIFT_MIN + order);
    return pool->region.base + ((size_t)at << MOVER_POOL_SHIFT_MIN);
}

uint8_t *mover_pool_take(struct mover_pool *pool, size_t len_bytes)
{
    return take_block(pool, pool->first, len_bytes);
}

uint8_t *mover_pool_take_kept(struct mover_pool *pool, size_t len_bytes)
{
    return take_block(pool, pool->first_kept, len_bytes);
}

void mover_pool_give(struct mover_pool *pool, uint8_t *piece)
{
    assert(piece >= pool->region.base && piece < pool->region.base + pool->region.len_bytes);
    int32_t at = (int32_t)((size_t)(piece - pool->region.base) >> MOVER_POOL_SHIFT_MIN);
    assert(pool->state[at] & IN_USE);
    int order = (pool->state[at] & ~IN_USE) - 1;
    pool->state[at] = 0;
    pool->free_bytes += (size_t)1 << (MOVER_POOL_SHIFT_MIN + order);
    while (order < ORDERS - 1) {
        const int32_t buddy = at ^ (1 << order);
        if (pool->state[buddy] != order + 1)
            break;
        unlink_piece(pool, buddy, order);
        at = mover_min_u32(at, buddy);
        order++;
    }
    push_block(pool, at, order);
}

/* ---- a chunk that is kept ---- */

/* Its free pieces go from the one kind of list to the other. */
static void change_kept(struct mover_pool *pool, int32_t chunk, int32_t kept)
{
    const int32_t begin = chunk << (ORDERS - 1), end = (chunk + 1) << (ORDERS - 1);
    const int32_t before = pool->kept;
    int order;
    for (int32_t at = begin; at < end; at += 1 << order) {
        order = (pool->state[at] & ~IN_USE) - 1;
        if (pool->state[at] & IN_USE)
            continue;
        pool->kept = before;
        unlink_piece(pool, at, order);
        pool->kept = kept;
        push_block(pool, at, order);
    }
    pool->kept = kept;
}

void mover_pool_keep(struct mover_pool *pool)
{
    assert(pool->kept < 0);
    pool->last_kept = (int32_t)((uint32_t)(pool->last_kept + 1) % pool->chunks);
    change_kept(pool, pool->last_kept, pool->last_kept);
}

void mover_pool_keep_no_more(struct mover_pool *pool)
{
    if (pool->kept >= 0)
        change_kept(pool, pool->kept, -1);
}
