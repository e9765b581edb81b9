/* SPDX-License-Identifier: BSD-2-Clause */
/* The codec of superblocks: docs/snapshot-format.md. It is checked once, then trusted. */
#ifndef SW_SNAPSHOT_SUPERBLOCK_H
#define SW_SNAPSHOT_SUPERBLOCK_H

#include <stdint.h>

#include "snapshot/store/store.h"

enum {
    SNAP_SUPERBLOCKS = 2,
    SNAP_WRITER_BYTES = 56,
    SNAP_VOLUME_BLOCKS_MIN = 16,
};

struct snap_superblock {
    uint8_t identity[16];
    uint64_t blocks, generation, epoch, seed;
    uint32_t rank, world;
    char writer[SNAP_WRITER_BYTES + 1];
    uint32_t entries_count;
    struct snap_entry entries[SNAP_ENTRIES_MAX];
};

enum snap_superblock_verdict {
    SNAP_SUPERBLOCK_OK,
    SNAP_SUPERBLOCK_EMPTY,   /* all zero: never written */
    SNAP_SUPERBLOCK_FOREIGN, /* another magic: torn at its first sector, or no volume */
    SNAP_SUPERBLOCK_VERSION, /* whole, but of a version that is not known */
    SNAP_SUPERBLOCK_CUT,     /* whole, but of a volume of more blocks than are there */
    SNAP_SUPERBLOCK_DAMAGED, /* torn, or bits have flipped */
};

/* `block` has SNAP_BLOCK_BYTES. */
void snap_superblock_encode(const struct snap_superblock *superblock, uint8_t *block);
/* On a volume of volume_blocks: an entry whose root lies outside makes it DAMAGED. Unless it is OK,
 * the superblock has no meaning, but for the blocks of one that is CUT. */
enum snap_superblock_verdict snap_superblock_decode(const uint8_t *block, uint64_t volume_blocks,
                                                    struct snap_superblock *superblock);
/* What may be left where the first superblock of a new volume was torn: it has no entries, so
 * nothing but zeroes between its beginning and its digest. */
bool snap_superblock_is_unfinished(const uint8_t *block);

#endif
