/* SPDX-License-Identifier: BSD-2-Clause */
#include "snapshot/store/table.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "snapshot/store/room.h"

static bool allocate_blocks(struct snap_table *table, uint64_t blocks)
{
    table->sums = calloc(blocks + 1, sizeof(*table->sums));
    table->places = calloc(blocks + 1, sizeof(*table->places));
    table->fresh = calloc(blocks / 8 + 1, 1);
    return table->sums != NULL && table->places != NULL && table->fresh != NULL;
}

static bool allocate_units(struct snap_table *table, uint64_t units)
{
    table->units = calloc(units + 1, sizeof(*table->units));
    table->seeds = calloc(units + 1, sizeof(*table->seeds));
    table->first = calloc(units + 1, sizeof(*table->first));
    table->blocks = calloc(units + 1, sizeof(*table->blocks));
    table->is_damaged = calloc(units + 1, sizeof(*table->is_damaged));
    return table->units != NULL && table->seeds != NULL && table->first != NULL &&
           table->blocks != NULL && table->is_damaged != NULL;
}

int snap_table_make(struct snap_table *table, const struct snap_root *root,
                    const uint32_t *unit_blocks)
{
    *table = (struct snap_table){.root = *root};
    if (!allocate_units(table, root->units_count)) {
        snap_table_free(table);
        return -ENOMEM;
    }
    uint64_t first = 0;
    for (uint32_t i = 0; i < root->units_count; i++) {
        table->blocks[i] = unit_blocks[i];
        table->first[i] = first;
        first += (unit_blocks[i] + 7) / 8 * 8;
    }
    table->first[root->units_count] = first;
    if (!allocate_blocks(table, first)) {
        snap_table_free(table);
        return -ENOMEM;
    }
    return 0;
}

void snap_table_free(struct snap_table *table)
{
    free(table->units);
    free(table->seeds);
    free(table->first);
    free(table->blocks);
    free(table->is_damaged);
    free(table->sums);
    free(table->places);
    free(table->fresh);
    free(table->small);
    snap_index_free(&table->index);
    *table = (struct snap_table){0};
}

static void mark_run(uint64_t *marks, uint64_t block, uint64_t bytes)
{
    if (bytes > 0)
        snap_marks_add(marks, block, snap_blocks_of(bytes));
}

void snap_table_mark(const struct snap_table *table, const struct snap_entry *entry,
                     uint64_t *marks)
{
    mark_run(marks, entry->root_block, entry->root_bytes);
    mark_run(marks, table->root.index.block, table->root.index.bytes);
    mark_run(marks, table->root.small.block, table->root.small.bytes);
    for (uint32_t i = 0; i < table->root.units_count; i++)
        mark_run(marks, table->units[i].block, table->units[i].bytes);
    /* Blocks between units and those of damaged ones have the place 0: a superblock is marked. */
    uint64_t blocks = table->root.units_count == 0 ? 0 : table->first[table->root.units_count];
    for (uint64_t i = 0; i < blocks; i++)
        marks[table->places[i] / 64] |= UINT64_C(1) << (table->places[i] % 64);
}
