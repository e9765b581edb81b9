/* SPDX-License-Identifier: BSD-2-Clause */
/* A state of some ranges that changes, and snapshots of it that are taken at once. */
#ifndef SW_TEST_SNAPSHOT_TRIAL_H
#define SW_TEST_SNAPSHOT_TRIAL_H

#include "disk.h"
#include "snapshot/store/reader.h"

enum { TRIAL_RANGES_MAX = 8, TRIAL_SEED = 77 };

struct trial {
    struct sw_snap_range ranges[TRIAL_RANGES_MAX];
    char names[TRIAL_RANGES_MAX][16];
    uint32_t ranges_count;
    struct snap_cut cut;
    struct snap_index index;
    uint8_t *units; /* of all units, each of unit_bytes: as the ring has them */
    struct snap_sum *sums;
    struct snap_store_unit *given;       /* of each unit */
    const struct snap_store_unit *flips; /* a bit of its data flips before it is given */
    uint32_t done;
    enum sw_snap_status status; /* of the last callback */
    bool is_called;
};

void trial_make(struct trial *trial, const uint64_t *bytes, uint32_t ranges_count);
void trial_free(struct trial *trial);
/* Reads and writes the bytes of all ranges: a copy of the state, trial->cut.state_bytes long. */
void trial_get(const struct trial *trial, uint8_t *bytes);

enum sw_snap_status trial_open(struct disk *disk, struct snap_store **store);
enum sw_snap_status trial_begin(struct trial *trial, struct snap_store *store, uint64_t step);
/* Copies units [first, end) as the ranges are now, and gives them; trial_wait_units() waits. */
void trial_give(struct trial *trial, struct snap_store *store, uint32_t first, uint32_t end);
/* False: the disk has no power any more. */
bool trial_wait_units(struct trial *trial, struct snap_store *store, const struct disk *disk);
/* Starts to wait for a callback of the store; then waits. */
void trial_called(void *context, enum sw_snap_status status, const struct sw_snap_error *error);
bool trial_wait(struct trial *trial, struct snap_store *store, const struct disk *disk);
/* All of it, on a disk with power. */
enum sw_snap_status trial_snapshot(struct trial *trial, struct snap_store *store,
                                   const struct disk *disk, uint64_t step);
enum sw_snap_status trial_forget(struct trial *trial, struct snap_store *store,
                                 const struct disk *disk, uint32_t which);
/* The state of an entry, as trial_get() has it. */
enum sw_snap_status trial_read(struct snap_store *store, uint32_t entry, uint8_t *bytes,
                               uint64_t bytes_max);

#endif
