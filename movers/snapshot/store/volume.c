/* SPDX-License-Identifier: BSD-2-Clause */
/* Opens a volume: which superblock counts, what is in use, and who writes from now on. */
#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "common/base/minmax.h"
#include "snapshot/store/load.h"
#include "snapshot/store/state.h"

struct block_read {
    void *into;
    int result;
};

static void end_read(struct snap_task *task, int result)
{
    struct block_read *read = task->owner;
    read->result = result;
    if (result == 0 && read->into != NULL)
        memcpy(read->into, task->slot, task->io.bytes);
}

int snap_run_io(struct snap_store *store, enum snap_io_kind kind, uint64_t block, uint64_t blocks,
                void *data)
{
    struct block_read run = {.into = kind == SNAP_IO_READ ? data : NULL};
    struct snap_task *task;
    int result = snap_task_take_waiting(&store->tasks, true, &task);
    if (result != 0)
        return result;
    task->ended = end_read;
    task->owner = &run;
    if (kind == SNAP_IO_WRITE)
        memcpy(task->slot, data, blocks * SNAP_BLOCK_BYTES);
    snap_task_submit(task, kind, block, blocks, kind == SNAP_IO_FLUSH ? NULL : task->slot);
    result = snap_tasks_wait(&store->tasks);
    return result != 0 ? result : run.result;
}

bool snap_slots_decode(const uint8_t *bytes, uint64_t volume_blocks,
                       struct snap_slot slots[SNAP_SUPERBLOCKS])
{
    bool has_version = false;
    for (uint32_t i = 0; i < SNAP_SUPERBLOCKS; i++) {
        struct snap_slot *slot = &slots[i];
        memcpy(slot->bytes, bytes + i * SNAP_BLOCK_BYTES, SNAP_BLOCK_BYTES);
        enum snap_superblock_verdict verdict =
            snap_superblock_decode(slot->bytes, volume_blocks, &slot->superblock);
        slot->is_valid = verdict == SNAP_SUPERBLOCK_OK;
        slot->is_empty = verdict == SNAP_SUPERBLOCK_EMPTY;
        slot->is_cut = verdict == SNAP_SUPERBLOCK_CUT;
        has_version |= verdict == SNAP_SUPERBLOCK_VERSION;
    }
    return has_version;
}

/* The epoch comes first: an older writer may have written without knowing of a later one. */
static bool is_newer(const struct snap_slot *one, const struct snap_slot *other)
{
    if (!one->is_valid || !other->is_valid)
        return one->is_valid;
    if (one->superblock.epoch != other->superblock.epoch)
        return one->superblock.epoch > other->superblock.epoch;
    return one->superblock.generation > other->superblock.generation;
}

uint32_t snap_slots_target(const struct snap_store *store)
{
    const struct snap_slot *slots = store->slots;
    for (uint32_t i = 0; i < SNAP_SUPERBLOCKS; i++)
        if (!slots[i].is_valid)
            return i;
    return is_newer(&slots[1], &slots[0]) ? 0 : 1;
}

static bool slots_have(const struct snap_store *store, const struct snap_entry *entry)
{
    for (uint32_t i = 0; i < SNAP_SUPERBLOCKS; i++) {
        const struct snap_slot *slot = &store->slots[i];
        for (uint32_t k = 0; slot->is_valid && k < slot->superblock.entries_count; k++)
            if (memcmp(&slot->superblock.entries[k], entry, sizeof(*entry)) == 0)
                return true;
    }
    return false;
}

void snap_store_recount(struct snap_store *store)
{
    assert(!store->write.is_begun);
    snap_room_clear(&store->room);
    for (uint32_t i = 0; i < SNAP_MARKS_MAX; i++) {
        struct snap_marks *marks = &store->marks[i];
        if (marks->bits != NULL && !slots_have(store, &marks->entry)) {
            free(marks->bits);
            marks->bits = NULL;
        }
        if (marks->bits != NULL)
            snap_room_add(&store->room, marks->bits);
    }
}

void snap_slots_apply(struct snap_store *store)
{
    struct snap_slot *slot = &store->slots[store->target];
    slot->superblock = store->next;
    slot->is_valid = true;
    slot->is_empty = false;
    snap_superblock_encode(&slot->superblock, slot->bytes);
    store->newest = store->target;
}

static const struct snap_marks *find_marks(const struct snap_store *store,
                                           const struct snap_entry *entry)
{
    for (uint32_t i = 0; i < SNAP_MARKS_MAX; i++)
        if (store->marks[i].bits != NULL &&
            memcmp(&store->marks[i].entry, entry, sizeof(*entry)) == 0)
            return &store->marks[i];
    return NULL;
}

struct snap_marks *snap_marks_unused(struct snap_store *store)
{
    for (uint32_t i = 0; i < SNAP_MARKS_MAX; i++)
        if (store->marks[i].bits == NULL)
            return &store->marks[i];
    abort(); /* both superblocks would have more entries than they can */
}

static int add_marks(struct snap_store *store, const struct snap_entry *entry,
                     const struct snap_table *table)
{
    struct snap_marks *marks = snap_marks_unused(store);
    marks->bits = calloc(store->room.words, sizeof(*marks->bits));
    if (marks->bits == NULL)
        return -ENOMEM;
    marks->entry = *entry;
    snap_table_mark(table, entry, marks->bits);
    return 0;
}

/* A snapshot whose root is damaged cannot be read again: its blocks count as free, but for the
 * root's own. */
static int load_marks(struct snap_store *store, const struct snap_entry *entry, bool is_base)
{
    struct snap_table table;
    const char *why;
    if (find_marks(store, entry) != NULL)
        return 0;
    int result = snap_load_table(&store->tasks, entry, store->room.blocks, &table, &why);
    if (result == -EBADMSG) {
        table = (struct snap_table){0};
        return add_marks(store, entry, &table);
    }
    if (result != 0)
        return result;
    result = add_marks(store, entry, &table);
    if (is_base && result == 0) {
        store->base = table;
        store->has_base = true;
        return 0;
    }
    snap_table_free(&table);
    return result;
}

int snap_store_load_base(struct snap_store *store)
{
    const struct snap_superblock *newest = snap_store_newest(store);
    if (!store->is_base_stale)
        return 0;
    store->is_base_stale = false;
    if (store->has_base)
        snap_table_free(&store->base);
    store->has_base = false;
    if (newest->entries_count == 0)
        return 0;
    const char *why;
    int result = snap_load_table(&store->tasks, &newest->entries[newest->entries_count - 1],
                                 store->room.blocks, &store->base, &why);
    store->has_base = result == 0;
    return result == -EBADMSG ? 0 : result;
}

static int load_all(struct snap_store *store)
{
    int result = 0;
    for (uint32_t i = 0; i < SNAP_SUPERBLOCKS && result == 0; i++) {
        const struct snap_slot *slot = &store->slots[(store->newest + i) % SNAP_SUPERBLOCKS];
        uint32_t count = slot->is_valid ? slot->superblock.entries_count : 0;
        for (uint32_t k = count; k-- > 0 && result == 0;)
            result = load_marks(store, &slot->superblock.entries[k], i == 0 && k + 1 == count);
    }
    if (result == 0)
        snap_store_recount(store);
    return result;
}

/* Blocks: a flush of what the newest superblock says, then the other one, then a flush. So the one
 * that counted before is durable before it is left behind. */
int snap_superblock_write(struct snap_store *store)
{
    store->target = snap_slots_target(store);
    snap_superblock_encode(&store->next, store->scratch);
    int result = snap_run_io(store, SNAP_IO_FLUSH, 0, 0, NULL);
    if (result == 0)
        result = snap_run_io(store, SNAP_IO_WRITE, store->target, 1, store->scratch);
    if (result == 0)
        result = snap_run_io(store, SNAP_IO_FLUSH, 0, 0, NULL);
    if (result == 0)
        snap_slots_apply(store);
    return result;
}

static int make_volume(struct snap_store *store, const struct snap_store_options *options)
{
    struct snap_superblock *next = &store->next;
    uint64_t blocks = mover_min_u64(store->medium->bytes / SNAP_BLOCK_BYTES, UINT32_MAX);
    uint64_t generation = 1, epoch = mover_max_u64(store->medium->epoch, 1);
    for (uint32_t i = 0; i < SNAP_SUPERBLOCKS; i++) {
        struct snap_slot *slot = &store->slots[i];
        if (slot->is_valid) { /* it is given up */
            generation = mover_max_u64(generation, slot->superblock.generation + 1);
            epoch = mover_max_u64(epoch, slot->superblock.epoch + 1);
        }
        slot->is_valid = false;
    }
    *next = (struct snap_superblock){
        .blocks = blocks, .generation = generation, .epoch = epoch, .seed = options->seed};
    if (getrandom(next->identity, sizeof(next->identity), 0) != sizeof(next->identity))
        return -EIO;
    if (next->seed == 0 && getrandom(&next->seed, sizeof(next->seed), 0) != sizeof(next->seed))
        return -EIO;
    next->rank = options->rank;
    next->world = options->world;
    strcpy(next->writer, store->writer);
    int result = snap_room_open(&store->room, blocks);
    if (result == 0)
        result = snap_superblock_write(store);
    next->generation++;
    if (result == 0 && !store->slots[1].is_empty)
        result = snap_superblock_write(store);
    return result;
}

/* Takes the volume over: the epoch counts up, and the writer before is fenced by it. */
static int count_epoch_up(struct snap_store *store, const struct snap_store_options *options)
{
    struct snap_superblock *next = &store->next;
    uint64_t epoch = store->medium->epoch;
    for (uint32_t i = 0; i < SNAP_SUPERBLOCKS; i++)
        if (store->slots[i].is_valid && store->slots[i].superblock.epoch >= epoch)
            epoch = store->slots[i].superblock.epoch + 1;
    *next = *snap_store_newest(store);
    next->generation++;
    next->epoch = epoch;
    next->world = options->world;
    strcpy(next->writer, store->writer);
    int result = snap_superblock_write(store);
    if (result == 0)
        snap_store_recount(store);
    return result;
}

static int refuse_volume(struct snap_store *store, enum sw_snap_status status, const char *why)
{
    store->error.status = status;
    snprintf(store->error.text, sizeof(store->error.text), "%s: %s", store->medium->name, why);
    return -EINVAL;
}

static int open_old(struct snap_store *store, const struct snap_store_options *options)
{
    const struct snap_slot *slots = store->slots;
    store->newest = is_newer(&slots[1], &slots[0]) ? 1 : 0;
    for (uint32_t i = 0; i < SNAP_SUPERBLOCKS; i++)
        if (!slots[i].is_valid && !slots[i].is_empty) {
            store->damaged_superblocks++;
            store->damaged_slot = i;
        }
    if (options->is_writable && snap_store_newest(store)->rank != options->rank) {
        char why[96];
        snprintf(why, sizeof(why), "the volume is of rank %u, not of %u",
                 snap_store_newest(store)->rank, options->rank);
        return refuse_volume(store, SW_SNAP_OTHER_RANK, why);
    }
    int result = snap_room_open(&store->room, snap_store_newest(store)->blocks);
    if (result == 0)
        result = load_all(store);
    if (result == 0 && options->is_writable)
        result = count_epoch_up(store, options);
    return result;
}

/* The first superblock may be torn while the other was never written: then no snapshot was ever
 * there. Anything else is somebody's. */
static bool is_new_volume(const struct snap_store *store)
{
    return store->slots[1].is_empty && snap_superblock_is_unfinished(store->slots[0].bytes);
}

/* Its end is missing, and may be somewhere: nothing here is to be deleted. */
static int refuse_cut(struct snap_store *store, const struct snap_slot *slot)
{
    char why[192];
    snprintf(why, sizeof(why),
             "a part is missing: %" PRIu64 " bytes are there, and the volume has %" PRIu64
             ". It is not touched: put the rest back, or take another name",
             store->medium->bytes, slot->superblock.blocks * SNAP_BLOCK_BYTES);
    return refuse_volume(store, SW_SNAP_CORRUPT, why);
}

static int open_volume(struct snap_store *store, const struct snap_store_options *options)
{
    uint64_t blocks = store->medium->bytes / SNAP_BLOCK_BYTES;
    int result = 0;
    if (blocks >= SNAP_SUPERBLOCKS)
        result = snap_run_io(store, SNAP_IO_READ, 0, SNAP_SUPERBLOCKS, store->scratch);
    if (result != 0)
        return result;
    bool has_version =
        blocks >= SNAP_SUPERBLOCKS && snap_slots_decode(store->scratch, blocks, store->slots);
    const struct snap_slot *slots = store->slots;
    const bool is_known = slots[0].is_valid || slots[1].is_valid;
    const bool makes_anew = options->is_writable && options->make_anew;
    if (!makes_anew && !is_known && (slots[0].is_cut || slots[1].is_cut))
        return refuse_cut(store, &slots[slots[0].is_cut ? 0 : 1]);
    if (blocks < SNAP_VOLUME_BLOCKS_MIN)
        return refuse_volume(store, SW_SNAP_NO_ROOM, "a volume has 64 KiB at least");
    if (makes_anew)
        return make_volume(store, options);
    if (has_version) /* one superblock is enough: it may be the newer one */
        return refuse_volume(store, SW_SNAP_VERSION,
                             "the volume is of another version of the format");
    if (is_known)
        return open_old(store, options);
    if (!is_new_volume(store))
        return refuse_volume(
            store, SW_SNAP_FORMAT,
            "it has something else than a volume of snapshots, or both its superblocks are "
            "damaged. "
            "It is not touched: take another name, or delete it if nobody needs it");
    if (!options->is_writable)
        return refuse_volume(store, SW_SNAP_NOT_FOUND, "the volume is empty");
    return make_volume(store, options);
}

enum sw_snap_status snap_store_open(struct snap_medium *medium,
                                    const struct snap_store_options *options,
                                    struct sw_snap_error *error, struct snap_store **opened)
{
    enum { TIMEOUT_MS = 10000 };
    struct snap_store *store = calloc(1, sizeof(*store));
    int result = -ENOMEM;
    if (store != NULL) {
        store->medium = medium;
        store->is_writable = options->is_writable;
        store->units_end = &store->units;
        if (options->writer != NULL)
            snprintf(store->writer, sizeof(store->writer), "%s", options->writer);
        result = snap_tasks_open(&store->tasks, medium,
                                 options->timeout_ms == 0 ? TIMEOUT_MS : options->timeout_ms);
    }
    if (result == 0)
        result = open_volume(store, options);
    if (result == 0) {
        *opened = store;
        return SW_SNAP_OK;
    }
    struct sw_snap_error why = {.status = SW_SNAP_NO_MEMORY, .text = "there is no memory"};
    if (store != NULL) {
        if (store->error.status == SW_SNAP_OK)
            snap_store_fail(store, result, "the volume cannot be opened");
        why = store->error;
        snap_store_close(store);
    } else {
        medium->ops->close(medium);
    }
    if (error != NULL)
        *error = why;
    return why.status;
}
