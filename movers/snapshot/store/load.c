/* SPDX-License-Identifier: BSD-2-Clause */
#include "snapshot/store/load.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/minmax.h"
#include "snapshot/store/leaf.h"

struct blob_load {
    uint8_t *bytes;
    int result;
};

static void note_result(int *kept, int result)
{
    if (*kept == 0)
        *kept = result;
}

static void end_part(struct snap_task *task, int result)
{
    struct blob_load *load = task->owner;
    note_result(&load->result, result);
    if (result == 0)
        memcpy(load->bytes + task->first, task->slot, task->count);
}

/* An error of the medium itself, or of this place alone. */
static int error_of(const struct snap_tasks *tasks, int result)
{
    if (result == 0)
        return 0;
    return tasks->medium->error != 0 ? tasks->medium->error : -EBADMSG;
}

static int read_parts(struct snap_tasks *tasks, const struct snap_blob *blob,
                      struct blob_load *load)
{
    int result = 0;
    for (uint64_t at = 0; at < blob->bytes && result == 0; at += SNAP_SLOT_BYTES) {
        struct snap_task *task;
        result = snap_task_take_waiting(tasks, true, &task);
        if (result != 0)
            break;
        task->ended = end_part;
        task->owner = load;
        task->first = at;
        task->count = mover_min_u64(blob->bytes - at, SNAP_SLOT_BYTES);
        snap_task_submit(task, SNAP_IO_READ, blob->block + at / SNAP_BLOCK_BYTES,
                         snap_blocks_of(task->count), task->slot);
    }
    int waited = snap_tasks_wait(tasks);
    return result != 0 ? result : waited;
}

int snap_load_blob(struct snap_tasks *tasks, const struct snap_blob *blob, uint8_t **bytes)
{
    struct blob_load load = {.bytes = malloc(blob->bytes + 1)};
    if (load.bytes == NULL)
        return -ENOMEM;
    int result = read_parts(tasks, blob, &load);
    if (result == 0)
        result = error_of(tasks, load.result);
    if (result == 0 && !snap_digest_is(load.bytes, blob->bytes, blob->digest))
        result = -EBADMSG;
    load.bytes[blob->bytes] = 0;
    *bytes = load.bytes;
    if (result != 0)
        free(load.bytes);
    return result;
}

static bool take_leaf(struct snap_table *table, uint32_t unit, const uint8_t *bytes,
                      uint64_t volume_blocks)
{
    const struct snap_root_unit *named = &table->units[unit];
    struct snap_leaf leaf;
    if (!snap_digest_is(bytes, named->bytes, named->digest) ||
        snap_leaf_decode(bytes, named->bytes, volume_blocks, &leaf) != 0 || leaf.unit != unit ||
        leaf.blocks != table->blocks[unit])
        return false;
    uint64_t first = table->first[unit];
    for (uint32_t i = 0; i < leaf.blocks; i++) {
        table->sums[first + i] = snap_leaf_sum(&leaf, i);
        table->places[first + i] = snap_leaf_place(&leaf, i);
    }
    memcpy(table->fresh + first / 8, leaf.fresh, (leaf.blocks + 7) / 8);
    table->seeds[unit] = leaf.seed;
    return true;
}

struct leaves_load {
    struct snap_table *table;
    uint64_t volume_blocks;
};

static void end_leaves(struct snap_task *task, int result)
{
    struct leaves_load *load = task->owner;
    const uint8_t *at = task->slot;
    for (uint32_t i = 0; i < task->count; i++) {
        uint32_t unit = (uint32_t)task->first + i;
        if (result != 0 || !take_leaf(load->table, unit, at, load->volume_blocks))
            load->table->is_damaged[unit] = true;
        at += snap_blocks_of(load->table->units[unit].bytes) * SNAP_BLOCK_BYTES;
    }
}

/* How many leaves from that one on lie in a row and fit into a slot, and their blocks. */
static uint32_t leaves_in_row(const struct snap_table *table, uint32_t unit, uint64_t *blocks)
{
    uint32_t count = 0;
    *blocks = 0;
    while (unit + count < table->root.units_count) {
        const struct snap_root_unit *leaf = &table->units[unit + count];
        uint64_t more = snap_blocks_of(leaf->bytes);
        if (leaf->block != table->units[unit].block + *blocks || *blocks + more > SNAP_SLOT_BLOCKS)
            break;
        *blocks += more;
        count++;
    }
    return count;
}

static int load_leaves(struct snap_tasks *tasks, struct snap_table *table, uint64_t volume_blocks)
{
    struct leaves_load load = {.table = table, .volume_blocks = volume_blocks};
    int result = 0;
    for (uint32_t unit = 0; unit < table->root.units_count && result == 0;) {
        struct snap_task *task;
        result = snap_task_take_waiting(tasks, true, &task);
        if (result != 0)
            break;
        uint64_t blocks;
        task->ended = end_leaves;
        task->owner = &load;
        task->first = unit;
        task->count = leaves_in_row(table, unit, &blocks);
        unit += (uint32_t)task->count;
        snap_task_submit(task, SNAP_IO_READ, table->units[task->first].block, blocks, task->slot);
    }
    int waited = snap_tasks_wait(tasks);
    if (result == 0)
        result = waited;
    return result == 0 ? tasks->medium->error : result;
}

static int load_index(struct snap_tasks *tasks, struct snap_table *table)
{
    uint8_t *text;
    char why[64];
    int result = snap_load_blob(tasks, &table->root.index, &text);
    if (result != 0)
        return result == -EBADMSG ? 0 : result;
    result = snap_index_parse(&table->index, (const char *)text, table->root.index.bytes,
                              table->root.unit_bytes, table->root.units_count, table->blocks, why,
                              sizeof(why));
    free(text);
    table->has_index = result == 0;
    return result == -EBADMSG ? 0 : result;
}

static int load_small(struct snap_tasks *tasks, struct snap_table *table)
{
    int result = 0;
    if (table->root.small.bytes > 0)
        result = snap_load_blob(tasks, &table->root.small, &table->small);
    if (result != 0)
        table->small = NULL;
    table->has_small = result == 0;
    return result == -EBADMSG ? 0 : result;
}

static int make_table(const uint8_t *bytes, const struct snap_root *root, struct snap_table *table)
{
    uint32_t *blocks = calloc(root->units_count + 1u, sizeof(*blocks));
    if (blocks == NULL)
        return -ENOMEM;
    for (uint32_t i = 0; i < root->units_count; i++)
        blocks[i] = snap_leaf_blocks_of(snap_root_unit_at(bytes, i).bytes);
    int result = snap_table_make(table, root, blocks);
    free(blocks);
    for (uint32_t i = 0; i < root->units_count && result == 0; i++)
        table->units[i] = snap_root_unit_at(bytes, i);
    return result;
}

static const char *entry_fault(const struct snap_entry *entry, const struct snap_root *root)
{
    if (entry->step != root->step || entry->rank != root->rank || entry->world != root->world ||
        entry->state_bytes != root->state_bytes ||
        memcmp(entry->token, root->token, SNAP_TOKEN_BYTES) != 0)
        return "it is of another snapshot than the superblock says";
    return NULL;
}

static int load_once(struct snap_tasks *tasks, const struct snap_entry *entry,
                     uint64_t volume_blocks, struct snap_table *table, const char **why)
{
    struct snap_blob blob = {.block = entry->root_block, .bytes = entry->root_bytes};
    struct snap_root root;
    uint8_t *bytes;
    memcpy(blob.digest, entry->root_digest, sizeof(blob.digest));
    *table = (struct snap_table){0};
    *why = "it has another SHA-256 than the superblock says";
    int result = snap_load_blob(tasks, &blob, &bytes);
    if (result != 0)
        return result;
    result = snap_root_decode(bytes, entry->root_bytes, volume_blocks, &root, why);
    if (result == 0) {
        *why = entry_fault(entry, &root);
        result = *why == NULL ? make_table(bytes, &root, table) : -EBADMSG;
    }
    free(bytes);
    if (result == 0)
        result = load_leaves(tasks, table, volume_blocks);
    if (result == 0)
        result = load_index(tasks, table);
    if (result == 0)
        result = load_small(tasks, table);
    if (result != 0)
        snap_table_free(table);
    return result;
}

/* What cannot be read counts as damaged, and its blocks as free. So a read that has failed is tried
 * again: it may have been for the moment only. */
int snap_load_table(struct snap_tasks *tasks, const struct snap_entry *entry,
                    uint64_t volume_blocks, struct snap_table *table, const char **why)
{
    enum { TRIES = 3 };
    for (uint32_t tries = 1;; tries++) {
        uint64_t failed = tasks->failed_reads;
        int result = load_once(tasks, entry, volume_blocks, table, why);
        if (tasks->failed_reads == failed || tasks->medium->error != 0 || tries == TRIES)
            return result;
        if (result == 0)
            snap_table_free(table);
    }
}
