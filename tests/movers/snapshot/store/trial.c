/* SPDX-License-Identifier: BSD-2-Clause */
#include "trial.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { UNIT_BYTES = SNAP_UNIT_BYTES_MIN, WORLD = 1 };

static void *allocate(size_t bytes)
{
    void *memory = aligned_alloc(SNAP_BLOCK_BYTES, snap_blocks_of(bytes + 1) * SNAP_BLOCK_BYTES);
    if (memory == NULL)
        abort();
    memset(memory, 0, bytes);
    return memory;
}

void trial_make(struct trial *trial, const uint64_t *bytes, uint32_t ranges_count)
{
    char why[256];
    *trial = (struct trial){.ranges_count = ranges_count};
    for (uint32_t i = 0; i < ranges_count; i++) {
        snprintf(trial->names[i], sizeof(trial->names[i]), "range.%c", 'a' + (char)i);
        trial->ranges[i] = (struct sw_snap_range){
            .name = trial->names[i], .data = allocate(bytes[i]), .bytes = bytes[i]};
    }
    if (snap_cut_make(&trial->cut, bytes, ranges_count, UNIT_BYTES) != 0 ||
        snap_index_make(&trial->index, trial->ranges, &trial->cut, why, sizeof(why)) != 0)
        abort();
    trial->units = allocate((size_t)trial->cut.units_count * UNIT_BYTES);
    trial->sums =
        calloc(trial->cut.units_count * (UNIT_BYTES / SNAP_BLOCK_BYTES), sizeof(*trial->sums));
    trial->given = calloc(trial->cut.units_count, sizeof(*trial->given));
    if (trial->sums == NULL || trial->given == NULL)
        abort();
}

void trial_free(struct trial *trial)
{
    for (uint32_t i = 0; i < trial->ranges_count; i++)
        free(trial->ranges[i].data);
    snap_cut_free(&trial->cut);
    snap_index_free(&trial->index);
    free(trial->units);
    free(trial->sums);
    free(trial->given);
}

void trial_get(const struct trial *trial, uint8_t *bytes)
{
    for (uint32_t i = 0; i < trial->ranges_count; i++) {
        memcpy(bytes, trial->ranges[i].data, trial->ranges[i].bytes);
        bytes += trial->ranges[i].bytes;
    }
}

enum sw_snap_status trial_open(struct disk *disk, struct snap_store **store)
{
    struct snap_medium *medium = disk_open(disk);
    const struct snap_store_options options = {
        .is_writable = true, .world = WORLD, .seed = TRIAL_SEED, .writer = "test", .timeout_ms = 1};
    return snap_store_open(medium, &options, NULL, store);
}

enum sw_snap_status trial_begin(struct trial *trial, struct snap_store *store, uint64_t step)
{
    char small[64];
    int length = snprintf(small, sizeof(small), "{\"step\":%lu}", step);
    struct snap_plan plan = {.step = step,
                             .taken_at = 1000 + step,
                             .cut = &trial->cut,
                             .index = &trial->index,
                             .small = small,
                             .small_bytes = (uint32_t)length,
                             .seed = TRIAL_SEED};
    memcpy(plan.token, &step, sizeof(step));
    trial->done = 0;
    trial->status = SW_SNAP_OK;
    return snap_store_begin(store, &plan, NULL);
}

static void count_done(struct snap_store_unit *unit, enum sw_snap_status status)
{
    struct trial *trial = unit->context;
    trial->done++;
    if (status != SW_SNAP_OK)
        trial->status = status;
}

void trial_give(struct trial *trial, struct snap_store *store, uint32_t first, uint32_t end)
{
    trial->done = trial->cut.units_count - (end - first);
    for (uint32_t u = first; u < end; u++) {
        const struct snap_cut_unit *unit = &trial->cut.units[u];
        uint8_t *data = trial->units + (size_t)u * UNIT_BYTES;
        struct snap_sum *sums = trial->sums + (size_t)u * (UNIT_BYTES / SNAP_BLOCK_BYTES);
        memset(data, 0, (size_t)unit->blocks * SNAP_BLOCK_BYTES);
        for (uint32_t p = unit->first_piece; p < unit->first_piece + unit->pieces; p++) {
            const struct snap_cut_piece *piece = &trial->cut.pieces[p];
            memcpy(data + piece->unit_offset,
                   (uint8_t *)trial->ranges[piece->range].data + piece->range_offset, piece->bytes);
        }
        for (uint32_t i = 0; i < unit->blocks; i++)
            sums[i] = snap_sum_block(data + (size_t)i * SNAP_BLOCK_BYTES, TRIAL_SEED);
        trial->given[u] = (struct snap_store_unit){
            .number = u, .data = data, .sums = sums, .done = count_done, .context = trial};
        data[100] ^= trial->flips == &trial->given[u];
        snap_store_unit(store, &trial->given[u]);
    }
}

bool trial_wait_units(struct trial *trial, struct snap_store *store, const struct disk *disk)
{
    while (trial->done < trial->cut.units_count && !disk->is_cut)
        snap_store_poll(store);
    return !disk->is_cut;
}

void trial_called(void *context, enum sw_snap_status status, const struct sw_snap_error *error)
{
    struct trial *trial = context;
    (void)error;
    trial->status = status;
    trial->is_called = true;
}

bool trial_wait(struct trial *trial, struct snap_store *store, const struct disk *disk)
{
    while (!trial->is_called && !disk->is_cut)
        snap_store_poll(store);
    bool is_called = trial->is_called;
    trial->is_called = false;
    return is_called;
}

enum sw_snap_status trial_snapshot(struct trial *trial, struct snap_store *store,
                                   const struct disk *disk, uint64_t step)
{
    enum sw_snap_status status = trial_begin(trial, store, step);
    if (status != SW_SNAP_OK)
        return status;
    trial_give(trial, store, 0, trial->cut.units_count);
    trial_wait_units(trial, store, disk);
    snap_store_prepare(store, trial_called, trial);
    trial_wait(trial, store, disk);
    return trial->status;
}

enum sw_snap_status trial_forget(struct trial *trial, struct snap_store *store,
                                 const struct disk *disk, uint32_t which)
{
    snap_store_forget(store, which, trial_called, trial);
    trial_wait(trial, store, disk);
    return trial->status;
}

enum sw_snap_status trial_read(struct snap_store *store, uint32_t entry, uint8_t *bytes,
                               uint64_t bytes_max)
{
    struct snap_image *image;
    struct snap_span spans[TRIAL_RANGES_MAX];
    enum sw_snap_status status = snap_image_open(store, entry, NULL, &image);
    if (status != SW_SNAP_OK)
        return status;
    const struct snap_index *index = snap_image_index(image);
    uint64_t at = 0;
    for (uint32_t i = 0; i < index->ranges_count; i++) {
        spans[i] =
            (struct snap_span){.range = i, .bytes = index->ranges[i].bytes, .into = bytes + at};
        at += spans[i].bytes;
    }
    if (at > bytes_max)
        abort();
    status = snap_image_read(image, spans, index->ranges_count, NULL);
    const void *small;
    size_t small_bytes;
    if (status == SW_SNAP_OK)
        status = snap_image_small(image, &small, &small_bytes);
    snap_image_close(image);
    return status;
}
