/* SPDX-License-Identifier: BSD-2-Clause */
/* Snapshots of one volume, without a power cut: what is written, what fits, who may write. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "trial.h"

enum { KIB = 1024, MIB = 1024 * KIB };

struct world {
    struct disk disk;
    struct trial trial;
    struct snap_store *store;
    uint8_t *wanted, *found;
    uint64_t bytes;
};

static const uint64_t BYTES[] = {3 * MIB + 5000, 100, 70 * KIB, 0, 40 * KIB};

static void fill_range(struct trial *trial, uint32_t range, uint64_t seed)
{
    struct random random = {.state = seed + 1};
    uint8_t *data = trial->ranges[range].data;
    for (uint64_t i = 0; i < trial->ranges[range].bytes; i++)
        data[i] = (uint8_t)random_next(&random);
}

static int set_up(void **state)
{
    struct world *w = calloc(1, sizeof(*w));
    if (w == NULL)
        return 1;
    *state = w;
    trial_make(&w->trial, BYTES, 5);
    disk_make(&w->disk, 1, snap_store_bytes_for(&w->trial.cut, 1000, 100, 3));
    w->bytes = w->trial.cut.state_bytes;
    w->wanted = calloc(1, w->bytes);
    w->found = calloc(1, w->bytes);
    for (uint32_t i = 0; i < 5; i++)
        fill_range(&w->trial, i, i);
    return w->wanted == NULL || w->found == NULL || trial_open(&w->disk, &w->store) != SW_SNAP_OK;
}

static int tear_down(void **state)
{
    struct world *w = *state;
    if (w->store != NULL)
        snap_store_close(w->store);
    disk_free(&w->disk);
    trial_free(&w->trial);
    free(w->wanted);
    free(w->found);
    free(w);
    return 0;
}

static void take_good(struct world *w, uint64_t step)
{
    trial_get(&w->trial, w->wanted);
    assert_int_equal(trial_snapshot(&w->trial, w->store, &w->disk, step), SW_SNAP_OK);
}

static void check_entry(struct world *w, uint32_t entry, uint64_t step)
{
    struct snap_store_info info;
    snap_store_info_of(w->store, &info);
    assert_true(entry < info.entries_count);
    assert_int_equal(info.entries[entry].step, step);
    assert_int_equal(trial_read(w->store, entry, w->found, w->bytes), SW_SNAP_OK);
    assert_memory_equal(w->found, w->wanted, w->bytes);
}

static void reopen(struct world *w)
{
    snap_store_close(w->store);
    w->store = NULL;
    assert_int_equal(trial_open(&w->disk, &w->store), SW_SNAP_OK);
}

static uint64_t moved_bytes(const struct world *w, uint64_t *changed)
{
    struct snap_store_info info;
    snap_store_info_of(w->store, &info);
    *changed = info.changed_bytes;
    return info.moved_bytes;
}

static void store__what_was_taken_comes_back(void **state)
{
    struct world *w = *state;
    take_good(w, 7);
    check_entry(w, 0, 7);
    reopen(w);
    check_entry(w, 0, 7);
    fill_range(&w->trial, 2, 99);
    take_good(w, 8);
    check_entry(w, 1, 8);
    reopen(w);
    check_entry(w, 1, 8);
}

static void store__unchanged_state_costs_a_root(void **state)
{
    struct world *w = *state;
    uint64_t changed;
    take_good(w, 1);
    take_good(w, 2);
    /* Small state, root, superblock. */
    assert_int_equal(moved_bytes(w, &changed), 3 * SNAP_BLOCK_BYTES);
    assert_int_equal(changed, 0);
    reopen(w);
    take_good(w, 3);
    assert_int_equal(moved_bytes(w, &changed), 3 * SNAP_BLOCK_BYTES);
    check_entry(w, 2, 3);
}

/* Scattered blocks cost 4 KiB each, and two blocks of leaf for each MiB; a range costs itself. */
static void store__moves_little_more_than_what_changed(void **state)
{
    struct world *w = *state;
    struct random random = {.state = 3};
    uint64_t changed, moved;
    take_good(w, 1);
    for (uint32_t i = 0; i < 40; i++)
        ((uint8_t *)w->trial.ranges[0].data)[random_below(&random, 3 * MIB)]++;
    take_good(w, 2);
    moved = moved_bytes(w, &changed);
    assert_in_range(changed, 35 * SNAP_BLOCK_BYTES, 40 * SNAP_BLOCK_BYTES);
    assert_in_range(moved, changed + 9 * SNAP_BLOCK_BYTES, changed + 11 * SNAP_BLOCK_BYTES);
    fill_range(&w->trial, 2, 1);
    take_good(w, 3);
    moved = moved_bytes(w, &changed);
    assert_int_equal(changed, 18 * SNAP_BLOCK_BYTES);
    assert_int_equal(moved, changed + 4 * SNAP_BLOCK_BYTES);
    check_entry(w, 2, 3);
}

static void store__zeroes_are_not_written(void **state)
{
    struct world *w = *state;
    uint64_t changed;
    memset(w->trial.ranges[0].data, 0, w->trial.ranges[0].bytes);
    take_good(w, 1);
    moved_bytes(w, &changed);
    assert_true(changed <= 32 * SNAP_BLOCK_BYTES);
    check_entry(w, 0, 1);
}

/* The later copy of a unit counts, whatever the first one was. */
static void store__a_unit_may_come_twice(void **state)
{
    struct world *w = *state;
    uint32_t units = w->trial.cut.units_count;
    take_good(w, 1);
    for (uint64_t round = 0; round < 8; round++) {
        assert_int_equal(trial_begin(&w->trial, w->store, 2 + round), SW_SNAP_OK);
        uint8_t *data = w->trial.ranges[0].data;
        static uint8_t kept[64 * KIB];
        memcpy(kept, data, sizeof(kept));
        memset(data, round % 2 == 0 ? 0 : 0x55, sizeof(kept));
        data[MIB] = (uint8_t)(data[MIB] + 1);
        trial_give(&w->trial, w->store, 0, units);
        assert_true(trial_wait_units(&w->trial, w->store, &w->disk));
        memcpy(data, kept, sizeof(kept));
        memset(data + round * 8 * KIB, (int)round, 5 * KIB);
        trial_get(&w->trial, w->wanted);
        trial_give(&w->trial, w->store, 0, units);
        assert_true(trial_wait_units(&w->trial, w->store, &w->disk));
        snap_store_prepare(w->store, trial_called, &w->trial);
        assert_true(trial_wait(&w->trial, w->store, &w->disk));
        assert_int_equal(w->trial.status, SW_SNAP_OK);
        check_entry(w, 1, 2 + round);
        assert_int_equal(trial_forget(&w->trial, w->store, &w->disk, 1), SW_SNAP_OK);
    }
}

static void store__units_must_all_come(void **state)
{
    struct world *w = *state;
    assert_int_equal(trial_begin(&w->trial, w->store, 1), SW_SNAP_OK);
    trial_give(&w->trial, w->store, 1, w->trial.cut.units_count);
    assert_true(trial_wait_units(&w->trial, w->store, &w->disk));
    snap_store_prepare(w->store, trial_called, &w->trial);
    assert_true(trial_wait(&w->trial, w->store, &w->disk));
    assert_int_equal(w->trial.status, SW_SNAP_INVALID);
    take_good(w, 2);
    check_entry(w, 0, 2);
}

static void store__no_room_is_told_by_begin(void **state)
{
    struct world *w = *state;
    struct snap_store_info before, after;
    for (uint64_t step = 1; step <= 3; step++) {
        fill_range(&w->trial, 0, step);
        take_good(w, step);
    }
    snap_store_info_of(w->store, &before);
    assert_int_equal(trial_begin(&w->trial, w->store, 4), SW_SNAP_NO_ROOM);
    snap_store_info_of(w->store, &after);
    assert_int_equal(before.free_blocks, after.free_blocks);
    check_entry(w, 2, 3);
    assert_int_equal(trial_forget(&w->trial, w->store, &w->disk, 1), SW_SNAP_OK);
    for (uint64_t step = 4; step < 30; step++) {
        fill_range(&w->trial, 0, step);
        take_good(w, step);
        check_entry(w, 2, step);
        assert_int_equal(trial_forget(&w->trial, w->store, &w->disk, 1), SW_SNAP_OK);
    }
}

static void store__the_newest_may_be_forgotten(void **state)
{
    struct world *w = *state;
    take_good(w, 1);
    fill_range(&w->trial, 0, 50);
    take_good(w, 2);
    assert_int_equal(trial_forget(&w->trial, w->store, &w->disk, 2), SW_SNAP_OK);
    fill_range(&w->trial, 0, 0);
    uint64_t changed;
    take_good(w, 3);
    moved_bytes(w, &changed);
    assert_int_equal(changed, 0); /* the base is step 1 again */
    check_entry(w, 1, 3);
}

static void store__abort_gives_all_back(void **state)
{
    struct world *w = *state;
    struct snap_store_info before, after;
    take_good(w, 1);
    snap_store_info_of(w->store, &before);
    fill_range(&w->trial, 0, 9);
    assert_int_equal(trial_begin(&w->trial, w->store, 2), SW_SNAP_OK);
    trial_give(&w->trial, w->store, 0, w->trial.cut.units_count);
    snap_store_poll(w->store);
    snap_store_abort(w->store, trial_called, &w->trial);
    assert_true(trial_wait(&w->trial, w->store, &w->disk));
    assert_int_equal(w->trial.done, w->trial.cut.units_count);
    assert_true(snap_store_is_idle(w->store));
    snap_store_info_of(w->store, &after);
    assert_int_equal(before.free_blocks, after.free_blocks);
    check_entry(w, 0, 1);
}

static void store__another_writer_fences(void **state)
{
    struct world *w = *state;
    for (uint32_t has_fencing = 0; has_fencing < 2; has_fencing++) {
        struct snap_store *other;
        w->disk.has_fencing = has_fencing == 1;
        fill_range(&w->trial, 0, 9 + has_fencing);
        take_good(w, 1 + has_fencing);
        assert_int_equal(trial_begin(&w->trial, w->store, 7), SW_SNAP_OK);
        assert_int_equal(trial_open(&w->disk, &other), SW_SNAP_OK);
        trial_give(&w->trial, w->store, 0, w->trial.cut.units_count);
        assert_true(trial_wait_units(&w->trial, w->store, &w->disk));
        snap_store_prepare(w->store, trial_called, &w->trial);
        assert_true(trial_wait(&w->trial, w->store, &w->disk));
        assert_int_equal(w->trial.status, SW_SNAP_FENCED);
        snap_store_close(w->store);
        w->store = other;
        check_entry(w, has_fencing, 1 + has_fencing);
        take_good(w, 8 + has_fencing);
        check_entry(w, has_fencing + 1, 8 + has_fencing);
        trial_forget(&w->trial, w->store, &w->disk, 2u << has_fencing);
        trial_get(&w->trial, w->wanted);
    }
}

/* Two kinds of media: one is read back, and for the other blocks are summed before they go. */
static void store__what_flips_in_the_ring_is_no_snapshot(void **state)
{
    struct world *w = *state;
    take_good(w, 1);
    fill_range(&w->trial, 0, 9);
    for (uint32_t reads_back = 0; reads_back < 2; reads_back++) {
        w->disk.reads_back = reads_back == 1;
        reopen(w);
        assert_int_equal(trial_begin(&w->trial, w->store, 2), SW_SNAP_OK);
        w->trial.flips = &w->trial.given[2];
        trial_give(&w->trial, w->store, 0, w->trial.cut.units_count);
        w->trial.flips = NULL;
        assert_true(trial_wait_units(&w->trial, w->store, &w->disk));
        snap_store_prepare(w->store, trial_called, &w->trial);
        assert_true(trial_wait(&w->trial, w->store, &w->disk));
        assert_int_equal(w->trial.status, SW_SNAP_CORRUPT);
    }
    take_good(w, 3);
    check_entry(w, 1, 3);
}

static void store__what_does_not_come_back_is_no_snapshot(void **state)
{
    struct world *w = *state;
    w->disk.reads_back = true;
    reopen(w);
    take_good(w, 1);
    fill_range(&w->trial, 0, 9);
    assert_int_equal(trial_begin(&w->trial, w->store, 2), SW_SNAP_OK);
    w->disk.flips_write = 3;
    trial_give(&w->trial, w->store, 0, w->trial.cut.units_count);
    assert_true(trial_wait_units(&w->trial, w->store, &w->disk));
    assert_int_equal(w->trial.status, SW_SNAP_CORRUPT);
    snap_store_prepare(w->store, trial_called, &w->trial);
    assert_true(trial_wait(&w->trial, w->store, &w->disk));
    assert_int_equal(w->trial.status, SW_SNAP_CORRUPT);
    fill_range(&w->trial, 0, 0);
    trial_get(&w->trial, w->wanted);
    check_entry(w, 0, 1);
}

/* A range that grew, one that is gone, and one that is new: what stayed is not written again. */
static void store__another_layout_finds_its_base(void **state)
{
    struct world *w = *state;
    static const uint64_t OTHER[] = {3 * MIB + 9000, 100, 70 * KIB, 200 * KIB};
    struct trial trial;
    uint64_t changed;
    take_good(w, 1);
    trial_make(&trial, OTHER, 4);
    memcpy(trial.ranges[0].data, w->trial.ranges[0].data, 3 * MIB);
    memcpy(trial.ranges[2].data, w->trial.ranges[2].data, 70 * KIB);
    fill_range(&trial, 3, 5);
    assert_int_equal(trial_snapshot(&trial, w->store, &w->disk, 2), SW_SNAP_OK);
    moved_bytes(w, &changed);
    assert_int_equal(changed, 200 * KIB);
    uint8_t *wanted = calloc(1, trial.cut.state_bytes), *found = calloc(1, trial.cut.state_bytes);
    trial_get(&trial, wanted);
    assert_int_equal(trial_read(w->store, 1, found, trial.cut.state_bytes), SW_SNAP_OK);
    assert_memory_equal(found, wanted, trial.cut.state_bytes);
    free(wanted);
    free(found);
    trial_free(&trial);
    check_entry(w, 0, 1);
}

/* An io that fails once while a writer opens the volume does not cost a snapshot its blocks. */
static void store__a_failed_read_gives_no_block_out(void **state)
{
    struct world *w = *state;
    take_good(w, 1);
    uint8_t *first = malloc(w->bytes);
    memcpy(first, w->wanted, w->bytes);
    for (uint64_t at = 1; at < 16; at++) {
        snap_store_close(w->store);
        w->disk.fail_at = w->disk.ios + at;
        if (trial_open(&w->disk, &w->store) != SW_SNAP_OK)
            assert_int_equal(trial_open(&w->disk, &w->store), SW_SNAP_OK);
        w->disk.fail_at = 0;
        fill_range(&w->trial, 0, 100 + at);
        take_good(w, 1 + at);
        check_entry(w, 1, 1 + at);
        memcpy(w->wanted, first, w->bytes);
        check_entry(w, 0, 1);
        assert_int_equal(trial_forget(&w->trial, w->store, &w->disk, 2), SW_SNAP_OK);
    }
    free(first);
}

static void store__refuses_what_is_no_volume(void **state)
{
    struct world *w = *state;
    struct snap_store *store;
    memset(w->disk.live, 0x5a, 2 * SNAP_BLOCK_BYTES);
    assert_int_equal(trial_open(&w->disk, &store), SW_SNAP_FORMAT);
    struct snap_medium *medium = disk_open(&w->disk);
    struct snap_store_options options = {.is_writable = true, .make_anew = true, .world = 1};
    assert_int_equal(snap_store_open(medium, &options, NULL, &store), SW_SNAP_OK);
    snap_store_close(store);
    medium = disk_open(&w->disk);
    options = (struct snap_store_options){.is_writable = true, .rank = 3, .world = 4};
    assert_int_equal(snap_store_open(medium, &options, NULL, &store), SW_SNAP_OTHER_RANK);
}

/* One of the two blocks is somebody's, and the other one is zero, as in a disk's first megabyte. */
static void store__refuses_what_is_partly_empty(void **state)
{
    struct world *w = *state;
    struct snap_store *store;
    static uint8_t junk[2 * SNAP_BLOCK_BYTES];
    for (uint32_t i = 0; i < 3; i++) {
        memset(junk, 0, sizeof(junk));
        /* The first block; the second; the first behind an empty sector, as file systems have it */
        memset(junk + (const uint32_t[]){0, SNAP_BLOCK_BYTES, 1024}[i], 0x5a, 300);
        memcpy(w->disk.live, junk, sizeof(junk));
        assert_int_equal(trial_open(&w->disk, &store), SW_SNAP_FORMAT);
        assert_memory_equal(w->disk.live, junk, sizeof(junk));
    }
}

/* The first superblock of a new volume was torn: its first sector came, or its last one alone. */
static void store__makes_a_torn_new_volume_again(void **state)
{
    enum { SECTOR_BYTES = 512 };
    struct world *w = *state;
    struct snap_store *store;
    uint8_t first[SNAP_BLOCK_BYTES];
    memset(w->disk.live, 0, 2 * SNAP_BLOCK_BYTES);
    assert_int_equal(trial_open(&w->disk, &store), SW_SNAP_OK);
    snap_store_close(store);
    memcpy(first, w->disk.live, sizeof(first));
    for (uint32_t i = 0; i < 2; i++) {
        const uint32_t at = i ? SNAP_BLOCK_BYTES - SECTOR_BYTES : 0;
        memset(w->disk.live, 0, 2 * SNAP_BLOCK_BYTES);
        memcpy((uint8_t *)w->disk.live + at, first + at, SECTOR_BYTES);
        assert_int_equal(trial_open(&w->disk, &store), SW_SNAP_OK);
        snap_store_close(store);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define STORE_TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
        STORE_TEST(store__what_was_taken_comes_back),
        STORE_TEST(store__unchanged_state_costs_a_root),
        STORE_TEST(store__moves_little_more_than_what_changed),
        STORE_TEST(store__zeroes_are_not_written),
        STORE_TEST(store__a_unit_may_come_twice),
        STORE_TEST(store__units_must_all_come),
        STORE_TEST(store__no_room_is_told_by_begin),
        STORE_TEST(store__the_newest_may_be_forgotten),
        STORE_TEST(store__abort_gives_all_back),
        STORE_TEST(store__another_writer_fences),
        STORE_TEST(store__what_flips_in_the_ring_is_no_snapshot),
        STORE_TEST(store__what_does_not_come_back_is_no_snapshot),
        STORE_TEST(store__another_layout_finds_its_base),
        STORE_TEST(store__a_failed_read_gives_no_block_out),
        STORE_TEST(store__refuses_what_is_no_volume),
        STORE_TEST(store__refuses_what_is_partly_empty),
        STORE_TEST(store__makes_a_torn_new_volume_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
