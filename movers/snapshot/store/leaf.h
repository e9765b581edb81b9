/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The codec of leaves: docs/snapshot-format.md. A leaf is checked once, as a whole; then its fields
 * are read where they lie. A server reads it to sum the blocks that are fresh in it.
 */
#ifndef SW_SNAPSHOT_LEAF_H
#define SW_SNAPSHOT_LEAF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/bytes.h"
#include "snapshot/core/sum.h"
#include "snapshot/core/unit.h"

enum {
    SNAP_LEAF_HEAD_BYTES = 24,
    SNAP_LEAF_BYTES_MAX =
        SNAP_LEAF_HEAD_BYTES + SNAP_UNIT_BLOCKS_MAX * 20 + SNAP_UNIT_BLOCKS_MAX / 8,
};

/* A view of the bytes of a leaf. */
struct snap_leaf {
    uint32_t unit, blocks;
    uint64_t seed;
    const uint8_t *sums, *places, *fresh;
};

static inline uint32_t snap_leaf_bytes(uint32_t blocks)
{
    return SNAP_LEAF_HEAD_BYTES + blocks * 20 + (blocks + 7) / 8;
}

/* The blocks of a unit whose leaf has so many bytes; 0: no leaf has. */
uint32_t snap_leaf_blocks_of(uint32_t bytes);

/* `fresh` has a bit for each block, `bytes` room for snap_leaf_bytes(). */
void snap_leaf_encode(uint8_t *bytes, uint32_t unit, uint32_t blocks, uint64_t seed,
                      const struct snap_sum *sums, const uint32_t *places, const uint8_t *fresh);
/* Reads bytes that may be anything, and more than the leaf has. 0, or -EBADMSG: it is no leaf, or a
 * place is outside the volume. */
int snap_leaf_decode(const uint8_t *bytes, size_t length, uint64_t volume_blocks,
                     struct snap_leaf *leaf);

static inline struct snap_sum snap_leaf_sum(const struct snap_leaf *leaf, uint32_t block)
{
    const uint8_t *at = leaf->sums + (size_t)block * 16;
    return (struct snap_sum){.low = get_le64(at), .high = get_le64(at + 8)};
}

/* The block of the volume; 0: it is zero. */
static inline uint32_t snap_leaf_place(const struct snap_leaf *leaf, uint32_t block)
{
    return get_le32(leaf->places + (size_t)block * 4);
}

static inline bool snap_leaf_is_fresh(const struct snap_leaf *leaf, uint32_t block)
{
    return (leaf->fresh[block / 8] >> (block % 8) & 1) != 0;
}

#endif
