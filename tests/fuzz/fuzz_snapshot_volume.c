/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A volume of snapshots by a stranger: bytes of a good one are changed, and all SHA-256 are set
 * right again. It is opened, read, repaired, written to; or refused. The input has four bytes for
 * each change: the object, where in it (2), and the byte.
 */
#include "fuzz.h"

#include <stdlib.h>
#include <string.h>

#include "../movers/snapshot/store/trial.h"
#include "snapshot/core/digest.h"
#include "snapshot/store/leaf.h"
#include "snapshot/store/root.h"
#include "snapshot/store/scrub.h"
#include "snapshot/store/superblock.h"

enum { CHANGE = 4, OBJECTS = 5, KIB = 1024 };

static struct disk good;
static struct trial trial;
static struct snap_superblock superblock;
static uint32_t newest;

static void make_good(void)
{
    static const uint64_t BYTES[] = {100 * KIB, 200, 70 * KIB};
    struct snap_store *store;
    struct snap_store_info info;
    trial_make(&trial, BYTES, 3);
    disk_make(&good, 1, 160 * SNAP_BLOCK_BYTES);
    memset(trial.ranges[0].data, 7, 50 * KIB);
    if (trial_open(&good, &store) != SW_SNAP_OK ||
        trial_snapshot(&trial, store, &good, 1) != SW_SNAP_OK)
        abort();
    memset(trial.ranges[2].data, 9, 5 * KIB);
    if (trial_snapshot(&trial, store, &good, 2) != SW_SNAP_OK)
        abort();
    snap_store_info_of(store, &info);
    newest = info.generation % 2 == 1 ? 0 : 1;
    snap_store_close(store);
    if (snap_superblock_decode(good.live + newest * SNAP_BLOCK_BYTES, 160, &superblock) !=
        SNAP_SUPERBLOCK_OK)
        abort();
}

static uint8_t *block_at(struct disk *disk, uint64_t block)
{
    return disk->live + block * SNAP_BLOCK_BYTES;
}

/* The root of the newest snapshot, as it was before any change. */
static void change_bytes(struct disk *disk, const uint8_t *data, size_t size)
{
    const struct snap_entry *entry = &superblock.entries[superblock.entries_count - 1];
    struct snap_root root;
    const char *why;
    if (snap_root_decode(block_at(&good, entry->root_block), entry->root_bytes, 160, &root, &why))
        abort();
    uint8_t *root_at = block_at(disk, entry->root_block);
    struct snap_root_unit first = snap_root_unit_at(block_at(&good, entry->root_block), 0);
    struct snap_root_unit last =
        snap_root_unit_at(block_at(&good, entry->root_block), root.units_count - 1);
    const struct {
        uint8_t *at;
        uint64_t bytes;
    } objects[OBJECTS] = {
        {block_at(disk, newest), SNAP_BLOCK_BYTES - SNAP_DIGEST_BYTES},
        {root_at, entry->root_bytes},
        {block_at(disk, root.index.block), root.index.bytes},
        {block_at(disk, first.block), first.bytes},
        {block_at(disk, last.block), last.bytes},
    };
    for (size_t i = 0; i + CHANGE <= size; i += CHANGE) {
        uint32_t object = data[i] % OBJECTS;
        uint32_t at = (uint32_t)(data[i + 1] | data[i + 2] << 8) % (uint32_t)objects[object].bytes;
        objects[object].at[at] = data[i + 3];
    }
    /* From the leaves up. */
    snap_digest_of(objects[2].at, root.index.bytes, root_at + 48 + 16);
    snap_digest_of(objects[3].at, first.bytes, root_at + SNAP_ROOT_HEAD_BYTES + 8);
    snap_digest_of(objects[4].at, last.bytes,
                   root_at + SNAP_ROOT_HEAD_BYTES +
                       (size_t)(root.units_count - 1) * SNAP_ROOT_UNIT_BYTES + 8);
    uint32_t number = superblock.entries_count - 1;
    snap_digest_of(root_at, entry->root_bytes, objects[0].at + 128 + number * 96 + 64);
    snap_digest_of(objects[0].at, objects[0].bytes, objects[0].at + objects[0].bytes);
}

static void read_all(struct snap_store *store)
{
    struct snap_store_info info;
    snap_store_info_of(store, &info);
    for (uint32_t i = 0; i < info.entries_count; i++) {
        struct snap_image *image;
        if (snap_image_open(store, i, NULL, &image) != SW_SNAP_OK)
            continue;
        const struct snap_index *index = snap_image_index(image);
        for (uint32_t k = 0; k < index->ranges_count; k++) {
            struct snap_span span = {.range = k, .bytes = index->ranges[k].bytes};
            span.into = malloc(span.bytes + 1);
            snap_image_read(image, &span, 1, NULL);
            free(span.into);
        }
        snap_image_close(image);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct snap_scrub_options options = {.repairs = true};
    struct snap_scrub_report report;
    struct snap_store *stores[2];
    struct disk disk, other;
    if (good.live == NULL)
        make_good();
    disk_make(&disk, size + 1, good.bytes);
    memcpy(disk.live, good.live, good.bytes);
    change_bytes(&disk, data, size);
    if (trial_open(&disk, &stores[0]) == SW_SNAP_OK) {
        read_all(stores[0]);
        trial_snapshot(&trial, stores[0], &disk, 3);
        disk_make(&other, size + 2, good.bytes);
        memcpy(other.live, good.live, good.bytes);
        if (trial_open(&other, &stores[1]) != SW_SNAP_OK)
            abort();
        snap_scrub(stores, 2, &options, &report, NULL);
        read_all(stores[0]);
        snap_store_close(stores[0]);
        snap_store_close(stores[1]);
        disk_free(&other);
    }
    disk_free(&disk);
    return 0;
}
