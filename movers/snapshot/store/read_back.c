/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Media that say so are read back: each unit when all of it is written, while those behind it are
 * being written. The unit is done when its blocks have come back with their sums.
 */
#include <errno.h>

#include "snapshot/store/state.h"

/* `first` is the first block of the run in the table, a fresh one; those between that are not fresh
 * lie elsewhere. */
static void end_read_back(struct snap_task *task, int result)
{
    struct snap_store *store = snap_store_of(task);
    struct snap_store_unit *unit = task->owner;
    struct snap_write *write = &store->write;
    const uint8_t *data = task->slot;
    uint64_t at = task->first, place = write->table.places[at];
    for (uint64_t i = 0; i < task->count && result == 0; at++) {
        if (!snap_table_is_fresh(&write->table, at))
            continue;
        if (!snap_sum_equal(snap_sum_block(data, write->seed), write->table.sums[at]))
            result = -EBADMSG;
        place = write->table.places[at];
        data += SNAP_BLOCK_BYTES;
        i++;
    }
    unit->ios--;
    if (result == 0)
        return;
    snap_store_fail_block(store, result, place, "does not come back");
    unit->status = write->status = store->error.status;
}

/* The next fresh blocks of the unit whose places are neighbours. */
static uint64_t next_fresh(const struct snap_table *table, struct snap_store_unit *unit,
                           uint64_t *first)
{
    uint64_t begin = table->first[unit->number], count = 0, place = 0;
    for (; unit->read_at < table->blocks[unit->number] && count < SNAP_SLOT_BLOCKS;
         unit->read_at++) {
        uint64_t at = begin + unit->read_at;
        if (!snap_table_is_fresh(table, at))
            continue;
        if (count > 0 && table->places[at] != place + 1)
            break;
        if (count++ == 0)
            *first = at;
        place = table->places[at];
    }
    return count;
}

bool snap_unit_is_proved(const struct snap_store *store, const struct snap_store_unit *unit)
{
    return !store->medium->reads_back || store->medium->checks ||
           store->write.status != SW_SNAP_OK ||
           unit->read_at == store->write.table.blocks[unit->number];
}

/* False: there is no task left. */
static bool read_unit_back(struct snap_store *store, struct snap_store_unit *unit)
{
    const struct snap_table *table = &store->write.table;
    while (!snap_unit_is_proved(store, unit)) {
        struct snap_task *task = snap_task_take(&store->tasks, true);
        if (task == NULL)
            return false;
        task->count = next_fresh(table, unit, &task->first);
        if (task->count == 0) {
            snap_task_put(task);
            continue;
        }
        task->owner = unit;
        task->ended = end_read_back;
        unit->ios++;
        snap_task_submit(task, SNAP_IO_READ, table->places[task->first], task->count, task->slot);
    }
    return true;
}

void snap_units_read_back(struct snap_store *store)
{
    if (!store->medium->reads_back)
        return;
    for (struct snap_store_unit *unit = store->units; unit != store->filling; unit = unit->next) {
        bool is_written = unit->read_at > 0 || unit->ios == 0;
        if (is_written && !read_unit_back(store, unit))
            return;
    }
}
