/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Built twice, SNAP_BLOCKS_OPS is the name of the table. It reads memory that the program may be
 * writing to: that is what sums are for. So ThreadSanitizer is not told of these accesses.
 */
#include "snapshot/core/blocks.h"

#include <string.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif
#define XXH_INLINE_ALL /* libxxhash has one for SSE2, and calls by pointers: 12 GB/s in the cache */
#include <xxhash.h>

#include "snapshot/core/medium.h"

enum { LINE_BYTES = 64, AHEAD_BYTES = 16 * LINE_BYTES };

static void make_block_key(struct snap_blocks_key *key, uint64_t seed)
{
    _Static_assert(SNAP_SECRET_BYTES == XXH_SECRET_DEFAULT_SIZE, "the secret of a seed");
    key->seed = seed;
    XXH3_generateSecret_fromSeed(key->secret, seed);
}

/* The same as XXH3_128bits_withSeed() has. */
static inline struct snap_sum sum_cached_block(const struct snap_blocks_key *key, const void *block)
{
    const XXH128_hash_t hash = XXH3_128bits_withSecretandSeed(block, SNAP_BLOCK_BYTES, key->secret,
                                                              SNAP_SECRET_BYTES, key->seed);
    return (struct snap_sum){.low = hash.low64, .high = hash.high64};
}

#if defined(__AVX2__)
typedef __m256i vector;
#define LOAD_VECTOR _mm256_loadu_si256
#define STORE_VECTOR _mm256_store_si256
#define STREAM_VECTOR _mm256_stream_si256
#define END_STREAM _mm_sfence
#elif defined(__x86_64__)
typedef __m128i vector;
#define LOAD_VECTOR _mm_loadu_si128
#define STORE_VECTOR _mm_store_si128
#define STREAM_VECTOR _mm_stream_si128
#define END_STREAM _mm_sfence
#endif

#if defined(__x86_64__)
static inline void copy_one_block(void *into, void *cached, const void *from)
{
    vector *ring = into, *cache = cached;
    const vector *source = from;
    for (size_t i = 0; i < SNAP_BLOCK_BYTES / sizeof(vector); i += 4) {
        const vector a = LOAD_VECTOR(source + i), b = LOAD_VECTOR(source + i + 1);
        const vector c = LOAD_VECTOR(source + i + 2), d = LOAD_VECTOR(source + i + 3);
        STORE_VECTOR(cache + i, a);
        STORE_VECTOR(cache + i + 1, b);
        STORE_VECTOR(cache + i + 2, c);
        STORE_VECTOR(cache + i + 3, d);
        STREAM_VECTOR(ring + i, a);
        STREAM_VECTOR(ring + i + 1, b);
        STREAM_VECTOR(ring + i + 2, c);
        STREAM_VECTOR(ring + i + 3, d);
    }
}
#else
#define END_STREAM() ((void)0)
static inline void copy_one_block(void *into, void *cached, const void *from)
{
    memcpy(cached, from, SNAP_BLOCK_BYTES);
    memcpy(into, cached, SNAP_BLOCK_BYTES);
}
#endif

/* The beginning of the next block comes while this one is summed: the processor's own prefetcher
 * stops at the end of a page. The rest comes by itself then: to ask for all of it is slower. */
static inline void fetch_ahead(const uint8_t *next)
{
    for (size_t i = 0; i < AHEAD_BYTES; i += LINE_BYTES)
        __builtin_prefetch(next + i, 0, 3);
}

static void copy_state_blocks(const struct snap_blocks_key *key, void *into, const void *from,
                              uint32_t blocks, struct snap_sum *sums)
{
    _Alignas(64) uint8_t cached[SNAP_BLOCK_BYTES];
    uint8_t *to = into;
    const uint8_t *at = from;
    for (uint32_t i = 0; i < blocks; i++, at += SNAP_BLOCK_BYTES, to += SNAP_BLOCK_BYTES) {
        copy_one_block(to, cached, at);
        fetch_ahead(at + SNAP_BLOCK_BYTES);
        sums[i] = sum_cached_block(key, cached);
    }
    END_STREAM(); /* before other processors are told that it is there */
}

static void sum_state_blocks(const struct snap_blocks_key *key, const void *from, uint32_t blocks,
                             struct snap_sum *sums)
{
    const uint8_t *at = from;
    for (uint32_t i = 0; i < blocks; i++, at += SNAP_BLOCK_BYTES)
        sums[i] = sum_cached_block(key, at);
}

const struct snap_blocks_ops SNAP_BLOCKS_OPS = {
    .make_key = make_block_key, .copy = copy_state_blocks, .sum = sum_state_blocks};
