/* SPDX-License-Identifier: BSD-2-Clause */
#include "history.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "snapshot/store/state.h"
#include "trial.h"

enum { STEPS = 14, KIB = 1024, UNSEEN = SNAP_ENTRIES_MAX };

/* What the program knows of a snapshot that it has begun. */
struct known {
    uint8_t *bytes;
    bool is_acknowledged, is_forgotten, may_be_there;
};

struct history {
    struct random random;
    struct disk disk;
    struct trial trial;
    struct snap_store *store;
    struct known known[STEPS + 8]; /* by step */
    uint64_t step;
    uint8_t *found;
    uint64_t bytes;
    enum history_plant plant;
    struct history_counts *counts;
    const char *why;
};

static bool fail_history(struct history *history, const char *why)
{
    if (history->why == NULL)
        history->why = why;
    return false;
}

/* ---- the state, and how it changes ---- */

static void make_history(struct history *history, uint64_t seed)
{
    struct random *random = &history->random;
    uint64_t bytes[TRIAL_RANGES_MAX];
    random->state = seed * UINT64_C(0x9E3779B97F4A7C15) + 12345;
    random_next(random);
    uint32_t ranges = 1 + random_below(random, 4);
    for (uint32_t i = 0; i < ranges; i++)
        bytes[i] = 1 + random_below(random, random_is(random, 50) ? 40 * KIB : 200 * KIB);
    trial_make(&history->trial, bytes, ranges);
    history->bytes = history->trial.cut.state_bytes;
    history->found = calloc(1, history->bytes);
    uint64_t room =
        snap_store_bytes_for(&history->trial.cut, 1000, 64, 1 + random_below(random, 4));
    disk_make(&history->disk, seed, room / SNAP_BLOCK_BYTES * SNAP_BLOCK_BYTES);
    history->disk.skips_first_flush = history->plant == PLANT_NO_FLUSH;
    history->disk.has_fencing = random_is(random, 80);
    history->disk.reads_back = random_is(random, 50);
}

static void free_history(struct history *history)
{
    for (uint32_t i = 0; i < STEPS + 8; i++)
        free(history->known[i].bytes);
    free(history->found);
    disk_free(&history->disk);
    trial_free(&history->trial);
}

static void change_state(struct history *history)
{
    struct random *random = &history->random;
    for (uint32_t i = 0; i < history->trial.ranges_count; i++) {
        const struct sw_snap_range *range = &history->trial.ranges[i];
        uint8_t *data = range->data;
        if (random_is(random, 20)) {
            for (uint64_t at = 0; at < range->bytes; at++)
                data[at] = (uint8_t)random_next(random);
        } else if (random_is(random, 10)) {
            memset(data, 0, range->bytes);
        } else if (random_is(random, 60)) {
            for (uint32_t k = random_below(random, 8); k > 0; k--)
                data[random_below(random, (uint32_t)range->bytes)]++;
        }
    }
}

/* An io may be planned to fail: then it is tried once more. */
static enum sw_snap_status open_store(struct history *history, struct snap_store **store)
{
    enum sw_snap_status status = trial_open(&history->disk, store);
    if (status != SW_SNAP_OK && !history->disk.is_cut)
        status = trial_open(&history->disk, store);
    return status;
}

/* ---- snapshots ---- */

static uint32_t older_slot(const struct snap_store *store)
{
    return 1 - store->newest;
}

/* Has the store do what it must not. */
static void plant_fault(struct history *history)
{
    struct snap_store *store = history->store;
    struct snap_slot *older = &store->slots[older_slot(store)];
    if (!older->is_valid)
        return;
    if (history->plant == PLANT_OVER_NEWEST) {
        older->superblock.epoch = snap_store_newest(store)->epoch;
        older->superblock.generation = snap_store_newest(store)->generation + 1;
    } else if (history->plant == PLANT_EARLY_REUSE) {
        for (uint32_t i = 0; i < SNAP_SUPERBLOCKS; i++) {
            struct snap_superblock *superblock = &store->slots[i].superblock;
            if (superblock->entries_count < 2)
                continue;
            history->known[superblock->entries[0].step].is_forgotten = true;
            memmove(superblock->entries, superblock->entries + 1,
                    --superblock->entries_count * sizeof(*superblock->entries));
        }
        snap_store_recount(store);
    }
}

static void forget_some(struct history *history)
{
    struct snap_store_info info;
    uint32_t which = 0;
    snap_store_info_of(history->store, &info);
    uint32_t keep = 1 + random_below(&history->random, 2);
    for (uint32_t i = 0; i + keep < info.entries_count; i++) {
        which |= 1u << i;
        history->known[info.entries[i].step].is_forgotten = true;
    }
    if (which != 0 || random_is(&history->random, 30))
        trial_forget(&history->trial, history->store, &history->disk, which);
}

/* Captures the units, some of them twice, with something else at first. */
static bool give_units(struct history *history)
{
    struct trial *trial = &history->trial;
    uint32_t units = trial->cut.units_count;
    uint8_t *data = trial->ranges[0].data;
    if (random_is(&history->random, 30)) {
        uint8_t kept = data[0];
        data[0] = (uint8_t)(kept + 1);
        trial_give(trial, history->store, 0, units);
        data[0] = kept;
        if (!trial_wait_units(trial, history->store, &history->disk))
            return false;
        trial_give(trial, history->store, 0, units);
    } else {
        trial_give(trial, history->store, 0, units);
    }
    return trial_wait_units(trial, history->store, &history->disk);
}

/* False: power was cut. */
static bool take_one(struct history *history)
{
    struct trial *trial = &history->trial;
    struct known *known = &history->known[++history->step];
    change_state(history);
    known->bytes = malloc(history->bytes);
    trial_get(trial, known->bytes);
    plant_fault(history);
    if (trial_begin(trial, history->store, history->step) != SW_SNAP_OK) {
        forget_some(history);
        return !history->disk.is_cut;
    }
    if (!give_units(history))
        return false;
    if (random_is(&history->random, 10)) {
        snap_store_abort(history->store, trial_called, trial);
        return trial_wait(trial, history->store, &history->disk);
    }
    known->may_be_there = true;
    snap_store_prepare(history->store, trial_called, trial);
    if (!trial_wait(trial, history->store, &history->disk))
        return false;
    known->is_acknowledged = trial->status == SW_SNAP_OK;
    history->counts->acknowledged += known->is_acknowledged;
    history->counts->failures += !known->is_acknowledged;
    if (random_is(&history->random, 60))
        forget_some(history);
    return !history->disk.is_cut;
}

/* Another process takes over, in the middle of a snapshot or between two; what the older one still
 * tries must come to nothing. */
static bool change_writer(struct history *history)
{
    struct trial *trial = &history->trial;
    struct snap_store *older = history->store, *newer = NULL;
    bool is_amid = random_is(&history->random, 50);
    if (is_amid) {
        struct known *known = &history->known[++history->step];
        change_state(history);
        known->bytes = malloc(history->bytes);
        trial_get(trial, known->bytes);
        is_amid = trial_begin(trial, older, history->step) == SW_SNAP_OK;
        if (is_amid && !give_units(history))
            return false;
    }
    enum sw_snap_status status = open_store(history, &newer);
    if (history->disk.is_cut) {
        if (status == SW_SNAP_OK)
            snap_store_close(newer);
        return false;
    }
    if (status != SW_SNAP_OK)
        return fail_history(history, "the newer writer cannot open the volume");
    if (is_amid) {
        snap_store_prepare(older, trial_called, trial);
        if (trial_wait(trial, older, &history->disk) && trial->status == SW_SNAP_OK)
            fail_history(history, "the older writer was not fenced");
    }
    history->counts->writers++;
    if (history->disk.is_cut) {
        snap_store_close(newer);
        return false;
    }
    snap_store_close(older);
    history->store = newer;
    return history->why == NULL;
}

/* ---- what must be true ---- */

static bool check_volume(struct history *history)
{
    struct snap_store_info info;
    uint32_t at[STEPS + 8];
    snap_store_info_of(history->store, &info);
    for (uint32_t i = 0; i < STEPS + 8; i++)
        at[i] = UNSEEN;
    for (uint32_t i = 0; i < info.entries_count; i++) {
        uint64_t step = info.entries[i].step;
        if (step >= STEPS + 8 || !history->known[step].may_be_there)
            return fail_history(history, "a snapshot is there that nobody has prepared");
        at[step] = i;
        if (trial_read(history->store, i, history->found, history->bytes) != SW_SNAP_OK)
            return fail_history(history, "a snapshot cannot be read");
        if (memcmp(history->found, history->known[step].bytes, history->bytes) != 0)
            return fail_history(history, "a snapshot has other bytes");
        history->counts->newer += !history->known[step].is_acknowledged;
    }
    for (uint32_t i = 0; i < STEPS + 8; i++)
        if (history->known[i].is_acknowledged && !history->known[i].is_forgotten && at[i] == UNSEEN)
            return fail_history(history, "a snapshot that was acknowledged is not there");
    return true;
}

/* The newest superblock may be damaged, too: then all that the other one has is there. */
static bool check_older_superblock(struct history *history)
{
    struct disk *disk = &history->disk;
    struct snap_superblock older;
    struct snap_store *store;
    uint8_t *whole = malloc(disk->bytes);
    memcpy(whole, disk->live, disk->bytes);
    if (trial_open(disk, &store) != SW_SNAP_OK) {
        free(whole);
        return true; /* that is told by what comes next */
    }
    uint32_t newest = 1 - store->newest; /* this writer has written the other one */
    snap_store_close(store);
    memcpy(disk->live, whole, disk->bytes);
    disk->live[newest * SNAP_BLOCK_BYTES + 100] ^= 1;
    bool is_good = true;
    if (snap_superblock_decode(disk->live + (1 - newest) * SNAP_BLOCK_BYTES,
                               disk->bytes / SNAP_BLOCK_BYTES, &older) == SNAP_SUPERBLOCK_OK) {
        is_good = trial_open(disk, &store) == SW_SNAP_OK;
        for (uint32_t i = 0; i < older.entries_count && is_good; i++)
            is_good = trial_read(store, i, history->found, history->bytes) == SW_SNAP_OK &&
                      memcmp(history->found, history->known[older.entries[i].step].bytes,
                             history->bytes) == 0;
        snap_store_close(store);
    }
    memcpy(disk->live, whole, disk->bytes);
    memcpy(disk->settled, whole, disk->bytes);
    free(whole);
    return is_good || fail_history(history, "what the older superblock has is not there");
}

/* After the cut: what is there is kept, and more is taken. */
static bool go_on(struct history *history)
{
    bool was_made = false;
    for (uint32_t i = 0; i < STEPS + 8; i++)
        was_made |= history->known[i].may_be_there;
    history->disk.skips_first_flush = false;
    enum sw_snap_status status = trial_open(&history->disk, &history->store);
    if (status != SW_SNAP_OK) {
        history->store = NULL;
        return fail_history(history, was_made ? "the volume cannot be opened"
                                              : "a new volume cannot be opened");
    }
    if (!check_volume(history))
        return false;
    for (uint32_t i = 0; i < 3; i++) {
        struct known *known = &history->known[++history->step];
        change_state(history);
        known->bytes = malloc(history->bytes);
        trial_get(&history->trial, known->bytes);
        known->may_be_there = true;
        status = trial_snapshot(&history->trial, history->store, &history->disk, history->step);
        known->is_acknowledged = status == SW_SNAP_OK;
        if (status != SW_SNAP_OK && status != SW_SNAP_NO_ROOM)
            return fail_history(history, "the next snapshot fails");
        if (!check_volume(history))
            return false;
        forget_some(history);
    }
    return true;
}

static void run_until_cut(struct history *history)
{
    bool has_power = true;
    if (open_store(history, &history->store) != SW_SNAP_OK) {
        history->store = NULL;
        if (!history->disk.is_cut)
            fail_history(history, "a new volume cannot be opened");
        return;
    }
    while (has_power && history->why == NULL && history->step < STEPS)
        has_power = random_is(&history->random, 15) ? change_writer(history) : take_one(history);
}

bool history_run(uint64_t seed, enum history_plant plant, struct history_counts *counts,
                 const char **why)
{
    struct history *history = calloc(1, sizeof(*history));
    if (history == NULL)
        abort();
    history->plant = plant;
    history->counts = counts;
    make_history(history, seed);
    if (random_is(&history->random, 50))
        history->disk.cut_at = 3 + random_below(&history->random, 300);
    else
        history->disk.cut_superblock = 1 + random_below(&history->random, 30);
    if (random_is(&history->random, 20))
        history->disk.fail_at = 1 + random_below(&history->random, 300);
    run_until_cut(history);
    if (history->why == NULL) {
        struct snap_medium *medium =
            history->store == NULL ? NULL : snap_store_medium(history->store);
        disk_power_cut(&history->disk, &medium, medium == NULL ? 0 : 1);
        counts->cuts++;
        if (history->store != NULL)
            snap_store_close(history->store);
        history->store = NULL;
        if (check_older_superblock(history))
            go_on(history);
    }
    if (history->store != NULL)
        snap_store_close(history->store);
    *why = history->why;
    free_history(history);
    free(history);
    return *why == NULL;
}
