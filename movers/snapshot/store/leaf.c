/* SPDX-License-Identifier: BSD-2-Clause */
#include "snapshot/store/leaf.h"

#include <errno.h>
#include <string.h>

static const uint8_t MAGIC[8] = {'S', 'W', 'S', 'N', 'A', 'P', 'L', 1};

enum { AT_UNIT = 8, AT_BLOCKS = 12, AT_SEED = 16, PLACE_MIN = 2 };

uint32_t snap_leaf_blocks_of(uint32_t bytes)
{
    if (bytes < snap_leaf_bytes(1) || bytes > SNAP_LEAF_BYTES_MAX)
        return 0;
    uint32_t blocks = (bytes - SNAP_LEAF_HEAD_BYTES) * 8 / 161; /* each has 20 bytes and a bit */
    return snap_leaf_bytes(blocks) == bytes ? blocks : 0;
}

void snap_leaf_encode(uint8_t *bytes, uint32_t unit, uint32_t blocks, uint64_t seed,
                      const struct snap_sum *sums, const uint32_t *places, const uint8_t *fresh)
{
    memcpy(bytes, MAGIC, sizeof(MAGIC));
    put_le32(bytes + AT_UNIT, unit);
    put_le32(bytes + AT_BLOCKS, blocks);
    put_le64(bytes + AT_SEED, seed);
    uint8_t *at = bytes + SNAP_LEAF_HEAD_BYTES;
    for (uint32_t i = 0; i < blocks; i++, at += 16) {
        put_le64(at, sums[i].low);
        put_le64(at + 8, sums[i].high);
    }
    for (uint32_t i = 0; i < blocks; i++, at += 4)
        put_le32(at, places[i]);
    memcpy(at, fresh, (blocks + 7) / 8);
}

int snap_leaf_decode(const uint8_t *bytes, size_t length, uint64_t volume_blocks,
                     struct snap_leaf *leaf)
{
    if (length < SNAP_LEAF_HEAD_BYTES || memcmp(bytes, MAGIC, sizeof(MAGIC)) != 0)
        return -EBADMSG;
    struct snap_leaf found = {.unit = get_le32(bytes + AT_UNIT),
                              .blocks = get_le32(bytes + AT_BLOCKS),
                              .seed = get_le64(bytes + AT_SEED)};
    if (found.blocks == 0 || found.blocks > SNAP_UNIT_BLOCKS_MAX ||
        length < snap_leaf_bytes(found.blocks))
        return -EBADMSG;
    found.sums = bytes + SNAP_LEAF_HEAD_BYTES;
    found.places = found.sums + (size_t)found.blocks * 16;
    found.fresh = found.places + (size_t)found.blocks * 4;
    for (uint32_t i = 0; i < found.blocks; i++) {
        uint32_t place = snap_leaf_place(&found, i);
        if (place == 0 ? snap_leaf_is_fresh(&found, i)
                       : place < PLACE_MIN || place >= volume_blocks)
            return -EBADMSG;
    }
    if (found.blocks % 8 != 0 && found.fresh[found.blocks / 8] >> (found.blocks % 8) != 0)
        return -EBADMSG;
    *leaf = found;
    return 0;
}
