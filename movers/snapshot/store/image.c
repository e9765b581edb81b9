/* SPDX-License-Identifier: BSD-2-Clause */
#include "snapshot/store/image.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/minmax.h"
#include "snapshot/store/load.h"
#include "snapshot/store/state.h"

static enum sw_snap_status tell_error(struct sw_snap_error *error, enum sw_snap_status status,
                                      const struct snap_store *store, uint64_t step,
                                      const char *what, const char *why)
{
    if (error != NULL) {
        error->status = status;
        snprintf(error->text, sizeof(error->text), "%s: step %lu: %.270s: %.70s",
                 store->medium->name, step, what, why);
    }
    return status;
}

enum sw_snap_status snap_image_load(struct snap_store *store, const struct snap_entry *entry,
                                    struct sw_snap_error *error, struct snap_image **loaded)
{
    struct snap_image *image = calloc(1, sizeof(*image));
    const char *why = "there is no memory";
    int result = -ENOMEM;
    if (image != NULL) {
        image->store = store;
        image->entry = *entry;
        result = snap_load_table(&store->tasks, entry, store->room.blocks, &image->table, &why);
    }
    if (result == 0) {
        *loaded = image;
        return SW_SNAP_OK;
    }
    free(image);
    if (store->medium->error != 0)
        why = store->medium->why;
    return tell_error(error, snap_store_status_of(result), store, entry->step, "the root", why);
}

enum sw_snap_status snap_image_open(struct snap_store *store, uint32_t number,
                                    struct sw_snap_error *error, struct snap_image **opened)
{
    const struct snap_superblock *newest = snap_store_newest(store);
    struct snap_image *image = NULL;
    if (number >= newest->entries_count)
        return tell_error(error, SW_SNAP_NOT_FOUND, store, 0, "the entry", "it is not there");
    enum sw_snap_status status = snap_image_load(store, &newest->entries[number], error, &image);
    if (status != SW_SNAP_OK)
        return status;
    if (!image->table.has_index) {
        status = tell_error(error, SW_SNAP_CORRUPT, store, image->entry.step, "the index",
                            "it is damaged");
        snap_image_close(image);
        return status;
    }
    *opened = image;
    return SW_SNAP_OK;
}

void snap_image_close(struct snap_image *image)
{
    snap_table_free(&image->table);
    free(image);
}

const struct snap_index *snap_image_index(const struct snap_image *image)
{
    return &image->table.index;
}

enum sw_snap_status snap_image_small(const struct snap_image *image, const void **bytes,
                                     size_t *length)
{
    if (!image->table.has_small)
        return SW_SNAP_CORRUPT;
    *bytes = image->table.small;
    *length = image->table.root.small.bytes;
    return SW_SNAP_OK;
}

/* ---- spans ---- */

/* The part of a block that lies in the span; `at` is where the block begins in the range. False: no
 * part of it does. */
static bool overlap_of(const struct snap_span *span, int64_t at, uint64_t *from, uint64_t *bytes)
{
    int64_t begin = (int64_t)span->offset, end = (int64_t)(span->offset + span->bytes);
    int64_t low = at < begin ? begin : at;
    int64_t high = at + SNAP_BLOCK_BYTES < end ? at + SNAP_BLOCK_BYTES : end;
    if (low >= high)
        return false;
    *from = (uint64_t)low;
    *bytes = (uint64_t)(high - low);
    return true;
}

static void give_bytes(struct snap_span *span, int64_t at, const uint8_t *block)
{
    uint64_t from, bytes;
    if (!overlap_of(span, at, &from, &bytes))
        return;
    uint8_t *into = (uint8_t *)span->into + (from - span->offset);
    if (block == NULL)
        memset(into, 0, bytes);
    else
        memcpy(into, block + ((int64_t)from - at), bytes);
}

static void fail_block(struct snap_span *span, int64_t at, enum sw_snap_status status)
{
    uint64_t from, bytes;
    if (!overlap_of(span, at, &from, &bytes))
        return;
    if (span->status == SW_SNAP_OK || from < span->bad_offset)
        span->bad_offset = from;
    if (span->status == SW_SNAP_OK)
        span->status = status;
}

/* How many blocks from `first` on, of those that were read, lie whole in the span, where streaming
 * stores may go. */
static uint64_t whole_blocks(const struct snap_task *task, uint64_t first)
{
    const struct snap_span *span = task->owner;
    const int64_t at = task->at + (int64_t)(first * SNAP_BLOCK_BYTES);
    const int64_t begin = (int64_t)span->offset, end = (int64_t)(span->offset + span->bytes);
    const uintptr_t into = (uintptr_t)span->into + (uintptr_t)(at - begin);
    if (at < begin || at >= end || into % SNAP_BLOCKS_ALIGNMENT)
        return 0;
    return mover_min_u64((uint64_t)(end - at) / SNAP_BLOCK_BYTES, task->count - first);
}

/* Blocks go to their place while they are summed. What is damaged is there, too, until another copy
 * is read over it. Returns how many these were. */
static uint64_t give_whole_blocks(struct snap_task *task, uint64_t first)
{
    struct snap_store *store = snap_store_of(task);
    const struct snap_table *table = store->reading;
    struct snap_span *span = task->owner;
    struct snap_sum sums[SNAP_SLOT_BLOCKS];
    const uint64_t count = whole_blocks(task, first);
    const int64_t at = task->at + (int64_t)(first * SNAP_BLOCK_BYTES);
    if (!count)
        return 0;
    snap_blocks_best()->copy(&store->key, (uint8_t *)span->into + (at - (int64_t)span->offset),
                             task->slot + first * SNAP_BLOCK_BYTES, (uint32_t)count, sums);
    for (uint64_t i = 0; i < count; i++)
        if (!snap_sum_equal(sums[i], table->sums[task->first + first + i]))
            fail_block(span, at + (int64_t)(i * SNAP_BLOCK_BYTES), SW_SNAP_CORRUPT);
    return count;
}

static void end_blocks(struct snap_task *task, int result)
{
    struct snap_store *store = snap_store_of(task);
    struct snap_span *span = task->owner;
    const struct snap_table *table = store->reading;
    const uint64_t seed = table->seeds[task->unit];
    enum sw_snap_status status =
        store->medium->error != 0 ? snap_store_status_of(store->medium->error) : SW_SNAP_CORRUPT;
    if (store->key.seed != seed || !store->has_key)
        snap_blocks_best()->make_key(&store->key, seed);
    store->has_key = true;
    for (uint64_t i = 0; i < task->count;) {
        const uint64_t given = result == 0 ? give_whole_blocks(task, i) : 0;
        i += given;
        if (given)
            continue;
        const uint8_t *block = task->slot + i * SNAP_BLOCK_BYTES;
        int64_t at = task->at + (int64_t)(i * SNAP_BLOCK_BYTES);
        if (result == 0 &&
            snap_sum_equal(snap_sum_block(block, seed), table->sums[task->first + i]))
            give_bytes(span, at, block);
        else
            fail_block(span, at, status);
        i++;
    }
}

/* Reads blocks [block, end) of a unit into the span. */
static int read_unit(struct snap_image *image, struct snap_span *span, uint32_t unit,
                     uint32_t block, uint32_t end, int64_t unit_at)
{
    const struct snap_table *table = &image->table;
    const uint32_t *places = table->places + table->first[unit];
    while (block < end) {
        int64_t at = unit_at + (int64_t)block * SNAP_BLOCK_BYTES;
        if (table->is_damaged[unit] || places[block] == 0) {
            if (table->is_damaged[unit])
                fail_block(span, at, SW_SNAP_CORRUPT);
            else
                give_bytes(span, at, NULL);
            block++;
            continue;
        }
        uint32_t count = 1;
        while (block + count < end && count < SNAP_SLOT_BLOCKS &&
               places[block + count] == places[block] + count)
            count++;
        struct snap_task *task;
        int result = snap_task_take_waiting(&image->store->tasks, true, &task);
        if (result != 0)
            return result;
        task->ended = end_blocks;
        task->owner = span;
        task->unit = unit;
        task->first = table->first[unit] + block;
        task->count = count;
        task->at = at;
        snap_task_submit(task, SNAP_IO_READ, places[block], count, task->slot);
        /* What has come already is copied while it is in the cache. */
        image->store->medium->ops->poll(image->store->medium);
        block += count;
    }
    return 0;
}

static int read_span(struct snap_image *image, struct snap_span *span)
{
    const struct snap_index_range *range = &image->table.index.ranges[span->range];
    uint64_t unit_bytes = image->table.root.unit_bytes;
    uint64_t begin = range->offset + span->offset, end = begin + span->bytes;
    int result = 0;
    while (begin < end && result == 0) {
        uint64_t number = begin / unit_bytes, unit_begin = number * unit_bytes;
        uint64_t part = mover_min_u64(end, unit_begin + unit_bytes);
        result = read_unit(image, span, range->unit + (uint32_t)number,
                           (uint32_t)((begin - unit_begin) / SNAP_BLOCK_BYTES),
                           (uint32_t)snap_blocks_of(part - unit_begin),
                           (int64_t)unit_begin - range->offset);
        begin = part;
    }
    return result;
}

static bool is_span_inside(const struct snap_image *image, const struct snap_span *span)
{
    if (span->range >= image->table.index.ranges_count)
        return false;
    uint64_t bytes = image->table.index.ranges[span->range].bytes;
    return span->offset <= bytes && span->bytes <= bytes - span->offset;
}

static enum sw_snap_status first_failure(const struct snap_image *image,
                                         const struct snap_span *spans, uint32_t spans_count,
                                         struct sw_snap_error *error)
{
    for (uint32_t i = 0; i < spans_count; i++) {
        const struct snap_span *span = &spans[i];
        char what[320], why[64];
        if (span->status == SW_SNAP_OK)
            continue;
        if (span->status != SW_SNAP_CORRUPT)
            return tell_error(error, span->status, image->store, image->entry.step,
                              "it cannot be read", image->store->medium->why);
        snprintf(what, sizeof(what), "range %s", image->table.index.ranges[span->range].name);
        snprintf(why, sizeof(why), "bytes from %lu on are damaged", span->bad_offset);
        return tell_error(error, span->status, image->store, image->entry.step, what, why);
    }
    return SW_SNAP_OK;
}

enum sw_snap_status snap_image_read(struct snap_image *image, struct snap_span *spans,
                                    uint32_t spans_count, struct sw_snap_error *error)
{
    struct snap_store *store = image->store;
    int result = 0;
    for (uint32_t i = 0; i < spans_count; i++) {
        spans[i].status = SW_SNAP_OK;
        if (!is_span_inside(image, &spans[i]))
            return tell_error(error, SW_SNAP_INVALID, store, image->entry.step, "a span",
                              "it leaves its range");
    }
    store->reading = &image->table;
    for (uint32_t i = 0; i < spans_count && result == 0; i++)
        result = read_span(image, &spans[i]);
    int waited = snap_tasks_wait(&store->tasks);
    store->reading = NULL;
    if (result == 0)
        result = waited;
    if (result == 0)
        return first_failure(image, spans, spans_count, error);
    for (uint32_t i = 0; i < spans_count; i++)
        spans[i].status = snap_store_status_of(result);
    return tell_error(error, snap_store_status_of(result), store, image->entry.step,
                      "it cannot be read", store->medium->why);
}
