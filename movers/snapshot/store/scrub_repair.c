/* SPDX-License-Identifier: BSD-2-Clause */
#include "snapshot/store/scrub_repair.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/minmax.h"
#include "snapshot/store/load.h"

void snap_others_close(struct snap_others *others)
{
    for (uint32_t i = 0; i < SNAP_OTHERS_MAX; i++)
        if (others->images[i] != NULL)
            snap_image_close(others->images[i]);
    memset(others->images, 0, sizeof(others->images));
    memset(others->is_loaded, 0, sizeof(others->is_loaded));
}

/* The snapshot as the volume of that number has it, or NULL. */
static struct snap_image *other_image(struct snap_others *others, uint32_t number)
{
    if (number == others->but || number >= SNAP_OTHERS_MAX)
        return NULL;
    struct snap_store *store = others->stores[number];
    const struct snap_superblock *newest = snap_store_newest(store);
    for (uint32_t i = 0; i < newest->entries_count && !others->is_loaded[number]; i++) {
        const struct snap_entry *entry = &newest->entries[i];
        if (entry->step != others->entry->step || entry->rank != others->entry->rank ||
            memcmp(entry->token, others->entry->token, SNAP_TOKEN_BYTES) != 0)
            continue;
        if (snap_image_load(store, entry, NULL, &others->images[number]) != SW_SNAP_OK)
            others->images[number] = NULL;
        others->is_loaded[number] = true;
    }
    others->is_loaded[number] = true;
    return others->images[number];
}

/* Reads a block of a snapshot; true: it has its sum. */
static bool read_block(struct snap_image *image, uint32_t unit, uint32_t block, uint8_t *bytes)
{
    const struct snap_table *table = &image->table;
    if (unit >= table->root.units_count || block >= table->blocks[unit] || table->is_damaged[unit])
        return false;
    uint64_t at = table->first[unit] + block;
    memset(bytes, 0, SNAP_BLOCK_BYTES);
    if (table->places[at] != 0 &&
        snap_run_io(image->store, SNAP_IO_READ, table->places[at], 1, bytes) != 0)
        return false;
    return snap_sum_equal(snap_sum_block(bytes, table->seeds[unit]), table->sums[at]);
}

bool snap_repair_block(struct snap_store *store, const struct snap_table *table, uint32_t unit,
                       uint32_t block, struct snap_others *others)
{
    uint64_t at = table->first[unit] + block;
    uint8_t *bytes = store->scratch;
    for (uint32_t i = 0; i < others->stores_count; i++) {
        struct snap_image *image = other_image(others, i);
        if (image == NULL || !read_block(image, unit, block, bytes) ||
            !snap_sum_equal(snap_sum_block(bytes, table->seeds[unit]), table->sums[at]))
            continue;
        if (snap_run_io(store, SNAP_IO_WRITE, table->places[at], 1, bytes) != 0 ||
            snap_run_io(store, SNAP_IO_READ, table->places[at], 1, bytes) != 0)
            return false;
        return snap_sum_equal(snap_sum_block(bytes, table->seeds[unit]), table->sums[at]);
    }
    return false;
}

static bool write_blob(struct snap_store *store, const struct snap_blob *blob, const uint8_t *bytes)
{
    enum { PART = sizeof(store->scratch) };
    int result = 0;
    for (uint64_t at = 0; at < blob->bytes && result == 0; at += PART) {
        uint64_t part = mover_min_u64(blob->bytes - at, PART);
        memset(store->scratch, 0, PART);
        memcpy(store->scratch, bytes + at, part);
        result = snap_run_io(store, SNAP_IO_WRITE, blob->block + at / SNAP_BLOCK_BYTES,
                             snap_blocks_of(part), store->scratch);
    }
    return result == 0 && snap_run_io(store, SNAP_IO_FLUSH, 0, 0, NULL) == 0;
}

static bool is_same_blob(const struct snap_blob *one, const struct snap_blob *other)
{
    return one->bytes == other->bytes && memcmp(one->digest, other->digest, SNAP_DIGEST_BYTES) == 0;
}

bool snap_repair_blob(struct snap_store *store, const struct snap_blob *blob,
                      struct snap_others *others)
{
    bool is_repaired = false;
    for (uint32_t i = 0; i < others->stores_count && !is_repaired; i++) {
        struct snap_image *image = other_image(others, i);
        if (image == NULL)
            continue;
        const struct snap_root *root = &image->table.root;
        const struct snap_blob *source = is_same_blob(&root->index, blob)   ? &root->index
                                         : is_same_blob(&root->small, blob) ? &root->small
                                                                            : NULL;
        uint8_t *bytes;
        if (source == NULL || snap_load_blob(&image->store->tasks, source, &bytes) != 0)
            continue;
        is_repaired = write_blob(store, blob, bytes);
        free(bytes);
        if (is_repaired && snap_load_blob(&store->tasks, blob, &bytes) == 0)
            free(bytes);
        else
            is_repaired = false;
    }
    snap_others_close(others);
    return is_repaired;
}

/* ---- a snapshot that is written again ---- */

struct rewrite {
    struct snap_store *store;
    struct snap_image *source;
    struct snap_cut cut;
    uint8_t *data; /* of a unit */
    bool is_done;
    enum sw_snap_status status;
};

/* The cut of the ranges of the source; false: it is not the one that the source has. */
static bool cut_source(struct rewrite *rewrite)
{
    const struct snap_table *table = &rewrite->source->table;
    const struct snap_index *index = &table->index;
    uint64_t *bytes = calloc(index->ranges_count + 1u, sizeof(*bytes));
    if (bytes == NULL)
        return false;
    for (uint32_t i = 0; i < index->ranges_count; i++)
        bytes[i] = index->ranges[i].bytes;
    int result = snap_cut_make(&rewrite->cut, bytes, index->ranges_count, table->root.unit_bytes);
    free(bytes);
    if (result != 0 || rewrite->cut.units_count != table->root.units_count)
        return false;
    for (uint32_t i = 0; i < index->ranges_count; i++)
        if (rewrite->cut.places[i].unit != index->ranges[i].unit ||
            rewrite->cut.places[i].offset != index->ranges[i].offset)
            return false;
    for (uint32_t i = 0; i < table->root.units_count; i++)
        if (rewrite->cut.units[i].blocks != table->blocks[i] || table->is_damaged[i] ||
            table->seeds[i] != table->seeds[0])
            return false;
    return true;
}

static void unit_done(struct snap_store_unit *unit, enum sw_snap_status status)
{
    struct rewrite *rewrite = unit->context;
    rewrite->is_done = true;
    rewrite->status = status;
}

static void script_done(void *context, enum sw_snap_status status,
                        const struct sw_snap_error *error)
{
    struct rewrite *rewrite = context;
    (void)error;
    rewrite->is_done = true;
    rewrite->status = status;
}

static bool wait_done(struct rewrite *rewrite)
{
    while (!rewrite->is_done) {
        snap_store_poll(rewrite->store);
        if (!rewrite->is_done)
            snap_tasks_rest(&rewrite->store->tasks);
    }
    rewrite->is_done = false;
    return rewrite->status == SW_SNAP_OK;
}

/* A unit whose leaf was lost needs its data; the others have their sums in the base. */
static bool rewrite_unit(struct rewrite *rewrite, uint32_t number)
{
    const struct snap_table *table = &rewrite->source->table;
    bool is_lost = rewrite->store->write.base_unit[number] == SNAP_NO_UNIT;
    for (uint32_t i = 0; i < table->blocks[number] && is_lost; i++)
        if (!read_block(rewrite->source, number, i, rewrite->data + (size_t)i * SNAP_BLOCK_BYTES))
            return false;
    struct snap_store_unit unit = {.number = number,
                                   .data = rewrite->data,
                                   .sums = table->sums + table->first[number],
                                   .done = unit_done,
                                   .context = rewrite};
    snap_store_unit(rewrite->store, &unit);
    return wait_done(rewrite);
}

/* Units that have come have the sums of the source: what differs from a whole unit of the table is
 * none of this snapshot, so it is no base. */
static bool is_same_unit(const struct snap_table *table, const struct snap_table *source,
                         uint32_t unit)
{
    return table->blocks[unit] == source->blocks[unit] &&
           table->seeds[unit] == source->seeds[unit] &&
           memcmp(table->sums + table->first[unit], source->sums + source->first[unit],
                  table->blocks[unit] * sizeof(*table->sums)) == 0;
}

/* A copy of the table of the damaged snapshot, which the store takes as its base. */
static int make_base(struct rewrite *rewrite, const struct snap_table *table,
                     struct snap_table *base)
{
    const struct snap_table *source = &rewrite->source->table;
    *base = (struct snap_table){0};
    if (table->units == NULL || table->root.units_count != source->root.units_count)
        return 0;
    int result = snap_table_make(base, &table->root, table->blocks);
    if (result != 0)
        return result;
    uint32_t units = table->root.units_count;
    memcpy(base->units, table->units, units * sizeof(*base->units));
    memcpy(base->seeds, table->seeds, units * sizeof(*base->seeds));
    memcpy(base->sums, table->sums, table->first[units] * sizeof(*base->sums));
    memcpy(base->places, table->places, table->first[units] * sizeof(*base->places));
    for (uint32_t i = 0; i < units; i++)
        base->is_damaged[i] = table->is_damaged[i] || !is_same_unit(table, source, i);
    /* The ranges are those of the source: so units find each other. */
    char *text, why[64];
    size_t bytes;
    result = snap_index_print(&source->index, &text, &bytes);
    if (result == 0) {
        result = snap_index_parse(&base->index, text, bytes, source->root.unit_bytes, units,
                                  source->blocks, why, sizeof(why));
        free(text);
    }
    base->has_index = result == 0;
    if (result != 0)
        snap_table_free(base);
    return result;
}

static bool write_entry(struct rewrite *rewrite, uint32_t number, const struct snap_table *table)
{
    const struct snap_table *source = &rewrite->source->table;
    const struct snap_entry *entry = &rewrite->source->entry;
    struct snap_plan plan = {.step = entry->step,
                             .taken_at = entry->taken_at,
                             .cut = &rewrite->cut,
                             .index = &source->index,
                             .small = source->small,
                             .small_bytes = (uint32_t)source->root.small.bytes,
                             .seed = source->root.units_count > 0 ? source->seeds[0] : 0};
    struct snap_table base;
    memcpy(plan.token, entry->token, SNAP_TOKEN_BYTES);
    if (make_base(rewrite, table, &base) != 0 ||
        snap_write_begin_repair(rewrite->store, &plan, number, &base, NULL) != SW_SNAP_OK)
        return false;
    bool is_good = true;
    for (uint32_t i = 0; i < source->root.units_count && is_good; i++)
        is_good = rewrite_unit(rewrite, i);
    if (is_good)
        snap_store_prepare(rewrite->store, script_done, rewrite);
    else
        snap_store_abort(rewrite->store, script_done, rewrite);
    return wait_done(rewrite) && is_good;
}

static bool rewrite_from(struct snap_store *store, uint32_t number, const struct snap_table *table,
                         struct snap_image *source)
{
    struct rewrite rewrite = {.store = store, .source = source};
    if (!source->table.has_index || !source->table.has_small || !snap_store_is_idle(store))
        return false;
    rewrite.data = malloc(source->table.root.unit_bytes);
    bool is_good =
        rewrite.data != NULL && cut_source(&rewrite) && write_entry(&rewrite, number, table);
    snap_cut_free(&rewrite.cut);
    free(rewrite.data);
    return is_good;
}

bool snap_repair_entry(struct snap_store *store, uint32_t number, const struct snap_table *table,
                       struct snap_others *others)
{
    bool is_repaired = false;
    for (uint32_t i = 0; i < others->stores_count && !is_repaired; i++) {
        struct snap_image *image = other_image(others, i);
        is_repaired = image != NULL && rewrite_from(store, number, table, image);
    }
    snap_others_close(others);
    return is_repaired;
}
