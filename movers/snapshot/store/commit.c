/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Scripts of phases, each of which submits ios and is over when they have ended: a snapshot that is
 * made to count, one that is given up, some that are forgotten.
 *
 * The order of prepare is what makes snapshots outlive a power cut: all that the root points to is
 * on the medium before the flush begins; the flush has ended, and all was compared, before the
 * superblock is written; and that goes to the older of the two. Other phases go on beside each
 * other: a commit of little takes as long as its ios that wait for each other.
 */
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/minmax.h"
#include "common/time/clock.h"
#include "snapshot/store/leaf.h"
#include "snapshot/store/state.h"

static void end_commit_write(struct snap_task *task, int result)
{
    if (result != 0)
        snap_store_fail(snap_store_of(task), result, "the snapshot cannot be written");
}

static void end_data_flush(struct snap_task *task, int result)
{
    snap_store_of(task)->flushed_ns = mover_now_ns();
    end_commit_write(task, result);
}

/* ---- leaves ---- */

static bool is_unit_unchanged(const struct snap_store *store, uint32_t unit)
{
    const struct snap_table *table = &store->write.table, *base = &store->base;
    if (store->write.base_unit[unit] != unit || base->blocks[unit] != table->blocks[unit])
        return false;
    uint64_t at = table->first[unit], old = base->first[unit], blocks = table->blocks[unit];
    return memcmp(table->places + at, base->places + old, blocks * sizeof(*table->places)) == 0 &&
           memcmp(table->sums + at, base->sums + old, blocks * sizeof(*table->sums)) == 0;
}

/* A unit that did not change has the leaf of the base; the room for its own is given back. */
static void keep_leaf(struct snap_store *store, uint32_t unit)
{
    struct snap_write *write = &store->write;
    snap_room_give(&store->room, write->leaf_block[unit],
                   snap_blocks_of(write->table.units[unit].bytes));
    write->table.units[unit] = store->base.units[unit];
}

static uint64_t encode_leaf(struct snap_store *store, uint32_t unit, uint8_t *bytes)
{
    struct snap_write *write = &store->write;
    struct snap_table *table = &write->table;
    struct snap_root_unit *named = &table->units[unit];
    uint64_t first = table->first[unit], blocks = snap_blocks_of(named->bytes);
    snap_leaf_encode(bytes, unit, table->blocks[unit], write->seed, table->sums + first,
                     table->places + first, table->fresh + first / 8);
    memset(bytes + named->bytes, 0, blocks * SNAP_BLOCK_BYTES - named->bytes);
    named->block = write->leaf_block[unit];
    snap_digest_of(bytes, named->bytes, named->digest);
    write->is_leaf_used[unit] = true;
    return blocks;
}

/* Leaves that lie in a row go out together. */
static bool write_leaves(struct snap_store *store)
{
    struct snap_write *write = &store->write;
    uint32_t units = write->table.root.units_count;
    for (;;) {
        while (store->cursor < units && is_unit_unchanged(store, (uint32_t)store->cursor))
            keep_leaf(store, (uint32_t)store->cursor++);
        if (store->cursor == units)
            return true;
        struct snap_task *task = snap_task_take(&store->tasks, true);
        if (task == NULL)
            return false;
        uint32_t unit = (uint32_t)store->cursor;
        uint64_t blocks = 0, block = write->leaf_block[unit];
        do {
            blocks += encode_leaf(store, unit++, task->slot + blocks * SNAP_BLOCK_BYTES);
        } while (unit < units && write->leaf_block[unit] == block + blocks &&
                 blocks + snap_blocks_of(write->table.units[unit].bytes) <= SNAP_SLOT_BLOCKS &&
                 !is_unit_unchanged(store, unit));
        store->cursor = unit;
        task->ended = end_commit_write;
        snap_task_submit(task, SNAP_IO_WRITE, block, blocks, task->slot);
    }
}

/* ---- index, small state, root ---- */

static void make_root(struct snap_write *write)
{
    struct snap_object *object = &write->objects[SNAP_OBJECT_ROOT];
    struct snap_root *root = &write->table.root;
    root->index = write->objects[SNAP_OBJECT_INDEX].blob;
    root->small = write->objects[SNAP_OBJECT_SMALL].blob;
    snap_root_encode(root, write->table.units, object->bytes);
    snap_digest_of(object->bytes, object->blob.bytes, object->blob.digest);
    struct snap_entry *entry = &write->entry;
    entry->step = root->step;
    memcpy(entry->token, root->token, SNAP_TOKEN_BYTES);
    entry->rank = root->rank;
    entry->world = root->world;
    entry->state_bytes = root->state_bytes;
    entry->root_block = object->blob.block;
    entry->root_bytes = object->blob.bytes;
    memcpy(entry->root_digest, object->blob.digest, SNAP_DIGEST_BYTES);
}

/* The next part of the objects that were written, as the cursor has it; NULL: that was all. */
static struct snap_object *next_part(struct snap_store *store, uint64_t *at, uint64_t *bytes)
{
    for (; store->cursor < SNAP_OBJECTS; store->cursor++, store->cursor_at = 0) {
        struct snap_object *object = &store->write.objects[store->cursor];
        if (!object->is_written || store->cursor_at >= object->blob.bytes)
            continue;
        *at = store->cursor_at;
        *bytes = mover_min_u64(object->blob.bytes - *at, SNAP_SLOT_BYTES);
        return object;
    }
    return NULL;
}

static bool write_blobs(struct snap_store *store)
{
    uint64_t at, bytes;
    if (store->cursor == 0 && store->cursor_at == 0)
        make_root(&store->write);
    for (struct snap_object *object; (object = next_part(store, &at, &bytes)) != NULL;) {
        struct snap_task *task = snap_task_take(&store->tasks, true);
        if (task == NULL)
            return false;
        uint64_t blocks = snap_blocks_of(bytes);
        memcpy(task->slot, object->bytes + at, bytes);
        memset(task->slot + bytes, 0, blocks * SNAP_BLOCK_BYTES - bytes);
        task->ended = end_commit_write;
        store->cursor_at += bytes;
        snap_task_submit(task, SNAP_IO_WRITE, object->blob.block + at / SNAP_BLOCK_BYTES, blocks,
                         task->slot);
    }
    return true;
}

/* ---- what the medium has is compared ---- */

static void end_check(struct snap_task *task, int result)
{
    struct snap_store *store = snap_store_of(task);
    if (result == -EBADMSG)
        snap_store_fail_block(store, result, task->io.bad_block, "is not what was written");
    else if (result != 0)
        snap_store_fail(store, result, "the medium cannot compare its blocks");
}

static bool is_any_fresh(const struct snap_table *table, uint64_t unit)
{
    for (uint64_t i = table->first[unit] / 8; i < table->first[unit + 1] / 8; i++)
        if (table->fresh[i] != 0)
            return true;
    return false;
}

/* By the medium's own processor; what has none was read back unit by unit, or is trusted. */
static bool check_units(struct snap_store *store)
{
    const struct snap_table *table = &store->write.table;
    for (; store->cursor < table->root.units_count && store->medium->checks; store->cursor++) {
        if (!is_any_fresh(table, store->cursor))
            continue;
        struct snap_task *task = snap_task_take(&store->tasks, false);
        if (task == NULL)
            return false;
        const struct snap_root_unit *leaf = &table->units[store->cursor];
        task->ended = end_check;
        snap_task_submit(task, SNAP_IO_CHECK, leaf->block, snap_blocks_of(leaf->bytes), NULL);
    }
    return true;
}

static void end_leaves_check(struct snap_task *task, int result)
{
    struct snap_store *store = snap_store_of(task);
    const uint8_t *data = task->slot;
    for (uint64_t i = 0; i < task->count && result == 0; i++) {
        const struct snap_root_unit *leaf = &store->write.table.units[task->first + i];
        if (!snap_digest_is(data, leaf->bytes, leaf->digest))
            result = -EBADMSG;
        data += snap_blocks_of(leaf->bytes) * SNAP_BLOCK_BYTES;
    }
    if (result != 0)
        snap_store_fail(store, result, "a leaf does not come back");
}

static bool check_leaves(struct snap_store *store)
{
    const struct snap_write *write = &store->write;
    const struct snap_root_unit *leaves = write->table.units;
    uint32_t units = write->table.root.units_count;
    for (;;) {
        while (store->cursor < units && !write->is_leaf_used[store->cursor])
            store->cursor++;
        if (store->cursor == units)
            return true;
        struct snap_task *task = snap_task_take(&store->tasks, true);
        if (task == NULL)
            return false;
        uint64_t unit = store->cursor, blocks = 0;
        task->first = unit;
        do {
            blocks += snap_blocks_of(leaves[unit++].bytes);
        } while (unit < units && write->is_leaf_used[unit] &&
                 leaves[unit].block == leaves[task->first].block + blocks &&
                 blocks + snap_blocks_of(leaves[unit].bytes) <= SNAP_SLOT_BLOCKS);
        task->count = unit - task->first;
        store->cursor = unit;
        task->ended = end_leaves_check;
        snap_task_submit(task, SNAP_IO_READ, leaves[task->first].block, blocks, task->slot);
    }
}

static void end_blob_check(struct snap_task *task, int result)
{
    const uint8_t *bytes = task->owner;
    if (result == 0 && memcmp(task->slot, bytes, task->count) != 0)
        result = -EBADMSG;
    if (result != 0)
        snap_store_fail(snap_store_of(task), result, "the root does not come back");
}

static bool check_blobs(struct snap_store *store)
{
    uint64_t at, bytes;
    for (struct snap_object *object; (object = next_part(store, &at, &bytes)) != NULL;) {
        struct snap_task *task = snap_task_take(&store->tasks, true);
        if (task == NULL)
            return false;
        task->owner = object->bytes + at;
        task->count = bytes;
        task->ended = end_blob_check;
        store->cursor_at += bytes;
        snap_task_submit(task, SNAP_IO_READ, object->blob.block + at / SNAP_BLOCK_BYTES,
                         snap_blocks_of(bytes), task->slot);
    }
    return true;
}

/* ---- superblocks ---- */

/* What another writer of this epoch or a later one has written ends us. A slot that is damaged, or
 * that an older writer has written to, is the one that is written next. */
static void end_fence(struct snap_task *task, int result)
{
    struct snap_store *store = snap_store_of(task);
    uint64_t epoch = snap_store_newest(store)->epoch;
    if (result == 0)
        snap_slots_decode(task->slot, store->medium->bytes / SNAP_BLOCK_BYTES, store->seen);
    for (uint32_t i = 0; i < SNAP_SUPERBLOCKS && result == 0; i++) {
        struct snap_slot *slot = &store->slots[i], *seen = &store->seen[i];
        if (memcmp(slot->bytes, seen->bytes, SNAP_BLOCK_BYTES) == 0)
            continue;
        if (seen->is_valid && seen->superblock.epoch >= epoch)
            result = -ESTALE;
        else
            slot->is_valid = false;
    }
    if (result != 0)
        snap_store_fail(store, result, "the superblock cannot be written");
}

static void add_entry(struct snap_store *store)
{
    struct snap_superblock *next = &store->next;
    uint32_t at = store->write.replaces;
    if (at == SNAP_ENTRIES_MAX)
        at = next->entries_count++;
    next->entries[at] = store->write.entry;
}

static bool commit_superblock(struct snap_store *store)
{
    struct snap_task *task = snap_task_take(&store->tasks, true);
    if (task == NULL)
        return false;
    store->next.generation++;
    store->target = snap_slots_target(store);
    if (store->write.is_begun)
        add_entry(store);
    snap_superblock_encode(&store->next, task->slot);
    task->ended = end_commit_write;
    store->is_superblock_at_risk = true;
    snap_task_submit(task, SNAP_IO_WRITE, store->target, 1, task->slot);
    return true;
}

/* The snapshot under way has become the newest: it is the base of the next one. */
static void adopt_write(struct snap_store *store)
{
    struct snap_write *write = &store->write;
    struct snap_marks *marks = snap_marks_unused(store);
    snap_table_mark(&write->table, &write->entry, write->marks);
    *marks = (struct snap_marks){.entry = write->entry, .bits = write->marks};
    write->marks = NULL;
    store->is_base_stale |= write->replaces != SNAP_ENTRIES_MAX;
    if (!write->objects[SNAP_OBJECT_INDEX].is_written) {
        write->table.index = store->base.index;
        store->base.index = (struct snap_index){0};
    }
    write->table.has_index = true;
    if (store->has_base)
        snap_table_free(&store->base);
    store->base = write->table;
    store->has_base = true;
    write->table = (struct snap_table){0};
}

static void settle_superblock(struct snap_store *store)
{
    store->is_superblock_at_risk = false;
    snap_slots_apply(store);
    if (store->write.is_begun) {
        adopt_write(store);
        snap_write_end(store);
    } else {
        snap_store_recount(store);
    }
}

/* ---- scripts ---- */

static bool submit_one(struct snap_store *store, enum snap_io_kind kind, uint64_t blocks,
                       void (*ended)(struct snap_task *task, int result))
{
    struct snap_task *task = snap_task_take(&store->tasks, true);
    if (task == NULL)
        return false;
    task->ended = ended;
    snap_task_submit(task, kind, 0, blocks, blocks == 0 ? NULL : task->slot);
    return true;
}

static bool drain_units(struct snap_store *store)
{
    if (store->units != NULL)
        return false;
    if (!store->is_abort && store->write.missing > 0 && store->error.status == SW_SNAP_OK) {
        store->error.status = SW_SNAP_INVALID;
        snprintf(store->error.text, sizeof(store->error.text), "%u units are missing",
                 store->write.missing);
    }
    return true;
}

/* Submits what it can of the phase. True: all of it. */
static bool submit_phase(struct snap_store *store)
{
    switch (*store->phase) {
    case SNAP_PHASE_END:
        return true;
    case SNAP_PHASE_DRAIN:
        return drain_units(store);
    case SNAP_PHASE_LEAVES:
        return write_leaves(store);
    case SNAP_PHASE_BLOBS:
        return write_blobs(store);
    case SNAP_PHASE_CHECK_DATA:
        return check_units(store);
    case SNAP_PHASE_CHECK_LEAVES:
        return check_leaves(store);
    case SNAP_PHASE_CHECK_BLOBS:
        return check_blobs(store);
    case SNAP_PHASE_FLUSH:
        return submit_one(store, SNAP_IO_FLUSH, 0, end_data_flush);
    case SNAP_PHASE_SETTLE:
        return submit_one(store, SNAP_IO_FLUSH, 0, end_commit_write);
    case SNAP_PHASE_FENCE:
        return submit_one(store, SNAP_IO_READ, SNAP_SUPERBLOCKS, end_fence);
    case SNAP_PHASE_SUPERBLOCK:
        return commit_superblock(store);
    }
    return true;
}

static void end_script(struct snap_store *store)
{
    store->phase = NULL;
    store->is_broken |= store->is_superblock_at_risk;
    store->is_base_stale |= store->write.is_begun && store->write.replaces != SNAP_ENTRIES_MAX;
    snap_write_end(store);
    if (store->is_abort && !store->is_broken)
        store->error = (struct sw_snap_error){.status = SW_SNAP_OK};
    store->is_abort = false;
    if (store->error.status == SW_SNAP_OK)
        store->error.text[0] = 0;
    store->done(store->context, store->error.status, &store->error);
}

void snap_commit_start(struct snap_store *store, const enum snap_phase *script,
                       snap_store_done done, void *context)
{
    assert(store->phase == NULL);
    store->phase = script;
    store->cursor = store->cursor_at = 0;
    store->is_phase_submitted = false;
    store->done = done;
    store->context = context;
}

/* Whether all that was submitted has to have ended before the phase begins. */
static bool comes_behind_all(enum snap_phase phase)
{
    switch (phase) {
    case SNAP_PHASE_BLOBS: /* the root has the digests of leaves, which are known */
    case SNAP_PHASE_CHECK_LEAVES:
    case SNAP_PHASE_CHECK_BLOBS:
    case SNAP_PHASE_FLUSH: /* behind writes, and beside comparisons */
    case SNAP_PHASE_FENCE:
        return false;
    case SNAP_PHASE_DRAIN:
    case SNAP_PHASE_LEAVES:
    case SNAP_PHASE_CHECK_DATA:
    case SNAP_PHASE_SUPERBLOCK:
    case SNAP_PHASE_SETTLE:
    case SNAP_PHASE_END:
        break;
    }
    return true;
}

void snap_commit_step(struct snap_store *store)
{
    while (store->phase != NULL) {
        bool has_failed = store->error.status != SW_SNAP_OK && store->units == NULL;
        if (!has_failed && !store->is_phase_submitted)
            store->is_phase_submitted = submit_phase(store);
        bool goes_on = !has_failed && store->is_phase_submitted &&
                       *store->phase != SNAP_PHASE_END && !comes_behind_all(store->phase[1]);
        if (!goes_on && (store->tasks.under_way > 0 || (!has_failed && !store->is_phase_submitted)))
            return;
        if (has_failed || *store->phase == SNAP_PHASE_END) {
            end_script(store);
            return;
        }
        if (store->error.status != SW_SNAP_OK)
            continue;
        if (*store->phase == SNAP_PHASE_SETTLE)
            settle_superblock(store);
        store->phase++;
        store->cursor = store->cursor_at = 0;
        store->is_phase_submitted = false;
    }
}
