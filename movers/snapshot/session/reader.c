/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "snapshot/session/options.h"
#include "snapshot/session/reader.h"
#include "snapshot/session/status.h"

static const char *const nearest[] = {"file:", "pmem:", "peer:", "nvme:"};

static uint32_t distance_of(const char *sink)
{
    uint32_t at = 0;
    while (at < sizeof(nearest) / sizeof(*nearest) &&
           strncmp(sink, nearest[at], strlen(nearest[at])) != 0)
        at++;
    return at;
}

static enum sw_snap_status open_store(const struct sw_snap_options *given,
                                      struct snap_volume *volume, struct sw_snap_error *error)
{
    const struct snap_medium_options how = {
        .is_writable = given->may_write,
        .take_over = given->take_over,
        .writer = "sidewire snapshot",
        .local = given->local,
        .connect_timeout_ms = given->connect_timeout_ms,
        .stall_timeout_ms = given->stall_timeout_ms,
    };
    const struct snap_store_options options = {
        .is_writable = given->may_write,
        .rank = volume->rank,
        .world = given->world,
        .writer = "sidewire snapshot",
        .timeout_ms = given->stall_timeout_ms,
    };
    struct snap_medium *medium;
    char why[256] = "";
    struct sw_snap_error open_error = {0};
    const int result = snap_medium_open(volume->text, &how, why, sizeof(why), &medium);
    if (result)
        return snap_error_at(error, result == -ENOENT ? SW_SNAP_NOT_FOUND : snap_status_of(result),
                             volume->text, *why ? why : strerror(-result));
    const enum sw_snap_status status =
        snap_store_open(medium, &options, &open_error, &volume->store);
    if (!status)
        return SW_SNAP_OK;
    return snap_error_at(error, status, volume->text, open_error.text);
}

/* Opens the volume of a rank on a sink, behind those that are open. */
static enum sw_snap_status add_volume(struct sw_snap_reader *reader, uint32_t sink, uint32_t rank,
                                      struct sw_snap_error *error)
{
    struct snap_volume *volumes =
        realloc(reader->volumes, (reader->volumes_count + 1) * sizeof(*volumes));
    if (!volumes)
        return snap_error_plain(error, SW_SNAP_NO_MEMORY);
    reader->volumes = volumes;
    struct snap_volume *volume = &volumes[reader->volumes_count];
    *volume = (struct snap_volume){.sink = sink,
                                   .rank = rank,
                                   .distance = distance_of(reader->options.sinks[sink]),
                                   .text = snap_sink_text(reader->options.sinks[sink], rank)};
    if (!volume->text)
        return snap_error_plain(error, SW_SNAP_NO_MEMORY);
    const enum sw_snap_status status = open_store(&reader->options, volume, error);
    if (status) {
        free(volume->text);
        return status;
    }
    snap_store_info_of(volume->store, &volume->info);
    for (uint32_t i = 0; i < volume->info.entries_count; i++)
        if (volume->info.entries[i].world > reader->world &&
            volume->info.entries[i].world <= SW_SNAP_RANKS_MAX)
            reader->world = volume->info.entries[i].world;
    reader->volumes_count++;
    return SW_SNAP_OK;
}

/* Those of rank 0 say how many ranks there are; where none of them can be read, the options may. */
static enum sw_snap_status open_volumes(struct sw_snap_reader *reader, struct sw_snap_error *error)
{
    for (uint32_t rank = 0; rank < reader->world; rank++)
        for (uint32_t sink = 0; sink < reader->options.sinks_count; sink++) {
            struct sw_snap_error why = {0};
            if (rank && !strstr(reader->options.sinks[sink], "{rank}"))
                continue;
            const enum sw_snap_status status = add_volume(reader, sink, rank, &why);
            if (status == SW_SNAP_NO_MEMORY)
                return snap_error_plain(error, SW_SNAP_NO_MEMORY);
            if (!status)
                continue;
            if (!error->status || error->status == SW_SNAP_NOT_FOUND)
                *error = why;
        }
    /* What could not be read may have what others have not. */
    if (error->status != SW_SNAP_NOT_FOUND)
        reader->left_out = *error;
    return reader->volumes_count ? SW_SNAP_OK : error->status;
}

static int compare_volumes(const void *a, const void *b)
{
    const struct snap_volume *one = a, *other = b;
    if (one->rank != other->rank)
        return one->rank < other->rank ? -1 : 1;
    if (one->distance != other->distance)
        return one->distance < other->distance ? -1 : 1;
    return (one->sink > other->sink) - (one->sink < other->sink);
}

enum sw_snap_status sw_snap_reader_open(const struct sw_snap_options *options,
                                        struct sw_snap_error *error, struct sw_snap_reader **reader)
{
    struct sw_snap_error why = {0};
    *reader = NULL;
    if (error)
        *error = why;
    else
        error = &why;
    struct sw_snap_reader *made = calloc(1, sizeof(*made));
    if (!made)
        return snap_error_plain(error, SW_SNAP_NO_MEMORY);
    enum sw_snap_status status = snap_options_take(&made->options, options, error);
    if (status) {
        free(made);
        return status;
    }
    made->world = made->options.world;
    if (!mover_fork_guard_open(&made->guard))
        status = snap_error_plain(error, SW_SNAP_NO_MEMORY);
    if (!status)
        status = open_volumes(made, error);
    if (!status) {
        qsort(made->volumes, made->volumes_count, sizeof(*made->volumes), compare_volumes);
        if (!snap_reader_sort(made))
            status = snap_error_plain(error, SW_SNAP_NO_MEMORY);
    }
    if (status)
        sw_snap_reader_close(made);
    else
        *reader = made;
    return status;
}

void snap_reader_leave(struct sw_snap_reader *reader)
{
    reader->is_chosen = false;
    for (uint32_t i = 0; i < reader->volumes_count; i++) {
        if (reader->volumes[i].image)
            snap_image_close(reader->volumes[i].image);
        reader->volumes[i].image = NULL;
    }
}

void sw_snap_reader_close(struct sw_snap_reader *reader)
{
    if (!reader)
        return;
    if (!mover_is_forked(&reader->guard)) {
        snap_reader_leave(reader);
        for (uint32_t i = 0; i < reader->volumes_count; i++)
            snap_store_close(reader->volumes[i].store);
    }
    for (uint32_t i = 0; i < reader->volumes_count; i++)
        free(reader->volumes[i].text);
    mover_fork_guard_close(&reader->guard);
    snap_options_free(&reader->options);
    free(reader->volumes);
    free(reader->sets);
    free(reader);
}

enum sw_snap_status snap_reader_may_write(const struct sw_snap_reader *reader,
                                          struct sw_snap_error *error)
{
    if (mover_is_forked(&reader->guard))
        return snap_error_plain(error, SW_SNAP_FORKED);
    return reader->options.may_write
               ? SW_SNAP_OK
               : snap_error_set(error, SW_SNAP_INVALID, "the reader was not opened to write");
}

/* ---- what there is ---- */

int snap_reader_entry(const struct snap_volume *volume, const struct snap_set *set)
{
    for (int i = (int)volume->info.entries_count - 1; i >= 0; i--) {
        const struct snap_entry *entry = &volume->info.entries[i];
        if (entry->step == set->entry.step && entry->world == set->entry.world &&
            entry->rank == volume->rank && !memcmp(entry->token, set->token, SNAP_TOKEN_BYTES))
            return i;
    }
    return -1;
}

static struct snap_set *find_set(struct sw_snap_reader *reader, const struct snap_entry *entry)
{
    for (uint32_t i = 0; i < reader->sets_count; i++)
        if (reader->sets[i].entry.step == entry->step &&
            reader->sets[i].entry.world == entry->world &&
            !memcmp(reader->sets[i].token, entry->token, SNAP_TOKEN_BYTES))
            return &reader->sets[i];
    return NULL;
}

/* How many ranks have it on that sink, and the bytes of those that no nearer sink has. */
static uint32_t count_ranks(const struct sw_snap_reader *reader, const struct snap_set *set,
                            uint32_t sink)
{
    uint32_t ranks = 0;
    for (uint32_t i = 0; i < reader->volumes_count; i++)
        ranks +=
            reader->volumes[i].sink == sink && snap_reader_entry(&reader->volumes[i], set) >= 0;
    return ranks;
}

static void complete_set(const struct sw_snap_reader *reader, struct snap_set *set)
{
    bool has_rank[SW_SNAP_RANKS_MAX] = {0};
    uint32_t ranks = 0;
    for (uint32_t i = 0; i < reader->volumes_count; i++) {
        const struct snap_volume *volume = &reader->volumes[i];
        const int at = snap_reader_entry(volume, set);
        if (at < 0 || has_rank[volume->rank])
            continue;
        has_rank[volume->rank] = true;
        ranks++;
        set->entry.bytes += volume->info.entries[at].state_bytes;
    }
    set->entry.is_whole = ranks == set->entry.world;
    for (uint32_t sink = 0; sink < reader->options.sinks_count; sink++) {
        const uint32_t here = count_ranks(reader, set, sink);
        set->entry.copies += here == set->entry.world;
        set->entry.damaged += here && here < set->entry.world;
    }
}

static int compare_sets(const void *a, const void *b)
{
    const struct sw_snap_entry *one = &((const struct snap_set *)a)->entry,
                               *other = &((const struct snap_set *)b)->entry;
    if (one->taken_at != other->taken_at)
        return one->taken_at > other->taken_at ? -1 : 1;
    if (one->step != other->step)
        return one->step > other->step ? -1 : 1;
    return memcmp(one->token, other->token, sizeof(one->token));
}

static bool add_set(struct sw_snap_reader *reader, const struct snap_entry *entry)
{
    if (entry->world > SW_SNAP_RANKS_MAX || entry->rank >= entry->world)
        return true;
    struct snap_set *set = find_set(reader, entry);
    if (set) {
        if (entry->taken_at > set->entry.taken_at)
            set->entry.taken_at = entry->taken_at;
        return true;
    }
    set = realloc(reader->sets, (reader->sets_count + 1) * sizeof(*set));
    if (!set)
        return false;
    reader->sets = set;
    set += reader->sets_count++;
    *set = (struct snap_set){
        .entry = {.step = entry->step, .world = entry->world, .taken_at = entry->taken_at}};
    memcpy(set->token, entry->token, SNAP_TOKEN_BYTES);
    memcpy(set->entry.token, entry->token, SNAP_TOKEN_BYTES);
    return true;
}

bool snap_reader_sort(struct sw_snap_reader *reader)
{
    reader->sets_count = 0;
    for (uint32_t i = 0; i < reader->volumes_count; i++)
        for (uint32_t e = 0; e < reader->volumes[i].info.entries_count; e++)
            if (!add_set(reader, &reader->volumes[i].info.entries[e]))
                return false;
    for (uint32_t i = 0; i < reader->sets_count; i++)
        complete_set(reader, &reader->sets[i]);
    if (reader->sets_count)
        qsort(reader->sets, reader->sets_count, sizeof(*reader->sets), compare_sets);
    return true;
}

uint32_t sw_snap_list(struct sw_snap_reader *reader, struct sw_snap_entry *entries,
                      uint32_t entries_max)
{
    if (mover_is_forked(&reader->guard))
        return 0;
    for (uint32_t i = 0; i < reader->sets_count && i < entries_max; i++)
        entries[i] = reader->sets[i].entry;
    return reader->sets_count;
}
