/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Sums what lies in a volume, as its leaf says: docs/snapshot-format.md, "Bytes". A client may
 * write to the leaf meanwhile, so it is copied first. The blocks of a file are read: a page that
 * its disk does not give is an error then, and no SIGBUS.
 */
#include <string.h>
#include <unistd.h>

#include "common/base/bytes.h"
#include "snapshot/core/medium.h"
#include "snapshot/core/sum.h"
#include "snapshot/server/server.h"

enum {
    LEAF_HEAD_BYTES = 24,
    LEAF_BLOCKS_MAX = SNAP_IO_BYTES_MAX / SNAP_BLOCK_BYTES,
    LEAF_BYTES_MAX = LEAF_HEAD_BYTES + LEAF_BLOCKS_MAX * 20 + LEAF_BLOCKS_MAX / 8,
};

struct checked_leaf {
    uint8_t bytes[LEAF_BYTES_MAX];
    uint32_t blocks;
    uint64_t seed;
};

static bool read_volume(const struct snap_volume *volume, uint64_t offset, void *into, size_t bytes)
{
    if (offset > volume->bytes || bytes > volume->bytes - offset)
        return false;
    if (volume->fd >= 0)
        return pread(volume->fd, into, bytes, (off_t)offset) == (ssize_t)bytes;
    memcpy(into, volume->base + offset, bytes);
    return true;
}

static size_t leaf_bytes_of(uint32_t blocks)
{
    return LEAF_HEAD_BYTES + (size_t)blocks * 20 + (blocks + 7) / 8;
}

static bool copy_leaf(const struct snap_volume *volume, uint64_t offset, struct checked_leaf *leaf)
{
    static const uint8_t magic[8] = {'S', 'W', 'S', 'N', 'A', 'P', 'L', 1};
    if (!read_volume(volume, offset, leaf->bytes, LEAF_HEAD_BYTES) ||
        memcmp(leaf->bytes, magic, sizeof(magic)) != 0)
        return false;
    leaf->blocks = get_le32(leaf->bytes + 12);
    leaf->seed = get_le64(leaf->bytes + 16);
    return leaf->blocks && leaf->blocks <= LEAF_BLOCKS_MAX &&
           read_volume(volume, offset, leaf->bytes, leaf_bytes_of(leaf->blocks));
}

static bool block_is_good(const struct snap_volume *volume, const struct checked_leaf *leaf,
                          uint32_t index, uint64_t place)
{
    uint8_t copy[SNAP_BLOCK_BYTES];
    const uint64_t offset = place * SNAP_BLOCK_BYTES;
    const uint8_t *sum = leaf->bytes + LEAF_HEAD_BYTES + (size_t)index * 16;
    const struct snap_sum expected = {.low = get_le64(sum), .high = get_le64(sum + 8)};
    const void *block = copy;
    if (volume->bytes < SNAP_BLOCK_BYTES || offset > volume->bytes - SNAP_BLOCK_BYTES)
        return false;
    if (volume->fd < 0)
        block = volume->base + offset;
    else if (!read_volume(volume, offset, copy, sizeof(copy)))
        return false;
    return snap_sum_equal(snap_sum_block(block, leaf->seed), expected);
}

enum snap_wire_status snap_check_leaf(const struct snap_volume *volume, uint64_t offset,
                                      uint64_t *bad_block)
{
    static struct checked_leaf leaf; /* the loop's: too large for its stack */
    *bad_block = offset / SNAP_BLOCK_BYTES;
    if (!copy_leaf(volume, offset, &leaf))
        return SNAP_WIRE_DIFFERS;
    const uint8_t *places = leaf.bytes + LEAF_HEAD_BYTES + (size_t)leaf.blocks * 16;
    const uint8_t *fresh = places + (size_t)leaf.blocks * 4;
    for (uint32_t i = 0; i < leaf.blocks; i++) {
        const uint32_t place = get_le32(places + (size_t)i * 4);
        if (!(fresh[i / 8] >> (i % 8) & 1))
            continue;
        if (block_is_good(volume, &leaf, i, place))
            continue;
        *bad_block = place;
        return SNAP_WIRE_DIFFERS;
    }
    return SNAP_WIRE_OK;
}
