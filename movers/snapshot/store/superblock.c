/* SPDX-License-Identifier: BSD-2-Clause */
#include "snapshot/store/superblock.h"

#include <assert.h>
#include <string.h>

#include "common/base/bytes.h"
#include "snapshot/core/digest.h"
#include "snapshot/store/root.h"

static const uint8_t MAGIC[8] = {'S', 'W', 'S', 'N', 'A', 'P', 0, 1};

enum {
    VERSION = 1,
    AT_VERSION = 8,
    AT_ENTRIES_COUNT = 12,
    AT_IDENTITY = 16,
    AT_BLOCKS = 32,
    AT_GENERATION = 40,
    AT_EPOCH = 48,
    AT_SEED = 56,
    AT_RANK = 64,
    AT_WORLD = 68,
    AT_WRITER = 72,
    AT_ENTRIES = 128,
    ENTRY_BYTES = 96,
    AT_DIGEST = SNAP_BLOCK_BYTES - SNAP_DIGEST_BYTES,
};

static_assert(AT_ENTRIES + SNAP_ENTRIES_MAX * ENTRY_BYTES <= AT_DIGEST, "entries fit");
static_assert(AT_WRITER + SNAP_WRITER_BYTES == AT_ENTRIES, "the writer fits");

static void encode_entry(const struct snap_entry *entry, uint8_t *at)
{
    put_le64(at, entry->step);
    memcpy(at + 8, entry->token, SNAP_TOKEN_BYTES);
    put_le32(at + 24, entry->rank);
    put_le32(at + 28, entry->world);
    put_le64(at + 32, entry->root_block);
    put_le64(at + 40, entry->root_bytes);
    put_le64(at + 48, entry->taken_at);
    put_le64(at + 56, entry->state_bytes);
    memcpy(at + 64, entry->root_digest, SNAP_DIGEST_BYTES);
}

static bool decode_entry(const uint8_t *at, uint64_t volume_blocks, struct snap_entry *entry)
{
    entry->step = get_le64(at);
    memcpy(entry->token, at + 8, SNAP_TOKEN_BYTES);
    entry->rank = get_le32(at + 24);
    entry->world = get_le32(at + 28);
    entry->root_block = get_le64(at + 32);
    entry->root_bytes = get_le64(at + 40);
    entry->taken_at = get_le64(at + 48);
    entry->state_bytes = get_le64(at + 56);
    memcpy(entry->root_digest, at + 64, SNAP_DIGEST_BYTES);
    return entry->root_bytes >= SNAP_ROOT_HEAD_BYTES && entry->root_bytes <= SNAP_ROOT_BYTES_MAX &&
           snap_run_is_inside(entry->root_block, entry->root_bytes, volume_blocks);
}

void snap_superblock_encode(const struct snap_superblock *superblock, uint8_t *block)
{
    memset(block, 0, SNAP_BLOCK_BYTES);
    memcpy(block, MAGIC, sizeof(MAGIC));
    put_le32(block + AT_VERSION, VERSION);
    put_le32(block + AT_ENTRIES_COUNT, superblock->entries_count);
    memcpy(block + AT_IDENTITY, superblock->identity, sizeof(superblock->identity));
    put_le64(block + AT_BLOCKS, superblock->blocks);
    put_le64(block + AT_GENERATION, superblock->generation);
    put_le64(block + AT_EPOCH, superblock->epoch);
    put_le64(block + AT_SEED, superblock->seed);
    put_le32(block + AT_RANK, superblock->rank);
    put_le32(block + AT_WORLD, superblock->world);
    memcpy(block + AT_WRITER, superblock->writer, strnlen(superblock->writer, SNAP_WRITER_BYTES));
    for (uint32_t i = 0; i < superblock->entries_count; i++)
        encode_entry(&superblock->entries[i], block + AT_ENTRIES + i * ENTRY_BYTES);
    snap_digest_of(block, AT_DIGEST, block + AT_DIGEST);
}

static bool is_all_zero(const uint8_t *bytes, size_t count)
{
    return bytes[0] == 0 && memcmp(bytes, bytes + 1, count - 1) == 0;
}

bool snap_superblock_is_unfinished(const uint8_t *block)
{
    return memcmp(block, MAGIC, sizeof(MAGIC)) == 0 || is_all_zero(block, AT_DIGEST);
}

enum snap_superblock_verdict snap_superblock_decode(const uint8_t *block, uint64_t volume_blocks,
                                                    struct snap_superblock *superblock)
{
    if (is_all_zero(block, SNAP_BLOCK_BYTES))
        return SNAP_SUPERBLOCK_EMPTY;
    if (memcmp(block, MAGIC, sizeof(MAGIC)) != 0)
        return SNAP_SUPERBLOCK_FOREIGN;
    if (!snap_digest_is(block, AT_DIGEST, block + AT_DIGEST))
        return SNAP_SUPERBLOCK_DAMAGED;
    if (get_le32(block + AT_VERSION) != VERSION)
        return SNAP_SUPERBLOCK_VERSION;
    *superblock = (struct snap_superblock){.entries_count = get_le32(block + AT_ENTRIES_COUNT)};
    memcpy(superblock->identity, block + AT_IDENTITY, sizeof(superblock->identity));
    superblock->blocks = get_le64(block + AT_BLOCKS);
    superblock->generation = get_le64(block + AT_GENERATION);
    superblock->epoch = get_le64(block + AT_EPOCH);
    superblock->seed = get_le64(block + AT_SEED);
    superblock->rank = get_le32(block + AT_RANK);
    superblock->world = get_le32(block + AT_WORLD);
    memcpy(superblock->writer, block + AT_WRITER, SNAP_WRITER_BYTES);
    if (superblock->entries_count > SNAP_ENTRIES_MAX ||
        superblock->blocks < SNAP_VOLUME_BLOCKS_MIN || superblock->generation > INT64_MAX ||
        superblock->epoch > INT64_MAX)
        return SNAP_SUPERBLOCK_DAMAGED;
    for (uint32_t i = 0; i < superblock->entries_count; i++)
        if (!decode_entry(block + AT_ENTRIES + i * ENTRY_BYTES, superblock->blocks,
                          &superblock->entries[i]))
            return SNAP_SUPERBLOCK_DAMAGED;
    return superblock->blocks > volume_blocks ? SNAP_SUPERBLOCK_CUT : SNAP_SUPERBLOCK_OK;
}
