/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Blocks of 4 KiB that are copied and summed at once: the inner loop of captures, and of restoring.
 *
 * The sum is of what was copied: each vector is loaded once, and stored both to the ring and to a
 * block in the cache, which is summed then. Stores to the ring go past the caches: the ring is read
 * by sinks much later, and a processor that does not fetch lines before it overwrites them copies
 * nearly twice as fast as memcpy. Measured on a Xeon (Sapphire Rapids, 2 processors under load,
 * 512 MiB of state into a ring of 256 MiB, GB/s of one processor's time):
 *
 *                                              pages of 2 MiB   pages of 4 KiB
 *     memcpy                                             7.0              6.9
 *     memcpy, then the sum of the copy in the cache      6.5              5.0
 *     this                                              11.6              8.1
 *       without fetching ahead                          10.3              7.2
 *       with AVX-512 in place of AVX2                    6.9              6.4
 *     the sum alone                                     17.0              9.3
 */
#ifndef SW_SNAPSHOT_BLOCKS_H
#define SW_SNAPSHOT_BLOCKS_H

#include <stdint.h>

#include "snapshot/core/sum.h"

enum { SNAP_SECRET_BYTES = 192, SNAP_BLOCKS_ALIGNMENT = 64 };

/* What XXH3 makes of a seed; made once, since it would make it for each block. */
struct snap_blocks_key {
    uint64_t seed;
    uint8_t secret[SNAP_SECRET_BYTES];
};

struct snap_blocks_ops {
    void (*make_key)(struct snap_blocks_key *key, uint64_t seed);
    /* `into` is aligned to SNAP_BLOCKS_ALIGNMENT, `from` in no way. */
    void (*copy)(const struct snap_blocks_key *key, void *into, const void *from, uint32_t blocks,
                 struct snap_sum *sums);
    void (*sum)(const struct snap_blocks_key *key, const void *from, uint32_t blocks,
                struct snap_sum *sums);
};

/* As this processor can. */
const struct snap_blocks_ops *snap_blocks_best(void);

/* blocks.c, built for any processor, and for AVX2. */
extern const struct snap_blocks_ops snap_blocks_plain;
#if defined(__x86_64__)
extern const struct snap_blocks_ops snap_blocks_avx2;
#endif

#endif
