/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Takes the units of the snapshot under way, and writes blocks that differ from the base's.
 *
 * Sixteen blocks in a row go from the ring as they lie there. Fewer are copied together in a slot:
 * their places in the volume are neighbours all the same, so a unit with changes here and there
 * costs one io.
 */
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "snapshot/store/leaf.h"
#include "snapshot/store/state.h"

enum { ROW_BLOCKS = 16 };

/* ---- begin ---- */

static bool allocate_write(struct snap_store *store, struct snap_write *write, uint32_t units)
{
    write->base_unit = calloc(units + 1u, sizeof(*write->base_unit));
    write->has_come = calloc(units + 1u, sizeof(*write->has_come));
    write->leaf_block = calloc(units + 1u, sizeof(*write->leaf_block));
    write->is_leaf_used = calloc(units + 1u, sizeof(*write->is_leaf_used));
    write->marks = calloc(store->room.words, sizeof(*write->marks));
    return write->base_unit != NULL && write->has_come != NULL && write->leaf_block != NULL &&
           write->is_leaf_used != NULL && write->marks != NULL;
}

/* The unit of the base that has the same place in the range of the same name. */
static uint32_t base_unit_of(const struct snap_table *base, const struct snap_plan *plan,
                             uint32_t unit)
{
    const struct snap_cut *cut = plan->cut;
    const struct snap_cut_piece *piece = &cut->pieces[cut->units[unit].first_piece];
    if (!base->has_index)
        return SNAP_NO_UNIT;
    int64_t number = snap_index_find(&base->index, plan->index->ranges[piece->range].name);
    if (number < 0)
        return SNAP_NO_UNIT;
    const struct snap_index_range *range = &base->index.ranges[number];
    uint64_t found = range->unit + piece->range_offset / cut->unit_bytes;
    if (base->root.unit_bytes != cut->unit_bytes || range->offset != piece->unit_offset ||
        piece->range_offset >= range->bytes || found >= base->root.units_count)
        return SNAP_NO_UNIT;
    return (uint32_t)found;
}

static void choose_base_units(struct snap_store *store, const struct snap_plan *plan)
{
    const struct snap_table *base = &store->base;
    struct snap_write *write = &store->write;
    for (uint32_t i = 0; i < plan->cut->units_count; i++) {
        uint32_t unit = store->has_base ? base_unit_of(base, plan, i) : SNAP_NO_UNIT;
        if (unit != SNAP_NO_UNIT && (base->is_damaged[unit] || base->seeds[unit] != plan->seed))
            unit = SNAP_NO_UNIT;
        write->base_unit[i] = unit;
    }
}

/* It is written unless the base has the same. */
static int make_index(struct snap_store *store, const struct snap_plan *plan)
{
    struct snap_write *write = &store->write;
    struct snap_object *index = &write->objects[SNAP_OBJECT_INDEX];
    char *text;
    size_t bytes;
    int result = snap_index_print(plan->index, &text, &bytes);
    if (result != 0)
        return result;
    index->bytes = (uint8_t *)text;
    index->blob.bytes = bytes;
    snap_digest_of(text, bytes, index->blob.digest);
    const struct snap_blob *old = &store->base.root.index;
    if (store->has_base && store->base.has_index && old->bytes == bytes &&
        memcmp(old->digest, index->blob.digest, SNAP_DIGEST_BYTES) == 0)
        index->blob = *old;
    else
        index->is_written = true;
    if (index->is_written) {
        char why[128];
        result = snap_index_parse(&write->table.index, text, bytes, plan->cut->unit_bytes,
                                  plan->cut->units_count, write->table.blocks, why, sizeof(why));
        if (result != 0)
            return result;
    }
    return 0;
}

static int make_small_and_root(struct snap_write *write, const struct snap_plan *plan)
{
    struct snap_object *small = &write->objects[SNAP_OBJECT_SMALL];
    if (plan->small_bytes > 0) {
        small->bytes = malloc(plan->small_bytes);
        if (small->bytes == NULL)
            return -ENOMEM;
        memcpy(small->bytes, plan->small, plan->small_bytes);
        small->blob.bytes = plan->small_bytes;
        snap_digest_of(small->bytes, plan->small_bytes, small->blob.digest);
        small->is_written = true;
    }
    struct snap_object *root = &write->objects[SNAP_OBJECT_ROOT];
    root->blob.bytes = snap_root_bytes(plan->cut->units_count);
    root->is_written = true;
    root->bytes = malloc(root->blob.bytes);
    return root->bytes != NULL ? 0 : -ENOMEM;
}

/* In one row if there is one: then they are written, and read, many at a time. */
static bool reserve_leaves(struct snap_store *store, const struct snap_cut *cut)
{
    uint64_t all = 0, block = 0;
    for (uint32_t i = 0; i < cut->units_count; i++)
        all += snap_blocks_of(snap_leaf_bytes(cut->units[i].blocks));
    bool is_row = all > 0 && snap_room_take_run(&store->room, all, &block);
    for (uint32_t i = 0; i < cut->units_count; i++) {
        uint64_t blocks = snap_blocks_of(snap_leaf_bytes(cut->units[i].blocks));
        if (!is_row && !snap_room_take_run(&store->room, blocks, &block))
            return false;
        store->write.leaf_block[i] = (uint32_t)block;
        if (is_row)
            block += blocks;
    }
    return true;
}

/* All blocks may have changed; in a repair only those of units that were lost. */
static uint64_t worst_blocks(const struct snap_store *store, const struct snap_plan *plan)
{
    uint64_t blocks = 0;
    for (uint32_t i = 0; i < plan->cut->units_count; i++)
        if (store->write.replaces == SNAP_ENTRIES_MAX || store->write.base_unit[i] == SNAP_NO_UNIT)
            blocks += plan->cut->units[i].blocks;
    return blocks;
}

/* What has to lie in a row gets its place now; data need as many blocks as there are. */
static bool reserve_worst(struct snap_store *store, const struct snap_plan *plan)
{
    for (uint32_t i = 0; i < SNAP_OBJECTS; i++) {
        struct snap_blob *blob = &store->write.objects[i].blob;
        if (store->write.objects[i].is_written &&
            !snap_room_take_run(&store->room, snap_blocks_of(blob->bytes), &blob->block))
            return false;
    }
    return reserve_leaves(store, plan->cut) && store->room.free_blocks >= worst_blocks(store, plan);
}

static int begin_tables(struct snap_store *store, const struct snap_plan *plan)
{
    static const uint8_t ZERO[SNAP_BLOCK_BYTES];
    const struct snap_cut *cut = plan->cut;
    const struct snap_superblock *newest = snap_store_newest(store);
    struct snap_write *write = &store->write;
    struct snap_root root = {.step = plan->step,
                             .rank = newest->rank,
                             .world = newest->world,
                             .unit_bytes = cut->unit_bytes,
                             .units_count = cut->units_count,
                             .state_bytes = cut->state_bytes};
    memcpy(root.token, plan->token, SNAP_TOKEN_BYTES);
    uint32_t *blocks = calloc(cut->units_count + 1u, sizeof(*blocks));
    if (blocks == NULL || !allocate_write(store, write, cut->units_count)) {
        free(blocks);
        return -ENOMEM;
    }
    for (uint32_t i = 0; i < cut->units_count; i++)
        blocks[i] = cut->units[i].blocks;
    int result = snap_table_make(&write->table, &root, blocks);
    free(blocks);
    if (result != 0)
        return result;
    for (uint32_t i = 0; i < cut->units_count; i++) {
        write->table.units[i].bytes = snap_leaf_bytes(cut->units[i].blocks);
        write->table.seeds[i] = plan->seed;
    }
    write->entry.taken_at = plan->taken_at;
    write->seed = plan->seed;
    write->missing = cut->units_count;
    write->zero_sum = snap_sum_block(ZERO, plan->seed);
    write->written_before = store->tasks.written_bytes;
    store->flushed_ns = 0;
    write->changed_blocks = 0;
    choose_base_units(store, plan);
    result = make_index(store, plan);
    return result == 0 ? make_small_and_root(write, plan) : result;
}

static enum sw_snap_status refuse_begin(struct sw_snap_error *error, enum sw_snap_status status,
                                        const struct snap_store *store, const char *why)
{
    if (error != NULL) {
        error->status = status;
        snprintf(error->text, sizeof(error->text), "%s: %s", store->medium->name, why);
    }
    return status;
}

static enum sw_snap_status refuse_room(struct sw_snap_error *error, struct snap_store *store,
                                       const struct snap_plan *plan)
{
    char why[128];
    snap_write_end(store);
    snprintf(why, sizeof(why),
             "a snapshot of %lu MiB may need more than the %lu MiB that are free in the volume",
             (plan->cut->state_blocks * SNAP_BLOCK_BYTES >> 20) + 1,
             store->room.free_blocks * SNAP_BLOCK_BYTES >> 20);
    return refuse_begin(error, SW_SNAP_NO_ROOM, store, why);
}

static enum sw_snap_status begin_write(struct snap_store *store, const struct snap_plan *plan,
                                       uint32_t replaces, struct sw_snap_error *error)
{
    if (!snap_store_is_idle(store))
        return refuse_begin(error, SW_SNAP_BUSY, store, "a snapshot is under way");
    if (store->is_broken || store->medium->error != 0) {
        if (error != NULL)
            *error = store->error;
        if (!store->is_broken)
            return refuse_begin(error, snap_store_status_of(store->medium->error), store,
                                store->medium->why);
        return store->error.status;
    }
    if (!store->is_writable)
        return refuse_begin(error, SW_SNAP_INVALID, store, "it is open for reading");
    if (plan->small_bytes > SNAP_SMALL_BYTES_MAX)
        return refuse_begin(error, SW_SNAP_INVALID, store, "small state has up to 16 MiB");
    if (snap_store_newest(store)->entries_count == SNAP_ENTRIES_MAX && replaces == SNAP_ENTRIES_MAX)
        return refuse_begin(error, SW_SNAP_NO_ROOM, store, "it has 32 snapshots already");
    store->error.status = SW_SNAP_OK;
    int result = snap_store_load_base(store);
    if (result == 0) {
        store->write.is_begun = true;
        store->write.replaces = replaces;
        result = begin_tables(store, plan);
    }
    if (result != 0) {
        snap_write_end(store);
        return refuse_begin(error, snap_store_status_of(result), store, strerror(-result));
    }
    return reserve_worst(store, plan) ? SW_SNAP_OK : refuse_room(error, store, plan);
}

enum sw_snap_status snap_write_begin(struct snap_store *store, const struct snap_plan *plan,
                                     struct sw_snap_error *error)
{
    return begin_write(store, plan, SNAP_ENTRIES_MAX, error);
}

enum sw_snap_status snap_write_begin_repair(struct snap_store *store, const struct snap_plan *plan,
                                            uint32_t replaces, struct snap_table *base,
                                            struct sw_snap_error *error)
{
    const struct snap_entry *entry = &snap_store_newest(store)->entries[replaces];
    if (store->has_base)
        snap_table_free(&store->base);
    store->base = *base;
    store->has_base = base->units != NULL;
    store->is_base_stale = false;
    *base = (struct snap_table){0};
    enum sw_snap_status status = begin_write(store, plan, replaces, error);
    store->write.table.root.rank = entry->rank;
    store->write.table.root.world = entry->world;
    if (status != SW_SNAP_OK)
        store->is_base_stale = true;
    return status;
}

/* ---- units ---- */

static void end_data(struct snap_task *task, int result)
{
    struct snap_store_unit *unit = task->owner;
    struct snap_store *store = snap_store_of(task);
    unit->ios--;
    if (result == 0)
        return;
    snap_store_fail(store, result, "a block cannot be written");
    unit->status = store->error.status;
    store->write.status = unit->status;
}

enum block_kind { BLOCK_KEPT, BLOCK_ZERO, BLOCK_BASE, BLOCK_FRESH };

static enum block_kind kind_of(const struct snap_store *store, const struct snap_store_unit *unit,
                               uint32_t block)
{
    const struct snap_write *write = &store->write;
    struct snap_sum sum = unit->sums[block];
    if (write->has_come[unit->number] &&
        snap_sum_equal(write->table.sums[write->table.first[unit->number] + block], sum))
        return BLOCK_KEPT;
    if (snap_sum_equal(sum, write->zero_sum))
        return BLOCK_ZERO;
    uint32_t old = write->base_unit[unit->number];
    if (old != SNAP_NO_UNIT && block < store->base.blocks[old] &&
        snap_sum_equal(store->base.sums[store->base.first[old] + block], sum))
        return BLOCK_BASE;
    return BLOCK_FRESH;
}

/* The place that an earlier copy of the unit was written to, if there is one. */
static void give_block(struct snap_store *store, uint64_t at)
{
    struct snap_table *table = &store->write.table;
    if (!snap_table_is_fresh(table, at))
        return;
    snap_room_give(&store->room, table->places[at], 1);
    snap_table_set_fresh(table, at, false);
    table->places[at] = 0;
    store->write.changed_blocks--;
}

/* True: it has to be written. */
static bool place_block(struct snap_store *store, const struct snap_store_unit *unit,
                        uint32_t block)
{
    struct snap_write *write = &store->write;
    uint64_t at = write->table.first[unit->number] + block;
    enum block_kind kind = kind_of(store, unit, block);
    if (kind == BLOCK_KEPT || kind == BLOCK_FRESH)
        return kind == BLOCK_FRESH;
    give_block(store, at);
    uint64_t old = 0;
    if (kind == BLOCK_BASE)
        old = store->base.first[write->base_unit[unit->number]] + block;
    write->table.sums[at] = unit->sums[block];
    write->table.places[at] = kind == BLOCK_BASE ? store->base.places[old] : 0;
    return false;
}

static bool is_in_row(const struct snap_row *row)
{
    return row->blocks[row->count - 1] - row->blocks[0] == (int)row->count - 1;
}

/* The blocks to write that come next: as many as lie in a row, or as fit into a slot. */
static void gather_row(struct snap_store *store, const struct snap_store_unit *unit,
                       struct snap_row *row)
{
    uint32_t blocks = store->write.table.blocks[unit->number];
    row->count = 0;
    for (row->next = unit->at; row->next < blocks; row->next++) {
        bool is_long =
            row->count >= ROW_BLOCKS && is_in_row(row) && store->write.replaces == SNAP_ENTRIES_MAX;
        if (row->count >= SNAP_SLOT_BLOCKS && !is_long)
            break;
        bool is_fresh = place_block(store, unit, row->next);
        if (!is_fresh && is_long)
            break;
        if (is_fresh && row->count >= SNAP_SLOT_BLOCKS &&
            row->next != row->blocks[row->count - 1] + 1u)
            break;
        if (is_fresh)
            row->blocks[row->count++] = (uint16_t)row->next;
    }
}

/* Gives places to as many blocks of the row as there is room for in one run; begin has reserved
 * room for all. */
static uint64_t place_row(struct snap_store *store, const struct snap_store_unit *unit,
                          struct snap_row *row)
{
    struct snap_write *write = &store->write;
    uint64_t first = write->table.first[unit->number], place;
    for (uint32_t i = 0; i < row->count; i++)
        give_block(store, first + row->blocks[i]);
    uint64_t got = snap_room_take(&store->room, row->count, &place);
    assert(got > 0);
    for (uint32_t i = 0; i < got; i++) {
        uint64_t at = first + row->blocks[i];
        write->table.places[at] = (uint32_t)(place + i);
        write->table.sums[at] = unit->sums[row->blocks[i]];
        snap_table_set_fresh(&write->table, at, true);
    }
    write->changed_blocks += got;
    if (got < row->count)
        row->next = row->blocks[got];
    row->count = (uint32_t)got;
    return place;
}

/* What goes out now has the sums that it was captured with. */
static bool is_row_whole(const struct snap_store *store, const struct snap_store_unit *unit,
                         const struct snap_row *row, const uint8_t *data)
{
    if (store->medium->checks || store->medium->reads_back)
        return true; /* it is compared where it lies */
    for (uint32_t i = 0; i < row->count; i++, data += SNAP_BLOCK_BYTES)
        if (!snap_sum_equal(snap_sum_block(data, store->write.seed), unit->sums[row->blocks[i]]))
            return false;
    return true;
}

static void submit_row(struct snap_store *store, struct snap_store_unit *unit, struct snap_row *row,
                       struct snap_task *task)
{
    uint64_t place = place_row(store, unit, row);
    uint8_t *data = (uint8_t *)(uintptr_t)unit->data;
    if (task->slot == NULL) {
        data += (size_t)row->blocks[0] * SNAP_BLOCK_BYTES;
    } else {
        for (uint32_t i = 0; i < row->count; i++)
            memcpy(task->slot + (size_t)i * SNAP_BLOCK_BYTES,
                   data + (size_t)row->blocks[i] * SNAP_BLOCK_BYTES, SNAP_BLOCK_BYTES);
        data = task->slot;
    }
    if (!is_row_whole(store, unit, row, data)) {
        snap_task_put(task);
        snap_store_fail(store, -EBADMSG, "a block has changed since it was captured");
        unit->status = store->write.status = store->error.status;
        return;
    }
    task->ended = end_data;
    task->owner = unit;
    unit->at = row->next;
    unit->ios++;
    snap_task_submit(task, SNAP_IO_WRITE, place, row->count, data);
}

/* False: something has to end before more of it can be submitted. */
static bool pump_unit(struct snap_store *store, struct snap_store_unit *unit)
{
    struct snap_write *write = &store->write;
    struct snap_row *row = &store->row;
    bool is_repair = write->replaces != SNAP_ENTRIES_MAX;
    while (write->status == SW_SNAP_OK && unit->at < write->table.blocks[unit->number]) {
        if (store->tasks.free_tasks == NULL)
            return false;
        gather_row(store, unit, row);
        if (row->count == 0) {
            unit->at = row->next;
            continue;
        }
        struct snap_task *task = snap_task_take(&store->tasks, is_repair || !is_in_row(row));
        if (task == NULL)
            return false;
        submit_row(store, unit, row, task);
    }
    if (write->status == SW_SNAP_OK && !write->has_come[unit->number]) {
        write->has_come[unit->number] = true;
        write->missing--;
    }
    return true;
}

void snap_write_pump(struct snap_store *store)
{
    snap_units_read_back(store);
    while (store->filling != NULL && pump_unit(store, store->filling))
        store->filling = store->filling->next;
}

void snap_write_finish_units(struct snap_store *store)
{
    struct snap_store_unit *finished = NULL, **finished_end = &finished;
    struct snap_store_unit **link = &store->units;
    if (store->medium == NULL)
        store->filling = NULL; /* it is closed: nothing is under way */
    for (struct snap_store_unit *unit = *link; unit != NULL && unit != store->filling;
         unit = *link) {
        if (store->medium != NULL && (unit->ios > 0 || !snap_unit_is_proved(store, unit))) {
            link = &unit->next;
            continue;
        }
        *link = unit->next;
        unit->next = NULL;
        *finished_end = unit;
        finished_end = &unit->next;
    }
    store->units_end = &store->units;
    while (*store->units_end != NULL)
        store->units_end = &(*store->units_end)->next;
    while (finished != NULL) {
        struct snap_store_unit *unit = finished;
        finished = unit->next;
        unit->next = NULL;
        unit->done(unit, unit->status != SW_SNAP_OK ? unit->status : store->write.status);
    }
}

void snap_write_end(struct snap_store *store)
{
    struct snap_write *write = &store->write;
    uint64_t before = write->written_before, changed = write->changed_blocks;
    if (!write->is_begun)
        return;
    snap_table_free(&write->table);
    free(write->base_unit);
    free(write->has_come);
    free(write->leaf_block);
    free(write->is_leaf_used);
    free(write->marks);
    for (uint32_t i = 0; i < SNAP_OBJECTS; i++)
        free(write->objects[i].bytes);
    *write = (struct snap_write){.written_before = before, .changed_blocks = changed};
    snap_store_recount(store);
}
