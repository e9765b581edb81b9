/* SPDX-License-Identifier: BSD-2-Clause */
#include "nvme/target/tier/cache.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/minmax.h"

enum {
    GHOSTS_OF = 1, /* numbers that are remembered, for each block */
    SMALL_OF = 10, /* the small queue has a tenth */
    FREQUENT = 3,  /* more reads than that are not counted */
    WORDS_OF_VERSIONS = 4096,
    BLOCKS_MOST = 1 << 29, /* 2 TiB: twice as many entries have less than 2^32 buckets */
};

#define NONE UINT32_MAX

/* Where it waits. */
enum queue_name { IN_NONE, IN_SMALL, IN_MAIN, IN_GHOST };

struct entry {
    uint64_t block;
    uint32_t chain, next; /* of the hash; of the queue */
    uint32_t place;       /* of the data; NONE: a ghost */
    uint8_t queue, reads;
    bool is_void; /* its block has changed: it leaves in its turn */
};

struct queue {
    uint32_t first, last, count;
};

struct nvt_tier_cache {
    uint8_t *memory;
    struct entry *entries;
    uint32_t *buckets;
    uint32_t blocks_max, entries_max, buckets_mask;
    uint32_t spare_entry, fresh_place, spare_places;
    uint32_t *places; /* that are free again */
    struct queue small, main, ghosts;
    uint32_t version, versions[WORDS_OF_VERSIONS]; /* the last change of a block, by its hash */
    uint64_t hits, misses;
};

static uint32_t hash_block(uint64_t block)
{
    return (uint32_t)(block * UINT64_C(0x9E3779B97F4A7C15) >> 32);
}

struct nvt_tier_cache *nvt_tier_cache_open(uint64_t bytes)
{
    const uint64_t blocks = bytes / NVT_TIER_CACHE_BLOCK;
    struct nvt_tier_cache *cache = blocks <= BLOCKS_MOST ? calloc(1, sizeof(*cache)) : NULL;
    if (!cache)
        return NULL;
    cache->blocks_max = (uint32_t)mover_max_u64(blocks, 2 * SMALL_OF);
    cache->entries_max = (1 + GHOSTS_OF) * cache->blocks_max + 1;
    uint32_t buckets = 64;
    while (buckets < cache->entries_max)
        buckets *= 2;
    cache->buckets_mask = buckets - 1;
    cache->memory = malloc((size_t)cache->blocks_max * NVT_TIER_CACHE_BLOCK);
    cache->entries = calloc(cache->entries_max, sizeof(*cache->entries));
    cache->buckets = malloc(buckets * sizeof(*cache->buckets));
    cache->places = malloc(cache->blocks_max * sizeof(*cache->places));
    if (!cache->memory || !cache->entries || !cache->buckets || !cache->places) {
        nvt_tier_cache_close(cache);
        return NULL;
    }
    memset(cache->buckets, 0xff, buckets * sizeof(*cache->buckets));
    for (uint32_t i = 0; i < cache->entries_max; i++)
        cache->entries[i].next = i + 1 < cache->entries_max ? i + 1 : NONE;
    cache->small = cache->main = cache->ghosts = (struct queue){NONE, NONE, 0};
    return cache;
}

void nvt_tier_cache_close(struct nvt_tier_cache *cache)
{
    if (!cache)
        return;
    free(cache->memory);
    free(cache->entries);
    free(cache->buckets);
    free(cache->places);
    free(cache);
}

/* ---- entries ---- */

static uint32_t find_entry(const struct nvt_tier_cache *cache, uint64_t block)
{
    uint32_t at = cache->buckets[hash_block(block) & cache->buckets_mask];
    while (at != NONE && (cache->entries[at].block != block || cache->entries[at].is_void))
        at = cache->entries[at].chain;
    return at;
}

static void unchain_entry(struct nvt_tier_cache *cache, uint32_t at)
{
    uint32_t *link = &cache->buckets[hash_block(cache->entries[at].block) & cache->buckets_mask];
    while (*link != at)
        link = &cache->entries[*link].chain;
    *link = cache->entries[at].chain;
}

static uint32_t take_entry(struct nvt_tier_cache *cache, uint64_t block)
{
    const uint32_t at = cache->spare_entry;
    uint32_t *bucket = &cache->buckets[hash_block(block) & cache->buckets_mask];
    cache->spare_entry = cache->entries[at].next;
    cache->entries[at] = (struct entry){.block = block, .chain = *bucket, .place = NONE};
    *bucket = at;
    return at;
}

static void give_entry(struct nvt_tier_cache *cache, uint32_t at)
{
    unchain_entry(cache, at);
    cache->entries[at].next = cache->spare_entry;
    cache->spare_entry = at;
}

static void enqueue_entry(struct nvt_tier_cache *cache, struct queue *queue, uint32_t at,
                          enum queue_name name)
{
    cache->entries[at].next = NONE;
    cache->entries[at].queue = (uint8_t)name;
    if (queue->count++)
        cache->entries[queue->last].next = at;
    else
        queue->first = at;
    queue->last = at;
}

static uint32_t dequeue_entry(struct nvt_tier_cache *cache, struct queue *queue)
{
    const uint32_t at = queue->first;
    queue->first = cache->entries[at].next;
    queue->count--;
    return at;
}

static void free_place(struct nvt_tier_cache *cache, uint32_t at)
{
    cache->places[cache->spare_places++] = cache->entries[at].place;
    cache->entries[at].place = NONE;
}

/* ---- who leaves ---- */

static void remember_block(struct nvt_tier_cache *cache, uint32_t at)
{
    if (cache->ghosts.count == GHOSTS_OF * cache->blocks_max)
        give_entry(cache, dequeue_entry(cache, &cache->ghosts));
    enqueue_entry(cache, &cache->ghosts, at, IN_GHOST);
}

static void shrink_small(struct nvt_tier_cache *cache)
{
    const uint32_t at = dequeue_entry(cache, &cache->small);
    struct entry *entry = &cache->entries[at];
    if (entry->is_void) {
        free_place(cache, at);
        give_entry(cache, at);
    } else if (entry->reads > 0) {
        entry->reads = 0;
        enqueue_entry(cache, &cache->main, at, IN_MAIN);
    } else {
        free_place(cache, at);
        remember_block(cache, at);
    }
}

static void shrink_main(struct nvt_tier_cache *cache)
{
    const uint32_t at = dequeue_entry(cache, &cache->main);
    struct entry *entry = &cache->entries[at];
    if (entry->reads > 0 && !entry->is_void) {
        entry->reads--;
        enqueue_entry(cache, &cache->main, at, IN_MAIN);
        return;
    }
    free_place(cache, at);
    give_entry(cache, at);
}

static uint32_t take_place(struct nvt_tier_cache *cache)
{
    if (cache->fresh_place < cache->blocks_max)
        return cache->fresh_place++;
    while (!cache->spare_places) { /* each turn takes a read from a block, or its place */
        if (cache->small.count >= cache->blocks_max / SMALL_OF || !cache->main.count)
            shrink_small(cache);
        else
            shrink_main(cache);
    }
    return cache->places[--cache->spare_places];
}

/* ---- what is asked ---- */

static uint8_t *data_at(const struct nvt_tier_cache *cache, uint32_t place)
{
    return cache->memory + (size_t)place * NVT_TIER_CACHE_BLOCK;
}

bool nvt_tier_cache_read(struct nvt_tier_cache *cache, uint64_t offset, uint64_t len_bytes,
                         uint8_t *to)
{
    const uint64_t end = offset + len_bytes;
    for (uint64_t at = offset / NVT_TIER_CACHE_BLOCK; at * NVT_TIER_CACHE_BLOCK < end; at++) {
        const uint32_t found = find_entry(cache, at);
        if (found == NONE || cache->entries[found].place == NONE) {
            cache->misses++;
            return false;
        }
    }
    while (offset < end) {
        const uint64_t block = offset / NVT_TIER_CACHE_BLOCK, skip = offset % NVT_TIER_CACHE_BLOCK;
        const uint64_t bytes = mover_min_u64(NVT_TIER_CACHE_BLOCK - skip, end - offset);
        struct entry *entry = &cache->entries[find_entry(cache, block)];
        entry->reads = (uint8_t)(entry->reads + (entry->reads < FREQUENT));
        memcpy(to, data_at(cache, entry->place) + skip, bytes);
        to += bytes;
        offset += bytes;
    }
    cache->hits++;
    return true;
}

uint32_t nvt_tier_cache_version(const struct nvt_tier_cache *cache)
{
    return cache->version;
}

static void fill_block(struct nvt_tier_cache *cache, uint64_t block, const uint8_t *data)
{
    uint32_t at = find_entry(cache, block);
    if (at != NONE && cache->entries[at].place != NONE)
        return; /* somebody else has read it meanwhile: that is the same */
    const bool was_known = at != NONE;
    if (was_known) { /* its ghost leaves in its turn */
        cache->entries[at].is_void = true;
    }
    const uint32_t place = take_place(cache);
    at = take_entry(cache, block);
    cache->entries[at].place = place;
    memcpy(data_at(cache, place), data, NVT_TIER_CACHE_BLOCK);
    if (was_known)
        enqueue_entry(cache, &cache->main, at, IN_MAIN);
    else
        enqueue_entry(cache, &cache->small, at, IN_SMALL);
}

void nvt_tier_cache_fill(struct nvt_tier_cache *cache, uint64_t offset, uint64_t len_bytes,
                         const uint8_t *data, uint32_t version)
{
    const uint64_t first = (offset + NVT_TIER_CACHE_BLOCK - 1) / NVT_TIER_CACHE_BLOCK;
    for (uint64_t at = first; (at + 1) * NVT_TIER_CACHE_BLOCK <= offset + len_bytes; at++) {
        const uint32_t changed = cache->versions[hash_block(at) % WORDS_OF_VERSIONS];
        if ((int32_t)(changed - version) <= 0)
            fill_block(cache, at, data + (at * NVT_TIER_CACHE_BLOCK - offset));
    }
}

static void forget_block(struct nvt_tier_cache *cache, uint64_t block)
{
    const uint32_t found = find_entry(cache, block);
    cache->versions[hash_block(block) % WORDS_OF_VERSIONS] = cache->version;
    if (found != NONE && cache->entries[found].place != NONE)
        cache->entries[found].is_void = true;
}

/* Long ranges hold all that the cache has at most: then each entry is looked at, not each block. */
void nvt_tier_cache_forget(struct nvt_tier_cache *cache, uint64_t offset, uint64_t len_bytes)
{
    const uint64_t first = offset / NVT_TIER_CACHE_BLOCK;
    const uint64_t end = (offset + len_bytes + NVT_TIER_CACHE_BLOCK - 1) / NVT_TIER_CACHE_BLOCK;
    cache->version++;
    if (end - first <= cache->blocks_max) {
        for (uint64_t at = first; at < end; at++)
            forget_block(cache, at);
        return;
    }
    for (uint32_t i = 0; i < WORDS_OF_VERSIONS; i++)
        cache->versions[i] = cache->version;
    for (uint32_t i = 0; i < cache->entries_max; i++)
        if (cache->entries[i].block >= first && cache->entries[i].block < end)
            cache->entries[i].is_void = true;
}

void nvt_tier_cache_counts(const struct nvt_tier_cache *cache, uint64_t *bytes, uint64_t *hits,
                           uint64_t *misses)
{
    *bytes = (uint64_t)cache->blocks_max * NVT_TIER_CACHE_BLOCK;
    *hits = cache->hits;
    *misses = cache->misses;
}
