/* SPDX-License-Identifier: BSD-2-Clause */
#include "snapshot/store/store.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "snapshot/store/leaf.h"
#include "snapshot/store/state.h"

enum sw_snap_status snap_store_status_of(int result)
{
    switch (-result) {
    case 0:
        return SW_SNAP_OK;
    case ESTALE:
        return SW_SNAP_FENCED;
    case ENOSPC:
    case EDQUOT:
        return SW_SNAP_NO_ROOM;
    case EBADMSG:
        return SW_SNAP_CORRUPT;
    case ENOMEM:
        return SW_SNAP_NO_MEMORY;
    case ECANCELED:
    case ECONNRESET:
    case ECONNREFUSED:
    case ECONNABORTED:
    case ENODEV:
    case ENOTCONN:
    case EPIPE:
    case ETIMEDOUT:
    case EHOSTUNREACH:
    case ENETUNREACH:
        return SW_SNAP_LOST;
    default:
        return SW_SNAP_SYSTEM;
    }
}

void snap_store_fail(struct snap_store *store, int result, const char *what)
{
    if (store->error.status != SW_SNAP_OK)
        return;
    const struct snap_medium *medium = store->medium;
    store->error.status = snap_store_status_of(result);
    if (medium->error != 0 && medium->why[0] != 0)
        snprintf(store->error.text, sizeof(store->error.text), "%.160s: %.80s: %.250s",
                 medium->name, what, medium->why);
    else
        snprintf(store->error.text, sizeof(store->error.text), "%.160s: %.80s: %.250s",
                 medium->name, what,
                 result == -ESTALE    ? "another writer has taken over"
                 : result == -EBADMSG ? "it has another sum"
                                      : strerror(-result));
}

void snap_store_fail_block(struct snap_store *store, int result, uint64_t block, const char *what)
{
    char text[80];
    snprintf(text, sizeof(text), "block %" PRIu64 " %s", block, what);
    snap_store_fail(store, result, text);
}

const char *snap_store_failure(const struct snap_store *store)
{
    return store->error.status != SW_SNAP_OK ? store->error.text : "";
}

void snap_store_close(struct snap_store *store)
{
    if (store->medium != NULL) {
        store->medium->ops->close(store->medium);
        store->medium = NULL;
        store->phase = NULL;
        store->write.status = SW_SNAP_LOST;
        snap_write_finish_units(store);
    }
    snap_write_end(store);
    for (uint32_t i = 0; i < SNAP_MARKS_MAX; i++)
        free(store->marks[i].bits);
    if (store->has_base)
        snap_table_free(&store->base);
    snap_room_close(&store->room);
    snap_tasks_close(&store->tasks);
    free(store);
}

void snap_store_poll(struct snap_store *store)
{
    store->medium->ops->poll(store->medium);
    snap_write_pump(store);
    snap_write_finish_units(store);
    snap_commit_step(store);
}

struct snap_medium *snap_store_medium(const struct snap_store *store)
{
    return store->medium;
}

bool snap_store_is_idle(const struct snap_store *store)
{
    return store->phase == NULL && !store->write.is_begun;
}

void snap_store_info_of(const struct snap_store *store, struct snap_store_info *info)
{
    const struct snap_superblock *newest = snap_store_newest(store);
    *info = (struct snap_store_info){
        .rank = newest->rank,
        .world = newest->world,
        .seed = newest->seed,
        .epoch = newest->epoch,
        .generation = newest->generation,
        .blocks = store->room.blocks,
        .free_blocks = store->room.free_blocks,
        .damaged_superblocks = store->damaged_superblocks,
        .entries_count = newest->entries_count,
        .entries = newest->entries,
        .flushed_ns = store->flushed_ns,
        .moved_bytes = store->tasks.written_bytes - store->write.written_before,
        .changed_bytes = store->write.changed_blocks * SNAP_BLOCK_BYTES,
    };
    memcpy(info->identity, newest->identity, sizeof(info->identity));
    memcpy(info->writer, newest->writer, sizeof(info->writer));
}

uint64_t snap_store_bytes_for(const struct snap_cut *cut, uint64_t index_bytes,
                              uint64_t small_bytes, uint32_t snapshots)
{
    uint64_t blocks = cut->state_blocks + snap_blocks_of(index_bytes) +
                      snap_blocks_of(small_bytes) +
                      snap_blocks_of(snap_root_bytes(cut->units_count));
    for (uint32_t i = 0; i < cut->units_count; i++)
        blocks += snap_blocks_of(snap_leaf_bytes(cut->units[i].blocks));
    /* A 64th more, and some, since what has to lie in one run does not find room everywhere. */
    blocks = blocks * snapshots + blocks / 64 + 64;
    return blocks * SNAP_BLOCK_BYTES;
}

enum sw_snap_status snap_store_begin(struct snap_store *store, const struct snap_plan *plan,
                                     struct sw_snap_error *error)
{
    return snap_write_begin(store, plan, error);
}

void snap_store_unit(struct snap_store *store, struct snap_store_unit *unit)
{
    assert(store->write.is_begun && store->phase == NULL &&
           unit->number < store->write.table.root.units_count);
    unit->next = NULL;
    unit->at = 0;
    unit->read_at = 0;
    unit->ios = 0;
    unit->status = SW_SNAP_OK;
    *store->units_end = unit;
    store->units_end = &unit->next;
    if (store->filling == NULL)
        store->filling = unit;
    snap_write_pump(store);
}

static const enum snap_phase PREPARE[] = {
    SNAP_PHASE_DRAIN,        SNAP_PHASE_LEAVES,      SNAP_PHASE_BLOBS, SNAP_PHASE_CHECK_DATA,
    SNAP_PHASE_CHECK_LEAVES, SNAP_PHASE_CHECK_BLOBS, SNAP_PHASE_FLUSH, SNAP_PHASE_FENCE,
    SNAP_PHASE_SUPERBLOCK,   SNAP_PHASE_SETTLE,      SNAP_PHASE_END,
};

/* Both superblocks leave them out, so that their room is free. */
static const enum snap_phase FORGET[] = {
    SNAP_PHASE_FENCE,      SNAP_PHASE_SUPERBLOCK, SNAP_PHASE_SETTLE,
    SNAP_PHASE_SUPERBLOCK, SNAP_PHASE_SETTLE,     SNAP_PHASE_END,
};

/* Nothing is left out: the older superblock says what the newer one does. */
static const enum snap_phase MIRROR[] = {
    SNAP_PHASE_FENCE,
    SNAP_PHASE_SUPERBLOCK,
    SNAP_PHASE_SETTLE,
    SNAP_PHASE_END,
};

static const enum snap_phase ABORT[] = {SNAP_PHASE_DRAIN, SNAP_PHASE_END};

void snap_store_prepare(struct snap_store *store, snap_store_done done, void *context)
{
    assert(store->write.is_begun);
    store->next = *snap_store_newest(store);
    snap_commit_start(store, PREPARE, done, context);
}

void snap_store_abort(struct snap_store *store, snap_store_done done, void *context)
{
    if (!store->is_broken)
        store->error.status = SW_SNAP_OK;
    store->is_abort = true;
    if (store->write.status == SW_SNAP_OK)
        store->write.status = SW_SNAP_SKIPPED; /* units that are not under way end at once */
    snap_commit_start(store, ABORT, done, context);
}

void snap_store_forget(struct snap_store *store, uint32_t which, snap_store_done done,
                       void *context)
{
    assert(snap_store_is_idle(store));
    const struct snap_superblock *newest = snap_store_newest(store);
    if (!store->is_broken)
        store->error.status = SW_SNAP_OK;
    store->next = *newest;
    store->next.entries_count = 0;
    for (uint32_t i = 0; i < newest->entries_count; i++)
        if ((which >> i & 1) == 0)
            store->next.entries[store->next.entries_count++] = newest->entries[i];
    if (newest->entries_count > 0 && (which >> (newest->entries_count - 1) & 1) != 0)
        store->is_base_stale = true;
    snap_commit_start(store, which ? FORGET : MIRROR, done, context);
}
