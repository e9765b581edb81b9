/* SPDX-License-Identifier: BSD-2-Clause */
/* One snapshot of those that a reader has found, and what it consists of. */
#include <inttypes.h>
#include <string.h>

#include "snapshot/session/reader.h"
#include "snapshot/session/status.h"

/* Opens what each volume has of it. A rank needs one that can be read. */
static enum sw_snap_status open_images(struct sw_snap_reader *reader, const struct snap_set *set,
                                       struct sw_snap_error *error)
{
    for (uint32_t i = 0; i < reader->volumes_count; i++) {
        struct snap_volume *volume = &reader->volumes[i];
        const int entry = snap_reader_entry(volume, set);
        if (entry < 0)
            continue;
        volume->error = (struct sw_snap_error){0};
        volume->is_damaged =
            snap_image_open(volume->store, (uint32_t)entry, &volume->error, &volume->image) != 0;
        if (volume->is_damaged)
            volume->image = NULL;
        else if (!reader->indices[volume->rank])
            reader->indices[volume->rank] = snap_image_index(volume->image);
    }
    for (uint32_t rank = 0; rank < set->entry.world; rank++) {
        if (reader->indices[rank])
            continue;
        for (uint32_t i = 0; i < reader->volumes_count; i++)
            if (reader->volumes[i].rank == rank && reader->volumes[i].error.status)
                return snap_error_set(error, reader->volumes[i].error.status,
                                      "step %" PRIu64 " cannot be read: %.440s", set->entry.step,
                                      reader->volumes[i].error.text);
        return snap_error_set(error, SW_SNAP_NOT_FOUND,
                              "step %" PRIu64 ": nothing is there of rank %u", set->entry.step,
                              rank);
    }
    return SW_SNAP_OK;
}

static const struct snap_set *find_step(const struct sw_snap_reader *reader, const uint64_t *step)
{
    const struct snap_set *found = NULL;
    for (uint32_t i = 0; i < reader->sets_count; i++) {
        const struct snap_set *set = &reader->sets[i];
        if (step && set->entry.step != *step)
            continue;
        if (set->entry.is_whole)
            return set;
        if (step && !found)
            found = set;
    }
    return found;
}

enum sw_snap_status sw_snap_choose(struct sw_snap_reader *reader, const uint64_t *step,
                                   struct sw_snap_entry *entry, struct sw_snap_error *error)
{
    if (error)
        *error = (struct sw_snap_error){0};
    if (mover_is_forked(&reader->guard))
        return snap_error_plain(error, SW_SNAP_FORKED);
    snap_reader_leave(reader);
    memset(reader->indices, 0, sizeof(reader->indices));
    const struct snap_set *set = find_step(reader, step);
    if (!set && step)
        return snap_error_set(error, SW_SNAP_NOT_FOUND, "there is no snapshot of step %" PRIu64,
                              *step);
    if (!set && reader->left_out.status)
        return snap_error_set(error, reader->left_out.status,
                              "there is no whole snapshot in what can be read: %.440s",
                              reader->left_out.text);
    if (!set)
        return snap_error_set(error, SW_SNAP_NOT_FOUND, "there is no whole snapshot");
    if (!set->entry.is_whole)
        return snap_error_set(error, SW_SNAP_NOT_FOUND,
                              "the snapshot of step %" PRIu64 " is not whole: not all %u ranks "
                              "have it",
                              *step, set->entry.world);
    const enum sw_snap_status status = open_images(reader, set, error);
    if (status) {
        snap_reader_leave(reader);
        return status;
    }
    reader->is_chosen = true;
    reader->chosen = *set;
    reader->firsts[0] = 0;
    for (uint32_t rank = 0; rank < set->entry.world; rank++)
        reader->firsts[rank + 1] = reader->firsts[rank] + reader->indices[rank]->ranges_count;
    if (entry)
        *entry = set->entry;
    return SW_SNAP_OK;
}

uint32_t sw_snap_items(const struct sw_snap_reader *reader)
{
    return reader->is_chosen && !mover_is_forked(&reader->guard)
               ? reader->firsts[reader->chosen.entry.world]
               : 0;
}

static void copy_numbers(uint64_t *to, const uint64_t *from, uint32_t count)
{
    if (from && count)
        memcpy(to, from, count * sizeof(*to));
}

enum sw_snap_status sw_snap_item_of(const struct sw_snap_reader *reader, uint32_t number,
                                    struct sw_snap_item *item)
{
    uint32_t rank = 0;
    if (number >= sw_snap_items(reader))
        return SW_SNAP_NOT_FOUND;
    while (number >= reader->firsts[rank + 1])
        rank++;
    const struct snap_index_range *range =
        &reader->indices[rank]->ranges[number - reader->firsts[rank]];
    memset(item, 0, sizeof(*item));
    strncpy(item->name, range->name, sizeof(item->name) - 1);
    memcpy(item->type, range->type, sizeof(item->type));
    item->rank = rank;
    item->bytes = range->bytes;
    item->dims = range->dims;
    copy_numbers(item->shape, range->shape, range->dims);
    copy_numbers(item->at, range->at, range->dims);
    copy_numbers(item->whole, range->whole, range->dims);
    return SW_SNAP_OK;
}

enum sw_snap_status sw_snap_find(const struct sw_snap_reader *reader, uint32_t rank,
                                 const char *name, uint32_t *number)
{
    if (!sw_snap_items(reader) || rank >= reader->chosen.entry.world)
        return SW_SNAP_NOT_FOUND;
    const int64_t at = snap_index_find(reader->indices[rank], name);
    if (at < 0)
        return SW_SNAP_NOT_FOUND;
    *number = reader->firsts[rank] + (uint32_t)at;
    return SW_SNAP_OK;
}
