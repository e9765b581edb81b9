/* SPDX-License-Identifier: BSD-2-Clause */
#include "snapshot/store/root.h"

#include <errno.h>
#include <string.h>

#include "common/base/bytes.h"
#include "snapshot/store/leaf.h"
#include "snapshot/store/superblock.h"

static const uint8_t MAGIC[8] = {'S', 'W', 'S', 'N', 'A', 'P', 'R', 1};

enum {
    AT_STEP = 8,
    AT_TOKEN = 16,
    AT_RANK = 32,
    AT_WORLD = 36,
    AT_UNIT_BYTES = 40,
    AT_UNITS = 44,
    AT_INDEX = 48,
    AT_SMALL = 96,
    AT_STATE_BYTES = 144,
};

bool snap_run_is_inside(uint64_t block, uint64_t bytes, uint64_t volume_blocks)
{
    uint64_t blocks = snap_blocks_of(bytes);
    return block >= SNAP_SUPERBLOCKS && block < volume_blocks && blocks <= volume_blocks - block;
}

static void encode_blob(const struct snap_blob *blob, uint8_t *at)
{
    put_le64(at, blob->block);
    put_le64(at + 8, blob->bytes);
    memcpy(at + 16, blob->digest, SNAP_DIGEST_BYTES);
}

static struct snap_blob decode_blob(const uint8_t *at)
{
    struct snap_blob blob = {.block = get_le64(at), .bytes = get_le64(at + 8)};
    memcpy(blob.digest, at + 16, SNAP_DIGEST_BYTES);
    return blob;
}

void snap_root_encode(const struct snap_root *root, const struct snap_root_unit *units,
                      uint8_t *bytes)
{
    memset(bytes, 0, SNAP_ROOT_HEAD_BYTES);
    memcpy(bytes, MAGIC, sizeof(MAGIC));
    put_le64(bytes + AT_STEP, root->step);
    memcpy(bytes + AT_TOKEN, root->token, SNAP_TOKEN_BYTES);
    put_le32(bytes + AT_RANK, root->rank);
    put_le32(bytes + AT_WORLD, root->world);
    put_le32(bytes + AT_UNIT_BYTES, root->unit_bytes);
    put_le32(bytes + AT_UNITS, root->units_count);
    encode_blob(&root->index, bytes + AT_INDEX);
    encode_blob(&root->small, bytes + AT_SMALL);
    put_le64(bytes + AT_STATE_BYTES, root->state_bytes);
    uint8_t *at = bytes + SNAP_ROOT_HEAD_BYTES;
    for (uint32_t i = 0; i < root->units_count; i++, at += SNAP_ROOT_UNIT_BYTES) {
        put_le32(at, units[i].block);
        put_le32(at + 4, units[i].bytes);
        memcpy(at + 8, units[i].digest, SNAP_DIGEST_BYTES);
    }
}

struct snap_root_unit snap_root_unit_at(const uint8_t *bytes, uint32_t number)
{
    const uint8_t *at = bytes + SNAP_ROOT_HEAD_BYTES + (size_t)number * SNAP_ROOT_UNIT_BYTES;
    struct snap_root_unit unit = {.block = get_le32(at), .bytes = get_le32(at + 4)};
    memcpy(unit.digest, at + 8, SNAP_DIGEST_BYTES);
    return unit;
}

static const char *units_fault(const uint8_t *bytes, const struct snap_root *root,
                               uint64_t volume_blocks)
{
    uint64_t leaf_blocks = 0; /* what a stranger may have us allocate is less than the volume */
    for (uint32_t i = 0; i < root->units_count; i++) {
        struct snap_root_unit unit = snap_root_unit_at(bytes, i);
        uint32_t blocks = snap_leaf_blocks_of(unit.bytes);
        if (blocks == 0 || blocks > root->unit_bytes / SNAP_BLOCK_BYTES)
            return "a leaf has an impossible length";
        if (!snap_run_is_inside(unit.block, unit.bytes, volume_blocks))
            return "a leaf lies outside the volume";
        leaf_blocks += snap_blocks_of(unit.bytes);
        if (leaf_blocks > volume_blocks)
            return "its leaves are more than the volume has";
    }
    return NULL;
}

static const char *head_fault(const struct snap_root *root, size_t length, uint64_t volume_blocks)
{
    if (root->unit_bytes < SNAP_UNIT_BYTES_MIN || root->unit_bytes > SNAP_UNIT_BYTES_MAX ||
        (root->unit_bytes & (root->unit_bytes - 1)) != 0)
        return "its units have an impossible length";
    if (root->units_count > SNAP_UNITS_MAX || length != snap_root_bytes(root->units_count))
        return "its length is not that of its units";
    if (root->index.bytes == 0 || root->index.bytes > SNAP_INDEX_BYTES_MAX ||
        !snap_run_is_inside(root->index.block, root->index.bytes, volume_blocks))
        return "its index lies outside the volume";
    if (root->small.bytes > SNAP_SMALL_BYTES_MAX ||
        (root->small.bytes > 0 &&
         !snap_run_is_inside(root->small.block, root->small.bytes, volume_blocks)))
        return "its small state lies outside the volume";
    return NULL;
}

int snap_root_decode(const uint8_t *bytes, size_t length, uint64_t volume_blocks,
                     struct snap_root *root, const char **why)
{
    *why = "it has another magic";
    if (length < SNAP_ROOT_HEAD_BYTES || memcmp(bytes, MAGIC, sizeof(MAGIC)) != 0)
        return -EBADMSG;
    *root = (struct snap_root){
        .step = get_le64(bytes + AT_STEP),
        .rank = get_le32(bytes + AT_RANK),
        .world = get_le32(bytes + AT_WORLD),
        .unit_bytes = get_le32(bytes + AT_UNIT_BYTES),
        .units_count = get_le32(bytes + AT_UNITS),
        .index = decode_blob(bytes + AT_INDEX),
        .small = decode_blob(bytes + AT_SMALL),
        .state_bytes = get_le64(bytes + AT_STATE_BYTES),
    };
    memcpy(root->token, bytes + AT_TOKEN, SNAP_TOKEN_BYTES);
    *why = head_fault(root, length, volume_blocks);
    if (*why == NULL)
        *why = units_fault(bytes, root, volume_blocks);
    return *why == NULL ? 0 : -EBADMSG;
}
