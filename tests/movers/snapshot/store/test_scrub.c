/* SPDX-License-Identifier: BSD-2-Clause */
/* Bits that flip in a volume: each is found, placed, and repaired out of another volume. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "snapshot/store/image.h"
#include "snapshot/store/scrub.h"
#include "snapshot/store/state.h"
#include "trial.h"

enum { KIB = 1024, VOLUMES = 2, STEPS = 3, FINDINGS_MAX = 1024 };

struct world {
    struct disk disks[VOLUMES];
    struct snap_store *stores[VOLUMES];
    struct trial trial;
    uint8_t *wanted[STEPS], *now, *found;
    struct snap_scrub_finding findings[FINDINGS_MAX];
    char range[64];
    uint32_t findings_count;
    uint64_t progress;
};

static void change_range(struct trial *trial, uint32_t range, uint64_t seed)
{
    struct random random = {.state = seed + 1};
    uint8_t *data = trial->ranges[range].data;
    for (uint64_t i = 0; i < trial->ranges[range].bytes; i++)
        data[i] = (uint8_t)random_next(&random);
}

static int set_up(void **state)
{
    static const uint64_t BYTES[] = {1500 * KIB, 300, 200 * KIB, 20 * KIB};
    struct world *w = calloc(1, sizeof(*w));
    *state = w;
    trial_make(&w->trial, BYTES, 4);
    w->now = malloc(w->trial.cut.state_bytes);
    w->found = malloc(w->trial.cut.state_bytes);
    for (uint32_t i = 0; i < VOLUMES; i++) {
        disk_make(&w->disks[i], i + 1, snap_store_bytes_for(&w->trial.cut, 1000, 100, 4));
        if (trial_open(&w->disks[i], &w->stores[i]) != SW_SNAP_OK)
            return 1;
    }
    /* Places differ from volume to volume. */
    change_range(&w->trial, 0, 1);
    if (trial_snapshot(&w->trial, w->stores[1], &w->disks[1], 99) != SW_SNAP_OK ||
        trial_forget(&w->trial, w->stores[1], &w->disks[1], 1) != SW_SNAP_OK)
        return 1;
    for (uint32_t step = 0; step < STEPS; step++) {
        change_range(&w->trial, step, 10 + step);
        w->wanted[step] = malloc(w->trial.cut.state_bytes);
        trial_get(&w->trial, w->wanted[step]);
        for (uint32_t i = 0; i < VOLUMES; i++)
            if (trial_snapshot(&w->trial, w->stores[i], &w->disks[i], step + 1) != SW_SNAP_OK)
                return 1;
    }
    return 0;
}

static int tear_down(void **state)
{
    struct world *w = *state;
    for (uint32_t i = 0; i < VOLUMES; i++) {
        if (w->stores[i] != NULL)
            snap_store_close(w->stores[i]);
        disk_free(&w->disks[i]);
    }
    for (uint32_t i = 0; i < STEPS; i++)
        free(w->wanted[i]);
    free(w->found);
    free(w->now);
    trial_free(&w->trial);
    free(w);
    return 0;
}

static void note_finding(void *context, const struct snap_scrub_finding *finding)
{
    struct world *w = context;
    assert_true(w->findings_count < FINDINGS_MAX);
    if (finding->range != NULL)
        strncpy(w->range, finding->range, sizeof(w->range) - 1);
    w->findings[w->findings_count++] = *finding;
}

static void note_progress(void *context, uint64_t done_bytes, uint64_t all_bytes)
{
    struct world *w = context;
    assert_true(done_bytes <= all_bytes && done_bytes >= w->progress);
    w->progress = done_bytes;
}

static enum sw_snap_status scrub_all(struct world *w, bool repairs, uint32_t volumes)
{
    const struct snap_scrub_options options = {
        .repairs = repairs, .found = note_finding, .progress = note_progress, .context = w};
    struct snap_scrub_report report;
    w->findings_count = 0;
    w->progress = 0;
    enum sw_snap_status status = snap_scrub(w->stores, volumes, &options, &report, NULL);
    assert_int_equal(report.damaged, w->findings_count);
    assert_true(report.read_bytes > 0);
    return status;
}

static void reopen(struct world *w, uint32_t volume)
{
    snap_store_close(w->stores[volume]);
    w->stores[volume] = NULL;
    assert_int_equal(trial_open(&w->disks[volume], &w->stores[volume]), SW_SNAP_OK);
}

static void flip_bit(struct world *w, uint32_t volume, uint64_t block, uint32_t byte)
{
    assert_true(block < w->disks[volume].bytes / SNAP_BLOCK_BYTES);
    w->disks[volume].live[block * SNAP_BLOCK_BYTES + byte] ^= 0x10;
}

static void check_all(struct world *w)
{
    assert_int_equal(scrub_all(w, false, VOLUMES), SW_SNAP_OK);
    for (uint32_t i = 0; i < VOLUMES; i++) {
        reopen(w, i);
        assert_int_equal(snap_store_newest(w->stores[i])->entries_count, STEPS);
        for (uint32_t step = 0; step < STEPS; step++) {
            assert_int_equal(trial_read(w->stores[i], step, w->found, w->trial.cut.state_bytes),
                             SW_SNAP_OK);
            assert_memory_equal(w->found, w->wanted[step], w->trial.cut.state_bytes);
        }
        assert_int_equal(trial_forget(&w->trial, w->stores[i], &w->disks[i], 1), SW_SNAP_OK);
        change_range(&w->trial, 0, 77);
        assert_int_equal(trial_snapshot(&w->trial, w->stores[i], &w->disks[i], 50), SW_SNAP_OK);
        trial_get(&w->trial, w->now);
        assert_int_equal(trial_read(w->stores[i], 2, w->found, w->trial.cut.state_bytes),
                         SW_SNAP_OK);
        assert_memory_equal(w->found, w->now, w->trial.cut.state_bytes);
    }
}

/* A bit of the first volume has flipped: alone it is found, with another volume it is repaired. */
static void expect_repair(struct world *w, enum snap_scrub_object object, uint64_t block,
                          uint32_t byte)
{
    flip_bit(w, 0, block, byte);
    reopen(w, 0);
    assert_int_equal(scrub_all(w, true, 1), SW_SNAP_CORRUPT);
    assert_int_equal(scrub_all(w, false, VOLUMES), SW_SNAP_CORRUPT);
    assert_true(w->findings_count > 0);
    for (uint32_t i = 0; i < w->findings_count; i++) {
        assert_int_equal(w->findings[i].volume, 0);
        assert_int_equal(w->findings[i].object, object);
        assert_false(w->findings[i].is_repaired);
        assert_true(w->findings[i].block <= block && block < w->findings[i].block + 8);
    }
    assert_int_equal(scrub_all(w, true, VOLUMES), SW_SNAP_OK);
    assert_true(w->findings_count > 0 && w->findings[0].is_repaired);
    check_all(w);
}

static struct snap_image *image_of(struct world *w, uint32_t entry)
{
    struct snap_image *image;
    assert_int_equal(snap_image_load(w->stores[0], &snap_store_newest(w->stores[0])->entries[entry],
                                     NULL, &image),
                     SW_SNAP_OK);
    return image;
}

static void scrub__whole_volumes_are_whole(void **state)
{
    struct world *w = *state;
    assert_int_equal(scrub_all(w, true, VOLUMES), SW_SNAP_OK);
    assert_int_equal(w->findings_count, 0);
    check_all(w);
}

static void scrub__data(void **state)
{
    struct world *w = *state;
    struct snap_image *image = image_of(w, 2);
    uint32_t unit = image->table.index.ranges[2].unit;
    uint32_t block = image->table.places[image->table.first[unit] + 3];
    snap_image_close(image);
    assert_true(block >= SNAP_SUPERBLOCKS);
    expect_repair(w, SNAP_SCRUB_DATA, block, 1234);
    assert_string_equal(w->range, "range.c");
}

static void scrub__leaf(void **state)
{
    struct world *w = *state;
    struct snap_image *image = image_of(w, 2);
    uint32_t block = image->table.units[1].block;
    snap_image_close(image);
    expect_repair(w, SNAP_SCRUB_LEAF, block, 40);
}

static void scrub__root(void **state)
{
    struct world *w = *state;
    expect_repair(w, SNAP_SCRUB_ROOT, snap_store_newest(w->stores[0])->entries[1].root_block, 200);
}

static void scrub__index(void **state)
{
    struct world *w = *state;
    struct snap_image *image = image_of(w, 1);
    uint64_t block = image->table.root.index.block;
    snap_image_close(image);
    expect_repair(w, SNAP_SCRUB_INDEX, block, 17);
}

static void scrub__small_state(void **state)
{
    struct world *w = *state;
    struct snap_image *image = image_of(w, 2);
    uint64_t block = image->table.root.small.block;
    snap_image_close(image);
    expect_repair(w, SNAP_SCRUB_SMALL, block, 3);
}

/* A writer that opens the volume writes it anew. */
static void scrub__superblock(void **state)
{
    struct world *w = *state;
    flip_bit(w, 0, w->stores[0]->newest, 130);
    assert_int_equal(scrub_all(w, false, VOLUMES), SW_SNAP_CORRUPT);
    assert_int_equal(w->findings[0].object, SNAP_SCRUB_SUPERBLOCK);
    assert_int_equal(scrub_all(w, true, VOLUMES), SW_SNAP_OK);
    assert_int_equal(w->findings_count, 1);
    assert_true(w->findings[0].is_repaired);
    flip_bit(w, 0, 1 - w->stores[0]->newest, 130);
    reopen(w, 0);
    assert_int_equal(scrub_all(w, false, VOLUMES), SW_SNAP_OK);
    assert_int_equal(w->findings_count, 1);
    check_all(w);
}

/* Both volumes are damaged, at different blocks: each repairs the other one. */
static void scrub__each_repairs_the_other(void **state)
{
    struct world *w = *state;
    struct snap_image *image = image_of(w, 2);
    uint64_t first = image->table.first[0];
    for (uint32_t i = 0; i < 40; i++)
        flip_bit(w, 0, image->table.places[first + i], i);
    snap_image_close(image);
    assert_int_equal(snap_image_open(w->stores[1], 2, NULL, &image), SW_SNAP_OK);
    for (uint32_t i = 40; i < 50; i++)
        flip_bit(w, 1, image->table.places[first + i], i);
    snap_image_close(image);
    assert_int_equal(scrub_all(w, true, VOLUMES), SW_SNAP_OK);
    assert_int_equal(w->findings_count, 50);
    check_all(w);
}

/* A block that is damaged in both is not made up. */
static void scrub__damaged_in_all_is_not_repaired(void **state)
{
    struct world *w = *state;
    for (uint32_t i = 0; i < VOLUMES; i++) {
        struct snap_image *image;
        assert_int_equal(snap_image_open(w->stores[i], 2, NULL, &image), SW_SNAP_OK);
        flip_bit(w, i, image->table.places[image->table.first[0] + 5], 9);
        snap_image_close(image);
    }
    assert_int_equal(scrub_all(w, true, VOLUMES), SW_SNAP_CORRUPT);
    assert_int_equal(w->findings_count, 2);
    assert_false(w->findings[0].is_repaired || w->findings[1].is_repaired);
    assert_int_equal(w->findings[0].offset, 5 * SNAP_BLOCK_BYTES);
}

/* A leaf that could not be read for a while: its blocks were given out meanwhile, and what is there
 * now is not written over. */
static void scrub__later_snapshots_are_left_alone(void **state)
{
    struct world *w = *state;
    struct snap_image *image = image_of(w, 0);
    uint32_t block = image->table.units[0].block, lost = 0;
    snap_image_close(image);
    flip_bit(w, 0, block, 40);
    reopen(w, 0);
    for (uint64_t step = 110; step < 112; step++) {
        change_range(&w->trial, 0, step);
        assert_int_equal(trial_snapshot(&w->trial, w->stores[0], &w->disks[0], step), SW_SNAP_OK);
    }
    trial_get(&w->trial, w->now);
    flip_bit(w, 0, block, 40);
    reopen(w, 0);
    assert_int_equal(scrub_all(w, true, VOLUMES), SW_SNAP_CORRUPT);
    for (uint32_t i = 0; i < w->findings_count && i < FINDINGS_MAX; i++)
        lost += !w->findings[i].is_repaired;
    assert_true(lost > 0 && lost == w->findings_count);
    assert_int_equal(trial_read(w->stores[0], 4, w->found, w->trial.cut.state_bytes), SW_SNAP_OK);
    assert_memory_equal(w->found, w->now, w->trial.cut.state_bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define SCRUB_TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
        SCRUB_TEST(scrub__whole_volumes_are_whole),
        SCRUB_TEST(scrub__data),
        SCRUB_TEST(scrub__leaf),
        SCRUB_TEST(scrub__root),
        SCRUB_TEST(scrub__index),
        SCRUB_TEST(scrub__small_state),
        SCRUB_TEST(scrub__superblock),
        SCRUB_TEST(scrub__each_repairs_the_other),
        SCRUB_TEST(scrub__damaged_in_all_is_not_repaired),
        SCRUB_TEST(scrub__later_snapshots_are_left_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
