/* SPDX-License-Identifier: BSD-2-Clause */
#include "snapshot/store/scrub_claims.h"

#include <errno.h>
#include <stdlib.h>

#include "common/base/bytes.h"
#include "snapshot/store/load.h"

static void claims_name_block(struct snap_claims *claims, uint64_t block, uint64_t value)
{
    value += value == 0;
    if (claims->values[block] == 0)
        claims->values[block] = value;
    else if (claims->values[block] != value)
        snap_marks_add(claims->conflicts, block, 1);
}

static void claim_run(struct snap_claims *claims, uint64_t block, uint64_t bytes,
                      const uint8_t *digest)
{
    uint64_t blocks = snap_blocks_of(bytes);
    for (uint64_t i = 0; i < blocks; i++)
        claims_name_block(claims, block + i, get_le64(digest) + i);
}

static void claim_table(struct snap_claims *claims, const struct snap_entry *entry,
                        const struct snap_table *table)
{
    const struct snap_blob *index = &table->root.index, *small = &table->root.small;
    claim_run(claims, entry->root_block, entry->root_bytes, entry->root_digest);
    claim_run(claims, index->block, index->bytes, index->digest);
    claim_run(claims, small->block, small->bytes, small->digest);
    for (uint32_t unit = 0; unit < table->root.units_count; unit++) {
        const struct snap_root_unit *leaf = &table->units[unit];
        claim_run(claims, leaf->block, leaf->bytes, leaf->digest);
        for (uint32_t i = 0; i < table->blocks[unit] && !table->is_damaged[unit]; i++) {
            uint64_t at = table->first[unit] + i;
            if (table->places[at] != 0)
                claims_name_block(claims, table->places[at], table->sums[at].low);
        }
    }
}

int snap_claims_make(struct snap_claims *claims, struct snap_store *store)
{
    const struct snap_superblock *newest = snap_store_newest(store);
    int result = 0;
    claims->values = calloc(store->room.blocks, sizeof(*claims->values));
    claims->conflicts = calloc(store->room.words, sizeof(*claims->conflicts));
    if (claims->values == NULL || claims->conflicts == NULL)
        result = -ENOMEM;
    for (uint32_t i = 0; i < newest->entries_count && result == 0; i++) {
        const struct snap_entry *entry = &newest->entries[i];
        struct snap_table table;
        const char *why;
        result = snap_load_table(&store->tasks, entry, store->room.blocks, &table, &why);
        if (result == -EBADMSG) {
            result = 0; /* its root is damaged: what it names is not known */
            continue;
        }
        if (result == 0) {
            claim_table(claims, entry, &table);
            snap_table_free(&table);
        }
    }
    return result;
}

void snap_claims_free(struct snap_claims *claims)
{
    free(claims->values);
    free(claims->conflicts);
    *claims = (struct snap_claims){0};
}

bool snap_claims_conflict(const struct snap_claims *claims, uint64_t block, uint64_t blocks)
{
    for (uint64_t i = block; i < block + blocks; i++)
        if ((claims->conflicts[i / 64] >> (i % 64) & 1) != 0)
            return true;
    return false;
}
