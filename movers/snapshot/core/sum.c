/* SPDX-License-Identifier: BSD-2-Clause */
#include "snapshot/core/sum.h"

#include <stddef.h>
#include <xxhash.h>
#if defined(__x86_64__)
#include <xxh_x86dispatch.h> /* its functions take the place of those above */
#endif

#include "snapshot/core/medium.h"

struct snap_sum snap_sum_block(const void *block, uint64_t seed)
{
    XXH128_hash_t hash = XXH3_128bits_withSeed(block, SNAP_BLOCK_BYTES, seed);
    return (struct snap_sum){.low = hash.low64, .high = hash.high64};
}
