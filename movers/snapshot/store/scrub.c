/* SPDX-License-Identifier: BSD-2-Clause */
#include "snapshot/store/scrub.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "snapshot/store/load.h"
#include "snapshot/store/scrub_claims.h"
#include "snapshot/store/scrub_repair.h"

struct scrub {
    struct snap_store *const *stores;
    uint32_t stores_count;
    const struct snap_scrub_options *options;
    struct snap_scrub_report *report;
    struct sw_snap_error *error;
    uint64_t all_bytes;

    /* The volume and the snapshot that are looked at. */
    uint32_t volume;
    struct snap_store *store;
    struct snap_image *image;
    struct snap_claims claims;
    uint64_t *seen;   /* blocks of the volume that were compared */
    uint8_t *damaged; /* a bit for each block of the table */
    uint64_t damaged_blocks;
};

static void scrub_tell_finding(struct scrub *scrub, struct snap_scrub_finding finding)
{
    finding.volume = scrub->volume;
    scrub->report->damaged++;
    scrub->report->repaired += finding.is_repaired;
    if (scrub->options->found != NULL)
        scrub->options->found(scrub->options->context, &finding);
}

static void scrub_tell_progress(const struct scrub *scrub)
{
    uint64_t all = scrub->all_bytes;
    if (scrub->report->read_bytes > all)
        all = scrub->report->read_bytes;
    if (scrub->options->progress != NULL)
        scrub->options->progress(scrub->options->context, scrub->report->read_bytes, all);
}

static struct snap_others others_of(const struct scrub *scrub)
{
    return (struct snap_others){.stores = scrub->stores,
                                .stores_count = scrub->stores_count,
                                .but = scrub->volume,
                                .entry = &scrub->image->entry};
}

/* ---- superblocks ---- */

static int scrub_superblocks(struct scrub *scrub)
{
    struct snap_store *store = scrub->store;
    bool repairs = scrub->options->repairs && store->is_writable;
    int result = snap_run_io(store, SNAP_IO_READ, 0, SNAP_SUPERBLOCKS, store->scratch);
    if (result != 0)
        return result;
    snap_slots_decode(store->scratch, store->medium->bytes / SNAP_BLOCK_BYTES, store->seen);
    for (uint32_t i = 0; i < SNAP_SUPERBLOCKS && result == 0; i++) {
        if (store->seen[i].is_valid || store->seen[i].is_empty)
            continue;
        if (repairs) {
            store->next = *snap_store_newest(store);
            store->next.generation++;
            store->slots[i].is_valid = false;
            result = snap_superblock_write(store);
        }
        scrub_tell_finding(scrub,
                           (struct snap_scrub_finding){.object = SNAP_SCRUB_SUPERBLOCK,
                                                       .block = i,
                                                       .is_repaired = repairs && result == 0});
    }
    /* A writer has written it anew when it opened the volume. */
    if (store->is_writable && store->damaged_superblocks > 0)
        scrub_tell_finding(scrub, (struct snap_scrub_finding){.object = SNAP_SCRUB_SUPERBLOCK,
                                                              .block = store->damaged_slot,
                                                              .is_repaired = true});
    if (store->is_writable)
        store->damaged_superblocks = 0;
    return result;
}

/* ---- root, leaves, index, small state ---- */

static void tell_leaves(struct scrub *scrub, const struct snap_table *table, bool is_repaired)
{
    for (uint32_t i = 0; i < table->root.units_count; i++)
        if (table->is_damaged[i])
            scrub_tell_finding(scrub, (struct snap_scrub_finding){.object = SNAP_SCRUB_LEAF,
                                                                  .step = scrub->image->entry.step,
                                                                  .block = table->units[i].block,
                                                                  .unit = i,
                                                                  .is_repaired = is_repaired});
}

static bool has_damaged_leaf(const struct snap_table *table)
{
    for (uint32_t i = 0; i < table->root.units_count; i++)
        if (table->is_damaged[i])
            return true;
    return false;
}

static void scrub_blob(struct scrub *scrub, enum snap_scrub_object object,
                       const struct snap_blob *blob)
{
    struct snap_others others = others_of(scrub);
    bool is_repaired =
        scrub->options->repairs && scrub->store->is_writable &&
        !snap_claims_conflict(&scrub->claims, blob->block, snap_blocks_of(blob->bytes)) &&
        snap_repair_blob(scrub->store, blob, &others);
    scrub_tell_finding(scrub, (struct snap_scrub_finding){.object = object,
                                                          .step = scrub->image->entry.step,
                                                          .block = blob->block,
                                                          .is_repaired = is_repaired});
}

/* Loads the image anew: what was repaired is whole in it. 0; -EBADMSG: the root is damaged. */
static int load_again(struct scrub *scrub, uint32_t number)
{
    struct snap_entry entry = snap_store_newest(scrub->store)->entries[number];
    const char *why;
    snap_table_free(&scrub->image->table);
    scrub->image->entry = entry;
    return snap_load_table(&scrub->store->tasks, &entry, scrub->store->room.blocks,
                           &scrub->image->table, &why);
}

/* Repairs what the snapshot's blocks are found by. 0; -EBADMSG: the root is damaged still. */
static int scrub_meta(struct scrub *scrub, uint32_t number)
{
    struct snap_entry old = snap_store_newest(scrub->store)->entries[number];
    bool repairs = scrub->options->repairs && scrub->store->is_writable, is_repaired = false;
    int result = load_again(scrub, number);
    if (result != 0 && result != -EBADMSG)
        return result;
    struct snap_table *table = &scrub->image->table;
    if (result == 0 && !table->has_index)
        scrub_blob(scrub, SNAP_SCRUB_INDEX, &table->root.index);
    if (result == 0 && !table->has_small)
        scrub_blob(scrub, SNAP_SCRUB_SMALL, &table->root.small);
    if (result == 0 && repairs && (!table->has_index || !table->has_small))
        result = load_again(scrub, number);
    if (result == 0 && !has_damaged_leaf(table))
        return 0;
    struct snap_others others = others_of(scrub);
    int was = result;
    if (repairs)
        is_repaired = snap_repair_entry(scrub->store, number, table, &others);
    if (was == -EBADMSG)
        scrub_tell_finding(scrub, (struct snap_scrub_finding){.object = SNAP_SCRUB_ROOT,
                                                              .step = old.step,
                                                              .block = old.root_block,
                                                              .is_repaired = is_repaired});
    else
        tell_leaves(scrub, table, is_repaired);
    return repairs ? load_again(scrub, number) : was;
}

/* ---- data ---- */

static void end_scrub(struct snap_task *task, int result)
{
    struct scrub *scrub = task->owner;
    const struct snap_table *table = &scrub->image->table;
    for (uint64_t i = 0; i < task->count; i++) {
        uint64_t at = task->first + i;
        struct snap_sum sum = {0};
        if (result == 0)
            sum = snap_sum_block(task->slot + i * SNAP_BLOCK_BYTES, table->seeds[task->unit]);
        if (result == 0 && snap_sum_equal(sum, table->sums[at]))
            continue;
        scrub->damaged[at / 8] |= (uint8_t)(1u << at % 8);
        scrub->damaged_blocks++;
    }
    scrub->report->read_bytes += task->count * SNAP_BLOCK_BYTES;
}

static bool is_to_read(const struct scrub *scrub, uint64_t at)
{
    uint32_t place = scrub->image->table.places[at];
    return place != 0 && (scrub->seen[place / 64] >> (place % 64) & 1) == 0;
}

static int scrub_unit(struct scrub *scrub, uint32_t unit)
{
    const struct snap_table *table = &scrub->image->table;
    uint64_t end = table->first[unit] + table->blocks[unit];
    for (uint64_t at = table->first[unit]; at < end;) {
        uint64_t count = 1;
        if (!is_to_read(scrub, at)) {
            at++;
            continue;
        }
        while (at + count < end && count < SNAP_SLOT_BLOCKS && is_to_read(scrub, at + count) &&
               table->places[at + count] == table->places[at] + count)
            count++;
        struct snap_task *task;
        int result = snap_task_take_waiting(&scrub->store->tasks, true, &task);
        if (result != 0)
            return result;
        task->ended = end_scrub;
        task->owner = scrub;
        task->first = at;
        task->count = count;
        task->unit = unit;
        snap_marks_add(scrub->seen, table->places[at], count);
        snap_task_submit(task, SNAP_IO_READ, table->places[at], count, task->slot);
        at += count;
    }
    return 0;
}

/* Which range a block belongs to. */
static const struct snap_index_range *range_of(const struct snap_table *table, uint32_t unit,
                                               uint64_t block, uint64_t *offset)
{
    uint64_t from = (uint64_t)unit * table->root.unit_bytes + block * SNAP_BLOCK_BYTES;
    for (uint32_t i = 0; i < table->index.ranges_count; i++) {
        const struct snap_index_range *range = &table->index.ranges[i];
        uint64_t begin = (uint64_t)range->unit * table->root.unit_bytes + range->offset;
        if (begin >= from + SNAP_BLOCK_BYTES || begin + range->bytes <= from)
            continue;
        *offset = from > begin ? from - begin : 0;
        return range;
    }
    return NULL;
}

static void repair_data(struct scrub *scrub)
{
    const struct snap_table *table = &scrub->image->table;
    struct snap_others others = others_of(scrub);
    for (uint32_t unit = 0; unit < table->root.units_count; unit++)
        for (uint32_t i = 0; i < table->blocks[unit]; i++) {
            uint64_t at = table->first[unit] + i, offset = 0;
            if ((scrub->damaged[at / 8] >> (at % 8) & 1) == 0)
                continue;
            const struct snap_index_range *range = range_of(table, unit, i, &offset);
            bool is_repaired = scrub->options->repairs && scrub->store->is_writable &&
                               !snap_claims_conflict(&scrub->claims, table->places[at], 1) &&
                               snap_repair_block(scrub->store, table, unit, i, &others);
            scrub_tell_finding(scrub, (struct snap_scrub_finding){
                                          .object = SNAP_SCRUB_DATA,
                                          .step = scrub->image->entry.step,
                                          .block = table->places[at],
                                          .unit = unit,
                                          .range = range == NULL ? NULL : range->name,
                                          .offset = offset,
                                          .is_repaired = is_repaired,
                                      });
        }
    snap_others_close(&others);
}

static int scrub_data(struct scrub *scrub)
{
    const struct snap_table *table = &scrub->image->table;
    uint32_t units = table->root.units_count;
    int result = 0;
    scrub->damaged = calloc(table->first[units] / 8 + 1, 1);
    scrub->damaged_blocks = 0;
    if (scrub->damaged == NULL)
        return -ENOMEM;
    for (uint32_t unit = 0; unit < units && result == 0; unit++) {
        if (!table->is_damaged[unit])
            result = scrub_unit(scrub, unit);
        if (unit % 16 == 0)
            scrub_tell_progress(scrub);
    }
    int waited = snap_tasks_wait(&scrub->store->tasks);
    if (result == 0)
        result = waited != 0 ? waited : scrub->store->medium->error;
    if (result == 0 && scrub->damaged_blocks > 0) {
        repair_data(scrub);
        if (scrub->options->repairs && scrub->store->is_writable)
            result = snap_run_io(scrub->store, SNAP_IO_FLUSH, 0, 0, NULL);
    }
    free(scrub->damaged);
    return result;
}

/* ---- volumes ---- */

static bool is_asked_for(const struct scrub *scrub, const struct snap_entry *entry)
{
    return scrub->options->step == NULL || *scrub->options->step == entry->step;
}

static int scrub_volume(struct scrub *scrub)
{
    struct snap_image image = {.store = scrub->store};
    uint32_t entries = snap_store_newest(scrub->store)->entries_count;
    scrub->image = &image;
    scrub->seen = calloc(scrub->store->room.words, sizeof(*scrub->seen));
    if (scrub->seen == NULL)
        return -ENOMEM;
    int result = scrub_superblocks(scrub);
    if (result == 0)
        result = snap_claims_make(&scrub->claims, scrub->store);
    for (uint32_t i = 0; i < entries && result == 0; i++) {
        if (!is_asked_for(scrub, &snap_store_newest(scrub->store)->entries[i]))
            continue;
        result = scrub_meta(scrub, i);
        if (result == 0)
            result = scrub_data(scrub);
        else if (result == -EBADMSG)
            result = 0; /* it was told */
    }
    if (result == 0)
        result = scrub->store->medium->error;
    snap_table_free(&image.table);
    snap_claims_free(&scrub->claims);
    free(scrub->seen);
    return result;
}

enum sw_snap_status snap_scrub(struct snap_store *const *stores, uint32_t stores_count,
                               const struct snap_scrub_options *options,
                               struct snap_scrub_report *report, struct sw_snap_error *error)
{
    struct sw_snap_error unused;
    *report = (struct snap_scrub_report){0};
    struct scrub scrub = {.stores = stores,
                          .stores_count = stores_count,
                          .options = options,
                          .report = report,
                          .error = error == NULL ? &unused : error};
    for (uint32_t i = 0; i < stores_count; i++)
        scrub.all_bytes +=
            (stores[i]->room.blocks - stores[i]->room.free_blocks) * SNAP_BLOCK_BYTES;
    for (scrub.volume = 0; scrub.volume < stores_count; scrub.volume++) {
        scrub.store = stores[scrub.volume];
        int result = scrub_volume(&scrub);
        if (result != 0) {
            scrub.error->status = snap_store_status_of(result);
            snprintf(
                scrub.error->text, sizeof(scrub.error->text), "%s: %s", scrub.store->medium->name,
                scrub.store->medium->error != 0 ? scrub.store->medium->why : strerror(-result));
            return scrub.error->status;
        }
    }
    scrub_tell_progress(&scrub);
    if (report->damaged == report->repaired)
        return SW_SNAP_OK;
    scrub.error->status = SW_SNAP_CORRUPT;
    snprintf(scrub.error->text, sizeof(scrub.error->text), "%lu of %lu damages are not repaired",
             report->damaged - report->repaired, report->damaged);
    return SW_SNAP_CORRUPT;
}
