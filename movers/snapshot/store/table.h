/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A snapshot in memory: of each block its sum and its place, 20 bytes. A store has one of the
 * newest snapshot, the base, and one of that which is under way.
 */
#ifndef SW_SNAPSHOT_TABLE_H
#define SW_SNAPSHOT_TABLE_H

#include "snapshot/store/root.h"

struct snap_table {
    struct snap_root root;
    struct snap_root_unit *units;
    uint64_t *seeds;  /* of each unit */
    uint64_t *first;  /* of each unit: its first block in sums[] and places[]; a multiple of 8 */
    uint32_t *blocks; /* of each unit */
    bool *is_damaged; /* of each unit: its leaf could not be read */
    struct snap_sum *sums;
    uint32_t *places;          /* in the volume; 0: zero */
    uint8_t *fresh;            /* a bit for each: written by this snapshot */
    bool has_index, has_small; /* they are whole, if they were read */
    struct snap_index index;
    uint8_t *small;
};

/* Makes one of root.units_count units with so many blocks, all 0. 0 or -ENOMEM. */
int snap_table_make(struct snap_table *table, const struct snap_root *root,
                    const uint32_t *unit_blocks);
void snap_table_free(struct snap_table *table);

static inline bool snap_table_is_fresh(const struct snap_table *table, uint64_t block)
{
    return (table->fresh[block / 8] >> (block % 8) & 1) != 0;
}

static inline void snap_table_set_fresh(struct snap_table *table, uint64_t block, bool is_fresh)
{
    uint8_t bit = (uint8_t)(1u << (block % 8));
    table->fresh[block / 8] =
        (uint8_t)(is_fresh ? table->fresh[block / 8] | bit : table->fresh[block / 8] & ~bit);
}

/* The set of blocks that the snapshot uses, its root among them. */
void snap_table_mark(const struct snap_table *table, const struct snap_entry *entry,
                     uint64_t *marks);

#endif
