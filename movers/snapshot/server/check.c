/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Sums what lies in a volume, as its leaf says: docs/snapshot-format.md, "Bytes". A client may
 * write to the leaf meanwhile, so it is copied first. The blocks of a file are read: a page that
 * its disk does not give is an error then, and no SIGBUS.
 */
#include <string.h>
#include <unistd.h>

#include "common/base/minmax.h"
#include "snapshot/core/medium.h"
#include "snapshot/core/sum.h"
#include "snapshot/server/server.h"
#include "snapshot/store/leaf.h"

static bool read_volume(const struct snap_volume *volume, uint64_t offset, void *into, size_t bytes)
{
    if (volume->fd >= 0)
        return pread(volume->fd, into, bytes, (off_t)offset) == (ssize_t)bytes;
    memcpy(into, volume->base + offset, bytes);
    return true;
}

/* Copies as many bytes as a leaf has at most, and looks whether they begin with one. */
static bool read_leaf(const struct snap_volume *volume, uint64_t offset,
                      uint8_t bytes[SNAP_LEAF_BYTES_MAX], struct snap_leaf *leaf)
{
    if (offset >= volume->bytes)
        return false;
    const uint64_t length = mover_min_u64(SNAP_LEAF_BYTES_MAX, volume->bytes - offset);
    return read_volume(volume, offset, bytes, length) &&
           !snap_leaf_decode(bytes, length, volume->bytes / SNAP_BLOCK_BYTES, leaf);
}

static bool block_is_good(const struct snap_volume *volume, const struct snap_leaf *leaf,
                          uint32_t index)
{
    uint8_t copy[SNAP_BLOCK_BYTES];
    const uint64_t offset = (uint64_t)snap_leaf_place(leaf, index) * SNAP_BLOCK_BYTES;
    const void *block = copy;
    if (volume->fd < 0)
        block = volume->base + offset;
    else if (!read_volume(volume, offset, copy, sizeof(copy)))
        return false;
    return snap_sum_equal(snap_sum_block(block, leaf->seed), snap_leaf_sum(leaf, index));
}

enum snap_wire_status snap_check_leaf(const struct snap_volume *volume, uint64_t offset,
                                      uint64_t *bad_block)
{
    static uint8_t bytes[SNAP_LEAF_BYTES_MAX]; /* the loop's: too large for its stack */
    struct snap_leaf leaf;
    *bad_block = offset / SNAP_BLOCK_BYTES;
    if (!read_leaf(volume, offset, bytes, &leaf))
        return SNAP_WIRE_DIFFERS;
    for (uint32_t i = 0; i < leaf.blocks; i++) {
        if (!snap_leaf_is_fresh(&leaf, i) || block_is_good(volume, &leaf, i))
            continue;
        *bad_block = snap_leaf_place(&leaf, i);
        return SNAP_WIRE_DIFFERS;
    }
    return SNAP_WIRE_OK;
}
